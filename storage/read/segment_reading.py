"""What readers ask of one segment: how far it can be read, and whether entries are good."""

from typing import Final

from ...protocol.records.kernel.terms import Problem
from ..entries.entry_rules import walk_row
from ..entries.salvage import offsets_at
from ..entries.segment_scan import scan_log_file
from ..segment.segment import Segment

_CHECKED_BYTES: Final = 512 << 10
"""What is checked in front of an entry that a search found, at most: some 0.3 ms of work."""


def visible_end(segment: Segment, high_watermark: int, *, far: bool = True) -> int:
    """Position after the last entry below `high_watermark` that can be read.

    Raises as `locate_entry`.
    """
    damaged = segment.damaged
    if damaged is None:
        if segment.next_offset <= high_watermark:
            return segment.size_bytes
    elif min(segment.next_offset, damaged.offset) <= high_watermark:
        return damaged.position
    return segment.locate_entry(high_watermark, far=far)[0]


def check_readable(segment: Segment, high_watermark: int) -> None:
    """Raise the damage that is in front of `high_watermark`, if there is any."""
    damaged = segment.damaged
    if damaged is not None and damaged.offset < high_watermark:
        raise damaged.error(segment.log_path)


def check_entries(segment: Segment, start: int, end: int, data: bytes, position: int) -> None:
    """Check the entries up to the one from `start` to `end`, from the last one before it that
    the index knows: CRCs, and offsets, which no CRC covers.

    `data` are bytes from `position` on that have been read already, up to `end` at least.
    Raises `StorageError` when an entry is not good.
    """
    offset, begin = segment.index_entry_before(start + 1)
    if end - begin > _CHECKED_BYTES:
        return
    if begin < position:
        data, position = segment.file.pread(end - begin, begin), begin
    if not segment.gaps and walk_row(data, begin - position, end - position, offset):
        return
    offsets = offsets_at(segment.file, begin, end)
    if offsets is None:
        raise segment.damage(begin)
    first, last = offsets
    in_place = first <= offset <= last
    if not begin:
        in_place = first >= offset if segment.gaps else first == offset
    scan = scan_log_file(
        segment.file, begin, end, next_offset=first, gaps=segment.gaps, check_crc=True
    )
    if not in_place:
        raise segment.damage(begin)
    if scan.problem is not Problem.NONE:
        raise segment.damage(scan.good_bytes)
