# Fields of Kafka's protocol, of which messages are sequences. `protocol.api.kafka.fields` builds a
# `MessageReader` and a `MessageWriter` from each declaration.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcmp, memcpy


cdef extern from "Python.h":
    object PyObject_Vectorcall(object callable, PyObject *const *args, size_t count, object names)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        int type
        Py_ssize_t offset

    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member

    PyTypeObject PyMemberDescr_Type
    int T_OBJECT_EX


cdef enum:
    MOST_FIELDS = 32
    KEPT_TEXT_BYTES = 64
    NULL_LENGTH = -1

    # FieldKind
    INT8 = 98
    INT16 = 104
    INT32 = 105
    INT64 = 113
    FLOAT64 = 100
    BOOLEAN = 63
    TEXT = 115
    BYTES = 112
    VIEW = 118
    MESSAGE = 109
    ARRAY = 97


cdef struct Place:
    const unsigned char *data
    Py_ssize_t at
    Py_ssize_t size
    long long room  # number of values that arrays may still have


cdef class FieldReader:
    """Decodes one field, or one item of an array."""

    cdef int kind
    cdef bint nullable
    cdef Py_ssize_t limit
    cdef MessageReader message
    cdef FieldReader item
    cdef Py_ssize_t item_bytes
    cdef Py_ssize_t item_values
    cdef object kept  # the last short text: most names are those of the message before

    def __init__(self, str kind, limit, nullable, message, item, item_bytes, item_values):
        """`kind` is a `FieldKind`; `limit` is the maximum number of bytes or items. `message` is
        the reader of a message, `item` that of the items of an array; an item has at least
        `item_bytes` and counts as `item_values`."""
        self.kind = ord(kind)
        self.limit = limit
        self.nullable = nullable
        self.message = message
        self.item = item
        self.item_bytes = item_bytes
        self.item_values = item_values

    cdef object read(self, Place *place, object view):
        cdef Py_ssize_t length, begin
        cdef int kind = self.kind
        if kind == INT32:
            return <int> number(place, 4)
        if kind == INT64:
            return number(place, 8)
        if kind == INT16:
            return <short> number(place, 2)
        if kind == INT8:
            return <signed char> number(place, 1)
        if kind == BOOLEAN:
            return number(place, 1) != 0
        if kind == MESSAGE:
            return self.message.fields(place, view)
        if kind == ARRAY:
            return self.array(place, view)
        if kind == FLOAT64:
            return float_of(number(place, 8))
        length = <short> number(place, 2) if kind == TEXT else <int> number(place, 4)
        if length == NULL_LENGTH and self.nullable:
            return None
        if length < 0 or length > self.limit or length > place.size - place.at:
            raise Unreadable
        begin = place.at
        place.at += length
        if kind == TEXT:
            return self.text(<const char *> place.data + begin, length)
        if kind == VIEW:
            return view[begin : begin + length]
        return <bytes> (<const char *> place.data)[begin : begin + length]

    cdef object text(self, const char *data, Py_ssize_t size):
        cdef Py_ssize_t kept_size
        if self.kept is not None:
            kept_data = PyUnicode_AsUTF8AndSize(self.kept, &kept_size)
            if kept_size == size and not memcmp(kept_data, data, size):
                return self.kept
        found = PyUnicode_DecodeUTF8(data, size, NULL)
        if size <= KEPT_TEXT_BYTES:
            self.kept = found
        return found

    cdef object array(self, Place *place, object view):
        cdef Py_ssize_t count = <int> number(place, 4)
        cdef list items
        cdef FieldReader item = self.item
        if count == NULL_LENGTH and self.nullable:
            return None
        if count < 0 or count > self.limit or count * self.item_bytes > place.size - place.at:
            raise Unreadable
        place.room -= count * self.item_values
        if place.room < 0:
            raise Unreadable
        items = []
        for _ in range(count):
            items.append(item.read(place, view))
        return items


