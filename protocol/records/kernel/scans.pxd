# C types for scans.py; see there for what everything means.

cimport cython

cdef extern from "kernel.h" nogil:
    long long int64_at(const unsigned char *data, long long position)
    int int32_at(const unsigned char *data, long long position)

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)
    bint PyBuffer_IsContiguous(const Py_buffer *buffer, char order)

# The memoryview holds on to its bytes for as long as the function holds on to it.
cdef inline unsigned char *bytes_of(object view) except? NULL:
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.itemsize != 1 or not PyBuffer_IsContiguous(buffer, b"C"):
        raise BufferError("the bytes of a message set must follow each other in memory")
    return <unsigned char *>buffer.buf

cdef long long _OVERHEAD, _SIZE, _MAGIC, _TIME, _SMALLEST, _SMALLEST_V1, _SMALLEST_BATCH
cdef long long _LAST_DELTA, _BATCH_TIME, _LENGTH_BYTES, _LARGEST_INT64

@cython.locals(
    data="unsigned char *", position="long long", offset="long long", size="long long",
    last="long long", delta="long long",
)
cdef tuple _scan_offset(
    object view, long long start, long long end, long long target_offset
)

@cython.locals(
    data="unsigned char *", position="long long", size="long long", following="long long"
)
cdef tuple _scan_timestamp(
    object view, long long start, long long end, long long target_ms
)

@cython.locals(
    data="unsigned char *", position="long long", size="long long", end="long long",
    whole="long long",
)
cdef list _first_offsets(object view, list set_ends)
