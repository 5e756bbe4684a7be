# C types for record_check.py; see there for what everything means.

cimport cython

from .record_cursor cimport RecordCursor, usual

cdef extern from "kernel.h":
    pass

cdef int _RECORD, _NO_MORE, _BAD_OFFSET, _BAD_TIME, _BUCKETS
cdef long long _NO_TIME, _LARGEST_INT64, _SMALLEST_INT64, _LARGE_SUM
cdef long long[18] _BOUNDS

cdef class RecordsFound:
    cdef readonly long long count, min_timestamp_ms, max_timestamp_ms, max_delta, untimed
    cdef readonly long long problem_position
    cdef readonly int problem
    cdef readonly object latency

cdef class RecordTally:
    cdef long long[19] _counts
    cdef long long _skewed, _above_ms, _upto_ms
    cdef unsigned long long _sum_ms
    cdef int _bucket
    cdef object _total_ms
    cdef readonly long long now_ms, count, untimed, max_timestamp_ms, max_delta
    cdef readonly long long all_count, all_untimed, all_min_ms, all_max_ms

    @cython.locals(
        now_ms="long long", count="long long", untimed="long long", run="long long",
        sum_ms="unsigned long long", bucket="int", min_ms="long long", max_ms="long long",
        max_delta="long long", above_ms="long long", upto_ms="long long", step="int",
        delta_ms="long long", timestamp="long long", latency_ms="long long",
    )
    cpdef int add(self, RecordCursor cursor, long long base_timestamp_ms) except? -100

    @cython.locals(slowest_ms="long long", number="int")
    cpdef object latency(self)

@cython.locals(cursor="RecordCursor", tally="RecordTally", found="RecordsFound")
cdef RecordsFound _check(
    object view, long long start, long long end, long long base_timestamp_ms, long long now_ms
)

@cython.locals(step="int")
cpdef int find_timestamp(
    RecordCursor cursor, long long base_timestamp_ms, long long target_ms
) except? -100

cdef int _bucket(long long latency_ms)