cdef class MessageReader:
    """Decodes messages of one class in one version."""

    cdef object struct
    cdef tuple names
    cdef list readers

    def __init__(self, object struct, list fields):
        """`fields` are pairs of a name and a `FieldReader`, in the order of the bytes."""
        if len(fields) > MOST_FIELDS:
            raise ValueError(f"{struct} has more than {MOST_FIELDS} fields")
        self.struct = struct
        self.names = tuple(name for name, _ in fields)
        self.readers = [reader for _, reader in fields]

    def read(self, object data not None, Py_ssize_t at, long long room):
        """Return the message at position `at` of a frame, with views of it, the position after it,
        and the rest of `room`.

        `room` is the number of values that arrays may have. Raises `Unreadable` or
        `UnicodeDecodeError`.
        """
        cdef const unsigned char[:] content = data
        cdef Place place
        place.data = &content[0] if content.shape[0] else NULL
        place.at = at
        place.size = content.shape[0]
        place.room = room if room > 0 else 0
        if not 0 <= at <= place.size:
            raise Unreadable
        message = self.fields(&place, memoryview(data))
        return message, place.at, place.room

    def whole(self, bytes begin not None, long long room, object data not None):
        """Return the message that fills a frame; `None` if the frame does not start with `begin`,
        or is not such a message. `room` is as in `read`."""
        cdef Py_buffer content
        cdef Py_ssize_t size = len(begin)
        cdef Place place
        PyObject_GetBuffer(data, &content, PyBUF_SIMPLE)
        try:
            if content.len <= size or memcmp(content.buf, <const char *> begin, size):
                return None
            place.data = <const unsigned char *> content.buf
            place.at = 0
            place.size = content.len
            place.room = room if room > 0 else 0
            message = self.fields(&place, data if type(data) is memoryview else memoryview(data))
            return message if place.at == place.size else None
        except (Unreadable, UnicodeDecodeError):
            return None
        finally:
            PyBuffer_Release(&content)

    cdef object fields(self, Place *place, object view):
        cdef PyObject *values[MOST_FIELDS]
        cdef Py_ssize_t number_of = 0, position
        cdef FieldReader reader
        try:
            for reader in self.readers:
                value = reader.read(place, view)
                Py_INCREF(value)
                values[number_of] = <PyObject *> value
                number_of += 1
            return PyObject_Vectorcall(self.struct, values, 0, self.names)
        finally:
            for position in range(number_of):
                Py_DECREF(<object> values[position])


cdef inline long long number(Place *place, int size) except? -1:
    cdef Py_ssize_t at = place.at
    if place.size - at < size:
        raise Unreadable
    place.at = at + size
    if size == 4:
        return int32_at(place.data, at)
    if size == 8:
        return int64_at(place.data, at)
    if size == 2:
        return int16_at(place.data, at)
    return place.data[at]


cdef inline double float_of(long long bits) noexcept:
    """Return the number with these bits in IEEE 754."""
    cdef double found
    memcpy(&found, &bits, 8)
    return found


cdef inline long long bits_of(double value) noexcept:
    cdef long long bits
    memcpy(&bits, &value, 8)
    return bits


cdef class Output:
    """Encoded bytes, and between them record sets that are not copied."""

    cdef unsigned char *data
    cdef Py_ssize_t size
    cdef Py_ssize_t room
    cdef list parts
    cdef Py_ssize_t parts_bytes

    def __cinit__(self):
        self.room = 512
        self.data = <unsigned char *> PyMem_Malloc(self.room)
        if self.data == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef unsigned char *more(self, Py_ssize_t size) except NULL:
        """Return the memory for the next `size` bytes."""
        cdef unsigned char *grown
        cdef Py_ssize_t begin = self.size
        if size > self.room - begin:
            self.room = 2 * (begin + size)
            grown = <unsigned char *> PyMem_Realloc(self.data, self.room)
            if grown == NULL:
                raise MemoryError
            self.data = grown
        self.size = begin + size
        return self.data + begin

    cdef int put(self, long long value, int size) except -1:
        """Append an integer of `size` bytes."""
        cdef unsigned char *to
        cdef long long limit = <long long> 1 << (8 * size - 1) if size < 8 else 0
        if limit and not -limit <= value < limit:
            raise OverflowError(f"{value} is no integer of {8 * size} bits")
        to = self.more(size)
        if size == 4:
            put_int32(to, 0, value)
        elif size == 8:
            put_int64(to, 0, value)
        elif size == 2:
            to[0], to[1] = <unsigned char> (value >> 8), <unsigned char> value
        else:
            to[0] = <unsigned char> value
        return 0

    cdef int put_bytes(self, const void *data, Py_ssize_t size) except -1:
        memcpy(self.more(size), data, size)
        return 0

    cdef int put_part(self, object part) except -1:
        """Append a record set as a part of its own."""
        if self.parts is None:
            self.parts = []
        if self.size:
            self.parts.append(PyBytes_FromStringAndSize(<char *> self.data, self.size))
            self.parts_bytes += self.size
            self.size = 0
        self.parts.append(part)
        self.parts_bytes += len(part)
        return 0

    cdef object frame(self, bint joined):
        """Return the output; its first four bytes become its length. The result is in parts unless
        `joined` is set and all parts are in memory."""
        cdef Py_ssize_t size = frame_size(self.parts_bytes + self.size)
        if self.parts is None:
            set_length(self.data, size)
            whole = PyBytes_FromStringAndSize(<char *> self.data, self.size)
            return whole if joined else [whole]
        if self.size:
            self.parts.append(PyBytes_FromStringAndSize(<char *> self.data, self.size))
        set_length(<unsigned char *> PyBytes_AS_STRING(self.parts[0]), size)
        if joined:
            try:
                return b"".join(self.parts)
            except TypeError:
                pass
        return self.parts


