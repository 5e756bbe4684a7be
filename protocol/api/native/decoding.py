"""Decoders of the native encoding's usual form: bytes to a message object, in one go.

The usual form is the one that Horolog's own encoders give: fields in the order of their
declaration, those with a default perhaps left out. A decoder is a function written once for a
message class and a version out of its declaration. It is for frames that are worth it: unpacking
first means to look at every byte for limits beforehand, and to copy the record set, which here
comes as a view of the frame.

Whatever is unusual raises one of `UNUSUAL`, be it wrong or not: then it is decoded by `plans`,
which tell what is wrong. So nothing is refused here, and nothing accepted that they refuse.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

from ...limits import MAX_REQUEST_VALUES
from ..schema import Array, Boolean, Field, Integer, Records, Text, WireType, all_fields, fields_of
from ..schema import Data as DataType
from ..source import Source
from .values import Data, text

Decode = Callable[[Data, int], tuple[Any, int]]
"""Of a frame and a position in it: the value, and the position behind it."""

FEW_ITEMS: Final = 64
"""Arrays of up to so many items cannot exceed the limit of values of a request together, whatever
the nesting; more are read here only in frames with fewer bytes than that limit."""


class Unusual(Exception):
    """The bytes do not have the usual form."""


UNUSUAL: Final[tuple[type[Exception], ...]] = (Unusual, IndexError, UnicodeDecodeError)
"""What a decoder raises. A value that is cut off ends in `IndexError`, or behind the frame."""


def integer(data: Data, at: int) -> tuple[int, int]:
    """An integer in any form, of any size."""
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
    raise Unusual


def string(data: Data, at: int, max_bytes: int) -> tuple[str, int]:
    """A string of at most `max_bytes`."""
    first = data[at]
    at += 1
    if 0xA0 <= first < 0xC0:
        size = first & 0x1F
    elif 0xD9 <= first <= 0xDB:
        width = 1 << (first - 0xD9)
        size = int.from_bytes(data[at : at + width], "big")
        at += width
    else:
        raise Unusual
    if size > max_bytes:
        raise Unusual
    return str(data[at : at + size], "utf-8"), at + size


def nullable_string(data: Data, at: int, max_bytes: int) -> tuple[str | None, int]:
    """A string of at most `max_bytes`, or nil."""
    if data[at] == 0xC0:
        return None, at + 1
    return string(data, at, max_bytes)


def boolean(data: Data, at: int) -> tuple[bool, int]:
    first = data[at]
    if first == 0xC3:
        return True, at + 1
    if first == 0xC2:
        return False, at + 1
    raise Unusual


def binary(data: Data, at: int) -> tuple[memoryview | None, int]:
    """A view of the bytes of a `bin`, which can be written to if `data` can; or nil."""
    first = data[at]
    at += 1
    if 0xC4 <= first <= 0xC6:
        width = 1 << (first - 0xC4)
        size = int.from_bytes(data[at : at + width], "big")
        at += width
        return memoryview(data)[at : at + size], at + size
    if first == 0xC0:
        return None, at
    raise Unusual


def array_count(data: Data, at: int, max_items: int) -> tuple[int, int]:
    """How many items an array has, and where they begin."""
    first = data[at]
    at += 1
    if 0x90 <= first < 0xA0:
        count = first & 0x0F
    elif first in (0xDC, 0xDD):
        width = 2 if first == 0xDC else 4
        count = int.from_bytes(data[at : at + width], "big")
        at += width
    else:
        raise Unusual
    if count > max_items or (count > FEW_ITEMS and len(data) > MAX_REQUEST_VALUES):
        raise Unusual
    return count, at


def data_of(data: Data, at: int, max_bytes: int) -> tuple[bytes | None, int]:
    """The bytes of a `bin` of at most `max_bytes`, or nil."""
    view, end = binary(data, at)
    if view is None:
        return None, end
    if end - at > max_bytes or end > len(data):
        raise Unusual
    return bytes(view), end


def some_data_of(data: Data, at: int, max_bytes: int) -> tuple[bytes, int]:
    """The same, but not nil."""
    found, end = data_of(data, at, max_bytes)
    if found is None:
        raise Unusual
    return found, end


_NAMES: Final = {
    "data_of": data_of,
    "some_data_of": some_data_of,
    "Unusual": Unusual,
    "integer": integer,
    "string": string,
    "nullable_string": nullable_string,
    "boolean": boolean,
    "binary": binary,
    "array_count": array_count,
    "new": object.__new__,
}


def _make_decoder(struct: type[Any], version: int) -> Decode:
    source = Source("def decode(data, at):", _NAMES)
    specs = fields_of(struct, version, native=True)
    source.add("left = data[at] - 0x80")  # keys of the map that were not met yet
    source.add("if not 0 <= left < 16: raise Unusual")
    source.add("at += 1")
    # Not by its constructor, which takes three times as long with all its keywords.
    source.add(f"message = new({source.name(struct)})")
    for spec in specs:
        _add_field(source, spec, version)
    names = {spec.name for spec in specs}
    for spec in all_fields(struct):
        if spec.name not in names:
            _add_default(source, spec)
    source.add("if left: raise Unusual")
    source.add("return message, at")
    decode: Decode = source.function(f"decoder of {struct.__name__} {version}")
    return decode


decoder: Final = cast(Callable[[type[Any], int], Decode], cache(_make_decoder))
"""The decoder of a message class in a version."""


def _add_field(source: Source, spec: Field, version: int) -> None:
    key = text(spec.name)
    source.add(f"if data[at : at + {len(key)}] == {key!r}:")
    source.indent()
    source.add("left -= 1")
    source.add(f"at += {len(key)}")
    _add_value(source, spec.type, f"message.{spec.name}", version)
    source.dedent()
    source.add("else:")
    source.indent()
    if spec.required:
        source.add("raise Unusual")
    else:
        _add_default(source, spec)
    source.dedent()


def _add_default(source: Source, spec: Field) -> None:
    default = spec.default_value()
    literal = repr(default) if isinstance(default, list) else source.name(default)
    source.add(f"message.{spec.name} = {literal}")


def _add_value(source: Source, wire_type: WireType | type[Any], target: str, version: int) -> None:
    """Read one value into `target`."""
    add, indent, dedent = source.add, source.indent, source.dedent
    match wire_type:
        case Integer():
            add("value = data[at]")
            add("if value < 0x80: at += 1")
            add("else:")
            indent()
            add("value, at = integer(data, at)")
            add(f"if not {wire_type.low} <= value <= {wire_type.high}: raise Unusual")
            dedent()
            add(f"{target} = value")
        case Boolean():
            add(f"{target}, at = boolean(data, at)")
        case Text():
            read = "nullable_string" if wire_type.nullable else "string"
            add(f"{target}, at = {read}(data, at, {wire_type.max_bytes})")
        case Records():
            add(f"{target}, at = binary(data, at)")
        case DataType():
            read = "data_of" if wire_type.nullable else "some_data_of"
            add(f"{target}, at = {read}(data, at, {wire_type.max_bytes})")
        case Array():
            _add_array(source, wire_type, target, version)
        case type():
            add(f"{target}, at = {source.name(decoder(wire_type, version))}(data, at)")


def _add_array(source: Source, wire_type: Array, target: str, version: int) -> None:
    add, indent, dedent = source.add, source.indent, source.dedent
    if wire_type.nullable:
        add("if data[at] == 0xC0:")
        indent()
        add("at += 1")
        add(f"{target} = None")
        dedent()
        add("else:")
        indent()
    add(f"count, at = array_count(data, at, {wire_type.max_items})")
    add(f"{target} = items = []")
    add("for _ in range(count):")
    indent()
    _add_value(source, wire_type.of, "item", version)
    add("items.append(item)")
    dedent()
    if wire_type.nullable:
        dedent()
