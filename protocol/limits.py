"""Limits on what arrives from outside, each with the reason for its value.

They bound what one frame can make a broker (or a client) allocate or compute. Limits that an
operator may want to move are settings instead, and come in as arguments.
"""

from typing import Final

LENGTH_BYTES: Final = 4
"""Size of the big-endian length in front of every frame."""

SLAB_BYTES: Final = 64 * 1024
"""Receive buffer of a connection that shares none. A frame of which more than that has come, and
not all, gets a buffer of its own."""

SHARED_SLAB_BYTES: Final = 1024 * 1024
"""Receive buffer of all connections of a broker together: what one read brings is handled at once.
What a producer has under way in sets of 64 KiB fits, so that it is written together; more than
that in one turn would keep others waiting."""

SPARE_FRAMES: Final = 2
SPARE_BYTES: Final = 4 * 1024 * 1024
"""Memory of so many large requests, of up to so many bytes each, is kept by a broker for the next
ones: to clear new memory, and to copy what has come when it grows, takes as long as to check a set.
"""

REQUESTS_IN_A_TURN: Final = 512
"""So many requests of one connection are handled before others have their turn: a few ms."""

GROWTH_FACTOR: Final = 8
"""A large frame's buffer is at most this many times what has arrived of it, so that a declared
length alone costs nothing; large steps, because every step copies what is there."""

ONE_READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a large frame that are received, or copied when its buffer grows, in one turn of the
event loop: some 5 ms. Once so many have arrived, the buffer gets the frame's whole length; the
system gives the memory of the rest as it is filled."""

MAX_DEPTH: Final = 16
"""Nesting of arrays and maps in a frame. The deepest request declared (create-topics) has 7."""

MAX_REQUEST_VALUES: Final = 100_000
"""Values (keys, numbers, strings, containers) in one request. One byte of msgpack can cost 70
bytes as an object, and so many are decoded in some 10 ms. A list-offsets for 33,000 partitions has
as many in Kafka's encoding, one for 14,000 in the native one."""

MAX_REPLICATE_VALUES: Final = 1_000_000
"""As above for what a follower tells its leader: the positions of 60,000 partitions."""

MAX_SMALL_REQUEST_VALUES: Final = 64
"""Values in a request that is handled together with others of its kind: some hundreds of them go
without a look at the time. A produce request for 12 partitions has so many in Kafka's encoding."""

LARGE_REQUEST_BYTES: Final = 256 * 1024
"""From so many bytes on a request is decoded piece by piece, and others are served in between."""

MAX_PIECE_VALUES: Final = 1_000
"""Values that are decoded or encoded without a look at the time: a tenth of a millisecond."""

MAX_WALKED_VALUES: Final = 10_000
"""Values of a broken message that are looked at to say which one is wrong: some 10 ms."""

MAX_RESPONSE_VALUES: Final = 4_000_000
"""As above for a response, which says more about each partition than the request did."""

MAX_STRING_BYTES: Final = 32_767
"""A Kafka string's length is an int16; the same limit in both encodings."""

MAX_DATA_BYTES: Final = 1024 * 1024
"""Bytes that clients of a group leave for each other. Assignments of 10,000 partitions with long
topic names take less; the broker keeps them as long as the group lives."""

MAX_ERROR_TEXT_BYTES: Final = 4_000
"""The sentence beside an error code. It quotes what was sent, and that may be long."""

MAX_CLIENT_ID_BYTES: Final = 255
"""The client id goes into log lines; longer ones would only fill them."""

MAX_TOPICS: Final = 10_000
"""Topics named in one request. A broker with more partitions than this has run out of files."""

MAX_PARTITIONS: Final = 100_000
"""Partitions of one topic in one request; above any broker's number of open logs."""

MAX_REPLICAS: Final = 1_000
"""Broker ids of one partition. There is one broker; Kafka's own clusters stay far below."""

MAX_CONFIGS: Final = 1_000
"""Settings of one topic in one request; there are a few dozen."""

MAX_LEADER_EPOCHS: Final = 16_400
"""Leader epochs that a stretch of a log spans. There is one for each time that a broker began to
lead."""

