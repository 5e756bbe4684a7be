"""Messages out of the bytes of a set into columns, many at a time.

It runs as it is and compiled, as `walk` does. The columns are put to use in `columns`; records of
a batch are gathered in `record_gathering`.
"""

from typing import Final

from ..layout import (
    ATTRIBUTES_AT,
    ENTRY_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MESSAGE_OVERHEAD,
    NO_TIMESTAMP,
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
        int32_at,
        int32s,
        int64_at,
        int64s,
        undefined,
        writable,
    )

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

_OVERHEAD: Final = ENTRY_OVERHEAD
_SIZE: Final = SIZE_AT
_MAGIC: Final = MAGIC_AT
_ATTRIBUTES: Final = ATTRIBUTES_AT
_TIME: Final = TIMESTAMP_AT
_TIME_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_V0_OVERHEAD: Final = MESSAGE_OVERHEAD[0]
_V1_OVERHEAD: Final = MESSAGE_OVERHEAD[1]
_APPEND_TIME: Final = LOG_APPEND_TIME_BIT
_NO_TIME: Final = NO_TIMESTAMP
_LARGEST_INT32: Final = 2**31 - 1
_LARGE_OFFSET: Final = 2**62
"""Up to here offsets can be added to each other in 64 bits."""

OWN_TYPE: Final = -1
"""For `gather`: each message says itself whether a broker gave it its time."""
_OWN_TYPE: Final = OWN_TYPE


class Gathered:
    """Messages in columns, as `gather` leaves them; see `columns` for what the buffers hold."""

    __slots__ = (
        "count",
        "key_data",
        "key_nulls",
        "key_offsets",
        "key_valid",
        "offsets",
        "timestamp_types",
        "timestamps",
        "value_data",
        "value_nulls",
        "value_offsets",
        "value_valid",
    )

    count: int
    offsets: bytearray
    timestamps: bytearray
    timestamp_types: bytearray
    key_offsets: bytearray
    key_data: bytearray
    key_valid: bytearray
    key_nulls: int
    value_offsets: bytearray
    value_data: bytearray
    value_valid: bytearray
    value_nulls: int


