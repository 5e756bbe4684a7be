# The batches of the usual producers, many at a time: not compressed, and nothing in them but records.


cdef class UsualBatches:
    cdef readonly list first_offsets, numbered
    cdef readonly long long min_timestamp_ms, max_timestamp_ms
    cdef readonly bint true_times
    cdef readonly object latency


def check_usual(buffer, list set_ends, long long now_ms):
    cdef object view = memoryview(buffer)
    cdef const unsigned char *data = bytes_of(view)
    cdef long long whole = len(view), position = 0, start, stop, end, records, producer_id
    cdef int epoch, sequence
    cdef RecordCursor cursor = RecordCursor(view, 0, 0)
    cdef RecordTally tally = RecordTally(now_ms)
    cdef list offsets = [], numbered = []
    cdef bint true_times = True
    cdef UsualBatches found
    for end in set_ends:
        start = position
        if end > whole or end - start < HEAD_BYTES:
            return None
        offsets.append(int64_at(data, start))
        while position < end:
            if end - position < BATCH_OVERHEAD or data[position + MAGIC] != 2:
                return None
            stop = position + HEAD_BYTES + int32_at(data, position + SIZE)
            if stop - position < BATCH_OVERHEAD or stop > end:
                return None
            if data[position + BATCH_BITS] or data[position + BATCH_BITS + 1]:
                return None
            cursor.begin(position + BATCH_OVERHEAD, stop)
            if tally.add(cursor, int64_at(data, position + BASE_TIME)) != AT_END:
                return None
            records = int32_at(data, position + RECORD_COUNT)
            if records != tally.count or not records:
                return None
            if int32_at(data, position + LAST_DELTA) != records - 1:
                return None
            true_times &= int64_at(data, position + MAX_TIME) == tally.max_timestamp_ms
            producer_id = int64_at(data, position + PRODUCER_ID)
            if producer_id != NO_NUMBER:
                epoch = int16_at(data, position + PRODUCER_EPOCH)
                sequence = int32_at(data, position + SEQUENCE)
                if producer_id < 0 or epoch < 0 or sequence < 0:
                    return None
                if position != start or stop != end:
                    return None
                numbered.append((len(offsets) - 1, producer_id, epoch, sequence, records))
            position = stop
    found = UsualBatches.__new__(UsualBatches)
    found.first_offsets, found.numbered = offsets, numbered
    found.min_timestamp_ms, found.max_timestamp_ms = tally.all_min_ms, tally.all_max_ms
    found.true_times = true_times
    found.latency = tally.latency()
    return found


def stamp_batches(buffer, long long end, long long append_time_ms):
    cdef object view = memoryview(buffer)
    if end > len(view):
        raise IndexError(f"no bytes 0 to {end} in a buffer of {len(view)}")
    if view.readonly:
        raise TypeError("times cannot be written into a buffer that is read-only")
    cdef unsigned char *data = bytes_of(view)
    cdef long long position = 0, stop
    while end - position >= BATCH_OVERHEAD:
        stop = position + HEAD_BYTES + int32_at(data, position + SIZE)
        if stop - position < BATCH_OVERHEAD or stop > end:
            return
        data[position + BATCH_BITS + 1] |= APPEND_TIME
        put_int64(data, position + MAX_TIME, append_time_ms)
        put_int32(
            data, position + BATCH_CRC,
            crc32c_at(data, position + BATCH_BITS, stop - position - BATCH_BITS),
        )
        position = stop
