# C types for gathering.py; see there for what everything means.

cimport cython

cdef extern from "kernel.h" nogil:
    long long int64_at(const unsigned char *data, long long position)
    int int32_at(const unsigned char *data, long long position)
    void copy_bytes(
        unsigned char *data, long long position, const unsigned char *content, long long start,
        long long length,
    )

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)
    bint PyBuffer_IsContiguous(const Py_buffer *buffer, char order)
    char *PyByteArray_AS_STRING(object array)
    bytearray PyByteArray_FromStringAndSize(const char *content, Py_ssize_t size)

# The memoryview holds on to its bytes for as long as the function holds on to it.
cdef inline unsigned char *bytes_of(object view) except? NULL:
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.itemsize != 1 or not PyBuffer_IsContiguous(buffer, b"C"):
        raise BufferError("the bytes of a message set must follow each other in memory")
    return <unsigned char *>buffer.buf

cdef inline unsigned char *writable(object array) noexcept:
    return <unsigned char *>PyByteArray_AS_STRING(array)

cdef inline bytearray undefined(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)

cdef inline int *int32s(object array) noexcept:
    return <int *>PyByteArray_AS_STRING(array)

cdef inline long long *int64s(object array) noexcept:
    return <long long *>PyByteArray_AS_STRING(array)

cdef long long _OVERHEAD, _SIZE, _MAGIC, _ATTRIBUTES, _TIME, _TIME_BYTES, _LENGTH_BYTES
cdef long long _V0_OVERHEAD, _V1_OVERHEAD, _NO_TIME, _LARGEST_INT32, _LARGE_OFFSET
cdef int _APPEND_TIME, _OWN_TYPE

cdef class Gathered:
    cdef public long long count, key_nulls, value_nulls
    cdef public bytearray offsets, timestamps, timestamp_types
    cdef public bytearray key_offsets, key_data, key_valid
    cdef public bytearray value_offsets, value_data, value_valid

@cython.locals(
    data="unsigned char *", room="long long", found="Gathered", offsets="long long *",
    timestamps="long long *", types="unsigned char *", key_ends="int *", value_ends="int *",
    key_valid="unsigned char *", value_valid="unsigned char *", key_data="unsigned char *",
    value_data="unsigned char *", row="long long", key_at="long long", value_at="long long",
    key_nulls="long long", value_nulls="long long", position="long long", size="long long",
    stop="long long", is_timed="bint", at="long long", key_bytes="long long",
    value_bytes="long long", key_start="long long", offset="long long",
)
cdef Gathered _gather(
    object view, long long start, long long end, long long count, long long offset_shift,
    long long from_offset, int timestamp_type, long long timestamp_ms, bint with_keys,
    bint with_values,
)
