"""Fields of Kafka's protocol, in plain Python: decoding from a frame, and encoding.

A message is a sequence of fields. `protocol.api.kafka.fields` builds a reader and a writer from
each declaration.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, Final

from ...layout import Slab
from ..terms import MOST_FIELDS, NULL_LENGTH, FieldKind, Unreadable
from .bytes import LENGTH_BYTES, int32_at

_MOST_BYTES: Final = 2**31 - 1
FLOAT: Final = Struct(">d")
_INTEGER_BYTES: Final[dict[str, int]] = {
    FieldKind.INT8: 1,
    FieldKind.INT16: 2,
    FieldKind.INT32: 4,
    FieldKind.INT64: 8,
    FieldKind.BOOLEAN: 1,
}

Frame = bytes | bytearray | memoryview


class _FramePosition:
    """Read position in a frame."""

    def __init__(self, frame: Frame, at: int, room: int) -> None:
        self.view = memoryview(frame)
        self.at = at
        self.room = max(room, 0)
        """How many more values arrays may have."""

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes."""
        begin, self.at = self.at, self.at + size
        if not 0 <= begin <= self.at <= len(self.view):
            raise Unreadable
        return self.view[begin : self.at]

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)


class FieldReader:
    """Decodes one field, or one item of an array."""

    def __init__(
        self,
        kind: str,
        limit: int,
        nullable: bool,
        message: "MessageReader | None",
        item: "FieldReader | None",
        item_bytes: int,
        item_values: int,
    ) -> None:
        """`kind` is a `FieldKind`; `limit` is the maximum number of bytes or items.

        `message` is the reader of a message, `item` that of the items of an array. An item has at
        least `item_bytes` and counts as `item_values`.
        """
        self._kind = kind
        self._limit = limit
        self._nullable = nullable
        self._message = message
        self._item = item
        self._item_bytes = item_bytes
        self._item_values = item_values

    def read(self, place: _FramePosition) -> Any:
        kind = self._kind
        if kind in _INTEGER_BYTES:
            value = place.integer(_INTEGER_BYTES[kind])
            return value != 0 if kind == FieldKind.BOOLEAN else value
        if self._message is not None:
            return self._message.fields(place)
        if kind == FieldKind.FLOAT64:
            return FLOAT.unpack(place.take(FLOAT.size))[0]
        length = place.integer(2 if kind == FieldKind.TEXT else 4)
        if length == NULL_LENGTH and self._nullable:
            return None
        if not 0 <= length <= self._limit:
            raise Unreadable
        if self._item is not None:
            return self._items(self._item, place, length)
        content = place.take(length)
        if kind == FieldKind.TEXT:
            return str(content, "utf-8")
        return content if kind == FieldKind.VIEW else bytes(content)

    def _items(self, item: "FieldReader", place: _FramePosition, count: int) -> list[Any]:
        place.room -= count * self._item_values
        if count * self._item_bytes > len(place.view) - place.at or place.room < 0:
            raise Unreadable
        return [item.read(place) for _ in range(count)]


class MessageReader:
    """Decodes messages of one class in one version."""

    def __init__(self, struct: type[Any], fields: Sequence[tuple[str, FieldReader]]) -> None:
        """`fields` are pairs of a name and a reader, in the order of the bytes."""
        if len(fields) > MOST_FIELDS:
            raise ValueError(f"{struct} has more than {MOST_FIELDS} fields")
        self._struct = struct
        self._fields = fields

    def read(self, data: Frame, at: int, room: int) -> tuple[Any, int, int]:
        """Return the message at position `at` of a frame, the position after it, and the rest of
        `room`.

        `room` is the number of values that arrays may have. The message holds views of the frame.
        Raises `Unreadable` or `UnicodeDecodeError`.
        """
        place = _FramePosition(data, at, room)
        return self.fields(place), place.at, place.room

    def whole(self, begin: bytes, room: int, data: Frame) -> Any:
        """Return the message that fills a frame; `None` if the frame does not start with `begin`,
        or is not such a message. `room` is as in `read`."""
        size = len(begin)
        if len(data) <= size or data[:size] != begin:
            return None
        try:
            message, end, _ = self.read(data, 0, room)
        except (Unreadable, UnicodeDecodeError):
            return None
        return message if end == len(data) else None

    def fields(self, place: _FramePosition) -> Any:
        return self._struct(**{name: reader.read(place) for name, reader in self._fields})


class FrameOutput:
    """Encoded bytes, and between them record sets that are not copied."""

    def __init__(self) -> None:
        self._held = bytearray(LENGTH_BYTES)
        self._parts: list[Any] = []

    def put(self, data: bytes) -> None:
        self._held += data

    def put_integer(self, value: int, size: int) -> None:
        if not -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
            raise OverflowError(f"{value} is no integer of {8 * size} bits")
        self._held += value.to_bytes(size, "big", signed=True)

    def put_part(self, part: Any) -> None:
        """Add a record set as a part of its own."""
        if self._held:
            self._parts.append(bytes(self._held))
            self._held.clear()
        self._parts.append(part)

    def frame(self) -> Any:
        """Return the bytes with their length in front; a list of parts if a record set is not in
        memory."""
        parts = self.parts()
        try:
            return b"".join(parts)
        except TypeError:
            return parts

    def parts(self) -> list[Any]:
        """Like `frame`, in parts; each record set is a part."""
        if self._held:
            self._parts.append(bytes(self._held))
        first, *others = self._parts
        size = sum(map(len, self._parts)) - LENGTH_BYTES
        if size > _MOST_BYTES:
            raise OverflowError(f"a frame of {size} bytes")
        return [size.to_bytes(LENGTH_BYTES, "big") + first[LENGTH_BYTES:], *others]


