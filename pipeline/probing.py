"""Where in partitions something of a window can be, found out with few fetches.

A broker that is asked for messages of a window from an offset on passes over those that cannot be
of it, so its answer says where the first one can be. The sizes of what is left are the work of
tasks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from ..client.cluster.cluster import ClusterConnections
from ..client.cluster.retry import RETRIABLE, retry
from ..client.consume.fetching import FetchOptions
from ..client.responses import partition_result
from ..protocol.api.log.fetch import FETCH, FetchPartitionResult, FetchResponse
from ..protocol.errors import HorologError, OffsetOutOfRange
from .connecting import cluster_of
from .options import BrokerOptions
from .planning import Held, PlannedSpan, Stretch
from .questions import LOOP
from .span_readers import window_request
from .windows import Window

PROBES: Final = 64
"""At most so many fetches of one partition."""
_PROBES_IN_ALL: Final = 2048
_LEAST_PROBES: Final = 3
_AT_ONCE: Final = 16
_HEADS: Final = 16
"""The head of a stretch is one of so many parts."""
_SET_BYTES: Final = 1
"""A fetch brings one set whole, however large."""
_MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024

Ask = Callable[[Sequence[int]], Awaitable[Sequence[int | None]]]
"""The first offset from each of these on that can be of the window; None: it is not known."""


def held(
    broker: BrokerOptions, spans: Sequence[PlannedSpan], window: Window, *, finely: bool
) -> list[Held]:
    """What of the spans can be of the window; spans without anything are left out. `finely` looks
    for gaps in them, too. Raises what the client raises."""
    LOOP.enter()
    try:
        return LOOP.run(_held(broker, spans, window, finely))
    finally:
        LOOP.leave()


async def _held(
    broker: BrokerOptions, spans: Sequence[PlannedSpan], window: Window, finely: bool
) -> list[Held]:
    probes = _PROBES_IN_ALL // max(len(spans), 1)
    probes = min(max(probes, _LEAST_PROBES), PROBES) if finely else 1
    cluster = cluster_of(broker)
    asking = _Asking(broker, cluster, window)
    try:
        found = await asyncio.gather(
            *(stretches(partial(asking.firsts, span), span, probes) for span in spans)
        )
    finally:
        await cluster.close()
    return [Held(span, kept) for span, kept in zip(spans, found, strict=True) if kept]


async def stretches(ask: Ask, span: PlannedSpan, probes: int) -> tuple[Stretch, ...]:
    """What of a span can be of the window, in order, with at most `probes` questions. The first
    asks whether there is anything; a third of the others look for gaps, a third for stretches of
    which only the head can be of the window, and what is left looks closer at the rest."""
    kept = [(span.start, span.end)]
    points, known = [span.start], {span.start}
    third = (probes - 1) // 3
    for choose, count in ((cut_points, third), (heads, third), (cut_points, probes), (heads, 0)):
        firsts = dict(zip(points, await ask(points), strict=True))
        if None in firsts.values():
            break
        kept = narrowed(kept, {at: first for at, first in firsts.items() if first is not None})
        chosen = choose(kept, min(count, probes - len(known)))
        points = [at for at in chosen if at not in known]
        known.update(points)
    return tuple(kept)


def heads(kept: Sequence[Stretch], count: int) -> list[int]:
    """Offsets behind the heads of up to `count` stretches, the largest ones."""
    largest = sorted(kept, key=lambda one: one[0] - one[1])[:count]
    return sorted(start + -(-(end - start) // _HEADS) for start, end in largest if end > start + 1)


def cut_points(kept: Sequence[Stretch], count: int) -> list[int]:
    """Up to `count` offsets within the stretches, evenly over all that they have; none is where a
    stretch begins."""
    total = sum(end - start for start, end in kept)
    wanted = [total * number // (count + 1) for number in range(1, count + 1)]
    points, before = [], 0
    for start, end in kept:
        size = end - start
        points += [start + at - before for at in wanted if before < at < before + size]
        before += size
    return sorted(set(points))


def narrowed(kept: Sequence[Stretch], firsts: Mapping[int, int]) -> list[Stretch]:
    """The stretches cut at the keys of `firsts`, each part from the first offset on that can be of
    the window; without parts that have none, and with those joined again that touch."""
    found: list[Stretch] = []
    for start, end in kept:
        cuts = [start, *(at for at in sorted(firsts) if start < at < end), end]
        for begin, stop in pairwise(cuts):
            first = max(firsts.get(begin, begin), begin)
            if first >= stop:
                continue
            if found and found[-1][1] == first:
                found[-1] = (found[-1][0], stop)
            else:
                found.append((first, stop))
    return found


@dataclass(frozen=True, slots=True)
class _Asking:
    """Probes of one broker."""

    broker: BrokerOptions
    cluster: ClusterConnections
    window: Window

    async def firsts(self, span: PlannedSpan, offsets: Sequence[int]) -> list[int | None]:
        """See `Ask`."""
        found: list[int | None] = []
        for number in range(0, len(offsets), _AT_ONCE):
            some = offsets[number : number + _AT_ONCE]
            found += await asyncio.gather(*(self._first(span, offset) for offset in some))
        return found

    async def _first(self, span: PlannedSpan, offset: int) -> int | None:
        try:
            result = await retry(
                partial(self._fetch, span, offset),
                timeout_ms=self.broker.retry_budget_ms,
                setting="retryBudgetMs",
                retriable=RETRIABLE,
            )
        except OffsetOutOfRange:
            return offset  # who reads it says what is gone
        if result.next_offset < 0:
            return None
        if not result.records:
            return max(result.next_offset, offset)
        options = FetchOptions(1, _SET_BYTES, _SET_BYTES, _MAX_DECOMPRESSED_BYTES, False)
        try:
            read = options.columns(span.topic, result, offset, ())
        except HorologError:
            return offset  # who reads it says what is damaged
        return int(read[0].offsets[0]) if read else offset

    async def _fetch(self, span: PlannedSpan, offset: int) -> FetchPartitionResult:
        request = window_request(span.topic, [(span.partition, offset)], self.window, _SET_BYTES)
        response: FetchResponse = await self.cluster.request(FETCH, request)
        return partition_result(response.topics, span.topic, span.partition)
