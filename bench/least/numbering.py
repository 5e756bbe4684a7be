"""What no log can leave out of a set: its checksums are verified, its messages get their offsets,
and their latencies are counted."""

from typing import Final

from ...protocol.records.kernel import UnchangedSets, take_unchanged
from ...storage.files import Buffer
from ...times import INT64_MAX

_FORMATS: Final = 0b111
_NO_LIMIT: Final = 1 << 30


def numbered(record_sets: list[Buffer], next_offset: int, now_ms: int) -> UnchangedSets:
    """Sets whose messages have offsets from `next_offset` on. Raises `ValueError` for one that is
    not stored as it came."""
    found = take_unchanged(
        record_sets,
        base_offset=next_offset,
        now_ms=now_ms,
        magics=_FORMATS,
        append_time_ms=-1,
        lowest_ms=0,
        highest_ms=INT64_MAX,
        entry_max_bytes=_NO_LIMIT,
        room_bytes=_NO_LIMIT,
        marks_max=_NO_LIMIT,
        interval_bytes=4096,
        since_bytes=0,
        largest_ms=-1,
        magic=-1,
        segment_offset=next_offset,
        segment_position=0,
    )
    if found is None or len(found.first_offsets) < len(record_sets):
        raise ValueError("a set is not one that is stored as it came")
    return found
