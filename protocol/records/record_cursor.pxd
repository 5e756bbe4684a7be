# C types for record_cursor.py; see there for what everything means.

cimport cython

cdef extern from "kernel.h":
    pass

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)
    bint PyBuffer_IsContiguous(const Py_buffer *buffer, char order)

# The memoryview holds on to its bytes for as long as the function holds on to it.
cdef inline unsigned char *bytes_of(object view) except? NULL:
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.itemsize != 1 or not PyBuffer_IsContiguous(buffer, b"C"):
        raise BufferError("the bytes of a message set must follow each other in memory")
    return <unsigned char *>buffer.buf

cdef int _RECORD, _NO_MORE, _BAD_LENGTH, _BAD_FIELD, _BAD_END
cdef long long _SMALLEST, _USUAL_ROOM, _VALUE_ROOM
cdef int _INT32_BYTES, _INT64_BYTES, _INT32_TOP, _INT64_TOP

@cython.locals(small="int", second="int")
cdef inline int _short(unsigned char *data, long long at) noexcept

@cython.final
cdef class RecordCursor:
    cdef object _view
    cdef unsigned char *_data
    cdef long long _at, _end, _stop
    cdef readonly long long position, following, timestamp_delta_ms, offset_delta
    cdef readonly long long key_at, key_bytes, value_at, value_bytes, headers_at, header_count
    cdef readonly int attributes

    cpdef object begin(self, long long start, long long end)

    @cython.locals(length="long long", start="long long", stop="long long", count="long long")
    cpdef int step(self)

    @cython.locals(
        data="unsigned char *", at="long long", end="long long", start="long long",
        stop="long long", key_at="long long", value_at="long long", length="int", time="int",
        offset="int", key="int", value="int",
    )
    cdef bint _usual(self) noexcept

    @cython.locals(at="long long", small="int", second="int")
    cdef inline long long _varint(self, int most_bytes, unsigned int top) noexcept

    @cython.locals(
        at="long long", last="long long", byte="unsigned int", shift="int",
        wide="unsigned long long", number="unsigned long long",
    )
    cdef long long _long_varint(self, int most_bytes, unsigned int top) noexcept