class FieldWriter:
    """Encodes one field, or one item of an array."""

    def __init__(
        self,
        kind: str,
        clip: Callable[[str], str] | None,
        message: "MessageWriter | None",
        item: "FieldWriter | None",
    ) -> None:
        """`kind` is a `FieldKind`; `clip` cuts a text that may be too long.

        `message` is the writer of a message, `item` that of the items of an array.
        """
        self._kind = kind
        self._clip = clip
        self._message = message
        self._item = item

    def write(self, value: Any, output: FrameOutput) -> None:
        kind = self._kind
        if kind in _INTEGER_BYTES:
            output.put_integer(
                int(bool(value)) if kind == FieldKind.BOOLEAN else value, _INTEGER_BYTES[kind]
            )
        elif self._message is not None:
            self._message.fields(value, output)
        elif kind == FieldKind.FLOAT64:
            output.put(FLOAT.pack(value))
        elif value is None:
            output.put_integer(NULL_LENGTH, 2 if kind == FieldKind.TEXT else 4)
        elif kind == FieldKind.TEXT:
            text = (value if self._clip is None else self._clip(value)).encode()
            output.put_integer(len(text), 2)
            output.put(text)
        else:
            output.put_integer(len(value), 4)
            if kind == FieldKind.VIEW:
                output.put_part(value)
            elif self._item is None:
                output.put(value)
            else:
                for each in value:
                    self._item.write(each, output)


class FrameWriter(ABC):
    """Encodes frames of values, with a writer for each value."""

    def frame(self, *values: Any) -> Any:
        """Encode a message with these values, with its length in front; as a list of parts if a
        record set is not in memory. Raises `OverflowError` for a number too large for its field,
        and `UnicodeEncodeError`."""
        return self._written(values).frame()

    def parts(self, *values: Any) -> list[Any]:
        """Like `frame`, in parts; each record set is a part."""
        return self._written(values).parts()

    def joined(self, *columns: Iterable[Any]) -> bytes:
        """Encode several messages and join their frames; each column has the values of one field.
        Raises `ValueError` for record sets."""
        frames: list[bytes] = []
        for values in zip(*columns, strict=True):
            parts = self.parts(*values)
            if len(parts) > 1:
                raise ValueError("there are record sets, which are parts of their own")
            frames += parts
        return b"".join(frames)

    @abstractmethod
    def _written(self, values: Sequence[Any]) -> FrameOutput:
        """Encode the values, after room for the length."""


class MessageWriter(FrameWriter):
    """Encodes messages of one class in one version."""

    def __init__(self, fields: Sequence[tuple[str, FieldWriter]]) -> None:
        """`fields` are pairs of a name and a writer, in the order of the bytes."""
        if len(fields) > MOST_FIELDS:
            raise ValueError(f"a message has more than {MOST_FIELDS} fields")
        self._fields = fields

    def _written(self, values: Sequence[Any]) -> FrameOutput:
        check_count(values, self._fields)
        output = FrameOutput()
        for (_, writer), value in zip(self._fields, values, strict=True):
            writer.write(value, output)
        return output

    def fields(self, message: Any, output: FrameOutput) -> None:
        for name, writer in self._fields:
            writer.write(getattr(message, name), output)


def check_count(values: Sequence[Any], fields: Sequence[Any]) -> None:
    """Raise `ValueError` unless there is one value for each field."""
    if len(values) != len(fields):
        raise ValueError(f"{len(values)} values for {len(fields)} fields")


def grown_buffer(content: bytearray | memoryview, size_bytes: int) -> bytearray:
    """Return a copy of `content` in a buffer of `size_bytes`; the bytes after it are undefined.

    The compiled form does not clear them, so that the system provides memory only as it is used.
    """
    if size_bytes < len(content):
        raise ValueError(f"{len(content)} bytes in a buffer of {size_bytes}")
    grown = bytearray(size_bytes)
    with memoryview(grown) as view:
        view[: len(content)] = content
    return grown


def split_frames(
    content: Slab, end: int, most_bytes: int
) -> tuple[list[bytearray | Slab], int, int]:
    """Return the complete frames in the first `end` bytes, without their lengths, as parts of
    `content`; the position of the rest; and the length field there, or 0 if fewer than four bytes
    are left. The rest is an incomplete frame, or one whose length is not from 1 to `most_bytes`."""
    if not 0 <= end <= len(content):
        raise IndexError(f"no {end} bytes in a buffer of {len(content)}")
    frames: list[bytearray | Slab] = []
    start = 0
    while (begin := start + LENGTH_BYTES) <= end:
        length = int32_at(content, start)
        if not 0 < length <= min(most_bytes, end - begin):
            return frames, start, length
        start = begin + length
        frames.append(content[begin:start])
    return frames, start, 0
