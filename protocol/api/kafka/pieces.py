"""Kafka's encoding of large messages, read and written in pieces."""

from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import Any, Final, TypeVar, cast

from ...limits import LENGTH_BYTES, MAX_PIECE_VALUES
from ...records.kernel import MessageReader, MessageWriter
from ...records.kernel.terms import NULL_LENGTH, Unreadable
from ..framing import Frame
from ..pieces import VALUE_BYTES, Output, Pieces, chunks, has_arrays, is_large
from ..schema import Array, Field, WireType, fields_of
from .fields import field_reader, field_writer, message_reader, smallest_size, values_in

T = TypeVar("T")
Type = WireType | type[Any]

_COUNT: Final = Struct(">i")
_HEAD_BYTES: Final = LENGTH_BYTES + _COUNT.size
"""Bytes before the items in the output of an array's writer: the length of a frame, and the number
of items."""


class Place:
    """The reading position in a frame."""

    __slots__ = ("at", "frame", "left", "room")

    def __init__(self, frame: Frame, at: int, room: int) -> None:
        self.frame = frame
        self.at = at
        self.room = room
        """How many more values arrays may have."""
        self.left = MAX_PIECE_VALUES
        """Values left in the current piece."""


def read_message(struct: type[T], version: int, place: Place) -> Pieces[T]:
    """Return the message at a place, decoded as by its reader. Raises the reader's errors."""
    found: dict[str, Any] = {}
    for step in _read_steps(struct, version):
        if isinstance(step, Field):
            found[step.name] = yield from _read_items(cast(Array, step.type), version, place)
        else:
            values, place.at, _ = step.read(place.frame, place.at, 0)
            found |= values
    return struct(**found)


def _read_items(array: Array, version: int, place: Place) -> Pieces[list[Any] | None]:
    try:
        (count,) = _COUNT.unpack_from(place.frame, place.at)
    except StructError:
        raise Unreadable from None
    place.at += _COUNT.size
    if count == NULL_LENGTH and array.nullable:
        return None
    left = len(place.frame) - place.at
    if not 0 <= count <= array.max_items or count * smallest_size(array.of, version) > left:
        raise Unreadable
    read, values = _item_reader(array.of, version).read, values_in(array.of, version)
    place.room -= count * values
    if place.room < 0:
        raise Unreadable
    items: list[Any] = []
    for _ in range(count):
        begin, room = place.at, min(place.room, MAX_PIECE_VALUES)
        try:
            item, place.at, room_left = read(place.frame, begin, room)
        except Unreadable:
            if room == place.room or not has_arrays(array.of):
                raise
            # The item has more values than fit in one piece.
            item = yield from read_message(cast(type[Any], array.of), version, place)
        else:
            place.room -= room - room_left
            place.left -= values + room - room_left + (place.at - begin) // VALUE_BYTES
            if place.left < 0:
                yield
                place.left = MAX_PIECE_VALUES
        items.append(item)
    return items


def write_message(struct: type[Any], version: int, message: Any, output: Output) -> Pieces[None]:
    """Write a message, as its writer would, in pieces."""
    for step in _write_steps(struct, version):
        if isinstance(step, Field):
            items = getattr(message, step.name)
            yield from _write_items(cast(Array, step.type).of, version, items, output)
        else:
            names, writer = step
            values = [getattr(message, name) for name in names]
            output.put_parts(writer.parts(*values), LENGTH_BYTES)


def _write_items(
    of: Type, version: int, items: Sequence[Any] | None, output: Output
) -> Pieces[None]:
    output.put(_COUNT.pack(NULL_LENGTH if items is None else len(items)))
    write = _items_writer(of, version).parts
    for chunk in chunks(of, items or ()):
        if is_large(of, chunk):
            yield from write_message(cast(type[Any], of), version, chunk[0], output)
        else:
            output.put_parts(write(chunk), _HEAD_BYTES)
        yield


_Between = tuple[list[str], MessageWriter]
"""Names of the fields between two arrays, and the writer of these fields."""


def _split(struct: type[Any], version: int) -> list[Field | list[Field]]:
    """Split the fields of a message into arrays and the runs of other fields between them."""
    found: list[Field | list[Field]] = []
    for spec in fields_of(struct, version, native=False):
        if isinstance(spec.type, Array):
            found.append(spec)
        elif found and isinstance(found[-1], list):
            found[-1].append(spec)
        else:
            found.append([spec])
    return found


def _make_read_steps(struct: type[Any], version: int) -> list[MessageReader | Field]:
    return [
        step
        if isinstance(step, Field)
        else MessageReader(dict, [(spec.name, field_reader(spec.type, version)) for spec in step])
        for step in _split(struct, version)
    ]


def _make_write_steps(struct: type[Any], version: int) -> list[_Between | Field]:
    steps: list[_Between | Field] = []
    for step in _split(struct, version):
        if isinstance(step, Field):
            steps.append(step)
        else:
            fields = [(spec.name, field_writer(spec.type, version)) for spec in step]
            steps.append(([spec.name for spec in step], MessageWriter(fields)))
    return steps


def _make_item_reader(of: Type, version: int) -> MessageReader:
    if isinstance(of, type):
        return message_reader(of, version)
    return MessageReader(cast(type[Any], _only), [("value", field_reader(of, version))])


def _only(value: Any) -> Any:
    return value


def _make_items_writer(of: Type, version: int) -> MessageWriter:
    return MessageWriter([("items", field_writer(Array(of, 0), version))])


# The casts are needed because mypy does not consider a class hashable.
_read_steps: Final = cast(
    Callable[[type[Any], int], list[MessageReader | Field]], cache(_make_read_steps)
)
_write_steps: Final = cast(
    Callable[[type[Any], int], list[_Between | Field]], cache(_make_write_steps)
)
_item_reader: Final = cast(Callable[[Type, int], MessageReader], cache(_make_item_reader))
_items_writer: Final = cast(Callable[[Type, int], MessageWriter], cache(_make_items_writer))
