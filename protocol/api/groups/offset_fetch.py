"""offset-fetch: the committed offsets of a group, lists of them, and their lag."""

from typing import Final

from ...limits import MAX_LISTED, MAX_PARTITIONS, MAX_TOPICS
from ..rights import How, Need, Right, When, each, left_out
from ..schema import (
    INT32,
    INT64,
    Api,
    ServedBy,
    Text,
    array,
    boolean,
    error_text,
    int16,
    int32,
    int64,
    message,
    nullable_string,
    string,
)
from ..security.acl_terms import Operation, ResourceType

LIST_NAMES: Final = "names"
LIST_POSITIONS: Final = "positions"


@message
class OffsetFetchTopic:
    name: str = string(doc="Topic.")
    partitions: list[int] = array(INT32, max_items=MAX_PARTITIONS, doc="Partitions.")
    offsets: list[int] = array(
        INT64,
        max_items=MAX_PARTITIONS,
        native=True,
        default=(),
        doc="Empty, or an offset for each partition: then the lag is that of these offsets, "
        "instead of the stored ones.",
    )


@message
class OffsetFetchRequest:
    group_id: str = string(doc="Name of the position, or of the group.")
    topics: list[OffsetFetchTopic] | None = array(
        OffsetFetchTopic,
        max_items=MAX_TOPICS,
        nullable=True,
        doc="From version 2 on null asks for all positions.",
    )
    listing: str = string(
        native=True,
        default="",
        doc="`positions`: all of `group_id`, whatever `topics` says; `names`: which names have "
        f"positions. Either at most {MAX_LISTED}, by topic or name.",
    )
    after: str = string(
        native=True,
        default="",
        doc="With `listing`: only topics, or names, that sort after this one.",
    )
    lag: bool = boolean(
        native=True, default=False, doc="Whether the answer has the lag of each position."
    )


@message
class OffsetFetchPartitionResult:
    partition: int = int32(doc="Partition.")
    committed_offset: int = int64(default=-1, doc="Next offset to read; -1 if none is stored.")
    committed_leader_epoch: int = int32(
        since=5, default=-1, doc="Leader epoch of the commit; -1 if not known."
    )
    metadata: str | None = nullable_string(default="", doc="Text that is stored with the position.")
    error_code: int = int16(default=0, doc="0, also if no position is stored.")
    timestamp_ms: int = int64(
        native=True, default=-1, doc="Timestamp of the last message read; -1 if there is none."
    )
    commit_time_ms: int = int64(
        native=True, default=-1, doc="Time of the commit; -1 if there is none."
    )
    error_message: str | None = error_text(native=True, default=None)
    lag: int = int64(
        native=True,
        default=-1,
        doc="Messages from the position to the end; -1 if not requested.",
    )
    lag_ms: int = int64(
        native=True,
        default=-1,
        doc="How long the first of them has been waiting, in ms. 0 at the end; -1 if no time "
        "is known.",
    )
    lag_estimated: bool = boolean(
        native=True,
        default=False,
        doc="Whether `lag_ms` is computed from a create time, because the append time is not "
        "known.",
    )
    catch_up_ms: int = int64(
        native=True,
        default=-1,
        doc="When the reader reaches the end at the rate of the last minute; -1 if the lag "
        "does not shrink, or if the rate is not known yet.",
    )
    end_offset: int = int64(
        native=True,
        default=-1,
        doc="Offset after the last message that consumers can read; -1 when `lag` was not asked "
        "for. Of a window: after its last message.",
    )
    moved_ms: int = int64(
        native=True,
        default=-1,
        doc="Time of the last commit that changed the offset; -1 when none is stored.",
    )


@message
class OffsetFetchTopicResult:
    name: str = string(doc="Topic.")
    partitions: list[OffsetFetchPartitionResult] = array(
        OffsetFetchPartitionResult, max_items=MAX_PARTITIONS
    )


@message
class OffsetFetchResponse:
    throttle_time_ms: int = int32(
        since=3, default=0, doc="How long the client is throttled, in ms."
    )
    topics: list[OffsetFetchTopicResult] = array(OffsetFetchTopicResult, max_items=MAX_TOPICS)
    error_code: int = int16(since=2, default=0, doc="0 if the topics could be looked up.")
    names: list[str] = array(
        Text(), max_items=MAX_LISTED, native=True, default=(), doc="The requested names."
    )
    group_state: str = string(
        native=True,
        default="",
        doc="With `lag`: the state of the group of that name, in Kafka's words; empty if "
        "there is no such group.",
    )
    group_members: int = int32(native=True, default=0, doc="Number of members of that group.")
    more: bool = boolean(
        native=True,
        default=False,
        doc="Whether there is more behind the last topic or name of the list.",
    )


OFFSET_FETCH: Final = Api(
    key=9,
    name="offset-fetch",
    min_version=0,
    max_version=5,
    native_max_version=0,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
    doc="Read the positions of a name, and their lag.",
    rights=(
        Need((Right(Operation.DESCRIBE, ResourceType.GROUP),), How.WHOLE, When.NAMED),
        left_out(Operation.DESCRIBE, ResourceType.GROUP),
        each(Operation.DESCRIBE, ResourceType.TOPIC, When.NAMED),
        left_out(Operation.DESCRIBE, ResourceType.TOPIC),
    ),
    served_by=ServedBy.COORDINATOR,
)
