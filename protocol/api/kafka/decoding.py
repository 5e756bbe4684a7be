"""Decoders of Kafka's encoding: bytes to a message object.

A decoder is a function written once for a message class and a version out of its declaration;
fields of fixed size that follow each other are unpacked together. Every length and count is looked
at before anything of that size is made: it has to fit into what is left of the frame, into its
limit, and into the number of values that a frame may have.

What is wrong raises one of `BROKEN`, which do not say what it is; `kafka_faults` does.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import Any, Final, cast

from ..native.values import Data as Frame
from ..schema import (
    Array,
    Boolean,
    Data,
    Field,
    Integer,
    Records,
    Text,
    WireType,
    fields_of,
)
from ..source import Source
from .encoding import LETTERS, NULL_LENGTH, fixed_letter

Room = list[int]
"""One number: how many values there may still be in a frame."""

Decode = Callable[[Frame, int, Room], tuple[Any, int]]
"""Of a frame and a position in it: the value, and the position behind it."""


class Broken(Exception):
    """A length or a count is out of its range."""


BROKEN: Final[tuple[type[Exception], ...]] = (Broken, StructError, UnicodeDecodeError)
"""What a decoder raises."""

_INT16: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from


def string(data: Frame, at: int, max_bytes: int) -> tuple[str, int]:
    """A string of at most `max_bytes`."""
    (size,) = _INT16(data, at)
    at += 2
    end = at + size
    if not 0 <= size <= max_bytes or end > len(data):
        raise Broken
    return str(data[at:end], "utf-8"), end


def nullable_string(data: Frame, at: int, max_bytes: int) -> tuple[str | None, int]:
    """A string of at most `max_bytes`, or null."""
    if _INT16(data, at)[0] == NULL_LENGTH:
        return None, at + 2
    return string(data, at, max_bytes)


def records_view(data: Frame, at: int) -> tuple[memoryview | None, int]:
    """A view of a record set, which can be written to if `data` can; or null."""
    (size,) = _INT32(data, at)
    at += 4
    if size == NULL_LENGTH:
        return None, at
    end = at + size
    if size < 0 or end > len(data):
        raise Broken
    return memoryview(data)[at:end], end


def data_of(data: Frame, at: int, max_bytes: int) -> tuple[bytes, int]:
    """A copy of at most `max_bytes` bytes."""
    view, end = records_view(data, at)
    if view is None or len(view) > max_bytes:
        raise Broken
    return bytes(view), end


def nullable_data_of(data: Frame, at: int, max_bytes: int) -> tuple[bytes | None, int]:
    """The same, or null."""
    if _INT32(data, at)[0] == NULL_LENGTH:
        return None, at + 4
    return data_of(data, at, max_bytes)


def count_of(
    data: Frame, at: int, max_items: int, item_bytes: int, item_values: int, room: Room
) -> int:
    """How many items an array has; each takes at least `item_bytes`, and is `item_values`."""
    (count,) = _INT32(data, at)
    if not 0 <= count <= max_items or count * item_bytes > len(data) - at - 4:
        raise Broken
    room[0] -= count * item_values
    if room[0] < 0:
        raise Broken
    return int(count)


def is_null(data: Frame, at: int) -> bool:
    """Whether an array is null."""
    return bool(_INT32(data, at)[0] == NULL_LENGTH)


def numbers(data: Frame, at: int, count: int, letter: str) -> list[int]:
    """`count` integers."""
    return list(Struct(f">{count}{letter}").unpack_from(data, at))


_NAMES: Final = {
    "string": string,
    "nullable_string": nullable_string,
    "records_view": records_view,
    "data_of": data_of,
    "nullable_data_of": nullable_data_of,
    "count_of": count_of,
    "is_null": is_null,
    "numbers": numbers,
}


def smallest_size(wire_type: WireType | type[Any], version: int) -> int:
    """The least bytes that a value of the type takes."""
    match wire_type:
        case Integer():
            return wire_type.bits // 8
        case Boolean():
            return 1
        case Text():
            return 2
        case Records() | Data() | Array():
            return 4
        case type():
            specs = fields_of(wire_type, version, native=False)
            return sum(smallest_size(spec.type, version) for spec in specs)


def values_in(wire_type: WireType | type[Any], version: int) -> int:
    """How many values an item of an array is, without those in arrays of its own."""
    if isinstance(wire_type, type):
        return 1 + len(fields_of(wire_type, version, native=False))
    return 1


def _make_decoder(struct: type[Any], version: int) -> Decode:
    source = Source("def decode(data, at, room):", _NAMES)
    specs = fields_of(struct, version, native=False)
    fixed: list[Field] = []
    for spec in specs:
        if fixed_letter(spec.type) is not None:
            fixed.append(spec)
            continue
        _add_fixed(source, fixed)
        fixed = []
        _add_value(source, spec.type, f"of_{spec.name}", version)
    _add_fixed(source, fixed)
    given = ", ".join(f"{spec.name}=of_{spec.name}" for spec in specs)
    source.add(f"return {source.name(struct)}({given}), at")
    decode: Decode = source.function(f"Kafka's decoder of {struct.__name__} {version}")
    return decode


# The casts are there because mypy does not take a class for something hashable.
decoder: Final = cast(Callable[[type[Any], int], Decode], cache(_make_decoder))
"""The decoder of a message class in a version."""


def _add_fixed(source: Source, specs: list[Field]) -> None:
    """Read fields of fixed size that stand together."""
    if specs:
        together = Struct(">" + "".join(fixed_letter(spec.type) or "" for spec in specs))
        unpack = source.name(together.unpack_from)
        targets = "".join(f"of_{spec.name}, " for spec in specs)
        source.add(f"{targets}= {unpack}(data, at)")
        source.add(f"at += {together.size}")


def _add_value(source: Source, wire_type: WireType | type[Any], target: str, version: int) -> None:
    """Read one value of no fixed size into `target`."""
    match wire_type:
        case Text():
            read = "nullable_string" if wire_type.nullable else "string"
            source.add(f"{target}, at = {read}(data, at, {text_limit(wire_type)})")
        case Records():
            source.add(f"{target}, at = records_view(data, at)")
        case Data():
            read = "nullable_data_of" if wire_type.nullable else "data_of"
            source.add(f"{target}, at = {read}(data, at, {wire_type.max_bytes})")
        case Array():
            _add_array(source, wire_type, target, version)
        case type():
            read = source.name(decoder(wire_type, version))
            source.add(f"{target}, at = {read}(data, at, room)")


def text_limit(wire_type: Text) -> int:
    """The most bytes that are accepted: a sentence that we would cut may come longer."""
    return Integer(16).high if wire_type.clipped else wire_type.max_bytes


def _add_array(source: Source, wire_type: Array, target: str, version: int) -> None:
    add, indent, dedent = source.add, source.indent, source.dedent
    if wire_type.nullable:
        add("if is_null(data, at):")
        indent()
        add("at += 4")
        add(f"{target} = None")
        dedent()
        add("else:")
        indent()
    least = smallest_size(wire_type.of, version)
    values = values_in(wire_type.of, version)
    add(f"count = count_of(data, at, {wire_type.max_items}, {least}, {values}, room)")
    add("at += 4")
    if isinstance(wire_type.of, Integer):
        letter = LETTERS[wire_type.of.bits]
        add(f"{target} = numbers(data, at, count, {letter!r})")
        add(f"at += count * {least}")
    else:
        add(f"{target} = items = []")
        add("for _ in range(count):")
        indent()
        _add_value(source, wire_type.of, "item", version)
        add("items.append(item)")
        dedent()
    if wire_type.nullable:
        dedent()
