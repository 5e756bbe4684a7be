# Counts latencies: the ages of messages at `now_ms`.

# Latencies are counted in runs, as long as timestamps stay in one bucket, from `from_ms` to
# `upto_ms`. If none are requested, every time is in the bucket. `sum_ms` is the sum of the
# timestamps, with `now_ms` in place of those in the future; it wraps around, and `wraps` counts
# that.
cdef struct Latencies:
    long long now_ms, from_ms, upto_ms, timed, before_run, skewed
    unsigned long long sum_ms, wraps
    long long counts[BUCKETS]
    int bucket


cdef inline void begin_latencies(Latencies *these, long long now_ms) noexcept:
    cdef int number
    these.now_ms = now_ms
    these.from_ms = LARGEST_INT64 if now_ms >= 0 else SMALLEST_INT64
    these.upto_ms = SMALLEST_INT64 if now_ms >= 0 else LARGEST_INT64
    these.timed = these.before_run = these.skewed = these.bucket = 0
    these.sum_ms = these.wraps = 0
    for number in range(BUCKETS):
        these.counts[number] = 0


cdef inline void count_latency(Latencies *these, long long timestamp) noexcept:
    if timestamp < these.from_ms or timestamp > these.upto_ms:
        timestamp = next_bucket(these, timestamp)
    these.timed += 1
    these.sum_ms += <unsigned long long>timestamp
    these.wraps += these.sum_ms < <unsigned long long>timestamp


# Counts `count` timestamps (below 2**31) in the current bucket. Their sum is `count * base_ms +
# sum_ms`; neither `base_ms` nor any of the timestamps is negative.
cdef inline void count_alike(
    Latencies *these, unsigned long long base_ms, unsigned long long count, long long sum_ms
) noexcept:
    cdef unsigned long long low = <unsigned int>base_ms * count, high = (base_ms >> 32) * count
    these.timed += count
    these.wraps += high >> 32
    high <<= 32
    these.sum_ms += low
    these.wraps += these.sum_ms < low
    these.sum_ms += high
    these.wraps += these.sum_ms < high
    these.sum_ms += <unsigned long long>sum_ms
    if sum_ms < 0:
        these.wraps -= these.sum_ms >= <unsigned long long>sum_ms
    else:
        these.wraps += these.sum_ms < <unsigned long long>sum_ms


# Starts the bucket of a timestamp outside of the current one. Returns what the timestamp adds to
# the sum.
cdef long long next_bucket(Latencies *these, long long timestamp) noexcept:
    cdef long long latency_ms, now_ms = these.now_ms
    cdef int bucket
    these.counts[these.bucket] += these.timed - these.before_run
    these.before_run = these.timed
    latency_ms = now_ms - timestamp if timestamp >= 0 else LARGEST_INT64
    bucket = these.bucket = bucket_of(latency_ms)
    these.from_ms = now_ms - BOUNDS[bucket] if bucket < BUCKETS - 1 else 0
    these.upto_ms = now_ms - BOUNDS[bucket - 1] - 1 if bucket else now_ms
    if latency_ms < 0:
        these.skewed += 1
        these.from_ms = LARGEST_INT64
        return now_ms
    return timestamp


# Returns the counts. `smallest_ms` is the smallest timestamp; if it is below -1, it is invalid, and
# all messages count as untimed.
cdef object counts_from(Latencies *these, long long untimed, long long smallest_ms):
    cdef long long timed = these.timed, longest_ms
    cdef object sum_ms
    cdef object found
    if not timed or smallest_ms < NO_TIME:
        return LatencyCounts(untimed=untimed + timed)
    these.counts[these.bucket] += timed - these.before_run
    these.before_run = timed
    longest_ms = max(these.now_ms - smallest_ms, 0)
    if longest_ms <= LARGEST_INT64 // timed:
        # Both sides wrap around, and the difference is right again.
        sum_ms = (
            <unsigned long long>these.now_ms * <unsigned long long>timed - these.sum_ms
        )
    else:
        sum_ms = <object>these.now_ms * timed - (<object>these.wraps * (1 << 64) + these.sum_ms)
    # Calling the class would run a Python function.
    found = LatencyCounts.__new__(LatencyCounts)
    found.counts, found.skewed, found.untimed = counts_of(these.counts), these.skewed, untimed
    found.sum_ms, found.max_ms = sum_ms, longest_ms
    return found
