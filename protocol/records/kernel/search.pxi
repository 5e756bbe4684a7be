# Finds the first message with a time in the bytes that follow an index entry.

def find_first_time(buffer, long long offset, bint behind_start, long long target_ms):
    cdef object view = memoryview(buffer)
    cdef unsigned char *data = bytes_of(view)
    cdef long long at, position, stop, first = offset, time_ms
    cdef Rules rules
    cdef Passed passed
    cdef Latencies latencies
    cdef Findings findings
    cdef RecordCursor cursor
    cdef int delta, bits
    at = scan_time(data, 0, len(view), target_ms, &position)
    if at < 0:
        return None
    stop = at + HEAD_BYTES + int32_at(data, at + SIZE)
    if data[MAGIC] == 2:
        first, delta = int64_at(data, 0), int32_at(data, LAST_DELTA)
        if delta < 0 or first > LARGEST_INT64 - delta:
            return None
        if offset != (first + delta if behind_start else first):
            return None
    findings = Findings.__new__(Findings)
    begin_walk(&rules, &passed, 0, stop, first, -1, 0, -1, -1, 0, 0)
    rules.offsets, rules.check_crc = CONTIGUOUS, True
    begin_latencies(&latencies, -1)
    if pass_entries(data, stop, &rules, &passed, &latencies, findings, None, NULL):
        return None
    if passed.last_offset != added(first, passed.count - 1):
        return None
    if passed.last_codec and (passed.magics | 1 << data[MAGIC]) & ~(1 << 2):
        return None
    if data[at + MAGIC] != 2:
        return at, passed.last_offset, int64_at(data, at + TIME)
    bits = data[at + BATCH_BITS + 1]
    if bits & CONTROL:
        return None
    if bits & CODEC_MASK:
        return at, NO_NUMBER, NO_TIME
    time_ms = int64_at(data, at + MAX_TIME)
    if bits & APPEND_TIME:
        target_ms = -LARGEST_INT64 - 1
    cursor = RecordCursor(view, at + BATCH_OVERHEAD, stop)
    if find_timestamp(cursor, int64_at(data, at + BASE_TIME), target_ms) != RECORD_HERE:
        return None
    if not bits & APPEND_TIME:
        time_ms = added(int64_at(data, at + BASE_TIME), cursor.timestamp_delta_ms)
    return at, added(int64_at(data, at), cursor.offset_delta), time_ms
