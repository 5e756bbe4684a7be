"""count-by-time: the number of messages of a partition in each interval of a time window. Kafka has
no such request."""

from typing import Final

from ...limits import MAX_INTERVALS
from ..rights import whole
from ..schema import (
    INT64,
    Api,
    ServedBy,
    allow_follower,
    array,
    error_text,
    follower_heard_ms,
    int16,
    int32,
    int64,
    message,
    seen_offset,
    string,
)
from ..security.acl_terms import Operation, ResourceType


@message
class CountByTimeRequest:
    topic: str = string(doc="Topic.")
    partition: int = int32(doc="Partition.")
    from_ms: int = int64(doc="Start of the window; at least 0.")
    until_ms: int = int64(doc="End of the window (exclusive); not before its start.")
    every_ms: int = int64(
        default=0,
        doc="Length of an interval. The first begins at `from_ms`; the last ends at "
        "`until_ms` and may be shorter. 0: one interval for the whole window.",
    )
    by: str = string(
        default="",
        doc="`append` counts by append times; `timestamp`, or nothing, by timestamps.",
    )
    from_offset: int = int64(
        default=-1,
        doc="Count from this offset on: `next_offset` of the last answer, or -1 for the log start.",
    )
    end_offset: int = int64(
        default=-1,
        doc="Count below this offset: `end_offset` of the last answer, or -1 for the high "
        "watermark.",
    )
    allow_follower: bool = allow_follower(since=1)
    seen_offset: int = seen_offset(since=1)


@message
class CountByTimeResponse:
    error_code: int = int16(default=0, doc="0 if the messages could be counted.")
    error_message: str | None = error_text(default=None)
    counts: list[int] = array(
        INT64,
        max_items=MAX_INTERVALS,
        default=(),
        doc="Messages in each interval, of the offsets that this answer covers.",
    )
    first_ms: int = int64(default=-1, doc="The smallest counted time; -1 if none was counted.")
    last_ms: int = int64(default=-1, doc="The largest counted time; -1 if none was counted.")
    untimed: int = int64(default=0, doc="Messages without a time, which are in no interval.")
    next_offset: int = int64(
        default=-1, doc="`next_offset` of the next request; -1 if all messages are counted."
    )
    end_offset: int = int64(default=-1, doc="`end_offset` of the next request.")
    read_bytes: int = int64(default=0, doc="Stored bytes that were read for this answer.")
    log_bytes: int = int64(default=0, doc="Stored bytes that this answer covers.")
    complete_from_ms: int = int64(
        default=-1,
        doc="The time, by `by`, from which on no message has left the partition. 0: none has left "
        "it; -1: it is not known.",
    )
    follower_heard_ms: int = follower_heard_ms(since=1)


COUNT_BY_TIME: Final = Api(
    key=1002,
    name="count-by-time",
    min_version=0,
    max_version=1,
    request=CountByTimeRequest,
    response=CountByTimeResponse,
    doc="Count the messages of a partition in each interval of a window of time. One answer "
    "is bounded in work, so the client sends the next request from `next_offset` on and adds "
    "the counts.",
    native=True,
    rights=(whole(Operation.DESCRIBE, ResourceType.TOPIC),),
    served_by=ServedBy.LEADER_OR_FOLLOWER,
)
