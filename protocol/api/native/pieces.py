"""The native encoding of large messages, read and written in pieces.

To read a large message, its arrays are first split into the bytes of their items, which only looks
at lengths.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Final, TypeVar, cast

from msgspec import msgpack

from ...limits import LENGTH_BYTES
from ...records.kernel import PackedMessage, packed_places
from ..pieces import Output, Pieces, chunks, is_large
from ..schema import Array, Field, WireType, all_fields, fields_of
from .decoding import decoder, item_decoder, splitter, struct_in_version
from .fields import packed_field

T = TypeVar("T")
Type = WireType | type[Any]

_AT_ONCE_BYTES: Final = 8 * 1024
"""A message of at most this size is decoded at once: it has no more values than bytes."""
_NIL: Final = b"\xc0"
_ARRAYS: Final = (*range(0x90, 0xA0), 0xDC, 0xDD)
"""First bytes that an array can have."""


def read_message(struct: type[T], version: int, content: memoryview) -> Pieces[T]:
    """Return the message of a request, decoded as by its decoder. Raises the decoder's errors."""
    if len(content) <= _AT_ONCE_BYTES:
        return cast(T, decoder(struct, version, True)(content))
    split = splitter(struct, version)(content)
    found = {spec.name: getattr(split, spec.name) for spec in all_fields(struct)}
    arrays = {spec.name: cast(Array, spec.type) for spec in _arrays_of(struct, version)}
    # The arrays are cut from `content`, because the splitter's copies cannot be written to, as
    # record sets must be.
    places = packed_places(content)
    for begin, middle, end in zip(places[::2], places[1::2], places[2::2], strict=False):
        name = msgpack.decode(content[begin:middle])
        if name in arrays:
            array = arrays[name]
            found[name] = yield from _read_items(array, version, content[middle:end])
    return cast(T, struct_in_version(struct, version, True)(**found))


def _read_items(array: Array, version: int, content: memoryview) -> Pieces[list[Any] | None]:
    if array.nullable and bytes(content[:2]) == _NIL:
        return None
    if content[0] not in _ARRAYS:
        raise ValueError("it is no array")
    of, items = array.of, list[Any]()
    decode = item_decoder(of, version)
    places = packed_places(content)
    if len(places) > 1 + array.max_items:
        raise ValueError(f"there are more than {array.max_items} items")
    left_bytes = _AT_ONCE_BYTES
    for begin, end in pairwise(places):
        if end - begin > _AT_ONCE_BYTES and isinstance(of, type):
            items.append((yield from read_message(of, version, content[begin:end])))
        else:
            items.append(decode(content[begin:end]))
        left_bytes -= end - begin
        if left_bytes < 0:
            yield
            left_bytes = _AT_ONCE_BYTES
    return items


def write_message(struct: type[Any], version: int, message: Any, output: Output) -> Pieces[None]:
    """Write a message, as its writer would, in pieces."""
    written = [
        (spec, value)
        for spec in fields_of(struct, version, native=True)
        if not ((value := getattr(message, spec.name)) == spec.default_value() and spec.native)
    ]
    output.put(_head(0x80, 0xDE, len(written)))
    for spec, value in written:
        output.put(bytes((0xA0 | len(spec.name), *spec.name.encode())))
        if isinstance(spec.type, Array) and value is not None:
            yield from _write_items(spec.type.of, version, value, output)
        else:
            put_value(output, spec.type, version, value)


def put_value(output: Output, of: Type, version: int, value: Any) -> None:
    """Write one value."""
    # The value's writer puts it into an array, after the length of a frame.
    output.put_parts(_writer(of, version).parts(value), LENGTH_BYTES + 1)


def _write_items(of: Type, version: int, items: Sequence[Any], output: Output) -> Pieces[None]:
    output.put(_head(0x90, 0xDC, len(items)))
    write = _items_writer(of, version).parts
    for chunk in chunks(of, items):
        if is_large(of, chunk):
            yield from write_message(cast(type[Any], of), version, chunk[0], output)
        else:
            head = _head(0x90, 0xDC, len(chunk))
            output.put_parts(write(chunk), LENGTH_BYTES + 1 + len(head))
        yield


def _head(few: int, many: int, count: int) -> bytes:
    """Return the header of a container with `count` items. `few` is its first byte for fewer than
    16 items, `many` for a count of two bytes."""
    if count < 0x10:
        return bytes((few | count,))
    if count < 0x1_0000:
        return bytes((many, *count.to_bytes(2, "big")))
    return bytes((many + 1, *count.to_bytes(4, "big")))


def _make_arrays_of(struct: type[Any], version: int) -> list[Field]:
    specs = fields_of(struct, version, native=True)
    return [spec for spec in specs if isinstance(spec.type, Array)]


def _make_writer(of: Type, version: int) -> PackedMessage:
    return PackedMessage([("", packed_field(of, version), ())])


def _make_items_writer(of: Type, version: int) -> PackedMessage:
    return _make_writer(Array(of, 0), version)


# The casts are needed because mypy does not consider a class hashable.
_arrays_of: Final = cast(Callable[[type[Any], int], list[Field]], cache(_make_arrays_of))
_writer: Final = cast(Callable[[Type, int], PackedMessage], cache(_make_writer))
_items_writer: Final = cast(Callable[[Type, int], PackedMessage], cache(_make_items_writer))
