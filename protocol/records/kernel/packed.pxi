# Messages in msgpack: maps of named fields, each number and length in its shortest form. Which fields
# they are stands in a `PackedMessage`, made by `protocol.api.native.frames` of the declarations. What
# is read is decoded by msgspec.

cdef class PackedField:
    """Writes one field, or one item of an array."""

    cdef int kind
    cdef object clip
    cdef PackedMessage message
    cdef PackedField item

    def __init__(self, str kind, clip, message, item):
        """`kind` is a `FieldKind`; `clip` cuts a text that may be too long. A message has its writer, an
        array that of its items."""
        self.kind = ord(kind)
        self.clip = clip
        self.message = message
        self.item = item

    cdef int write(self, object value, Output output) except -1:
        cdef int kind = self.kind
        cdef const char *text
        cdef Py_ssize_t size
        cdef const unsigned char[:] content
        cdef PackedField item
        if kind == MESSAGE:
            return self.message.fields(value, output)
        if value is None:
            return put_head(output, 0xC0, 0, 0)
        if kind == INT64 or kind == INT32 or kind == INT16 or kind == INT8:
            return put_number(output, value)
        if kind == BOOLEAN:
            return put_head(output, 0xC3 if value else 0xC2, 0, 0)
        if kind == TEXT:
            if self.clip is not None:
                value = self.clip(value)
            text = PyUnicode_AsUTF8AndSize(value, &size)
            if size < 0x20:
                put_head(output, 0xA0 | <int> size, 0, 0)
            else:
                put_sized(output, 0xD9, size)
            return output.put_bytes(text, size)
        if kind == FLOAT64:
            put_head(output, 0xCB, 0, 0)
            return output.put(bits_of(value), 8)
        size = len(value)
        if kind == ARRAY:
            put_items(output, 0x90, 0xDC, size)
            item = self.item
            for each in value:
                item.write(each, output)
            return 0
        put_sized(output, 0xC4, size)
        if kind == VIEW:
            return output.put_part(value)
        content = value
        return output.put_bytes(&content[0], size) if size else 0


cdef class PackedMessage(FrameWriter):
    """Writes messages of one class in one version; frames of them are arrays of their values."""

    cdef list keys
    cdef list optional

    def __init__(self, list fields):
        """`fields` are, in their order, a name, a `PackedField` and a tuple: of the one value with which
        the field is left out, or empty."""
        self.slots = Slots(tuple(name for name, _, _ in fields))
        self.keys = [bytes([0xA0 | len(name)]) + name.encode() for name in self.slots.names]
        self.writers = [writer for _, writer, _ in fields]
        self.optional = [left_out for _, _, left_out in fields]
        if any(len(key) > 0x20 for key in self.keys):
            raise ValueError("a name of a field has more than 31 bytes")

    cdef int write(self, tuple values, Output output) except -1:
        cdef Py_ssize_t position
        FrameWriter.write(self, values, output)
        put_items(output, 0x90, 0xDC, len(self.writers))
        for position in range(len(self.writers)):
            (<PackedField> self.writers[position]).write(values[position], output)
        return 0

    cdef int fields(self, object message, Output output) except -1:
        cdef Py_ssize_t position, count = len(self.writers), written = count
        cdef unsigned int left_out = 0
        cdef bytes key
        cdef tuple without
        for position in range(count):
            without = <tuple> self.optional[position]
            if without:
                value = self.slots.get(message, position)
                if value is without[0] or value == without[0]:
                    left_out |= <unsigned int> 1 << position
                    written -= 1
        put_items(output, 0x80, 0xDE, written)
        for position in range(count):
            if left_out >> position & 1:
                continue
            key = <bytes> self.keys[position]
            output.put_bytes(PyBytes_AS_STRING(key), len(key))
            value = self.slots.get(message, position)
            (<PackedField> self.writers[position]).write(value, output)
        return 0


