# C types for rewriting.py; see there for what everything means.

cimport cython

cdef extern from "kernel.h" nogil:
    long long int64_at(const unsigned char *data, long long position)
    int int32_at(const unsigned char *data, long long position)
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

cdef long long _OVERHEAD, _SIZE, _CRC, _MAGIC, _ATTRIBUTES, _TIME, _TIME_BYTES
cdef long long _CRC_BYTES, _V0_OVERHEAD, _V1_OVERHEAD, _NO_TIME, _OWN
cdef int _APPEND_TIME, _CODEC_MASK, _RESERVED

@cython.locals(
    data="unsigned char *", out="unsigned char *", at="long long", room="long long",
    converted="long long", position="long long", size="long long", stop="long long",
    offset="long long", own_magic="int", attributes="int", wanted="int", time_ms="long long",
    content="long long", content_at="long long",
)
cdef long long _rewrite(
    bytearray target, object view, long long start, long long end, int magic,
    long long first_offset, long long offset_shift, long long stamp_ms,
) except -1

@cython.locals(data="unsigned char *", position="long long", size="long long")
cdef long long _plain_end(object view, long long start, long long end) except -1
