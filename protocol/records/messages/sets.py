"""Builds record sets as a producer sends them, and changes entries in place."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from ..batch import build_batch
from ..codecs.codec import compress
from ..kernel import SetEncoder, crc32
from ..layout import (
    ATTRIBUTES_AT,
    BATCH_MAGIC,
    CRC_AT,
    ENTRY_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    TIMESTAMP_AT,
    Buffer,
    Codec,
)
from ..record import NewRecord as NewRecord
from .message import build_message

_ENTRY_HEAD: Final = Struct(">qi")
_OFFSET: Final = Struct(">q")
_TIMESTAMP: Final = Struct(">q")
_CRC: Final = Struct(">I")


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
