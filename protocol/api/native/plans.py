"""Plans of the native encoding: what msgpack unpacks to message objects, or what is wrong with it.

A plan is a function built once for a message class and a version out of its declaration.
Maps come in as tuples of pairs (so that a key given twice is seen), arrays as lists.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

from ..schema import Array, Boolean, Data, Integer, Records, Text, WireType, fields_of

Read = Callable[[Any], Any]

_ABSENT: Final = object()
_MAX_QUOTED_CHARS: Final = 60


class Refused(Exception):
    """A value does not fit its declaration. `path` collects the way to it, innermost first."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []

    def __str__(self) -> str:
        where = "".join(reversed(self.path)).removeprefix(".")
        return f"`{where}` {self.problem}" if where else f"the body {self.problem}"


def quoted(value: object) -> str:
    """`value` for an error text: its kind for containers, itself when short."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, tuple):
        return f"a map of {len(value)}"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    text = repr(value)
    if len(text) > _MAX_QUOTED_CHARS:
        text = text[:_MAX_QUOTED_CHARS] + "..."
    return f"{text} ({type(value).__name__})"


def _make_reader(struct: type[Any], version: int, strict: bool) -> Read:
    """Function that makes a `struct` of an unpacked map, or raises `Refused`.

    Strict: a key that this version does not have is refused; otherwise it is skipped.
    """
    plan = [
        (spec.name, _value_reader(spec.type, version, strict), spec.required)
        for spec in fields_of(struct, version, native=True)
    ]

    def read(value: Any) -> Any:
        if type(value) is not tuple:
            raise Refused(f"must be a map, not {quoted(value)}")
        given = dict(value)
        if len(given) != len(value):
            raise Refused(f"has the key {_repeated(value)!r} twice")
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, read_field, required in plan:
                raw = given.pop(name, _ABSENT)
                if raw is not _ABSENT:
                    values[name] = read_field(raw)
                elif required:
                    raise Refused("is missing")
        except Refused as refused:
            refused.path.append(f".{name}")
            raise
        if given and strict:
            raise Refused(f"has no field {quoted(next(iter(given)))} in version {version}")
        return struct(**values)

    return read


# The casts are there because mypy does not take a class for something hashable.
reader: Final = cast(Callable[[type[Any], int, bool], Read], cache(_make_reader))


def _repeated(pairs: tuple[tuple[Any, Any], ...]) -> object:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    raise AssertionError("called without a repeated key")


def _value_reader(wire_type: WireType | type[Any], version: int, strict: bool) -> Read:
    match wire_type:
        case Integer():
            return _integer_reader(wire_type)
        case Boolean():
            return _boolean_reader
        case Text():
            return _text_reader(wire_type)
        case Records():
            return _records_reader
        case Data():
            return _data_reader(wire_type)
        case Array():
            return _array_reader(wire_type, version, strict)
        case type():
            return reader(wire_type, version, strict)


def _integer_reader(wire_type: Integer) -> Read:
    low, high = wire_type.low, wire_type.high

    def read(value: Any) -> int:
        if type(value) is int and low <= value <= high:
            return value
        if type(value) is int:
            raise Refused(f"must be from {low} to {high}, not {value}")
        raise Refused(f"must be an {wire_type}, not {quoted(value)}")

    return read


def _boolean_reader(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise Refused(f"must be true or false, not {quoted(value)}")


def _text_reader(wire_type: Text) -> Read:
    limit, nullable = wire_type.max_bytes, wire_type.nullable

    def read(value: Any) -> str | None:
        if type(value) is str:
            # A character is at most 4 bytes: most texts need no encoding to be measured.
            if len(value) * 4 > limit and (size := len(value.encode())) > limit:
                raise Refused(f"must be at most {limit} bytes long, not {size}")
            return value
        if value is None and nullable:
            return None
        raise Refused(f"must be a {wire_type}, not {quoted(value)}")

    return read


def _records_reader(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    raise Refused(f"must be bytes or null, not {quoted(value)}")


def _data_reader(wire_type: Data) -> Read:
    limit, nullable = wire_type.max_bytes, wire_type.nullable

    def read(value: Any) -> bytes | None:
        if value is None and nullable:
            return None
        if type(value) is not bytes:
            raise Refused(f"must be {wire_type}, not {quoted(value)}")
        if len(value) > limit:
            raise Refused(f"must be at most {limit} bytes long, not {len(value)}")
        return value

    return read


def _array_reader(wire_type: Array, version: int, strict: bool) -> Read:
    read_item = _value_reader(wire_type.of, version, strict)
    limit, nullable = wire_type.max_items, wire_type.nullable

    def read(value: Any) -> list[Any] | None:
        if type(value) is not list:
            if value is None and nullable:
                return None
            raise Refused(f"must be an array, not {quoted(value)}")
        if len(value) > limit:
            raise Refused(f"must have at most {limit} items, not {len(value)}")
        items: list[Any] = []
        try:
            for item in value:
                items.append(read_item(item))  # noqa: PERF401 - the path needs the count
        except Refused as refused:
            refused.path.append(f"[{len(items)}]")
            raise
        return items

    return read


def clip(text: str, max_bytes: int) -> str:
    """The longest beginning of `text` that is at most `max_bytes` long in UTF-8.

    Lone surrogates, which UTF-8 cannot say, become question marks.
    """
    encoded = text.encode("utf-8", "replace")
    return encoded[:max_bytes].decode("utf-8", "ignore")
