"""Writers of the native encoding, built from the declarations."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

from ...records.kernel import PackedField, PackedMessage
from ..schema import Array, WireType, fields_of
from ..writing import clip_of, field_kind


def _make_writer(struct: type[Any], version: int) -> PackedMessage:
    fields = [
        (
            spec.name,
            packed_field(spec.type, version),
            (spec.default_value(),) if spec.native else (),
        )
        for spec in fields_of(struct, version, native=True)
    ]
    return PackedMessage(fields)


# The cast is needed because mypy does not consider a class hashable.
packed_message: Final = cast(Callable[[type[Any], int], PackedMessage], cache(_make_writer))
"""Returns the writer of a message class in a version (cached)."""


def packed_field(wire_type: WireType | type[Any], version: int) -> PackedField:
    """Return the writer for values of a type."""
    message = item = None
    match wire_type:
        case Array():
            item = packed_field(wire_type.of, version)
        case type():
            message = packed_message(wire_type, version)
    return PackedField(field_kind(wire_type), clip_of(wire_type), message, item)
