"""Two short walks over stored entries that look only at their heads.

Both take a buffer that starts at an entry and may end inside one, verify no CRC (see `kernel`
for that), and say where they stopped so that the caller can read on from there. Plain Python in
the shape that Cython's pure mode compiles.
"""

from struct import Struct

from .layout import ENTRY_OVERHEAD, MAGIC_AT, MESSAGE_OVERHEAD, Buffer

_OFFSET_SIZE = Struct(">qi")
_HEAD_V1 = Struct(">qiIBBq")
_SMALLEST = MESSAGE_OVERHEAD[0]
_SMALLEST_V1 = MESSAGE_OVERHEAD[1]

NOT_FOUND = -1
BAD_SIZE = -2
"""The size field at the position where the scan stopped is below any message's."""
BAD_OFFSET = -3
"""The offset at the position where the scan stopped is not above the one before it."""


def scan_offset(buffer: Buffer, start: int, end: int, target_offset: int) -> tuple[int, int]:
    """Find the first entry whose offset is >= `target_offset`.

    Returns `(position, stopped)`: the entry's position, or `NOT_FOUND`, `BAD_SIZE`, `BAD_OFFSET`,
    and the position of the first entry that was not passed. An entry counts as soon as its
    12-byte header is in the buffer.
    """
    unpack = _OFFSET_SIZE.unpack_from
    last = -1
    position = start
    while position + ENTRY_OVERHEAD <= end:
        offset, size = unpack(buffer, position)
        if size < _SMALLEST:
            return BAD_SIZE, position
        if offset <= last:
            return BAD_OFFSET, position
        if offset >= target_offset:
            return position, position
        last = offset
        position += ENTRY_OVERHEAD + size
    return NOT_FOUND, position


def scan_timestamp(buffer: Buffer, start: int, end: int, target_ms: int) -> tuple[int, int]:
    """Find the first complete v1 entry whose own timestamp is >= `target_ms`.

    A wrapper's own timestamp is the largest of its messages', so one that is returned has to be
    opened. Entries of v0 have no time and never match. Returns as `scan_offset` does.
    """
    unpack = _HEAD_V1.unpack_from
    unpack_size = _OFFSET_SIZE.unpack_from
    position = start
    while position + ENTRY_OVERHEAD <= end:
        size = unpack_size(buffer, position)[1]
        if size < _SMALLEST:
            return BAD_SIZE, position
        following = position + ENTRY_OVERHEAD + size
        if following > end:
            break
        if buffer[position + MAGIC_AT] == 1:
            if size < _SMALLEST_V1:
                return BAD_SIZE, position
            if unpack(buffer, position)[5] >= target_ms:
                return position, position
        position = following
    return NOT_FOUND, position
