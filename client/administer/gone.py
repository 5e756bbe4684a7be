"""What left a topic behind the start of a window or a search, asked for only where something may
have."""

from collections.abc import Iterable, Mapping

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
    times_ms: Mapping[int, int | None],
    from_ms: int,
    *,
    by_append: bool,
) -> tuple[DescribedRemoval, ...]:
    """Return what left partitions and may have had times of `from_ms` or later; oldest changes
    first. `times_ms` has for each partition the time from which on it is complete, or None if it is
    not known. What left a partition that is complete from `from_ms` on is not in the result.

    Without a request if all of them are complete from `from_ms` on, or if the time of one is not
    known. Empty if the broker refuses to tell, because the messages matter more.
    """
    complete_from_ms = complete_from(times_ms.values())
    if complete_from_ms is None or complete_from_ms <= from_ms:
        return ()
    incomplete = {number for number, time_ms in times_ms.items() if (time_ms or 0) > from_ms}
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
        and each.partition in incomplete
        and _reaches(each, from_ms, by_append=by_append)
    )


def _reaches(removal: DescribedRemoval, from_ms: int, *, by_append: bool) -> bool:
    """Whether removed messages may have had a time of `from_ms` or later. Unknown times are no
    limit. What was appended at a time left the log after it."""
    if removal.messages == 0:
        return False
    largest_ms = removal.at_ms if by_append else removal.largest_timestamp_ms
    return largest_ms < 0 or largest_ms >= from_ms
