# Time spans of messages, and the blocks of a time map built from them.

from libc.stdlib cimport qsort
from libc.string cimport memcpy, memmove, memset

# Messages with times from `low` to `high`.
cdef struct TimeSpan:
    long long low, high, count

cdef enum:
    MOST_SPANS = 32
    WIDTHS = 13
    LONGEST_MAP_NUMBER = 9
    LONGEST_BLOCK = (4 + 3 * MOST_SPANS) * LONGEST_MAP_NUMBER
    APPEND_BYTES = 48
    APPEND_NUMBERS = 6
    # Places of a hash table: a power of two, at least twice `MOST_SPANS` and one.
    PLACES = 128
    # Number of times that show whether most times rise.
    SOME_TIMES = 64

# Widths of the intervals in which the spans of one block are joined until they are few enough. Each
# width divides the next; minutes, hours and days are among them, because most windows are whole
# minutes, hours or days.
cdef long long[WIDTHS] JOINED_MS = [
    1, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 864_000_000,
    8_640_000_000, 86_400_000_000, LARGEST_INT64,
]

# Below this, a quotient computed in floating point is wrong by at most one.
cdef long long EXACT_MS = 1LL << 50


# Returns a view of a buffer as single bytes.
cdef object single_bytes(object buffer):
    cdef object view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(b"")


cdef int by_low(const void *this, const void *other) noexcept nogil:
    cdef long long a = (<const TimeSpan *>this).low, b = (<const TimeSpan *>other).low
    return (a > b) - (a < b)


# Returns the index of the first span that is below the one before it.
cdef inline Py_ssize_t rising_spans(
    const TimeSpan *spans, Py_ssize_t start, Py_ssize_t count
) noexcept:
    cdef Py_ssize_t number
    for number in range(start + 1, count):
        if spans[number].low < spans[number - 1].low:
            return number
    return count


# Sorts spans. If they consist of two ascending runs, these are merged.
cdef void sort_spans(TimeSpan *spans, Py_ssize_t count) noexcept:
    cdef TimeSpan[MOST_SPANS] second
    cdef Py_ssize_t first_left = rising_spans(spans, 0, count), second_left = count - first_left
    if not second_left:
        return
    if second_left > MOST_SPANS or rising_spans(spans, first_left, count) < count:
        qsort(spans, count, sizeof(TimeSpan), &by_low)
        return
    memcpy(second, &spans[first_left], second_left * sizeof(TimeSpan))
    while second_left:
        count -= 1
        if first_left and spans[first_left - 1].low > second[second_left - 1].low:
            first_left -= 1
            spans[count] = spans[first_left]
        else:
            second_left -= 1
            spans[count] = second[second_left]


# Joins sorted spans that overlap or lie in the same interval. Returns their new number.
cdef Py_ssize_t join_spans(TimeSpan *spans, Py_ssize_t count, long long width_ms) noexcept:
    cdef Py_ssize_t number, last = 0
    cdef TimeSpan *into = spans
    cdef long long begin_ms
    if not count:
        return 0
    begin_ms = into.low - into.low % width_ms
    for number in range(1, count):
        if spans[number].low <= into.high or spans[number].high - begin_ms < width_ms:
            into.high = max(into.high, spans[number].high)
            into.count += spans[number].count
        else:
            last += 1
            into = &spans[last]
            into[0] = spans[number]
            begin_ms = into.low - into.low % width_ms
    return last + 1


# Sorts spans and joins them, in the given width or the first wider one that leaves few enough.
cdef Py_ssize_t join_to_few(TimeSpan *spans, Py_ssize_t count, int *width) noexcept:
    sort_spans(spans, count)
    count = join_spans(spans, count, JOINED_MS[width[0]])
    while count > MOST_SPANS and width[0] < WIDTHS - 1:
        width[0] += 1
        count = join_spans(spans, count, JOINED_MS[width[0]])
    return count


# The times of one interval, relative to the start of the first one.
cdef struct TimeSlot:
    double low, high
    long long count


cdef inline void add_to_slot(TimeSlot *slot, double past_ms) noexcept:
    slot.low = past_ms if past_ms < slot.low else slot.low
    slot.high = past_ms if past_ms > slot.high else slot.high
    slot.count += 1


