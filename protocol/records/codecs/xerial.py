"""snappy as Kafka's clients write it: raw snappy blocks in snappy-java's ("xerial") framing.

    82 53 4e 41 50 50 59 00 | version int32 | oldest version able to read it int32 | blocks
    block:  compressed length int32 | raw snappy block

Integers are big-endian. Some clients send one raw block without framing; that is accepted too.
"""

from struct import Struct
from typing import Final

from cramjam import DecompressionError, snappy

from ...errors import CorruptMessage
from ..layout import Buffer
from ..problems import check_blocks, decompressed_too_large

_MAGIC: Final = b"\x82SNAPPY\x00"
_VERSION: Final = 1
_VERSIONS: Final = Struct(">ii")
_LENGTH: Final = Struct(">i")
_HEADER: Final = _MAGIC + _VERSIONS.pack(_VERSION, _VERSION)

BLOCK_BYTES: Final = 32 * 1024
"""Content of each block that is written: snappy-java's default, as readers may hold a whole
block."""


def compress(data: Buffer) -> bytes:
    """Return `data` as framed blocks."""
    view = memoryview(data)
    parts: list[bytes] = [_HEADER]
    for start in range(0, len(view), BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + BLOCK_BYTES]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decompress(data: Buffer, max_bytes: int) -> bytes:
    """Return the content of framed blocks, or of one raw block.

    Raises `CorruptMessage`, and `MessageTooLarge` for more than `max_bytes` of content.
    """
    view = memoryview(data)
    if bytes(view[: len(_MAGIC)]) != _MAGIC:
        return _decompress_block(view, max_bytes, max_bytes)
    if len(view) < len(_HEADER):
        raise CorruptMessage(f"snappy: the header has {len(view)} of {len(_HEADER)} bytes")
    _, oldest_reader = _VERSIONS.unpack_from(view, len(_MAGIC))
    if oldest_reader > _VERSION:
        raise CorruptMessage(
            f"snappy: the framing needs a reader of version {oldest_reader}; this one is {_VERSION}"
        )
    parts: list[bytes] = []
    position, produced = len(_HEADER), 0
    while position < len(view):
        if len(view) - position < _LENGTH.size:
            raise CorruptMessage(f"snappy: {len(view) - position} stray bytes after the last block")
        (length,) = _LENGTH.unpack_from(view, position)
        position += _LENGTH.size
        if not 0 < length <= len(view) - position:
            raise CorruptMessage(
                f"snappy: a block says that it has {length} bytes; {len(view) - position} are left"
            )
        part = _decompress_block(
            view[position : position + length], max_bytes - produced, max_bytes
        )
        parts.append(part)
        produced += len(part)
        check_blocks(len(parts), produced, "snappy")
        position += length
    return b"".join(parts)


def is_usual(data: Buffer) -> bool:
    """Whether `data`, which `decompress` has accepted, has framing of version 1 or is one raw
    block."""
    head = bytes(memoryview(data)[: len(_HEADER)])
    return head == _HEADER or not head.startswith(_MAGIC)


def _decompress_block(block: memoryview, left_bytes: int, max_bytes: int) -> bytes:
    """Return the content of one raw block. Its first bytes give the size, which is checked
    first."""
    try:
        if snappy.decompress_raw_len(block) > left_bytes:
            raise decompressed_too_large(max_bytes)
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise CorruptMessage(f"snappy: {error}") from error
