# C types for record_packing.py; see there for what everything means.

cimport cython

from .record_cursor cimport RecordCursor

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
    char *PyBytes_AS_STRING(object content)

# The memoryview holds on to its bytes for as long as the function holds on to it.
cdef inline unsigned char *bytes_of(object view) except? NULL:
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.itemsize != 1 or not PyBuffer_IsContiguous(buffer, b"C"):
        raise BufferError("the bytes of a message set must follow each other in memory")
    return <unsigned char *>buffer.buf

# For a key or value that is null nothing is read from there.
cdef inline unsigned char *content_of(object content) noexcept:
    if content is None:
        return NULL
    return <unsigned char *>PyBytes_AS_STRING(content)

cdef inline unsigned char *writable(object array) noexcept:
    return <unsigned char *>PyByteArray_AS_STRING(array)

cdef inline bytearray undefined(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)

cdef inline long long own_int32(const unsigned char *data, long long row) noexcept:
    return (<const int *>data)[row]

cdef inline long long own_int64(const unsigned char *data, long long row) noexcept:
    return (<const long long *>data)[row]

cdef int _RECORD, _NO_MORE
cdef long long _BATCH_OVERHEAD, _ENTRY_OVERHEAD, _SIZE, _MAGIC, _TIME, _TIME_BYTES, _LENGTH_BYTES
cdef long long _V0_OVERHEAD, _V1_OVERHEAD, _NO_TIME, _LARGEST_BATCH, _FIRST_BYTES, _MOST_OVERHEAD
cdef long long _LARGEST_INT64, _INT32_BYTES, _INT64_BYTES

@cython.final
cdef class _Strings:
    cdef tuple _views
    cdef unsigned char *_ends
    cdef unsigned char *_valid
    cdef unsigned char *data
    cdef long long _data_bytes, rows, start
    cdef bint _all_valid

    @cython.locals(end="long long")
    cdef int length(self, long long row) except -2

@cython.final
cdef class RecordEncoder:
    cdef bytearray _out
    cdef long long _room
    cdef readonly long long count, size_bytes, base_timestamp_ms, max_timestamp_ms

    @cython.locals(
        time_ms="long long", key_bytes="long long", value_bytes="long long",
        out="unsigned char *", at="long long", written="bytes",
    )
    cpdef add(self, object value, object key, object timestamp_ms, object headers=*)

    @cython.locals(
        rows="long long", times="unsigned char *", key_data="unsigned char *",
        key_bytes="long long", key_start="long long", row="long long", value_bytes="long long",
        most="long long", time_ms="long long", out="unsigned char *", at="long long",
    )
    cdef object _add_binary(
        self, _Strings values, _Strings keys, object times_view, long long start,
        long long limit_bytes,
    )

    cdef _reserve(self, long long size_bytes)

    @cython.locals(
        data="unsigned char *", out="unsigned char *", position="long long", size="long long",
        stop="long long", time_ms="long long", at="long long", key_bytes="long long",
        key_at="long long", value_bytes="long long", written="long long",
    )
    cdef bint _add_messages(self, object view, long long start, long long end) except -1

    @cython.locals(
        data="unsigned char *", out="unsigned char *", cursor="RecordCursor", step="int",
        time_ms="long long", count_at="long long", header_bytes="long long", at="long long",
    )
    cdef bint _add_records(
        self, object view, long long base_timestamp_ms, long long append_time_ms
    ) except -1

    @cython.locals(
        key_room="long long", value_room="long long", most="long long", delta_ms="long long",
        body_bytes="long long", out="unsigned char *", at="long long",
    )
    cdef bint _begin(
        self, long long time_ms, long long key_bytes, long long value_bytes,
        long long header_bytes,
    ) except -1

    cdef long long _put(
        self, unsigned char *out, long long at, long long length, const unsigned char *content,
        long long start,
    ) noexcept

@cython.locals(folded="unsigned long long", width="int")
cdef int _varint_bytes(long long number) noexcept

@cython.locals(folded="unsigned long long")
cdef long long _put_varint(unsigned char *out, long long at, long long number) noexcept
