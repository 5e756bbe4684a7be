"""Builds columns from messages and records, and checks columns that are to be sent."""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final
from zlib import crc32

from ...layout import (
    CRC_AT,
    ENTRY_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    NO_TIMESTAMP,
    Buffer,
)
from ..terms import OWN, RECORD, RecordHeaders
from .bytes import LARGE_OFFSET, LARGEST_INT32, V0_OVERHEAD, flat, wrapped
from .messages import PlainMessage, not_good
from .records import RecordCursor

_LARGEST_MORE_BYTES: Final = 1 << 40


class Gathered:
    """Messages as columns; `columns.Columns` describes the buffers."""

    __slots__ = (
        "count",
        "end",
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

    def __init__(self) -> None:
        self.count = self.key_nulls = self.value_nulls = 0
        self.end = 0
        """The position at which `gather` stopped."""
        self.offsets, self.timestamps, self.timestamp_types = bytearray(), bytearray(), bytearray()
        self.key_offsets, self.value_offsets = bytearray(4), bytearray(4)
        self.key_data, self.value_data = bytearray(), bytearray()
        self.key_valid, self.value_valid = bytearray(), bytearray()


_OWN_INT32: Final = Struct("=i")
_OWN_INT64: Final = Struct("=q")


def columns_for(count: int, key_bytes: int, value_bytes: int) -> Gathered:
    """Return columns with room for `count` messages and the given bytes of keys and values.

    Their content is undefined, except for the first offsets of keys and values and the valid bits,
    which are 0.
    """
    found = Gathered()
    found.offsets, found.timestamps = bytearray(8 * count), bytearray(8 * count)
    found.timestamp_types = bytearray(count)
    found.key_offsets, found.value_offsets = bytearray(4 * count + 4), bytearray(4 * count + 4)
    found.key_data, found.value_data = bytearray(key_bytes), bytearray(value_bytes)
    found.key_valid, found.value_valid = bytearray((count + 7) // 8), bytearray((count + 7) // 8)
    return found


def _add_row(
    columns: Gathered,
    offset: int,
    time_ms: int,
    time_type: int,
    key: Buffer | None,
    value: Buffer | None,
) -> None:
    row = columns.count
    columns.offsets += _OWN_INT64.pack(offset)
    columns.timestamps += _OWN_INT64.pack(time_ms)
    columns.timestamp_types.append(time_type)
    if row % 8 == 0:
        columns.key_valid.append(0)
        columns.value_valid.append(0)
    if key is None:
        columns.key_nulls += 1
    else:
        columns.key_valid[row >> 3] |= 1 << (row & 7)
        columns.key_data += key
    if value is None:
        columns.value_nulls += 1
    else:
        columns.value_valid[row >> 3] |= 1 << (row & 7)
        columns.value_data += value
    columns.key_offsets += _OWN_INT32.pack(len(columns.key_data))
    columns.value_offsets += _OWN_INT32.pack(len(columns.value_data))
    columns.count += 1


def _no_room(view: memoryview, start: int, end: int, count: int) -> ValueError:
    return ValueError(f"bytes {start} to {end} of {len(view)} do not hold {count} messages")


def _time_of(message: PlainMessage, timestamp_type: int, timestamp_ms: int) -> tuple[int, int]:
    """Return the time of a message and its timestamp type, as `gather` stores them."""
    if message.magic == 0:
        return message.time_ms, 255
    if timestamp_type == 1:
        return timestamp_ms, 1
    is_stamped = timestamp_type == OWN and bool(message.attributes & LOG_APPEND_TIME_BIT)
    return message.time_ms, int(is_stamped)


def gather(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    *,
    offset_shift: int = 0,
    from_offset: int = 0,
    timestamp_type: int = OWN,
    timestamp_ms: int = NO_TIMESTAMP,
    with_keys: bool = True,
    with_values: bool = True,
    check_crc: bool = False,
) -> Gathered:
    """Return the `count` plain entries of `buffer[start:end]` as columns, without entries below
    `from_offset`.

    A walk must have passed the entries; raises `ValueError` for a bad one, and for another number
    of entries. `offset_shift` is added to their offsets before they are compared with
    `from_offset`. `timestamp_type` 0 says that all times are create times, 1 that all v1 messages
    have the append time `timestamp_ms`. Keys and values that are not requested are not copied, and
    all null. With `check_crc` the walk may have skipped the CRCs: `gather` stops at the first entry
    with a wrong one.
    """
    view = flat(buffer)
    smallest = ENTRY_OVERHEAD + V0_OVERHEAD
    room = end - start - count * smallest
    if start < 0 or count < 0 or end > len(view) or not 0 <= room <= LARGEST_INT32:
        raise _no_room(view, start, end, count)
    if not -LARGE_OFFSET <= offset_shift <= LARGE_OFFSET:
        raise ValueError(f"offsets cannot be shifted by {offset_shift}")
    found = Gathered()
    position, following = start, count
    while position < end:
        if following == 0:
            raise not_good(position)
        following -= 1
        message = PlainMessage(view, position, end)
        if end - message.stop < following * smallest:
            raise _no_room(view, start, end, count)
        if check_crc and not _crc_is_right(view[position : message.stop]):
            break
        if not -LARGE_OFFSET <= message.offset <= LARGE_OFFSET:
            raise ValueError(f"the entry at byte {position} has the offset {message.offset}")
        if message.offset + offset_shift >= from_offset:
            time_ms, time_type = _time_of(message, timestamp_type, timestamp_ms)
            key = message.key if with_keys else None
            value = message.value if with_values else None
            _add_row(found, message.offset + offset_shift, time_ms, time_type, key, value)
        position = message.stop
    found.end = position
    return found


def _crc_is_right(entry: memoryview) -> bool:
    return crc32(entry[MAGIC_AT:]) == int.from_bytes(entry[CRC_AT:MAGIC_AT], "big")


def gather_records(
    buffer: Buffer,
    *,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int = NO_TIMESTAMP,
    from_offset: int = 0,
    with_keys: bool = True,
    with_values: bool = True,
    with_headers: bool = True,
) -> tuple[Gathered, list[RecordHeaders] | None]:
    """Return the uncompressed records in `buffer` as columns, without records below `from_offset`.

    The second result is the headers of each record; `None` if no record has any. `append_time_ms`
    >= 0 replaces the times of all records. Keys and values that are not requested are not copied,
    and all null; headers are then `None`. Raises `ValueError` for bad records.
    """
    view = flat(buffer)
    if len(view) > LARGEST_INT32:
        raise ValueError(f"{len(view)} bytes of records; columns hold less than 2 GiB")
    found = Gathered()
    headers: list[RecordHeaders] = []
    cursor = RecordCursor(view, 0, len(view))
    number = 0
    while cursor.step() == RECORD:
        number += 1
        offset = wrapped(base_offset + cursor.offset_delta)
        if offset < from_offset:
            continue
        time_ms, time_type = append_time_ms, 1
        if append_time_ms < 0:
            time_ms, time_type = wrapped(base_timestamp_ms + cursor.timestamp_delta_ms), 0
        key = cursor.key() if with_keys else None
        value = cursor.value() if with_values else None
        _add_row(found, offset, time_ms, time_type, key, value)
        headers.append(cursor.headers() if with_headers else ())
    if cursor.following != len(view):
        raise ValueError(f"record {number}, at byte {cursor.position} of its batch, is not good")
    return found, headers if any(headers) else None


def only_bytes(column: Iterable[object]) -> bool:
    """Whether all items are `None` or `bytes` (not a subclass)."""
    return all(item is None or type(item) is bytes for item in column)


def only_times(column: Sequence[int], smallest_ms: int, largest_ms: int) -> bool:
    """Whether all items are `int` (not a subclass) from `smallest_ms` to `largest_ms`, both of 64
    bits."""
    return all(type(item) is int and smallest_ms <= item <= largest_ms for item in column)


def rows_within(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    more_bytes: Sequence[int] | None,
    start: int,
    overhead: int,
    limit_bytes: int,
) -> tuple[int, int]:
    """Return the end of the run of rows from `start` that has at most `limit_bytes`, and its size
    in bytes. A first row that is larger is a run by itself.

    The size of a row is that of its value, its key, `overhead` and its `more_bytes`, from 0 to
    2**40. Raises `ValueError` for others, and for a column with fewer rows than values, if it is
    read that far.
    """
    if start < 0:
        raise ValueError(f"rows begin at 0, not at {start}")
    row, total = start, 0
    while row < len(values):
        size = overhead
        for column in (values, keys):
            if column is not None:
                size += _length_at(column, row)
        if more_bytes is not None:
            if row >= len(more_bytes):
                raise _too_short()
            more = more_bytes[row]
            if not 0 <= more <= _LARGEST_MORE_BYTES:
                raise ValueError(
                    f"a row has from 0 to {_LARGEST_MORE_BYTES} more bytes, not {more}"
                )
            size += more
        if row > start and total + size > limit_bytes:
            break
        total += size
        row += 1
    return row, total


def _length_at(column: Sequence[bytes | None], row: int) -> int:
    if row >= len(column):
        raise _too_short()
    item = column[row]
    return 0 if item is None else len(item)


def _too_short() -> ValueError:
    return ValueError("a column has fewer rows than there are values")