cdef class FieldWriter:
    """Encodes one field, or one item of an array."""

    cdef int kind
    cdef object clip
    cdef MessageWriter message
    cdef FieldWriter item

    def __init__(self, str kind, clip, message, item):
        """`kind` is a `FieldKind`; `clip` cuts a text that may be too long. `message` is the writer
        of a message, `item` that of the items of an array."""
        self.kind = ord(kind)
        self.clip = clip
        self.message = message
        self.item = item

    cdef int write(self, object value, Output output) except -1:
        cdef int kind = self.kind
        cdef const char *text
        cdef Py_ssize_t size
        cdef const unsigned char[:] content
        cdef FieldWriter item
        if kind == INT32:
            return output.put(value, 4)
        if kind == INT64:
            return output.put(value, 8)
        if kind == INT16:
            return output.put(value, 2)
        if kind == INT8:
            return output.put(value, 1)
        if kind == BOOLEAN:
            return output.put(1 if value else 0, 1)
        if kind == MESSAGE:
            return self.message.fields(value, output)
        if kind == TEXT:
            if value is None:
                return output.put(NULL_LENGTH, 2)
            if self.clip is not None:
                value = self.clip(value)
            text = PyUnicode_AsUTF8AndSize(value, &size)
            output.put(size, 2)
            return output.put_bytes(text, size)
        if kind == FLOAT64:
            return output.put(bits_of(value), 8)
        if value is None:
            return output.put(NULL_LENGTH, 4)
        output.put(len(value), 4)
        if kind == VIEW:
            return output.put_part(value)
        if kind == BYTES:
            content = value
            size = content.shape[0]
            return output.put_bytes(&content[0], size) if size else 0
        item = self.item
        for each in value:
            item.write(each, output)
        return 0


cdef class Slots:
    """Fast access to some fields of objects, which mostly have the same class."""

    cdef tuple names
    cdef object kept  # the class of the last object; the next one mostly has the same
    cdef Py_ssize_t places[MOST_FIELDS]

    def __init__(self, tuple names):
        if len(names) > MOST_FIELDS:
            raise ValueError(f"a message has more than {MOST_FIELDS} fields")
        self.names = names

    # Returns the address of an object's field; `NULL` if it is not a slot.
    cdef inline PyObject **place(self, object message, Py_ssize_t position) except? NULL:
        if type(message) is not self.kept:
            self.find(type(message))
        if not self.places[position]:
            return NULL
        return <PyObject **> (<char *> <PyObject *> message + self.places[position])

    cdef inline object get(self, object message, Py_ssize_t position):
        cdef PyObject **place = self.place(message, position)
        if place != NULL and place[0] != NULL:
            return <object> place[0]
        return getattr(message, <object> self.names[position])

    cdef inline int put(self, object message, Py_ssize_t position, object value) except -1:
        cdef PyObject **place = self.place(message, position)
        cdef PyObject *before
        if place == NULL:
            setattr(message, <object> self.names[position], value)
            return 0
        before = place[0]
        Py_INCREF(value)
        place[0] = <PyObject *> value
        if before != NULL:
            Py_DECREF(<object> before)
        return 0

    # Finds the positions of the fields in objects of a class, if they are slots.
    cdef int find(self, object kind) except -1:
        cdef Py_ssize_t position
        cdef PyMemberDef *member
        self.kept = None
        for position, name in enumerate(self.names):
            found = getattr(kind, name, None)
            self.places[position] = 0
            if type(found) is <object> &PyMemberDescr_Type and issubclass(kind, found.__objclass__):
                member = (<PyMemberDescrObject *> <PyObject *> found).d_member
                if member.type == T_OBJECT_EX:
                    self.places[position] = member.offset
        self.kept = kind
        return 0


