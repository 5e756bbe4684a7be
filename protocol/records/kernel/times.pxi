# Queries on time maps.

# A reading position in a time map.
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


# The numbers of a block before its spans.
cdef struct MapBlock:
    long long position, log_bytes, offset, offsets, untimed, spans
    # Messages that are not in the spans read so far.
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


# Sums of the messages counted.
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
