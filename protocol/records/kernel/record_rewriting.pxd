# C types for record_rewriting.py; see there for what everything means.

cimport cython

from .record_cursor cimport RecordCursor

cdef extern from "kernel.h" nogil:
    void put_int64(unsigned char *data, long long position, long long value)
    void put_int32(unsigned char *data, long long position, long long value)
    void copy_bytes(
        unsigned char *data, long long position, const unsigned char *content, long long start,
        long long length,
    )
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

cdef inline unsigned char *writable(object array) noexcept:
    return <unsigned char *>PyByteArray_AS_STRING(array)

cdef int _RECORD, _NO_MORE, _APPEND_TIME
cdef long long _OVERHEAD, _SIZE, _CRC, _MAGIC, _ATTRIBUTES, _TIME, _TIME_BYTES, _LENGTH_BYTES
cdef long long _CRC_BYTES, _V0_OVERHEAD, _V1_OVERHEAD, _NO_TIME, _FIRST_BYTES, _OWN

@cython.locals(
    data="unsigned char *", cursor="RecordCursor", begin="long long", at="long long",
    room="long long", count="long long", headers="long long", last_offset="long long",
    overhead="long long", attributes="int", step="int", key_bytes="long long",
    value_bytes="long long", size="long long", offset="long long", time_ms="long long",
    out="unsigned char *", place="long long",
)
cdef tuple _records_to_messages(
    bytearray target, object view, long long start, int magic, long long base_offset,
    long long base_timestamp_ms, long long first_offset, long long stamp_ms, long long max_bytes,
)
