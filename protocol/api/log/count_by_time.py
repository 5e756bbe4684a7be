"""count-by-time: the number of messages of a partition in each interval of a time window. Kafka has
no such request."""

from typing import Final

from ...limits import MAX_INTERVALS
from ..rights import whole
from ..schema import INT64, Api, ServedBy, array, error_text, int16, int32, int64, message, string
from ..security.acl_terms import Operation, ResourceType
from .replicas import allow_follower, follower_heard_ms, seen_offset


@message
class CountByTimeRequest:
    topic: str = string(doc="Topic.")
    partition: int = int32(doc="Partition.")
    from_ms: int = int64(doc="Begin of the window, from 0 on.")
    until_ms: int = int64(doc="End of the window, not in it; not before its begin.")
    every_ms: int = int64(
        default=0,
        doc="Length of an interval. The first begins at `from_ms`, the last ends at `until_ms` and "
        "may be shorter. 0 is one interval.",
    )
    by: str = string(
        default="",
        doc="`append` counts by append times; `timestamp`, or nothing, by timestamps.",
    )
    from_offset: int = int64(
        default=-1,
        doc="Count from this offset on: `next_offset` of the answer before; -1 from the beginning.",
    )
    end_offset: int = int64(
        default=-1,
        doc="Count below this offset: that of the answer before; -1 up to the high watermark.",
    )
    allow_follower: bool = allow_follower(since=1)
    seen_offset: int = seen_offset(since=1)


@message
class CountByTimeResponse:
    error_code: int = int16(default=0, doc="0 when it could be counted.")
    error_message: str | None = error_text(default=None)
    counts: list[int] = array(
        INT64,
        max_items=MAX_INTERVALS,
        default=(),
        doc="Messages of each interval, of those that this answer is about.",
    )
    first_ms: int = int64(default=-1, doc="The smallest time that was counted; -1 when none.")
    last_ms: int = int64(default=-1, doc="The largest time that was counted; -1 when none.")
    untimed: int = int64(default=0, doc="Messages without a time; they are in no interval.")
    next_offset: int = int64(
        default=-1, doc="Where the next request has to go on; -1 when all are counted."
    )
    end_offset: int = int64(default=-1, doc="What `end_offset` of the next request has to be.")
    read_bytes: int = int64(default=0, doc="Stored bytes that had to be read for it.")
    log_bytes: int = int64(default=0, doc="Stored bytes that it is about.")
    follower_heard_ms: int = follower_heard_ms(since=1)


COUNT_BY_TIME: Final = Api(
    key=1002,
    name="count-by-time",
    min_version=0,
    max_version=1,
    request=CountByTimeRequest,
    response=CountByTimeResponse,
    doc="How many messages of a partition fall into each interval of a window of time. The work "
    "for one answer is bounded: the client asks again, from `next_offset` on, and adds up.",
    native=True,
    rights=(whole(Operation.DESCRIBE, ResourceType.TOPIC),),
    served_by=ServedBy.LEADER_OR_FOLLOWER,
)
