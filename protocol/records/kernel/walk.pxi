# The walk over a record set, and scans that read only the headers of entries.

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
    BAD_KEY = 9

    UNUSUAL = 10

cdef tuple PROBLEMS = tuple(Problem)


# Returns the end of the bytes from `start` to `end`; at least `start`, so that differences are
# valid.
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


# Results of a walk that need memory: index marks, in arrays allocated with the first mark, and the
# changes of the magic.
@cython.final
cdef class Findings:
    cdef bytearray offsets, positions, timestamps, nexts
    cdef long long marks, times, marked_ms
    cdef list magic_changes

    def __cinit__(self):
        self.marks = self.times = 0
        self.marked_ms = NO_TIME
        self.magic_changes = []

    cdef void reserve(self, long long most):
        self.offsets, self.positions = undefined(4 * most), undefined(4 * most)
        self.timestamps, self.nexts = undefined(8 * most), undefined(4 * most)

    cdef inline void add(self, long long offset, long long position, long long largest_ms) noexcept:
        int32s(self.offsets)[self.marks] = <int>offset
        int32s(self.positions)[self.marks] = <int>position
        self.marks += 1
        if largest_ms > self.marked_ms:
            self.marked_ms = largest_ms
            int64s(self.timestamps)[self.times] = largest_ms
            int32s(self.nexts)[self.times] = <int>(offset + 1)
            self.times += 1

    cdef object all_marks(self):
        if not self.marks:
            return NO_MARKS
        return Marks(
            self.offsets[: 4 * self.marks],
            self.positions[: 4 * self.marks],
            self.timestamps[: 8 * self.times],
            self.nexts[: 4 * self.times],
        )


# The fields of an entry that all formats have.
cdef struct Entry:
    long long offset, size, time_ms, records, delta
    int magic, bits


# Reads the plain message or wrapper at `position`, of which all `size` bytes are there. Returns its
# fault, or 0.
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


# Whether a good message has no key. A wrapper never has one; its messages have their own.
cdef inline bint lacks_key(
    const unsigned char *data, long long position, const Entry *entry
) noexcept:
    return not entry.bits & CODEC_MASK and int32_at(
        data, position + (V1_KEY if entry.magic == 1 else V0_KEY)
    ) < 0


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


# Like `read_message`, for the batch at `position`.
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


cdef enum:
    # Times that are held until they become spans.
    MOST_TIMES = 4096
    MOST_PIECES = 16

# Consecutive messages in one block of a time map: their end, and the number of times recorded until
# then.
cdef struct NotedPiece:
    long long stop
    Py_ssize_t times

# Times that a walk over sets stored unchanged records: those of the messages from `begin` on. They
# are divided into pieces, each of which ends with a block of the time map; the next piece ends with
# the first entry that ends at or after `block_end`. `times` also counts times for which there was
# no room.
cdef struct NotedTimes:
    bint on
    long long block_bytes, block_end, begin
    Py_ssize_t times, pieces
    NotedPiece[MOST_PIECES] piece
    long long[MOST_TIMES] time


# Ends a piece. Recording stops when all room for pieces is used.
cdef bint note_piece(NotedTimes *noted, long long stop, Py_ssize_t times) noexcept:
    noted.piece[noted.pieces].stop, noted.piece[noted.pieces].times = stop, times
    noted.pieces += 1
    noted.block_end = stop + noted.block_bytes
    noted.on = noted.pieces < MOST_PIECES
    return noted.on


# The rules of a walk.
cdef struct Rules:
    int offsets
    # With `keyed`, a message without a key is bad.
    bint check_crc, keyed
    # Limits of an index entry: the last position it can hold, and the last offset whose successor
    # it can hold.
    long long last_position, last_markable
    long long start, whole_end, interval_bytes, largest_ms, segment_offset, segment_position
    # With `unchanged`, only entries that can be stored unchanged are passed. These need the bits of
    # the accepted formats, the append time or -1, the range of their set, and whether the set
    # consists of batches.
    bint unchanged, of_batches
    int magics
    long long append_time_ms, set_start, set_end


# State of a walk after the entries that it has passed.
cdef struct Passed:
    long long position, count, batches, last_offset, compressed, codecs, last_codec
    long long magics, magic, append_time_bits, untimed, largest_size
    long long min_ms, max_ms, max_position, max_offset, timestamp, marked_at, mark_after
    int attributes
    bint literal, timed


