# C types for walk.py; see there for what everything means.

cimport cython

from .batch_head cimport batch_problem
from .walked cimport Walk as _Walk

cdef extern from "kernel.h" nogil:
    long long int64_at(const unsigned char *data, long long position)
    int int32_at(const unsigned char *data, long long position)
    void put_int64(unsigned char *data, long long position, long long value)
    void put_int32(unsigned char *data, long long position, long long value)
    unsigned int crc32_at(const unsigned char *data, long long position, long long length)

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)
    bint PyBuffer_IsContiguous(const Py_buffer *buffer, char order)
    char *PyByteArray_AS_STRING(object array)

# The memoryview holds on to its bytes for as long as the function holds on to it.
cdef inline unsigned char *bytes_of(object view) except? NULL:
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.itemsize != 1 or not PyBuffer_IsContiguous(buffer, b"C"):
        raise BufferError("the bytes of a message set must follow each other in memory")
    return <unsigned char *>buffer.buf

cdef inline int *int32s(object array) noexcept:
    return <int *>PyByteArray_AS_STRING(array)

cdef inline long long *int64s(object array) noexcept:
    return <long long *>PyByteArray_AS_STRING(array)

cdef long long _HEAD_BYTES, _OVERHEAD, _SIZE, _CRC, _MAGIC, _TIME, _V0_KEY_AT, _V1_KEY_AT
cdef long long _LENGTH_BYTES, _V0_OVERHEAD, _V1_OVERHEAD, _LARGEST_INT32, _SMALLEST_INT64, _LARGEST_INT64, _NO_TIME
cdef long long _NO_EPOCH
cdef long long _BATCH_BITS, _LAST_DELTA, _BATCH_TIME, _RECORDS, _LEADER_EPOCH
cdef int _CODEC_MASK, _HIGHEST_CODEC, _APPEND_TIME, _BUCKETS
cdef int _ASSIGN, _CONTIGUOUS
cdef int _PARTIAL, _BAD_SIZE, _BAD_CRC, _BAD_LENGTHS, _BAD_MAGIC, _BAD_CODEC, _BAD_OFFSET
cdef tuple _PROBLEMS
cdef long long[18] _BOUNDS

@cython.locals(
    data="unsigned char *", found="_Walk",
    position="long long", last_whole_head="long long", crc="unsigned int", computed="unsigned int", stop="long long", last_offset="long long",
    offset="long long", size="long long", entry_ms="long long", key_bytes="long long",
    value_bytes="long long", body_bytes="long long", key_at="long long", timestamp="long long",
    entry_magic="int", entry_bits="int", attributes="int", codec="int", literal="bint",
    count="long long", batches="long long", records="long long", delta="long long",
    compressed="long long", untimed="long long",
    append_time_bits="long long", codecs="long long", magics="long long", last_codec="long long",
    problem="int", largest_size="long long", sum_ms="unsigned long long",
    min_ms="long long", max_ms="long long", max_position="long long", max_offset="long long",
    marked_at="long long", mark_after="long long", from_ms="long long", upto_ms="long long",
    last_position="long long", last_markable="long long", marks="long long", times="long long",
    marked_ms="long long", room="long long", mark_offsets="int *", mark_positions="int *",
    mark_timestamps="long long *", mark_nexts="int *",
    counts="long long[19]", bucket="int", number="int", skewed="long long",
    before_run="long long", latency_ms="long long", timed="unsigned long long",
)
cdef _Walk _walk(
    object view, long long start, long long end, int rule, long long base_offset,
    bint check_crc, long long now_ms, long long interval_bytes, long long since_bytes,
    long long largest_ms, long long magic, long long segment_offset, long long segment_position,
)

@cython.locals(bucket="int", number="int")
cdef int _bucket(long long latency_ms)