# Like `spans_of_width`, with ascending results. There are at most `MOST_SPANS` intervals from
# `base_ms` on, where one starts, and all times are less than `EXACT_MS` after it. Even and odd
# times go to different slots, so that the processor need not wait for the one before.
cdef Py_ssize_t spans_of_places(
    TimeSpan *spans, const long long *times, Py_ssize_t count, long long base_ms,
    long long width_ms, Py_ssize_t places,
) noexcept:
    cdef TimeSlot[MOST_SPANS] even, odd
    # A half is added so that no quotient is rounded up to the next whole number.
    cdef double per_width = 1.0 / <double>width_ms, even_ms, odd_ms
    cdef Py_ssize_t number, found = 0
    for number in range(places):
        even[number].low = odd[number].low = <double>EXACT_MS
        even[number].high = odd[number].high = -1.0
        even[number].count = odd[number].count = 0
    for number in range(count >> 1):
        even_ms = <double>(times[2 * number] - base_ms)
        odd_ms = <double>(times[2 * number + 1] - base_ms)
        add_to_slot(&even[<Py_ssize_t>((even_ms + 0.5) * per_width)], even_ms)
        add_to_slot(&odd[<Py_ssize_t>((odd_ms + 0.5) * per_width)], odd_ms)
    if count & 1:
        even_ms = <double>(times[count - 1] - base_ms)
        add_to_slot(&even[<Py_ssize_t>((even_ms + 0.5) * per_width)], even_ms)
    for number in range(places):
        if even[number].count + odd[number].count:
            spans[found].low = base_ms + <long long>min(even[number].low, odd[number].low)
            spans[found].high = base_ms + <long long>max(even[number].high, odd[number].high)
            spans[found].count = even[number].count + odd[number].count
            found += 1
    return found


# Whether most of the first times are at least as large as the one before: such times come in runs.
cdef inline bint mostly_rise(const long long *times, Py_ssize_t count) noexcept:
    cdef Py_ssize_t number, some = min(count, SOME_TIMES), falls = 0
    for number in range(1, some):
        falls += times[number] < times[number - 1]
    return 8 * falls < some


# Returns the spans of times, one for each interval, in any order; -1 if there are too many. All
# times are from `lowest` to `highest`.
cdef Py_ssize_t spans_of_width(
    TimeSpan *spans, const long long *times, Py_ssize_t count, long long lowest, long long highest,
    long long width_ms,
) noexcept:
    cdef signed char[PLACES] places
    cdef long long[MOST_SPANS] begins
    cdef long long base_ms = lowest - lowest % width_ms, begin_ms = -1, time_ms, past_ms, part
    cdef double per_width = 1.0 / <double>width_ms
    cdef bint exact = highest - base_ms >= EXACT_MS
    cdef Py_ssize_t number, found = 0
    cdef unsigned int place
    cdef int at
    cdef TimeSpan *span = NULL
    part = (highest - base_ms) // width_ms
    if part < MOST_SPANS and not exact and not mostly_rise(times, count):
        return spans_of_places(spans, times, count, base_ms, width_ms, part + 1)
    memset(places, 0xFF, PLACES)
    for number in range(count):
        time_ms = times[number]
        if span == NULL or not 0 <= time_ms - begin_ms < width_ms:
            past_ms = time_ms - base_ms
            if exact:
                part = past_ms // width_ms
            else:
                part = <long long>((<double>past_ms + 0.5) * per_width)
            begin_ms = base_ms + part * width_ms
            place = <unsigned int>(<unsigned long long>part * 0x9E3779B97F4A7C15ULL >> 57)
            at = places[place]
            while at >= 0 and begins[at] != begin_ms:
                place = (place + 1) & (PLACES - 1)
                at = places[place]
            if at < 0:
                if found == MOST_SPANS:
                    return -1
                places[place] = <signed char>found
                begins[found] = begin_ms
                span = &spans[found]
                span.low = span.high = time_ms
                span.count = 1
                found += 1
                continue
            span = &spans[at]
        if time_ms < span.low:
            span.low = time_ms
        if time_ms > span.high:
            span.high = time_ms
        span.count += 1
    return found


# Whether the times of these spans, joined in a wider width, need too many spans in this width.
cdef inline bint too_many(const TimeSpan *spans, Py_ssize_t count, long long width_ms) noexcept:
    cdef Py_ssize_t number, least = count
    for number in range(count):
        least += spans[number].high - spans[number].low >= width_ms
    return least > MOST_SPANS