MAX_COPY_FACTS_BYTES: Final = 1024 * 1024
"""What goes with a stretch of a log to a follower: as many epochs and append times as are sent take
less than half."""

MAX_PRODUCER_STATE_PIECES: Final = 16
"""Pieces of a MiB that tell what is known of a partition's producers: of a hundred thousand."""

MAX_LOG_DIRS: Final = 1_000
"""Directories of one broker. There is one; Kafka takes a list of them."""

MAX_APIS: Final = 1_000
"""Entries of an api-versions response; Kafka has about a hundred requests."""

MAX_LISTED: Final = 10_000
"""Names, or positions, in one answer that lists them; the next ones take another request. So an
answer is made in some 20 ms however many there are."""

MAX_MEMBERS: Final = 10_000
"""Members of one group, in one answer or request. `group.max.size` is what an operator sets."""

MAX_GROUP_PROTOCOLS: Final = 100
"""Protocols that a member of a group offers; clients know less than ten."""

MAX_GROUP_FILTERS: Final = 100
"""States, or types, of groups that a list is asked for; Kafka has less than ten of either."""

MAX_GROUPS: Final = 10_000
"""Groups named in one request."""

MAX_SEGMENTS: Final = 1_000_000
"""Segments in a describe-log response: a petabyte at the default segment size."""

MAX_APPEND_TIMES: Final = 20_000
"""Append times in a fetch response, which ends earlier where there would be more: they are looked
up and encoded in one turn of the broker's loop, in the worst case in some 30 ms."""

MAX_INTERVALS: Final = 100_000
"""Intervals of one count-by-time: every minute of two months. An answer takes 800 KB at most."""

MAX_TRANSACTION_FILTERS: Final = 1_000
"""States, or producers, that a list of transactions is asked for."""

MAX_LISTED_PRODUCERS: Final = 1_000
"""Producers of one partition in an answer that describes them."""

MAX_ABORTED_TRANSACTIONS: Final = 1_000_000
"""Aborted transactions beside the messages of a fetched partition; each has left a marker there."""

MAX_OLD_STYLE_OFFSETS: Final = MAX_SEGMENTS + 1
"""Offsets in a list-offsets 0 response: one a segment, and the log end."""

MAX_CLIENT_RESPONSE_BYTES: Final = 256 * 1024 * 1024
"""Largest response a client accepts. More than twice the largest request a broker accepts by
default, so that anything which could be produced can be fetched."""

MAX_HANDSHAKE_RESPONSE_BYTES: Final = 64 * 1024
"""The same while the client has not authenticated, and may be talking to anybody. An api-versions
response has 2 KiB, a step of an authentication less."""

MIN_SCRAM_ITERATIONS: Final = 4096
"""Rounds of the hash over a password: what RFC 7677 and Kafka ask for at the least."""

MAX_SCRAM_ITERATIONS: Final = 16_777_216
"""A client computes as many as a server says: these take some ten seconds, 2^31 would take an
hour."""

MAX_SCRAM_NONCE_BYTES: Final = 1024
"""Of both sides together; each makes about 24."""

MAX_AUTH_BYTES: Final = 64 * 1024
"""One message of SASL. Tokens have a few KiB."""

MAX_MECHANISMS: Final = 100
"""Mechanisms of SASL that a broker offers; there are about ten."""

MAX_SALT_BYTES: Final = 1024
"""Of a credential's salt, or its salted password; both have less than 100 bytes."""

MAX_ACLS: Final = 10_000
"""Access rules of a broker, and those named in one request: some 10 MB."""

MAX_ACL_TEXT_BYTES: Final = 1024
"""Of the principal, the host and the resource's name of a rule. Topics have at most 249 bytes,
users 255, the subjects of certificates more."""

MAX_USERS: Final = 10_000
"""Users named in one request, or named in one answer."""

MAX_QUOTA_ENTITIES: Final = 10_000
"""Users, clients and pairs of them that have quotas."""

MAX_QUOTA_PARTS: Final = 16
"""Parts of an entity, quotas of one, and components of a filter: there are two and four of them;
more are refused with a sentence, and far more without one."""

MAX_QUOTA_NAME_BYTES: Final = 255
"""Name of a user or a client with quotas."""
