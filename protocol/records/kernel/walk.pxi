# The one walk over a message set, and the short ones that look at heads alone.

cdef enum:
    ANY = 0
    ASSIGN = 1
    CONTIGUOUS = 2
    RISING = 3

    NONE = 0
    PARTIAL = 1
    BAD_ENTRY_SIZE = 2
    BAD_CRC = 3
    BAD_LENGTHS = 4
    BAD_MAGIC = 5
    BAD_CODEC = 6
    BAD_OFFSET = 7
    BAD_COUNT = 8

cdef tuple PROBLEMS = tuple(Problem)


# Where to stop in the bytes from `start` to `end`: no less than `start`, so that what is left of them
# can be computed.
cdef inline long long stop_of(object view, long long start, long long end) except -1:
    if not 0 <= start <= len(view) or end > len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    return max(start, end)


cdef class Walk:
    cdef public long long end, count, batches, first_offset, last_offset, magics, codecs, last_codec
    cdef public bint literal
    cdef public long long min_timestamp_ms, max_timestamp_ms, max_position, max_offset
    cdef public long long first_timestamp_ms, last_append_time_ms, append_time_bits, untimed
    cdef public long long largest_entry_bytes, problem_position, since_bytes, largest_ms
    cdef public object problem, latency, marks
    cdef public list magic_changes


# What a walk has to count of latencies. They are counted run by run: as long as timestamps are in
# one bucket, which is from `from_ms` to `upto_ms`. Where none are counted, all times are.
cdef struct Latencies:
    long long now_ms, from_ms, upto_ms, before_run, skewed
    unsigned long long sum_ms
    long long counts[BUCKETS]
    int bucket


cdef inline void begin_latencies(Latencies *these, long long now_ms) noexcept:
    cdef int number
    these.now_ms = now_ms
    these.from_ms = LARGEST_INT64 if now_ms >= 0 else SMALLEST_INT64
    these.upto_ms = SMALLEST_INT64 if now_ms >= 0 else LARGEST_INT64
    these.before_run = these.skewed = these.bucket = 0
    these.sum_ms = 0
    for number in range(BUCKETS):
        these.counts[number] = 0


# A timestamp out of the bucket of those before it, of which there are `timed`.
cdef void next_bucket(Latencies *these, long long timestamp, long long timed) noexcept:
    cdef long long latency_ms, now_ms = these.now_ms
    cdef int bucket
    these.counts[these.bucket] += timed - these.before_run
    these.before_run = timed
    latency_ms = now_ms - timestamp if timestamp >= 0 else LARGEST_INT64
    bucket = these.bucket = bucket_of(latency_ms)
    these.from_ms = now_ms - BOUNDS[bucket] if bucket < BUCKETS - 1 else 0
    these.upto_ms = now_ms - BOUNDS[bucket - 1] - 1 if bucket else now_ms
    if latency_ms < 0:
        these.skewed += 1
        these.sum_ms -= <unsigned long long>(timestamp - now_ms)
        these.from_ms = LARGEST_INT64


# What index marks of a walk are made in: arrays that begin with the first mark.
@cython.final
cdef class MarkArrays:
    cdef bytearray offsets, positions, timestamps, nexts
    cdef long long marks, times, marked_ms

    @staticmethod
    cdef MarkArrays begin(long long most):
        cdef MarkArrays made = MarkArrays.__new__(MarkArrays)
        made.offsets, made.positions = undefined(4 * most), undefined(4 * most)
        made.timestamps, made.nexts = undefined(8 * most), undefined(4 * most)
        made.marks = made.times = 0
        made.marked_ms = NO_TIME
        return made

    cdef inline void add(self, long long offset, long long position, long long largest_ms) noexcept:
        int32s(self.offsets)[self.marks] = <int>offset
        int32s(self.positions)[self.marks] = <int>position
        self.marks += 1
        if largest_ms > self.marked_ms:
            self.marked_ms = largest_ms
            int64s(self.timestamps)[self.times] = largest_ms
            int32s(self.nexts)[self.times] = <int>(offset + 1)
            self.times += 1

    cdef object finish(self):
        return Marks(
            self.offsets[: 4 * self.marks],
            self.positions[: 4 * self.marks],
            self.timestamps[: 8 * self.times],
            self.nexts[: 4 * self.times],
        )


