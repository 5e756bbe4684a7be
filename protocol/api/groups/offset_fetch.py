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
        doc="Empty, or one for each partition: asks how far behind these offsets are, instead of "
        "the stored ones.",
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
        native=True, default="", doc="With `listing`: only topics, or names, behind this one."
    )
    lag: bool = boolean(
        native=True, default=False, doc="Say how far behind its log each position is too."
    )


@message
class OffsetFetchPartitionResult:
    partition: int = int32(doc="Partition.")
    committed_offset: int = int64(default=-1, doc="Next offset to read; -1 when none is stored.")
    committed_leader_epoch: int = int32(since=5, default=-1, doc="As committed; -1: not known.")
    metadata: str | None = nullable_string(default="", doc="Text kept beside it.")
    error_code: int = int16(default=0, doc="0, also when none is stored.")
    timestamp_ms: int = int64(
        native=True, default=-1, doc="Timestamp of the last message read; -1 when none."
    )
    commit_time_ms: int = int64(native=True, default=-1, doc="When it was committed; -1 when none.")
    error_message: str | None = error_text(native=True, default=None)
    lag: int = int64(
        native=True,
        default=-1,
        doc="Messages from the position to the end; -1 when it was not asked for.",
    )
    lag_ms: int = int64(
        native=True,
        default=-1,
        doc="How long ago the first of them came, 0 at the end; -1 when no time is known.",
    )
    lag_estimated: bool = boolean(
        native=True,
        default=False,
        doc="True when `lag_ms` goes by a create time, because no append time is known.",
    )
    catch_up_ms: int = int64(
        native=True,
        default=-1,
        doc="When the end is reached at the pace of the last minute; -1 when the lag does not "
        "shrink, or that is not known yet.",
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
    throttle_time_ms: int = int32(since=3, default=0, doc="How long the client is not listened to.")
    topics: list[OffsetFetchTopicResult] = array(OffsetFetchTopicResult, max_items=MAX_TOPICS)
    error_code: int = int16(since=2, default=0, doc="0 when the topics could be looked up.")
    names: list[str] = array(
        Text(), max_items=MAX_LISTED, native=True, default=(), doc="The names asked for."
    )
    group_state: str = string(
        native=True,
        default="",
        doc="With `lag`: the state of the group of that name, as Kafka calls it; empty when it is "
        "no group's.",
    )
    group_members: int = int32(native=True, default=0, doc="How many members that group has.")
    more: bool = boolean(
        native=True, default=False, doc="True when the list goes on behind its last topic or name."
    )


OFFSET_FETCH: Final = Api(
    key=9,
    name="offset-fetch",
    min_version=0,
    max_version=5,
    native_max_version=0,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
    doc="A name's positions, what there is of them, and their lag.",
    rights=(
        Need((Right(Operation.DESCRIBE, ResourceType.GROUP),), How.WHOLE, When.NAMED),
        left_out(Operation.DESCRIBE, ResourceType.GROUP),
        each(Operation.DESCRIBE, ResourceType.TOPIC, When.NAMED),
        left_out(Operation.DESCRIBE, ResourceType.TOPIC),
    ),
    served_by=ServedBy.COORDINATOR,
)
