"""What left a topic behind the start of a window or a search, asked for only where something may
have."""

from collections.abc import Collection, Iterable

from ...protocol.api.log.describe_removals import (
    DESCRIBE_REMOVALS,
    DescribedRemoval,
    DescribeRemovalsRequest,
    DescribeRemovalsResponse,
)
from ...protocol.errors import CodedError
from ..cluster.route import Route
from ..responses import check


def complete_from(times_ms: Iterable[int | None]) -> int | None:
    """Return from when on all partitions of a topic are complete, by the time of each; None if it
    is not known of one."""
    latest_ms = 0
    for time_ms in times_ms:
        if time_ms is None:
            return None
        latest_ms = max(latest_ms, time_ms)
    return latest_ms


async def removed_since(
    cluster: Route,
    topic: str,
    partitions: Collection[int],
    from_ms: int,
    complete_from_ms: int | None,
    *,
    by_append: bool,
) -> tuple[DescribedRemoval, ...]:
    """Return what left the partitions and may have had times of `from_ms` or later; oldest changes
    first. Without a request if the partitions are complete from `from_ms` on, or if it is not known
    from when on they are.

    Empty if the broker refuses to tell, because the messages matter more.
    """
    if complete_from_ms is None or complete_from_ms <= from_ms:
        return ()
    try:
        found: DescribeRemovalsResponse = await cluster.request(
            DESCRIBE_REMOVALS, DescribeRemovalsRequest(topic=topic)
        )
        check(found)
    except CodedError:
        return ()
    return tuple(
        each
        for each in found.removals
        if each.topic_id == found.topic_id
        and each.partition in partitions
        and _reaches(each, from_ms, by_append=by_append)
    )


def _reaches(removal: DescribedRemoval, from_ms: int, *, by_append: bool) -> bool:
    """Whether removed messages may have had a time of `from_ms` or later. Unknown times are no
    limit. What was appended at a time left the log after it."""
    largest_ms = removal.at_ms if by_append else removal.largest_timestamp_ms
    return largest_ms < 0 or largest_ms >= from_ms
