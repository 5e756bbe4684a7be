"""fetch: read record sets from partitions, and wait for data if asked to."""

from typing import Final

from ...limits import MAX_ABORTED_TRANSACTIONS, MAX_APPEND_TIMES, MAX_PARTITIONS, MAX_TOPICS
from ..rights import When, each
from ..schema import (
    INT32,
    Api,
    ServedBy,
    allow_follower,
    array,
    boolean,
    current_leader_epoch,
    error_text,
    follower_heard_ms,
    int8,
    int16,
    int32,
    int64,
    message,
    records,
    seen_offset,
    string,
)
from ..security.acl_terms import Operation, ResourceType

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
    fetch_offset: int = int64(doc="Offset from which on to read.")
    log_start_offset: int = int64(
        since=5, default=-1, doc="Log start offset of a follower; ignored."
    )
    partition_max_bytes: int = int32(
        default=1 << 20, doc="Largest size of the messages of this partition."
    )
    window_from_ms: int = int64(
        native=True,
        default=-1,
        doc="Start of a window: the broker may leave out record sets without a message of "
        "this time or later. Sets are sent as stored, so the reader drops other messages. -1: "
        "no bound.",
    )
    window_until_ms: int = int64(
        native=True, default=-1, doc="End of the window (exclusive); -1: no bound."
    )
    window_by: str = string(
        native=True,
        default="",
        doc="`append`: the window is in append times. `timestamp`, or empty: in timestamps.",
    )
    check: bool = boolean(
        native=True,
        default=False,
        doc="Whether the last answer for `fetch_offset` was damaged. Then the broker checks "
        "its log there before it answers.",
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
    min_bytes: int = int32(default=0, doc="Answer as soon as this many bytes are available.")
    max_bytes: int = int32(
        since=3, default=0x7FFF_FFFF, doc="Largest size of the messages in the response."
    )
    isolation_level: int = int8(
        since=4, default=READ_UNCOMMITTED, doc="0: read uncommitted. 1: read committed."
    )
    session_id: int = int32(
        since=7, default=0, doc="Id of a fetch session. There are none, so it is ignored."
    )
    session_epoch: int = int32(
        since=7,
        default=-1,
        doc="-1 or 0: the request names all its partitions. Other values change a session, "
        "and are refused.",
    )
    topics: list[FetchTopic] = array(
        FetchTopic,
        max_items=MAX_TOPICS,
        doc="The topics. From version 3 on they are served in this order.",
    )
    forgotten_topics: list[ForgottenTopic] = array(
        ForgottenTopic,
        max_items=MAX_TOPICS,
        since=7,
        default=(),
        doc="Topics to remove from a session. There are no sessions.",
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
    offset: int = int64(
        doc="First offset with this append time. It applies up to the offset of the next item."
    )
    append_time_ms: int = int64(doc="When these messages were appended; -1 if not known.")


@message
class AbortedTransaction:
    producer_id: int = int64(doc="Producer of the transaction.")
    first_offset: int = int64(
        doc="Its first offset. It ends with the next control batch of the producer."
    )


@message
class FetchPartitionResult:
    partition: int = int32(doc="Partition.")
    error_code: int = int16(default=0, doc="0 if the partition could be read.")
    high_watermark: int = int64(default=-1, doc="High watermark; -1 on error.")
    last_stable_offset: int = int64(
        since=4,
        default=-1,
        doc="Last stable offset: the first offset that may belong to an open transaction.",
    )
    log_start_offset: int = int64(since=5, default=-1, doc="Log start offset; -1 if not known.")
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction,
        max_items=MAX_ABORTED_TRANSACTIONS,
        nullable=True,
        since=4,
        default=None,
        doc="With `isolation_level` 1: aborted transactions, whose messages the reader skips.",
    )
    records: bytes | None = records(
        default=b"",
        doc="The messages. They may begin below `fetch_offset` (compressed sets) and end in "
        "the middle of a message; the reader drops both.",
    )
    error_message: str | None = error_text(native=True, default=None)
    append_times: list[AppendTime] = array(
        AppendTime,
        max_items=MAX_APPEND_TIMES,
        native=True,
        default=(),
        doc="Append times, in the order of their offsets. The first is at or below the first "
        "message; the last may be above the last message. Empty unless requested.",
    )
    next_offset: int = int64(
        native=True,
        default=-1,
        doc="With a window: offset of the next fetch, unless `records` has messages at or "
        "behind it. No message of the window lies between `fetch_offset` and `records`, or "
        "this offset if `records` is empty. -1 without a window.",
    )
    skipped_bytes: int = int64(
        native=True,
        default=0,
        doc="With a window: stored bytes from `fetch_offset` on that were left out.",
    )


@message
class FetchTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[FetchPartitionResult] = array(FetchPartitionResult, max_items=MAX_PARTITIONS)


@message
class FetchResponse:
    throttle_time_ms: int = int32(
        since=1, default=0, doc="How long the client is throttled, in ms."
    )
    error_code: int = int16(since=7, default=0, doc="0, unless the request changes a session.")
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
    doc="Read messages. Versions 0 and 1 return message format v0, and convert messages that "
    "are stored in v1. Versions 2 and 3 return messages as stored, with one format in an "
    "answer. In version 3 the first non-empty partition returns its first message whole, "
    "however large it is.",
    rights=(
        each(Operation.READ, ResourceType.TOPIC, When.CONSUMER),
        each(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, When.FOLLOWER),
    ),
    served_by=ServedBy.LEADER_OR_FOLLOWER,
)
