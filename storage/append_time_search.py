"""When the messages of a slice were appended, and which message was the first at a time."""

from bisect import bisect_left
from collections.abc import Generator, Sequence

from .reading import Slice
from .search import Found, SearchView
from .segment import Segment


def append_times_of(found: Slice, offset: int) -> list[tuple[int, int]]:
    """`(offset, append time)` for the messages of a slice that was read from `offset` on.

    Each holds from its offset to the next one's, the last to the end; -1 is unknown. The first is
    at or below the first message, and the last ones may be of messages a little behind the slice.
    Raises `OSError`.
    """
    segment = found.segment
    if segment is None or not found.size:
        return []
    end_offset = min(_offset_behind(segment, found.position + found.size), found.high_watermark)
    return segment.append_times.covering(max(offset, segment.base_offset), end_offset)


def _offset_behind(segment: Segment, position: int) -> int:
    """An offset above those of all messages before `position`."""
    number = segment.offset_index.count_before(position)
    if number < len(segment.offset_index):
        return segment.offset_index.entry(number)[0]
    return segment.next_offset


def find_append_time(
    view: SearchView, closed_max_ms: Sequence[int], target_ms: int
) -> Generator[None, None, Found | None]:
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
) -> Generator[None, None, Found | None]:
    steps = segment.append_times.find(target_ms, view.log_start_offset, view.high_watermark)
    while not segment.dropped:
        try:
            next(steps)
        except StopIteration as stop:
            if stop.value is None:
                return None
            found = Found(*stop.value)
            if segment.damaged is not None and found.offset >= segment.damaged.offset:
                raise segment.damaged.error(segment.log_path) from None
            return found
        yield
    return None
