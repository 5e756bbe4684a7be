"""Plain messages of formats v0 and v1: encoding, append times, conversion."""

from collections.abc import Iterator, Sequence
from zlib import crc32

from ...layout import (
    ATTRIBUTES_AT,
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CRC_AT,
    ENTRY_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MESSAGE_OVERHEAD,
    NO_TIMESTAMP,
    RESERVED_MASK,
    SIZE_AT,
    TIMESTAMP_AT,
    Buffer,
)
from ..terms import OWN
from .bytes import (
    HEAD,
    INT32,
    INT64,
    LARGEST_INT32,
    LARGEST_INT64,
    LENGTH_BYTES,
    TIME_BYTES,
    UINT32,
    V0_HEAD,
    V0_OVERHEAD,
    V1_HEAD,
    V1_OVERHEAD,
    flat,
    int32_at,
    int64_at,
    wrapped,
)
from .walk import crc32c


class PlainMessage:
    """A plain message in an entry that ends at `stop`, with its key and value."""

    __slots__ = ("attributes", "content_at", "key", "magic", "offset", "stop", "time_ms", "value")

    def __init__(self, view: memoryview, position: int, end: int) -> None:
        """Read the message at `position`. Every length is checked: raises `ValueError` if there is
        none."""
        size = int32_at(view, position + SIZE_AT) if end - position >= ENTRY_OVERHEAD else -1
        self.stop = position + ENTRY_OVERHEAD + size
        if size < V0_OVERHEAD or self.stop > end or view[position + MAGIC_AT] > 1:
            raise not_good(position)
        self.offset = int64_at(view, position)
        self.magic, self.attributes = view[position + MAGIC_AT], view[position + ATTRIBUTES_AT]
        if size < MESSAGE_OVERHEAD[self.magic]:
            raise ValueError(f"the entry at byte {position} is too small")
        self.time_ms = int64_at(view, position + TIMESTAMP_AT) if self.magic else NO_TIMESTAMP
        self.content_at = at = position + TIMESTAMP_AT + (TIME_BYTES if self.magic else 0)
        self.key, at = self._string(view, at, position, "key")
        self.value, _ = self._string(view, at, position, "value")

    def _string(
        self, view: memoryview, at: int, position: int, what: str
    ) -> tuple[memoryview | None, int]:
        if at + LENGTH_BYTES > self.stop:
            raise ValueError(f"the key of the entry at byte {position} is too long")
        length = int32_at(view, at)
        at += LENGTH_BYTES
        if length < 0:
            return None, at
        if at + length > self.stop:
            raise ValueError(f"the {what} of the entry at byte {position} is too long")
        return view[at : at + length], at + length


def not_good(position: int) -> ValueError:
    return ValueError(f"the entry at byte {position} is no good plain message")


def bad_timestamp(timestamp_ms: int) -> ValueError:
    return ValueError(
        f"timestamp {timestamp_ms}: it must be -1 (none), or from 0 to {LARGEST_INT64}"
    )


def string_bytes(content: bytes | None) -> bytes:
    """Encode a key or value, with its length."""
    return INT32.pack(-1) if content is None else INT32.pack(len(content)) + content


def content_bytes(content: Buffer | None) -> bytes | None:
    """Return the bytes of a key or value. Raises `TypeError` for other objects."""
    if content is None or type(content) is bytes:
        return content
    return bytes(memoryview(content))


def entry_bytes(offset: int, body: bytes) -> bytes:
    """Return an entry with a message whose bytes from the magic on are `body`."""
    return HEAD.pack(offset, len(body) + 4) + UINT32.pack(crc32(body)) + body


class SetEncoder:
    """Encodes a record set message by message, with offsets that count up.

    `magic` is 0 or 1; other values raise `ValueError`.
    """

    __slots__ = ("_magic", "_offset", "_out")

    def __init__(self, magic: int = 1, first_offset: int = 0) -> None:
        if magic not in (0, 1):
            raise ValueError(f"magic {magic}: only 0 and 1 can be built")
        self._magic = magic
        self._offset = first_offset
        self._out = bytearray()

    def add(self, value: Buffer | None, key: Buffer | None, timestamp_ms: int) -> None:
        """Add a message.

        Raises `ValueError` for a timestamp below -1 or above 2**63 - 1, for any timestamp in a v0
        message, which has no field for one, and for a message of 2 GiB.
        """
        if not NO_TIMESTAMP <= timestamp_ms <= LARGEST_INT64:
            raise bad_timestamp(timestamp_ms)
        if self._magic == 0 and timestamp_ms != NO_TIMESTAMP:
            raise ValueError(f"timestamp {timestamp_ms}: a message of magic 0 cannot carry one")
        value, key = content_bytes(value), content_bytes(key)
        size = MESSAGE_OVERHEAD[self._magic] + len(value or b"") + len(key or b"")
        if size > LARGEST_INT32:
            raise ValueError(f"a message of {size} bytes: it must be below 2 GiB")
        head = V1_HEAD.pack(1, 0, timestamp_ms) if self._magic else V0_HEAD.pack(0, 0)
        self._out += entry_bytes(self._offset, head + string_bytes(key) + string_bytes(value))
        self._offset += 1

    def add_columns(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        timestamps_ms: Sequence[int],
    ) -> None:
        """Add messages given as columns. `keys=None`: no message has a key.

        Raises `ValueError` as `add`, and for columns of different lengths; the messages before the
        bad one have been added then.
        """
        for value, key, timestamp_ms in rows_of(values, keys, timestamps_ms):
            self.add(value, key, timestamp_ms)

    def finish(self) -> bytearray:
        """Return the set, and start a new one whose offsets continue."""
        out, self._out = self._out, bytearray()
        return out


