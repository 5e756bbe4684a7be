"""The records of a batch: reading, checks, encoding."""

from collections.abc import Sequence

from ...binary import BinaryColumn
from ...latency import LatencyCounts
from ...layout import BATCH_OVERHEAD, LOG_APPEND_TIME_BIT, NO_TIMESTAMP, Buffer
from ..terms import (
    BAD_END,
    BAD_FIELD,
    BAD_LENGTH,
    BAD_RECORD_OFFSET,
    BAD_TIME,
    MOST_OVERHEAD,
    NO_KEY,
    NO_MORE,
    OWN,
    RECORD,
    SMALLEST_RECORD,
    Headers,
    RecordHeaders,
    Rewritten,
)
from .bytes import LARGEST_INT32, LARGEST_INT64, SMALLEST_INT64, V0_HEAD, V1_HEAD, flat, wrapped
from .messages import PlainMessage, bad_timestamp, content_bytes, entry_bytes, rows_of, string_bytes
from .walk import latency_of


def _number(view: memoryview, at: int, stop: int, bits: int) -> tuple[int, int]:
    """Read the varint of at most `bits` bits at `at`. Returns the number and its end. An end after
    `stop` means that there is no complete number before `stop`."""
    if at >= stop:
        return 0, stop + 1
    number = view[at]
    if number > 0x7F:
        shift, more = 0, number
        number &= 0x7F
        while more > 0x7F:
            at += 1
            shift += 7
            if at >= stop or shift >= bits:
                return 0, stop + 1
            more = view[at]
            number |= (more & 0x7F) << shift
        if number >> bits:
            return 0, stop + 1
    return number >> 1 ^ -(number & 1), at + 1


class RecordCursor:
    """Iterates over the uncompressed records in `view[start:end]`.

    `step` goes to the next record; no content makes it read beyond `end`. The attributes describe
    the current record:

    position: start of the record.
    following: start of the next record.
    attributes: 0 to 255; no bit has a meaning so far.
    timestamp_delta_ms, offset_delta: to be added to the batch's base timestamp and base offset.
    key_at, key_bytes: position of the key, and its length; negative for null.
    value_at, value_bytes: the same for the value.
    header_count: number of headers.
    headers_at: start of the headers, which end with the record.
    """

    __slots__ = (
        "_end",
        "_view",
        "attributes",
        "following",
        "header_count",
        "headers_at",
        "key_at",
        "key_bytes",
        "offset_delta",
        "position",
        "timestamp_delta_ms",
        "value_at",
        "value_bytes",
    )

    def __init__(self, view: memoryview, start: int, end: int) -> None:
        self._view = flat(view)
        self.begin(start, end)

    def begin(self, start: int, end: int) -> None:
        """Iterate over the records in `view[start:end]` instead."""
        if not 0 <= start <= end <= len(self._view):
            raise IndexError(f"no bytes {start} to {end} in a buffer of {len(self._view)}")
        self._end = end
        self.following = self.position = start
        self.attributes = self.header_count = self.headers_at = 0
        self.timestamp_delta_ms = self.offset_delta = 0
        self.key_at = self.key_bytes = self.value_at = self.value_bytes = 0

    def step(self) -> int:
        """Go to the next record. Returns `RECORD`, `NO_MORE`, or the fault of the record.

        The cursor never passes a bad record.
        """
        view, position, end = self._view, self.following, self._end
        if position >= end:
            return NO_MORE
        self.position = position
        length, at = _number(view, position, end, 32)
        stop = at + length
        if length < SMALLEST_RECORD or stop > end:
            return BAD_LENGTH
        self.attributes = view[at]
        self.timestamp_delta_ms, at = _number(view, at + 1, stop, 64)
        self.offset_delta, at = _number(view, at, stop, 32)
        length, at = _number(view, at, stop, 32)
        self.key_at, self.key_bytes = at, length
        if length > 0:
            at += length
        if at > stop:
            return BAD_FIELD
        length, at = _number(view, at, stop, 32)
        self.value_at, self.value_bytes = at, length
        if length > 0:
            at += length
        if at > stop:
            return BAD_FIELD
        self.header_count, at = _number(view, at, stop, 32)
        self.headers_at = at
        if self.header_count:
            at = self._headers_end(at, stop)
        if at != stop:
            return BAD_FIELD if at > stop else BAD_END
        self.following = stop
        return RECORD

    def _headers_end(self, at: int, stop: int) -> int:
        """Return the end of the headers from `at` on; a position after `stop` if they are bad."""
        if self.header_count < 0 or 2 * self.header_count > stop - at:
            return stop + 1
        for _ in range(self.header_count):
            name_bytes, at = _number(self._view, at, stop, 32)
            if name_bytes < 0:
                return stop + 1
            value_bytes, at = _number(self._view, at + name_bytes, stop, 32)
            at += max(value_bytes, 0)
        return at

    def key(self) -> bytes | None:
        """Return the key of the record."""
        return self._bytes(self.key_at, self.key_bytes)

    def value(self) -> bytes | None:
        """Return the value of the record."""
        return self._bytes(self.value_at, self.value_bytes)

    def _bytes(self, at: int, length: int) -> bytes | None:
        return None if length < 0 else bytes(self._view[at : at + length])

    def headers(self) -> RecordHeaders:
        """Return the headers of the record, in order; invalid UTF-8 in a name is replaced."""
        found = []
        at, view, stop = self.headers_at, self._view, self.following
        for _ in range(self.header_count):
            length, at = _number(view, at, stop, 32)
            name = str(view[at : at + length], "utf-8", "replace")
            length, at = _number(view, at + length, stop, 32)
            found.append((name, self._bytes(at, length)))
            at += max(length, 0)
        return tuple(found)


