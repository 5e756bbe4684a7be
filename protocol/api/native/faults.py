"""What is wrong with a message in the native encoding that its decoder did not take, in words."""

from typing import Any, Final

from msgspec import msgpack

from ..framing import Frame
from ..schema import Array, Boolean, Data, Float, Integer, Records, Text, WireType, fields_of
from .decoding import WRONG
from .shape import find_fault

_MAX_QUOTED_CHARS: Final = 60


class Wrong(Exception):
    """A value does not fit its declaration. `path` collects the way to it, innermost first."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []


def fault_of(body: Frame, struct: type[Any], version: int, *, strict: bool, max_values: int) -> str:
    """A sentence that names the field. `strict` as at `decoder`."""
    fault = find_fault(body, max_values, outer_depth=1)
    if fault is not None:
        return f"the body is not valid msgpack: {fault}"
    try:
        _check(msgpack.decode(body), struct, version, strict)
    except Wrong as wrong:
        where = "".join(reversed(wrong.path)).removeprefix(".")
        return f"`{where}` {wrong.problem}" if where else f"the body {wrong.problem}"
    except WRONG as error:
        return f"the body is not valid msgpack: {error}"
    return "the body is not as declared"


def _check(value: Any, wire_type: WireType | type[Any], version: int, strict: bool) -> None:  # noqa: C901 - a case a type
    match wire_type:
        case Integer():
            if type(value) is int and not wire_type.low <= value <= wire_type.high:
                raise Wrong(f"must be from {wire_type.low} to {wire_type.high}, not {value}")
            _expect(type(value) is int, f"an {wire_type}", value)
        case Float():
            _expect(type(value) in (int, float), "a number", value)
        case Boolean():
            _expect(type(value) is bool, "true or false", value)
        case Records():
            _expect(value is None or type(value) is bytes, "bytes or null", value)
        case Text() | Data():
            if not (value is None and wire_type.nullable):
                kind, what = (str, "a ") if isinstance(wire_type, Text) else (bytes, "")
                _expect(type(value) is kind, f"{what}{wire_type}", value)
                size = len(value.encode()) if isinstance(value, str) else len(value)
                if size > wire_type.max_bytes:
                    raise Wrong(f"must be at most {wire_type.max_bytes} bytes long, not {size}")
        case Array():
            if not (value is None and wire_type.nullable):
                _expect(type(value) is list, "an array", value)
                _check_items(value, wire_type, version, strict)
        case type():
            _check_fields(value, wire_type, version, strict)


def _check_items(value: list[Any], wire_type: Array, version: int, strict: bool) -> None:
    if len(value) > wire_type.max_items:
        raise Wrong(f"must have at most {wire_type.max_items} items, not {len(value)}")
    for number, item in enumerate(value):
        try:
            _check(item, wire_type.of, version, strict)
        except Wrong as wrong:
            wrong.path.append(f"[{number}]")
            raise


def _check_fields(value: Any, struct: type[Any], version: int, strict: bool) -> None:
    _expect(type(value) is dict, "a map", value)
    left = dict(value)
    name = ""
    try:
        for spec in fields_of(struct, version, native=True):
            name = spec.name
            if name in left:
                _check(left.pop(name), spec.type, version, strict)
            elif spec.required:
                raise Wrong("is missing")
    except Wrong as wrong:
        wrong.path.append(f".{name}")
        raise
    if left and (strict or not all(isinstance(key, str) for key in left)):
        raise Wrong(f"has no field {quoted(next(iter(left)))} in version {version}")


def _expect(condition: bool, what: str, value: Any) -> None:
    if not condition:
        raise Wrong(f"must be {what}, not {quoted(value)}")


def quoted(value: object) -> str:
    """`value` for an error text: its kind for containers, itself when short."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, dict):
        return f"a map of {len(value)}"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    text = repr(value)
    if len(text) > _MAX_QUOTED_CHARS:
        text = text[:_MAX_QUOTED_CHARS] + "..."
    return f"{text} ({type(value).__name__})"
