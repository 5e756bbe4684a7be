"""Bounds of a read as offsets: what the options say, with what the broker has."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from ..protocol.api.log.list_offsets import EARLIEST, LATEST
from ..times import later
from .logs import TopicLogs
from .option_values import SENTINELS, ByPartition, OptionError
from .options import ReadBound, ReadOptions
from .planning import (
    BEGINS_ANEW,
    DataLoss,
    Offsets,
    PlannedSpan,
    TopicPartition,
    beyond_end,
    capped,
    spans,
    split,
    split_held,
)
from .probing import held
from .questions import Questions, Topics
from .span_readers import reads_windows

_log = logging.getLogger(__name__)


def resolve_start(
    asked: Questions, found: Topics, last: Offsets, options: ReadOptions
) -> dict[TopicPartition, int]:
    """The first offset to read of each partition; a time that no message has reached is at the end.

    `last` are the ends of the logs, asked for before; they say which partitions there are. Raises
    DataLoss for offsets that are of other logs than those that were `found`.
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
    """The offset behind the last one to read of each partition, whose logs end at `last`. Raises
    DataLoss as `resolve_start`."""
    bound = _of_logs(options.end, found.logs, LATEST, options)
    if options.exact:
        if bound.time_ms is None or options.max_out_of_order_ms is None:
            return dict(last)
        bound = ReadBound("latest", time_ms=later(bound.time_ms, options.max_out_of_order_ms))
    offsets, _ = _resolve(asked, last, bound)
    return offsets


def _of_logs(bound: ReadBound, now: TopicLogs, instead: int, options: ReadOptions) -> ReadBound:
    """`bound` with `instead` for the offsets of topics that are others than those in `now`."""
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
    """The offsets, and the partitions in which no message is as late as was asked for."""
    partitions = list(last)
    if bound.time_ms is not None or bound.times_ms:
        times = _times(partitions, bound)
        at = asked.at_times(times)
        missing = [key for key in times if at[key] is None]
        default = last if bound.place == "latest" else asked.beginnings(partitions)
        found = {key: default[key] for key in partitions if key not in times}
        for key in times:
            # What was appended since the end was asked for is behind it.
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
    """The spans that a batch read would have now, one for a partition at most; none where it would
    end before it starts. Raises DataLoss for an offset behind the end of its log."""
    found = asked.topics(options.subscription)
    last = asked.ends(found.subscribed)
    end = resolve_end(asked, found, last, options)
    start = resolve_start(asked, found, last, options)
    lost = [beyond_end(*key, start[key], stop) for key, stop in last.items() if start[key] > stop]
    if lost:
        text = f"{'; '.join(lost)}. failOnDataLoss=false reads nothing of it"
        if options.fail_on_data_loss:
            raise DataLoss(text)
        _log.warning("%s", text)
    return spans(capped(start, end), end, found.logs)


def plan(asked: Questions, options: ReadOptions) -> list[PlannedSpan]:
    """As `resolve`, cut for Spark's tasks, without what cannot be of the window where the broker
    tells that."""
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