class RecordsFound:
    """Sums over the records of a batch up to the first bad one.

    count: number of records.
    min_timestamp_ms, max_timestamp_ms: over the timestamps other than -1 (those of a faulty sender
        can be smaller); -1 if there are none.
    max_delta: offset delta of the first record with the largest timestamp; -1 if there is none.
    untimed: number of records without a timestamp.
    problem: `NO_MORE` if all records are good, otherwise the fault of the bad one.
    problem_position: start of the bad record.
    latency: latencies against `now_ms`, if requested, counted as in `Walk.latency`.
    """

    __slots__ = (
        "count",
        "latency",
        "max_delta",
        "max_timestamp_ms",
        "min_timestamp_ms",
        "problem",
        "problem_position",
        "untimed",
    )

    count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    max_delta: int
    untimed: int
    problem: int
    problem_position: int
    latency: LatencyCounts | None


def check_records(
    buffer: Buffer,
    start: int,
    end: int,
    *,
    base_timestamp_ms: int,
    now_ms: int = -1,
    keyed: bool = False,
) -> RecordsFound:
    """Check and sum up the uncompressed records in `buffer[start:end]`. No content makes it raise.

    Offset deltas must be 0, 1, ... as from a producer. `now_ms` >= 0 requests latencies. With
    `keyed`, a record without a key is bad.
    """
    cursor = RecordCursor(memoryview(buffer), start, end)
    found = RecordsFound()
    found.count = found.untimed = 0
    found.max_timestamp_ms = found.max_delta = NO_TIMESTAMP
    times: list[int] = []
    while (step := cursor.step()) == RECORD:
        if cursor.offset_delta != found.count:
            step = BAD_RECORD_OFFSET
            break
        timestamp = base_timestamp_ms + cursor.timestamp_delta_ms
        if not SMALLEST_INT64 <= timestamp <= LARGEST_INT64:
            step = BAD_TIME
            break
        if keyed and cursor.key_bytes < 0:
            step = NO_KEY
            break
        if timestamp == NO_TIMESTAMP:
            found.untimed += 1
        else:
            if not times or timestamp > found.max_timestamp_ms:
                found.max_timestamp_ms, found.max_delta = timestamp, found.count
            times.append(timestamp)
        found.count += 1
    found.problem = step
    found.problem_position = cursor.position if step != NO_MORE else end
    found.min_timestamp_ms = min(times, default=NO_TIMESTAMP)
    found.latency = None if now_ms < 0 else latency_of(times, found.untimed, now_ms)
    return found


