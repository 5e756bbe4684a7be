"""Work split into short pieces, so that the caller can serve others in between.

Large messages are read and written by generators that yield after each piece and return the result
at the end. `weigher` tells for which messages the overhead is worth it.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeVar, cast

from ..limits import MAX_PIECE_VALUES
from .schema import Array, Data, Text, WireType, all_fields
from .writing import InMemory, Part, Source, Written

T = TypeVar("T")

Pieces = Generator[None, None, T]

VALUE_BYTES: Final = 128
"""Copying this many bytes takes about as long as reading or writing one value."""

JOINED_BYTES: Final = 256 * 1024
"""Larger frames stay in parts: joining them would copy them once more."""

_PART_BYTES: Final = 64 * 1024

_COPIED_BYTES: Final = 1024
"""Up to this size a record set is copied: a part of its own takes a call of the system to send, and
one answer can have ten thousand record sets."""

_HASHED_BYTES: Final = 1024 * 1024


def finish(pieces: Pieces[T]) -> T:
    """Run all pieces at once and return the result."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            found: T = end.value
            return found


def emptied(message: Any) -> Pieces[None]:
    """Empty the arrays of a message, in pieces: freeing a million items at once takes 50 ms.
    Nothing else may use its lists."""
    for spec in all_fields(type(message)):
        if not isinstance(spec.type, Array):
            continue
        items = getattr(message, spec.name) or []
        nested = isinstance(spec.type.of, type) and has_arrays(spec.type.of)
        while items:
            if nested:
                yield from emptied(items.pop())
            else:
                del items[-MAX_PIECE_VALUES:]
            yield


def hash_texts(message: Any) -> Pieces[None]:
    """Compute the hash of each text in a message, in pieces.

    Python caches the hash in the text, so a handler can then look up any number of names in one
    turn: hashing the 60 MB of names that a request can have takes 30 ms.
    """
    waiting, done_bytes = [message], 0
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            hash(one)
            done_bytes += len(one)
        elif isinstance(one, list):
            waiting.extend(one)
        elif one is not None:
            waiting.extend([getattr(one, name) for name in _named(type(one))])
        done_bytes += VALUE_BYTES
        if done_bytes > _HASHED_BYTES:
            yield
            done_bytes = 0


def _find_named(struct: type[Any]) -> Sequence[str]:
    return [spec.name for spec in all_fields(struct) if _has_texts(spec.type)]


_named: Final = cast(Callable[[type[Any]], Sequence[str]], cache(_find_named))
"""Returns the names of a message class's fields that are texts or contain some (cached)."""


def _has_texts(wire_type: WireType | type[Any]) -> bool:
    if isinstance(wire_type, Array):
        return _has_texts(wire_type.of)
    return isinstance(wire_type, Text) or (isinstance(wire_type, type) and bool(_named(wire_type)))


class Output:
    """A frame that is written in pieces."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._held: list[InMemory] = []
        self._held_bytes = 0

    def put(self, data: InMemory) -> None:
        """Append bytes."""
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes >= _PART_BYTES:
            self._close_part()

    def put_parts(self, parts: Sequence[Part], skipped_bytes: int) -> None:
        """Append the output of a writer without its first `skipped_bytes`; only short record sets
        are copied."""
        first, *others = parts
        self.put(memoryview(cast(InMemory, first))[skipped_bytes:])
        for part in others:
            if isinstance(part, bytes) or (
                isinstance(part, InMemory) and len(part) <= _COPIED_BYTES
            ):
                self.put(part)
            else:
                self._close_part()
                self._parts.append(part)

    def frame(self, length_bytes: int) -> Written:
        """Return the complete frame with its length in front: in parts if it is long or not all in
        memory."""
        self._close_part()
        size = sum(map(len, self._parts))
        parts: list[Part] = [size.to_bytes(length_bytes, "big"), *self._parts]
        if size <= JOINED_BYTES and all(isinstance(part, InMemory) for part in parts):
            return b"".join(cast(list[InMemory], parts))
        return parts

    def _close_part(self) -> None:
        if self._held:
            self._parts.append(b"".join(self._held))
            self._held.clear()
            self._held_bytes = 0


def chunks(of: WireType | type[Any], items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the items of an array in lists that take little work to write. A message that takes
    more is alone in its list."""
    weigh = _item_weigher(of)
    begin, weight = 0, 0
    for number, item in enumerate(items):
        own = weigh(item, MAX_PIECE_VALUES)
        if weight and weight + own > MAX_PIECE_VALUES:
            yield items[begin:number]
            begin, weight = number, 0
        weight += own
    if weight:
        yield items[begin:]


def is_large(of: WireType | type[Any], chunk: Sequence[Any]) -> bool:
    """Whether a list returned by `chunks` is a single message that has to be written in pieces."""
    if len(chunk) != 1 or not has_arrays(of):
        return False
    return _item_weigher(of)(chunk[0], MAX_PIECE_VALUES) > MAX_PIECE_VALUES


Weigh = Callable[[Any, int], int]


def _make_weigher(struct: type[Any]) -> Weigh:
    source = Source("def weigh(message, limit):", {})
    source.add("weight = 0")
    _add_weights(source, struct, "message")
    source.add("return weight")
    weigh: Weigh = source.function(f"weight of {struct.__name__}")
    return weigh


weigher: Final = cast(Callable[[type[Any]], Weigh], cache(_make_weigher))
"""By message class, a function that returns the work of reading or writing a message: about its
number of values, without the fields that every message has. It stops counting above a limit."""


def _item_weigher(of: WireType | type[Any]) -> Weigh:
    """Like `weigher`, for items of an array, which are values themselves."""
    if isinstance(of, Data):
        return lambda item, _: 1 + len(item) // VALUE_BYTES
    if not isinstance(of, type):
        return lambda _, __: 1
    weigh, values = weigher(of), len(all_fields(of))
    if not has_arrays(of):
        return lambda _, __: values
    return lambda item, limit: values + weigh(item, limit)


def has_arrays(wire_type: WireType | type[Any]) -> bool:
    """Whether a type is a message whose size has no fixed bound."""
    if not isinstance(wire_type, type):
        return False
    specs = all_fields(cast(object, wire_type))
    return any(isinstance(spec.type, Array | Data) for spec in specs)


def _add_weights(source: Source, struct: type[Any], value: str) -> None:
    for spec in all_fields(struct):
        field = f"{value}.{spec.name}"
        if isinstance(spec.type, Data):
            source.add(f"weight += len({field} or b'') // {VALUE_BYTES}")
        elif isinstance(spec.type, Array):
            inner = spec.type.of
            values = len(all_fields(inner)) if isinstance(inner, type) else 1
            source.add(f"weight += {values} * len({field} or ())")
            if isinstance(inner, type) and has_arrays(inner):
                item = f"{value}_{spec.name}"
                source.add(f"for {item} in {field} or ():")
                source.indent()
                source.add("if weight > limit: return weight")
                _add_weights(source, inner, item)
                source.dedent()
            elif isinstance(inner, Data):
                source.add(f"weight += sum(map(len, {field})) // {VALUE_BYTES}")
