# Messages in msgpack: maps of named fields, each value in its shortest form.
# `protocol.api.native.frames` builds a `PackedMessage` from each declaration. msgspec decodes
# messages.

cdef class PackedField:
    """Encodes one field, or one item of an array."""

    cdef int kind
    cdef object clip
    cdef PackedMessage message
    cdef PackedField item

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
    """Encodes messages of one class in one version; a frame is an array of their values."""

    cdef list keys
    cdef list optional

    def __init__(self, list fields):
        """`fields` are, in order: a name, a writer, and a tuple with the value for which the field
        is left out (empty if it never is)."""
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
    cdef Py_ssize_t most_values, most_depth

    def __init__(
        self, decode, wrong, bytes begin not None, most_values, most_depth, TextLimits texts not None
    ):
        """`reference.RequestReader`."""
        self.decode, self.wrong, self.texts = decode, wrong, texts
        self.begin, self.most_values, self.most_depth = begin, most_values, most_depth

    def read(self, frame):
        cdef Py_buffer content
        cdef Py_ssize_t size, at
        cdef bint fits
        check_depth(self.most_depth)
        PyObject_GetBuffer(frame, &content, PyBUF_SIMPLE)
        size = content.len
        fits = size >= len(self.begin) and not memcmp(
            content.buf, PyBytes_AS_STRING(self.begin), len(self.begin)
        ) and find_shape_fault(
            <const unsigned char *> content.buf, size, self.most_values, self.most_depth, &at
        ) == SHAPE_FITS
        PyBuffer_Release(&content)
        if not fits:
            return None
        try:
            found = self.decode(frame)
            if size > self.texts.shortest:
                self.texts.look(found)
        except self.wrong:
            return None
        return found


cdef enum:
    MOST_DEPTH = 32

    SHAPE_FITS = 0
    SHAPE_CUT = 1
    SHAPE_LONG = 2
    SHAPE_FOREIGN = 3
    SHAPE_CUT_ITEMS = 4
    SHAPE_MANY = 5
    SHAPE_DEEP = 6


cdef int check_depth(Py_ssize_t most_depth) except -1:
    if not 0 <= most_depth <= MOST_DEPTH:
        raise ValueError(f"the depth is {most_depth}; it may be 0 to {MOST_DEPTH}")
    return 0


def packed_fault(object data not None, Py_ssize_t most_values, Py_ssize_t most_depth):
    """`reference.packed_fault`."""
    cdef Py_buffer content
    cdef Py_ssize_t at = 0, size
    cdef int fault, first = 0
    check_depth(most_depth)
    PyObject_GetBuffer(data, &content, PyBUF_SIMPLE)
    size = content.len
    fault = find_shape_fault(
        <const unsigned char *> content.buf, size, most_values, most_depth, &at
    )
    if fault == SHAPE_FOREIGN:
        first = (<const unsigned char *> content.buf)[at]
    PyBuffer_Release(&content)
    if fault == SHAPE_FITS:
        return None
    if fault == SHAPE_CUT:
        return "it ends in the middle of a value"
    if fault == SHAPE_LONG:
        return f"{size - at} bytes follow its end"
    if fault == SHAPE_FOREIGN:
        return f"it holds a value of type 0x{first:02x}, which the protocol does not use"
    if fault == SHAPE_CUT_ITEMS:
        return "it ends in the middle of an array or a map"
    if fault == SHAPE_MANY:
        return f"it holds more than {most_values} values"
    return f"it is nested more than {most_depth} deep"


def packed_places(object data not None):
    """`reference.packed_places`."""
    cdef Py_buffer content
    cdef Py_ssize_t size, position = 1
    cdef long long count
    cdef const unsigned char *bytes_of
    cdef int first, width = 0
    cdef list places = []
    PyObject_GetBuffer(data, &content, PyBUF_SIMPLE)
    try:
        bytes_of, size = <const unsigned char *> content.buf, content.len
        first = bytes_of[0] if size else 0
        if 0x80 <= first < 0xA0:
            count = first & 0x0F
        elif first >= 0xDC and first < 0xE0:
            width = 4 if first & 1 else 2
            count = big_endian(bytes_of, size, 1, width)
        else:
            raise ValueError("it is no array and no map")
        if first < 0x90 or 0xDE <= first < 0xE0:
            count *= 2
        position += width
        if count > size - position:
            raise ValueError("it ends in the middle of an array or a map")
        for _ in range(count):
            places.append(position)
            position = behind_value(bytes_of, size, position)
            if position > size:
                raise ValueError("it ends in the middle of a value")
        places.append(position)
        return places
    finally:
        PyBuffer_Release(&content)


