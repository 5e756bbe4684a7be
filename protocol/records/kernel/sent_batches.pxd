# C types for sent_batches.py; see there for what everything means.

cimport cython

from .record_check cimport RecordTally
from .record_cursor cimport RecordCursor

cdef extern from "kernel.h" nogil:
    long long int64_at(const unsigned char *data, long long position)
    int int32_at(const unsigned char *data, long long position)
    void put_int64(unsigned char *data, long long position, long long value)
    void put_int32(unsigned char *data, long long position, long long value)
    unsigned int crc32c_at(const unsigned char *data, long long position, long long length)

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)
    bint PyBuffer_IsContiguous(const Py_buffer *buffer, char order)

# The memoryview holds on to its bytes for as long as the function holds on to it.
cdef inline unsigned char *bytes_of(object view) except? NULL:
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.itemsize != 1 or not PyBuffer_IsContiguous(buffer, b"C"):
        raise BufferError("the bytes of a message set must follow each other in memory")
    return <unsigned char *>buffer.buf

cdef long long _OVERHEAD, _ENTRY_OVERHEAD, _SIZE, _MAGIC, _CRC, _ATTRIBUTES, _LAST_DELTA, _RECORDS
cdef long long _BASE_TIME, _MAX_TIME, _PRODUCER_ID, _PRODUCER_EPOCH, _SEQUENCE, _NO_PRODUCER
cdef int _NO_MORE, _APPEND_TIME

cdef class UsualBatches:
    cdef readonly list first_offsets, numbered
    cdef readonly long long min_timestamp_ms, max_timestamp_ms
    cdef readonly bint true_times
    cdef readonly object latency

@cython.locals(
    data="unsigned char *", whole="long long", cursor="RecordCursor", tally="RecordTally",
    true_times="bint", position="long long", end="long long", start="long long",
    stop="long long", records="long long", producer_id="long long", epoch="int", sequence="int",
    found="UsualBatches",
)
cdef _check_usual(object view, list set_ends, long long now_ms)

@cython.locals(
    data="unsigned char *", position="long long", stop="long long", crc="unsigned int",
)
cdef object _stamp_batches(object view, long long end, long long append_time_ms)
