"""Messages in msgpack, in plain Python: maps of named fields, each value in its shortest form.

`protocol.api.native.frames` builds a `PackedMessage` from each declaration. The bytes are the same
as from the package `msgpack`.
"""

from collections.abc import Callable, Sequence
from operator import index
from typing import Any, Final

from msgspec.msgpack import encode

from ..terms import MOST_FIELDS, FieldKind
from .bytes import LARGEST_INT64
from .fields import FLOAT, FrameOutput, FrameWriter, check_count

_MOST_NAME_BYTES: Final = 31

_FIXED_BYTES: Final = {
    0xC0: 0,  # nil
    0xC2: 0,  # false
    0xC3: 0,  # true
    0xCA: 4,  # float
    0xCB: 8,
    0xCC: 1,  # unsigned
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,  # signed
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
}
"""By first byte of a value of fixed size, the number of bytes that follow."""

_SIZE_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""By first byte of a binary or string, the width of its size field."""

_COUNT_BYTES: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""By first byte of an array or map, the width of its count field, and the number of values per
item."""
_MOST_DEPTH: Final = 32
"""Maximum of the nesting limit that `packed_fault` accepts."""
_SCALAR, _FOREIGN = -1, -2
"""In place of a count of inner values: for a value that is not a container, and for a type that the
protocol does not use."""


class PackedField:
    """Encodes one field, or one item of an array."""

    def __init__(
        self,
        kind: str,
        clip: Callable[[str], str] | None,
        message: "PackedMessage | None",
        item: "PackedField | None",
    ) -> None:
        """`kind` is a `FieldKind`; `clip` cuts a text that may be too long.

        `message` is the writer of a message, `item` that of the items of an array.
        """
        self._kind = kind
        self._clip = clip
        self._message = message
        self._item = item

    def write(self, value: Any, output: FrameOutput) -> None:
        if self._message is not None:
            self._message.fields(value, output)
        elif self._item is not None and value is not None:
            output.put(_items_head(0x90, 0xDC, len(value)))
            for each in value:
                self._item.write(each, output)
        elif self._kind == FieldKind.VIEW and value is not None:
            output.put(_binary_head(len(value)))
            output.put_part(value)
        elif self._kind == FieldKind.FLOAT64 and value is not None:
            output.put(b"\xcb" + FLOAT.pack(value))
        else:
            output.put(encode(self._checked(value)))

    def _checked(self, value: Any) -> Any:
        """Return the value converted to its kind: a `bool` is an `int` too."""
        if value is None or self._kind == FieldKind.BYTES:
            return value
        if self._kind == FieldKind.TEXT:
            return value if self._clip is None else self._clip(value)
        if self._kind == FieldKind.BOOLEAN:
            return bool(value)
        number = index(value)
        if not ~LARGEST_INT64 <= number <= LARGEST_INT64:
            raise OverflowError(f"{number} is no integer of 64 bits")
        return number


class PackedMessage(FrameWriter):
    """Encodes messages of one class in one version; a frame is an array of their values."""

    def __init__(self, fields: Sequence[tuple[str, PackedField, tuple[Any, ...]]]) -> None:
        """`fields` are, in order: a name, a writer, and a tuple with the value for which the field
        is left out (empty if it never is)."""
        if len(fields) > MOST_FIELDS:
            raise ValueError(f"a message has more than {MOST_FIELDS} fields")
        if any(len(name) > _MOST_NAME_BYTES for name, _, _ in fields):
            raise ValueError(f"a name of a field has more than {_MOST_NAME_BYTES} bytes")
        self._fields = fields

    def _written(self, values: Sequence[Any]) -> FrameOutput:
        check_count(values, self._fields)
        output = FrameOutput()
        output.put(_items_head(0x90, 0xDC, len(self._fields)))
        for (_, writer, _), value in zip(self._fields, values, strict=True):
            writer.write(value, output)
        return output

    def fields(self, message: Any, output: FrameOutput) -> None:
        written = [
            (name, writer, value)
            for name, writer, left_out in self._fields
            if (value := getattr(message, name)) not in left_out
        ]
        output.put(_items_head(0x80, 0xDE, len(written)))
        for name, writer, value in written:
            output.put(encode(name))
            writer.write(value, output)


class TextLimits:
    """The maximum number of bytes of the texts in a message."""

    def __init__(self, limits: "Sequence[tuple[str, int | TextLimits]]") -> None:
        """`limits` are pairs of a field's name and its limit. The value of a field is `None`, a
        text or a list of texts; or a message or a list of messages, whose limit is a
        `TextLimits`."""
        if len(limits) > MOST_FIELDS:
            raise ValueError(f"a message has more than {MOST_FIELDS} fields")
        self._limits = limits
        smallest = (one.shortest if isinstance(one, TextLimits) else one for _, one in limits)
        self.shortest: int = min(smallest, default=2**63 - 1)
        """The smallest limit: a shorter frame has no text that is too long."""

    def check(self, message: Any) -> None:
        """Raise `ValueError` for a text above its limit."""
        for name, limit in self._limits:
            value = getattr(message, name)
            for each in value if isinstance(value, list) else () if value is None else (value,):
                if isinstance(limit, TextLimits):
                    limit.check(each)
                elif len(each.encode()) > limit:
                    raise ValueError(f"{name} has more than {limit} bytes")


