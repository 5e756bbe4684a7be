"""Kafka's compact encoding ("flexible versions", KIP-482), for the few requests that have no other.

    length, count     unsigned varint of the value plus 1; 0 for null
    message           its fields, then tagged fields
    tagged fields     count (unsigned varint), then each: tag, size (unsigned varints), bytes

Numbers and booleans are as in the other encoding. The header of a request or response ends with
tagged fields too, except that of an api-versions response; this module reads and writes them before
the message. Tagged fields are skipped, because none is declared. These requests are rare, so plain
Python is fast enough.
"""

from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct
from typing import Any, Final, TypeVar, cast

from ...limits import LENGTH_BYTES
from ..framing import Frame
from ..pieces import Output, Pieces, chunks, is_large
from ..schema import (
    Array,
    Boolean,
    Data,
    Field,
    Float,
    Integer,
    Records,
    Text,
    WireType,
    fields_of,
    has_plain_head,
)
from ..writing import Written, clip_of
from .fields import text_limit

T = TypeVar("T")

_VARINT_BYTES: Final = 5
_NO_TAGS: Final = b"\0"
_FLOAT: Final = Struct(">d")

_PIECE_ITEMS: Final = 64
_PIECE_BYTES: Final = 64 * 1024
"""Number of items, and size of one item in bytes, that are read without a break."""

Type = WireType | type[Any]

_fields_of: Final = cast(
    Callable[[type[Any], int], Sequence[Field]],
    cache(lambda struct, version: fields_of(struct, version, native=False)),
)


_has_arrays: Final = cast(
    Callable[[type[Any], int], bool],
    cache(
        lambda struct, version: any(
            isinstance(spec.type, Array) for spec in fields_of(struct, version, native=False)
        )
    ),
)


class Wrong(Exception):
    """The bytes are no message of the class and version. The text names the wrong field."""


def read(struct: type[T], version: int, content: Frame, max_values: int) -> T:
    """Decode the tagged fields of the header, then the message. Raises `Wrong`.

    As in Kafka, bytes after the message are ignored: librdkafka ends such requests with one extra
    byte.
    """
    reader = _Reader(content, version, max_values)
    if not has_plain_head(struct):
        reader.tags("the head")
    return reader.message(struct, "")  # type: ignore[no-any-return]


def read_pieces(struct: type[T], version: int, content: Frame, max_values: int) -> Pieces[T]:
    """Like `read`, in pieces."""
    reader = _Reader(content, version, max_values)
    if not has_plain_head(struct):
        reader.tags("the head")
    found: T = yield from _read_message(reader, struct, "")
    return found


def _read_message(reader: "_Reader", struct: type[Any], path: str) -> Pieces[Any]:
    found: dict[str, Any] = {}
    for spec in _fields_of(struct, reader.version):
        inner = _joined(path, spec)
        if isinstance(spec.type, Array):
            found[spec.name] = yield from _read_items(reader, spec.type, inner)
        else:
            found[spec.name] = reader.value(spec.type, inner)
    reader.tags(path or "the body")
    return struct(**found)


def _read_items(reader: "_Reader", wire_type: Array, path: str) -> Pieces[list[Any] | None]:
    count = reader.count(wire_type, path)
    if count is None:
        return None
    of = wire_type.of
    items: list[Any] = []
    for place in range(count):
        begin = reader.at
        inner = f"{path}[{place}]"
        if isinstance(of, type) and _has_arrays(of, reader.version):
            items.append((yield from _read_message(reader, of, inner)))
        else:
            items.append(reader.value(of, inner))
        if place % _PIECE_ITEMS == 0 or reader.at - begin > _PIECE_BYTES:
            yield
    return items


def write_pieces(head: bytes, message: object, version: int) -> Pieces[Written]:
    """Like `write`, in pieces; the frame may be in parts."""
    output = Output()
    output.put(head + _head_tags(message))
    yield from _write_message(output, message, version)
    return output.frame(LENGTH_BYTES)


def _write_message(output: Output, message: Any, version: int) -> Pieces[None]:
    for spec in _fields_of(type(message), version):
        value = getattr(message, spec.name)
        written = bytearray()
        if not isinstance(spec.type, Array) or value is None:
            _write(written, spec.type, value, version)
            output.put(written)
            continue
        _write_varint(written, len(value) + 1)
        of = spec.type.of
        for chunk in chunks(of, value):
            if is_large(of, chunk):
                output.put(written)
                yield from _write_message(output, chunk[0], version)
                written = bytearray()
            for item in () if is_large(of, chunk) else chunk:
                _write(written, of, item, version)
                if len(written) > _PIECE_BYTES:  # few items with long texts
                    output.put(written)
                    written = bytearray()
                    yield
            yield
        output.put(written)
    output.put(_NO_TAGS)