# The width that was needed last; the next search starts there.
cdef int likely_width = 0


# Returns the spans of times in the narrowest width, from `width` on, that leaves few enough, and
# sets `width` to it. All times are from `lowest` to `highest`. Times in one interval are also in
# one interval of each wider width, so if there are too many spans in some width, there are too many
# in each narrower one.
cdef Py_ssize_t spans_of_narrowest(
    TimeSpan *spans, const long long *times, Py_ssize_t count, long long lowest, long long highest,
    int *width,
) noexcept:
    global likely_width
    cdef TimeSpan[MOST_SPANS] narrower
    cdef Py_ssize_t made = -1, fewer
    cdef int least = width[0], at = least
    if count > MOST_SPANS:
        # They are few enough in the first width with at most that many intervals.
        while highest - lowest >= (MOST_SPANS - 1) * JOINED_MS[at]:
            at += 1
            if JOINED_MS[at] >= LARGEST_INT64 // MOST_SPANS:
                break
        at = max(min(at, likely_width), least)
    while True:
        made = spans_of_width(spans, times, count, lowest, highest, JOINED_MS[at])
        if made >= 0:
            break
        at += 1
        least = at
    while at > least and not too_many(spans, made, JOINED_MS[at - 1]):
        fewer = spans_of_width(narrower, times, count, lowest, highest, JOINED_MS[at - 1])
        if fewer < 0:
            break
        memcpy(spans, narrower, fewer * sizeof(TimeSpan))
        made = fewer
        at -= 1
    if count > MOST_SPANS:
        likely_width = at
    width[0] = at
    return made


# What was found in consecutive messages: the number without a time, times (from `lowest` to
# `highest`) that are not in a span yet, the spans of the other times, and the width in which these
# were joined. There is room for the spans of the pending times too.
cdef struct Found:
    long long untimed, lowest, highest
    int width
    Py_ssize_t times, spans
    long long *time
    TimeSpan[2 * MOST_SPANS] span


# Starts with `room` for `MOST_TIMES` times.
cdef inline void find_nothing(Found *found, long long *room) noexcept:
    found.time = room
    found.untimed = found.times = found.spans = found.width = 0
    found.lowest, found.highest = LARGEST_INT64, -1


# Turns the pending times into spans. The result does not depend on when this is called.
cdef void make_spans(Found *found) noexcept:
    cdef Py_ssize_t made
    if not found.times:
        return
    made = spans_of_narrowest(
        &found.span[found.spans], found.time, found.times, found.lowest, found.highest,
        &found.width,
    )
    found.times = 0
    found.lowest, found.highest = LARGEST_INT64, -1
    if found.spans:
        found.spans = join_to_few(found.span, found.spans + made, &found.width)
    else:
        found.spans = made
        sort_spans(found.span, made)


cdef inline void find_time(Found *found, long long time_ms) noexcept:
    if time_ms < 0:
        found.untimed += 1
        return
    if found.times == MOST_TIMES:
        make_spans(found)
    found.time[found.times] = time_ms
    found.times += 1
    found.lowest = time_ms if time_ms < found.lowest else found.lowest
    found.highest = time_ms if time_ms > found.highest else found.highest


cdef inline void put_row(
    long long *row, long long low, long long high, long long messages, long long joined_ms
) noexcept:
    row[0] = row[1] = 0
    row[2], row[3], row[4], row[5] = low, high, messages, joined_ms


# Adds what was found to `rows` for `time_blocks`, and starts anew.
cdef int end_piece(bytearray rows, Found *found, long long log_bytes, long long offsets) except -1:
    cdef long long[(MOST_SPANS + 1) * APPEND_NUMBERS] out
    cdef Py_ssize_t number, count = 0
    make_spans(found)
    if found.untimed or not found.spans:
        put_row(out, -1, -1, found.untimed, 1)
        count = 1
    for number in range(found.spans):
        put_row(
            &out[count * APPEND_NUMBERS], found.span[number].low, found.span[number].high,
            found.span[number].count, JOINED_MS[found.width],
        )
        count += 1
    out[(count - 1) * APPEND_NUMBERS] = log_bytes
    out[(count - 1) * APPEND_NUMBERS + 1] = offsets
    rows += (<char *>out)[: count * APPEND_BYTES]
    find_nothing(found, found.time)
    return 0


