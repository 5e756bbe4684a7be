"""How a search by time came to its answer, for `explain`."""

from bisect import bisect_left
from collections.abc import Sequence

from ...values import value_class
from ..segment.segment import Segment
from .search import FoundMessage


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


def trail_of(
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
