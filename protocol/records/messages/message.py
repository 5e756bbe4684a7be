"""Builds single messages, and reads the entries and records of a set.

`entries` reads what is stored (a wrapper is one entry), `records` what a consumer receives.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from ....values import value_class
from ...errors import CorruptMessage
from ..batch import batch_records, read_header
from ..codecs.codec import decompress
from ..kernel import Walk, crc32, walk
from ..kernel.terms import Problem
from ..layout import (
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    CODEC_MASK,
    ENTRY_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    NO_TIMESTAMP,
    Buffer,
    Codec,
    TimestampType,
)
from ..problems import problem_error
from ..record import Record as Record

_CRC: Final = Struct(">I")
_LENGTH: Final = Struct(">i")
_V0_HEAD: Final = Struct(">BB")
_V1_HEAD: Final = Struct(">BBq")
_ENTRY: Final = Struct(">qi4xBB")
"""Offset, size, magic and attributes of an entry."""
_TIMESTAMP: Final = Struct(">q")


def build_message(
    key: Buffer | None,
    value: Buffer | None,
    *,
    timestamp_ms: int = NO_TIMESTAMP,
    magic: int = 1,
    attributes: int = 0,
) -> bytes:
    """Return the bytes of one message with its CRC, without the entry's offset and size.

    Raises `ValueError` for a magic other than 0 and 1, for a timestamp below -1, and for any
    timestamp in a v0 message, which has no field for one.
    """
    if magic not in (0, 1):
        raise ValueError(f"magic {magic}: only 0 and 1 can be built")
    if timestamp_ms < NO_TIMESTAMP:
        raise ValueError(f"timestamp {timestamp_ms}: it must be -1 (none) or not negative")
    if magic == 0 and timestamp_ms != NO_TIMESTAMP:
        raise ValueError(f"timestamp {timestamp_ms}: a message of magic 0 cannot carry one")
    head = _V1_HEAD.pack(1, attributes, timestamp_ms) if magic else _V0_HEAD.pack(0, attributes)
    body = b"".join((head, *_field(key), *_field(value)))
    return _CRC.pack(crc32(body)) + body


def _field(content: Buffer | None) -> tuple[Buffer, Buffer]:
    if content is None:
        return _LENGTH.pack(-1), b""
    return _LENGTH.pack(len(content)), content


@value_class
class Entry:
    """One entry as stored: a message; a wrapper, whose `value` is its compressed set; or a batch,
    whose `value` is its records, compressed or not."""

    position: int
    """Position of the entry in the buffer."""
    offset: int
    """Offset of the message; for a wrapper or batch that of the last message in it."""
    size: int
    """Bytes of the message or batch, without the first 12 (offset and size)."""
    magic: int
    attributes: int
    """For a batch only the lower byte."""
    timestamp_ms: int
    """-1 for none, as in every v0 message; for a wrapper or batch the largest of its messages'
    timestamps."""
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_batch(self) -> bool:
        """Whether the entry is a batch, compressed or not."""
        return self.magic == BATCH_MAGIC

    @property
    def end(self) -> int:
        """Position after the entry."""
        return self.position + ENTRY_OVERHEAD + self.size

    @property
    def is_append_time(self) -> bool:
        """Whether a broker set the timestamp at append. Never true in v0."""
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME_BIT)


def entries(
    buffer: Buffer, start: int = 0, end: int | None = None, *, verify_crc: bool = True
) -> Iterator[Entry]:
    """Yield the entries of `buffer[start:end]` without decompressing them. All are walked before
    the first is yielded.

    Ends silently before an incomplete last entry. Raises `CorruptMessage` at the first bad entry,
    and `UnsupportedForMessageFormat` at the first with a magic above 2, after yielding the entries
    before it.
    """
    end = len(buffer) if end is None else end
    walked = walk(buffer, start, end, check_crc=verify_crc)
    yield from _read_entries(memoryview(buffer), start, walked.end)
    if walked.problem not in (Problem.NONE, Problem.PARTIAL):
        raise problem_error(buffer, walked, end)


def _read_entries(view: memoryview, start: int, end: int) -> Iterator[Entry]:
    """Yield the entries of bytes that a walk has passed."""
    position = start
    while position < end:
        entry = _read_entry(view, position)
        yield entry
        position = entry.end


def _read_entry(view: memoryview, position: int) -> Entry:
    if view[position + MAGIC_AT] == BATCH_MAGIC:
        header = read_header(view, position)
        content = bytes(view[position + BATCH_OVERHEAD : position + header.size_bytes])
        last_offset, bits = header.last_offset, header.attributes & 0xFF
        time_ms = header.max_timestamp_ms
        return Entry(position, last_offset, header.size, BATCH_MAGIC, bits, time_ms, None, content)
    offset, size, magic, attributes = _ENTRY.unpack_from(view, position)
    at = position + _ENTRY.size
    timestamp_ms = NO_TIMESTAMP
    if magic:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(view, at)
        at += _TIMESTAMP.size
    key, at = _read_field(view, at)
    value, _ = _read_field(view, at)
    return Entry(position, offset, size, magic, attributes, timestamp_ms, key, value)


def _read_field(view: memoryview, at: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(view, at)
    at += _LENGTH.size
    if length < 0:
        return None, at
    return bytes(view[at : at + length]), at + length


def records(
    buffer: Buffer, *, max_decompressed_bytes: int, from_offset: int = 0
) -> Iterator[Record]:
    """Yield the messages of a set, with absolute offsets and effective times; wrappers and batches
    are decompressed.

    Messages below `from_offset` are left out, and so are control batches. For a message in a
    wrapper, both CRCs are checked. Raises what `entries` raises, and `MessageTooLarge` if a wrapper
    decompresses to more than `max_decompressed_bytes`.
    """
    for entry in entries(buffer):
        if entry.offset < from_offset:
            continue
        if entry.is_batch:
            yield from batch_records(
                buffer,
                entry.position,
                max_decompressed_bytes=max_decompressed_bytes,
                from_offset=from_offset,
            )
            continue
        if entry.codec is Codec.NONE:
            yield _record(entry, entry.offset, None)
            continue
        inner = open_wrapper(entry, max_decompressed_bytes=max_decompressed_bytes)
        base_offset = entry.offset - inner[-1].offset if entry.magic else 0
        for message in inner:
            offset = base_offset + message.offset
            if offset >= from_offset:
                yield _record(message, offset, entry)


def open_wrapper(wrapper: Entry, *, max_decompressed_bytes: int) -> list[Entry]:
    """Return the messages in a wrapper as they are stored there: at least one.

    Their offsets are absolute in a v0 wrapper and relative in a v1 wrapper, whatever the magic of
    the messages; `position` counts within the decompressed set. An incomplete last message is
    dropped. Raises `CorruptMessage` for damage, and `MessageTooLarge` as `records`.
    """
    data, walked = open_set(wrapper, max_decompressed_bytes=max_decompressed_bytes)
    return list(_read_entries(memoryview(data), 0, walked.end))


def open_set(wrapper: Entry, *, max_decompressed_bytes: int) -> tuple[bytes, Walk]:
    """Return the decompressed set of a wrapper and the walk over it. Raises as `open_wrapper`."""
    assert not wrapper.is_batch
    where = f"the compressed message with offset {wrapper.offset}"
    if wrapper.value is None:
        raise CorruptMessage(f"{where} has a null value")
    data = decompress(
        wrapper.codec, wrapper.value, magic=wrapper.magic, max_bytes=max_decompressed_bytes
    )
    walked = walk(data, 0, len(data))
    if walked.problem not in (Problem.NONE, Problem.PARTIAL):
        text = problem_error(data, walked, len(data)).message
        raise CorruptMessage(f"in {where}, decompressed: {text}")
    if not walked.count:
        raise CorruptMessage(f"{where} holds no message")
    if walked.last_codec or walked.batches:
        raise CorruptMessage(f"{where} holds another compressed message, or a batch")
    return data, walked


def _record(message: Entry, offset: int, wrapper: Entry | None) -> Record:
    timestamp_ms = message.timestamp_ms
    kind = TimestampType.CREATE_TIME
    if message.magic == 0:
        return Record(offset, NO_TIMESTAMP, None, message.key, message.value)
    if wrapper is None:
        if message.is_append_time:
            kind = TimestampType.LOG_APPEND_TIME
    elif wrapper.is_append_time:
        timestamp_ms = wrapper.timestamp_ms
        kind = TimestampType.LOG_APPEND_TIME
    return Record(offset, timestamp_ms, kind, message.key, message.value)
