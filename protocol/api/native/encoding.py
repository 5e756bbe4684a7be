"""Encoders of the native encoding: a message object to parts of bytes.

An encoder is a function written once for a message class and a version out of its declaration:
for `ProducePartitionResult` in version 0 it reads

    def encode(message, parts):
        extra_0 = message.error_message != None
        parts += (
            map_head(3 + extra_0),
            b"\\xa9partition", small_integer(message.partition) or integer(message.partition), ...
        )
        if extra_0: ...

A native field is left out when it has its default value, so that a broker which does not know
it yet is only bothered by those who use it. What an encoder is given is trusted.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

from ..schema import Array, Boolean, Data, Field, Integer, Records, Text, WireType, fields_of
from ..source import Source
from . import values as packing
from .values import Part, map_head, text

Encode = Callable[[Any, list[Part]], None]

_NAMES: Final = {
    name: getattr(packing, name)
    for name in (
        *("small_integer", "integer", "text", "clipped_text", "binary"),
        *("array_head", "map_head", "NIL", "TRUE", "FALSE"),
    )
}


def _make_encoder(struct: type[Any], version: int) -> Encode:
    specs = fields_of(struct, version, native=True)
    always = [spec for spec in specs if not spec.native]
    native = [spec for spec in specs if spec.native]
    writing = _Writing(version)
    for place, spec in enumerate(native):
        default = writing.source.name(spec.default_value())
        writing.source.add(f"extra_{place} = message.{spec.name} != {default}")
    if native:
        extras = " + ".join(f"extra_{place}" for place in range(len(native)))
        writing.put(f"map_head({len(always)} + {extras})")
    else:
        writing.put(repr(map_head(len(always))))
    for spec in always:
        writing.field(spec)
    writing.flush()
    for place, spec in enumerate(native):
        writing.source.add(f"if extra_{place}:")
        writing.source.indent()
        writing.field(spec)
        writing.flush()
        writing.source.dedent()
    encode: Encode = writing.source.function(f"encoder of {struct.__name__} {version}")
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

    def put(self, expression: str) -> None:
        self._collected.append(expression)

    def flush(self) -> None:
        if self._collected:
            self.source.add(f"parts += ({', '.join(self._collected)},)")
            self._collected.clear()

    def field(self, spec: Field) -> None:
        self.put(repr(text(spec.name)))
        value = f"message.{spec.name}"
        match spec.type:
            case Array():
                self._array(spec.type, value)
            case _:
                self.put(_packed(spec.type, value))

    def _array(self, wire_type: Array, value: str) -> None:
        self.flush()
        add, indent, dedent = self.source.add, self.source.indent, self.source.dedent
        add(f"items = {value}")
        if wire_type.nullable:
            add("if items is None: parts.append(NIL)")
            add("else:")
            indent()
        add("parts.append(array_head(len(items)))")
        if isinstance(wire_type.of, type):
            inner = self.source.name(encoder(wire_type.of, self._version))
            add(f"for item in items: {inner}(item, parts)")
        else:
            add(f"parts += [{_packed(wire_type.of, 'item')} for item in items]")
        if wire_type.nullable:
            dedent()


def _packed(wire_type: WireType, value: str) -> str:
    """The expression for the bytes of a value."""
    match wire_type:
        case Integer():
            return f"small_integer({value}) or integer({value})"
        case Boolean():
            return f"TRUE if {value} else FALSE"
        case Text(clipped=True):
            return f"clipped_text({value}, {wire_type.max_bytes})"
        case Text():
            return f"text({value})"
        case Records() | Data():
            return f"*binary({value})"
    raise TypeError(f"arrays of {wire_type} are not used")
