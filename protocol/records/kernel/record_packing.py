"""Records into the bytes of a batch, many at a time.

It runs as it is and compiled, as `walk` does. The batch around them is made in `batch`.
"""

from collections.abc import Sequence
from typing import Final

from ..binary import BinaryColumn
from ..layout import (
    BATCH_OVERHEAD,
    ENTRY_OVERHEAD,
    MAGIC_AT,
    MESSAGE_OVERHEAD,
    NO_TIMESTAMP,
    SIZE_AT,
    TIMESTAMP_AT,
    Buffer,
)
from .packing import bad_timestamp
from .record_cursor import NO_MORE, RECORD, RecordCursor

try:
    import cython
except ImportError:
    from . import uncompiled as cython

if not cython.compiled:
    from .uncompiled import (
        bytes_of,
        content_of,
        copy_bytes,
        int32_at,
        int64_at,
        own_int32,
        own_int64,
        undefined,
        writable,
    )

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

Headers = Sequence[tuple[str, bytes | None]]

_RECORD: Final = RECORD
_NO_MORE: Final = NO_MORE
_BATCH_OVERHEAD: Final = BATCH_OVERHEAD
_ENTRY_OVERHEAD: Final = ENTRY_OVERHEAD
_SIZE: Final = SIZE_AT
_MAGIC: Final = MAGIC_AT
_TIME: Final = TIMESTAMP_AT
_TIME_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_V0_OVERHEAD: Final = MESSAGE_OVERHEAD[0]
_V1_OVERHEAD: Final = MESSAGE_OVERHEAD[1]
_NO_TIME: Final = NO_TIMESTAMP
_LARGEST_INT64: Final = 2**63 - 1
_LARGEST_BATCH: Final = 2**31 - 1
_FIRST_BYTES: Final = 512
MOST_OVERHEAD: Final = 36
"""Bytes of a record without key, value and headers: the varints as long as can be."""
_MOST_OVERHEAD: Final = MOST_OVERHEAD
_MOST_HEADER_OVERHEAD: Final = 10
_INT32_BYTES: Final = 4
_INT64_BYTES: Final = 8


class _Strings:
    """A `BinaryColumn` that is read row by row.

    data: the memory that the strings are in.
    start: where in it the string is that was asked for last.
    rows: how many there are.
    """

    __slots__ = ("_all_valid", "_data_bytes", "_ends", "_valid", "_views", "data", "rows", "start")

    def __init__(self, column: BinaryColumn) -> None:
        ends = memoryview(column.offsets).cast("B")
        data = memoryview(column.data).cast("B")
        valid = memoryview(b"" if column.valid is None else column.valid).cast("B")
        self._views = ends, data, valid
        self._ends = bytes_of(ends)
        self.data = bytes_of(data)
        self._data_bytes = len(data)
        self._valid = bytes_of(valid)
        self._all_valid = column.valid is None
        self.rows = len(ends) // _INT32_BYTES - 1
        self.start = 0
        if self.rows < 0 or (not self._all_valid and 8 * len(valid) < self.rows):
            raise ValueError("a column whose buffers are too short")

    def length(self, row: int) -> int:
        """How long the string of a row is, -1 for null."""
        if not self._all_valid and not self._valid[row >> 3] >> (row & 7) & 1:
            return -1
        self.start = own_int32(self._ends, row)
        end = own_int32(self._ends, row + 1)
        if self.start < 0 or end < self.start or end > self._data_bytes:
            raise ValueError(f"row {row} of a column is not in its data")
        return end - self.start


