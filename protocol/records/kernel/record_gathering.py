"""The records of a batch in columns.

It runs as it is and compiled, as `walk` does. Messages are gathered in `gathering`.
"""

from typing import Final

from ..layout import Buffer
from .gathering import Gathered, columns_for, cut
from .record_cursor import RECORD, RecordCursor

try:
    import cython
except ImportError:
    from . import uncompiled as cython

if not cython.compiled:
    from .uncompiled import bytes_of, copy_bytes, int32s, int64s, writable

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

_RECORD: Final = RECORD
_LARGEST_INT32: Final = 2**31 - 1

RecordHeaders = tuple[tuple[str, bytes | None], ...]


def gather_records(
    buffer: Buffer,
    *,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int = -1,
    from_offset: int = 0,
    with_keys: bool = True,
    with_values: bool = True,
    with_headers: bool = True,
) -> tuple[Gathered, list[RecordHeaders] | None]:
    """The uncompressed records that `buffer` holds, in columns, but for offsets too low.

    The headers of each come beside them, `None` when none has any. `append_time_ms` >= 0 is the
    time of all. Keys and values that are not asked for are all null, and headers `None`: nothing
    of them is copied. `ValueError` for records that are not good.
    """
    return _gather(
        memoryview(buffer),
        base_offset,
        base_timestamp_ms,
        append_time_ms,
        from_offset,
        with_keys,
        with_values,
        with_headers,
    )


def _gather(
    view: memoryview,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int,
    from_offset: int,
    with_keys: bool,
    with_values: bool,
    with_headers: bool,
) -> tuple[Gathered, list[RecordHeaders] | None]:
    data = bytes_of(view)
    room = len(view)
    if room > _LARGEST_INT32:
        raise ValueError(f"{room} bytes of records; columns hold less than 2 GiB")
    cursor = RecordCursor(view, 0, room)
    count = 0
    while cursor.step() == _RECORD:
        count += 1
    if cursor.following != room:
        raise ValueError(f"record {count}, at byte {cursor.position} of its batch, is not good")
    found = columns_for(count, room if with_keys else 0, room if with_values else 0)
    offsets, timestamps = int64s(found.offsets), int64s(found.timestamps)
    types = writable(found.timestamp_types)
    key_ends, value_ends = int32s(found.key_offsets), int32s(found.value_offsets)
    key_valid, value_valid = writable(found.key_valid), writable(found.value_valid)
    key_data, value_data = writable(found.key_data), writable(found.value_data)
    row = key_at = value_at = key_nulls = value_nulls = 0
    headers: list[RecordHeaders] | None = None
    cursor = RecordCursor(view, 0, room)
    while cursor.step() == _RECORD:
        offset = base_offset + cursor.offset_delta
        if offset < from_offset:
            continue
        offsets[row] = offset
        if append_time_ms >= 0:
            timestamps[row] = append_time_ms
            types[row] = 1
        else:
            timestamps[row] = base_timestamp_ms + cursor.timestamp_delta_ms
            types[row] = 0
        length = cursor.key_bytes
        if length < 0 or not with_keys:
            key_nulls += 1
        else:
            key_valid[row >> 3] |= 1 << (row & 7)
            copy_bytes(key_data, key_at, data, cursor.key_at, length)
            key_at += length
        length = cursor.value_bytes
        if length < 0 or not with_values:
            value_nulls += 1
        else:
            value_valid[row >> 3] |= 1 << (row & 7)
            copy_bytes(value_data, value_at, data, cursor.value_at, length)
            value_at += length
        if cursor.header_count and headers is None and with_headers:
            headers = [()] * row
        if headers is not None:
            headers.append(cursor.headers())
        row += 1
        key_ends[row] = key_at
        value_ends[row] = value_at
    if not cython.compiled:
        # A bytearray that is looked into cannot be cut.
        for looked_into in (offsets, timestamps, types, key_ends, value_ends, key_data, value_data):
            looked_into.release()
        key_valid.release()
        value_valid.release()
    cut(found, row, key_at, value_at)
    found.key_nulls = key_nulls
    found.value_nulls = value_nulls
    return found, headers
