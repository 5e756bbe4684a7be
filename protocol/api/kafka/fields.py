"""Readers and writers of Kafka's encoding, built from the declarations; and the fault of a message
that a reader rejected.

A reader checks every length and count before it allocates anything of that size: it has to fit into
the rest of the frame, into its own limit, and into the number of values that a frame may have. A
writer trusts its input.

`find_fault` repeats the reader's walk, value by value, to name the field. It is slow, so it stops
after a number of values: the broker has other clients to serve.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

from ...limits import MAX_WALKED_VALUES
from ...records.kernel import FieldReader, FieldWriter, MessageReader, MessageWriter
from ...records.kernel.terms import NULL_LENGTH, Unreadable
from ..framing import Frame
from ..schema import (
    INT16,
    INT32,
    Array,
    Boolean,
    Data,
    Field,
    Float,
    Integer,
    Records,
    Text,
    WireType,
    fields_of,
)
from ..writing import clip_of, field_kind

_fields_of: Final = cast(
    Callable[[type[Any], int], list[Field]],
    cache(lambda struct, version: fields_of(struct, version, native=False)),
)

UNREADABLE: Final[tuple[type[Exception], ...]] = (Unreadable, UnicodeDecodeError)
"""Errors that a reader raises. They do not say what is wrong; `find_fault` finds that out."""

_ANY_SIZE: Final = 2**31 - 1

Type = WireType | type[Any]


def find_fault(
    struct: type[Any], version: int, data: Frame, at: int, max_values: int
) -> str | None:
    """Return why `data` is not a message from `at` on; `None` if it is one."""
    walk = _Walk(data, at, version, max_values)
    try:
        walk.struct(struct, "")
    except _Found as found:
        return str(found)
    left = len(data) - walk.at
    return f"{left} bytes follow its last field" if left else None


class _Found(Exception):
    """Raised with the text of the fault."""


class _Walk:
    def __init__(self, data: Frame, at: int, version: int, max_values: int) -> None:
        self.at = at
        self._data = data
        self._version = version
        self._max_values = max_values
        self._values = 0
        self._walked = 0

    def struct(self, struct: type[Any], path: str) -> None:
        for spec in _fields_of(struct, self._version):
            self._value(spec.type, f"{path}.{spec.name}" if path else spec.name)

    def _value(self, wire_type: WireType | type[Any], path: str) -> None:
        self._walked += 1
        if self._walked > MAX_WALKED_VALUES:
            raise _Found(f"something is wrong behind its first {MAX_WALKED_VALUES} values")
        match wire_type:
            case Integer():
                self._take(wire_type.bits // 8, path)
            case Float():
                self._take(8, path)
            case Boolean():
                self._take(1, path)
            case Text():
                self._text(wire_type, path)
            case Records():
                self._length(INT32, path, True)
            case Data():
                size = self._length(INT32, path, wire_type.nullable)
                self._check_limit(size, wire_type.max_bytes, path)
            case Array():
                self._array(wire_type, path)
            case type():
                self.struct(wire_type, path)

    def _text(self, wire_type: Text, path: str) -> None:
        begin = self.at + 2
        size = self._length(INT16, path, wire_type.nullable)
        self._check_limit(size, text_limit(wire_type), path)
        try:
            str(self._data[begin : self.at], "utf-8")
        except UnicodeDecodeError:
            raise _Found(f"`{path}` is not UTF-8") from None

    def _array(self, wire_type: Array, path: str) -> None:
        (count, least) = self._integer(INT32, path), smallest_size(wire_type.of, self._version)
        if count == NULL_LENGTH and wire_type.nullable:
            return
        left = len(self._data) - self.at
        if count < 0 or count * least > left:
            raise _Found(f"`{path}` says that it has {count} items, and {left} bytes are left")
        if count > wire_type.max_items:
            raise _Found(f"`{path}` must have at most {wire_type.max_items} items, not {count}")
        self._values += count * values_in(wire_type.of, self._version)
        if self._values > self._max_values:
            raise _Found(f"it holds more than {self._max_values} values")
        for place in range(count):
            self._value(wire_type.of, f"{path}[{place}]")

    def _length(self, prefix: Integer, path: str, nullable: bool) -> int:
        """Skip a length and that many bytes. Returns the length, 0 for null."""
        size = self._integer(prefix, path)
        if size == NULL_LENGTH and nullable:
            return 0
        left = len(self._data) - self.at
        if not 0 <= size <= left:
            raise _Found(f"`{path}` says that it has {size} bytes, and {left} are left")
        self.at += size
        return size

    def _check_limit(self, size: int, max_bytes: int, path: str) -> None:
        if size > max_bytes:
            raise _Found(f"`{path}` must be at most {max_bytes} bytes long, not {size}")

    def _integer(self, wire_type: Integer, path: str) -> int:
        begin = self.at
        self._take(wire_type.bits // 8, path)
        return int.from_bytes(self._data[begin : self.at], "big", signed=True)

    def _take(self, size: int, path: str) -> None:
        if self.at + size > len(self._data):
            raise _Found(f"it ends in the middle of `{path}`")
        self.at += size


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