cdef void begin_walk(
    Rules *rules, Passed *passed, long long start, long long end, long long base_offset,
    long long interval_bytes, long long since_bytes, long long largest_ms, long long magic,
    long long segment_offset, long long segment_position,
) noexcept:
    rules.start, rules.whole_end = start, end
    rules.interval_bytes, rules.largest_ms = interval_bytes, largest_ms
    rules.segment_offset, rules.segment_position = segment_offset, segment_position
    rules.last_position = start + min(end - start, LARGEST_INT32 - segment_position)
    rules.last_markable = segment_offset + min(LARGEST_INT32 - 1, LARGEST_INT64 - segment_offset)
    rules.unchanged = rules.of_batches = rules.keyed = False
    rules.magics, rules.append_time_ms = 0, NO_TIME
    rules.set_start = rules.set_end = start
    passed.position, passed.last_offset, passed.magic = start, added(base_offset, -1), magic
    passed.count = passed.batches = passed.compressed = passed.codecs = passed.last_codec = 0
    passed.magics = passed.append_time_bits = passed.untimed = passed.largest_size = 0
    passed.min_ms = LARGEST_INT64
    passed.max_ms = passed.max_position = passed.max_offset = -1
    passed.timestamp = NO_TIME
    passed.marked_at = start - since_bytes
    passed.mark_after = passed.marked_at + interval_bytes if interval_bytes >= 0 else end
    passed.attributes = 0
    passed.literal, passed.timed = True, False


# Passes entries up to `end` or to the first bad one. Returns the fault of that one.
cdef int pass_entries(
    unsigned char *data, long long end, const Rules *rules, Passed *behind, Latencies *latencies,
    Findings findings, RecordCursor cursor, NotedTimes *noted,
) except -1:
    cdef Passed passed = behind[0]
    cdef Entry entry
    cdef RecordSums sums
    cdef long long position = passed.position, stop, offset, codec, timestamp, untimed
    cdef int problem = NONE, offsets = rules.offsets
    cdef bint noting = rules.unchanged and noted.on
    cdef Py_ssize_t times = noted.times if noting else 0
    cdef long long block_end = noted.block_end if noting else 0
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
            problem = read_batch(data, position, rules.check_crc, &entry)
        else:
            problem = read_message(data, position, rules.check_crc, &entry)
            if rules.keyed and not problem and lacks_key(data, position, &entry):
                problem = BAD_KEY
        if problem:
            break
        # The next offset is computed only after a check that it exists: 2**63 is not an offset.
        if entry.magic == 2 and offsets != ASSIGN and offset > LARGEST_INT64 - entry.delta:
            problem = BAD_OFFSET
            break
        codec = entry.bits & CODEC_MASK
        # Nothing is before the smallest base offset: one less wraps around to the largest number.
        if offsets > ASSIGN and (
            (
                offset <= passed.last_offset
                and (position > rules.start or passed.last_offset < LARGEST_INT64)
            )
            or (
                offsets == CONTIGUOUS
                and offset != added(passed.last_offset, 1)
                and (codec == 0 or entry.magic == 2)
            )
        ):
            problem = BAD_OFFSET
            break
        timestamp, untimed = entry.time_ms, 0
        if timestamp == NO_TIME:
            untimed = entry.records
        if rules.unchanged:
            if not stays_unchanged(data, position, stop, rules, &entry, latencies, &sums, cursor, noted):
                problem = UNUSUAL
                break
            if entry.magic == 2:
                timestamp, untimed = sums.max_ms, sums.untimed
                if untimed < sums.count:
                    passed.min_ms = min(passed.min_ms, sums.min_ms)
            if noting:
                if entry.magic == 2:
                    times = noted.times
                else:
                    if times < MOST_TIMES:
                        noted.time[times] = timestamp
                    times += 1
                if stop >= block_end:
                    noting = note_piece(noted, stop, times)
                    block_end = noted.block_end
        passed.literal = passed.literal and offset == passed.count
        if offsets == ASSIGN:
            offset = added(passed.last_offset, 1)
            put_int64(data, position, offset)
            if entry.magic == 2:
                put_int32(data, position + LEADER_EPOCH, NO_NUMBER)
        offset += entry.delta
        passed.last_offset, passed.timestamp = offset, timestamp
        passed.attributes = entry.bits

        if entry.magic != passed.magic:
            passed.magic = entry.magic
            passed.magics |= 1 << entry.magic
            findings.magic_changes.append((position, entry.magic))
        if entry.bits:
            if codec:
                passed.compressed += entry.records
                passed.codecs |= 1 << codec
                passed.last_codec = codec
            if entry.magic > 0 and entry.bits & APPEND_TIME:
                passed.append_time_bits += 1
        passed.untimed += untimed
        if timestamp != NO_TIME:
            if entry.magic != 2:
                count_latency(latencies, timestamp)
            passed.timed = True
            if timestamp < passed.min_ms:
                passed.min_ms = timestamp
        if rules.append_time_ms >= 0:
            timestamp = rules.append_time_ms
        if timestamp != NO_TIME and (timestamp > passed.max_ms or passed.max_position < 0):
            passed.max_ms, passed.max_position, passed.max_offset = timestamp, position, offset
        if (
            passed.mark_after < position <= rules.last_position
            and rules.segment_offset <= offset <= rules.last_markable
        ):
            if findings.offsets is None:
                findings.reserve(
                    (rules.whole_end - position) // max(rules.interval_bytes + 1, SMALLEST_ENTRY)
                    + 1
                )
            findings.add(
                offset - rules.segment_offset,
                position - rules.start + rules.segment_position,
                max(rules.largest_ms, passed.max_ms),
            )
            passed.marked_at = position
            passed.mark_after = position + rules.interval_bytes
        if entry.size > passed.largest_size:
            passed.largest_size = entry.size
        passed.count += entry.records
        if entry.magic == 2:
            passed.batches += 1
            passed.codecs |= codec == 0
        position = stop
    passed.position = position
    behind[0] = passed
    if noting:
        noted.times, noted.on = times, times <= MOST_TIMES
    return problem


