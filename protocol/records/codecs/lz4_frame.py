"""LZ4 frames, as far as Kafka's formats use them.

    04 22 4d 18 | FLG | BD | content size uint64, if FLG says so | HC | blocks | 00 00 00 00 | ...
    block:  length uint32, high bit set if not compressed | data | checksum, if FLG says so

Integers are little-endian. FLG: version 01 in the two high bits, independent blocks, block
checksums, content size, content checksum, two reserved bits. BD: block size id 4 to 7 (64 KiB,
256 KiB, 1 MiB, 4 MiB) in bits 4-6, the rest reserved.

HC is the second byte of xxh32 over the bytes from FLG to before HC. Kafka's first implementation
also hashed the four magic bytes, and its clients expect that HC in messages of magic 0. So a
message that changes its magic needs a new frame.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct, unpack_from
from typing import Final

import lz4.block
import lz4.frame

from ....values import value_class
from ...errors import CorruptMessage
from ..layout import Buffer
from ..problems import check_blocks, decompressed_too_large

_PRIME_1: Final = 0x9E3779B1
_PRIME_2: Final = 0x85EBCA77
_PRIME_3: Final = 0xC2B2AE3D
_PRIME_4: Final = 0x27D4EB2F
_PRIME_5: Final = 0x165667B1
_MASK: Final = 0xFFFFFFFF
_STRIPE_BYTES: Final = 16


def xxh32(data: bytes) -> int:
    """Return the 32-bit xxHash of a few bytes, with seed 0. Far too slow for content."""
    size = len(data)
    at = 0
    if size >= _STRIPE_BYTES:
        lanes = [_PRIME_1 + _PRIME_2, _PRIME_2, 0, -_PRIME_1]
        for at in range(0, size - _STRIPE_BYTES + 1, _STRIPE_BYTES):
            words = unpack_from("<4I", data, at)
            lanes = [
                _rotate(lane + word * _PRIME_2, 13) * _PRIME_1
                for lane, word in zip(lanes, words, strict=True)
            ]
        at += _STRIPE_BYTES
        total = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = _PRIME_5
    total += size
    while at + 4 <= size:
        (word,) = unpack_from("<I", data, at)
        total = _rotate(total + word * _PRIME_3, 17) * _PRIME_4
        at += 4
    for byte in data[at:]:
        total = _rotate(total + byte * _PRIME_5, 11) * _PRIME_1
    total &= _MASK
    total = (total ^ total >> 15) * _PRIME_2 & _MASK
    total = (total ^ total >> 13) * _PRIME_3 & _MASK
    return total ^ total >> 16


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK


_MAGIC: Final = b"\x04\x22\x4d\x18"
_END_MARK: Final = bytes(4)
_STORED_BIT: Final = 0x80000000
_LENGTH: Final = Struct("<I")
_CONTENT_SIZE: Final = Struct("<Q")
_CHECKSUM_BYTES: Final = 4

_VERSION_MASK: Final = 0xC0
_VERSION_1: Final = 0x40
_INDEPENDENT: Final = 0x20
_BLOCK_CHECKSUMS: Final = 0x10
_HAS_CONTENT_SIZE: Final = 0x08
_CONTENT_CHECKSUM: Final = 0x04
_FLG_RESERVED: Final = 0x03
_BD_RESERVED: Final = 0x8F
_SMALLEST_BLOCK_ID: Final = 4

_WRITTEN_DESCRIPTOR: Final = bytes((_VERSION_1 | _INDEPENDENT, _SMALLEST_BLOCK_ID << 4))
BLOCK_BYTES: Final = 64 * 1024
"""Content of each block that is written."""

_LARGEST_RATIO: Final = 256
"""Maximum ratio of a block's content to its bytes: the format's bound is 255."""

_WRONG_BLOCK_CHECKSUM: Final = "blockChecksum"
"""Part of the library's error text for a wrong block checksum."""


