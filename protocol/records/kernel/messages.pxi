# Plain messages of formats v0 and v1: encoding, append times, conversion.

# The positions of key and value of a plain message, and its time.
cdef struct Content:
    long long time_ms, key_at, key_bytes, value_at, value_bytes
    int magic


# Reads the plain message at `position`, checking every length. Returns its end.
cdef long long read_plain(
    const unsigned char *data, long long position, long long end, Content *content
) except -1:
    cdef long long at = position + TIME, size = -1, stop
    if end - position >= HEAD_BYTES:
        size = int32_at(data, position + SIZE)
    stop = position + HEAD_BYTES + size
    if size < V0_OVERHEAD or stop > end or data[position + MAGIC] > 1:
        raise not_good(position)
    content.magic = data[position + MAGIC]
    content.time_ms = NO_TIME
    if content.magic == 1:
        if size < V1_OVERHEAD:
            raise ValueError(f"the entry at byte {position} is too small")
        content.time_ms = int64_at(data, at)
        at += TIME_BYTES
    content.key_bytes = int32_at(data, at)
    at += LENGTH_BYTES
    content.key_at = at
    at += max(content.key_bytes, 0)
    if at + LENGTH_BYTES > stop:
        raise ValueError(f"the key of the entry at byte {position} is too long")
    content.value_bytes = int32_at(data, at)
    at += LENGTH_BYTES
    content.value_at = at
    if at + max(content.value_bytes, 0) > stop:
        raise ValueError(f"the value of the entry at byte {position} is too long")
    return stop


# Writes an entry with a plain message to `out`, which has room. Returns the position after it.
cdef inline long long put_message(
    unsigned char *out, long long start, int magic, int bits, long long offset, long long time_ms,
    long long key_bytes, const unsigned char *key, long long value_bytes, const unsigned char *value,
) noexcept:
    cdef long long at = start + TIME
    out[start + MAGIC] = magic
    out[start + BITS] = bits
    if magic == 1:
        put_int64(out, at, time_ms)
        at += TIME_BYTES
    put_int32(out, at, max(key_bytes, -1))
    at += LENGTH_BYTES
    if key_bytes > 0:
        copy_bytes(out, at, key, 0, key_bytes)
        at += key_bytes
    put_int32(out, at, max(value_bytes, -1))
    at += LENGTH_BYTES
    if value_bytes > 0:
        copy_bytes(out, at, value, 0, value_bytes)
        at += value_bytes
    put_int64(out, start, offset)
    put_int32(out, start + SIZE, at - start - HEAD_BYTES)
    put_int32(out, start + CRC, crc32_at(out, start + MAGIC, at - start - MAGIC))
    return at


cdef object not_good(long long position):
    return ValueError(f"the entry at byte {position} is no good plain message")


cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1


cdef object bad_timestamp(object timestamp_ms):
    return ValueError(
        f"timestamp {timestamp_ms}: it must be -1 (none), or from 0 to {LARGEST_INT64}"
    )


cdef long long other_number(object number) except? -1:
    try:
        return number
    except OverflowError:
        raise bad_timestamp(number) from None


# Returns the time of a new message as a C number. -1 means none; other negative times are invalid.
cdef inline long long new_time(object timestamp_ms) except? -2:
    cdef long long time_ms
    cdef int overflow = 0
    if type(timestamp_ms) is int:
        time_ms = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
    else:
        time_ms = other_number(timestamp_ms)
    if overflow or time_ms < NO_TIME:
        raise bad_timestamp(timestamp_ms)
    return time_ms


cdef class SetEncoder:
    cdef int _magic
    cdef long long _offset, _at, _room
    cdef bytearray _out

    def __init__(self, int magic=1, long long first_offset=0):
        if magic not in (0, 1):
            raise ValueError(f"magic {magic}: only 0 and 1 can be built")
        self._magic = magic
        self._offset = first_offset
        self._at = self._room = 0
        self._out = bytearray()

    def add(self, value, key, timestamp_ms):
        self._add(value, key, timestamp_ms)

    cdef int _add(self, value, key, timestamp_ms) except -1:
        cdef bytes key_content = flat(key), value_content = flat(value)
        cdef long long time_ms = new_time(timestamp_ms)
        cdef long long key_bytes = -1 if key is None else len(key_content)
        cdef long long value_bytes = -1 if value is None else len(value_content)
        cdef long long size = V1_OVERHEAD if self._magic == 1 else V0_OVERHEAD
        if self._magic == 0 and time_ms != NO_TIME:
            raise ValueError(
                f"timestamp {timestamp_ms}: a message of magic 0 cannot carry one"
            )
        size += max(key_bytes, 0) + max(value_bytes, 0)
        if size > LARGEST_INT32:
            raise ValueError(f"a message of {size} bytes: it must be below 2 GiB")
        if self._at + HEAD_BYTES + size > self._room:
            self._room = 2 * (self._at + HEAD_BYTES + size) + FIRST_BYTES
            self._out.extend(bytes(self._room - len(self._out)))
        self._at = put_message(
            writable(self._out), self._at, self._magic, 0, self._offset, time_ms,
            key_bytes, content_of(key_content), value_bytes, content_of(value_content),
        )
        self._offset += 1
        return 0

    def add_columns(self, values, keys, timestamps_ms):
        self._reserve(values, keys)
        if keys is None:
            for value, timestamp_ms in zip(values, timestamps_ms, strict=True):
                self._add(value, None, timestamp_ms)
        else:
            for value, key, timestamp_ms in zip(values, keys, timestamps_ms, strict=True):
                self._add(value, key, timestamp_ms)

    # Reserves room for columns at once, because growing copies the content.
    cdef _reserve(self, values, keys):
        cdef long long needed = self._at
        for value in values:
            needed += HEAD_BYTES + V1_OVERHEAD
            if type(value) is bytes:
                needed += len(<bytes>value)
        if keys is not None:
            for key in keys:
                if type(key) is bytes:
                    needed += len(<bytes>key)
        if needed > self._room:
            self._room = needed
            if self._at == 0:
                self._out = undefined(needed)
            else:
                self._out.extend(bytes(needed - len(self._out)))

    def finish(self):
        cdef bytearray out = self._out
        del out[self._at :]
        self._out = bytearray()
        self._at = self._room = 0
        return out