# Completes the result after the last entry. If entries get an append time, they already have it.
cdef void finish_walk(
    Walk found, const unsigned char *data, const Rules *rules, const Passed *passed,
    Findings findings,
):
    cdef long long start = rules.start, magics = passed.magics, codecs = passed.codecs
    found.end = found.problem_position = passed.position
    found.count, found.batches = passed.count, passed.batches
    found.first_offset = found.first_timestamp_ms = found.last_offset = -1
    found.last_append_time_ms = NO_TIME
    found.largest_entry_bytes = 0
    if passed.position > start:
        found.first_offset = int64_at(data, start)
        found.last_offset = passed.last_offset
        if data[start + MAGIC] == 1:
            found.first_timestamp_ms = int64_at(data, start + TIME)
        elif data[start + MAGIC] == 2:
            found.first_timestamp_ms = int64_at(data, start + MAX_TIME)
        magics |= 1 << data[start + MAGIC]
        if passed.compressed < passed.count:
            codecs |= 1
        found.largest_entry_bytes = passed.largest_size + HEAD_BYTES
        if passed.magic > 0 and passed.attributes & APPEND_TIME:
            found.last_append_time_ms = passed.timestamp
    found.magics, found.codecs, found.last_codec = magics, codecs, passed.last_codec
    found.literal = passed.literal
    found.min_timestamp_ms = passed.min_ms if passed.timed else NO_TIME
    found.max_timestamp_ms, found.max_position = passed.max_ms, passed.max_position
    found.max_offset = passed.max_offset
    found.append_time_bits, found.untimed = passed.append_time_bits, passed.untimed
    found.literal = passed.literal
    found.problem = PROBLEMS[NONE]
    found.marks = findings.all_marks()
    found.since_bytes = passed.position - passed.marked_at
    found.largest_ms = max(rules.largest_ms, passed.max_ms)
    found.magic_changes = findings.magic_changes
    found.latency = None


def walk(
    buffer, long long start, long long end, *, int offsets=ANY, long long base_offset=0,
    bint check_crc=True, long long now_ms=-1, long long interval_bytes=-1,
    long long since_bytes=0, long long largest_ms=-1, long long magic=-1,
    long long segment_offset=0, long long segment_position=0, bint keyed=False,
):
    cdef object view = memoryview(buffer)
    cdef unsigned char *data = bytes_of(view)
    cdef Rules rules
    cdef Passed passed
    cdef Latencies latencies
    cdef Findings findings = Findings.__new__(Findings)
    cdef Walk found = Walk.__new__(Walk)
    cdef int problem
    end = stop_of(view, start, end)
    if offsets == ASSIGN and view.readonly:
        raise TypeError("offsets cannot be assigned in a buffer that is read-only")
    begin_walk(
        &rules, &passed, start, end, base_offset, interval_bytes, since_bytes, largest_ms, magic,
        segment_offset, segment_position,
    )
    rules.offsets, rules.check_crc, rules.keyed = offsets, check_crc, keyed
    begin_latencies(&latencies, now_ms)
    problem = pass_entries(data, end, &rules, &passed, &latencies, findings, None, NULL)
    finish_walk(found, data, &rules, &passed, findings)
    found.problem = PROBLEMS[problem]
    if now_ms >= 0 and not passed.batches:
        found.latency = counts_from(&latencies, passed.untimed, found.min_timestamp_ms)
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


# Returns the position of the first entry that may have a message of that time or later, or why none
# was found; `position` is set to the end of the entries that were passed.
cdef long long scan_time(
    const unsigned char *data, long long start, long long end, long long target_ms,
    long long *position,
) noexcept:
    cdef long long at = start, size, following
    position[0] = at
    while end - at >= HEAD_BYTES:
        size = int32_at(data, at + SIZE)
        if size < V0_OVERHEAD:
            return SCAN_BAD_SIZE
        following = at + HEAD_BYTES + size
        if following > end:
            break
        if data[at + MAGIC] == 1:
            if size < V1_OVERHEAD:
                return SCAN_BAD_SIZE
            if int64_at(data, at + TIME) >= target_ms:
                return at
        elif data[at + MAGIC] == 2:
            if size < BATCH_OVERHEAD - HEAD_BYTES:
                return SCAN_BAD_SIZE
            if int64_at(data, at + MAX_TIME) >= target_ms:
                return at
        position[0] = at = following
    return NOT_FOUND_HERE


def scan_timestamp(buffer, long long start, long long end, long long target_ms):
    cdef object view = memoryview(buffer)
    cdef long long position, found
    end = stop_of(view, start, end)
    found = scan_time(bytes_of(view), start, end, target_ms, &position)
    return found, position
