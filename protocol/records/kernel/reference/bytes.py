"""Numbers and buffers in memory, and the layouts of headers."""

from struct import Struct
from typing import Final

from ...layout import MESSAGE_CODECS, MESSAGE_OVERHEAD, Buffer, Codec

LARGEST_INT32: Final = 2**31 - 1
LARGEST_INT64: Final = 2**63 - 1
SMALLEST_INT64: Final = -(2**63)
LARGE_OFFSET: Final = 2**62
"""Offsets up to this size can be added to each other within 64 bits."""
V0_OVERHEAD, V1_OVERHEAD = MESSAGE_OVERHEAD[0], MESSAGE_OVERHEAD[1]
HIGHEST_MESSAGE_CODEC: Final = int(max(MESSAGE_CODECS))
HIGHEST_CODEC: Final = int(max(Codec))
LENGTH_BYTES: Final = 4
TIME_BYTES: Final = 8

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
UINT32: Final = Struct(">I")
INT64: Final = Struct(">q")
HEAD: Final = Struct(">qi")
"""Offset and size of an entry."""
ENTRY_HEAD: Final = Struct(">qiIBB")
"""The same, then CRC, magic and attributes of the message."""
V0_HEAD: Final = Struct(">BB")
V1_HEAD: Final = Struct(">BBq")
"""Magic, attributes, and in v1 the timestamp."""


def int32_at(data: Buffer, at: int) -> int:
    number: int = INT32.unpack_from(data, at)[0]
    return number


def int64_at(data: Buffer, at: int) -> int:
    number: int = INT64.unpack_from(data, at)[0]
    return number


def wrapped(number: int) -> int:
    """Return `number` wrapped around to 64 bits. A sum of numbers from messages may have any
    size."""
    return (number + 2**63) % 2**64 - 2**63


def flat(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    if view.itemsize != 1 or not view.c_contiguous:
        raise BufferError("the bytes of a message set must follow each other in memory")
    return view


def part(buffer: Buffer, start: int, end: int) -> memoryview:
    view = flat(buffer)
    if not 0 <= start <= len(view) or end > len(view):
        raise IndexError(f"no bytes {start} to {end} in a buffer of {len(view)}")
    return view