# An entry's fields, as far as they are the same for all formats.
cdef struct Entry:
    long long offset, size, time_ms, records, delta
    int magic, bits


# The fields of the plain or wrapped message at `position`, all of whose `size` bytes are there; what
# is wrong with it, else 0.
cdef inline int read_message(
    const unsigned char *data, long long position, bint check_crc, Entry *entry
) noexcept:
    cdef long long key, key_bytes, value_bytes, body_bytes
    if entry.magic == 1:
        key = position + V1_KEY
        body_bytes = entry.size - V1_OVERHEAD
        if body_bytes < 0:
            return BAD_ENTRY_SIZE
        entry.time_ms = int64_at(data, position + TIME)
    elif entry.magic == 0:
        key = position + V0_KEY
        body_bytes = entry.size - V0_OVERHEAD
        entry.time_ms = NO_TIME
    else:
        return BAD_MAGIC
    if check_crc and crc32_at(data, position + MAGIC, entry.size - CRC_BYTES) != <unsigned int>int32_at(
        data, position + CRC
    ):
        return BAD_CRC
    key_bytes = int32_at(data, key)
    if key_bytes > 0:
        body_bytes -= key_bytes
        if body_bytes < 0:
            return BAD_LENGTHS
        key += key_bytes
    value_bytes = int32_at(data, key + LENGTH_BYTES)
    if value_bytes != body_bytes and (value_bytes >= 0 or body_bytes > 0):
        return BAD_LENGTHS
    entry.bits = data[position + BITS]
    if entry.bits & CODEC_MASK > HIGHEST_MESSAGE_CODEC:
        return BAD_CODEC
    entry.records, entry.delta = 1, 0
    return NONE


cdef int check_batch(
    const unsigned char *data, long long position, long long stop, bint check_crc
) noexcept:
    cdef long long delta, records
    if stop - position < BATCH_OVERHEAD:
        return BAD_ENTRY_SIZE
    if check_crc and crc32c_at(
        data, position + BATCH_BITS, stop - position - BATCH_BITS
    ) != <unsigned int>int32_at(data, position + BATCH_CRC):
        return BAD_CRC
    if data[position + BATCH_BITS + 1] & CODEC_MASK > HIGHEST_CODEC:
        return BAD_CODEC
    delta = int32_at(data, position + LAST_DELTA)
    records = int32_at(data, position + RECORD_COUNT)
    if records < 0 or delta < 0 or records - 1 > delta:
        return BAD_COUNT
    return NONE


# As `read_message`, for the batch at `position`.
cdef inline int read_batch(
    const unsigned char *data, long long position, bint check_crc, Entry *entry
) noexcept:
    cdef int problem = check_batch(data, position, position + HEAD_BYTES + entry.size, check_crc)
    if problem == NONE:
        entry.delta = int32_at(data, position + LAST_DELTA)
        entry.records = int32_at(data, position + RECORD_COUNT)
        entry.bits = data[position + BATCH_BITS + 1]
        entry.time_ms = int64_at(data, position + MAX_TIME)
    return problem


