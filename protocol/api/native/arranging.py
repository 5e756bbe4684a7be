"""Message objects of unpacked maps in their usual form: all fields there, in declared order.

That is what Horolog's own encoders give, but for native fields that have another value than their
default. A function for each message class and version is written once out of its declaration:
for `ProducePartition` it reads

    def arrange(value):
        if type(value) is not tuple: raise Unusual
        (key_0, value_0), (key_1, value_1) = value
        if key_0 != 'partition' or key_1 != 'records': raise Unusual
        if type(value_0) is not int or not -2147483648 <= value_0 <= 2147483647: raise Unusual
        ...

which takes a quarter of the time of the plans that can also tell what is wrong. Whatever is
unusual raises one of `UNUSUAL`, be it wrong or not, and then is a matter for `plans`. So nothing
is refused here, and nothing accepted that they refuse.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

from ..schema import Array, Boolean, Data, Integer, Records, Text, WireType, all_fields, fields_of
from ..source import Source
from .decoding import Unusual

Arrange = Callable[[Any], Any]

UNUSUAL: Final[tuple[type[Exception], ...]] = (Unusual, TypeError, ValueError)
"""What it raises; the latter two where a map has other keys, or more or fewer of them."""

_MAX_CHARACTER_BYTES: Final = 4
_NAMES: Final = {"Unusual": Unusual, "new": object.__new__}


def _make_arranger(struct: type[Any], version: int) -> Arrange:
    source = Source("def arrange(value):", _NAMES)
    specs = [spec for spec in fields_of(struct, version, native=True) if not spec.native]
    names = {spec.name for spec in specs}
    source.add("if type(value) is not tuple: raise Unusual")
    if specs:
        source.add("".join(f"(key_{n}, value_{n}), " for n in range(len(specs))) + "= value")
        wrong_keys = (f"key_{n} != {spec.name!r}" for n, spec in enumerate(specs))
        source.add(f"if {' or '.join(wrong_keys)}: raise Unusual")
    else:
        source.add("if value: raise Unusual")
    # Not by its constructor, which takes three times as long with all its keywords.
    source.add(f"message = new({source.name(struct)})")
    for place, spec in enumerate(specs):
        made = _add_checks(source, spec.type, f"value_{place}", version)
        source.add(f"message.{spec.name} = {made}")
    for spec in all_fields(struct):
        if spec.name not in names:
            default = spec.default_value()
            literal = "[]" if default == [] else source.name(default)
            source.add(f"message.{spec.name} = {literal}")
    source.add("return message")
    arrange: Arrange = source.function(f"arranger of {struct.__name__} {version}")
    return arrange


# The casts are there because mypy does not take a class for something hashable.
arranger: Final = cast(Callable[[type[Any], int], Arrange], cache(_make_arranger))
"""The function for a message class in a version."""


def _add_checks(source: Source, wire_type: WireType, value: str, version: int) -> str:
    """Check the type and limits of `value`; returns the expression of what it stands for."""
    wrong = _wrong(wire_type, value)
    null = f"{value} is not None and " if _nullable(wire_type) else ""
    source.add(f"if {null}({wrong}): raise Unusual")
    if not isinstance(wire_type, Array):
        return value
    if isinstance(wire_type.of, type):
        inner = source.name(arranger(wire_type.of, version))
        items = f"[{inner}(item) for item in {value}]"
        return f"None if {value} is None else {items}" if wire_type.nullable else items
    # A loop of its own for each item: only few have arrays of numbers or strings.
    source.add(f"for item in {value} or ():")
    source.indent()
    _add_checks(source, wire_type.of, "item", version)
    source.dedent()
    return value


def _nullable(wire_type: WireType) -> bool:
    match wire_type:
        case Text() | Data() | Array():
            return wire_type.nullable
        case Records():
            return True
        case _:
            return False


def _wrong(wire_type: WireType, value: str) -> str:
    """The condition under which a value that is not null is out of its type or its limits."""
    match wire_type:
        case Integer():
            inside = f"{wire_type.low} <= {value} <= {wire_type.high}"
            return f"type({value}) is not int or not {inside}"
        case Boolean():
            return f"type({value}) is not bool"
        case Text():
            # Longer ones may be within their limit of bytes; that is looked at elsewhere.
            few = wire_type.max_bytes // _MAX_CHARACTER_BYTES
            return f"type({value}) is not str or len({value}) > {few}"
        case Records():
            return f"type({value}) is not bytes"
        case Data():
            return f"type({value}) is not bytes or len({value}) > {wire_type.max_bytes}"
        case Array():
            return f"type({value}) is not list or len({value}) > {wire_type.max_items}"
