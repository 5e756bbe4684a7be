"""Reading one partition's log: messages by offset, by time and by append time.

The functions change nothing but what is in memory.
"""

from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import replace

from ...protocol.errors import OffsetOutOfRange
from ...protocol.records.layout import NO_TIMESTAMP
from ...values import value_class
from ..index.append_time_lookup import KnownTimes, first_since, known_times
from ..log.log import Log
from ..log.trimmed import reading, trimmed_segment
from ..producers.producer_states import AbortedSpan
from ..segment.segment import FarAway, Segment
from . import search, slices
from .search import FoundMessage, Search, SearchView, Steps, find_time_at_once
from .slices import Slice, read_slice


@value_class
class SearchTrail:
    """The steps of one search by message time."""

    segments: int
    """Number of segments in the log."""
    ruled_out: int
    """Number of segments, the oldest ones, without a message late enough."""
    segment: Segment | None
    """The segment of the message; `None` if nothing was found: the fields below have no meaning
    then."""
    time_entries: int = 0
    """Number of entries in its time index."""
    entry: tuple[int, int] | None = None
    """The time entry that was used: `(T, n)`, no message below offset `n` is later than `T`."""
    start_offset: int = -1
    """Offset at which reading began."""
    start_position: int = -1
    """Position in the log file at which reading began."""
    read_bytes: int = 0
    """Bytes from there to the message that was found."""


def read(
    log: Log,
    offset: int,
    max_bytes: int,
    *,
    whole_first: bool = False,
    committed: bool = False,
    far: bool = True,
    end_offset: int | None = None,
) -> Slice:
    """Return the stored bytes from the entry that holds `offset` up to the high watermark, or, with
    `committed`, up to the last stable offset.

    The slice has at most `max_bytes`, of one segment and one message format; it may end inside an
    entry. `whole_first` includes the first entry as a whole even if it is larger. `end_offset` ends
    the slice before that offset. Raises `OffsetOutOfRange`, `StorageError`. Without `far`, raises
    `FarAway` if `prepare` or `located` has to come first.
    """
    if not (far or log.segment_list.prepared):
        raise FarAway
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise OffsetOutOfRange(
            f"offset {offset} is outside of {log.topic}-{log.partition}, which has "
            f"{log.log_start_offset} (log start) to {log.log_end_offset} (log end)"
        )
    high_watermark = log.watermark.offset
    end = log.last_stable_offset if committed else high_watermark
    return read_slice(
        log.segment_list,
        offset,
        max_bytes,
        end_offset=end if end_offset is None else min(end, end_offset),
        high_watermark=high_watermark,
        whole_first=whole_first,
        far=far,
    )


def located(log: Log, offset: int) -> bool:
    """Do a bounded part of the search for `offset` and the high watermark, if the indexes do not
    give their positions. Return `True` once `read` and `readable_bytes` have little left to search.

    Raises `OSError`.
    """
    high_watermark = log.high_watermark
    if offset >= high_watermark:
        return True
    if not log.segment_list.holding(offset).located(offset):
        return False
    if high_watermark == log.log_end_offset:
        return True
    return log.segment_list.holding(high_watermark).located(high_watermark)


def readable_bytes(log: Log, offset: int, *, committed: bool = False) -> int:
    """Return how many stored bytes there are from `offset` to where `read` ends."""
    end_offset = log.last_stable_offset if committed else log.high_watermark
    return slices.readable_bytes(log.segment_list, offset, end_offset)


def aborted_transactions(log: Log, found: Slice, offset: int) -> list[AbortedSpan]:
    """Return the aborted transactions with messages in the slice that `read` returned for `offset`,
    ordered by first offset."""
    if found.segment is None or not log.producers.states.aborted:
        return []
    end_offset = offset_behind(found.segment, found.position + found.size)
    return log.producers.states.aborted_between(offset, end_offset)