# Adds the rows of the completed pieces, and keeps the times after them. All times are from `lowest`
# to `highest`; a negative `lowest` means that this is unknown.
cdef int end_noted(
    bytearray rows, NotedTimes *noted, long long lowest, long long highest
) except -1:
    cdef long long[MOST_TIMES] room
    cdef Found found
    cdef Py_ssize_t number, at, begin = 0, end
    for number in range(noted.pieces):
        end = noted.piece[number].times
        if lowest >= 0:
            find_nothing(&found, &noted.time[begin])
            found.times, found.lowest, found.highest = end - begin, lowest, highest
        else:
            find_nothing(&found, room)
            for at in range(begin, end):
                find_time(&found, noted.time[at])
        end_piece(rows, &found, noted.piece[number].stop - noted.begin, end - begin)
        noted.begin, begin = noted.piece[number].stop, end
    memmove(noted.time, &noted.time[begin], (noted.times - begin) * sizeof(long long))
    noted.times -= begin
    noted.pieces = 0
    return 0


def time_spans(timestamps, *, long long log_bytes, long long offsets):
    cdef object view = single_bytes(timestamps)
    cdef const unsigned char *times = bytes_of(view)
    cdef Py_ssize_t number, count = view.nbytes // 8
    cdef long long[MOST_TIMES] room
    cdef Found found
    cdef bytearray rows = bytearray()
    if log_bytes <= 0 or offsets <= 0 or count > offsets:
        raise ValueError("an append of no bytes, of no time or of more messages than offsets")
    find_nothing(&found, room)
    for number in range(count):
        find_time(&found, own_int64_at(times, number * 8))
    end_piece(rows, &found, log_bytes, offsets)
    return bytes(rows)


# Finds the times of an uncompressed batch. Returns whether its records are good.
cdef bint find_batch(
    const unsigned char *data, long long position, long long stop, const Entry *entry,
    RecordCursor cursor, Found *found,
) except -1:
    cdef long long base_ms = int64_at(data, position + BASE_TIME), count = 0
    cdef bint appended = entry.bits & APPEND_TIME
    cursor.begin(position + BATCH_OVERHEAD, stop)
    while step_usual(cursor) or cursor.step_any() == RECORD_HERE:
        count += 1
    if cursor.following != stop or count - 1 > entry.delta:
        return False
    cursor.begin(position + BATCH_OVERHEAD, stop)
    while step_usual(cursor) or cursor.step_any() == RECORD_HERE:
        find_time(
            found, entry.time_ms if appended else added(base_ms, cursor.timestamp_delta_ms)
        )
    return True


def entry_spans(
    buffer, long long start, *, long long block_bytes, long long since_bytes, long long next_offset,
    bint check_crc,
):
    cdef object view = memoryview(buffer)
    cdef const unsigned char *data = bytes_of(view)
    cdef long long end = len(view), position = start, begin = start, stop, first_offset = next_offset
    cdef Entry entry
    cdef long long[MOST_TIMES] room
    cdef Found found
    cdef RecordCursor cursor = None
    cdef bytearray rows = bytearray()
    if not 0 <= start <= end or since_bytes < 0 or block_bytes <= since_bytes or next_offset < 0:
        raise ValueError("no place in a buffer, or in a block")
    find_nothing(&found, room)
    while end - position >= HEAD_BYTES:
        entry.offset = int64_at(data, position)
        entry.size = int32_at(data, position + SIZE)
        stop = position + HEAD_BYTES + entry.size
        if entry.size < V0_OVERHEAD or stop > end or entry.offset < next_offset:
            break
        entry.magic = data[position + MAGIC]
        if entry.magic == 2:
            if read_batch(data, position, check_crc, &entry) or entry.bits & (CODEC_MASK | CONTROL):
                break
            if entry.offset >= LARGEST_INT64 - entry.delta:
                break
            if cursor is None:
                cursor = RecordCursor(view, 0, 0)
            if not find_batch(data, position, stop, &entry, cursor, &found):
                break
        else:
            if read_message(data, position, check_crc, &entry) or entry.bits & CODEC_MASK:
                break
            if entry.offset == LARGEST_INT64:
                break
            find_time(&found, entry.time_ms)
        next_offset = entry.offset + entry.delta + 1
        position = stop
        if since_bytes + position - begin >= block_bytes:
            end_piece(rows, &found, position - begin, next_offset - first_offset)
            begin, first_offset, since_bytes = position, next_offset, 0
    if position > begin:
        end_piece(rows, &found, position - begin, next_offset - first_offset)
        since_bytes += position - begin
    return bytes(rows), position, next_offset, since_bytes


