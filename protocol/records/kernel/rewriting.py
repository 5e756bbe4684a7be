"""Plain messages written anew: in the other format, with other offsets, with another time.

It runs as it is and compiled, as `walk` does. What becomes of whole sets is in `conversion`.
"""

from struct import Struct
from typing import Final

from ..layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    ENTRY_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MESSAGE_OVERHEAD,
    NO_TIMESTAMP,
    RESERVED_MASK,
    SIZE_AT,
    TIMESTAMP_AT,
    Buffer,
)

try:
    import cython
except ImportError:
    from . import uncompiled as cython

if not cython.compiled:
    from .uncompiled import (
        bytes_of,
        copy_bytes,
        crc32,
        crc32_at,
        int32_at,
        int64_at,
        put_int32,
        put_int64,
        writable,
    )

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

_HEAD: Final = Struct(">qi4xBB")
"""Offset, size, magic and attributes of an entry."""
_NEW_HEAD: Final = Struct(">qiI")
"""Offset, size and CRC."""
_OFFSET: Final = Struct(">q")
_V0_HEAD: Final = Struct(">BB")
_V1_HEAD: Final = Struct(">BBq")
_OVERHEAD: Final = ENTRY_OVERHEAD
_SIZE: Final = SIZE_AT
_CRC: Final = CRC_AT
_MAGIC: Final = MAGIC_AT
_ATTRIBUTES: Final = ATTRIBUTES_AT
_TIME: Final = TIMESTAMP_AT
_TIME_BYTES: Final = 8
_OFFSET_BYTES: Final = 8
_CRC_BYTES: Final = 4
_V0_OVERHEAD: Final = MESSAGE_OVERHEAD[0]
_V1_OVERHEAD: Final = MESSAGE_OVERHEAD[1]
_APPEND_TIME: Final = LOG_APPEND_TIME_BIT
_CODEC_MASK: Final = CODEC_MASK
_RESERVED: Final = RESERVED_MASK
_NO_TIME: Final = NO_TIMESTAMP

OWN: Final = -1
"""Instead of a magic, a first offset or a time to stamp: each message keeps its own."""
_OWN: Final = OWN


def rewrite(
    target: bytearray,
    buffer: Buffer,
    start: int,
    end: int,
    magic: int,
    first_offset: int,
    offset_shift: int,
    stamp_ms: int,
) -> int:
    """Add the plain entries of `buffer[start:end]` to `target`; how many changed their format.

    What the arguments mean is said at `conversion.convert_entries`, which has `None` for `OWN`. A
    walk must have found the entries good: `ValueError` if they cannot be, and `target` is as it
    was.
    """
    begin = len(target)
    try:
        return _rewrite(
            target, memoryview(buffer), start, end, magic, first_offset, offset_shift, stamp_ms
        )
    except ValueError:
        del target[begin:]
        raise


def _rewrite(
    target: bytearray,
    view: memoryview,
    start: int,
    end: int,
    magic: int,
    first_offset: int,
    offset_shift: int,
    stamp_ms: int,
) -> int:
    data = bytes_of(view)
    if start < 0 or start > end or end > len(view):
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    at = len(target)
    if cython.compiled:
        room = end - start
        if magic == 1:
            # Each entry may grow by the time that it gets.
            room += _TIME_BYTES * (room // (_OVERHEAD + _V0_OVERHEAD))
        target.extend(bytes(room))
        out = writable(target)
    converted = 0
    position = start
    while position < end:
        if cython.compiled:
            size = int32_at(data, position + _SIZE) if end - position >= _OVERHEAD else -1
            stop = position + _OVERHEAD + size
            if size < _V0_OVERHEAD or stop > end:
                raise _not_good(position)
            offset = int64_at(data, position)
            own_magic = data[position + _MAGIC]
            attributes = data[position + _ATTRIBUTES]
        else:
            if end - position < _OVERHEAD + _V0_OVERHEAD:
                raise _not_good(position)
            offset, size, own_magic, attributes = _HEAD.unpack_from(view, position)
            stop = position + _OVERHEAD + size
        if size < (_V1_OVERHEAD if own_magic else _V0_OVERHEAD) or stop > end or own_magic > 1:
            raise _not_good(position)
        if first_offset == _OWN:
            offset += offset_shift
        else:
            offset = first_offset
            first_offset += 1
        wanted = own_magic if magic == _OWN else magic
        if wanted != own_magic:
            converted += 1
        elif wanted == 0 or (stamp_ms == _OWN and not attributes & _APPEND_TIME):
            if cython.compiled:
                copy_bytes(out, at, data, position, stop - position)
                put_int64(out, at, offset)
                at += stop - position
            else:
                target += _OFFSET.pack(offset)
                target += view[position + _OFFSET_BYTES : stop]
            position = stop
            continue
        attributes &= _RESERVED
        time_ms = stamp_ms
        if wanted == 1 and stamp_ms != _OWN:
            attributes |= _APPEND_TIME
        else:
            time_ms = int64_at(data, position + _TIME) if own_magic else _NO_TIME
        content = position + _TIME + (_TIME_BYTES if own_magic else 0)
        if cython.compiled:
            out[at + _MAGIC] = wanted
            out[at + _ATTRIBUTES] = attributes
            content_at = at + _TIME
            if wanted == 1:
                put_int64(out, content_at, time_ms)
                content_at += _TIME_BYTES
            copy_bytes(out, content_at, data, content, stop - content)
            size = content_at + stop - content - at - _OVERHEAD
            put_int64(out, at, offset)
            put_int32(out, at + _SIZE, size)
            put_int32(out, at + _CRC, crc32_at(out, at + _MAGIC, size - _CRC_BYTES))
            at += _OVERHEAD + size
        else:
            if wanted == 1:
                body = _V1_HEAD.pack(1, attributes, time_ms) + view[content:stop]
            else:
                body = _V0_HEAD.pack(0, attributes) + view[content:stop]
            target += _NEW_HEAD.pack(offset, len(body) + _CRC_BYTES, crc32(body))
            target += body
        position = stop
    if cython.compiled:
        del target[at:]
    return converted


def _not_good(position: int) -> ValueError:
    return ValueError(f"the entry at byte {position} is no good plain message")


def plain_end(buffer: Buffer, start: int, end: int) -> int:
    """Where the first wrapper or batch of `buffer[start:end]` begins, or `end`. The entries must
    be good: `ValueError` if they cannot be."""
    return _plain_end(memoryview(buffer), start, end)


def _plain_end(view: memoryview, start: int, end: int) -> int:
    data = bytes_of(view)
    if start < 0 or end > len(view):
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    position = start
    while position < end:
        size = int32_at(data, position + _SIZE) if end - position >= _OVERHEAD else -1
        if size < _V0_OVERHEAD or position + _OVERHEAD + size > end:
            raise _not_good(position)
        if data[position + _ATTRIBUTES] & _CODEC_MASK or data[position + _MAGIC] > 1:
            break
        position += _OVERHEAD + size
    return position
