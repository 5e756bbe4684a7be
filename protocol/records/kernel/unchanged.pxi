# The fast path of appends: record sets that are stored unchanged except for offsets and append
# times. One walk checks, numbers, counts and marks a run of them. `reference.unchanged` says which
# sets qualify.


cdef class UnchangedSets(Walk):
    cdef public object data, spans
    cdef public list first_offsets


# Whether a good entry can be stored unchanged. Sums up the records of a batch.
cdef bint stays_unchanged(
    const unsigned char *data, long long position, long long stop, const Rules *rules,
    const Entry *entry, Latencies *latencies, RecordSums *sums, RecordCursor cursor,
    NotedTimes *noted,
) except -1:
    cdef long long producer_id
    if not rules.magics >> entry.magic & 1 or (entry.magic == 2) != rules.of_batches:
        return False
    if entry.magic < 2:
        return not entry.bits & CODEC_MASK and not (entry.magic and entry.bits & APPEND_TIME)
    if data[position + BATCH_BITS] or entry.bits:
        return False
    producer_id = int64_at(data, position + PRODUCER_ID)
    if producer_id != NO_NUMBER and (
        producer_id < 0
        or int16_at(data, position + PRODUCER_EPOCH) < 0
        or int32_at(data, position + SEQUENCE) < 0
        or position != rules.set_start
        or stop != rules.set_end
    ):
        return False
    cursor.begin(position + BATCH_OVERHEAD, stop)
    if add_records(
        cursor, int64_at(data, position + BASE_TIME), latencies, sums,
        noted if noted.on else NULL, rules.keyed,
    ) != AT_END:
        return False
    if not sums.count or sums.count != entry.records or entry.delta != sums.count - 1:
        return False
    return rules.append_time_ms >= 0 or entry.time_ms == sums.max_ms


# Whether the header of a set's first entry allows storing the set unchanged; the rest is not read
# yet.
cdef inline bint may_stay_unchanged(const unsigned char *data, long long size, int magics) noexcept:
    if size <= BATCH_BITS + 1 or data[MAGIC] > 2 or not magics >> data[MAGIC] & 1:
        return False
    return not data[BATCH_BITS + 1 if data[MAGIC] == 2 else BITS] & CODEC_MASK


def producer_numbers(list record_sets):
    cdef list found = []
    cdef object view
    cdef const unsigned char *data
    cdef long long number = -1, producer_id
    for record_set in record_sets:
        view = memoryview(record_set)
        data = bytes_of(view)
        number += 1
        if len(view) >= BATCH_OVERHEAD and data[MAGIC] == 2:
            producer_id = int64_at(data, PRODUCER_ID)
            if producer_id != NO_NUMBER:
                found.append((
                    number, producer_id, int16_at(data, PRODUCER_EPOCH), int32_at(data, SEQUENCE),
                    int32_at(data, RECORD_COUNT),
                ))
    return found


