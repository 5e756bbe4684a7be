"""When the messages of a slice were appended, and which message was the first at a time."""

from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import replace

from ..index.append_time_lookup import KnownTimes, first_since, known_times
from ..segment.segment import Segment
from .search import FoundMessage, SearchView
from .slices import Slice


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
