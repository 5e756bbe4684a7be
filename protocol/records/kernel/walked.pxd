# C types for walked.py; see there for what everything means. The interpreted walk writes the
# fields too, when both forms are in one process.

cdef extern from "kernel.h":
    pass

cdef class Walk:
    cdef public long long end, count, batches, first_offset, last_offset, magics, codecs, last_codec
    cdef public bint literal
    cdef public long long min_timestamp_ms, max_timestamp_ms, max_position, max_offset
    cdef public long long first_timestamp_ms, last_append_time_ms, append_time_bits, untimed
    cdef public long long largest_entry_bytes, problem_position, since_bytes, largest_ms
    cdef public object problem, latency, marks
    cdef public list magic_changes