class RecordEncoder:
    """The records of a batch that grows record by record, with offsets 0, 1, ...

    count: how many there are.
    size_bytes: of a batch with these records, if it is not compressed.
    base_timestamp_ms: of the first record, -1 for none.
    max_timestamp_ms: the largest, -1 for none.
    """

    __slots__ = ("_out", "_room", "base_timestamp_ms", "count", "max_timestamp_ms", "size_bytes")

    def __init__(self) -> None:
        self._out = bytearray()
        self._room = 0
        self.count = 0
        self.size_bytes = _BATCH_OVERHEAD
        self.base_timestamp_ms = self.max_timestamp_ms = _NO_TIME

    def add(
        self, value: Buffer | None, key: Buffer | None, timestamp_ms: int, headers: Headers = ()
    ) -> None:
        """Add a record.

        Raises `ValueError` for a timestamp below -1 or above 2**63 - 1, and for one that makes
        the batch 2 GiB large; `TypeError` for headers that are not pairs of text and bytes.
        """
        if value is not None and type(value) is not bytes:
            value = bytes(memoryview(value))
        if key is not None and type(key) is not bytes:
            key = bytes(memoryview(key))
        if not cython.compiled:
            if timestamp_ms > _LARGEST_INT64:
                raise bad_timestamp(timestamp_ms)
            time_ms = timestamp_ms
        else:
            try:
                time_ms = timestamp_ms
            except OverflowError:
                raise bad_timestamp(timestamp_ms) from None
        if time_ms < _NO_TIME:
            raise bad_timestamp(timestamp_ms)
        key_bytes = -1 if key is None else len(key)
        value_bytes = -1 if value is None else len(value)
        if not headers:
            self._begin(time_ms, key_bytes, value_bytes, 1)
            out = writable(self._out)
            at = self._put(out, self.size_bytes, key_bytes, content_of(key), 0)
            at = self._put(out, at, value_bytes, content_of(value), 0)
            out[at] = 0
            self.size_bytes = at + 1
        else:
            written = _headers(headers)
            self._begin(time_ms, key_bytes, value_bytes, len(written))
            out = writable(self._out)
            at = self._put(out, self.size_bytes, key_bytes, content_of(key), 0)
            at = self._put(out, at, value_bytes, content_of(value), 0)
            copy_bytes(out, at, content_of(written), 0, len(written))
            self.size_bytes = at + len(written)

    def add_columns(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        timestamps_ms: Sequence[int],
    ) -> None:
        """Add records without headers that are given as columns; `None` for no keys at all.

        Raises `ValueError` as `add`, and for columns of different lengths; the records before the
        one that is wrong are added then.
        """
        if keys is None:
            for value, timestamp_ms in zip(values, timestamps_ms, strict=True):
                self.add(value, None, timestamp_ms)
        else:
            for value, key, timestamp_ms in zip(values, keys, timestamps_ms, strict=True):
                self.add(value, key, timestamp_ms)

    def add_binary(
        self,
        values: BinaryColumn,
        keys: BinaryColumn | None,
        timestamps_ms: Buffer,
        *,
        start: int,
        limit_bytes: int,
    ) -> int:
        """Add records without headers, from row `start` on, up to one that might make the batch
        larger than `limit_bytes`; an empty batch takes one of any size. Says which row is next.

        `timestamps_ms` are int64 in this machine's byte order. Raises `ValueError` as `add`, and
        for columns that cannot be; the records before are added then.
        """
        times = memoryview(timestamps_ms).cast("B")
        given_keys = None if keys is None else _Strings(keys)
        return self._add_binary(_Strings(values), given_keys, times, start, limit_bytes)

    def _add_binary(
        self,
        values: _Strings,
        keys: _Strings | None,
        times_view: memoryview,
        start: int,
        limit_bytes: int,
    ) -> int:
        rows = values.rows
        if (keys is not None and keys.rows != rows) or len(times_view) != _INT64_BYTES * rows:
            raise ValueError(f"a column is not as long as the values, of which there are {rows}")
        if start < 0 or start > rows:
            raise ValueError(f"row {start} of {rows}")
        times = bytes_of(times_view)
        key_data = values.data if keys is None else keys.data
        key_bytes = -1
        key_start = 0
        if cython.compiled and self.count == 0:
            self._reserve(limit_bytes)
        row = start
        while row < rows:
            value_bytes = values.length(row)
            if keys is not None:
                key_bytes = keys.length(row)
                key_start = keys.start
            most = _MOST_OVERHEAD + max(value_bytes, 0) + max(key_bytes, 0)
            if self.count and self.size_bytes + most > limit_bytes:
                break
            time_ms = own_int64(times, row)
            if time_ms < _NO_TIME:
                raise bad_timestamp(time_ms)
            self._begin(time_ms, key_bytes, value_bytes, 1)
            out = writable(self._out)
            at = self._put(out, self.size_bytes, key_bytes, key_data, key_start)
            at = self._put(out, at, value_bytes, values.data, values.start)
            out[at] = 0
            self.size_bytes = at + 1
            if not cython.compiled:
                out.release()
            row += 1
        return row

    def _reserve(self, size_bytes: int) -> None:
        """Make room for a whole batch at once: growing copies what is there already."""
        if size_bytes > self._room:
            self._room = max(size_bytes, _BATCH_OVERHEAD)
            self._out = undefined(self._room)
            self._out[:_BATCH_OVERHEAD] = bytes(_BATCH_OVERHEAD)

    def add_messages(self, buffer: Buffer, start: int, end: int) -> None:
        """Add the plain v0 and v1 entries of `buffer[start:end]`, with their times.

        A walk must have found them good; `ValueError` if they cannot be, after those before the
        bad one were added, and as `add`.
        """
        self._add_messages(memoryview(buffer), start, end)

    def _add_messages(self, view: memoryview, start: int, end: int) -> None:
        data = bytes_of(view)
        if start < 0 or start > end or end > len(view):
            raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
        position = start
        while position < end:
            size = int32_at(data, position + _SIZE) if end - position >= _ENTRY_OVERHEAD else -1
            stop = position + _ENTRY_OVERHEAD + size
            if size < _V0_OVERHEAD or stop > end or data[position + _MAGIC] > 1:
                raise ValueError(f"the entry at byte {position} is no good plain message")
            time_ms = _NO_TIME
            at = position + _TIME
            if data[position + _MAGIC] == 1:
                if size < _V1_OVERHEAD:
                    raise ValueError(f"the entry at byte {position} is too small")
                time_ms = int64_at(data, at)
                if time_ms < _NO_TIME:
                    raise bad_timestamp(time_ms)
                at += _TIME_BYTES
            key_bytes = int32_at(data, at)
            at += _LENGTH_BYTES
            key_at = at
            at += max(key_bytes, 0)
            if at + _LENGTH_BYTES > stop:
                raise ValueError(f"the key of the entry at byte {position} is too long")
            value_bytes = int32_at(data, at)
            at += _LENGTH_BYTES
            if at + max(value_bytes, 0) > stop:
                raise ValueError(f"the value of the entry at byte {position} is too long")
            self._begin(time_ms, key_bytes, value_bytes, 1)
            out = writable(self._out)
            written = self._put(out, self.size_bytes, key_bytes, data, key_at)
            written = self._put(out, written, value_bytes, data, at)
            out[written] = 0
            self.size_bytes = written + 1
            if not cython.compiled:
                out.release()  # else the bytearray could not grow
            position = stop

    def add_records(
        self, content: Buffer, base_timestamp_ms: int, append_time_ms: int = _NO_TIME
    ) -> None:
        """Add the uncompressed records of another batch, headers and all.

        `append_time_ms` >= 0 is the time of all of them. `ValueError` as `add_messages`.
        """
        self._add_records(memoryview(content), base_timestamp_ms, append_time_ms)

    def _add_records(self, view: memoryview, base_timestamp_ms: int, append_time_ms: int) -> None:
        data = bytes_of(view)
        cursor = RecordCursor(view, 0, len(view))
        while True:
            step = cursor.step()
            if step != _RECORD:
                break
            time_ms = append_time_ms
            if append_time_ms < 0:
                time_ms = base_timestamp_ms + cursor.timestamp_delta_ms
            if time_ms < _NO_TIME:
                raise bad_timestamp(time_ms)
            count_at = cursor.value_at + max(cursor.value_bytes, 0)
            header_bytes = cursor.following - count_at
            self._begin(time_ms, cursor.key_bytes, cursor.value_bytes, header_bytes)
            out = writable(self._out)
            at = self._put(out, self.size_bytes, cursor.key_bytes, data, cursor.key_at)
            at = self._put(out, at, cursor.value_bytes, data, cursor.value_at)
            copy_bytes(out, at, data, count_at, header_bytes)
            self.size_bytes = at + header_bytes
            if not cython.compiled:
                out.release()
        if step != _NO_MORE:
            raise ValueError(f"record {self.count}, at byte {cursor.position}, is not good")

    def finish(self) -> bytearray:
        """The batch with its header still blank, 61 zeros; the encoder begins another one."""
        out = self._out
        if self.count == 0:
            out.extend(bytes(_BATCH_OVERHEAD))
        del out[self.size_bytes :]
        self._out = bytearray()
        self._room = 0
        self.count = 0
        self.size_bytes = _BATCH_OVERHEAD
        self.base_timestamp_ms = self.max_timestamp_ms = _NO_TIME
        return out

    def _begin(self, time_ms: int, key_bytes: int, value_bytes: int, header_bytes: int) -> None:
        """Make room for a record and write what stands before its key."""
        if self.count == 0:
            self.base_timestamp_ms = time_ms
        if self.base_timestamp_ms < 0 and time_ms == _LARGEST_INT64:
            raise bad_timestamp(time_ms)  # it is too far from the first one
        key_room = max(key_bytes, 0)
        value_room = max(value_bytes, 0)
        most = _MOST_OVERHEAD + key_room + value_room + header_bytes
        if self.size_bytes + most > self._room:
            if self.size_bytes + most > _LARGEST_BATCH:
                raise ValueError(
                    f"a batch of {self.size_bytes + most} bytes: it must be below 2 GiB"
                )
            self._room = 2 * (self.size_bytes + most) + _FIRST_BYTES
            self._out.extend(bytes(self._room - len(self._out)))
        delta_ms = time_ms - self.base_timestamp_ms
        body_bytes = (
            1
            + _varint_bytes(delta_ms)
            + _varint_bytes(self.count)
            + _varint_bytes(max(key_bytes, -1))
            + key_room
            + _varint_bytes(max(value_bytes, -1))
            + value_room
            + header_bytes
        )
        out = writable(self._out)
        at = _put_varint(out, self.size_bytes, body_bytes)
        out[at] = 0
        at = _put_varint(out, at + 1, delta_ms)
        self.size_bytes = _put_varint(out, at, self.count)
        if time_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = time_ms
        self.count += 1

    def _put(self, out: memoryview, at: int, length: int, content: Buffer, start: int) -> int:
        """Write a key or value with its length; the place behind it."""
        if length < 0:
            out[at] = 1
            return at + 1
        at = _put_varint(out, at, length)
        if length:
            copy_bytes(out, at, content, start, length)
        return at + length


