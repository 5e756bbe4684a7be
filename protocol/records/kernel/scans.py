"""Short walks over stored entries that look only at their heads.

All take a buffer that starts at an entry and verify no CRC (see `walk` for that). The scans take
one that may end inside of an entry, and say where they stopped so that the caller can read on from
there. They run as they are and compiled, as `walk` does.
"""

from struct import Struct
from typing import Final

from ..layout import (
    BATCH_OVERHEAD,
    ENTRY_OVERHEAD,
    LAST_DELTA_AT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MESSAGE_OVERHEAD,
    SIZE_AT,
    TIMESTAMP_AT,
    Buffer,
)

try:
    import cython
except ImportError:
    from . import uncompiled as cython

if not cython.compiled:
    from .uncompiled import bytes_of, int32_at, int64_at

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

_OFFSET_SIZE: Final = Struct(">qi")
_OVERHEAD: Final = ENTRY_OVERHEAD
_SIZE: Final = SIZE_AT
_MAGIC: Final = MAGIC_AT
_TIME: Final = TIMESTAMP_AT
_LAST_DELTA: Final = LAST_DELTA_AT
_BATCH_TIME: Final = MAX_TIMESTAMP_AT
_LENGTH_BYTES: Final = 4
_SMALLEST: Final = MESSAGE_OVERHEAD[0]
_SMALLEST_V1: Final = MESSAGE_OVERHEAD[1]
_SMALLEST_BATCH: Final = BATCH_OVERHEAD - ENTRY_OVERHEAD
_LARGEST_INT64: Final = 2**63 - 1

SCANNED_BYTES: Final = _LAST_DELTA + _LENGTH_BYTES
"""So many first bytes of an entry say what its offset is, whatever its format."""

NOT_FOUND = -1
BAD_SIZE = -2
"""The size field at the position where the scan stopped is below any message's."""
BAD_OFFSET = -3
"""The offset at the position where the scan stopped is not above the one before it."""


def scan_offset(buffer: Buffer, start: int, end: int, target_offset: int) -> tuple[int, int]:
    """Find the first entry whose offset, for a batch its last one, is >= `target_offset`.

    Returns `(position, stopped)`: the entry's position, or `NOT_FOUND`, `BAD_SIZE`, `BAD_OFFSET`,
    and the position of the first entry that was not passed. An entry counts as soon as its first
    `SCANNED_BYTES` are in the buffer, a message as soon as its first 17 bytes are.
    """
    return _scan_offset(memoryview(buffer), start, end, target_offset)


def _scan_offset(view: memoryview, start: int, end: int, target_offset: int) -> tuple[int, int]:
    if start < 0 or end > len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    data = bytes_of(view)
    last = -1
    position = start
    while end - position >= _OVERHEAD:
        if cython.compiled:
            offset = int64_at(data, position)
            size = int32_at(data, position + _SIZE)
        else:
            offset, size = _OFFSET_SIZE.unpack_from(view, position)
        if size < _SMALLEST:
            return BAD_SIZE, position
        if offset <= last:
            return BAD_OFFSET, position
        if end - position <= _MAGIC:
            break
        if data[position + _MAGIC] == 2:
            if end - position < _LAST_DELTA + _LENGTH_BYTES:
                break
            delta = int32_at(data, position + _LAST_DELTA)
            if delta < 0 or offset > _LARGEST_INT64 - delta:
                return BAD_OFFSET, position
            offset += delta
        if offset >= target_offset:
            return position, position
        last = offset
        position += _OVERHEAD + size
    return NOT_FOUND, position


def scan_timestamp(buffer: Buffer, start: int, end: int, target_ms: int) -> tuple[int, int]:
    """Find the first complete v1 entry, or batch, whose own timestamp is >= `target_ms`.

    That of a wrapper or batch is the largest of its messages', so one that is returned has to be
    opened. Entries of v0 have no time and never match. Returns as `scan_offset` does.
    """
    return _scan_timestamp(memoryview(buffer), start, end, target_ms)


def _scan_timestamp(view: memoryview, start: int, end: int, target_ms: int) -> tuple[int, int]:
    if start < 0 or end > len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    data = bytes_of(view)
    position = start
    while end - position >= _OVERHEAD:
        size = int32_at(data, position + _SIZE)
        if size < _SMALLEST:
            return BAD_SIZE, position
        following = position + _OVERHEAD + size
        if following > end:
            break
        if data[position + _MAGIC] == 1:
            if size < _SMALLEST_V1:
                return BAD_SIZE, position
            if int64_at(data, position + _TIME) >= target_ms:
                return position, position
        elif data[position + _MAGIC] == 2:
            if size < _SMALLEST_BATCH:
                return BAD_SIZE, position
            if int64_at(data, position + _BATCH_TIME) >= target_ms:
                return position, position
        position = following
    return NOT_FOUND, position


def first_offsets(buffer: Buffer, set_ends: list[int]) -> list[int] | None:
    """The first offset of each of the sets that stand one behind the other in `buffer`.

    Their ends rise, the last one is no more than the buffer's. `None` when an entry does not end
    where its set does, or a set has none.
    """
    return _first_offsets(memoryview(buffer), set_ends)


def _first_offsets(view: memoryview, set_ends: list[int]) -> list[int] | None:
    data = bytes_of(view)
    whole = len(view)
    found: list[int] = []
    position = 0
    for end in set_ends:
        if end > whole or end - position < _OVERHEAD:
            return None
        found.append(int64_at(data, position))
        while end - position >= _OVERHEAD:
            size = int32_at(data, position + _SIZE)
            if size < _SMALLEST:
                return None
            position += _OVERHEAD + size
        if position != end:
            return None
    return found
