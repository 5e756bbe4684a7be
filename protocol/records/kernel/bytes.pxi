# Buffers in memory, numbers in them, and the positions of fields.

cdef extern from "kernel.h" nogil:
    const char *horolog_sources
    long long int64_at(const unsigned char *data, long long position)
    int int32_at(const unsigned char *data, long long position)
    int int16_at(const unsigned char *data, long long position)
    long long own_int64_at(const unsigned char *data, long long position)
    int own_int32_at(const unsigned char *data, long long position)
    void put_int64(unsigned char *data, long long position, long long value)
    void put_int32(unsigned char *data, long long position, long long value)
    void copy_bytes(
        unsigned char *data, long long position, const unsigned char *content, long long start,
        long long length,
    )
    ctypedef struct horolog_record:
        const unsigned char *start
        const unsigned char *key_at
        const unsigned char *value_at
        int time, offset, key, value
    const unsigned char *usual_record(
        const unsigned char *at, const unsigned char *end, horolog_record *found
    )
    ctypedef struct horolog_run:
        int smallest, largest, largest_at
        long long sum
    long long usual_run(
        const unsigned char **at, const unsigned char *end, int count, int low, int high,
        long long base, long long *time, long long most, bint keyed, horolog_run *found,
    )
    unsigned int crc32_at(const unsigned char *data, long long position, long long length)
    unsigned int crc32c_at(const unsigned char *data, long long position, long long length)

cdef extern from "Python.h":
    bint PyMemoryView_Check(object view)
    Py_buffer *PyMemoryView_GET_BUFFER(object view)
    bint PyBuffer_IsContiguous(const Py_buffer *buffer, char order)
    char *PyByteArray_AS_STRING(object array)
    bytearray PyByteArray_FromStringAndSize(const char *content, Py_ssize_t size)
    char *PyBytes_AS_STRING(object content)

# The same numbers as in `layout`, as compile-time constants; a test compares `LAYOUT` with them.
cdef enum:
    HEAD_BYTES = 12
    SIZE = 8
    CRC = 12
    MAGIC = 16
    BITS = 17
    TIME = 18
    TIME_BYTES = 8
    LENGTH_BYTES = 4
    CRC_BYTES = 4
    V0_OVERHEAD = 14
    V1_OVERHEAD = 22
    SMALLEST_ENTRY = 26
    V0_KEY = 18
    V1_KEY = 26

    BATCH_OVERHEAD = 61
    LEADER_EPOCH = 12
    BATCH_CRC = 17
    BATCH_BITS = 21
    LAST_DELTA = 23
    BASE_TIME = 27
    MAX_TIME = 35
    PRODUCER_ID = 43
    PRODUCER_EPOCH = 51
    SEQUENCE = 53
    RECORD_COUNT = 57

    CODEC_MASK = 0x07
    APPEND_TIME = 0x08
    CONTROL = 0x20
    RESERVED = 0xF0
    HIGHEST_MESSAGE_CODEC = 3
    HIGHEST_CODEC = 4
    NO_TIME = -1
    NO_NUMBER = -1
    BUCKETS = 19
    FIRST_BYTES = 512

cdef long long LARGEST_INT32 = 0x7FFFFFFF
cdef long long SMALLEST_INT32 = -0x80000000
cdef long long LARGEST_INT64 = 0x7FFFFFFFFFFFFFFF
cdef long long SMALLEST_INT64 = ~LARGEST_INT64
cdef long long LARGE = 1LL << 62
cdef long long[18] BOUNDS
BOUNDS[:] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000,
    3_600_000, 86_400_000,
]
BOUNDS_MS = tuple(BOUNDS)


# The memoryview keeps its bytes in memory as long as the function keeps the view.
cdef inline unsigned char *bytes_of(object view) except? NULL:
    if not PyMemoryView_Check(view):
        raise TypeError(f"{type(view).__name__}: it must be a memoryview")
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.itemsize != 1 or not PyBuffer_IsContiguous(buffer, b"C"):
        raise BufferError("the bytes of a message set must follow each other in memory")
    return <unsigned char *>buffer.buf


cdef inline unsigned char *writable(object array) noexcept:
    return <unsigned char *>PyByteArray_AS_STRING(array)


cdef inline const unsigned char *content_of(object content) noexcept:
    if content is None:
        return NULL
    return <const unsigned char *>PyBytes_AS_STRING(content)


cdef inline bytearray undefined(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)


cdef inline int *int32s(bytearray array) noexcept:
    return <int *>PyByteArray_AS_STRING(array)


cdef inline long long *int64s(bytearray array) noexcept:
    return <long long *>PyByteArray_AS_STRING(array)


# A sum of numbers from messages may have any size; it wraps around, as in the format.
cdef inline long long added(long long one, long long other) noexcept:
    return <long long>(<unsigned long long>one + <unsigned long long>other)


cdef inline int bucket_of(long long latency_ms) noexcept:
    cdef int bucket = 0
    while bucket < BUCKETS - 1 and latency_ms > BOUNDS[bucket]:
        bucket += 1
    return bucket


cdef inline list counts_of(const long long *counts):
    return [counts[number] for number in range(BUCKETS)]


cdef inline bytes flat(object content):
    """Return the bytes of any buffer; `None` stays `None`."""
    if content is None or type(content) is bytes:
        return content
    return bytes(memoryview(content))