def stamp(buffer, long long start, long long end, long long append_time_ms):
    cdef object view = memoryview(buffer)
    if view.readonly:
        raise TypeError("append times cannot be written to a buffer that is read-only")
    cdef unsigned char *data = bytes_of(view)
    cdef long long position = start, size, stop
    if start < 0 or end > len(view):
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    while position < end:
        size = int32_at(data, position + SIZE) if end - position >= HEAD_BYTES else -1
        stop = position + HEAD_BYTES + size
        if size < V1_OVERHEAD or stop > end or not (
            data[position + MAGIC] == 1
            or (data[position + MAGIC] == 2 and stop - position >= BATCH_OVERHEAD)
        ):
            raise ValueError(f"the entry at byte {position} is no good v1 message or batch")
        if data[position + MAGIC] == 2:
            data[position + BATCH_BITS + 1] |= APPEND_TIME
            put_int64(data, position + MAX_TIME, append_time_ms)
            put_int32(
                data, position + BATCH_CRC,
                crc32c_at(data, position + BATCH_BITS, stop - position - BATCH_BITS),
            )
        elif data[position + BITS] & CODEC_MASK:
            raise ValueError(f"the entry at byte {position} is compressed")
        else:
            data[position + BITS] |= APPEND_TIME
            put_int64(data, position + TIME, append_time_ms)
            put_int32(data, position + CRC, crc32_at(data, position + MAGIC, size - CRC_BYTES))
        position = stop


def rewrite(
    bytearray target, buffer, long long start, long long end, int magic, long long first_offset,
    long long offset_shift, long long stamp_ms,
):
    cdef object view = memoryview(buffer)
    cdef long long begin = len(target)
    try:
        return rewrite_all(
            target, view, start, end, magic, first_offset, offset_shift, stamp_ms
        )
    except ValueError:
        del target[begin:]
        raise


cdef long long rewrite_all(
    bytearray target, object view, long long start, long long end, int magic,
    long long first_offset, long long offset_shift, long long stamp_ms,
) except -1:
    cdef unsigned char *data = bytes_of(view)
    cdef unsigned char *out
    cdef long long at = len(target), room, position = start, stop, size, offset
    cdef long long time_ms, content, converted = 0, content_at
    cdef int own_magic, bits, wanted
    if start < 0 or start > end or end > len(view):
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    room = end - start
    if magic == 1:
        # Each entry may grow by the size of a time.
        room += TIME_BYTES * (room // SMALLEST_ENTRY)
    target.extend(bytes(room))
    out = writable(target)
    while position < end:
        size = int32_at(data, position + SIZE) if end - position >= HEAD_BYTES else -1
        stop = position + HEAD_BYTES + size
        if size < V0_OVERHEAD or stop > end:
            raise not_good(position)
        own_magic = data[position + MAGIC]
        if own_magic > 1 or size < (V1_OVERHEAD if own_magic else V0_OVERHEAD):
            raise not_good(position)
        bits = data[position + BITS]
        if first_offset == NO_NUMBER:
            offset = added(int64_at(data, position), offset_shift)
        else:
            offset = first_offset
            first_offset += 1
        wanted = own_magic if magic == NO_NUMBER else magic
        if wanted != own_magic:
            converted += 1
        elif wanted == 0 or (stamp_ms == NO_NUMBER and not bits & APPEND_TIME):
            copy_bytes(out, at, data, position, stop - position)
            put_int64(out, at, offset)
            at += stop - position
            position = stop
            continue
        bits &= RESERVED
        time_ms = stamp_ms
        if wanted == 1 and stamp_ms != NO_NUMBER:
            bits |= APPEND_TIME
        else:
            time_ms = int64_at(data, position + TIME) if own_magic else NO_TIME
        content = position + TIME + (TIME_BYTES if own_magic else 0)
        out[at + MAGIC] = wanted
        out[at + BITS] = bits
        content_at = at + TIME
        if wanted == 1:
            put_int64(out, content_at, time_ms)
            content_at += TIME_BYTES
        copy_bytes(out, content_at, data, content, stop - content)
        size = content_at + stop - content - at - HEAD_BYTES
        put_int64(out, at, offset)
        put_int32(out, at + SIZE, size)
        put_int32(out, at + CRC, crc32_at(out, at + MAGIC, size - CRC_BYTES))
        at += HEAD_BYTES + size
        position = stop
    del target[at:]
    return converted


def plain_end(buffer, long long start, long long end):
    cdef object view = memoryview(buffer)
    cdef unsigned char *data = bytes_of(view)
    cdef long long position = start, size
    if start < 0 or end > len(view):
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    while position < end:
        size = int32_at(data, position + SIZE) if end - position >= HEAD_BYTES else -1
        if size < V0_OVERHEAD or position + HEAD_BYTES + size > end:
            raise not_good(position)
        if data[position + BITS] & CODEC_MASK or data[position + MAGIC] > 1:
            break
        position += HEAD_BYTES + size
    return position
