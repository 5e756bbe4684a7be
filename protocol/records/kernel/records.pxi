# The records of a batch: reading, checks, encoding.

cdef enum:
    RECORD_HERE = 1
    AT_END = 0
    LENGTH_WRONG = -1
    FIELD_WRONG = -2
    END_WRONG = -3
    OFFSET_WRONG = -4
    TIME_WRONG = -5
    KEY_MISSING = -6

    SMALLEST = 6
    INT32_WIDTH = 5
    INT64_WIDTH = 10
    INT32_TOP = 0x0F
    INT64_TOP = 0x01

    MOST_RECORD_OVERHEAD = 36


@cython.final
cdef class RecordCursor:
    cdef object _view
    cdef unsigned char *_data
    cdef long long _at, _end, _stop
    cdef readonly long long position, following, timestamp_delta_ms, offset_delta
    cdef readonly long long key_at, key_bytes, value_at, value_bytes, headers_at, header_count
    cdef readonly int attributes

    def __init__(self, view, long long start, long long end):
        self._view = view
        self._data = bytes_of(view)
        self.begin(start, end)

    cpdef begin(self, long long start, long long end):
        if not 0 <= start <= end <= len(self._view):
            raise IndexError(f"no bytes {start} to {end} in a buffer of {len(self._view)}")
        self._end = end
        self._at = self._stop = self.following = self.position = start
        self.attributes = 0
        self.header_count = self.headers_at = 0
        self.timestamp_delta_ms = self.offset_delta = 0
        self.key_at = self.key_bytes = self.value_at = self.value_bytes = 0

    cpdef int step(self) noexcept:
        return RECORD_HERE if step_usual(self) else self.step_any()

    # Like `step`, for any record.
    cdef int step_any(self) noexcept:
        cdef long long length, start, stop, count
        if self.following >= self._end:
            return AT_END
        self.position = self._at = self.following
        self._stop = self._end
        length = self._varint(INT32_WIDTH, INT32_TOP)
        start = self._at
        if length < SMALLEST or length > self._end - start:
            return LENGTH_WRONG
        stop = start + length
        self._stop = stop
        self.attributes = self._data[start]
        self._at = start + 1
        self.timestamp_delta_ms = self._varint(INT64_WIDTH, INT64_TOP)
        self.offset_delta = self._varint(INT32_WIDTH, INT32_TOP)
        length = self._varint(INT32_WIDTH, INT32_TOP)
        if length > stop - self._at:
            return FIELD_WRONG
        self.key_at = self._at
        self.key_bytes = length
        if length > 0:
            self._at += length
        length = self._varint(INT32_WIDTH, INT32_TOP)
        if length > stop - self._at:
            return FIELD_WRONG
        self.value_at = self._at
        self.value_bytes = length
        if length > 0:
            self._at += length
        count = self._varint(INT32_WIDTH, INT32_TOP)
        self.header_count = count
        self.headers_at = self._at
        if count < 0 or 2 * count > stop - self._at:
            return FIELD_WRONG
        while count > 0:
            length = self._varint(INT32_WIDTH, INT32_TOP)
            if length < 0 or length > stop - self._at:
                return FIELD_WRONG
            self._at += length
            length = self._varint(INT32_WIDTH, INT32_TOP)
            if length > stop - self._at:
                return FIELD_WRONG
            if length > 0:
                self._at += length
            count -= 1
        if self._at != stop:
            return END_WRONG
        self.following = stop
        return RECORD_HERE

    # Reads the number at `_at`, and moves `_at` after it, or after `_stop` if there is no complete
    # number. No length fits there, so the caller only has to check lengths.
    cdef inline long long _varint(self, int most_bytes, unsigned int top) noexcept:
        cdef long long at = self._at, last = at + most_bytes - 1
        cdef unsigned long long number = 0
        cdef unsigned int byte
        cdef int shift = 0
        while at < self._stop:
            byte = self._data[at]
            if at == last and byte > top:
                break
            number |= <unsigned long long>(byte & 0x7F) << shift
            at += 1
            if byte < 0x80:
                self._at = at
                return unfolded(number)
            shift += 7
        self._at = self._stop + 1
        return 0

    def key(self):
        if self.key_bytes < 0:
            return None
        return bytes(self._view[self.key_at : self.key_at + self.key_bytes])

    def value(self):
        if self.value_bytes < 0:
            return None
        return bytes(self._view[self.value_at : self.value_at + self.value_bytes])

    cpdef tuple headers(self):
        cdef long long length, number
        cdef list found = []
        self._at = self.headers_at
        for number in range(self.header_count):
            length = self._varint(INT32_WIDTH, INT32_TOP)
            name = str(self._view[self._at : self._at + length], "utf-8", "replace")
            self._at += length
            length = self._varint(INT32_WIDTH, INT32_TOP)
            content = None
            if length >= 0:
                content = bytes(self._view[self._at : self._at + length])
                self._at += length
            found.append((name, content))
        return tuple(found)


