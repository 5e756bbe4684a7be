# C types for record_gathering.py; see there for what everything means.

cimport cython

from .gathering cimport Gathered
from .record_cursor cimport RecordCursor

cdef extern from "kernel.h" nogil:
    void copy_bytes(
        unsigned char *data, long long position, const unsigned char *content, long long start,
        long long length,
    )

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

cdef inline int *int32s(object array) noexcept:
    return <int *>PyByteArray_AS_STRING(array)

cdef inline long long *int64s(object array) noexcept:
    return <long long *>PyByteArray_AS_STRING(array)

cdef int _RECORD
cdef long long _LARGEST_INT32

@cython.locals(
    data="unsigned char *", room="long long", cursor="RecordCursor", count="long long",
    found="Gathered", offsets="long long *", timestamps="long long *", types="unsigned char *",
    key_ends="int *", value_ends="int *", key_valid="unsigned char *",
    value_valid="unsigned char *", key_data="unsigned char *", value_data="unsigned char *",
    row="long long", key_at="long long", value_at="long long", key_nulls="long long",
    value_nulls="long long", offset="long long", length="long long",
)
cdef tuple _gather(
    object view, long long base_offset, long long base_timestamp_ms, long long append_time_ms,
    long long from_offset, bint with_keys, bint with_values, bint with_headers,
)