def _view(log: Log, *, by_time: bool = True, to_log_end: bool = False) -> SearchView:
    if by_time and not log.prepared:
        # Otherwise segments with unknown timestamps would be skipped silently.
        log.prepare()
    return SearchView(
        log.segment_list.segments,
        log.segment_list.closed_max_ms if by_time else (),
        log.log_start_offset,
        log.log_end_offset if to_log_end else log.high_watermark,
        log.settings.max_decompressed_bytes,
    )


def find_time(log: Log, target_ms: int, *, to_log_end: bool = False) -> Search[FoundMessage | None]:
    """Search for the first message, in offset order, with a timestamp >= `target_ms`.

    The search ends at the high watermark, or with `to_log_end`, which is not for consumers, at the
    log end. Raises as `prepare`, which should have been called before.
    """
    listed = log.segment_list
    if not listed.prepared:
        # Otherwise segments with unknown timestamps would be skipped silently.
        log.prepare()
    segment, may_have = listed.reaching(target_ms)
    looked_at = None
    if may_have:
        looked_at = segment
        found = find_time_at_once(
            segment, target_ms, log.log_start_offset, log.settings.max_decompressed_bytes
        )
        if found is not None:
            end_offset = log.log_end_offset if to_log_end else log.watermark.offset
            return Search(None, found if found.offset < end_offset else None)
    view = _view(log, to_log_end=to_log_end)
    return Search(search.find_time(view, target_ms, looked_at))


def search_trail(log: Log, target_ms: int, found: FoundMessage | None) -> SearchTrail:
    """Return how `find_time` got from `target_ms` to `found`. Raises `StorageError`."""
    return _trail_of(log.segment_list.segments, log.segment_list.closed_max_ms, target_ms, found)


def append_times(log: Log, found: Slice, offset: int, sets_max: int) -> tuple[Slice, KnownTimes]:
    """Return the append times of the messages in the slice that `read` returned for `offset`.

    Append times that cannot be read are unknown, and reported. The slice is shortened if it has
    more than `sets_max` sets. Raises `StorageError`.
    """
    try:
        return append_times_of(found, offset, sets_max)
    except OSError as error:
        log.seams.observe(
            "append_times_unreadable",
            topic=log.topic,
            partition=log.partition,
            error=error,
        )
        return found, KnownTimes([(log.log_start_offset, NO_TIMESTAMP)], offset, 0)


def append_times_loaded(log: Log, offset: int) -> bool:
    """Load a bounded part of the append times of the segment that holds `offset`. Return `True`
    once all are loaded. Raises `OSError`."""
    return log.segment_list.holding(offset).append_times.load()


def append_time_ms(log: Log, offset: int) -> int:
    """Return when the message at `offset` was appended, -1 if unknown. Raises `OSError`."""
    times = log.segment_list.holding(offset).append_times
    return known_times(times, offset, offset + 1).spans[-1][1]


def find_append_time(
    log: Log, target_ms: int, *, to_log_end: bool = False
) -> Search[FoundMessage | None]:
    """Search for the first message, in offset order, that was appended at or after `target_ms`.

    The time in the result is the append time. Ends and raises as `find_time`.
    """
    if not log.prepared:
        log.prepare()
    view = _view(log, by_time=False, to_log_end=to_log_end)
    return Search(search_append_time(view, log.segment_list.closed_append_max_ms, target_ms))


def find_largest(log: Log, *, to_log_end: bool = False) -> Search[FoundMessage | None]:
    """Search for the first message with the largest timestamp of the log.

    Ends and raises as `find_time`.
    """
    return Search(search.find_largest(_view(log, to_log_end=to_log_end)))


def offsets_before(
    log: Log, target_ms: int, count_max: int, *, to_log_end: bool = False
) -> Search[list[int]]:
    """Search for offsets to start from for `target_ms`, in falling order; at most `count_max`.

    Ends and raises as `find_time`. `EARLIEST` and `LATEST` need no preparation.
    """
    now_ms = log.seams.clock.now_ms()
    by_time = target_ms not in (search.EARLIEST, search.LATEST)
    view = _view(log, by_time=by_time, to_log_end=to_log_end)
    if not by_time:
        return Search(search.offsets_before(view, target_ms, count_max, now_ms))
    return Search(_offsets_before(log, view, target_ms, count_max, now_ms))