def header_checksum(descriptor: bytes, magic: int) -> int:
    """Return HC for a descriptor (FLG, BD, content size) in a message of this magic."""
    return xxh32(descriptor if magic else _MAGIC + descriptor) >> 8 & 0xFF


def compress(data: Buffer, magic: int) -> bytes:
    """Return one frame of independent 64 KiB blocks, without checksums."""
    view = memoryview(data)
    checksum = header_checksum(_WRITTEN_DESCRIPTOR, magic)
    parts: list[Buffer] = [_MAGIC, _WRITTEN_DESCRIPTOR, bytes((checksum,))]
    for start in range(0, len(view), BLOCK_BYTES):
        content = view[start : start + BLOCK_BYTES]
        block = _compress_block(content)
        if len(block) < len(content):
            parts += (_LENGTH.pack(len(block)), block)
        else:
            parts += (_LENGTH.pack(len(content) | _STORED_BIT), content)
    parts.append(_END_MARK)
    return b"".join(parts)


def decompress(
    data: Buffer, magic: int, max_bytes: int, *, verify_checksums: bool = False
) -> bytes:
    """Return the content of `data`, which is exactly one frame.

    `verify_checksums` verifies those of the blocks and of the content. Stored data need no such
    check, because the message's CRC covers the same bytes. The header checksum is verified from
    magic 1 on. Raises `CorruptMessage`, and `MessageTooLarge` for more than `max_bytes` of content.
    """
    view = memoryview(data)
    frame = _read_header(view, magic)
    checked = _CheckedFrame(view, frame) if verify_checksums and frame.has_checksums else None
    open_block = partial(_open_block, frame) if checked is None else checked.open_block
    content, position = _open_blocks(view, frame, open_block, max_bytes)
    end_at = position - _LENGTH.size
    position += frame.content_checksum_bytes
    if position != len(view):
        raise CorruptMessage(f"lz4: the frame has {position} bytes, the message {len(view)}")
    if frame.content_bytes not in (None, len(content)):
        raise CorruptMessage(
            f"lz4: {len(content)} bytes of content, {frame.content_bytes} announced"
        )
    if checked is not None:
        checked.end(view[end_at:])
    return content


def _open_blocks(
    view: memoryview, frame: "_Frame", open_block: Callable[[memoryview], bytes], max_bytes: int
) -> tuple[bytes, int]:
    """Return the content of all blocks, and the position after the end mark.

    `open_block` returns the content of a block, given from its length to its checksum, if it has
    one.
    """
    parts: list[bytes] = []
    position, produced = frame.header_bytes, 0
    while True:
        if len(view) - position < _LENGTH.size:
            raise CorruptMessage(f"lz4: the frame ends early, after {produced} bytes of content")
        (length,) = _LENGTH.unpack_from(view, position)
        if length == 0:
            return b"".join(parts), position + _LENGTH.size
        length &= ~_STORED_BIT
        left_bytes = len(view) - position - _LENGTH.size
        if length > min(frame.block_bytes, left_bytes):
            raise CorruptMessage(
                f"lz4: a block has {length} bytes; {left_bytes} are left"
                f" and the frame's blocks have at most {frame.block_bytes}"
            )
        stop = position + _LENGTH.size + length + frame.block_checksum_bytes
        part = open_block(view[position:stop])
        parts.append(part)
        produced += len(part)
        if produced > max_bytes:
            raise decompressed_too_large(max_bytes)
        check_blocks(len(parts), produced, "lz4")
        position = stop


@value_class
class _Frame:
    header_bytes: int
    block_bytes: int
    """Maximum content of a block."""
    block_checksum_bytes: int
    content_checksum_bytes: int
    content_bytes: int | None

    @property
    def has_checksums(self) -> bool:
        return bool(self.block_checksum_bytes or self.content_checksum_bytes)


