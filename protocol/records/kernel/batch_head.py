"""What can be told of a batch without a look at its records.

It runs as it is and compiled, as `walk` does, whose walk asks it about each batch.
"""

from typing import Final

from ..layout import (
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_OVERHEAD,
    CODEC_MASK,
    LAST_DELTA_AT,
    RECORD_COUNT_AT,
    Buffer,
    Codec,
)
from .walk_terms import Problem

try:
    import cython
except ImportError:
    from . import uncompiled as cython

if not cython.compiled:
    from .uncompiled import bytes_of, crc32c_at, int32_at

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

_OVERHEAD: Final = BATCH_OVERHEAD
_CRC, _BITS = BATCH_CRC_AT, BATCH_ATTRIBUTES_AT
_LAST_DELTA, _RECORDS = LAST_DELTA_AT, RECORD_COUNT_AT
_CODEC_MASK: Final = CODEC_MASK
_HIGHEST_CODEC: Final = int(max(Codec))
_BAD_SIZE: Final = int(Problem.SIZE)
_BAD_CRC: Final = int(Problem.CRC)
_BAD_CODEC: Final = int(Problem.CODEC)
_BAD_COUNT: Final = int(Problem.COUNT)


def batch_problem(view: memoryview, position: int, stop: int, check_crc: bool) -> int:
    """The `Problem` of the batch that is all of `view[position:stop]`, 0 for none.

    A compaction leaves fewer records than offsets, so only more are a fault.
    """
    if not 0 <= position < stop <= len(view) or stop - position < _OVERHEAD:
        return _BAD_SIZE
    data = bytes_of(view)
    if check_crc:
        stored = int32_at(data, position + _CRC)
        computed = crc32c_at(data, position + _BITS, stop - position - _BITS)
        if (stored ^ computed) & 0xFFFFFFFF:
            return _BAD_CRC
    if data[position + _BITS + 1] & _CODEC_MASK > _HIGHEST_CODEC:
        return _BAD_CODEC
    delta = int32_at(data, position + _LAST_DELTA)
    records = int32_at(data, position + _RECORDS)
    if records < 0 or delta < 0 or records - 1 > delta:
        return _BAD_COUNT
    return 0


def crc32c(buffer: Buffer, start: int, end: int) -> int:
    """CRC-32C of `buffer[start:end]`."""
    return _crc32c(memoryview(buffer), start, end)


def _crc32c(view: memoryview, start: int, end: int) -> int:
    if not 0 <= start <= end <= len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    return crc32c_at(bytes_of(view), start, end - start)
