# Columns built from messages and records, and checks of columns that are to be sent.


cdef class Gathered:
    cdef public long long count, key_nulls, value_nulls, end
    cdef public bytearray offsets, timestamps, timestamp_types
    cdef public bytearray key_offsets, key_data, key_valid
    cdef public bytearray value_offsets, value_data, value_valid


def columns_for(long long count, long long key_bytes, long long value_bytes):
    cdef Gathered found = Gathered.__new__(Gathered)
    found.offsets, found.timestamps = undefined(8 * count), undefined(8 * count)
    found.timestamp_types = undefined(count)
    found.key_offsets, found.value_offsets = undefined(4 * count + 4), undefined(4 * count + 4)
    found.key_valid, found.value_valid = bytearray((count + 7) // 8), bytearray((count + 7) // 8)
    found.key_data, found.value_data = undefined(key_bytes), undefined(value_bytes)
    found.key_offsets[:4] = found.value_offsets[:4] = bytes(4)
    return found


cdef cut(Gathered found, long long count, long long key_bytes, long long value_bytes):
    del found.offsets[8 * count :], found.timestamps[8 * count :], found.timestamp_types[count:]
    del found.key_offsets[4 * count + 4 :], found.value_offsets[4 * count + 4 :]
    del found.key_data[key_bytes:], found.value_data[value_bytes:]
    del found.key_valid[(count + 7) // 8 :], found.value_valid[(count + 7) // 8 :]
    found.count = count


# The memory of columns to which rows are added.
cdef struct Rows:
    long long *offsets
    long long *timestamps
    unsigned char *types
    int *key_ends
    int *value_ends
    unsigned char *key_valid
    unsigned char *value_valid
    unsigned char *key_data
    unsigned char *value_data
    long long row, key_at, value_at, key_nulls, value_nulls


cdef void begin_rows(Rows *rows, Gathered columns) noexcept:
    rows.offsets, rows.timestamps = int64s(columns.offsets), int64s(columns.timestamps)
    rows.types = writable(columns.timestamp_types)
    rows.key_ends, rows.value_ends = int32s(columns.key_offsets), int32s(columns.value_offsets)
    rows.key_valid, rows.value_valid = writable(columns.key_valid), writable(columns.value_valid)
    rows.key_data, rows.value_data = writable(columns.key_data), writable(columns.value_data)
    rows.row = rows.key_at = rows.value_at = rows.key_nulls = rows.value_nulls = 0


# Adds a row. A length below 0 stands for null.
cdef inline void add_row(
    Rows *rows, long long offset, long long time_ms, unsigned char time_type,
    const unsigned char *key, long long key_bytes,
    const unsigned char *value, long long value_bytes,
) noexcept:
    cdef long long row = rows.row
    rows.offsets[row] = offset
    rows.timestamps[row] = time_ms
    rows.types[row] = time_type
    if key_bytes < 0:
        rows.key_nulls += 1
    else:
        rows.key_valid[row >> 3] |= 1 << (row & 7)
        copy_bytes(rows.key_data, rows.key_at, key, 0, key_bytes)
        rows.key_at += key_bytes
    if value_bytes < 0:
        rows.value_nulls += 1
    else:
        rows.value_valid[row >> 3] |= 1 << (row & 7)
        copy_bytes(rows.value_data, rows.value_at, value, 0, value_bytes)
        rows.value_at += value_bytes
    row += 1
    rows.key_ends[row] = <int>rows.key_at
    rows.value_ends[row] = <int>rows.value_at
    rows.row = row


cdef Gathered finish_rows(Rows *rows, Gathered columns):
    cut(columns, rows.row, rows.key_at, rows.value_at)
    columns.key_nulls, columns.value_nulls = rows.key_nulls, rows.value_nulls
    return columns


cdef object no_room(object view, long long start, long long end, long long count):
    return ValueError(f"bytes {start} to {end} of {len(view)} do not hold {count} messages")


def gather(
    buffer, long long start, long long end, long long count, *, long long offset_shift=0,
    long long from_offset=0, int timestamp_type=NO_NUMBER, long long timestamp_ms=NO_TIME,
    bint with_keys=True, bint with_values=True, bint check_crc=False,
):
    cdef object view = memoryview(buffer)
    cdef const unsigned char *data = bytes_of(view)
    cdef long long room, position = start, stop, offset, time_ms, following = count
    cdef unsigned int crc
    cdef unsigned char time_type
    cdef Content content
    cdef Gathered found
    cdef Rows rows
    if not 0 <= start <= end <= len(view) or not 0 <= count <= (end - start) // SMALLEST_ENTRY:
        raise no_room(view, start, end, count)
    room = end - start - count * SMALLEST_ENTRY
    if room > LARGEST_INT32:
        raise no_room(view, start, end, count)
    if not -LARGE <= offset_shift <= LARGE:
        raise ValueError(f"offsets cannot be shifted by {offset_shift}")
    found = columns_for(count, room if with_keys else 0, room if with_values else 0)
    begin_rows(&rows, found)
    while position < end:
        if following == 0:
            raise not_good(position)
        following -= 1
        stop = read_plain(data, position, end, &content)
        # Otherwise keys and values could take more than `room`.
        if end - stop < following * SMALLEST_ENTRY:
            raise no_room(view, start, end, count)
        if check_crc:
            crc = crc32_at(data, position + MAGIC, stop - position - MAGIC)
            if crc != <unsigned int>int32_at(data, position + CRC):
                break
        offset = int64_at(data, position)
        if not -LARGE <= offset <= LARGE:
            raise ValueError(f"the entry at byte {position} has the offset {offset}")
        offset += offset_shift
        if offset >= from_offset:
            time_ms, time_type = content.time_ms, 0
            if content.magic == 0:
                time_type = 255
            elif timestamp_type == 1:
                time_ms, time_type = timestamp_ms, 1
            elif timestamp_type == NO_NUMBER:
                time_type = (data[position + BITS] & APPEND_TIME) != 0
            add_row(
                &rows, offset, time_ms, time_type,
                data + content.key_at, content.key_bytes if with_keys else -1,
                data + content.value_at, content.value_bytes if with_values else -1,
            )
        position = stop
    found.end = position
    return finish_rows(&rows, found)


def gather_records(
    buffer, *, long long base_offset, long long base_timestamp_ms, long long append_time_ms=NO_TIME,
    long long from_offset=0, bint with_keys=True, bint with_values=True, bint with_headers=True,
):
    cdef object view = memoryview(buffer)
    cdef const unsigned char *data = bytes_of(view)
    cdef long long room = len(view), count = 0, offset, time_ms
    cdef RecordCursor cursor = RecordCursor(view, 0, room)
    cdef Gathered found
    cdef list headers = None
    cdef Rows rows
    if room > LARGEST_INT32:
        raise ValueError(f"{room} bytes of records; columns hold less than 2 GiB")
    while cursor.step() == RECORD_HERE:
        count += 1
    if cursor.following != room:
        raise ValueError(f"record {count}, at byte {cursor.position} of its batch, is not good")
    found = columns_for(count, room if with_keys else 0, room if with_values else 0)
    begin_rows(&rows, found)
    cursor.begin(0, room)
    while cursor.step() == RECORD_HERE:
        offset = added(base_offset, cursor.offset_delta)
        if offset < from_offset:
            continue
        if cursor.header_count and headers is None and with_headers:
            headers = [()] * rows.row
        if headers is not None:
            headers.append(cursor.headers())
        time_ms = append_time_ms
        if append_time_ms < 0:
            time_ms = added(base_timestamp_ms, cursor.timestamp_delta_ms)
        add_row(
            &rows, offset, time_ms, append_time_ms >= 0,
            data + cursor.key_at, cursor.key_bytes if with_keys else -1,
            data + cursor.value_at, cursor.value_bytes if with_values else -1,
        )
    return finish_rows(&rows, found), headers


def only_bytes(column):
    for item in column:
        if item is not None and type(item) is not bytes:
            return False
    return True


def only_times(column, long long smallest_ms, long long largest_ms):
    cdef long long time_ms
    cdef object before = []  # this object is in no column
    try:
        for item in column:
            if item is before:
                continue
            before = item
            if type(item) is not int:
                return False
            time_ms = item
            if time_ms < smallest_ms or time_ms > largest_ms:
                return False
    except OverflowError:
        return False
    return True


cdef long long LARGEST_MORE_BYTES = 0x100_0000_0000


def rows_within(
    values, keys, more_bytes, long long start, long long overhead, long long limit_bytes
):
    cdef long long row = start, total = 0, size, more
    if start < 0:
        raise ValueError(f"rows begin at 0, not at {start}")
    while row < len(values):
        size = overhead
        item = values[row]
        if item is not None:
            size += len(item)
        if keys is not None:
            if row >= len(keys):
                raise too_short()
            item = keys[row]
            if item is not None:
                size += len(item)
        if more_bytes is not None:
            if row >= len(more_bytes):
                raise too_short()
            more = more_bytes[row]
            if not 0 <= more <= LARGEST_MORE_BYTES:
                raise ValueError(f"a row has from 0 to {LARGEST_MORE_BYTES} more bytes, not {more}")
            size += more
        if row > start and total + size > limit_bytes:
            break
        total += size
        row += 1
    return row, total


cdef object too_short():
    return ValueError("a column has fewer rows than there are values")
