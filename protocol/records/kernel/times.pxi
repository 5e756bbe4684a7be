# Times of blocks of a log: how a time map is written, and what it is asked.

from libc.stdlib cimport qsort

# Messages whose times are from `low` to `high`.
cdef struct TimeSpan:
    long long low, high, count

cdef enum:
    MOST_SPANS = 32
    WIDTHS = 13
    LONGEST_MAP_NUMBER = 9
    LONGEST_BLOCK = (4 + 3 * MOST_SPANS) * LONGEST_MAP_NUMBER
    APPEND_BYTES = 40

# The lengths of time that spans of one block are joined in, until they are few enough. Each is in
# whole ones of the next, and minutes, hours and days are among them, which people ask for.
cdef long long[WIDTHS] JOINED_MS = [
    1, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 864_000_000,
    8_640_000_000, 86_400_000_000, LARGEST_INT64,
]


# A buffer as single bytes.
cdef object single_bytes(object buffer):
    cdef object view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(b"")


cdef int by_low(const void *this, const void *other) noexcept nogil:
    cdef long long a = (<const TimeSpan *>this).low, b = (<const TimeSpan *>other).low
    return (a > b) - (a < b)


# Sorts numbers, byte by byte of those in which they differ; as much memory is at `other`.
cdef void sort_numbers(
    unsigned long long *numbers, unsigned long long *other, Py_ssize_t count
) noexcept:
    cdef unsigned long long lowest, differ = 0
    cdef unsigned long long *source = numbers
    cdef unsigned long long *target = other
    cdef unsigned long long *swapped
    cdef Py_ssize_t number, sum_before, of_digit
    cdef Py_ssize_t[256] starts
    cdef int shift, digit
    cdef bint sorted_already = True
    if count < 2:
        return
    lowest = numbers[0]
    for number in range(1, count):
        sorted_already = sorted_already and numbers[number - 1] <= numbers[number]
        lowest = min(lowest, numbers[number])
    if sorted_already:
        return
    for number in range(count):
        numbers[number] -= lowest
        differ |= numbers[number]
    shift = 0
    while shift < 64 and differ >> shift:
        for digit in range(256):
            starts[digit] = 0
        for number in range(count):
            starts[source[number] >> shift & 0xFF] += 1
        sum_before = 0
        for digit in range(256):
            of_digit = starts[digit]
            starts[digit] = sum_before
            sum_before += of_digit
        for number in range(count):
            digit = source[number] >> shift & 0xFF
            target[starts[digit]] = source[number]
            starts[digit] += 1
        swapped = source
        source = target
        target = swapped
        shift += 8
    for number in range(count):
        numbers[number] = source[number] + lowest


# Joins spans that are sorted: those that overlap, and those that are in one length of time.
cdef Py_ssize_t join_spans(TimeSpan *spans, Py_ssize_t count, long long width_ms) noexcept:
    cdef Py_ssize_t number, last = 0
    cdef TimeSpan *into
    for number in range(1, count):
        into = &spans[last]
        if (
            spans[number].low <= into.high
            or spans[number].high // width_ms == into.low // width_ms
        ):
            into.high = max(into.high, spans[number].high)
            into.count += spans[number].count
        else:
            last += 1
            spans[last] = spans[number]
    return last + 1 if count else 0


cdef inline Py_ssize_t put_map_number(unsigned char *data, Py_ssize_t at, long long value) noexcept:
    while value > 0x7F:
        data[at] = <unsigned char>(value & 0x7F | 0x80)
        value >>= 7
        at += 1
    data[at] = <unsigned char>value
    return at + 1


# Writes the block of these spans, in any order, and returns its length.
cdef Py_ssize_t put_block(
    unsigned char *out,
    TimeSpan *found,
    Py_ssize_t count,
    long long log_bytes,
    long long offsets,
    long long untimed,
) except -1:
    cdef Py_ssize_t number, at = 0
    cdef long long before_ms = 0, left = offsets - untimed
    for number in range(count):
        if found[number].count > left:
            left = -1
            break
        left -= found[number].count
    if left < 0:
        raise ValueError("a block of more messages than offsets")
    for number in range(1, count):
        if found[number].low < found[number - 1].low:
            qsort(found, count, sizeof(TimeSpan), &by_low)
            break
    for number in range(WIDTHS):
        count = join_spans(found, count, JOINED_MS[number])
        if count <= MOST_SPANS:
            break
    at = put_map_number(out, at, log_bytes)
    at = put_map_number(out, at, offsets)
    at = put_map_number(out, at, untimed)
    at = put_map_number(out, at, count)
    for number in range(count):
        at = put_map_number(out, at, found[number].low - before_ms)
        at = put_map_number(out, at, found[number].high - found[number].low)
        at = put_map_number(out, at, found[number].count)
        before_ms = found[number].high
    return at


