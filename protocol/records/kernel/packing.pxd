# C types for packing.py; see there for what everything means.

cimport cython

cdef extern from "kernel.h" nogil:
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
    bytearray PyByteArray_FromStringAndSize(const char *content, Py_ssize_t size)
    char *PyBytes_AS_STRING(object content)

# The memoryview holds on to its bytes for as long as the function holds on to it.
cdef inline unsigned char *bytes_of(object view) except? NULL:
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.itemsize != 1 or not PyBuffer_IsContiguous(buffer, b"C"):
        raise BufferError("the bytes of a message set must follow each other in memory")
    return <unsigned char *>buffer.buf

cdef inline unsigned char *content_of(object content) noexcept:
    return <unsigned char *>PyBytes_AS_STRING(content)

cdef inline unsigned char *writable(object array) noexcept:
    return <unsigned char *>PyByteArray_AS_STRING(array)

cdef inline bytearray undefined(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)

cdef long long _OVERHEAD, _SIZE, _CRC, _MAGIC, _ATTRIBUTES, _TIME, _TIME_BYTES, _LENGTH_BYTES
cdef long long _CRC_BYTES, _V0_OVERHEAD, _V1_OVERHEAD, _NO_TIME, _LARGEST_INT32, _LARGEST_INT64
cdef long long _FIRST_BYTES
cdef int _APPEND_TIME, _CODEC_MASK

cdef class SetEncoder:
    cdef int _magic
    cdef long long _offset, _at, _room
    cdef bytearray _out

    @cython.locals(
        time_ms="long long", key_bytes="long long", value_bytes="long long",
        overhead="long long", size="long long", out="unsigned char *", start="long long",
        at="long long",
    )
    cpdef add(self, object value, object key, object timestamp_ms)

    @cython.locals(needed="long long")
    cdef _reserve(self, object values, object keys)

@cython.locals(
    data="unsigned char *", position="long long", size="long long", stop="long long",
)
cdef bint _stamp(object view, long long start, long long end, long long append_time_ms) except -1
