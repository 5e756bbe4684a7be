"""The broker's counts of a partition's messages by time."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

from ...protocol.api.framing import ProtocolError
from ...protocol.api.log.count_by_time import (
    COUNT_BY_TIME,
    CountByTimeRequest,
    CountByTimeResponse,
)
from ...protocol.errors import HorologError
from ..cluster.route import Route
from ..cluster.targets import PartitionLeader
from ..consume.time_bounds import APPEND
from ..errors import ClientClosed
from ..responses import check

_UNTIMED_S: Final = 2.0


async def count_answers(
    cluster: Route, topic: str, partition: int, window_ms: tuple[int, int], every_ms: int, by: str
) -> AsyncIterator[CountByTimeResponse]:
    """Let the broker count a partition, and yield its answers, whose sum is the count. The work per
    answer is bounded, so a large partition takes several."""
    from_ms, until_ms = window_ms
    from_offset = end_offset = -1
    while True:
        answer: CountByTimeResponse = await cluster.request(
            COUNT_BY_TIME,
            CountByTimeRequest(
                topic=topic,
                partition=partition,
                from_ms=from_ms,
                until_ms=until_ms,
                every_ms=every_ms,
                by=APPEND if by == APPEND else "",
                from_offset=from_offset,
                end_offset=end_offset,
            ),
            to=PartitionLeader(topic, partition),
        )
        check(answer)
        yield answer
        if answer.next_offset < 0:
            return
        if answer.next_offset <= from_offset:
            raise ProtocolError(
                f"a response that goes on at offset {answer.next_offset} of {topic}-{partition}, "
                f"and {from_offset} was asked for"
            )
        from_offset, end_offset = answer.next_offset, answer.end_offset


async def count_untimed(
    cluster: Route, topic: str, partitions: Iterable[int], by: str
) -> int | None:
    """Return how many messages of the partitions have no time, which are in no window; None if the
    broker does not tell within two seconds, because the window matters more."""
    found = 0
    try:
        async with asyncio.timeout(_UNTIMED_S):
            for partition in partitions:
                # The shortest window costs the broker least.
                async for answer in count_answers(cluster, topic, partition, (0, 1), 1, by):
                    found += answer.untimed
    except ClientClosed:
        raise
    except (HorologError, TimeoutError):
        return None
    return found
