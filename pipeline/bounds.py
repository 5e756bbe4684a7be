"""Resolves the bounds of a read to offsets: from the options, and from what the broker has.

For a window of time, the broker skips messages that cannot be in the window, so the answer to one
fetch says where the first message of the window can be. A few such fetches ("probes") find the
ranges of offsets that tasks have to read; the sizes of these ranges divide the work among tasks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final

from ..client.cluster.retry import RETRIABLE, retry
from ..client.cluster.route import Route
from ..client.consume.fetching import FetchOptions
from ..client.responses import partition_result
from ..protocol.api.log.fetch import FETCH, FetchPartitionResult, FetchResponse
from ..protocol.api.log.list_offsets import EARLIEST, LATEST
from ..protocol.errors import HorologError, OffsetOutOfRange
from ..times import later
from .connecting import cluster_of
from .logs import TopicLogs
from .option_values import SENTINELS, ByPartition, OptionError
from .options import BrokerOptions, ReadBound, ReadOptions
from .planning import (
    BEGINS_ANEW,
    DataLoss,
    Held,
    Offsets,
    PlannedSpan,
    Stretch,
    TopicPartition,
    Window,
    beyond_end,
    capped,
    spans,
    split,
    split_held,
)
from .questions import LOOP, Questions, Topics
from .span_readers import reads_windows, window_request

PROBES: Final = 64
"""Maximum number of probes of one partition."""
_PROBES_IN_ALL: Final = 2048
_LEAST_PROBES: Final = 3
_AT_ONCE: Final = 16
_HEADS: Final = 16
"""The head of a stretch is its first 1/16."""
_SET_BYTES: Final = 1
"""Size limit of a probe. A fetch returns its first message set complete, however large, so one
byte means one set."""
_MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024

Ask = Callable[[Sequence[int]], Awaitable[Sequence[int | None]]]
"""Asks for each offset: from there on, which is the first offset that can be in the window? None
where the broker does not tell."""

_log = logging.getLogger(__name__)


def held(
    broker: BrokerOptions, spans: Sequence[PlannedSpan], window: Window, *, finely: bool
) -> list[Held]:
    """Return the parts of the spans that can hold messages of the window; spans without any are
    left out. `finely` also looks for gaps within spans. Raises the client's errors."""
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
    """Return the stretches of a span that can hold messages of the window, in order, after at most
    `probes` probes. The first probe asks whether there is anything. A third of the others look for
    gaps, a third for stretches of which only the head can be in the window, and the remaining ones
    look for gaps again in what is left."""
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
    """Return the offsets behind the heads of the `count` largest stretches, ascending."""
    largest = sorted(kept, key=lambda one: one[0] - one[1])[:count]
    return sorted(start + -(-(end - start) // _HEADS) for start, end in largest if end > start + 1)


def cut_points(kept: Sequence[Stretch], count: int) -> list[int]:
    """Return up to `count` offsets that divide the total size of the stretches evenly; none is the
    start of a stretch."""
    total = sum(end - start for start, end in kept)
    wanted = [total * number // (count + 1) for number in range(1, count + 1)]
    points, before = [], 0
    for start, end in kept:
        size = end - start
        points += [start + at - before for at in wanted if before < at < before + size]
        before += size
    return sorted(set(points))


def narrowed(kept: Sequence[Stretch], firsts: Mapping[int, int]) -> list[Stretch]:
    """Cut the stretches at the keys of `firsts`. Each part then starts at the first offset that can
    be in the window (the key's value); parts without any are dropped, and adjacent parts are
    joined again."""
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
    """Sends probes for one window to a cluster."""

    broker: BrokerOptions
    cluster: Route
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
            return offset  # the task that reads from here reports what is gone
        if result.next_offset < 0:
            return None
        if not result.records:
            return max(result.next_offset, offset)
        options = FetchOptions(1, _SET_BYTES, _SET_BYTES, _MAX_DECOMPRESSED_BYTES, False)
        try:
            read = options.columns(span.topic, result, offset, ())
        except HorologError:
            return offset  # the task that reads from here reports the damage
        return int(read[0].offsets[0]) if read else offset

    async def _fetch(self, span: PlannedSpan, offset: int) -> FetchPartitionResult:
        request = window_request(span.topic, [(span.partition, offset)], self.window, _SET_BYTES)
        response: FetchResponse = await self.cluster.request(FETCH, request)
        return partition_result(response.topics, span.topic, span.partition)


def resolve_start(
    asked: Questions, found: Topics, last: Offsets, options: ReadOptions
) -> dict[TopicPartition, int]:
    """Return the first offset to read of each partition; the log end for a start time later than
    all messages.

    `last` holds the log ends, read before; its keys are the partitions to read. Raises DataLoss if
    the options give offsets of other logs than those in `found`, OptionError for a partition
    without a start.
    """
    bound = _of_logs(options.start, found.logs, EARLIEST, options)
    if bound.place == "latest" and (bound.offsets or bound.times_ms):
        named = {(topic, one) for topic, ones in _named(bound).items() for one in ones}
        left_out = [f"{topic}-{one}" for topic, one in sorted(last.keys() - named)]
        if left_out:
            raise OptionError(
                f"the start names no offset or time for {', '.join(left_out)}: name all partitions "
                "that a stream reads, or it would begin at the end of the others; -2 as an offset "
                "is the beginning, -1 the end"
            )
    offsets, missing = _resolve(asked, last, bound)
    if missing and options.fail_if_no_time:
        topic, partition = missing[0]
        raise OptionError(
            f"{topic}-{partition} has no message from the start time on. "
            "startingOffsetsByTimestampStrategy=latest reads nothing of such a partition"
        )
    return offsets


def resolve_end(
    asked: Questions, found: Topics, last: Offsets, options: ReadOptions
) -> dict[TopicPartition, int]:
    """Return the exclusive end offset of the read for each partition; `last` holds the log ends.
    Raises DataLoss like `resolve_start`."""
    bound = _of_logs(options.end, found.logs, LATEST, options)
    if options.exact:
        if bound.time_ms is None or options.max_out_of_order_ms is None:
            return dict(last)
        bound = ReadBound("latest", time_ms=later(bound.time_ms, options.max_out_of_order_ms))
    offsets, _ = _resolve(asked, last, bound)
    return offsets


def _of_logs(bound: ReadBound, now: TopicLogs, instead: int, options: ReadOptions) -> ReadBound:
    """Return `bound`, with the sentinel `instead` as the offset of topics that were deleted and
    made again, or are of another cluster. Raises DataLoss unless failOnDataLoss=false."""
    other = bound.logs.changed(bound.offsets, now)
    if not other:
        return bound
    text = f"{'; '.join(other.values())}. {BEGINS_ANEW}"
    if options.fail_on_data_loss:
        raise DataLoss(text)
    _log.warning("%s", text)
    replaced = {
        topic: dict.fromkeys(numbers, instead) if topic in other else numbers
        for topic, numbers in bound.offsets.items()
    }
    return replace(bound, offsets=replaced)


def _resolve(
    asked: Questions, last: Offsets, bound: ReadBound
) -> tuple[dict[TopicPartition, int], list[TopicPartition]]:
    """Return the offsets, and the partitions without a message at or after the wanted time."""
    partitions = list(last)
    if bound.time_ms is not None or bound.times_ms:
        times = _times(partitions, bound)
        at = asked.at_times(times)
        missing = [key for key in times if at[key] is None]
        default = last if bound.place == "latest" else asked.beginnings(partitions)
        found = {key: default[key] for key in partitions if key not in times}
        for key in times:
            # Messages appended after the log ends were read are beyond `last`.
            offset = at[key]
            found[key] = last[key] if offset is None else min(offset, last[key])
        return found, missing
    chosen = _chosen(partitions, bound.offsets)
    wanted = {key: chosen.get(key, SENTINELS[bound.place]) for key in partitions}
    first = asked.beginnings(partitions) if EARLIEST in wanted.values() else {}
    places: Mapping[int, Offsets] = {EARLIEST: first, LATEST: last}
    return {
        key: places[offset][key] if offset < 0 else offset for key, offset in wanted.items()
    }, []


def _times(partitions: list[TopicPartition], bound: ReadBound) -> dict[TopicPartition, int]:
    if bound.time_ms is not None:
        return dict.fromkeys(partitions, bound.time_ms)
    return _chosen(partitions, bound.times_ms)


def _named(bound: ReadBound) -> ByPartition:
    return bound.times_ms or bound.offsets


def _chosen(partitions: list[TopicPartition], numbers: ByPartition) -> dict[TopicPartition, int]:
    chosen = {
        (topic, partition): number
        for topic, by_partition in numbers.items()
        for partition, number in by_partition.items()
    }
    for topic, partition in chosen.keys() - set(partitions):
        raise OptionError(f"offsets or times name {topic}-{partition}, which is not read")
    return chosen


def resolve(asked: Questions, options: ReadOptions) -> list[PlannedSpan]:
    """Return the spans of a batch read planned now, at most one per partition; none for a partition
    whose end is not after its start. Raises DataLoss for a start beyond the log end."""
    found = asked.topics(options.subscription)
    last = asked.ends(found.subscribed)
    if options.window is not None and options.window.from_ms:
        asked.warn_of_gone(last, options.window.from_ms)
    end = resolve_end(asked, found, last, options)
    start = resolve_start(asked, found, last, options)
    lost = [beyond_end(*key, start[key], stop) for key, stop in last.items() if start[key] > stop]
    if lost:
        text = f"{'; '.join(lost)}. failOnDataLoss=false reads nothing of it"
        if options.fail_on_data_loss:
            raise DataLoss(text)
        _log.warning("%s", text)
    start = {**start, **_first_in_windows(asked, found, start, last)}
    return spans(capped(start, end), end, found.logs)


def _first_in_windows(
    asked: Questions, found: Topics, start: Offsets, last: Offsets
) -> dict[TopicPartition, int]:
    """Return for topics that are windows the first offset with a message of the window, so that
    tasks divide what is in the window; `last` where nothing is. *Earliest* is the log start."""
    begin = {key: 0 for key in start if key[0] in found.windows and start[key] < last[key]}
    return {
        key: last[key] if offset is None else max(start[key], offset)
        for key, offset in asked.at_times(begin).items()
    }


def plan(asked: Questions, options: ReadOptions) -> list[PlannedSpan]:
    """Plan a batch read: the spans of `resolve`, cut for Spark's tasks. If the broker supports
    windows, ranges that cannot hold messages of the window are left out."""
    found = resolve(asked, options)
    most = {
        "min_partitions": options.min_partitions,
        "max_records": options.max_records_per_partition,
    }
    window = options.window
    if window is None or not found or not reads_windows(options.broker):
        return split(found, **most)
    if window.empty:
        return []
    finely = options.min_partitions > len(found) or options.max_records_per_partition > 0
    return split_held(held(options.broker, found, window, finely=finely), **most)