def take_unchanged(
    list record_sets, *, long long base_offset, long long now_ms, int magics,
    long long append_time_ms, long long lowest_ms, long long highest_ms, long long entry_max_bytes,
    long long room_bytes, long long marks_max, long long interval_bytes, long long since_bytes,
    long long largest_ms, long long magic, long long segment_offset, long long segment_position,
    long long close_ms=0, long long block_bytes=0, long long block_since_bytes=0,
    bint keyed=False,
):
    cdef long long total = 0, start, size, marks, times, marked_ms, changes
    cdef bint in_place = False
    cdef object sent, whole
    cdef unsigned char *data
    cdef const unsigned char *source
    cdef Rules rules
    cdef Passed passed, before
    cdef Latencies latencies, latencies_before
    cdef Findings findings = Findings.__new__(Findings)
    cdef RecordCursor cursor
    cdef UnchangedSets found
    cdef list first_offsets = []
    cdef bytearray rows = None
    cdef NotedTimes noted
    cdef Py_ssize_t noted_times, noted_pieces
    cdef long long block_end, block_left
    cdef bint noting, noted_on, spread = False
    cdef long long[APPEND_NUMBERS] row
    cdef int problem
    for record_set in record_sets:
        total += len(record_set)
    total = min(total, max(room_bytes, 0))
    if len(record_sets) == 1:
        whole = memoryview(record_sets[0])
        in_place = not whole.readonly
    if not in_place:
        whole = memoryview(undefined(total))
    data = bytes_of(whole)
    cursor = RecordCursor(whole, 0, 0)
    begin_walk(
        &rules, &passed, 0, total, base_offset, interval_bytes, since_bytes, largest_ms, magic,
        segment_offset, segment_position,
    )
    rules.offsets, rules.check_crc, rules.unchanged = ASSIGN, True, True
    rules.magics, rules.append_time_ms, rules.keyed = magics, append_time_ms, keyed
    begin_latencies(&latencies, now_ms)
    noting = append_time_ms < 0 and 0 <= block_since_bytes < block_bytes
    noted.on = noting
    noted.block_bytes, noted.block_end = block_bytes, block_bytes - block_since_bytes
    noted.begin = noted.times = noted.pieces = 0
    for record_set in record_sets:
        sent = memoryview(record_set)
        source, start, size = bytes_of(sent), passed.position, len(sent)
        if size > total - start or findings.marks >= marks_max:
            break
        if not may_stay_unchanged(source, size, magics):
            break
        if not in_place:
            copy_bytes(data, start, source, 0, size)
        before, latencies_before = passed, latencies
        marks, times, marked_ms = findings.marks, findings.times, findings.marked_ms
        changes = len(findings.magic_changes)
        noted_on, noted_times = noted.on, noted.times
        noted_pieces, block_end = noted.pieces, noted.block_end
        rules.set_start, rules.set_end = start, start + size
        rules.of_batches = data[start + MAGIC] == 2
        problem = pass_entries(
            data, start + size, &rules, &passed, &latencies, findings, cursor, &noted
        )
        if (
            problem
            or passed.last_offset > rules.last_markable
            or passed.largest_size + HEAD_BYTES > entry_max_bytes
            or findings.marks > marks_max
            or (passed.timed and (passed.min_ms < lowest_ms or passed.max_ms > highest_ms))
        ):
            passed, latencies = before, latencies_before
            findings.marks, findings.times, findings.marked_ms = marks, times, marked_ms
            del findings.magic_changes[changes:]
            noted.on, noted.times = noted_on, noted_times
            noted.pieces, noted.block_end = noted_pieces, block_end
            break
        if noting:
            spread = close_ms < 0 or (passed.timed and (passed.untimed or passed.min_ms < 0 or (
                <unsigned long long>passed.max_ms - <unsigned long long>passed.min_ms
                > <unsigned long long>close_ms
            )))
            if spread and rows is None:
                rows = bytearray()
            if spread and noted.on and noted.pieces:
                end_noted(rows, &noted, -1 if passed.untimed else passed.min_ms, passed.max_ms)
        first_offsets.append(added(before.last_offset, 1))
    if not first_offsets:
        return None
    if append_time_ms >= 0:
        stamp(whole, 0, passed.position, append_time_ms)
    found = UnchangedSets.__new__(UnchangedSets)
    finish_walk(found, data, &rules, &passed, findings)
    if now_ms >= 0:
        found.latency = counts_from(&latencies, passed.untimed, found.min_timestamp_ms)
    found.data = whole if passed.position == len(whole) else whole[: passed.position]
    found.first_offsets = first_offsets
    found.literal = False
    found.spans = None
    if noted.on and spread:
        block_left = passed.position - (noted.block_end - block_bytes)
        if noted.times:
            noted.piece[0].stop, noted.piece[0].times = passed.position, noted.times
            noted.pieces = 1
            end_noted(rows, &noted, -1 if passed.untimed else passed.min_ms, passed.max_ms)
        found.spans = bytes(rows), base_offset, block_since_bytes, block_left
    elif noting and not spread:
        if passed.timed:
            put_row(row, passed.min_ms, passed.max_ms, passed.count, 1)
        else:
            put_row(row, -1, -1, passed.count, 1)
        row[0], row[1] = passed.position, passed.last_offset + 1 - base_offset
        block_left = block_since_bytes + passed.position
        found.spans = (
            (<char *>row)[:APPEND_BYTES], base_offset, block_since_bytes,
            block_left if block_left < block_bytes else 0,
        )
    return found
