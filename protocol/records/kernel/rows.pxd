# C types for rows.py; see there for what everything means.

cimport cython

# Nothing of it is called; it puts the digest of the sources into the module.
cdef extern from "kernel.h":
    pass

cdef extern from "Python.h":
    char *PyByteArray_AS_STRING(object array)

cdef inline long long *int64s(object array) noexcept:
    return <long long *>PyByteArray_AS_STRING(array)

cdef long long _INT64_BYTES

@cython.locals(smallest="long long", largest="long long", time_ms="long long")
cpdef bint only_times(object column, object smallest_ms, object largest_ms) except -1

@cython.locals(
    count="long long", ends="long long *", each="long long", total="long long", row="long long",
)
cpdef object row_ends(object values, object keys, object overhead)
