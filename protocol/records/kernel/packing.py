"""Messages into the bytes of a plain set, many at a time; and append times into such bytes.

It runs as it is and compiled, as `walk` does. Building wrappers is in `sets`; the way out of a
set, into columns, in `gathering`.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from ..layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    ENTRY_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MESSAGE_OVERHEAD,
    NO_TIMESTAMP,
    SIZE_AT,
    TIMESTAMP_AT,
    Buffer,
)
from .uncompiled import crc32

try:
    import cython
except ImportError:
    from . import uncompiled as cython

if not cython.compiled:
    from .uncompiled import (
        bytes_of,
        content_of,
        copy_bytes,
        crc32_at,
        int32_at,
        put_int32,
        put_int64,
        undefined,
        writable,
    )

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

_HEAD: Final = Struct(">qiI")
"""Offset, size and CRC."""
_V0_BODY: Final = Struct(">BBi")
_V1_BODY: Final = Struct(">BBqi")
"""Magic, attributes, in v1 the timestamp, and the key's length."""
_V1_KEYLESS: Final = Struct(">BBqii")
_LENGTH: Final = Struct(">i")
_OVERHEAD: Final = ENTRY_OVERHEAD
_SIZE: Final = SIZE_AT
_CRC: Final = CRC_AT
_MAGIC: Final = MAGIC_AT
_ATTRIBUTES: Final = ATTRIBUTES_AT
_TIME: Final = TIMESTAMP_AT
_TIME_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_CRC_BYTES: Final = 4
_V0_OVERHEAD: Final = MESSAGE_OVERHEAD[0]
_V1_OVERHEAD: Final = MESSAGE_OVERHEAD[1]
_APPEND_TIME: Final = LOG_APPEND_TIME_BIT
_CODEC_MASK: Final = CODEC_MASK
_NO_TIME: Final = NO_TIMESTAMP
_LARGEST_INT32: Final = 2**31 - 1
_LARGEST_INT64: Final = 2**63 - 1
_FIRST_BYTES: Final = 512


class SetEncoder:
    """A message set that grows message by message, with offsets that count up.

    `magic` is 0 or 1, else `ValueError`.
    """

    __slots__ = ("_at", "_magic", "_offset", "_out", "_room")

    def __init__(self, magic: int = 1, first_offset: int = 0) -> None:
        if magic not in (0, 1):
            raise ValueError(f"magic {magic}: only 0 and 1 can be built")
        self._magic = magic
        self._offset = first_offset
        self._at = 0
        self._room = 0
        self._out = bytearray()

    def add(self, value: Buffer | None, key: Buffer | None, timestamp_ms: int) -> None:
        """Add a message.

        Raises `ValueError` for a timestamp below -1 or above 2**63 - 1, for any timestamp in a v0
        message, which has no place for one, and for a message of 2 GiB.
        """
        if value is not None and type(value) is not bytes:
            value = bytes(memoryview(value))
        if key is not None and type(key) is not bytes:
            key = bytes(memoryview(key))
        if not cython.compiled:
            if not _NO_TIME <= timestamp_ms <= _LARGEST_INT64:
                raise bad_timestamp(timestamp_ms)
            if self._magic == 0:
                if timestamp_ms != _NO_TIME:
                    raise _no_place_for(timestamp_ms)
                body = _V0_BODY.pack(0, 0, -1 if key is None else len(key)) + _fields(key, value)
            elif key is None and value is not None:
                body = _V1_KEYLESS.pack(1, 0, timestamp_ms, -1, len(value)) + value
            else:
                body = _V1_BODY.pack(1, 0, timestamp_ms, -1 if key is None else len(key))
                body += _fields(key, value)
            self._out += _HEAD.pack(self._offset, len(body) + _CRC_BYTES, crc32(body))
            self._out += body
        else:
            try:
                time_ms = timestamp_ms
            except OverflowError:
                raise bad_timestamp(timestamp_ms) from None
            if time_ms < _NO_TIME:
                raise bad_timestamp(timestamp_ms)
            key_bytes = 0 if key is None else len(key)
            value_bytes = 0 if value is None else len(value)
            overhead = _V1_OVERHEAD if self._magic == 1 else _V0_OVERHEAD
            if self._magic == 0 and time_ms != _NO_TIME:
                raise _no_place_for(timestamp_ms)
            size = overhead + key_bytes + value_bytes
            if size > _LARGEST_INT32:
                raise ValueError(f"a message of {size} bytes: it must be below 2 GiB")
            if self._at + _OVERHEAD + size > self._room:
                self._room = 2 * (self._at + _OVERHEAD + size) + _FIRST_BYTES
                self._out.extend(bytes(self._room - len(self._out)))
            out = writable(self._out)
            start = self._at
            put_int64(out, start, self._offset)
            put_int32(out, start + _SIZE, size)
            out[start + _MAGIC] = self._magic
            out[start + _ATTRIBUTES] = 0
            at = start + _TIME
            if self._magic == 1:
                put_int64(out, at, time_ms)
                at += _TIME_BYTES
            put_int32(out, at, -1 if key is None else key_bytes)
            at += _LENGTH_BYTES
            if key_bytes:
                copy_bytes(out, at, content_of(key), 0, key_bytes)
                at += key_bytes
            put_int32(out, at, -1 if value is None else value_bytes)
            at += _LENGTH_BYTES
            if value_bytes:
                copy_bytes(out, at, content_of(value), 0, value_bytes)
                at += value_bytes
            put_int32(out, start + _CRC, crc32_at(out, start + _MAGIC, size - _CRC_BYTES))
            self._at = at
        self._offset += 1

    def add_columns(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        timestamps_ms: Sequence[int],
    ) -> None:
        """Add messages that are given as columns; `None` for no keys at all.

        Raises `ValueError` as `add`, and for columns of different lengths; the messages before the
        one that is wrong are added then.
        """
        if cython.compiled:
            self._reserve(values, keys)
        if keys is None and not cython.compiled and self._magic == 1:
            self._add_keyless(values, timestamps_ms)
        elif keys is None:
            for value, timestamp_ms in zip(values, timestamps_ms, strict=True):
                self.add(value, None, timestamp_ms)
        else:
            for value, key, timestamp_ms in zip(values, keys, timestamps_ms, strict=True):
                self.add(value, key, timestamp_ms)

    def _add_keyless(self, values: Sequence[Buffer | None], timestamps_ms: Sequence[int]) -> None:
        """As `add` for each in format v1, without calling it."""
        parts: list[bytes] = []
        put, offset = parts.append, self._offset
        pack_body, pack_head = _V1_KEYLESS.pack, _HEAD.pack
        try:
            for value, timestamp_ms in zip(values, timestamps_ms, strict=True):
                if type(value) is not bytes or not _NO_TIME <= timestamp_ms <= _LARGEST_INT64:
                    self._out += b"".join(parts)
                    parts.clear()
                    self._offset = offset
                    self.add(value, None, timestamp_ms)
                else:
                    body = pack_body(1, 0, timestamp_ms, -1, len(value)) + value
                    put(pack_head(offset, len(body) + _CRC_BYTES, crc32(body)))
                    put(body)
                offset += 1
        finally:
            self._out += b"".join(parts)
            self._offset = offset

    def _reserve(
        self, values: Sequence[Buffer | None], keys: Sequence[Buffer | None] | None
    ) -> None:
        """Make room for columns at once: growing copies what is there already."""
        needed = self._at
        for value in values:
            needed += _OVERHEAD + _V1_OVERHEAD
            if type(value) is bytes:
                needed += len(value)
        if keys is not None:
            for key in keys:
                if type(key) is bytes:
                    needed += len(key)
        if needed > self._room:
            self._room = needed
            if self._at == 0:
                self._out = undefined(needed)
            else:
                self._out.extend(bytes(needed - len(self._out)))

    def finish(self) -> bytearray:
        """The set; the encoder begins a new one, whose offsets go on from there."""
        out = self._out
        if cython.compiled:
            del out[self._at :]
        self._out = bytearray()
        self._at = self._room = 0
        return out