def _offsets_before(
    log: Log, view: SearchView, target_ms: int, count_max: int, now_ms: int
) -> Steps[list[int]]:
    yield from reading(log)
    trimmed = trimmed_segment(log)
    return (yield from search.offsets_before(view, target_ms, count_max, now_ms, trimmed))


def _trail_of(
    segments: Sequence[Segment],
    closed_max_ms: Sequence[int],
    target_ms: int,
    found: FoundMessage | None,
) -> SearchTrail:
    """Return the steps from `target_ms` to `found`, in the log as it is now.

    Raises `StorageError` if the log cannot be read.
    """
    ruled_out = bisect_left(closed_max_ms, target_ms)
    if found is None:
        if segments[-1].largest_possible_ms < target_ms:
            ruled_out = len(segments)
        return SearchTrail(len(segments), ruled_out, None)
    number = bisect_left(segments, found.offset + 1, key=lambda segment: segment.base_offset) - 1
    segment = segments[max(number, 0)]
    index = segment.time_index
    start_offset = index.start_for(target_ms)
    used = index.count_below(start_offset) if start_offset > segment.base_offset else None
    start_position = segment.locate(start_offset)
    return SearchTrail(
        len(segments),
        ruled_out,
        segment,
        len(index),
        None if used is None else index.entry(used),
        start_offset,
        start_position,
        segment.locate(found.offset) - start_position,
    )


def append_times_of(found: Slice, offset: int, sets_max: int) -> tuple[Slice, KnownTimes]:
    """Return the append times of the messages in a slice that was read from `offset` on.

    They may extend a little beyond the slice. The slice is returned too; it is shortened if it has
    more than `sets_max` sets. Raises `OSError`, and `StorageError` as `Segment.locate`.
    """
    segment = found.segment
    if segment is None or not found.size:
        return found, KnownTimes([], offset, 0)
    wanted_end = min(offset_behind(segment, found.position + found.size), found.high_watermark)
    first_offset = max(offset, segment.base_offset)
    known = known_times(segment.append_times, first_offset, wanted_end, sets_max)
    size = found.size
    if known.end_offset < wanted_end:
        size = min(size, segment.locate(known.end_offset) - found.position)
    # The slice's file may have been replaced by another in the meantime.
    return replace(found, size=size), known


def offset_behind(segment: Segment, position: int) -> int:
    """Return an offset above those of all messages before `position`."""
    number = segment.offset_index.count_before(position)
    if number < len(segment.offset_index):
        return segment.offset_index.entry(number)[0]
    return segment.next_offset


def search_append_time(
    view: SearchView, closed_max_ms: Sequence[int], target_ms: int
) -> Generator[None, None, FoundMessage | None]:
    """Find the first message, in offset order, that was appended at or after `target_ms`, or
    `None`.

    `closed_max_ms` is, for each closed segment, an upper bound of the append times in it and in
    those before it. Only messages between the log start and the high watermark count, and only
    known append times. Raises `OSError`, and the damage of a segment if the message is in the
    damaged part.
    """
    for segment in view.segments[bisect_left(closed_max_ms, target_ms) :]:
        if segment.base_offset >= view.high_watermark:
            break
        if segment.append_times.largest_ms >= target_ms:
            found = yield from _find_in_segment(view, segment, target_ms)
            if found is not None:
                return found
        yield
    return None


def _find_in_segment(
    view: SearchView, segment: Segment, target_ms: int
) -> Generator[None, None, FoundMessage | None]:
    steps = first_since(segment.append_times, target_ms, view.log_start_offset, view.high_watermark)
    while not segment.dropped:
        try:
            next(steps)
        except StopIteration as stop:
            if stop.value is None:
                return None
            found = FoundMessage(*stop.value)
            if segment.damaged is not None and found.offset >= segment.damaged.offset:
                raise segment.damaged.error(segment.log_path) from None
            return found
        yield
    return None