def write(head: bytes, message: object, version: int) -> bytes:
    """Return the frame of a header (given without its tagged fields) and a message, with its length
    in front."""
    output = bytearray(LENGTH_BYTES)
    output += head
    output += _head_tags(message)
    _write(output, type(message), message, version)
    output[:LENGTH_BYTES] = (len(output) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big")
    return bytes(output)


def _head_tags(message: object) -> bytes:
    """Return the tagged fields that end the header of a message."""
    return b"" if has_plain_head(type(message)) else _NO_TAGS


class _Reader:
    def __init__(self, content: Frame, version: int, max_values: int) -> None:
        self._content = memoryview(content)
        self.version = version
        self._room = max_values
        self.at = 0

    def message(self, struct: type[Any], path: str) -> Any:
        specs = _fields_of(struct, self.version)
        found = {spec.name: self.value(spec.type, _joined(path, spec)) for spec in specs}
        self.tags(path or "the body")
        return struct(**found)

    def tags(self, path: str) -> None:
        """Skip tagged fields. Each takes at least two bytes."""
        for _ in range(self._varint(path)):
            self._varint(path)
            self._take(self._varint(path), path)

    def value(self, wire_type: Type, path: str) -> Any:
        match wire_type:
            case Integer():
                content = self._take(wire_type.bits // 8, path)
                return int.from_bytes(content, "big", signed=True)
            case Float():
                return _FLOAT.unpack(self._take(_FLOAT.size, path))[0]
            case Boolean():
                return self._take(1, path)[0] != 0
            case Text():
                return self._text(wire_type, path)
            case Records():
                length = self._varint(path)
                return None if length == 0 else self._take(length - 1, path)
            case Data():
                size = self._size(wire_type.max_bytes, wire_type.nullable, path)
                return None if size is None else bytes(self._take(size, path))
            case Array():
                return self._items(wire_type, path)
            case type():
                return self.message(wire_type, path)

    def _text(self, wire_type: Text, path: str) -> str | None:
        size = self._size(text_limit(wire_type), wire_type.nullable, path)
        if size is None:
            return None
        try:
            return str(self._take(size, path), "utf-8")
        except UnicodeDecodeError:
            raise Wrong(f"`{path}` is not UTF-8") from None

    def _items(self, wire_type: Array, path: str) -> list[Any] | None:
        count = self.count(wire_type, path)
        if count is None:
            return None
        return [self.value(wire_type.of, f"{path}[{place}]") for place in range(count)]

    def count(self, wire_type: Array, path: str) -> int | None:
        """Read the number of items that follow; `None` for null."""
        count = self._varint(path) - 1
        if count < 0:
            if wire_type.nullable:
                return None
            raise Wrong(f"`{path}` must be an array, not null")
        left = len(self._content) - self.at
        if count > left:
            raise Wrong(f"`{path}` says that it has {count} items, and {left} bytes are left")
        if count > wire_type.max_items:
            raise Wrong(f"`{path}` must have at most {wire_type.max_items} items, not {count}")
        self._room -= count
        if self._room < 0:
            raise Wrong("it holds too many values")
        return count

    def _size(self, limit: int, nullable: bool, path: str) -> int | None:
        size = self._varint(path) - 1
        if size < 0:
            if nullable:
                return None
            raise Wrong(f"`{path}` must not be null")
        if size > limit:
            raise Wrong(f"`{path}` must be at most {limit} bytes long, not {size}")
        return size

    def _varint(self, path: str) -> int:
        found = 0
        for place in range(_VARINT_BYTES):
            byte = self._take(1, path)[0]
            found |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                break
        else:
            raise Wrong(f"a number in `{path}` is longer than {_VARINT_BYTES} bytes")
        if found >= 1 << 32:
            raise Wrong(f"a number in `{path}` has more than 32 bits")
        return found

    def _take(self, size: int, path: str) -> memoryview:
        begin, self.at = self.at, self.at + size
        if self.at > len(self._content):
            raise Wrong(f"it ends in the middle of `{path}`")
        return self._content[begin : self.at]


def _joined(path: str, spec: Field) -> str:
    return f"{path}.{spec.name}" if path else spec.name


def _write(output: bytearray, wire_type: Type, value: Any, version: int) -> None:
    match wire_type:
        case Integer():
            output += value.to_bytes(wire_type.bits // 8, "big", signed=True)
        case Float():
            output += _FLOAT.pack(value)
        case Boolean():
            output.append(bool(value))
        case Text():
            clip = clip_of(wire_type)
            text = value if value is None or clip is None else clip(value)
            _write_bytes(output, None if text is None else text.encode())
        case Records() | Data():
            _write_bytes(output, value)
        case Array():
            _write_varint(output, 0 if value is None else len(value) + 1)
            for item in value or ():
                _write(output, wire_type.of, item, version)
        case type():
            for spec in _fields_of(wire_type, version):
                _write(output, spec.type, getattr(value, spec.name), version)
            output += _NO_TAGS


def _write_bytes(output: bytearray, content: bytes | None) -> None:
    if content is None:
        _write_varint(output, 0)
    else:
        _write_varint(output, len(content) + 1)
        output += content


def _write_varint(output: bytearray, value: int) -> None:
    while value >= 0x80:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)
