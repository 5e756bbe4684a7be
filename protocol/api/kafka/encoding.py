"""Encoders of Kafka's encoding: a message object to parts of bytes.

An encoder is a function written once for a message class and a version out of its declaration;
fields of fixed size that follow each other are packed together. For `FetchPartitionResult` in
version 0 it reads

    def encode(message, parts):
        parts += (pack_0(message.partition, message.error_code, message.high_watermark),)
        parts += records(message.records)

What an encoder is given is trusted.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any, Final, cast

from ..native.values import Part, clip
from ..schema import Array, Boolean, Data, Integer, Records, Text, WireType, fields_of
from ..source import Source

Encode = Callable[[Any, list[Part]], None]

LETTERS: Final = {8: "b", 16: "h", 32: "i", 64: "q"}
"""The letter of the module `struct` for integers of so many bits."""

NULL_LENGTH: Final = -1
"""Length of a string, of bytes or of an array that is null."""

_INT16: Final = Struct(">h").pack
_INT32: Final = Struct(">i").pack
_NULL_TEXT: Final = _INT16(NULL_LENGTH)
_NULL: Final = _INT32(NULL_LENGTH)


def text(value: str | None) -> bytes:
    """A string, or null."""
    if value is None:
        return _NULL_TEXT
    data = value.encode()
    return _INT16(len(data)) + data


def clipped_text(value: str | None, max_bytes: int) -> bytes:
    """A string cut to `max_bytes`, or null."""
    return _NULL_TEXT if value is None else text(clip(value, max_bytes))


def binary(value: Part | None) -> tuple[Part, ...]:
    """Bytes, or null: their length and themselves."""
    return (_NULL,) if value is None else (_INT32(len(value)), value)


def numbers(letter: str, values: list[int]) -> bytes:
    """An array of integers."""
    return Struct(f">i{len(values)}{letter}").pack(len(values), *values)


_NAMES: Final = {
    "text": text,
    "clipped_text": clipped_text,
    "binary": binary,
    "numbers": numbers,
    "count_of": _INT32,
    "NULL": _NULL,
}


def fixed_letter(wire_type: WireType | type[Any]) -> str | None:
    """The letter of the module `struct` for a type of fixed size; `None` for others."""
    match wire_type:
        case Integer():
            return LETTERS[wire_type.bits]
        case Boolean():
            return "?"
        case _:
            return None


def _make_encoder(struct: type[Any], version: int) -> Encode:
    writing = _Writing(version)
    for spec in fields_of(struct, version, native=False):
        writing.field(spec.type, f"message.{spec.name}")
    writing.flush()
    writing.source.add("return")
    encode: Encode = writing.source.function(f"Kafka's encoder of {struct.__name__} {version}")
    return encode


# The casts are there because mypy does not take a class for something hashable.
encoder: Final = cast(Callable[[type[Any], int], Encode], cache(_make_encoder))
"""The encoder of a message class in a version."""


class _Writing:
    """The source of one encoder. What can be packed without a statement is collected in one."""

    def __init__(self, version: int) -> None:
        self.source = Source("def encode(message, parts):", _NAMES)
        self._version = version
        self._collected: list[str] = []
        self._letters = ""
        self._fixed: list[str] = []

    def field(self, wire_type: WireType, value: str) -> None:
        letter = fixed_letter(wire_type)
        if letter is not None:
            self._letters += letter
            self._fixed.append(value)
        elif isinstance(wire_type, Array):
            self._array(wire_type, value)
        else:
            self._pack_fixed()
            self._collected.append(_packed(wire_type, value))

    def flush(self) -> None:
        """Write what was collected."""
        self._pack_fixed()
        if self._collected:
            self.source.add(f"parts += ({', '.join(self._collected)},)")
            self._collected.clear()

    def _pack_fixed(self) -> None:
        if self._fixed:
            pack = self.source.name(Struct(">" + self._letters).pack)
            self._collected.append(f"{pack}({', '.join(self._fixed)})")
            self._letters = ""
            self._fixed.clear()

    def _array(self, wire_type: Array, value: str) -> None:
        self.flush()
        add = self.source.add
        add(f"items = {value}")
        if wire_type.nullable:
            add("if items is None: parts.append(NULL)")
            add("else:")
            self.source.indent()
        letter = None if isinstance(wire_type.of, type) else fixed_letter(wire_type.of)
        if letter is not None:
            add(f"parts.append(numbers({letter!r}, items))")
        else:
            add("parts.append(count_of(len(items)))")
            if isinstance(wire_type.of, type):
                inner = self.source.name(encoder(wire_type.of, self._version))
                add(f"for item in items: {inner}(item, parts)")
            else:
                add(f"parts += [{_packed(wire_type.of, 'item')} for item in items]")
        if wire_type.nullable:
            self.source.dedent()


def _packed(wire_type: WireType, value: str) -> str:
    """The expression for the bytes of a value of no fixed size."""
    match wire_type:
        case Text(clipped=True):
            return f"clipped_text({value}, {wire_type.max_bytes})"
        case Text():
            return f"text({value})"
        case Records() | Data():
            return f"*binary({value})"
    raise TypeError(f"arrays of {wire_type} are not used")