def time_block(timestamps, *, long long log_bytes, long long offsets):
    cdef object times_view = single_bytes(timestamps)
    cdef const unsigned char *times = bytes_of(times_view)
    cdef Py_ssize_t number, count = 0, timed = 0, time_count = times_view.nbytes // 8
    cdef object memory = undefined((time_count + 1) * sizeof(TimeSpan))
    cdef TimeSpan *found = <TimeSpan *>PyByteArray_AS_STRING(memory)
    cdef object keys_memory = undefined(2 * (time_count + 1) * sizeof(long long))
    cdef unsigned long long *keys = <unsigned long long *>PyByteArray_AS_STRING(keys_memory)
    cdef unsigned char[LONGEST_BLOCK] out
    cdef long long timestamp
    if log_bytes < 0 or offsets < 0:
        raise ValueError("a block of fewer than no bytes or offsets")
    for number in range(time_count):
        timestamp = own_int64_at(times, number * 8)
        if timestamp >= 0:
            keys[timed] = <unsigned long long>timestamp
            timed += 1
    sort_numbers(keys, keys + time_count + 1, timed)
    for number in range(timed):
        timestamp = <long long>keys[number]
        if count and found[count - 1].high == timestamp:
            found[count - 1].count += 1
        else:
            found[count].low = found[count].high = timestamp
            found[count].count = 1
            count += 1
    if time_count - timed > offsets:
        raise ValueError("a block of more messages than offsets")
    return (<char *>out)[: put_block(out, found, count, log_bytes, offsets, time_count - timed)]


def time_blocks(appends, *, long long block_bytes, bint whole):
    cdef object view = single_bytes(appends), blocks = bytearray()
    cdef const unsigned char *given = bytes_of(view)
    cdef Py_ssize_t number, count = 0, ended = 0, appended = view.nbytes // APPEND_BYTES
    cdef object memory = undefined((appended + 1) * sizeof(TimeSpan))
    cdef TimeSpan *found = <TimeSpan *>PyByteArray_AS_STRING(memory)
    cdef unsigned char[LONGEST_BLOCK] out
    cdef long long size, offsets, low, high, messages
    cdef long long log_bytes = 0, all_offsets = 0, untimed = 0
    for number in range(appended):
        size = own_int64_at(given, number * APPEND_BYTES)
        offsets = own_int64_at(given, number * APPEND_BYTES + 8)
        low = own_int64_at(given, number * APPEND_BYTES + 16)
        high = own_int64_at(given, number * APPEND_BYTES + 24)
        messages = own_int64_at(given, number * APPEND_BYTES + 32)
        if (
            size <= 0
            or not 0 < messages <= offsets
            or low > high
            or (low < 0) != (high < 0)
            or size > LARGEST_INT64 - log_bytes
            or offsets > LARGEST_INT64 - all_offsets
        ):
            raise ValueError("an append of no bytes, of no time or of more messages than offsets")
        log_bytes += size
        all_offsets += offsets
        if low < 0:
            untimed += messages
        else:
            found[count].low = low
            found[count].high = high
            found[count].count = messages
            count += 1
        if log_bytes >= block_bytes or (whole and number == appended - 1):
            size = put_block(out, found, count, log_bytes, all_offsets, untimed)
            blocks += (<char *>out)[:size]
            count = 0
            log_bytes = all_offsets = untimed = 0
            ended = number + 1
    return bytes(blocks), ended


# A place in a time map.
cdef struct MapPlace:
    const unsigned char *data
    Py_ssize_t at, end


