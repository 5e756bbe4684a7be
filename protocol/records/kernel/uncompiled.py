"""What the compiled modules take from the compiler and from C, for when they run as they are.

A module that can be compiled imports this one under the name `cython` where Cython is not
installed, and the functions under the names of those in `kernel.h`.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from ..layout import Buffer

crc32: Callable[[Buffer], int]
try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

compiled: Final = False

_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")
_OWN_INT32: Final = Struct("=i")
_OWN_INT64: Final = Struct("=q")


def bytes_of(buffer: memoryview) -> memoryview:
    """The memory of `buffer`; in C the address of its first byte. `BufferError` if not flat."""
    if buffer.itemsize != 1 or not buffer.c_contiguous:
        raise BufferError("the bytes of a message set must follow each other in memory")
    return buffer


def int32_at(data: memoryview, position: int) -> int:
    """The big-endian signed 32-bit integer at `position`."""
    number: int = _INT32.unpack_from(data, position)[0]
    return number


def int64_at(data: memoryview, position: int) -> int:
    """The big-endian signed 64-bit integer at `position`."""
    number: int = _INT64.unpack_from(data, position)[0]
    return number


def put_int32(data: memoryview, position: int, value: int) -> None:
    """Write the lower 32 bits of `value` to `position`, big-endian."""
    _UINT32.pack_into(data, position, value & 0xFFFFFFFF)


put_int64: Callable[[memoryview, int, int], None] = _INT64.pack_into
"""Write a value to a position, big-endian in eight bytes; no function around it, for speed."""


def own_int32(data: memoryview, row: int) -> int:
    """The 32-bit integer of a row, in this machine's byte order."""
    number: int = _OWN_INT32.unpack_from(data, 4 * row)[0]
    return number


def own_int64(data: memoryview, row: int) -> int:
    """As `own_int32`, of 64 bits."""
    number: int = _OWN_INT64.unpack_from(data, 8 * row)[0]
    return number


def copy_bytes(data: memoryview, position: int, content: Buffer, start: int, length: int) -> None:
    """Write `length` bytes of `content`, from `start` on, to `position`."""
    data[position : position + length] = content[start : start + length]


def content_of(content: bytes | None) -> bytes:
    """The memory of `content`; there is nothing to read for `None`."""
    return b"" if content is None else content


def writable(buffer: bytearray) -> memoryview:
    """The memory of `buffer`, which keeps its length until that is released."""
    return memoryview(buffer)


undefined: Callable[[int], bytearray] = bytearray
"""So many bytes, whatever they are; in C nobody writes them."""


def int32s(buffer: bytearray) -> memoryview:
    """As `writable`, in this machine's signed 32-bit integers."""
    return memoryview(buffer).cast("i")


def int64s(buffer: bytearray) -> memoryview:
    """As `writable`, in this machine's signed 64-bit integers."""
    return memoryview(buffer).cast("q")


def crc32_at(data: memoryview, position: int, length: int) -> int:
    """zlib's CRC-32 of `length` bytes from `position` on."""
    return crc32(data[position : position + length])


def crc32c_at(data: memoryview, position: int, length: int) -> int:
    """CRC-32C of `length` bytes from `position` on. The library wants bytes and nothing else."""
    import google_crc32c  # here, because the compiled form does without it

    crc: int = google_crc32c.value(bytes(data[position : position + length]))
    return crc


def usual(cursor: object) -> bool:
    """In C, go to the next record if it is like most; here nothing is quicker than to step."""
    return False