# Returns the end of the value at `position`; a position after `size` if the value is incomplete.
cdef Py_ssize_t behind_value(
    const unsigned char *data, Py_ssize_t size, Py_ssize_t position
) noexcept:
    cdef long long due = 1
    cdef int first, width
    while due:
        if position >= size:
            return size + 1
        due -= 1
        first = data[position]
        position += 1
        if first < 0x80 or first >= 0xE0:
            continue
        if first < 0x90:
            due += 2 * (first & 0x0F)
        elif first < 0xA0:
            due += first & 0x0F
        elif first < 0xC0:
            position += first & 0x1F
        elif 0xCA <= first <= 0xD3:
            position += 4 << (first - 0xCA) if first < 0xCC else 1 << ((first - 0xCC) & 3)
        elif 0xC4 <= first <= 0xC6 or 0xD9 <= first <= 0xDB:
            width = 1 << (first - 0xC4) if first < 0xD9 else 1 << (first - 0xD9)
            position += width + big_endian(data, size, position, width)
        elif first >= 0xDC:
            width = 4 if first & 1 else 2
            due += big_endian(data, size, position, width) * (2 if first >= 0xDE else 1)
            position += width
        elif first != 0xC0 and first != 0xC2 and first != 0xC3:
            return size + 1
    return position


# Returns the fault of `data`, and its position. Checks at most `most_values` values. If bytes of a
# number are missing, the others are its value.
cdef int find_shape_fault(
    const unsigned char *data,
    Py_ssize_t size,
    Py_ssize_t most_values,
    Py_ssize_t most_depth,
    Py_ssize_t *at,
) noexcept:
    cdef long long outer[MOST_DEPTH]
    cdef Py_ssize_t depth = 0, position = 0
    cdef long long due = 1, values = 0, count
    cdef int first, width
    while True:
        while due == 0:
            if not depth:
                at[0] = position
                if position > size:
                    return SHAPE_CUT
                return SHAPE_FITS if position == size else SHAPE_LONG
            depth -= 1
            due = outer[depth]
        due -= 1
        values += 1
        if position >= size:
            return SHAPE_CUT
        first = data[position]
        position += 1
        if first < 0x80 or first >= 0xE0 or first == 0xC0 or first == 0xC2 or first == 0xC3:
            continue
        if 0xA0 <= first < 0xC0:
            position += first & 0x1F
            continue
        if 0xCA <= first <= 0xD3:
            # Two floats, then unsigned and signed integers of 1, 2, 4 and 8 bytes.
            position += 4 << (first - 0xCA) if first < 0xCC else 1 << ((first - 0xCC) & 3)
            continue
        if 0xC4 <= first <= 0xC6 or 0xD9 <= first <= 0xDB:
            width = 1 << (first - 0xC4) if first < 0xD9 else 1 << (first - 0xD9)
            position += width + big_endian(data, size, position, width)
            continue
        if first < 0x90:
            count = 2 * (first & 0x0F)
        elif first < 0xA0:
            count = first & 0x0F
        elif first >= 0xDC:
            width = 4 if first & 1 else 2
            count = big_endian(data, size, position, width) * (2 if first >= 0xDE else 1)
            position += width
        else:
            at[0] = position - 1
            return SHAPE_FOREIGN
        if count > size - position:
            return SHAPE_CUT_ITEMS
        if values + count > most_values:
            return SHAPE_MANY
        if depth == most_depth:
            return SHAPE_DEEP
        outer[depth] = due
        depth += 1
        due = count


cdef inline long long big_endian(
    const unsigned char *data, Py_ssize_t size, Py_ssize_t begin, int width
) noexcept:
    cdef long long found = 0
    cdef Py_ssize_t position
    for position in range(begin, min(begin + width, size)):
        found = found << 8 | data[position]
    return found


cdef inline int put_head(Output output, int first, unsigned long long number, int size) except -1:
    """Append a first byte, and after it a number of `size` bytes."""
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
    """Append the header of `size` bytes; `first` is its first byte if the size takes one byte."""
    if size < 0x100:
        return put_head(output, first, size, 1)
    if size < 0x10000:
        return put_head(output, first + 1, size, 2)
    return put_head(output, first + 2, size, 4)


cdef int put_items(Output output, int few, int many, Py_ssize_t count) except -1:
    """Append the header of a container with `count` items. `few` is its first byte for fewer than
    16 items, `many` for a count of two bytes."""
    if count < 0x10:
        return put_head(output, few | <int> count, 0, 0)
    if count < 0x10000:
        return put_head(output, many, count, 2)
    return put_head(output, many + 1, count, 4)
