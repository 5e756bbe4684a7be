"""Frames for human readers: one line of hexadecimal for each value, with its meaning."""

from collections.abc import Iterator
from typing import Any, Final

import msgpack

from ..limits import LENGTH_BYTES

_BYTES_PER_LINE: Final = 16
_INDENT: Final = "  "


def hex_dump(frame: bytes) -> Iterator[str]:
    """Yield the lines of a whole frame, its length first, in two columns."""
    length = frame[:LENGTH_BYTES]
    yield from _columns(length, f"length: {int.from_bytes(length, 'big')}")
    payload = frame[LENGTH_BYTES:]
    unpacker = msgpack.Unpacker(max_buffer_size=len(payload))
    unpacker.feed(payload)
    yield from _value(unpacker, payload, 0, b"", "")


def _value(unpacker: Any, data: bytes, depth: int, key: bytes, name: str) -> Iterator[str]:
    """Yield the lines of one value. `key` is the bytes of its map key, which share its line."""
    start = unpacker.tell()
    first = data[start]
    label = _INDENT * depth + (f"{name}: " if name else "")
    if 0x90 <= first <= 0x9F or first in (0xDC, 0xDD):
        count = unpacker.read_array_header()
        yield from _columns(key + data[start : unpacker.tell()], f"{label}array of {count}")
        for _ in range(count):
            yield from _value(unpacker, data, depth + 1, b"", "")
    elif 0x80 <= first <= 0x8F or first in (0xDE, 0xDF):
        count = unpacker.read_map_header()
        yield from _columns(key + data[start : unpacker.tell()], f"{label}map of {count}")
        for _ in range(count):
            key_start = unpacker.tell()
            inner_name = unpacker.unpack()
            inner_key = data[key_start : unpacker.tell()]
            yield from _value(unpacker, data, depth + 1, inner_key, inner_name)
    else:
        text = _scalar(unpacker.unpack())
        yield from _columns(key + data[start : unpacker.tell()], label + text)


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return "nil" if value is None else str(value).lower()


def _columns(data: bytes, text: str) -> Iterator[str]:
    width = 3 * _BYTES_PER_LINE + 1
    for start in range(0, len(data), _BYTES_PER_LINE):
        part = data[start : start + _BYTES_PER_LINE].hex(" ")
        last = start + _BYTES_PER_LINE >= len(data)
        yield f"{part:{width}}{text}" if last else part
