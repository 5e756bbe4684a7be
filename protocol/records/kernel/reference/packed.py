"""Messages in msgpack, in plain Python: maps of named fields, each in its shortest form.

What the fields are stands in a `PackedMessage`, which `protocol.api.native.frames` makes of the
declarations. Bytes are exactly those of the package `msgpack`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..terms import MOST_FIELDS, FieldKind
from .fields import FLOAT, FrameWriter, Output, check_count

_NIL: Final = b"\xc0"
_FALSE, _TRUE = b"\xc2", b"\xc3"
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
"""Bytes that follow the first one of a value of fixed size."""

_SIZE_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Bytes of the size field of binary and string values."""

_COUNT_BYTES: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Bytes of the count field of arrays and maps, and values an item stands for."""
_MOST_DEPTH: Final = 32
"""The deepest nesting that `packed_fault` can be asked for."""


class PackedField:
    """Writes one field, or one item of an array."""

    def __init__(
        self,
        kind: str,
        clip: Callable[[str], str] | None,
        message: "PackedMessage | None",
        item: "PackedField | None",
    ) -> None:
        """`kind` is a `FieldKind`; `clip` cuts a text that may be too long.

        A message has its writer, an array that of its items.
        """
        self._kind = kind
        self._clip = clip
        self._message = message
        self._item = item

    def write(self, value: Any, output: Output) -> None:  # noqa: C901 - a case a kind
        if self._message is not None:
            self._message.fields(value, output)
        elif value is None:
            output.put(_NIL)
        elif self._item is not None:
            output.put(_items_head(0x90, 0xDC, len(value)))
            for each in value:
                self._item.write(each, output)
        elif self._kind in (FieldKind.VIEW, FieldKind.BYTES):
            output.put(_sized_head(0xC4, len(value)))
            if self._kind == FieldKind.VIEW:
                output.put_part(value)
            else:
                output.put(value)
        elif self._kind == FieldKind.BOOLEAN:
            output.put(_TRUE if value else _FALSE)
        elif self._kind == FieldKind.FLOAT64:
            output.put(b"\xcb" + FLOAT.pack(value))
        elif self._kind == FieldKind.TEXT:
            output.put(_text(value if self._clip is None else self._clip(value)))
        elif -(2**63) <= value < 2**63:
            output.put(_integer(value))
        else:
            raise OverflowError(f"{value} is no integer of 64 bits")


class PackedMessage(FrameWriter):
    """Writes messages of one class in one version; frames of them are arrays of their values."""

    def __init__(self, fields: Sequence[tuple[str, PackedField, tuple[Any, ...]]]) -> None:
        """`fields` are, in their order, a name, its writer and a tuple: of the one value with which
        the field is left out, or empty."""
        if len(fields) > MOST_FIELDS:
            raise ValueError(f"a message has more than {MOST_FIELDS} fields")
        if any(len(name) > _MOST_NAME_BYTES for name, _, _ in fields):
            raise ValueError(f"a name of a field has more than {_MOST_NAME_BYTES} bytes")
        self._fields = fields

    def _written(self, values: Sequence[Any]) -> Output:
        check_count(values, self._fields)
        output = Output()
        output.put(_items_head(0x90, 0xDC, len(self._fields)))
        for (_, writer, _), value in zip(self._fields, values, strict=True):
            writer.write(value, output)
        return output

    def fields(self, message: Any, output: Output) -> None:
        written = [
            (name, writer, value)
            for name, writer, left_out in self._fields
            if (value := getattr(message, name)) not in left_out
        ]
        output.put(_items_head(0x80, 0xDE, len(written)))
        for name, writer, value in written:
            output.put(_text(name))
            writer.write(value, output)


class TextLimits:
    """How many bytes the texts of a message may have."""

    def __init__(self, limits: "Sequence[tuple[str, int | TextLimits]]") -> None:
        """By the names of fields, of which each is `None`, a text or a list of texts; or a message
        or a list of messages, which have limits of their own."""
        if len(limits) > MOST_FIELDS:
            raise ValueError(f"a message has more than {MOST_FIELDS} fields")
        self._limits = limits
        smallest = (one.shortest if isinstance(one, TextLimits) else one for _, one in limits)
        self.shortest: int = min(smallest, default=2**63 - 1)
        """The least of the limits: what is no longer holds no text that is too long."""

    def check(self, message: Any) -> None:
        """Raise `ValueError` for a text of too many bytes."""
        for name, limit in self._limits:
            value = getattr(message, name)
            for each in value if isinstance(value, list) else () if value is None else (value,):
                if isinstance(limit, TextLimits):
                    limit.check(each)
                elif len(each.encode()) > limit:
                    raise ValueError(f"{name} has more than {limit} bytes")


class RequestReader:
    """Reads whole requests of one kind, frame by frame."""

    def __init__(
        self,
        decode: Callable[[Any], Any],
        wrong: tuple[type[Exception], ...],
        begin: bytes,
        most_values: int,
        most_depth: int,
        texts: TextLimits,
    ) -> None:
        """Frames begin with `begin`, are one value within the limits of `packed_fault`, and are
        what `decode` gives, with `texts` that are short enough. It raises one of `wrong` for what
        is none, of which `ValueError` is one."""
        self._decode, self._wrong, self._texts = decode, wrong, texts
        self._begin, self._most_values, self._most_depth = begin, most_values, most_depth

    def read(self, frame: bytes | bytearray | memoryview) -> Any:
        """The request of a frame; `None` where it is none of this kind."""
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


def packed_fault(  # noqa: C901, PLR0912 - one loop over bytes
    data: bytes | bytearray | memoryview, most_values: int, most_depth: int
) -> str | None:
    """Say what keeps `data` from being one value of at most `most_values`, itself counted, that
    are nested at most `most_depth` deep; `None` when it is. Nothing is made of the values.

    Extension types are a fault too: the protocol has none.
    """
    if not 0 <= most_depth <= _MOST_DEPTH:
        raise ValueError(f"the depth is {most_depth}; it may be 0 to {_MOST_DEPTH}")
    size = len(data)
    position = 0
    values = 0
    due = 1  # values still to come in the innermost container
    outer: list[int] = []  # the same of the containers around it
    while True:
        while due == 0:
            if not outer:
                if position > size:
                    return "it ends in the middle of a value"
                return None if position == size else f"{size - position} bytes follow its end"
            due = outer.pop()
        due -= 1
        values += 1
        if position >= size:
            return "it ends in the middle of a value"
        first = data[position]
        position += 1
        if first < 0x80 or first >= 0xE0:
            continue
        if first >= 0xA0:
            if first < 0xC0:
                position += first & 0x1F
                continue
            if (fixed := _FIXED_BYTES.get(first)) is not None:
                position += fixed
                continue
            if (width := _SIZE_BYTES.get(first)) is not None:
                position += width + int.from_bytes(data[position : position + width], "big")
                continue
            if first not in _COUNT_BYTES:
                return f"it holds a value of type 0x{first:02x}, which the protocol does not use"
            width, per_item = _COUNT_BYTES[first]
            count = per_item * int.from_bytes(data[position : position + width], "big")
            position += width
        elif first < 0x90:
            count = 2 * (first & 0x0F)
        else:
            count = first & 0x0F
        if count > size - position:
            return "it ends in the middle of an array or a map"
        if values + count > most_values:
            return f"it holds more than {most_values} values"
        if len(outer) == most_depth:
            return f"it is nested more than {most_depth} deep"
        outer.append(due)
        due = count


def packed_places(data: bytes | bytearray | memoryview) -> list[int]:
    """Where each item of an array begins, or each key and each value of a map; and the end.

    Raises `ValueError` for what is none, or not all there.
    """
    first = data[0] if len(data) else 0
    if first not in _COUNT_BYTES and not 0x80 <= first < 0xA0:
        raise ValueError("it is no array and no map")
    width, per_item = _COUNT_BYTES.get(first, (0, 2 if first < 0x90 else 1))
    position = 1 + width
    count = per_item * (int.from_bytes(data[1:position], "big") if width else first & 0x0F)
    if count > len(data) - position:
        raise ValueError("it ends in the middle of an array or a map")
    places = [position]
    for _ in range(count):
        position = _behind_value(data, position)
        if position > len(data):
            raise ValueError("it ends in the middle of a value")
        places.append(position)
    return places


def _behind_value(data: bytes | bytearray | memoryview, position: int) -> int:
    """Where a value ends; behind the end of all where that is not there."""
    due = 1
    while due:
        if position >= len(data):
            return len(data) + 1
        due -= 1
        first = data[position]
        position += 1
        if first < 0x80 or first >= 0xE0:
            continue
        if first < 0xA0:
            due += 2 * (first & 0x0F) if first < 0x90 else first & 0x0F
        elif first < 0xC0:
            position += first & 0x1F
        elif first in _FIXED_BYTES:
            position += _FIXED_BYTES[first]
        elif first in _SIZE_BYTES:
            end = position + _SIZE_BYTES[first]
            position = end + int.from_bytes(data[position:end], "big")
        elif first in _COUNT_BYTES:
            width, per_item = _COUNT_BYTES[first]
            due += per_item * int.from_bytes(data[position : position + width], "big")
            position += width
        else:
            return len(data) + 1
    return position


def _items_head(few: int, many: int, count: int) -> bytes:
    """What stands before so many items; `few` for less than 16, `many` where the number takes two
    bytes."""
    if count < 0x10:
        return bytes((few | count,))
    if count < 0x1_0000:
        return bytes((many, *count.to_bytes(2, "big")))
    return bytes((many + 1, *count.to_bytes(4, "big")))


def _sized_head(first: int, size: int) -> bytes:
    """What stands before so many bytes; `first` is for those whose number takes one byte."""
    if size < 0x100:
        return bytes((first, size))
    if size < 0x1_0000:
        return bytes((first + 1, *size.to_bytes(2, "big")))
    return bytes((first + 2, *size.to_bytes(4, "big")))


def _text(value: str) -> bytes:
    data = value.encode()
    size = len(data)
    return (bytes((0xA0 | size,)) if size < 0x20 else _sized_head(0xD9, size)) + data


def _integer(value: int) -> bytes:
    """An integer of 64 bits."""
    if -0x20 <= value < 0x80:
        return bytes((value & 0xFF,))
    first, bits = (0xCC, value) if value >= 0 else (0xD0, 2 * ~value)
    step = next(step for step in range(4) if bits < 1 << (8 << step))
    return bytes((first + step, *value.to_bytes(1 << step, "big", signed=value < 0)))