cdef class TextLimits:
    cdef Slots slots
    cdef list limits
    cdef readonly long long shortest

    def __init__(self, list limits):
        """`reference.TextLimits`."""
        self.slots = Slots(tuple(name for name, _ in limits))
        self.limits = [limit for _, limit in limits]
        self.shortest = LARGEST_INT64
        for limit in self.limits:
            shortest = limit.shortest if type(limit) is TextLimits else limit
            self.shortest = min(self.shortest, <long long> shortest)

    def check(self, message):
        self.look(message)

    cdef int look(self, object message) except -1:
        cdef Py_ssize_t position
        for position in range(len(self.limits)):
            value = self.slots.get(message, position)
            if value is None:
                continue
            if type(value) is not list:
                self.look_at(value, position)
                continue
            for each in value:
                self.look_at(each, position)
        return 0

    cdef int look_at(self, object value, Py_ssize_t position) except -1:
        cdef Py_ssize_t size
        limit = <object> self.limits[position]
        if type(limit) is TextLimits:
            return (<TextLimits> limit).look(value)
        PyUnicode_AsUTF8AndSize(value, &size)
        if size > <Py_ssize_t> limit:
            raise ValueError(f"{self.slots.names[position]} has more than {limit} bytes")
        return 0


cdef class RequestReader:
    cdef object decode, wrong
    cdef TextLimits texts
    cdef bytes begin
    cdef Py_ssize_t most_bytes

    def __init__(
        self, decode, wrong, bytes begin not None, most_bytes, TextLimits texts not None
    ):
        """`reference.RequestReader`."""
        self.decode, self.wrong, self.texts = decode, wrong, texts
        self.begin, self.most_bytes = begin, most_bytes

    def read(self, frame):
        cdef Py_buffer content
        cdef Py_ssize_t size
        cdef bint begins
        PyObject_GetBuffer(frame, &content, PyBUF_SIMPLE)
        size = content.len
        begins = size >= len(self.begin) and not memcmp(
            content.buf, PyBytes_AS_STRING(self.begin), len(self.begin)
        )
        PyBuffer_Release(&content)
        if not begins or size > self.most_bytes:
            return None
        try:
            found = self.decode(frame)
            if size > self.texts.shortest:
                self.texts.look(found)
        except self.wrong:
            return None
        return found


cdef inline int put_head(Output output, int first, unsigned long long number, int size) except -1:
    """A first byte, and a number of so many bytes behind it."""
    cdef unsigned char *to = output.more(1 + size)
    cdef int position
    to[0] = <unsigned char> first
    for position in range(size):
        to[1 + position] = <unsigned char> (number >> 8 * (size - 1 - position))
    return 0


cdef int put_number(Output output, long long value) except -1:
    cdef unsigned long long bits = <unsigned long long> value
    if -0x20 <= value < 0x80:
        return put_head(output, <int> (bits & 0xFF), 0, 0)
    if value >= 0:
        if value < 0x100:
            return put_head(output, 0xCC, bits, 1)
        if value < 0x10000:
            return put_head(output, 0xCD, bits, 2)
        if value < 0x100000000:
            return put_head(output, 0xCE, bits, 4)
        return put_head(output, 0xCF, bits, 8)
    if value >= -0x80:
        return put_head(output, 0xD0, bits, 1)
    if value >= -0x8000:
        return put_head(output, 0xD1, bits, 2)
    if value >= -0x80000000:
        return put_head(output, 0xD2, bits, 4)
    return put_head(output, 0xD3, bits, 8)


cdef int put_sized(Output output, int first, Py_ssize_t size) except -1:
    """What stands before so many bytes; `first` is for those whose number takes one byte."""
    if size < 0x100:
        return put_head(output, first, size, 1)
    if size < 0x10000:
        return put_head(output, first + 1, size, 2)
    return put_head(output, first + 2, size, 4)


cdef int put_items(Output output, int few, int many, Py_ssize_t count) except -1:
    """What stands before so many items; `few` for less than 16, `many` where the number takes two
    bytes."""
    if count < 0x10:
        return put_head(output, few | <int> count, 0, 0)
    if count < 0x10000:
        return put_head(output, many, count, 2)
    return put_head(output, many + 1, count, 4)
