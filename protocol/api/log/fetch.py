"""fetch: read record sets from partitions, and wait for data if asked to."""

from typing import Final

from ...limits import MAX_ABORTED_TRANSACTIONS, MAX_APPEND_TIMES, MAX_PARTITIONS, MAX_TOPICS
from ..rights import When, each
from ..schema import (
    INT32,
    Api,
    ServedBy,
    array,
    boolean,
    error_text,
    int8,
    int16,
    int32,
    int64,
    message,
    records,
    string,
)
from ..security.acl_terms import Operation, ResourceType
from .replicas import allow_follower, current_leader_epoch, follower_heard_ms, seen_offset

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""Values of `isolation_level`."""

WHOLE_EPOCHS: Final = (-1, 0)
"""Values of `session_epoch` in a fetch that names everything it asks for. Other values change a
fetch session."""


@message
class FetchPartition:
    partition: int = int32(doc="Partition to read.")
    current_leader_epoch: int = current_leader_epoch(since=9)
    fetch_offset: int = int64(doc="First offset wanted.")
    log_start_offset: int = int64(since=5, default=-1, doc="Of a follower; not looked at.")
    partition_max_bytes: int = int32(default=1 << 20, doc="Most bytes of this partition.")
    window_from_ms: int = int64(
        native=True,
        default=-1,
        doc="Only messages of this time or later are wanted: record sets without any may be passed "
        "over. -1 is no bound. Sets come as they are stored, so the reader drops other messages.",
    )
    window_until_ms: int = int64(
        native=True, default=-1, doc="Only messages before this time are wanted; -1 is no bound."
    )
    window_by: str = string(
        native=True,
        default="",
        doc="`append`: the window is one of append times; `timestamp`, or nothing, of timestamps.",
    )
    check: bool = boolean(
        native=True,
        default=False,
        doc="The last answer for `fetch_offset` was damaged: the broker checks what it has stored "
        "there before it answers.",
    )
    seen_offset: int = seen_offset(since=5)


@message
class FetchTopic:
    name: str = string(doc="Topic.")
    partitions: list[FetchPartition] = array(FetchPartition, max_items=MAX_PARTITIONS)


@message
class ForgottenTopic:
    name: str = string(doc="Topic.")
    partitions: list[int] = array(INT32, max_items=MAX_PARTITIONS, doc="Partitions.")


@message
class FetchRequest:
    replica_id: int = int32(default=-1, doc="-1 for a consumer.")
    max_wait_ms: int = int32(default=0, doc="How long to wait for `min_bytes`.")
    min_bytes: int = int32(default=0, doc="Answer as soon as this much is readable.")
    max_bytes: int = int32(since=3, default=0x7FFF_FFFF, doc="Most bytes of the response.")
    isolation_level: int = int8(
        since=4, default=READ_UNCOMMITTED, doc="0 everything, 1 only what is committed."
    )
    session_id: int = int32(
        since=7, default=0, doc="Session of fetches; there are none, so any number will do."
    )
    session_epoch: int = int32(
        since=7,
        default=-1,
        doc="-1 or 0: the request names all that it asks for. Others change a session, and are "
        "refused.",
    )
    topics: list[FetchTopic] = array(
        FetchTopic, max_items=MAX_TOPICS, doc="From version 3 on served in this order."
    )
    forgotten_topics: list[ForgottenTopic] = array(
        ForgottenTopic,
        max_items=MAX_TOPICS,
        since=7,
        default=(),
        doc="To be left out of a session from now on; there are none.",
    )
    include_append_times: bool = boolean(
        native=True,
        default=False,
        doc="Say when the messages were appended. The response has the messages of fewer than "
        f"{MAX_APPEND_TIMES:,} sets then.",
    )
    allow_follower: bool = allow_follower(since=5)


@message
class AppendTime:
    offset: int = int64(doc="It holds from this offset on, up to that of the next item.")
    append_time_ms: int = int64(doc="When these messages were appended; -1 when not known.")


@message
class AbortedTransaction:
    producer_id: int = int64(doc="Producer of the transaction.")
    first_offset: int = int64(doc="Its first offset. It ends with the producer's next marker.")


@message
class FetchPartitionResult:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="0 when it could be read.")
    high_watermark: int = int64(default=-1, doc="First offset not yet readable; -1 on error.")
    last_stable_offset: int = int64(
        since=4, default=-1, doc="First offset that may belong to an open transaction."
    )
    log_start_offset: int = int64(since=5, default=-1, doc="First offset stored; -1 not known.")
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction,
        max_items=MAX_ABORTED_TRANSACTIONS,
        nullable=True,
        since=4,
        default=None,
        doc="With `isolation_level` 1, those whose messages are to be skipped.",
    )
    records: bytes | None = records(
        default=b"",
        doc="Messages. May begin below `fetch_offset` (compressed sets) and end in the "
        "middle of a message; the reader drops both.",
    )
    error_message: str | None = error_text(native=True, default=None)
    append_times: list[AppendTime] = array(
        AppendTime,
        max_items=MAX_APPEND_TIMES,
        native=True,
        default=(),
        doc="In order of their offsets. The first is at or below the first message; the last may "
        "be above the last message. Empty unless asked for.",
    )
    next_offset: int = int64(
        native=True,
        default=-1,
        doc="Where to go on with a window: from here, unless `records` has messages behind it. No "
        "message of the window is between `fetch_offset` and `records`, or this offset where there "
        "are none. -1 without a window.",
    )
    skipped_bytes: int = int64(
        native=True,
        default=0,
        doc="With a window: stored bytes from `fetch_offset` on that were passed over.",
    )


@message
class FetchTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[FetchPartitionResult] = array(FetchPartitionResult, max_items=MAX_PARTITIONS)


@message
class FetchResponse:
    throttle_time_ms: int = int32(since=1, default=0, doc="How long the client is not listened to.")
    error_code: int = int16(since=7, default=0, doc="0 unless a session was to be changed.")
    session_id: int = int32(since=7, default=0, doc="Always 0: there are no sessions.")
    topics: list[FetchTopicResult] = array(FetchTopicResult, max_items=MAX_TOPICS)
    follower_heard_ms: int = follower_heard_ms(since=5)


FETCH: Final = Api(
    key=1,
    name="fetch",
    min_version=0,
    max_version=10,
    native_max_version=5,
    request=FetchRequest,
    response=FetchResponse,
    doc="Read messages. Versions 0 and 1 give message format v0 and convert what is stored as "
    "v1; 2 and 3 give what is stored, one format in an answer. In version 3 the first "
    "non-empty partition gives its first message whole, however large.",
    rights=(
        each(Operation.READ, ResourceType.TOPIC, When.CONSUMER),
        each(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, When.FOLLOWER),
    ),
    served_by=ServedBy.LEADER_OR_FOLLOWER,
)