cdef inline long long unfolded(unsigned long long number) noexcept:
    return <long long>(number >> 1 ^ -(number & 1))


cdef inline unsigned long long folded(long long number) noexcept:
    return <unsigned long long>number << 1 ^ <unsigned long long>(number >> 63)


# Goes to the next record if it is a usual one (`usual_record`). Otherwise changes nothing.
cdef inline bint step_usual(RecordCursor cursor) noexcept:
    cdef const unsigned char *data = cursor._data
    cdef horolog_record record
    cdef const unsigned char *stop = usual_record(
        data + cursor.following, data + cursor._end, &record
    )
    if stop == NULL:
        return False
    cursor.position = cursor.following
    cursor.following = cursor.headers_at = stop - data
    cursor.attributes = record.start[0]
    cursor.timestamp_delta_ms, cursor.offset_delta = record.time, record.offset
    cursor.key_at, cursor.key_bytes = record.key_at - data, record.key
    cursor.value_at, cursor.value_bytes = record.value_at - data, record.value
    cursor.header_count = 0
    return True


cdef class RecordsFound:
    cdef public long long count, min_timestamp_ms, max_timestamp_ms, max_delta, untimed
    cdef public long long problem, problem_position
    cdef public object latency


# Sums over the records of a batch.
cdef struct RecordSums:
    long long count, untimed, min_ms, max_ms, max_delta


# Sums up the remaining records of `cursor`, and records their times if `noted` is given. Returns
# the result of the last step. With `keyed`, a record without a key is bad. A record whose time is
# in another bucket than those before it is handled by itself; the usual records after it are
# counted together (`usual_run`).
cdef int add_records(
    RecordCursor cursor, long long base_timestamp_ms, Latencies *latencies, RecordSums *sums,
    NotedTimes *noted, bint keyed,
) noexcept:
    cdef long long count = 0, untimed = 0, min_ms = LARGEST_INT64, max_ms = NO_TIME
    cdef long long max_delta = -1, timestamp, low, high, alike, room
    cdef const unsigned char *at
    cdef const unsigned char *end = cursor._data + cursor._end
    cdef horolog_run run
    cdef int step
    while True:
        step = RECORD_HERE if step_usual(cursor) else cursor.step_any()
        if step != RECORD_HERE:
            break
        if cursor.offset_delta != count:
            step = OFFSET_WRONG
            break
        if cursor.timestamp_delta_ms >= 0:
            if base_timestamp_ms > LARGEST_INT64 - cursor.timestamp_delta_ms:
                step = TIME_WRONG
                break
        elif base_timestamp_ms < SMALLEST_INT64 - cursor.timestamp_delta_ms:
            step = TIME_WRONG
            break
        if keyed and cursor.key_bytes < 0:
            step = KEY_MISSING
            break
        timestamp = base_timestamp_ms + cursor.timestamp_delta_ms
        if noted != NULL and noted.times + count < MOST_TIMES:
            noted.time[noted.times + count] = timestamp
        if timestamp == NO_TIME:
            untimed += 1
            count += 1
            continue
        if timestamp > max_ms or untimed == count:
            max_ms = timestamp
            max_delta = count
        if timestamp < min_ms:
            min_ms = timestamp
        count_latency(latencies, timestamp)
        count += 1
        if not (0 <= base_timestamp_ms <= LARGEST_INT64 >> 1 and count <= LARGEST_INT32):
            continue
        low = max(max(latencies.from_ms, 0) - base_timestamp_ms, SMALLEST_INT32)
        high = min(latencies.upto_ms - base_timestamp_ms, LARGEST_INT32)
        if low > high:
            continue
        room = 0
        if noted != NULL:
            room = max(MOST_TIMES - noted.times - count, 0)
        at = cursor._data + cursor.following
        alike = usual_run(
            &at, end, <int>count, <int>low, <int>high, base_timestamp_ms,
            &noted.time[noted.times + count] if room else NULL, room, keyed, &run,
        )
        if not alike:
            continue
        cursor.following = at - cursor._data
        count_alike(latencies, base_timestamp_ms, alike, run.sum)
        if base_timestamp_ms + run.largest > max_ms:
            max_ms, max_delta = base_timestamp_ms + run.largest, run.largest_at
        min_ms = min(min_ms, base_timestamp_ms + run.smallest)
        count += alike
    if noted != NULL:
        noted.times += count
    sums.count, sums.untimed = count, untimed
    sums.min_ms, sums.max_ms, sums.max_delta = min_ms, max_ms, max_delta
    return step