cdef inline Py_ssize_t put_map_number(unsigned char *data, Py_ssize_t at, long long value) noexcept:
    while value > 0x7F:
        data[at] = <unsigned char>(value & 0x7F | 0x80)
        value >>= 7
        at += 1
    data[at] = <unsigned char>value
    return at + 1


# Writes the block of these spans, given in any order, and returns its length. Afterwards `found`
# has the block's spans, in order.
cdef Py_ssize_t put_block(
    unsigned char *out,
    TimeSpan *found,
    Py_ssize_t *spans,
    long long log_bytes,
    long long offsets,
    long long untimed,
    int width,
) except -1:
    cdef Py_ssize_t number, count = spans[0], at = 0
    cdef long long before_ms = 0, left = offsets - untimed
    for number in range(count):
        if found[number].count > left:
            left = -1
            break
        left -= found[number].count
    if left < 0:
        raise ValueError("a block of more messages than offsets")
    if count > 1:
        count = spans[0] = join_to_few(found, count, &width)
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


def time_blocks(appends, *, long long block_bytes, bint whole):
    cdef object view = single_bytes(appends), blocks = bytearray()
    cdef const unsigned char *given = bytes_of(view)
    cdef Py_ssize_t number, count = 0, ended = 0, appended = view.nbytes // APPEND_BYTES
    cdef object memory = undefined((appended + 1) * sizeof(TimeSpan))
    cdef TimeSpan *found = <TimeSpan *>PyByteArray_AS_STRING(memory)
    cdef unsigned char[LONGEST_BLOCK] out
    cdef long long size, offsets, low, high, messages, joined_ms
    cdef long long log_bytes = 0, all_offsets = 0, untimed = 0
    cdef long long first_ms = LARGEST_INT64, last_ms = -1
    cdef long long blocks_made = 0, made_bytes = 0, made_offsets = 0, made_untimed = 0
    cdef int width = 0
    for number in range(appended):
        size = own_int64_at(given, number * APPEND_BYTES)
        offsets = own_int64_at(given, number * APPEND_BYTES + 8)
        low = own_int64_at(given, number * APPEND_BYTES + 16)
        high = own_int64_at(given, number * APPEND_BYTES + 24)
        messages = own_int64_at(given, number * APPEND_BYTES + 32)
        joined_ms = own_int64_at(given, number * APPEND_BYTES + 40)
        if (
            size < 0
            or offsets < 0
            or (size > 0) != (offsets > 0)
            or messages < 0
            or low > high
            or (low < 0) != (high < 0)
            or (low >= 0 and not messages)
            or size > LARGEST_INT64 - log_bytes
            or offsets > LARGEST_INT64 - all_offsets
            or (low < 0 and messages > LARGEST_INT64 - untimed)
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
        while width < WIDTHS - 1 and JOINED_MS[width] < joined_ms:
            width += 1
        if size and (log_bytes >= block_bytes or (whole and number == appended - 1)):
            if log_bytes > LARGEST_INT64 - made_bytes or all_offsets > LARGEST_INT64 - made_offsets:
                raise ValueError("blocks that add up to more than 63 bits")
            size = put_block(out, found, &count, log_bytes, all_offsets, untimed, width)
            blocks += (<char *>out)[:size]
            if count:
                first_ms, last_ms = min(first_ms, found[0].low), max(last_ms, found[count - 1].high)
            blocks_made += 1
            made_bytes += log_bytes
            made_offsets += all_offsets
            made_untimed += untimed
            count = 0
            log_bytes = all_offsets = untimed = width = 0
            ended = number + 1
    return bytes(blocks), ended, (
        blocks_made, made_bytes, made_offsets, made_untimed, first_ms if last_ms >= 0 else -1,
        last_ms,
    )