cdef long long map_number(MapPlace *place) except -1:
    cdef unsigned long long value = 0
    cdef int shift = 0
    cdef unsigned char byte
    while place.at < place.end and shift < 63:
        byte = place.data[place.at]
        place.at += 1
        value |= <unsigned long long>(byte & 0x7F) << shift
        if byte < 0x80:
            return <long long>value
        shift += 7
    raise ValueError("the time map ends in the middle of a block, or has a number of more than 63 bits")


# What a block says before its spans.
cdef struct MapBlock:
    long long position, log_bytes, offset, offsets, untimed, spans
    # Of its messages, how many are not in the spans that were passed.
    long long left


cdef bint next_block(MapPlace *place, MapBlock *block) except -1:
    if place.at == place.end:
        return False
    block.position += block.log_bytes
    block.offset += block.offsets
    block.log_bytes = map_number(place)
    block.offsets = map_number(place)
    block.untimed = map_number(place)
    block.spans = map_number(place)
    if (
        block.log_bytes > LARGEST_INT64 - block.position
        or block.offsets > LARGEST_INT64 - max(block.offset, 0)
    ):
        raise ValueError("the blocks of the time map add up to more than 63 bits")
    block.left = block.offsets - block.untimed
    if block.left < 0:
        raise ValueError("a block of the time map has more messages than offsets")
    return True


cdef int next_span(
    MapPlace *place, MapBlock *block, long long *before_ms, TimeSpan *span
) except -1:
    cdef long long gap_ms = map_number(place), length_ms
    if gap_ms > LARGEST_INT64 - before_ms[0]:
        raise ValueError("a time of the time map has more than 63 bits")
    span.low = before_ms[0] + gap_ms
    length_ms = map_number(place)
    if length_ms > LARGEST_INT64 - span.low:
        raise ValueError("a time of the time map has more than 63 bits")
    span.high = before_ms[0] = span.low + length_ms
    span.count = map_number(place)
    block.left -= span.count
    if block.left < 0:
        raise ValueError("a block of the time map has more messages than offsets")
    return 0


def time_map_runs(time_map, *, long long base_offset, long long from_ms, long long last_ms):
    cdef object view = memoryview(time_map)
    cdef MapPlace place
    cdef MapBlock block
    cdef TimeSpan span
    cdef long long number, before_ms, run_position = 0, run_offset = 0
    cdef bint hit, in_run = False
    cdef list runs = []
    place.data, place.at, place.end = bytes_of(view), 0, view.nbytes
    block.position = block.log_bytes = block.offsets = 0
    block.offset = base_offset
    while next_block(&place, &block):
        hit, before_ms = False, 0
        for number in range(block.spans):
            next_span(&place, &block, &before_ms, &span)
            if span.low <= last_ms and span.high >= from_ms:
                hit = True
        if hit and not in_run:
            run_position, run_offset = block.position, block.offset
        elif in_run and not hit:
            runs.append((run_position, block.position, run_offset, block.offset))
        in_run = hit
    if in_run:
        runs.append((
            run_position, block.position + block.log_bytes, run_offset,
            block.offset + block.offsets,
        ))
    return runs


# What was counted.
cdef struct Counted:
    long long messages, untimed, first_ms, last_ms


cdef inline void begin_count(Counted *counted) noexcept:
    counted.messages = counted.untimed = 0
    counted.first_ms = LARGEST_INT64
    counted.last_ms = -1


cdef object count_of(Counted *counted):
    cdef long long first_ms = counted.first_ms if counted.messages else -1
    return counted.messages, counted.untimed, first_ms, counted.last_ms


cdef long long intervals_of(
    object counts, long long from_ms, long long last_ms, long long every_ms
) except -1:
    cdef long long intervals = counts.nbytes // 8
    if counts.readonly and counts.nbytes:
        raise TypeError("nothing can be counted in a buffer that is read-only")
    if from_ms < 0 or last_ms < from_ms - 1 or every_ms <= 0:
        raise ValueError("a window that begins before all times, or ends before it begins")
    if last_ms >= from_ms and (last_ms - from_ms) // every_ms >= intervals:
        raise ValueError("there are more intervals than counts")
    return intervals


