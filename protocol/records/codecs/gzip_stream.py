"""gzip (RFC 1952): one or more consecutive members."""

from typing import Final, cast

from isal import isal_zlib

from ...errors import CorruptMessage
from ..layout import Buffer
from ..problems import decompressed_too_large

_GZIP_WRAPPER: Final = 31
"""zlib's parameter for the largest window, with a gzip header and trailer."""

_LEVEL: Final = 2
"""The library's default. The time in the header is 0, so equal input gives equal output."""

_STREAM_ERROR: Final = cast(type[Exception], isal_zlib.error)
"""The type stub declares this class as an instance."""

_CHUNK_BYTES: Final = 64 * 1024
"""The library copies the bytes after a member, so many small members must not be passed all at
once."""

_FIRST_BYTE: Final = 0x1F
"""First byte of a member."""
_FLAGS_AT: Final = 3
_RESERVED_FLAGS: Final = 0xE0

MAX_MEMBERS: Final = 1024
"""Kafka's clients write one member; block-wise compressors write one per 64 KiB, of which this
allows 64 MiB. The limit bounds the work that empty members of 20 bytes can cause."""


def compress(data: Buffer) -> bytes:
    """Return one member with the content `data`."""
    return isal_zlib.compress(data, _LEVEL, _GZIP_WRAPPER)


def decompress(data: Buffer, max_bytes: int) -> bytes:
    """Return the content of all members of `data`; nothing may follow the last one.

    Raises `CorruptMessage`, and `MessageTooLarge` for more than `max_bytes` of content.
    """
    content, _ = _open(memoryview(data), max_bytes)
    return content


def open_members(data: Buffer, max_bytes: int) -> tuple[bytes, int]:
    """Return the content of all members, and their number. Raises as `decompress`, and
    `CorruptMessage` for reserved flags, which the library ignores and most clients do not."""
    view = memoryview(data)
    content, starts = _open(view, max_bytes)
    for start in starts:
        flags = view[start + _FLAGS_AT]
        if flags & _RESERVED_FLAGS:
            raise CorruptMessage(
                f"gzip: the member at byte {start} has flags {flags:02x}; of them"
                f" {flags & _RESERVED_FLAGS:02x} are reserved"
            )
    return content, len(starts)


def _open(view: memoryview, max_bytes: int) -> tuple[bytes, list[int]]:
    """Return the content of all members, and the start of each."""
    parts: list[bytes] = []
    starts: list[int] = []
    position = produced = 0
    while len(starts) < MAX_MEMBERS:
        starts.append(position)
        member = isal_zlib.decompressobj(_GZIP_WRAPPER)
        while not member.eof:
            chunk = view[position : position + _CHUNK_BYTES]
            if not chunk:
                raise CorruptMessage(f"gzip: the stream ends early, after {produced} bytes")
            try:
                part = member.decompress(chunk, max_bytes - produced + 1)
            except _STREAM_ERROR as error:
                raise CorruptMessage(f"gzip: {error}") from error
            parts.append(part)
            produced += len(part)
            if produced > max_bytes:
                raise decompressed_too_large(max_bytes)
            position += len(chunk) - len(member.unused_data)
        if position == len(view):
            return b"".join(parts), starts
        if view[position] != _FIRST_BYTE:
            raise CorruptMessage(
                f"gzip: {len(view) - position} bytes follow the last member and begin no other"
            )
    raise CorruptMessage(f"gzip: the stream has more than {MAX_MEMBERS} members")