def _headers(headers: Headers) -> bytes:
    """The header count and the headers."""
    written = bytearray(varint(len(headers)))
    for name, value in headers:
        encoded = name.encode()
        written += varint(len(encoded))
        written += encoded
        if value is None:
            written += varint(-1)
        else:
            written += varint(len(value))
            written += value
    return bytes(written)


def varint(number: int) -> bytes:
    """A number of up to 64 bits as it is written in records."""
    folded = number << 1 if number >= 0 else ~(number << 1)
    written = bytearray()
    while folded > 0x7F:
        written.append(folded & 0x7F | 0x80)
        folded >>= 7
    written.append(folded)
    return bytes(written)


def _varint_bytes(number: int) -> int:
    """How many bytes a number takes."""
    # Shifted once it is unsigned: C does not say what a shift to the left makes of less than 0.
    folded = number ^ (number >> 63)
    folded = folded << 1 | (number < 0)
    width = 1
    while folded > 0x7F:
        folded >>= 7
        width += 1
    return width


def _put_varint(out: memoryview, at: int, number: int) -> int:
    """Write a number to `at`; the place behind it."""
    folded = number ^ (number >> 63)
    folded = folded << 1 | (number < 0)
    while folded > 0x7F:
        out[at] = folded & 0x7F | 0x80
        folded >>= 7
        at += 1
    out[at] = folded
    return at + 1
