"""Readers and writers of Kafka's encoding, built from the declarations.

A reader checks every length and count before it allocates anything of that size: it has to fit into
the rest of the frame, into its own limit, and into the number of values that a frame may have. A
writer trusts its input.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

from ...records.kernel import FieldReader, FieldWriter, MessageReader, MessageWriter
from ...records.kernel.terms import Unreadable
from ..schema import Array, Boolean, Data, Float, Integer, Records, Text, WireType, fields_of
from ..writing import clip_of, field_kind

UNREADABLE: Final[tuple[type[Exception], ...]] = (Unreadable, UnicodeDecodeError)
"""Errors that a reader raises. They do not say what is wrong; `faults` finds that out."""

_ANY_SIZE: Final = 2**31 - 1

Type = WireType | type[Any]


def _make_reader(struct: type[Any], version: int) -> MessageReader:
    specs = fields_of(struct, version, native=False)
    return MessageReader(struct, [(spec.name, field_reader(spec.type, version)) for spec in specs])


def _make_writer(struct: type[Any], version: int) -> MessageWriter:
    specs = fields_of(struct, version, native=False)
    return MessageWriter([(spec.name, field_writer(spec.type, version)) for spec in specs])


# The casts are needed because mypy does not consider a class hashable.
message_reader: Final = cast(Callable[[type[Any], int], MessageReader], cache(_make_reader))
"""Returns the reader of a message class in a version (cached)."""
message_writer: Final = cast(Callable[[type[Any], int], MessageWriter], cache(_make_writer))
"""Returns the writer of a message class in a version (cached)."""


def field_reader(wire_type: Type, version: int) -> FieldReader:
    """Return the reader for values of a type."""
    limit, nullable = 0, False
    message = item = None
    item_bytes = item_values = 0
    match wire_type:
        case Text():
            limit, nullable = text_limit(wire_type), wire_type.nullable
        case Records():
            limit, nullable = _ANY_SIZE, True
        case Data():
            limit, nullable = wire_type.max_bytes, wire_type.nullable
        case Array():
            limit, nullable = wire_type.max_items, wire_type.nullable
            item = field_reader(wire_type.of, version)
            item_bytes = smallest_size(wire_type.of, version)
            item_values = values_in(wire_type.of, version)
        case type():
            message = message_reader(wire_type, version)
    kind = field_kind(wire_type)
    return FieldReader(kind, limit, nullable, message, item, item_bytes, item_values)


def field_writer(wire_type: Type, version: int) -> FieldWriter:
    """Return the writer for values of a type."""
    message = item = None
    match wire_type:
        case Array():
            item = field_writer(wire_type.of, version)
        case type():
            message = message_writer(wire_type, version)
    return FieldWriter(field_kind(wire_type), clip_of(wire_type), message, item)


def smallest_size(wire_type: Type, version: int) -> int:
    """Return the smallest number of bytes that a value of the type takes."""
    match wire_type:
        case Integer():
            return wire_type.bits // 8
        case Float():
            return 8
        case Boolean():
            return 1
        case Text():
            return 2
        case Records() | Data() | Array():
            return 4
        case type():
            specs = fields_of(wire_type, version, native=False)
            return sum(smallest_size(spec.type, version) for spec in specs)


def values_in(wire_type: Type, version: int) -> int:
    """Return how many values an item of an array counts as, without those in its own arrays."""
    if isinstance(wire_type, type):
        return 1 + len(fields_of(wire_type, version, native=False))
    return 1


def text_limit(wire_type: Text) -> int:
    """Return the maximum number of bytes to accept. A text that this side would cut may arrive
    longer."""
    return Integer(16).high if wire_type.clipped else wire_type.max_bytes
