# C types for batch_head.py; see there for what everything means.

cimport cython

cdef extern from "kernel.h" nogil:
    int int32_at(const unsigned char *data, long long position)
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

cdef long long _OVERHEAD, _CRC, _BITS, _LAST_DELTA, _RECORDS
cdef int _CODEC_MASK, _HIGHEST_CODEC, _BAD_SIZE, _BAD_CRC, _BAD_CODEC, _BAD_COUNT

@cython.locals(
    data="unsigned char *", stored="unsigned int", computed="unsigned int", delta="long long",
    records="long long",
)
cpdef int batch_problem(
    object view, long long position, long long stop, bint check_crc
) except? -100

cdef object _crc32c(object view, long long start, long long end)