def find_timestamp(cursor: RecordCursor, base_timestamp_ms: int, target_ms: int) -> int:
    """Move `cursor` to its next record with a timestamp >= `target_ms`.

    Returns the result of its last `step`: `RECORD` if there is one.
    """
    while (step := cursor.step()) == RECORD:
        if wrapped(cursor.timestamp_delta_ms + base_timestamp_ms) >= target_ms:
            break
    return step


class RecordEncoder:
    """Encodes the records of a batch, with offset deltas 0, 1, ...

    count: number of records.
    size_bytes: size of a batch with these records, uncompressed.
    base_timestamp_ms: timestamp of the first record, -1 for none.
    max_timestamp_ms: largest timestamp, -1 for none.
    """

    __slots__ = ("_out", "base_timestamp_ms", "count", "max_timestamp_ms")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._out = bytearray(BATCH_OVERHEAD)
        self.count = 0
        self.base_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP

    @property
    def size_bytes(self) -> int:
        return len(self._out)

    def add(
        self, value: Buffer | None, key: Buffer | None, timestamp_ms: int, headers: Headers = ()
    ) -> None:
        """Add a record.

        Raises `ValueError` for a timestamp below -1 or above 2**63 - 1, and if the batch would
        reach 2 GiB; `TypeError` for headers that are not pairs of text and bytes.
        """
        self._add(value, key, timestamp_ms, _written_headers(headers))

    def _add(
        self, value: Buffer | None, key: Buffer | None, timestamp_ms: int, headers: Buffer
    ) -> None:
        """Add a record whose headers are already encoded, including their count."""
        if not NO_TIMESTAMP <= timestamp_ms <= LARGEST_INT64:
            raise bad_timestamp(timestamp_ms)
        base_ms = timestamp_ms if self.count == 0 else self.base_timestamp_ms
        if base_ms < 0 and timestamp_ms == LARGEST_INT64:
            raise ValueError(
                f"timestamp {timestamp_ms}: behind a first record without one it must be at most "
                f"{timestamp_ms - 1}"
            )
        value, key = content_bytes(value), content_bytes(key)
        most = MOST_OVERHEAD + len(value or b"") + len(key or b"") + len(headers)
        if self.size_bytes + most > LARGEST_INT32:
            raise ValueError(f"a batch of {self.size_bytes + most} bytes: it must be below 2 GiB")
        body = b"\0" + varint(timestamp_ms - base_ms) + varint(self.count)
        body += _written_string(key) + _written_string(value) + headers
        self._out += varint(len(body)) + body
        self.base_timestamp_ms = base_ms
        self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)
        self.count += 1

    def add_columns(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        timestamps_ms: Sequence[int],
    ) -> None:
        """Add records without headers, given as columns. `keys=None`: no record has a key.

        Raises `ValueError` as `add`, and for columns of different lengths; the records before the
        bad one have been added then.
        """
        for value, key, timestamp_ms in rows_of(values, keys, timestamps_ms):
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
        """Add records without headers, from row `start` up to a record that might make the batch
        larger than `limit_bytes`; an empty batch accepts a record of any size. Returns the next
        row.

        `timestamps_ms` are int64 in this machine's byte order. Raises `ValueError` as `add`, and
        for invalid columns; the records before have been added then.
        """
        value_column = _Strings(values)
        key_column = None if keys is None else _Strings(keys)
        rows = value_column.rows
        times = memoryview(timestamps_ms).cast("B")
        if (key_column is not None and key_column.rows != rows) or len(times) != 8 * rows:
            raise ValueError(f"a column is not as long as the values, of which there are {rows}")
        if start < 0 or start > rows:
            raise ValueError(f"row {start} of {rows}")
        row = start
        for row in range(start, rows):
            value = value_column.row(row)
            key = None if key_column is None else key_column.row(row)
            most = MOST_OVERHEAD + len(value or b"") + len(key or b"")
            if self.count and self.size_bytes + most > limit_bytes:
                return row
            self.add(value, key, times.cast("q")[row])
        return rows

    def add_messages(self, buffer: Buffer, start: int, end: int) -> None:
        """Add the plain v0 and v1 entries of `buffer[start:end]`, with their times.

        A walk must have passed them. Raises `ValueError` if one is bad, after adding the entries
        before it, and as `add`.
        """
        view = flat(buffer)
        if start < 0 or start > end or end > len(view):
            raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
        position = start
        while position < end:
            message = PlainMessage(view, position, end)
            self.add(message.value, message.key, message.time_ms)
            position = message.stop

    def add_records(
        self, content: Buffer, base_timestamp_ms: int, append_time_ms: int = NO_TIMESTAMP
    ) -> None:
        """Add the uncompressed records of another batch, with their headers.

        `append_time_ms` >= 0 replaces the times of all records. Raises `ValueError` as
        `add_messages`.
        """
        view = flat(content)
        cursor = RecordCursor(view, 0, len(view))
        while (step := cursor.step()) == RECORD:
            time_ms = append_time_ms
            if append_time_ms < 0:
                time_ms = wrapped(base_timestamp_ms + cursor.timestamp_delta_ms)
            headers_at = cursor.value_at + max(cursor.value_bytes, 0)
            self._add(cursor.value(), cursor.key(), time_ms, view[headers_at : cursor.following])
        if step != NO_MORE:
            raise ValueError(f"record {self.count}, at byte {cursor.position}, is not good")

    def finish(self) -> bytearray:
        """Return the batch with a blank header of 61 zeros, and start a new one."""
        out = self._out
        self._clear()
        return out


