# C types for record_cursor.py; see there for what everything means.

cimport cython

cdef extern from "kernel.h" nogil:
    int short_at(const unsigned char *data, long long *at)

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
cdef long long _SMALLEST
cdef int _INT32_BYTES, _INT64_BYTES, _INT32_TOP, _INT64_TOP

@cython.final
cdef class RecordCursor:
    cdef object _view
    cdef unsigned char *_data
    cdef long long _at, _end, _stop
    cdef readonly long long position, following, timestamp_delta_ms, offset_delta
    cdef readonly long long key_at, key_bytes, value_at, value_bytes, headers_at, header_count
    cdef readonly int attributes

    cpdef object begin(self, long long start, long long end)

    cpdef int step(self)

    @cython.locals(length="long long", start="long long", stop="long long", count="long long")
    cpdef int step_any(self)

    @cython.locals(at="long long", small="int", second="int")
    cdef inline long long _varint(self, int most_bytes, unsigned int top) noexcept

    @cython.locals(
        at="long long", last="long long", byte="unsigned int", shift="int",
        wide="unsigned long long", number="unsigned long long",
    )
    cdef long long _long_varint(self, int most_bytes, unsigned int top) noexcept

# Go to the next record if it is like most: its numbers take one or two bytes each, and it has no
# headers. Else nothing is changed, whatever is wrong with it.
cdef inline bint usual(RecordCursor cursor) noexcept:
    cdef const unsigned char *data = cursor._data
    cdef long long at = cursor.following, end = cursor._end, start, stop, key_at, value_at
    cdef int length, time, offset, key, value
    if end - at < 9:  # four numbers and the attributes
        return False
    length = short_at(data, &at)
    start = at
    stop = start + (length >> 1)
    if length < 0 or length & 1 or stop > end:
        return False
    at += 1
    time = short_at(data, &at)
    offset = short_at(data, &at)
    key = short_at(data, &at)
    if (time | offset | key) < 0:
        return False
    key = key >> 1 ^ -(key & 1)
    key_at = at
    if key > 0:
        at += key
    if end - at < 3:  # a number and the count of headers
        return False
    value = short_at(data, &at)
    value_at = at
    if value < 0:
        return False
    value = value >> 1 ^ -(value & 1)
    if value > 0:
        at += value
    # All of it is inside the record if this is its last byte.
    if at + 1 != stop or data[at] != 0:
        return False
    cursor.position = cursor.following
    cursor.following = cursor.headers_at = stop
    cursor.attributes = data[start]
    cursor.timestamp_delta_ms = time >> 1 ^ -(time & 1)
    cursor.offset_delta = offset >> 1 ^ -(offset & 1)
    cursor.key_at, cursor.key_bytes = key_at, key
    cursor.value_at, cursor.value_bytes = value_at, value
    cursor.header_count = 0
    return True