def check_records(
    buffer, long long start, long long end, *, long long base_timestamp_ms, long long now_ms=-1,
    bint keyed=False,
):
    cdef RecordCursor cursor = RecordCursor(memoryview(buffer), start, end)
    cdef Latencies latencies
    cdef RecordSums sums
    cdef RecordsFound found = RecordsFound.__new__(RecordsFound)
    begin_latencies(&latencies, now_ms)
    found.problem = add_records(cursor, base_timestamp_ms, &latencies, &sums, NULL, keyed)
    found.problem_position = cursor.position if found.problem != AT_END else end
    found.count, found.untimed = sums.count, sums.untimed
    found.min_timestamp_ms = sums.min_ms if latencies.timed else NO_TIME
    found.max_timestamp_ms, found.max_delta = sums.max_ms, sums.max_delta
    found.latency = None
    if now_ms >= 0:
        found.latency = counts_from(&latencies, sums.untimed, found.min_timestamp_ms)
    return found


def find_timestamp(RecordCursor cursor, long long base_timestamp_ms, long long target_ms):
    cdef int step
    while True:
        step = cursor.step()
        if step != RECORD_HERE or added(cursor.timestamp_delta_ms, base_timestamp_ms) >= target_ms:
            return step


# Reads a `BinaryColumn` row by row.
@cython.final
cdef class Strings:
    cdef tuple _views
    cdef const unsigned char *_ends
    cdef const unsigned char *_valid
    cdef const unsigned char *data
    cdef long long _data_bytes, rows, start
    cdef bint _all_valid

    def __init__(self, column):
        cdef object ends = memoryview(column.offsets).cast("B")
        cdef object data = memoryview(column.data).cast("B")
        cdef object valid = memoryview(b"" if column.valid is None else column.valid).cast("B")
        self._views = ends, data, valid
        self._ends, self.data, self._valid = bytes_of(ends), bytes_of(data), bytes_of(valid)
        self._data_bytes = len(data)
        self._all_valid = column.valid is None
        self.rows = len(ends) // 4 - 1
        self.start = 0
        if self.rows < 0 or (not self._all_valid and 8 * len(valid) < self.rows):
            raise ValueError("a column whose buffers are too short")

    # Returns the length of a row's string, and sets `start` to its start; -1 for null.
    cdef long long length(self, long long row) except -2:
        cdef int end
        if not self._all_valid and not self._valid[row >> 3] >> (row & 7) & 1:
            return -1
        self.start = own_int32_at(self._ends, 4 * row)
        end = own_int32_at(self._ends, 4 * row + 4)
        if self.start < 0 or end < self.start or end > self._data_bytes:
            raise ValueError(f"row {row} of a column is not in its data")
        return end - self.start