class _Strings:
    """Reads a `BinaryColumn` row by row."""

    def __init__(self, column: BinaryColumn) -> None:
        self._ends = memoryview(column.offsets).cast("B")
        self._data = memoryview(column.data).cast("B")
        self._valid = None if column.valid is None else memoryview(column.valid).cast("B")
        self.rows = len(self._ends) // 4 - 1
        if self.rows < 0 or (self._valid is not None and 8 * len(self._valid) < self.rows):
            raise ValueError("a column whose buffers are too short")
        self._ends = self._ends[: 4 * self.rows + 4].cast("i")

    def row(self, row: int) -> memoryview | None:
        """Return the string of a row."""
        if self._valid is not None and not self._valid[row >> 3] >> (row & 7) & 1:
            return None
        start, end = self._ends[row], self._ends[row + 1]
        if start < 0 or end < start or end > len(self._data):
            raise ValueError(f"row {row} of a column is not in its data")
        return self._data[start:end]


def varint(number: int) -> bytes:
    """Encode a number of up to 64 bits as in records: zigzag, then seven bits per byte."""
    folded = number << 1 if number >= 0 else ~(number << 1)
    written = bytearray()
    while folded > 0x7F:
        written.append(folded & 0x7F | 0x80)
        folded >>= 7
    written.append(folded)
    return bytes(written)


def _written_string(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def _written_headers(headers: Headers) -> bytes:
    """Encode the header count and the headers."""
    pairs = [varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        pairs += (varint(len(encoded)), encoded, _written_string(value))
    return b"".join(pairs)


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
    """Append the uncompressed records in `content` from `start` on to `target`, each as a message.

    Offsets count up from `first_offset`, or are those of a batch with `base_offset`. In v1 messages
    keep their times, or all have the append time `stamp_ms`. With `max_bytes` >= 0 the conversion
    stops after the first message that makes `target` grow by at least that. Raises `ValueError` for
    a bad record.
    """
    view = flat(content)
    cursor = RecordCursor(view, start, len(view))
    written = bytearray()
    count = headers = 0
    step, last_offset = NO_MORE, -1
    while max_bytes < 0 or len(written) < max_bytes:
        step = cursor.step()
        if step != RECORD:
            break
        last_offset = first_offset + count
        if first_offset == OWN:
            last_offset = wrapped(base_offset + cursor.offset_delta)
        attributes, time_ms = LOG_APPEND_TIME_BIT, stamp_ms
        if stamp_ms == OWN:
            attributes, time_ms = 0, wrapped(base_timestamp_ms + cursor.timestamp_delta_ms)
        head = V1_HEAD.pack(1, attributes, time_ms) if magic else V0_HEAD.pack(0, 0)
        written += entry_bytes(
            last_offset, head + string_bytes(cursor.key()) + string_bytes(cursor.value())
        )
        headers += cursor.header_count
        count += 1
    if step < NO_MORE:
        raise ValueError(f"record {count}, at byte {cursor.position} of its batch, is not good")
    target += written
    return Rewritten(count, headers, cursor.following, last_offset)
