"""Bounds of a read as offsets: what the options say, with what the broker has."""

from collections.abc import Callable, Iterable, Mapping

from ..protocol.api.list_offsets import EARLIEST, LATEST
from .option_values import ByPartition, OptionError
from .options import Bound, ReadOptions
from .planning import Offsets, Span, TopicPartition, capped, spans, split
from .questions import Questions


def resolve_start(
    asked: Questions, partitions: list[TopicPartition], options: ReadOptions
) -> dict[TopicPartition, int]:
    """The first offset to read of each partition; a time nobody has reached is at the end."""
    bound = options.start
    found, missing = _resolve(asked, partitions, bound, asked.ends)
    if missing and options.fail_if_no_time:
        topic, partition = missing[0]
        raise OptionError(
            f"{topic}-{partition} has no message from the start time on. "
            "startingOffsetsByTimestampStrategy=latest reads nothing of such a partition"
        )
    return found


def resolve_end(
    asked: Questions, partitions: list[TopicPartition], options: ReadOptions
) -> dict[TopicPartition, int]:
    """The offset behind the last one to read of each partition, as things are now."""
    bound = options.end
    if options.exact:
        if bound.time_ms is None or options.max_out_of_order_ms is None:
            return asked.ends(partitions)
        bound = Bound("latest", time_ms=bound.time_ms + options.max_out_of_order_ms)
    found, _ = _resolve(asked, partitions, bound, asked.ends)
    return found


def _resolve(
    asked: Questions,
    partitions: list[TopicPartition],
    bound: Bound,
    ends: Callable[[Iterable[TopicPartition]], dict[TopicPartition, int]],
) -> tuple[dict[TopicPartition, int], list[TopicPartition]]:
    """The offsets, and the partitions in which no message is as late as was asked for."""
    # Ends come first: what is appended meanwhile is then behind the end that is used.
    last = ends(partitions)
    if bound.time_ms is not None or bound.times_ms:
        times = _times(partitions, bound)
        at = asked.at_times(times)
        missing = [key for key in times if at[key] is None]
        default = last if bound.place == "latest" else asked.beginnings(partitions)
        found = {key: default[key] for key in partitions if key not in times}
        for key in times:
            offset = at[key]
            found[key] = last[key] if offset is None else min(offset, last[key])
        return found, missing
    first = asked.beginnings(partitions)
    places: Mapping[int, Offsets] = {EARLIEST: first, LATEST: last}
    default = last if bound.place == "latest" else first
    chosen = _chosen(partitions, bound.offsets)
    return {
        key: places[wanted][key] if (wanted := chosen.get(key, default[key])) < 0 else wanted
        for key in partitions
    }, []


def _times(partitions: list[TopicPartition], bound: Bound) -> dict[TopicPartition, int]:
    if bound.time_ms is not None:
        return dict.fromkeys(partitions, bound.time_ms)
    return _chosen(partitions, bound.times_ms)


def _chosen(partitions: list[TopicPartition], numbers: ByPartition) -> dict[TopicPartition, int]:
    chosen = {
        (topic, partition): number
        for topic, by_partition in numbers.items()
        for partition, number in by_partition.items()
    }
    for topic, partition in chosen.keys() - set(partitions):
        raise OptionError(f"offsets or times name {topic}-{partition}, which is not read")
    return chosen


def resolve(asked: Questions, options: ReadOptions) -> list[Span]:
    """The spans that a batch read would have now, one for a partition at most."""
    partitions = asked.partitions(options.subscription)
    # The end first: so a start by time is never behind it.
    end = resolve_end(asked, partitions, options)
    start = resolve_start(asked, partitions, options)
    if options.start.offsets or options.end.offsets:
        return spans(start, end)
    return spans(capped(start, end), end)


def plan(asked: Questions, options: ReadOptions) -> list[Span]:
    """As `resolve`, cut for Spark's tasks."""
    return split(
        resolve(asked, options),
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