def walk(
    buffer, long long start, long long end, *, int offsets=ANY, long long base_offset=0,
    bint check_crc=True, long long now_ms=-1, long long interval_bytes=-1,
    long long since_bytes=0, long long largest_ms=-1, long long magic=-1,
    long long segment_offset=0, long long segment_position=0,
):
    cdef object view = memoryview(buffer)
    cdef unsigned char *data = bytes_of(view)
    end = stop_of(view, start, end)
    if offsets == ASSIGN and view.readonly:
        raise TypeError("offsets cannot be assigned in a buffer that is read-only")
    cdef Entry entry
    cdef Latencies latencies
    cdef MarkArrays marks = None
    cdef Walk found
    cdef list magic_changes = []
    cdef long long position = start, stop, offset, last_offset = base_offset - 1
    cdef long long count = 0, batches = 0, compressed = 0, codecs = 0, last_codec = 0, codec
    cdef long long magics = 0, append_time_bits = 0, untimed = 0, largest_size = 0
    cdef long long min_ms = LARGEST_INT64, max_ms = -1, max_position = -1, max_offset = -1
    cdef long long marked_at = start - since_bytes, mark_after = end, timed, latency_ms
    # Beyond these an index entry cannot hold the position, or the offset that comes next.
    cdef long long last_position = start + min(end - start, LARGEST_INT32 - segment_position)
    cdef long long last_markable = segment_offset + min(
        LARGEST_INT32 - 1, LARGEST_INT64 - segment_offset
    )
    cdef bint literal = True
    cdef int problem = NONE, attributes = 0
    cdef long long timestamp = NO_TIME
    if interval_bytes >= 0:
        mark_after = marked_at + interval_bytes
    begin_latencies(&latencies, now_ms)

    while position < end:
        if end - position < HEAD_BYTES:
            problem = PARTIAL
            break
        entry.offset = offset = int64_at(data, position)
        entry.size = int32_at(data, position + SIZE)
        stop = position + HEAD_BYTES + entry.size
        if entry.size < V0_OVERHEAD:
            problem = BAD_ENTRY_SIZE
            break
        if stop > end:
            problem = PARTIAL
            break
        entry.magic = data[position + MAGIC]
        if entry.magic == 2:
            problem = read_batch(data, position, check_crc, &entry)
        else:
            problem = read_message(data, position, check_crc, &entry)
        if problem:
            break
        # The next offset is never computed before it is known to exist: 2**63 is none.
        if entry.magic == 2 and offsets != ASSIGN and offset > LARGEST_INT64 - entry.delta:
            problem = BAD_OFFSET
            break
        codec = entry.bits & CODEC_MASK
        if offsets > ASSIGN and (
            offset <= last_offset
            or (
                offsets == CONTIGUOUS
                and offset != last_offset + 1
                and (codec == 0 or entry.magic == 2)
            )
        ):
            problem = BAD_OFFSET
            break
        literal = literal and offset == count
        if offsets == ASSIGN:
            offset = last_offset + 1
            put_int64(data, position, offset)
            if entry.magic == 2:
                put_int32(data, position + LEADER_EPOCH, NO_NUMBER)
        offset += entry.delta
        last_offset, timestamp, attributes = offset, entry.time_ms, entry.bits

        if entry.magic != magic:
            magic = entry.magic
            magics |= 1 << magic
            magic_changes.append((position, magic))
        if attributes:
            if codec:
                compressed += entry.records
                codecs |= 1 << codec
                last_codec = codec
            if magic > 0 and attributes & APPEND_TIME:
                append_time_bits += 1
        if timestamp == NO_TIME:
            untimed += entry.records
        else:
            latencies.sum_ms += <unsigned long long>timestamp
            if timestamp < latencies.from_ms or timestamp > latencies.upto_ms:
                next_bucket(&latencies, timestamp, count - untimed)
            if timestamp > max_ms or max_position < 0:
                max_ms, max_position, max_offset = timestamp, position, offset
            if timestamp < min_ms:
                min_ms = timestamp
        if mark_after < position <= last_position and segment_offset <= offset <= last_markable:
            if marks is None:
                marks = MarkArrays.begin(
                    (end - position) // max(interval_bytes + 1, SMALLEST_ENTRY) + 1
                )
            marks.add(
                offset - segment_offset, position - start + segment_position, max(largest_ms, max_ms)
            )
            marked_at = position
            mark_after = position + interval_bytes
        if entry.size > largest_size:
            largest_size = entry.size
        count += entry.records
        if entry.magic == 2:
            batches += 1
            codecs |= codec == 0
        position = stop

    found = Walk.__new__(Walk)
    found.end = found.problem_position = position
    found.count, found.batches = count, batches
    found.first_offset = found.first_timestamp_ms = found.last_offset = -1
    found.last_append_time_ms = NO_TIME
    found.largest_entry_bytes = 0
    if position > start:
        found.first_offset = int64_at(data, start)
        found.last_offset = last_offset
        if data[start + MAGIC] == 1:
            found.first_timestamp_ms = int64_at(data, start + TIME)
        elif data[start + MAGIC] == 2:
            found.first_timestamp_ms = int64_at(data, start + MAX_TIME)
        magics |= 1 << data[start + MAGIC]
        if compressed < count:
            codecs |= 1
        found.largest_entry_bytes = largest_size + HEAD_BYTES
        if magic > 0 and attributes & APPEND_TIME:
            found.last_append_time_ms = timestamp
    found.magics, found.codecs, found.last_codec = magics, codecs, last_codec
    found.literal = literal
    found.min_timestamp_ms = min_ms if max_position >= 0 else NO_TIME
    found.max_timestamp_ms, found.max_position, found.max_offset = max_ms, max_position, max_offset
    found.append_time_bits, found.untimed = append_time_bits, untimed
    found.problem = PROBLEMS[problem]
    found.marks = NO_MARKS if marks is None else marks.finish()
    found.since_bytes = position - marked_at
    found.largest_ms = max(largest_ms, max_ms)
    found.magic_changes = magic_changes
    found.latency = None
    if now_ms >= 0 and batches == 0:
        timed = count - untimed
        latencies.counts[latencies.bucket] += timed - latencies.before_run
        if timed and min_ms > NO_TIME:
            latency_ms = max(now_ms - min_ms, 0)
            # Sums of timestamps may wrap round, which the difference makes good.
            found.latency = LatencyCounts(
                counts_of(latencies.counts), latencies.skewed, untimed,
                <unsigned long long>now_ms * <unsigned long long>timed - latencies.sum_ms,
                latency_ms,
            )
            if latency_ms > LARGEST_INT64 // timed:
                found.latency.sum_ms = exact_sum_ms(view, start, position, now_ms)
        else:
            found.latency = LatencyCounts(untimed=count)
    return found