def _fields(key: bytes | None, value: bytes | None) -> bytes:
    """The key without its length, and the value with it."""
    if value is None:
        return (key or b"") + _LENGTH.pack(-1)
    return (key or b"") + _LENGTH.pack(len(value)) + value


def bad_timestamp(timestamp_ms: int) -> ValueError:
    """The refusal of a time that no message can have."""
    return ValueError(
        f"timestamp {timestamp_ms}: it must be -1 (none), or from 0 to {_LARGEST_INT64}"
    )


def _no_place_for(timestamp_ms: int) -> ValueError:
    return ValueError(f"timestamp {timestamp_ms}: a message of magic 0 cannot carry one")


def stamp(buffer: bytearray | memoryview, start: int, end: int, append_time_ms: int) -> None:
    """Give the plain v1 entries of `buffer[start:end]` an append time and their new CRC, in place.

    A walk must have found them good, without wrappers and v0 messages: `ValueError` at the first
    that cannot be, after those before it have got their time.
    """
    view = memoryview(buffer)
    if view.readonly:
        raise TypeError("append times cannot be written to a buffer that is read-only")
    _stamp(view, start, end, append_time_ms)


def _stamp(view: memoryview, start: int, end: int, append_time_ms: int) -> bool:
    data = bytes_of(view)
    if start < 0 or end > len(view):
        raise ValueError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    position = start
    while position < end:
        size = int32_at(data, position + _SIZE) if end - position >= _OVERHEAD else -1
        stop = position + _OVERHEAD + size
        if size < _V1_OVERHEAD or stop > end or data[position + _MAGIC] != 1:
            raise ValueError(f"the entry at byte {position} is no good v1 message")
        if data[position + _ATTRIBUTES] & _CODEC_MASK:
            raise ValueError(f"the entry at byte {position} is compressed")
        data[position + _ATTRIBUTES] |= _APPEND_TIME
        put_int64(data, position + _TIME, append_time_ms)
        put_int32(data, position + _CRC, crc32_at(data, position + _MAGIC, size - _CRC_BYTES))
        position = stop
    return True