def columns_for(count: int, key_bytes: int, value_bytes: int) -> Gathered:
    """Columns with room for so many messages, and so many bytes of keys and of values.

    What is in them is undefined, but for where the first key and value begin and for the valid
    bits, which are 0.
    """
    found = Gathered.__new__(Gathered)
    found.offsets = undefined(8 * count)
    found.timestamps = undefined(8 * count)
    found.timestamp_types = undefined(count)
    found.key_offsets = undefined(4 * count + 4)
    found.value_offsets = undefined(4 * count + 4)
    found.key_valid = bytearray((count + 7) // 8)
    found.value_valid = bytearray((count + 7) // 8)
    found.key_data = undefined(key_bytes)
    found.value_data = undefined(value_bytes)
    found.key_offsets[:4] = found.value_offsets[:4] = bytes(4)
    return found


def cut(found: Gathered, count: int, key_bytes: int, value_bytes: int) -> None:
    """Take the room away that columns did not need after all."""
    del found.offsets[8 * count :], found.timestamps[8 * count :], found.timestamp_types[count:]
    del found.key_offsets[4 * count + 4 :], found.value_offsets[4 * count + 4 :]
    del found.key_data[key_bytes:], found.value_data[value_bytes:]
    del found.key_valid[(count + 7) // 8 :], found.value_valid[(count + 7) // 8 :]
    found.count = count


def gather(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    *,
    offset_shift: int = 0,
    from_offset: int = 0,
    timestamp_type: int = OWN_TYPE,
    timestamp_ms: int = -1,
    with_keys: bool = True,
    with_values: bool = True,
) -> Gathered:
    """The `count` plain entries of `buffer[start:end]` in columns, but for offsets too low.

    A walk must have found them good; `ValueError` if they cannot be. `offset_shift` is added to
    their offsets, and those below `from_offset` are left out. `timestamp_type` 0 says that all
    times are their producers', 1 that all v1 messages have the append time `timestamp_ms`. Keys and
    values that are not asked for are all null: nothing of them is copied.
    """
    return _gather(
        memoryview(buffer),
        start,
        end,
        count,
        offset_shift,
        from_offset,
        timestamp_type,
        timestamp_ms,
        with_keys,
        with_values,
    )


def _gather(
    view: memoryview,
    start: int,
    end: int,
    count: int,
    offset_shift: int,
    from_offset: int,
    timestamp_type: int,
    timestamp_ms: int,
    with_keys: bool,
    with_values: bool,
) -> Gathered:
    data = bytes_of(view)
    room = end - start - count * (_OVERHEAD + _V0_OVERHEAD)
    if start < 0 or count < 0 or end > len(view) or not 0 <= room <= _LARGEST_INT32:
        raise ValueError(f"bytes {start} to {end} of {len(view)} do not hold {count} messages")
    if not -_LARGE_OFFSET <= offset_shift <= _LARGE_OFFSET:
        raise ValueError(f"offsets cannot be shifted by {offset_shift}")
    found = columns_for(count, room if with_keys else 0, room if with_values else 0)
    offsets, timestamps = int64s(found.offsets), int64s(found.timestamps)
    types = writable(found.timestamp_types)
    key_ends, value_ends = int32s(found.key_offsets), int32s(found.value_offsets)
    key_valid, value_valid = writable(found.key_valid), writable(found.value_valid)
    key_data, value_data = writable(found.key_data), writable(found.value_data)
    row = key_at = value_at = key_nulls = value_nulls = 0
    position = start
    while position < end:
        size = int32_at(data, position + _SIZE) if end - position >= _OVERHEAD else -1
        stop = position + _OVERHEAD + size
        if size < _V0_OVERHEAD or stop > end or row == count:
            raise ValueError(f"the entry at byte {position} is none of {count} in good order")
        is_timed = data[position + _MAGIC] != 0
        at = position + _TIME + (_TIME_BYTES if is_timed else 0)
        if is_timed and size < _V1_OVERHEAD:
            raise ValueError(f"the entry at byte {position} is too small")
        key_bytes = int32_at(data, at)
        at += _LENGTH_BYTES
        key_start = at
        at += max(key_bytes, 0)
        if at + _LENGTH_BYTES > stop:
            raise ValueError(f"the key of the entry at byte {position} is too long")
        value_bytes = int32_at(data, at)
        at += _LENGTH_BYTES
        if at + max(value_bytes, 0) > stop:
            raise ValueError(f"the value of the entry at byte {position} is too long")
        offset = int64_at(data, position)
        if not -_LARGE_OFFSET <= offset <= _LARGE_OFFSET:
            raise ValueError(f"the entry at byte {position} has the offset {offset}")
        offset += offset_shift
        if offset >= from_offset:
            offsets[row] = offset
            timestamps[row] = _NO_TIME
            types[row] = 255
            if is_timed:
                if timestamp_type == 1:
                    timestamps[row] = timestamp_ms
                    types[row] = 1
                else:
                    timestamps[row] = int64_at(data, position + _TIME)
                    types[row] = 0
                    if timestamp_type == _OWN_TYPE:
                        types[row] = (data[position + _ATTRIBUTES] & _APPEND_TIME) != 0
            if key_bytes < 0 or not with_keys:
                key_nulls += 1
            else:
                key_valid[row >> 3] |= 1 << (row & 7)
                copy_bytes(key_data, key_at, data, key_start, key_bytes)
                key_at += key_bytes
            if value_bytes < 0 or not with_values:
                value_nulls += 1
            else:
                value_valid[row >> 3] |= 1 << (row & 7)
                copy_bytes(value_data, value_at, data, at, value_bytes)
                value_at += value_bytes
            row += 1
            key_ends[row] = key_at
            value_ends[row] = value_at
        position = stop
    if not cython.compiled:
        # A bytearray that is looked into cannot be cut.
        for looked_into in (offsets, timestamps, types, key_ends, value_ends, key_data, value_data):
            looked_into.release()
        key_valid.release()
        value_valid.release()
    cut(found, row, key_at, value_at)
    found.key_nulls = key_nulls
    found.value_nulls = value_nulls
    return found