def time_map_counts(
    time_map, counts, *, long long base_offset, long long begin_offset, long long end_offset,
    long long from_ms, long long last_ms, long long every_ms,
):
    cdef object view = memoryview(time_map), counts_view = single_bytes(counts)
    cdef long long *into = <long long *>bytes_of(counts_view)
    cdef MapPlace place
    cdef MapBlock block
    cdef TimeSpan span
    cdef Counted counted
    cdef long long number, before_ms
    cdef Py_ssize_t spans_at
    cdef bint whole, reads
    cdef list runs = []
    intervals_of(counts_view, from_ms, last_ms, every_ms)
    begin_count(&counted)
    place.data, place.at, place.end = bytes_of(view), 0, view.nbytes
    block.position = block.log_bytes = block.offsets = 0
    block.offset = base_offset
    while next_block(&place, &block):
        spans_at, before_ms = place.at, 0
        whole = begin_offset <= block.offset and block.offset + block.offsets <= end_offset
        reads = not whole and block.offset < end_offset and (
            block.offset + block.offsets > begin_offset
        )
        for number in range(block.spans):
            next_span(&place, &block, &before_ms, &span)
            if whole and span.low <= last_ms and span.high >= from_ms and not (
                from_ms <= span.low
                and span.high <= last_ms
                and (span.low - from_ms) // every_ms == (span.high - from_ms) // every_ms
            ):
                reads = True
        if reads:
            runs.append((
                block.position, block.position + block.log_bytes, block.offset,
                block.offset + block.offsets,
            ))
        elif whole:
            counted.untimed += block.untimed
            place.at, before_ms, block.left = spans_at, 0, block.offsets
            for number in range(block.spans):
                next_span(&place, &block, &before_ms, &span)
                if from_ms <= span.low and span.high <= last_ms:
                    into[(span.low - from_ms) // every_ms] += span.count
                    counted.messages += span.count
                    counted.first_ms = min(counted.first_ms, span.low)
                    counted.last_ms = max(counted.last_ms, span.high)
    return count_of(&counted), runs


def count_times(
    offsets, timestamps, counts, *, long long begin_offset, long long end_offset,
    long long from_ms, long long last_ms, long long every_ms,
):
    cdef object offsets_view = single_bytes(offsets), times_view = single_bytes(timestamps)
    cdef object counts_view = single_bytes(counts)
    cdef const unsigned char *offset_data = bytes_of(offsets_view)
    cdef const unsigned char *times = bytes_of(times_view)
    cdef long long *into = <long long *>bytes_of(counts_view)
    cdef long long offset, timestamp
    cdef Py_ssize_t number, messages = times_view.nbytes // 8
    cdef Counted counted
    intervals_of(counts_view, from_ms, last_ms, every_ms)
    if offsets_view.nbytes != times_view.nbytes:
        raise ValueError("there are not as many offsets as times")
    begin_count(&counted)
    for number in range(messages):
        offset = own_int64_at(offset_data, number * 8)
        if not begin_offset <= offset < end_offset:
            continue
        timestamp = own_int64_at(times, number * 8)
        if timestamp < 0:
            counted.untimed += 1
        elif from_ms <= timestamp <= last_ms:
            into[(timestamp - from_ms) // every_ms] += 1
            counted.messages += 1
            counted.first_ms = min(counted.first_ms, timestamp)
            counted.last_ms = max(counted.last_ms, timestamp)
    return count_of(&counted)


def time_map_extent(time_map):
    cdef object view = memoryview(time_map)
    cdef MapPlace place
    cdef MapBlock block
    cdef TimeSpan span
    cdef long long number, before_ms, blocks = 0, untimed = 0, first_ms = LARGEST_INT64
    cdef long long last_ms = -1
    place.data, place.at, place.end = bytes_of(view), 0, view.nbytes
    block.position = block.log_bytes = block.offset = block.offsets = 0
    while next_block(&place, &block):
        blocks += 1
        untimed += block.untimed
        before_ms = 0
        for number in range(block.spans):
            next_span(&place, &block, &before_ms, &span)
            first_ms, last_ms = min(first_ms, span.low), max(last_ms, span.high)
    return (
        blocks, block.position + block.log_bytes, block.offset + block.offsets, untimed,
        first_ms if last_ms >= 0 else -1, last_ms,
    )