@cython.final
cdef class RecordEncoder:
    cdef bytearray _out
    cdef long long _room
    cdef readonly long long count, size_bytes, base_timestamp_ms, max_timestamp_ms

    def __init__(self):
        self._out = bytearray()
        self._clear()

    cpdef add(self, value, key, timestamp_ms, headers=()):
        cdef bytes key_content = flat(key), value_content = flat(value)
        cdef bytes written = header_bytes_of(headers) if headers else b"\0"
        self._add(
            new_time(timestamp_ms),
            -1 if key is None else len(key_content), content_of(key_content),
            -1 if value is None else len(value_content), content_of(value_content),
            len(written), content_of(written),
        )

    def add_columns(self, values, keys, timestamps_ms):
        if self.count == 0:
            self._reserve(BATCH_OVERHEAD + content_bytes(values, MOST_RECORD_OVERHEAD + 1)
                          + (0 if keys is None else content_bytes(keys, 0)))
        if keys is None:
            for value, timestamp_ms in zip(values, timestamps_ms, strict=True):
                self.add(value, None, timestamp_ms)
        else:
            for value, key, timestamp_ms in zip(values, keys, timestamps_ms, strict=True):
                self.add(value, key, timestamp_ms)

    def add_binary(self, values, keys, timestamps_ms, *, long long start, long long limit_bytes):
        cdef Strings value_column = Strings(values)
        cdef Strings key_column = None if keys is None else Strings(keys)
        cdef object times_view = memoryview(timestamps_ms).cast("B")
        cdef long long rows = value_column.rows, row = start, key_bytes = -1, value_bytes, most
        cdef const unsigned char *key_content = NULL
        cdef const unsigned char *times
        if (key_column is not None and key_column.rows != rows) or len(times_view) != 8 * rows:
            raise ValueError(f"a column is not as long as the values, of which there are {rows}")
        if start < 0 or start > rows:
            raise ValueError(f"row {start} of {rows}")
        times = bytes_of(times_view)
        if self.count == 0:
            self._reserve(limit_bytes)
        while row < rows:
            value_bytes = value_column.length(row)
            if key_column is not None:
                key_bytes = key_column.length(row)
                key_content = key_column.data + key_column.start
            most = MOST_RECORD_OVERHEAD + max(value_bytes, 0) + max(key_bytes, 0)
            if self.count and self.size_bytes + most > limit_bytes:
                break
            self._add(
                own_int64_at(times, 8 * row), key_bytes, key_content, value_bytes,
                value_column.data + value_column.start, 1, NO_HEADERS,
            )
            row += 1
        return row

    # Reserves room for a whole batch at once, because growing copies the content.
    cdef _reserve(self, long long size_bytes):
        if size_bytes > self._room:
            self._room = min(max(size_bytes, BATCH_OVERHEAD), LARGEST_INT32)
            self._out = undefined(self._room)
            self._out[:BATCH_OVERHEAD] = bytes(BATCH_OVERHEAD)

    def add_messages(self, buffer, long long start, long long end):
        cdef object view = memoryview(buffer)
        cdef const unsigned char *data = bytes_of(view)
        cdef long long position = start, stop
        cdef Content content
        if start < 0 or start > end or end > len(view):
            raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
        while position < end:
            stop = read_plain(data, position, end, &content)
            self._add(
                content.time_ms, content.key_bytes, data + content.key_at,
                content.value_bytes, data + content.value_at, 1, NO_HEADERS,
            )
            position = stop

    def add_records(self, content, long long base_timestamp_ms, long long append_time_ms=NO_TIME):
        cdef object view = memoryview(content)
        cdef const unsigned char *data = bytes_of(view)
        cdef RecordCursor cursor = RecordCursor(view, 0, len(view))
        cdef long long time_ms, count_at
        cdef int step = cursor.step()
        while step == RECORD_HERE:
            time_ms = append_time_ms
            if append_time_ms < 0:
                time_ms = added(base_timestamp_ms, cursor.timestamp_delta_ms)
            count_at = cursor.value_at + max(cursor.value_bytes, 0)
            self._add(
                time_ms, cursor.key_bytes, data + cursor.key_at, cursor.value_bytes,
                data + cursor.value_at, cursor.following - count_at, data + count_at,
            )
            step = cursor.step()
        if step != AT_END:
            raise ValueError(f"record {self.count}, at byte {cursor.position}, is not good")

    def finish(self):
        cdef bytearray out = self._out
        if self.count == 0:
            out.extend(bytes(BATCH_OVERHEAD))
        del out[self.size_bytes :]
        self._out = bytearray()
        self._clear()
        return out

    cdef void _clear(self) noexcept:
        self._room = 0
        self.count = 0
        self.size_bytes = BATCH_OVERHEAD
        self.base_timestamp_ms = self.max_timestamp_ms = NO_TIME

    # Adds a record. A length below 0 stands for null; `headers` are already encoded.
    cdef int _add(
        self, long long time_ms, long long key_bytes, const unsigned char *key,
        long long value_bytes, const unsigned char *value, long long header_bytes,
        const unsigned char *headers,
    ) except -1:
        cdef long long key_room = max(key_bytes, 0), value_room = max(value_bytes, 0)
        cdef long long most = MOST_RECORD_OVERHEAD + key_room + value_room + header_bytes
        cdef long long delta_ms, body_bytes, at
        cdef unsigned char *out
        if time_ms < NO_TIME:
            raise bad_timestamp(time_ms)
        if self.count == 0:
            self.base_timestamp_ms = time_ms
        if self.base_timestamp_ms < 0 and time_ms == LARGEST_INT64:
            raise too_far(time_ms)
        if self.size_bytes + most > self._room:
            if self.size_bytes + most > LARGEST_INT32:
                raise ValueError(
                    f"a batch of {self.size_bytes + most} bytes: it must be below 2 GiB"
                )
            # Never more than a batch may have, so that every larger batch meets the check above.
            self._room = min(2 * (self.size_bytes + most) + FIRST_BYTES, LARGEST_INT32)
            self._out.extend(bytes(self._room - len(self._out)))
        delta_ms = time_ms - self.base_timestamp_ms
        body_bytes = (
            1
            + varint_bytes(delta_ms)
            + varint_bytes(self.count)
            + varint_bytes(max(key_bytes, -1))
            + key_room
            + varint_bytes(max(value_bytes, -1))
            + value_room
            + header_bytes
        )
        out = writable(self._out)
        at = put_varint(out, self.size_bytes, body_bytes)
        out[at] = 0
        at = put_varint(out, at + 1, delta_ms)
        at = put_varint(out, at, self.count)
        at = put_string(out, at, key_bytes, key)
        at = put_string(out, at, value_bytes, value)
        copy_bytes(out, at, headers, 0, header_bytes)
        self.size_bytes = at + header_bytes
        if time_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = time_ms
        self.count += 1
        return 0


