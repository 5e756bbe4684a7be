"""gzip (RFC 1952): one or more members, one after the other."""

from typing import Final, cast

from isal import isal_zlib

from ...errors import CorruptMessage
from ..layout import Buffer
from ..problems import decompressed_too_large

_GZIP_WRAPPER: Final = 31
"""zlib's number for: the largest window, and a gzip header and trailer around the data."""

_LEVEL: Final = 2
"""The library's own default. The header's time is 0, so equal input gives equal bytes."""

_STREAM_ERROR: Final = cast(type[Exception], isal_zlib.error)
"""A class, which the library's type stub takes for an instance."""

_CHUNK_BYTES: Final = 64 * 1024
"""The library copies what follows a member, so many small members must not be fed all at once."""

_FIRST_BYTE: Final = 0x1F
"""Of a member."""
_FLAGS_AT: Final = 3
_RESERVED_FLAGS: Final = 0xE0

MAX_MEMBERS: Final = 1024
"""Kafka's clients write one member; block-wise compressors one for each 64 KiB, so this covers
64 MiB from those. It bounds the work that empty members of 20 bytes can cause."""


def compress(data: Buffer) -> bytes:
    """One member that holds `data`."""
    return isal_zlib.compress(data, _LEVEL, _GZIP_WRAPPER)


def decompress(data: Buffer, max_bytes: int) -> bytes:
    """The content of all members of `data`, which must end with the last one.

    Raises `CorruptMessage`, and `MessageTooLarge` for more than `max_bytes` of content.
    """
    content, _ = _open(memoryview(data), max_bytes)
    return content


def open_members(data: Buffer, max_bytes: int) -> tuple[bytes, int]:
    """The content of all members, and their number; raises as `decompress`, and `CorruptMessage`
    for reserved flags, which the library passes over and most clients do not."""
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
    """The content of all members, and where each begins."""
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
