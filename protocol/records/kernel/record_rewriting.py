"""The records of a batch as plain messages of the formats v0 and v1.

It runs as it is and compiled, as `walk` does. What becomes of whole batches is in `conversion`;
the other way, messages into records, is in `record_packing`.
"""

from struct import Struct
from typing import Final, NamedTuple

from ..layout import (
    ATTRIBUTES_AT,
    CRC_AT,
    ENTRY_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MESSAGE_OVERHEAD,
    NO_TIMESTAMP,
    SIZE_AT,
    TIMESTAMP_AT,
    Buffer,
)
from .record_cursor import NO_MORE, RECORD, RecordCursor

try:
    import cython
except ImportError:
    from . import uncompiled as cython

if not cython.compiled:
    from .uncompiled import bytes_of, copy_bytes, crc32, crc32_at, put_int32, put_int64, writable

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

_HEAD: Final = Struct(">qiI")
"""Offset, size and CRC."""
_V0_HEAD: Final = Struct(">BBi")
_V1_HEAD: Final = Struct(">BBqi")
"""Magic, attributes, in v1 the timestamp, and the key's length."""
_LENGTH: Final = Struct(">i")
_RECORD: Final = RECORD
_NO_MORE: Final = NO_MORE
_OVERHEAD: Final = ENTRY_OVERHEAD
_SIZE, _CRC, _MAGIC = SIZE_AT, CRC_AT, MAGIC_AT
_ATTRIBUTES, _TIME = ATTRIBUTES_AT, TIMESTAMP_AT
_TIME_BYTES, _LENGTH_BYTES, _CRC_BYTES = 8, 4, 4
_V0_OVERHEAD, _V1_OVERHEAD = MESSAGE_OVERHEAD[0], MESSAGE_OVERHEAD[1]
_APPEND_TIME: Final = LOG_APPEND_TIME_BIT
_NO_TIME: Final = NO_TIMESTAMP
_FIRST_BYTES: Final = 512

OWN: Final = -1
"""Instead of a first offset or a time to stamp: each record keeps its own."""
_OWN: Final = OWN


class Rewritten(NamedTuple):
    """What came of a stretch of records."""

    messages: int
    headers: int
    """How many headers were left out."""
    following: int
    """Where the first record begins that was not taken; the end of all of them, if none is left."""
    last_offset: int
    """Of the last message, -1 without any."""


def records_to_messages(
    target: bytearray,
    content: Buffer,
    start: int,
    *,
    magic: int,
    base_offset: int,
    base_timestamp_ms: int,
    first_offset: int = OWN,
    stamp_ms: int = OWN,
    max_bytes: int = -1,
) -> Rewritten:
    """Add the uncompressed records in `content` from `start` on to `target`, each as a message.

    Their offsets count up from `first_offset`, or are those of a batch with `base_offset`. In v1
    they keep their times, or all have the append time `stamp_ms`. With `max_bytes` >= 0 it stops
    after the first message that makes `target` grow by that or more. `ValueError` for a record
    that is not good.
    """
    return Rewritten._make(
        _records_to_messages(
            target,
            memoryview(content),
            start,
            magic,
            base_offset,
            base_timestamp_ms,
            first_offset,
            stamp_ms,
            max_bytes,
        )
    )


def _records_to_messages(
    target: bytearray,
    view: memoryview,
    start: int,
    magic: int,
    base_offset: int,
    base_timestamp_ms: int,
    first_offset: int,
    stamp_ms: int,
    max_bytes: int,
) -> tuple[int, int, int, int]:
    data = bytes_of(view)
    cursor = RecordCursor(view, start, len(view))
    begin = at = room = len(target)
    count = headers = 0
    last_offset = -1
    overhead = _V1_OVERHEAD if magic == 1 else _V0_OVERHEAD
    attributes = 0 if stamp_ms == _OWN else _APPEND_TIME
    step = _NO_MORE
    while max_bytes < 0 or at - begin < max_bytes:
        step = cursor.step()
        if step != _RECORD:
            break
        key_bytes = max(cursor.key_bytes, 0)
        value_bytes = max(cursor.value_bytes, 0)
        size = overhead + key_bytes + value_bytes
        offset = base_offset + cursor.offset_delta
        if first_offset != _OWN:
            offset = first_offset + count
        time_ms = stamp_ms
        if stamp_ms == _OWN:
            time_ms = base_timestamp_ms + cursor.timestamp_delta_ms
        if cython.compiled:
            if at + _OVERHEAD + size > room:
                room = begin + 2 * (at - begin + _OVERHEAD + size) + _FIRST_BYTES
                target.extend(bytes(room - len(target)))
            out = writable(target)
            put_int64(out, at, offset)
            put_int32(out, at + _SIZE, size)
            out[at + _MAGIC] = magic
            out[at + _ATTRIBUTES] = 0
            place = at + _TIME
            if magic == 1:
                out[at + _ATTRIBUTES] = attributes
                put_int64(out, place, time_ms)
                place += _TIME_BYTES
            put_int32(out, place, max(cursor.key_bytes, -1))
            place += _LENGTH_BYTES
            copy_bytes(out, place, data, cursor.key_at, key_bytes)
            place += key_bytes
            put_int32(out, place, max(cursor.value_bytes, -1))
            place += _LENGTH_BYTES
            copy_bytes(out, place, data, cursor.value_at, value_bytes)
            put_int32(out, at + _CRC, crc32_at(out, at + _MAGIC, size - _CRC_BYTES))
        else:
            if magic == 1:
                body = _V1_HEAD.pack(1, attributes, time_ms, max(cursor.key_bytes, -1))
            else:
                body = _V0_HEAD.pack(0, 0, max(cursor.key_bytes, -1))
            body += view[cursor.key_at : cursor.key_at + key_bytes]
            body += _LENGTH.pack(max(cursor.value_bytes, -1))
            body += view[cursor.value_at : cursor.value_at + value_bytes]
            target += _HEAD.pack(offset, size, crc32(body))
            target += body
        at += _OVERHEAD + size
        last_offset = offset
        headers += cursor.header_count
        count += 1
    if cython.compiled:
        del target[at:]
    if step < _NO_MORE:
        del target[begin:]
        raise ValueError(f"record {count}, at byte {cursor.position} of its batch, is not good")
    return count, headers, cursor.following, last_offset