def _read_header(view: memoryview, magic: int) -> _Frame:
    descriptor_at = len(_MAGIC)
    if bytes(view[:descriptor_at]) != _MAGIC:
        raise CorruptMessage(f"lz4: no frame, it begins with {bytes(view[:descriptor_at]).hex()}")
    header = bytes(view[: descriptor_at + 2 + _CONTENT_SIZE.size + 1])
    flags = header[descriptor_at] if len(header) > descriptor_at else 0
    sized = bool(flags & _HAS_CONTENT_SIZE)
    checksum_at = descriptor_at + 2 + (_CONTENT_SIZE.size if sized else 0)
    if len(header) <= checksum_at:
        raise CorruptMessage(f"lz4: the frame ends early, in its header of {len(header)} bytes")
    block_descriptor = header[descriptor_at + 1]
    block_id = block_descriptor >> 4 & 0x07
    if (
        flags & _VERSION_MASK != _VERSION_1
        or not flags & _INDEPENDENT
        or flags & _FLG_RESERVED
        or block_descriptor & _BD_RESERVED
        or block_id < _SMALLEST_BLOCK_ID
    ):
        raise CorruptMessage(
            f"lz4: FLG {flags:02x}, BD {block_descriptor:02x}; read are frames of version 1 with"
            " independent blocks, block size id 4 to 7 and no reserved bit"
        )
    expected = header_checksum(header[descriptor_at:checksum_at], magic)
    if magic > 0 and header[checksum_at] != expected:
        raise CorruptMessage(
            f"lz4: the header checksum is {header[checksum_at]:02x}, not {expected:02x}"
        )
    return _Frame(
        header_bytes=checksum_at + 1,
        block_bytes=1 << 8 + 2 * block_id,
        block_checksum_bytes=_CHECKSUM_BYTES if flags & _BLOCK_CHECKSUMS else 0,
        content_checksum_bytes=_CHECKSUM_BYTES if flags & _CONTENT_CHECKSUM else 0,
        content_bytes=_CONTENT_SIZE.unpack_from(header, descriptor_at + 2)[0] if sized else None,
    )


def _compress_block(content: memoryview) -> bytes:
    block: bytes = lz4.block.compress(content, store_size=False)
    return block


def _open_block(frame: _Frame, block: memoryview) -> bytes:
    """Return the content of a block, without checking its checksum."""
    (length,) = _LENGTH.unpack_from(block)
    stored = bool(length & _STORED_BIT)
    packed = block[_LENGTH.size : _LENGTH.size + (length & ~_STORED_BIT)]
    if stored:
        return bytes(packed)
    room_bytes = min(frame.block_bytes, len(packed) * _LARGEST_RATIO)
    try:
        content: bytes = lz4.block.decompress(packed, uncompressed_size=room_bytes)
    except lz4.block.LZ4BlockError as error:
        raise CorruptMessage(f"lz4: {error}") from error
    return content


class _CheckedFrame:
    """A frame whose checksums the library verifies while it decompresses."""

    def __init__(self, view: memoryview, frame: _Frame) -> None:
        self._frame = frame
        self._blocks = 0
        self._decompressor = lz4.frame.LZ4FrameDecompressor()
        header = bytearray(view[: frame.header_bytes])
        # The library expects the checksum of magic 1; in messages of magic 0 it may be anything.
        header[-1] = header_checksum(bytes(header[len(_MAGIC) : -1]), 1)
        self._decompressor.decompress(header)

    def open_block(self, block: memoryview) -> bytes:
        """Return the content of the next block. Raises `CorruptMessage` for a wrong checksum."""
        try:
            content: bytes = self._decompressor.decompress(block, self._frame.block_bytes)
        except RuntimeError as error:
            if _WRONG_BLOCK_CHECKSUM not in str(error):
                raise CorruptMessage(f"lz4: {error}") from error
            raise CorruptMessage(
                f"lz4: the checksum of block {self._blocks} is not that of its bytes"
            ) from error
        self._blocks += 1
        return content

    def end(self, trailer: memoryview) -> None:
        """Verify the checksum of the content; `trailer` is the end mark and what follows it."""
        try:
            self._decompressor.decompress(trailer)
        except RuntimeError as error:
            raise CorruptMessage("lz4: the content checksum is not that of the content") from error
        assert self._decompressor.eof