# Returns the size of a column's bytes, plus `each` for every row.
cdef long long content_bytes(column, long long each) except -1:
    cdef long long size = 0
    for content in column:
        size += each
        if type(content) is bytes:
            size += len(<bytes>content)
    return size


cdef const unsigned char *NO_HEADERS = b"\0"


cdef object too_far(long long time_ms):
    return ValueError(
        f"timestamp {time_ms}: behind a first record without one it must be at most {time_ms - 1}"
    )


cdef inline long long put_string(
    unsigned char *out, long long at, long long length, const unsigned char *content
) noexcept:
    if length < 0:
        out[at] = 1
        return at + 1
    at = put_varint(out, at, length)
    if length:
        copy_bytes(out, at, content, 0, length)
    return at + length


cdef bytes header_bytes_of(headers):
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


def varint(long long number):
    cdef unsigned char[10] out
    return bytes(out[: put_varint(out, 0, number)])


cdef inline int varint_bytes(long long number) noexcept:
    cdef unsigned long long left = folded(number)
    cdef int width = 1
    while left > 0x7F:
        left >>= 7
        width += 1
    return width


cdef inline long long put_varint(unsigned char *out, long long at, long long number) noexcept:
    cdef unsigned long long left = folded(number)
    while left > 0x7F:
        out[at] = left & 0x7F | 0x80
        left >>= 7
        at += 1
    out[at] = <unsigned char>left
    return at + 1


def records_to_messages(
    bytearray target, content, long long start, *, int magic, long long base_offset,
    long long base_timestamp_ms, long long first_offset=NO_NUMBER, long long stamp_ms=NO_NUMBER,
    long long max_bytes=-1,
):
    cdef object view = memoryview(content)
    cdef const unsigned char *data = bytes_of(view)
    cdef RecordCursor cursor = RecordCursor(view, start, len(view))
    cdef long long begin = len(target), at = begin, room = begin, size, offset, time_ms
    cdef long long count = 0, headers = 0, last_offset = -1
    cdef int step = AT_END, bits = 0
    if magic == 1 and stamp_ms != NO_NUMBER:
        bits = APPEND_TIME
    while max_bytes < 0 or at - begin < max_bytes:
        step = cursor.step()
        if step != RECORD_HERE:
            break
        size = HEAD_BYTES + (V1_OVERHEAD if magic == 1 else V0_OVERHEAD)
        size += max(cursor.key_bytes, 0) + max(cursor.value_bytes, 0)
        offset = added(base_offset, cursor.offset_delta)
        if first_offset != NO_NUMBER:
            offset = first_offset + count
        time_ms = stamp_ms
        if stamp_ms == NO_NUMBER:
            time_ms = added(base_timestamp_ms, cursor.timestamp_delta_ms)
        if at + size > room:
            room = begin + 2 * (at - begin + size) + FIRST_BYTES
            target.extend(bytes(room - len(target)))
        at = put_message(
            writable(target), at, magic, bits, offset, time_ms, cursor.key_bytes,
            data + cursor.key_at, cursor.value_bytes, data + cursor.value_at,
        )
        last_offset = offset
        headers += cursor.header_count
        count += 1
    del target[at:]
    if step < AT_END:
        del target[begin:]
        raise ValueError(f"record {count}, at byte {cursor.position} of its batch, is not good")
    return Rewritten(count, headers, cursor.following, last_offset)
