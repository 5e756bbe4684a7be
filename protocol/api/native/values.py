"""Single values in msgpack, each in its shortest form: what encoders are made of.

Bytes are exactly those of the package `msgpack`. That is not used here because a function call for
each value, and constants joined beforehand, take half of the time of building maps for it.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol


class Elsewhere(Protocol):
    """Bytes that are not in memory and go to the other side from where they are, as from a file."""

    def __len__(self) -> int: ...


Data = bytes | bytearray | memoryview
Part = Data | Elsewhere
"""A stretch of what is sent."""

NIL: Final = b"\xc0"
FALSE: Final = b"\xc2"
TRUE: Final = b"\xc3"

_INTEGERS: Final = {value: bytes([value % 256]) for value in range(-32, 128)}
small_integer: Final[Callable[[int], bytes | None]] = _INTEGERS.get
"""The one byte of a small integer; `None` for others: `small_integer(n) or integer(n)`."""

_UINT16: Final = Struct(">BH").pack
_UINT32: Final = Struct(">BI").pack
_UINT64: Final = Struct(">BQ").pack
_INT8: Final = Struct(">Bb").pack
_INT16: Final = Struct(">Bh").pack
_INT32: Final = Struct(">Bi").pack
_INT64: Final = Struct(">Bq").pack


def integer(value: int) -> bytes:
    """An integer of 64 bits, signed or not."""
    if value >= 0:
        if value < 0x80:
            return _INTEGERS[value]
        if value < 0x100:
            return bytes((0xCC, value))
        if value < 0x1_0000:
            return _UINT16(0xCD, value)
        if value < 0x1_0000_0000:
            return _UINT32(0xCE, value)
        return _UINT64(0xCF, value)
    if value >= -0x20:
        return _INTEGERS[value]
    if value >= -0x80:
        return _INT8(0xD0, value)
    if value >= -0x8000:
        return _INT16(0xD1, value)
    if value >= -0x8000_0000:
        return _INT32(0xD2, value)
    return _INT64(0xD3, value)


def text(value: str | None) -> bytes:
    """A string, or nil."""
    if value is None:
        return NIL
    data = value.encode()
    size = len(data)
    if size < 0x20:
        return bytes((0xA0 | size,)) + data
    if size < 0x100:
        return bytes((0xD9, size)) + data
    if size < 0x1_0000:
        return _UINT16(0xDA, size) + data
    return _UINT32(0xDB, size) + data


def clipped_text(value: str | None, max_bytes: int) -> bytes:
    """A string cut to `max_bytes`, or nil."""
    return NIL if value is None else text(clip(value, max_bytes))


def binary(value: Part | None) -> tuple[Part, ...]:
    """A `bin`, its head and the bytes themselves, or nil."""
    return (NIL,) if value is None else (binary_head(len(value)), value)


def binary_head(size: int) -> bytes:
    """What stands before the bytes of a `bin`."""
    if size < 0x100:
        return bytes((0xC4, size))
    if size < 0x1_0000:
        return _UINT16(0xC5, size)
    return _UINT32(0xC6, size)


def array_head(count: int) -> bytes:
    """What stands before the items of an array."""
    if count < 0x10:
        return bytes((0x90 | count,))
    if count < 0x1_0000:
        return _UINT16(0xDC, count)
    return _UINT32(0xDD, count)


def map_head(count: int) -> bytes:
    """What stands before the keys and values of a map."""
    return bytes((0x80 | count,)) if count < 0x10 else _UINT16(0xDE, count)


def clip(text: str, max_bytes: int) -> str:
    """The longest beginning of `text` that is at most `max_bytes` long in UTF-8.

    Lone surrogates, which UTF-8 cannot say, become question marks.
    """
    encoded = text.encode("utf-8", "replace")
    return encoded[:max_bytes].decode("utf-8", "ignore")


UNUSUAL: Final[tuple[type[Exception], ...]] = (IndexError, ValueError)
"""What `read_integer` raises where there is no integer."""


def read_integer(data: Data, at: int) -> tuple[int, int]:
    """The integer at `at`, in any form, and the position behind it."""
    first = data[at]
    if first < 0x80:
        return first, at + 1
    if first >= 0xE0:
        return first - 0x100, at + 1
    if 0xCC <= first <= 0xCF:
        end = at + 1 + (1 << (first - 0xCC))
        return int.from_bytes(data[at + 1 : end], "big"), end
    if 0xD0 <= first <= 0xD3:
        end = at + 1 + (1 << (first - 0xD0))
        return int.from_bytes(data[at + 1 : end], "big", signed=True), end
    raise ValueError("no integer")
