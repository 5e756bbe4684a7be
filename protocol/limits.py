"""Limits on data from outside, each with the reason for its value.

They bound what one frame can make a broker or a client allocate or compute. Limits that an operator
may want to change are settings instead, and are passed as arguments.
"""

from typing import Final

LENGTH_BYTES: Final = 4
"""Size of the big-endian length in front of every frame."""

SLAB_BYTES: Final = 64 * 1024
"""Receive buffer of a connection that does not share one. A frame that is still incomplete after
this many bytes gets a buffer of its own."""

SHARED_SLAB_BYTES: Final = 1024 * 1024
"""Receive buffer shared by all connections of a broker: the data of one read are handled at once.
The requests that a producer has in flight, in sets of 64 KiB, fit and are written together; a
larger buffer would keep other connections waiting."""

SPARE_FRAMES: Final = 2
SPARE_BYTES: Final = 4 * 1024 * 1024
"""Number and maximum size of the buffers of large requests that a broker keeps for later ones:
clearing new memory, and copying the data when a buffer grows, takes as long as checking a record
set."""

REQUESTS_IN_A_TURN: Final = 512
"""Requests of one connection that are handled before other connections have their turn: a few
ms."""

GROWTH_FACTOR: Final = 8
"""A large frame's buffer is at most this many times as large as the part that has arrived, so that
a declared length alone costs nothing. The factor is large because every step copies the data."""

ONE_READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a large frame that are received, or copied when its buffer grows, in one turn of the
event loop: some 5 ms. When these have arrived, the buffer gets the frame's full length; the
system allocates the rest as it is filled."""

MAX_DEPTH: Final = 16
"""Nesting of arrays and maps in a frame. The deepest request declared (create-topics) has 7."""

MAX_REQUEST_VALUES: Final = 100_000
"""Values (keys, numbers, strings, containers) in one request. One byte of msgpack can take 70 bytes
as an object; decoding this many takes some 10 ms. A list-offsets request reaches the limit
with 33,000 partitions in Kafka's encoding and with 14,000 in the native one."""

MAX_REPLICATE_VALUES: Final = 1_000_000
"""Values in a replicate request: a follower reports the positions of up to 60,000 partitions."""

MAX_SMALL_REQUEST_VALUES: Final = 64
"""Values in a request that is handled in one batch with others of its kind; some hundreds of these
are handled without checking the time. A produce request for 12 partitions has this many in Kafka's
encoding."""

LARGE_REQUEST_BYTES: Final = 256 * 1024
"""Requests of at least this size are decoded in pieces, and others are served in between."""

MAX_PIECE_VALUES: Final = 1_000
"""Values that are decoded or encoded without checking the time: a tenth of a millisecond."""

MAX_WALKED_VALUES: Final = 10_000
"""Values of a malformed message that are checked to find the wrong one: some 10 ms."""

MAX_RESPONSE_VALUES: Final = 4_000_000
"""Values in one response, which says more about each partition than its request."""

MAX_STRING_BYTES: Final = 32_767
"""A Kafka string's length is an int16; the limit is the same in both encodings."""

MAX_DATA_BYTES: Final = 1024 * 1024
"""Bytes that clients of a group store for each other. Assignments of 10,000 partitions with long
topic names take less; the broker keeps them as long as the group lives."""

MAX_ERROR_TEXT_BYTES: Final = 4_000
"""The text beside an error code. It quotes values from the request, which may be long."""

MAX_GROUP_NAME_BYTES: Final = 255
"""Name, in UTF-8, of a group or of positions. Names in Kafka's tools are far shorter."""

MAX_CLIENT_ID_BYTES: Final = 255
"""The client id goes into log lines; longer ones would only fill them."""

MAX_TOPICS: Final = 10_000
"""Topics named in one request. A broker with more partitions than this has run out of files."""

MAX_PARTITIONS: Final = 100_000
"""Partitions of one topic in one request; above any broker's number of open logs."""

MAX_WINDOW_PARTITIONS: Final = 100_000
"""Partitions of window topics in one metadata answer. Any number of windows can be named of one
topic, and each has all its partitions."""

MAX_REPLICAS: Final = 1_000
"""Broker ids of one partition. There is one broker; Kafka's own clusters stay far below."""

MAX_DESCRIBED_WINDOWS: Final = 1_000
"""Window topics whose settings are in one answer. Any number can be named, and each has all the
settings of its base."""

MAX_CONFIGS: Final = 1_000
"""Settings of one topic in one request; there are a few dozen."""

