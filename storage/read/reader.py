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
    """How many the log has."""
    ruled_out: int
    """How many of them, the oldest, have no message that is late enough."""
    segment: Segment | None
    """Where the message is; `None` when nothing was found, as all below is without meaning."""
    time_entries: int = 0
    """Entries of its time index."""
    entry: tuple[int, int] | None = None
    """The time entry that was used: `(T, n)`, no message below offset `n` is later than `T`."""
    start_offset: int = -1
    """Where reading began."""
    start_position: int = -1
    """The same as a byte of the log file."""
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
    """What is stored from the entry that holds `offset` on, up to the high watermark, or with
    `committed` to the last stable offset.

    At most `max_bytes` of one segment and one message format, cut without regard to entries;
    `whole_first` gives the first entry whole even if it is larger, `end_offset` ends the slice
    before that offset. Raises `OffsetOutOfRange`, `StorageError`; without `far` `FarAway` where
    there is something to be `prepared` or `located` first.
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
    """Look for where `offset` and the high watermark are, if the indexes do not say it: a
    bounded piece of work; `True` when `read` and `readable_bytes` have not far to look.

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
    """How many stored bytes there are from `offset` to where `read` ends."""
    end_offset = log.last_stable_offset if committed else log.high_watermark
    return slices.readable_bytes(log.segment_list, offset, end_offset)


def aborted_transactions(log: Log, found: Slice, offset: int) -> list[AbortedSpan]:
    """The aborted transactions with messages in the slice that `read` found for `offset`, by their
    first offset."""
    if found.segment is None or not log.producers.states.aborted:
        return []
    end_offset = offset_behind(found.segment, found.position + found.size)
    return log.producers.states.aborted_between(offset, end_offset)


def _view(log: Log, *, by_time: bool = True, to_log_end: bool = False) -> SearchView:
    if by_time and not log.prepared:
        # Else segments whose times are not known would be passed over without a word.
        log.prepare()
    return SearchView(
        log.segment_list.segments,
        log.segment_list.closed_max_ms if by_time else (),
        log.log_start_offset,
        log.log_end_offset if to_log_end else log.high_watermark,
        log.settings.max_decompressed_bytes,
    )


def find_time(log: Log, target_ms: int, *, to_log_end: bool = False) -> Search[FoundMessage | None]:
    """Search the first message, in offset order, with a timestamp >= `target_ms`.

    Below the high watermark, or with `to_log_end`, which is not for consumers, anywhere. Raises
    as `prepare`, which should have been done before.
    """
    listed = log.segment_list
    if not listed.prepared:
        # Else segments whose times are not known would be passed over without a word.
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
    """How `find_time` came from `target_ms` to `found`. Raises `StorageError`."""
    return _trail_of(log.segment_list.segments, log.segment_list.closed_max_ms, target_ms, found)


def append_times(log: Log, found: Slice, offset: int, sets_max: int) -> tuple[Slice, KnownTimes]:
    """When the messages were appended that `read` found for `offset`.

    What cannot be read is unknown, and reported. The slice may come back shorter: with
    `sets_max` sets. Raises `StorageError`.
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
    """Look at more of the append times of the segment that holds `offset`: a bounded piece of
    work; `True` when all has been looked at. Raises `OSError`."""
    return log.segment_list.holding(offset).append_times.load()


def append_time_ms(log: Log, offset: int) -> int:
    """When the message at `offset` was appended, -1 if that is unknown. Raises `OSError`."""
    times = log.segment_list.holding(offset).append_times
    return known_times(times, offset, offset + 1).spans[-1][1]


def find_append_time(
    log: Log, target_ms: int, *, to_log_end: bool = False
) -> Search[FoundMessage | None]:
    """Search the first message, in offset order, appended at or after `target_ms`.

    The time in the result is the append time. Bounded and raising as `find_time`.
    """
    if not log.prepared:
        log.prepare()
    view = _view(log, by_time=False, to_log_end=to_log_end)
    return Search(search_append_time(view, log.segment_list.closed_append_max_ms, target_ms))


def find_largest(log: Log, *, to_log_end: bool = False) -> Search[FoundMessage | None]:
    """Search the first message that has the largest timestamp of the log.

    Bounded and raising as `find_time`.
    """
    return Search(search.find_largest(_view(log, to_log_end=to_log_end)))


def offsets_before(
    log: Log, target_ms: int, count_max: int, *, to_log_end: bool = False
) -> Search[list[int]]:
    """Search offsets to start from for `target_ms`, falling; at most `count_max`.

    Bounded and raising as `find_time`; a sentinel needs no preparation.
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
    """The way from `target_ms` to `found`, in the log as it is now.

    Raises `StorageError` where the log cannot be read.
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
    """What is known of the messages of a slice that was read from `offset` on.

    It may be of messages a little behind the slice too. The slice comes back, and shorter if it has
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
    # Another file may have been opened in place of the slice's.
    return replace(found, size=size), known


def offset_behind(segment: Segment, position: int) -> int:
    """An offset above those of all messages before `position`."""
    number = segment.offset_index.count_before(position)
    if number < len(segment.offset_index):
        return segment.offset_index.entry(number)[0]
    return segment.next_offset


def search_append_time(
    view: SearchView, closed_max_ms: Sequence[int], target_ms: int
) -> Generator[None, None, FoundMessage | None]:
    """The first message, in offset order, that was appended at or after `target_ms`, or `None`.

    `closed_max_ms` is, for each closed segment, the largest append time in it and all before it, or
    more. Only messages between the log start and the high watermark count, and only times that are
    known. Raises `OSError`, and what damage raises where the message is in it.
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
