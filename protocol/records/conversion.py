"""The same messages in another format: v0 with 8 bytes for a time, v1 without them.

Keys, values and the reserved attribute bits stay, the CRC is new. What wrappers hold is converted
message by message and compressed anew, never copied: lz4 frames of the two formats differ, and
so do the offsets inside.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from .kernel import crc32
from .layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    ENTRY_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    RESERVED_MASK,
    TIMESTAMP_AT,
    Buffer,
    Codec,
)

_HEAD: Final = Struct(">qi4xBB")
"""Offset, size, magic and attributes of an entry."""
_NEW_HEAD: Final = Struct(">qiI")
"""Offset, size and CRC."""
_OFFSET: Final = Struct(">q")
_SIZE: Final = Struct(">i")
_TIMESTAMP: Final = Struct(">q")
_V0_HEAD: Final = Struct(">BB")
_V1_HEAD: Final = Struct(">BBq")
_CRC_BYTES: Final = 4
_OFFSET_BYTES: Final = 8
_V0_KEY_AT: Final = TIMESTAMP_AT
_V1_KEY_AT: Final = TIMESTAMP_AT + 8


def convert_entries(
    target: bytearray,
    buffer: Buffer,
    start: int,
    end: int,
    *,
    magic: int | None,
    first_offset: int | None = None,
    offset_shift: int = 0,
    stamp_ms: int | None = None,
) -> int:
    """Add the plain entries of `buffer[start:end]` to `target`, each in format `magic`.

    They must be good: a walk has passed them. `magic` `None` leaves each its own format. Offsets
    count up from `first_offset`, or are the entries' own plus `offset_shift`. In v1 a message
    keeps its time, as a create time, and has none if it was v0; with `stamp_ms` all have that
    time, as an append time. Returns how many messages changed their format.
    """
    converted = 0
    position = start
    while position < end:
        offset, size, own_magic, attributes = _HEAD.unpack_from(buffer, position)
        stop = position + ENTRY_OVERHEAD + size
        if first_offset is None:
            offset += offset_shift
        else:
            offset = first_offset
            first_offset += 1
        wanted = own_magic if magic is None else magic
        changed = wanted != own_magic
        if changed:
            converted += 1
        elif wanted == 0 or (stamp_ms is None and not attributes & LOG_APPEND_TIME_BIT):
            target += _OFFSET.pack(offset)
            target += buffer[position + _OFFSET_BYTES : stop]
            position = stop
            continue
        attributes &= RESERVED_MASK
        if wanted == 0:
            head = _V0_HEAD.pack(0, attributes)
        elif stamp_ms is not None:
            head = _V1_HEAD.pack(1, attributes | LOG_APPEND_TIME_BIT, stamp_ms)
        elif own_magic == 0:
            head = _V1_HEAD.pack(1, attributes, NO_TIMESTAMP)
        else:
            (timestamp_ms,) = _TIMESTAMP.unpack_from(buffer, position + TIMESTAMP_AT)
            head = _V1_HEAD.pack(1, attributes, timestamp_ms)
        body = head + buffer[position + (_V1_KEY_AT if own_magic else _V0_KEY_AT) : stop]
        target += _NEW_HEAD.pack(offset, len(body) + _CRC_BYTES, crc32(body))
        target += body
        position = stop
    return converted


def runs(buffer: Buffer, start: int, end: int) -> Iterator[tuple[int, int, Codec]]:
    """Where the plain entries and the wrappers of `buffer[start:end]` are: `(start, end, codec)`.

    Plain entries that follow each other are one run with `Codec.NONE`, a wrapper is one by
    itself. The entries must be good.
    """
    run_start = position = start
    while position < end:
        (size,) = _SIZE.unpack_from(buffer, position + _OFFSET_BYTES)
        codec = buffer[position + ATTRIBUTES_AT] & CODEC_MASK
        stop = position + ENTRY_OVERHEAD + size
        if codec:
            if run_start < position:
                yield run_start, position, Codec.NONE
            yield position, stop, Codec(codec)
            run_start = stop
        position = stop
    if run_start < end:
        yield run_start, end, Codec.NONE
