"""Builds single messages and record sets as a producer sends them, changes entries in place, and
reads the entries and records of a set.

`entries` reads what is stored (a wrapper is one entry), `records` what a consumer receives.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from ....values import value_class
from ...errors import CorruptMessage
from ..batch import NewRecord as NewRecord
from ..batch import Record as Record
from ..batch import batch_records, build_batch, read_header
from ..codecs.codec import compress, decompress
from ..kernel import SetEncoder, Walk, crc32, walk
from ..kernel.terms import Problem
from ..layout import (
    ATTRIBUTES_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CRC_AT,
    ENTRY_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    NO_TIMESTAMP,
    TIMESTAMP_AT,
    Buffer,
    Codec,
    TimestampType,
)
from ..problems import problem_error

_LENGTH: Final = Struct(">i")
_V0_HEAD: Final = Struct(">BB")
_V1_HEAD: Final = Struct(">BBq")
_ENTRY: Final = Struct(">qi4xBB")
"""Offset, size, magic and attributes of an entry."""

_ENTRY_HEAD: Final = Struct(">qi")
_OFFSET: Final = Struct(">q")
_TIMESTAMP: Final = Struct(">q")
_CRC: Final = Struct(">I")


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


def build_set(
    records: Sequence[NewRecord],
    *,
    magic: int = 1,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
) -> bytearray:
    """Return a record set as a producer sends it; empty for no records. In v2 it is one batch.

    Plain entries have the offsets `base_offset`, `base_offset` + 1, ... With a codec the set is one
    wrapper with the last of these offsets and the largest timestamp. The entries in the wrapper
    have these offsets too in v0, and 0, 1, ... in v1. Raises `ValueError` as `SetEncoder`, and for
    headers in another format than v2.
    """
    if magic == BATCH_MAGIC:
        return build_batch(records, codec=codec, base_offset=base_offset)
    if any(record.headers for record in records):
        raise ValueError(f"format v{magic} has no place for headers; v2 has")
    wrapped = codec is not Codec.NONE
    encoder = SetEncoder(magic, 0 if wrapped and magic else base_offset)
    for record in records:
        encoder.add(record.value, record.key, record.timestamp_ms)
    plain = encoder.finish()
    if not wrapped or not records:
        return plain
    return build_wrapper(
        plain,
        offset=base_offset + len(records) - 1,
        timestamp_ms=max(record.timestamp_ms for record in records),
        magic=magic,
        codec=codec,
    )


def build_columns(
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
    keys: Sequence[bytes | None] | None = None,
    *,
    magic: int = 1,
    base_offset: int = 0,
) -> bytearray:
    """Return the plain set that `build_set` makes of these messages. `keys=None`: no message has a
    key.

    Raises `ValueError` as `SetEncoder`, and for columns of different lengths.
    """
    encoder = SetEncoder(magic, base_offset)
    encoder.add_columns(values, keys, timestamps_ms)
    return encoder.finish()


def build_wrapper(
    inner: Buffer,
    *,
    offset: int,
    timestamp_ms: int,
    magic: int,
    codec: Codec,
    append_time: bool = False,
) -> bytearray:
    """Return a wrapper, as an entry, around a finished message set.

    `offset` is that of the last message in it. `append_time` says that a broker set the timestamp.
    Raises `ValueError` as `build_message`, and for `Codec.NONE`.
    """
    message = build_message(
        None,
        compress(codec, inner, magic=magic),
        timestamp_ms=timestamp_ms,
        magic=magic,
        attributes=codec | (LOG_APPEND_TIME_BIT if append_time else 0),
    )
    return bytearray(_ENTRY_HEAD.pack(offset, len(message)) + message)


def set_offset(buffer: bytearray | memoryview, position: int, offset: int) -> None:
    """Set the offset of the entry at `position`; no CRC covers it."""
    _OFFSET.pack_into(buffer, position, offset)


def set_timestamp(
    buffer: bytearray | memoryview, position: int, size: int, timestamp_ms: int
) -> None:
    """Set the time and the CRC of the v1 entry at `position`, a message of `size` bytes."""
    _TIMESTAMP.pack_into(buffer, position + TIMESTAMP_AT, timestamp_ms)
    _renew_crc(buffer, position, size)


def set_append_time(buffer: bytearray | memoryview, position: int, size: int, now_ms: int) -> None:
    """Like `set_timestamp`, and mark the time as an append time."""
    buffer[position + ATTRIBUTES_AT] |= LOG_APPEND_TIME_BIT
    set_timestamp(buffer, position, size, now_ms)


def _renew_crc(buffer: bytearray | memoryview, position: int, size: int) -> None:
    view = memoryview(buffer)
    covered = view[position + MAGIC_AT : position + ENTRY_OVERHEAD + size]
    _CRC.pack_into(view, position + CRC_AT, crc32(covered))