MAX_LEADER_EPOCHS: Final = 16_400
"""Leader epochs in a range of a log. Each time that a broker begins to lead adds one."""

MAX_COPY_FACTS_BYTES: Final = 1024 * 1024
"""Epochs and append times that a leader sends to a follower with a range of a log. The most that it
sends takes less than half of this."""

MAX_PRODUCER_STATE_PIECES: Final = 16
"""Pieces of 1 MiB with the state of a partition's idempotent producers; enough for a hundred
thousand."""

MAX_LOG_DIRS: Final = 1_000
"""Directories of one broker. There is one; Kafka takes a list of them."""

MAX_APIS: Final = 1_000
"""Entries of an api-versions response; Kafka has about a hundred requests."""

MAX_LISTED: Final = 10_000
"""Names, or offsets, in one answer that lists them; the rest takes further requests. So an answer
is built in some 20 ms, however many there are."""

MAX_MEMBERS: Final = 10_000
"""Members of one group in an answer or a request. Operators set a lower limit with
`group.max.size`."""

MAX_GROUP_PROTOCOLS: Final = 100
"""Protocols that a member of a group offers; clients know fewer than ten."""

MAX_GROUP_FILTERS: Final = 100
"""States, or types, of groups in a request for a list; Kafka has fewer than ten of either."""

MAX_GROUPS: Final = 10_000
"""Groups named in one request."""

MAX_SEGMENTS: Final = 1_000_000
"""Segments in a describe-log response: a petabyte at the default segment size."""

MAX_APPEND_TIMES: Final = 20_000
"""Append times in a fetch response, which ends early if there would be more. They are looked up and
encoded in one turn of the event loop, in the worst case in some 30 ms."""

MAX_INTERVALS: Final = 100_000
"""Intervals of one count-by-time request: every minute of two months. An answer has at most 800
KB."""

MAX_TRANSACTION_FILTERS: Final = 1_000
"""States, or producers, in a request for a list of transactions."""

MAX_LISTED_PRODUCERS: Final = 1_000
"""Producers of one partition in a describe-producers response."""

MAX_ABORTED_TRANSACTIONS: Final = 1_000_000
"""Aborted transactions listed with a fetched partition; each has left a marker in its log."""

MAX_OLD_STYLE_OFFSETS: Final = MAX_SEGMENTS + 1
"""Offsets in a list-offsets response of version 0: one per segment, and the log end offset."""

MAX_CLIENT_RESPONSE_BYTES: Final = 256 * 1024 * 1024
"""Largest response a client accepts. More than twice the largest request a broker accepts by
default, so that anything which could be produced can be fetched."""

MAX_HANDSHAKE_RESPONSE_BYTES: Final = 64 * 1024
"""Largest response that a client accepts before it has authenticated, when the other side may be
anybody. An api-versions response has 2 KiB, a step of an authentication less."""

MIN_SCRAM_ITERATIONS: Final = 4096
"""Iterations of the password hash: the minimum of RFC 7677 and Kafka."""

MAX_SCRAM_ITERATIONS: Final = 16_777_216
"""Iterations that a client computes at most for a server: some ten seconds. 2^31 would take an
hour."""

MAX_SCRAM_NONCE_BYTES: Final = 1024
"""Bytes of the nonces of both sides together; each makes about 24."""

MAX_AUTH_BYTES: Final = 64 * 1024
"""One SASL message. Tokens have a few KiB."""

MAX_MECHANISMS: Final = 100
"""SASL mechanisms that a broker offers; there are about ten."""

MAX_SALT_BYTES: Final = 1024
"""Salt, or salted password, of a credential; both have less than 100 bytes."""

MAX_ACLS: Final = 10_000
"""ACLs of a broker, or named in one request: some 10 MB."""

MAX_ACL_TEXT_BYTES: Final = 1024
"""Principal, host or resource name of an ACL. Topic names have at most 249 bytes, users 255; the
subjects of certificates have more."""

MAX_USERS: Final = 10_000
"""Users named in one request or in one answer."""

MAX_QUOTA_ENTITIES: Final = 10_000
"""Users, client ids and pairs of them that have quotas."""

MAX_QUOTA_PARTS: Final = 16
"""Parts of a quota entity, quotas of one entity, and components of a filter. There are two parts
and four quotas; more are refused with an error text, and far more without one."""

MAX_QUOTA_NAME_BYTES: Final = 255
"""Bytes of a user name or client id with quotas."""
