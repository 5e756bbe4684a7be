"""What writers of both encodings share: kinds of fields, texts that are cut, frames in parts."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from ..records.kernel.terms import FieldKind
from .schema import Array, Boolean, Data, Float, Integer, Records, Text, WireType


class Elsewhere(Protocol):
    """Bytes that are not in memory and go to the other side from where they are, as from a file."""

    def __len__(self) -> int: ...


InMemory = bytes | bytearray | memoryview

Part = InMemory | Elsewhere
"""A stretch of a frame."""

Written = bytes | list[Part]
"""A frame with its length in front; in parts when there are record sets in it that are not in
memory."""


class AnswersEncoder(Protocol):
    """Makes the frames of responses of one kind, or one piece of all of them."""

    def __call__(
        self, correlation_ids: Iterable[int], bodies: Sequence[object], *, faulty: bool = True
    ) -> list[Written]:
        """By the correlation ids of their requests; unless `faulty` there is no error code in
        them."""
        ...


_INTEGERS: Final = {
    8: FieldKind.INT8,
    16: FieldKind.INT16,
    32: FieldKind.INT32,
    64: FieldKind.INT64,
}


def field_kind(wire_type: WireType | type[Any]) -> str:
    """The kind of field that a type is."""
    match wire_type:
        case Integer():
            return _INTEGERS[wire_type.bits].value
        case Float():
            return FieldKind.FLOAT64.value
        case Boolean():
            return FieldKind.BOOLEAN.value
        case Text():
            return FieldKind.TEXT.value
        case Records():
            return FieldKind.VIEW.value
        case Data():
            return FieldKind.BYTES.value
        case Array():
            return FieldKind.ARRAY.value
        case type():
            return FieldKind.MESSAGE.value


def clip_of(wire_type: WireType | type[Any]) -> Callable[[str], str] | None:
    """What cuts the texts of a type, if they are cut."""
    if isinstance(wire_type, Text) and wire_type.clipped:
        return partial(clip, max_bytes=wire_type.max_bytes)
    return None


def clip(text: str, max_bytes: int) -> str:
    """The longest beginning of `text` that is at most `max_bytes` long in UTF-8.

    Lone surrogates, which UTF-8 cannot say, become question marks.
    """
    encoded = text.encode("utf-8", "replace")
    return encoded[:max_bytes].decode("utf-8", "ignore")


def in_memory(frame: Written) -> bytes:
    """A frame of a message whose record sets are all in memory."""
    return frame if isinstance(frame, bytes) else b"".join(frame)  # type: ignore[arg-type]