def rows_of(
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None,
    timestamps_ms: Sequence[int],
) -> Iterator[tuple[Buffer | None, Buffer | None, int]]:
    if keys is None:
        for value, timestamp_ms in zip(values, timestamps_ms, strict=True):
            yield value, None, timestamp_ms
    else:
        yield from zip(values, keys, timestamps_ms, strict=True)


def stamp(buffer: bytearray | memoryview, start: int, end: int, append_time_ms: int) -> None:
    """Write an append time, and the new CRC, into the plain v1 messages and the batches of
    `buffer[start:end]`, in place.

    A walk must have passed them, and there may be no wrappers and no v0 messages. Raises
    `ValueError` at the first bad entry, after writing the time of those before it.
    """
    view = flat(buffer)
    if view.readonly:
        raise TypeError("append times cannot be written to a buffer that is read-only")
    if start < 0 or end > len(view):
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    position = start
    while position < end:
        size = int32_at(view, position + SIZE_AT) if end - position >= ENTRY_OVERHEAD else -1
        stop = position + ENTRY_OVERHEAD + size
        magic = view[position + MAGIC_AT] if size >= V1_OVERHEAD and stop <= end else -1
        if magic != 1 and (magic != BATCH_MAGIC or stop - position < BATCH_OVERHEAD):
            raise ValueError(f"the entry at byte {position} is no good v1 message or batch")
        if magic == BATCH_MAGIC:
            view[position + BATCH_ATTRIBUTES_AT + 1] |= LOG_APPEND_TIME_BIT
            INT64.pack_into(view, position + MAX_TIMESTAMP_AT, append_time_ms)
            crc = crc32c(view, position + BATCH_ATTRIBUTES_AT, stop)
            UINT32.pack_into(view, position + BATCH_CRC_AT, crc)
        elif view[position + ATTRIBUTES_AT] & CODEC_MASK:
            raise ValueError(f"the entry at byte {position} is compressed")
        else:
            view[position + ATTRIBUTES_AT] |= LOG_APPEND_TIME_BIT
            INT64.pack_into(view, position + TIMESTAMP_AT, append_time_ms)
            UINT32.pack_into(view, position + CRC_AT, crc32(view[position + MAGIC_AT : stop]))
        position = stop


def rewrite(
    target: bytearray,
    buffer: Buffer,
    start: int,
    end: int,
    magic: int,
    first_offset: int,
    offset_shift: int,
    stamp_ms: int,
) -> int:
    """Append the plain entries of `buffer[start:end]` to `target`. Returns how many changed their
    format.

    The arguments are those of `conversion.convert_entries`, with `OWN` for `None`. A walk must have
    passed the entries; raises `ValueError` for a bad one, and then leaves `target` unchanged.
    """
    view = flat(buffer)
    if start < 0 or start > end or end > len(view):
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    written = bytearray()
    converted = 0
    position = start
    while position < end:
        size = int32_at(view, position + SIZE_AT) if end - position >= ENTRY_OVERHEAD else -1
        stop = position + ENTRY_OVERHEAD + size
        if size < V0_OVERHEAD or stop > end:
            raise not_good(position)
        own_magic, attributes = view[position + MAGIC_AT], view[position + ATTRIBUTES_AT]
        if own_magic > 1 or size < MESSAGE_OVERHEAD[own_magic]:
            raise not_good(position)
        offset = wrapped(int64_at(view, position) + offset_shift)
        if first_offset != OWN:
            offset = first_offset
            first_offset += 1
        wanted = own_magic if magic == OWN else magic
        converted += wanted != own_magic
        time_ms = int64_at(view, position + TIMESTAMP_AT) if own_magic else NO_TIMESTAMP
        content = view[position + TIMESTAMP_AT + (TIME_BYTES if own_magic else 0) : stop]
        is_kept = wanted == 0 or (stamp_ms == OWN and not attributes & LOG_APPEND_TIME_BIT)
        if wanted == own_magic and is_kept:
            written += INT64.pack(offset) + view[position + SIZE_AT : stop]
        elif wanted == 0:
            written += entry_bytes(offset, V0_HEAD.pack(0, attributes & RESERVED_MASK) + content)
        else:
            attributes &= RESERVED_MASK
            if stamp_ms != OWN:
                attributes, time_ms = attributes | LOG_APPEND_TIME_BIT, stamp_ms
            written += entry_bytes(offset, V1_HEAD.pack(1, attributes, time_ms) + content)
        position = stop
    target += written
    return converted


def plain_end(buffer: Buffer, start: int, end: int) -> int:
    """Return the position of the first wrapper or batch of `buffer[start:end]`, or `end`. A walk
    must have passed the entries; raises `ValueError` for a bad one."""
    view = flat(buffer)
    if start < 0 or end > len(view):
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    position = start
    while position < end:
        size = int32_at(view, position + SIZE_AT) if end - position >= ENTRY_OVERHEAD else -1
        if size < V0_OVERHEAD or position + ENTRY_OVERHEAD + size > end:
            raise not_good(position)
        if view[position + ATTRIBUTES_AT] & CODEC_MASK or view[position + MAGIC_AT] > 1:
            break
        position += ENTRY_OVERHEAD + size
    return position