cdef class FrameWriter:
    """Encodes frames of values, with a writer for each value."""

    cdef Slots slots
    cdef list writers

    def frame(self, *values):
        """Encode a message with these values, with its length in front; as a list of parts if a
        record set is not in memory."""
        return self.written(values).frame(True)

    def parts(self, *values):
        """Like `frame`, in parts; each record set is a part."""
        return self.written(values).frame(False)

    def joined(self, *columns):
        """Encode several messages and join their frames; each column has the values of one field.
        There must be no record sets."""
        cdef Output output = Output()
        cdef Py_ssize_t begin
        for values in zip(*columns, strict=True):
            begin = output.size
            self.write(values, output)
            if output.parts is not None:
                raise ValueError("there are record sets, which are parts of their own")
            set_length(output.data + begin, frame_size(output.size - begin))
        return PyBytes_FromStringAndSize(<char *> output.data, output.size)

    cdef Output written(self, tuple values):
        cdef Output output = Output()
        self.write(values, output)
        return output

    # Encodes the values, after four bytes for the length.
    cdef int write(self, tuple values, Output output) except -1:
        if len(values) != len(self.writers):
            raise ValueError(f"{len(values)} values for {len(self.writers)} fields")
        return output.put(0, 4)


cdef class MessageWriter(FrameWriter):
    """Encodes messages of one class in one version."""

    def __init__(self, list fields):
        """`fields` are pairs of a name and a `FieldWriter`, in the order of the bytes."""
        self.slots = Slots(tuple(name for name, _ in fields))
        self.writers = [writer for _, writer in fields]

    cdef int write(self, tuple values, Output output) except -1:
        cdef Py_ssize_t position
        FrameWriter.write(self, values, output)
        for position in range(len(self.writers)):
            (<FieldWriter> self.writers[position]).write(values[position], output)
        return 0

    cdef int fields(self, object message, Output output) except -1:
        cdef Py_ssize_t position
        for position in range(len(self.writers)):
            value = self.slots.get(message, position)
            (<FieldWriter> self.writers[position]).write(value, output)
        return 0


# Returns the length field of a frame that has `size` bytes with the length field itself.
cdef Py_ssize_t frame_size(Py_ssize_t size) except -1:
    if size - LENGTH_BYTES > LARGEST_INT32:
        raise OverflowError(f"a frame of {size - LENGTH_BYTES} bytes")
    return size - LENGTH_BYTES


cdef void set_length(unsigned char *to, Py_ssize_t size) noexcept:
    cdef int position
    for position in range(4):
        to[position] = <unsigned char> (size >> 8 * (3 - position))


def grown_buffer(object content not None, Py_ssize_t size_bytes):
    """`reference.grown_buffer`."""
    cdef const unsigned char[:] held = content
    if size_bytes < held.shape[0]:
        raise ValueError(f"{held.shape[0]} bytes in a buffer of {size_bytes}")
    grown = undefined(size_bytes)
    if held.shape[0]:
        memcpy(writable(grown), &held[0], held.shape[0])
    return grown


def split_frames(object content not None, Py_ssize_t end, Py_ssize_t most_bytes):
    """`reference.split_frames`."""
    cdef const unsigned char[:] received = content
    cdef Py_ssize_t start = 0
    cdef int length = 0
    cdef list frames = []
    if not 0 <= end <= received.shape[0]:
        raise IndexError(f"no {end} bytes in a buffer of {received.shape[0]}")
    while end - start >= LENGTH_BYTES:
        length = int32_at(&received[0], start)
        if length <= 0 or length > most_bytes or length > end - start - LENGTH_BYTES:
            return frames, start, length
        start += LENGTH_BYTES + length
        frames.append(content[start - length : start])
    return frames, start, 0
