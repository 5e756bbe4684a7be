# A set with some of its messages left out: what is kept is copied as it is.

def rows_between(timestamps, *, long long from_ms, long long last_ms):
    cdef object view = single_bytes(timestamps)
    cdef const unsigned char *times = bytes_of(view)
    cdef Py_ssize_t row, rows = view.nbytes // 8
    cdef bytearray marks = undefined(rows)
    cdef unsigned char *mark = writable(marks)
    cdef long long time_ms, count = 0
    cdef unsigned char inside
    for row in range(rows):
        time_ms = own_int64_at(times, row * 8)
        inside = time_ms >= 0 and from_ms <= time_ms <= last_ms
        mark[row] = inside
        count += inside
    return marks, count


cdef object other_rows(long long rows):
    return ValueError(f"{rows} marks are not one for each message")


# Makes room for so many bytes behind those that are there; where they begin.
cdef inline long long grown(bytearray target, long long size_bytes) except -1:
    cdef long long begin = len(target)
    target.extend(bytes(size_bytes))
    return begin


def keep_records(bytearray target not None, content, keep, *, long long base_timestamp_ms):
    cdef object view = memoryview(content), marks = memoryview(keep)
    cdef const unsigned char *data = bytes_of(view)
    cdef const unsigned char *mark = bytes_of(marks)
    cdef unsigned char *out
    cdef long long rows = marks.nbytes, row = 0, size_bytes = 0, kept = 0, last_delta = -1
    cdef long long max_ms = NO_TIME, at
    cdef RecordCursor cursor = RecordCursor(view, 0, len(view))
    while cursor.step() == RECORD_HERE:
        if row >= rows:
            raise other_rows(rows)
        if mark[row]:
            size_bytes += cursor.following - cursor.position
            kept += 1
            last_delta = cursor.offset_delta
            max_ms = max(max_ms, added(base_timestamp_ms, cursor.timestamp_delta_ms))
        row += 1
    if cursor.following != len(view):
        raise ValueError(f"record {row}, at byte {cursor.position} of its batch, is not good")
    if row != rows:
        raise other_rows(rows)
    at = grown(target, size_bytes)
    out = writable(target)
    cursor.begin(0, len(view))
    row = 0
    while cursor.step() == RECORD_HERE:
        if mark[row]:
            copy_bytes(out, at, data, cursor.position, cursor.following - cursor.position)
            at += cursor.following - cursor.position
        row += 1
    return KeptRows(kept, last_delta, max_ms)


def keep_messages(bytearray target not None, buffer, long long start, long long end, keep):
    cdef object view = memoryview(buffer), marks = memoryview(keep)
    cdef const unsigned char *data = bytes_of(view)
    cdef const unsigned char *mark = bytes_of(marks)
    cdef unsigned char *out
    cdef long long rows = marks.nbytes, row = 0, size_bytes = 0, kept = 0, last_offset = -1
    cdef long long max_ms = NO_TIME, at, position = start, stop
    cdef Content found
    if not 0 <= start <= end <= len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    while position < end:
        stop = read_plain(data, position, end, &found)
        if row >= rows:
            raise other_rows(rows)
        if mark[row]:
            size_bytes += stop - position
            kept += 1
            last_offset = int64_at(data, position)
            max_ms = max(max_ms, found.time_ms)
        row += 1
        position = stop
    if row != rows:
        raise other_rows(rows)
    at = grown(target, size_bytes)
    out = writable(target)
    position, row = start, 0
    while position < end:
        stop = position + HEAD_BYTES + int32_at(data, position + SIZE)
        if mark[row]:
            copy_bytes(out, at, data, position, stop - position)
            at += stop - position
        row += 1
        position = stop
    return KeptRows(kept, last_offset, max_ms)
