"""Finds what is wrong with a message in the native encoding that its decoder rejected, or with a
frame before it is unpacked.

Unpacking can turn one byte into 70. `find_frame_fault` bounds what an unpacker may allocate, by the
number of values and the depth of the frame, and allocates nothing itself.

For a rejected message, containers are opened one level at a time, and the number of checked values
is limited, because the broker has other clients to serve.
"""

from typing import Any, Final

from msgspec import Raw, msgpack

from ...limits import MAX_DEPTH, MAX_WALKED_VALUES
from ...records.kernel import packed_fault
from ..framing import Frame
from ..schema import Array, Boolean, Data, Float, Integer, Records, Text, WireType, fields_of
from .decoding import WRONG

_MAX_QUOTED_CHARS: Final = 60
_read_map: Final = msgpack.Decoder(dict[Any, Raw]).decode
_read_array: Final = msgpack.Decoder(list[Raw]).decode
_NIL: Final = 0xC0
_STRINGS: Final = (range(0xA0, 0xC0), range(0xD9, 0xDC))
_BINARIES: Final = (range(0xC4, 0xC7),)
_MAPS: Final = (range(0x80, 0x90), range(0xDE, 0xE0))
_ARRAYS: Final = (range(0x90, 0xA0), range(0xDC, 0xDE))
"""First bytes of values, by type."""


class NativeFault(Exception):
    """A value does not fit its declaration. `path` collects the path to it, innermost name
    first."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []


class _TooFar(Exception):
    """The maximum number of values was checked without finding a fault."""


def fault_of(body: Frame, struct: type[Any], version: int, *, strict: bool, max_values: int) -> str:
    """Return an error text that names the wrong field. `strict` is as in `decoder`."""
    fault = find_frame_fault(body, max_values, outer_depth=1)
    if fault is not None:
        return f"the body is not valid msgpack: {fault}"
    try:
        _FaultWalk(version, strict).check(memoryview(body), struct)
    except NativeFault as wrong:
        where = "".join(reversed(wrong.path)).removeprefix(".")
        return f"`{where}` {wrong.problem}" if where else f"the body {wrong.problem}"
    except _TooFar:
        return f"something is wrong behind its first {MAX_WALKED_VALUES} values"
    except WRONG as error:
        return f"the body is not valid msgpack: {error}"
    return "the body is not as declared"


class _FaultWalk:
    """Checks values, each given as its bytes."""

    def __init__(self, version: int, strict: bool) -> None:
        self._version = version
        self._strict = strict
        self._walked = 0

    def check(self, value: memoryview, wire_type: WireType | type[Any]) -> None:  # noqa: C901 - a case a type
        self._walked += 1
        if self._walked > MAX_WALKED_VALUES:
            raise _TooFar
        match wire_type:
            case Integer():
                number = _scalar(value)
                if type(number) is int and not wire_type.low <= number <= wire_type.high:
                    raise NativeFault(
                        f"must be from {wire_type.low} to {wire_type.high}, not {number}"
                    )
                _expect(type(number) is int, f"an {wire_type}", value)
            case Float():
                _expect(type(_scalar(value)) in (int, float), "a number", value)
            case Boolean():
                _expect(type(_scalar(value)) is bool, "true or false", value)
            case Records():
                _expect(_is_null(value) or _is(value, _BINARIES), "bytes or null", value)
            case Text() | Data():
                if not (_is_null(value) and wire_type.nullable):
                    self._check_sized(value, wire_type)
            case Array():
                if not (_is_null(value) and wire_type.nullable):
                    _expect(_is(value, _ARRAYS), "an array", value)
                    self._check_items(value, wire_type)
            case type():
                _expect(_is(value, _MAPS), "a map", value)
                self._check_fields(value, wire_type)

    def _check_sized(self, value: memoryview, wire_type: Text | Data) -> None:
        is_text = isinstance(wire_type, Text)
        what = f"a {wire_type}" if is_text else f"{wire_type}"
        _expect(_is(value, _STRINGS if is_text else _BINARIES), what, value)
        size = _content_size(value)
        if size > wire_type.max_bytes:
            raise NativeFault(f"must be at most {wire_type.max_bytes} bytes long, not {size}")
        if is_text:
            msgpack.decode(value)

    def _check_items(self, value: memoryview, wire_type: Array) -> None:
        items = _read_array(value)
        if len(items) > wire_type.max_items:
            raise NativeFault(f"must have at most {wire_type.max_items} items, not {len(items)}")
        for number, item in enumerate(items):
            try:
                self.check(memoryview(item), wire_type.of)
            except NativeFault as wrong:
                wrong.path.append(f"[{number}]")
                raise

    def _check_fields(self, value: memoryview, struct: type[Any]) -> None:
        left = _read_map(value)
        name = ""
        try:
            for spec in fields_of(struct, self._version, native=True):
                name = spec.name
                if name in left:
                    self.check(memoryview(left.pop(name)), spec.type)
                elif spec.required:
                    raise NativeFault("is missing")
        except NativeFault as wrong:
            wrong.path.append(f".{name}")
            raise
        if left and (self._strict or not all(isinstance(key, str) for key in left)):
            raise NativeFault(f"has no field {quoted(next(iter(left)))} in version {self._version}")


def _is(value: memoryview, types: tuple[range, ...]) -> bool:
    return any(value[0] in firsts for firsts in types)


def _is_null(value: memoryview) -> bool:
    return value[0] == _NIL


def _content_size(value: memoryview) -> int:
    """Return the size of a string's or a binary's content in bytes."""
    first = value[0]
    if first < _NIL:
        return len(value) - 1
    return len(value) - 1 - (1 << (first - (0xD9 if first >= 0xD9 else 0xC4)))


def _scalar(value: memoryview) -> Any:
    """Return a number, true, false or null; for any other value its bytes."""
    return value if _has_content(value) else msgpack.decode(value)


def _has_content(value: memoryview) -> bool:
    return _is(value, (*_STRINGS, *_BINARIES, *_MAPS, *_ARRAYS))


def _expect(condition: bool, what: str, value: memoryview) -> None:
    if not condition:
        raise NativeFault(f"must be {what}, not {_described(value)}")


def _described(value: memoryview) -> str:
    """Like `quoted`, for a value's bytes; at most the start of the value is decoded."""
    if _is(value, _MAPS):
        return f"a map of {len(_read_map(value))}"
    if _is(value, _ARRAYS):
        return f"an array of {len(_read_array(value))}"
    if _is(value, _BINARIES):
        return f"{_content_size(value)} bytes"
    if _is(value, _STRINGS):
        size = _content_size(value)
        text = bytes(value[len(value) - size :][: 4 * _MAX_QUOTED_CHARS])
        return quoted(text.decode("utf-8", "replace"))
    return quoted(msgpack.decode(value))


def quoted(value: object) -> str:
    """Return `value` for an error text: itself if it is short, and only its kind if it is a
    container."""
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


def find_frame_fault(
    data: bytes | bytearray | memoryview, max_values: int, outer_depth: int = 0
) -> str | None:
    """Return why `data` is not one msgpack value within the limits; `None` if it is.

    `outer_depth`: the number of containers around it. A fault names the depth in the whole frame.
    """
    fault = packed_fault(data, max_values, MAX_DEPTH - outer_depth)
    if outer_depth and fault == f"it is nested more than {MAX_DEPTH - outer_depth} deep":
        return f"it is nested more than {MAX_DEPTH} deep"
    return fault