def batch_problem(view, long long position, long long stop, bint check_crc):
    if not 0 <= position < stop <= len(view):
        return BAD_ENTRY_SIZE
    return check_batch(bytes_of(view), position, stop, check_crc)


def crc32(buffer):
    cdef object view = memoryview(buffer)
    return crc32_at(bytes_of(view), 0, len(view))


def crc32c(buffer, long long start, long long end):
    cdef object view = memoryview(buffer)
    if not 0 <= start <= end <= len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    return crc32c_at(bytes_of(view), start, end - start)


cdef enum:
    NOT_FOUND_HERE = -1
    SCAN_BAD_SIZE = -2
    SCAN_BAD_OFFSET = -3


def scan_offset(buffer, long long start, long long end, long long target_offset):
    cdef object view = memoryview(buffer)
    cdef unsigned char *data = bytes_of(view)
    cdef long long position = start, offset, size, delta, last = -1
    end = stop_of(view, start, end)
    while end - position >= HEAD_BYTES:
        offset = int64_at(data, position)
        size = int32_at(data, position + SIZE)
        if size < V0_OVERHEAD:
            return SCAN_BAD_SIZE, position
        if offset <= last:
            return SCAN_BAD_OFFSET, position
        if end - position <= MAGIC:
            break
        if data[position + MAGIC] == 2:
            if end - position < LAST_DELTA + LENGTH_BYTES:
                break
            delta = int32_at(data, position + LAST_DELTA)
            if delta < 0 or offset > LARGEST_INT64 - delta:
                return SCAN_BAD_OFFSET, position
            offset += delta
        if offset >= target_offset:
            return position, position
        last = offset
        position += HEAD_BYTES + size
    return NOT_FOUND_HERE, position


def scan_timestamp(buffer, long long start, long long end, long long target_ms):
    cdef object view = memoryview(buffer)
    cdef unsigned char *data = bytes_of(view)
    cdef long long position = start, size, following
    end = stop_of(view, start, end)
    while end - position >= HEAD_BYTES:
        size = int32_at(data, position + SIZE)
        if size < V0_OVERHEAD:
            return SCAN_BAD_SIZE, position
        following = position + HEAD_BYTES + size
        if following > end:
            break
        if data[position + MAGIC] == 1:
            if size < V1_OVERHEAD:
                return SCAN_BAD_SIZE, position
            if int64_at(data, position + TIME) >= target_ms:
                return position, position
        elif data[position + MAGIC] == 2:
            if size < BATCH_OVERHEAD - HEAD_BYTES:
                return SCAN_BAD_SIZE, position
            if int64_at(data, position + MAX_TIME) >= target_ms:
                return position, position
        position = following
    return NOT_FOUND_HERE, position


def first_offsets(buffer, list set_ends):
    cdef object view = memoryview(buffer)
    cdef unsigned char *data = bytes_of(view)
    cdef long long whole = len(view), position = 0, size, end
    cdef list found = []
    for end in set_ends:
        if end > whole or end - position < HEAD_BYTES:
            return None
        found.append(int64_at(data, position))
        while end - position >= HEAD_BYTES:
            size = int32_at(data, position + SIZE)
            if size < V0_OVERHEAD:
                return None
            position += HEAD_BYTES + size
        if position != end:
            return None
    return found
