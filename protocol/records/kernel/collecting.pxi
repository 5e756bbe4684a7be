# Messages of a producer that wait to be sent as one set, and their byte budget.

from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.ref cimport Py_INCREF


cdef extern from "Python.h":
    ctypedef object (*Allocator)(type kind, Py_ssize_t count)
    ctypedef struct PyTypeObject:
        Allocator tp_alloc


cdef class ByteRoom:
    cdef public long long limit_bytes, taken_bytes
    cdef public bint held

    def __init__(self, long long limit_bytes):
        self.limit_bytes = limit_bytes

    def take(self, long long size_bytes):
        return took(self, size_bytes)


cdef inline bint took(ByteRoom room, long long size_bytes) noexcept:
    if room.held or room.taken_bytes + size_bytes > room.limit_bytes:
        return False
    room.taken_bytes += size_bytes
    return True


cdef class Collected:
    cdef public list keys, values, times_ms, waiters
    cdef public long long size_bytes

    def __cinit__(self):
        self.keys, self.values, self.times_ms, self.waiters = [], [], [], []

    def add(
        self, value, key, time_ms, long long limit_bytes, ByteRoom room not None, new_waiter,
    ):
        cdef long long size = HEAD_BYTES + V1_OVERHEAD
        if value is not None:
            if type(value) is not bytes:
                return None
            size += len(<bytes>value)
        if key is not None:
            if type(key) is not bytes:
                return None
            size += len(<bytes>key)
        if self.size_bytes + size > limit_bytes or not took(room, size):
            return None
        return self.append(value, key, time_ms, size, new_waiter())

    cpdef append(self, value, key, time_ms, long long size_bytes, waiter):
        self.keys.append(key)
        self.values.append(value)
        self.times_ms.append(time_ms)
        self.waiters.append(waiter)
        self.size_bytes += size_bytes
        return waiter

    def place(
        self, Py_ssize_t begin, Py_ssize_t end, type made_of not None, tuple target not None,
        long long base_offset, time_ms, long long expired_before_ms=NO_TIME,
    ):
        cdef Py_ssize_t row
        cdef bint own = time_ms == NO_TIME
        cdef object given = time_ms, offset = base_offset, expired = False
        cdef long long own_ms
        if not issubclass(made_of, tuple) or len(target) != 2:
            raise TypeError("a place is a tuple with two fields of the target")
        for row in range(max(begin, 0), end):
            if row >= len(self.waiters) or row >= len(self.times_ms):
                break
            waiter = self.waiters[row]
            self.waiters[row] = None
            if waiter is None or waiter.done():
                continue
            if own:
                given = self.times_ms[row]
                if given == NO_TIME:
                    given = None
            if base_offset >= 0:
                offset = base_offset + row
            if expired_before_ms != NO_TIME:
                own_ms = self.times_ms[row]
                expired = NO_TIME < own_ms < expired_before_ms
            waiter.set_result(place_of(made_of, target, offset, given, expired))


# Returns `made_of(*target, offset, time_ms, expired)`, without calling a Python function.
cdef object place_of(type made_of, tuple target, object offset, object time_ms, object expired):
    cdef object place = (<PyTypeObject *>made_of).tp_alloc(made_of, 5)
    set_field(place, 0, target[0])
    set_field(place, 1, target[1])
    set_field(place, 2, offset)
    set_field(place, 3, time_ms)
    set_field(place, 4, expired)
    return place


cdef inline void set_field(object place, Py_ssize_t number, object field) noexcept:
    Py_INCREF(field)  # the tuple takes over the reference
    PyTuple_SET_ITEM(place, number, field)