class RequestReader:
    """Decodes requests of one kind in one version."""

    def __init__(
        self,
        decode: Callable[[Any], Any],
        wrong: tuple[type[Exception], ...],
        begin: bytes,
        most_values: int,
        most_depth: int,
        texts: TextLimits,
    ) -> None:
        """A request is a frame that starts with `begin`, keeps the limits of `packed_fault`, is
        decoded by `decode`, and keeps the limits `texts`. `decode` raises one of `wrong` for other
        bytes; `ValueError` is one of them."""
        self._decode, self._wrong, self._texts = decode, wrong, texts
        self._begin, self._most_values, self._most_depth = begin, most_values, most_depth

    def read(self, frame: bytes | bytearray | memoryview) -> Any:
        """Return the request in a frame; `None` if the frame is not a request of this kind."""
        if frame[: len(self._begin)] != self._begin:
            return None
        if packed_fault(frame, self._most_values, self._most_depth) is not None:
            return None
        try:
            found = self._decode(frame)
            if len(frame) > self._texts.shortest:
                self._texts.check(found)
        except self._wrong:
            return None
        return found


def packed_fault(  # noqa: C901 - one loop over bytes
    data: bytes | bytearray | memoryview, most_values: int, most_depth: int
) -> str | None:
    """Return why `data` is not one value of at most `most_values` (including itself), nested at
    most `most_depth` deep; `None` if it is one. Allocates nothing for the values.

    Extension types are a fault too: the protocol has none.
    """
    if not 0 <= most_depth <= _MOST_DEPTH:
        raise ValueError(f"the depth is {most_depth}; it may be 0 to {_MOST_DEPTH}")
    size = len(data)
    position = 0
    values = 0
    due = 1  # values still to come in the innermost container
    outer: list[int] = []  # the same for the containers around it
    while due or outer:
        if not due:
            due = outer.pop()
            continue
        due -= 1
        values += 1
        if position >= size:
            return "it ends in the middle of a value"
        first = data[position]
        position, count = _opened(data, position)
        if count == _SCALAR:
            continue
        if count == _FOREIGN:
            return f"it holds a value of type 0x{first:02x}, which the protocol does not use"
        if count > size - position:
            return "it ends in the middle of an array or a map"
        if values + count > most_values:
            return f"it holds more than {most_values} values"
        if len(outer) == most_depth:
            return f"it is nested more than {most_depth} deep"
        outer.append(due)
        due = count
    if position > size:
        return "it ends in the middle of a value"
    return None if position == size else f"{size - position} bytes follow its end"


def packed_places(data: bytes | bytearray | memoryview) -> list[int]:
    """Return the position of each item of an array, or of each key and value of a map; and the end.

    Raises `ValueError` for other values, and for a truncated one.
    """
    position, count = _opened(data, 0) if len(data) else (0, _FOREIGN)
    if count < 0:
        raise ValueError("it is no array and no map")
    if count > len(data) - position:
        raise ValueError("it ends in the middle of an array or a map")
    places = [position]
    for _ in range(count):
        due = 1
        while due:
            position, inside = _opened(data, position) if position < len(data) else (0, _FOREIGN)
            if inside == _FOREIGN:
                raise ValueError("it ends in the middle of a value")
            due += max(inside, 0) - 1
        if position > len(data):
            raise ValueError("it ends in the middle of a value")
        places.append(position)
    return places


def _opened(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return the end of the value at `position` and `_SCALAR`; for a container the end of its
    header and the number of values in it. The second item is `_FOREIGN` for other types."""
    first = data[position]
    position += 1
    if first < 0x80 or first >= 0xE0:
        return position, _SCALAR
    if first < 0xA0:
        return position, 2 * (first & 0x0F) if first < 0x90 else first & 0x0F
    if first < 0xC0:
        return position + (first & 0x1F), _SCALAR
    if first in _FIXED_BYTES:
        return position + _FIXED_BYTES[first], _SCALAR
    if first in _SIZE_BYTES:
        end = position + _SIZE_BYTES[first]
        return end + int.from_bytes(data[position:end], "big"), _SCALAR
    if first in _COUNT_BYTES:
        width, per_item = _COUNT_BYTES[first]
        end = position + width
        return end, per_item * int.from_bytes(data[position:end], "big")
    return position, _FOREIGN


def _items_head(few: int, many: int, count: int) -> bytes:
    """Return the header of a container with `count` items. `few` is its first byte for fewer than
    16 items, `many` for a count of two bytes."""
    if count < 0x10:
        return bytes((few | count,))
    if count < 0x1_0000:
        return bytes((many, *count.to_bytes(2, "big")))
    return bytes((many + 1, *count.to_bytes(4, "big")))


def _binary_head(size: int) -> bytes:
    """Return the header of a binary value of `size` bytes."""
    step = (size >= 0x100) + (size >= 0x1_0000)
    return bytes((0xC4 + step, *size.to_bytes(1 << step, "big")))
