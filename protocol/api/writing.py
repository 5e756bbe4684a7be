"""Shared by the writers of both encodings: kinds of fields, texts that are cut, frames in parts,
and functions built from source text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from ..records.kernel.terms import FieldKind
from .schema import Array, Boolean, Data, Float, Integer, Records, Text, WireType


class Source:
    """The lines of one function, and the names that they use."""

    def __init__(self, head: str, names: Mapping[str, object]) -> None:
        """`head` is the function's first line, `def NAME(...):`."""
        self._lines = [head]
        self._names = dict(names)
        self._depth = 1

    def add(self, line: str) -> None:
        """Append a line. After a line that ends with a colon, call `indent`."""
        self._lines.append("    " * self._depth + line)

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def name(self, value: object) -> str:
        """Return a name for a value that has no literal."""
        name = f"constant_{len(self._names)}"
        self._names[name] = value
        return name

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def function(self, origin: str) -> Any:
        """Return the function. `origin` appears in its tracebacks."""
        exec(compile(self.text, f"<{origin}>", "exec"), self._names)
        return self._names[self._lines[0].removeprefix("def ").partition("(")[0]]


class Elsewhere(Protocol):
    """Bytes that are not in memory; they are sent from where they are, as from a file."""

    def __len__(self) -> int: ...


InMemory = bytes | bytearray | memoryview

Part = InMemory | Elsewhere
"""A part of a frame."""

Written = bytes | list[Part]
"""A frame with its length in front; in parts if it contains record sets that are not in memory."""


class AnswersEncoder(Protocol):
    """Builds the frames of responses of one kind (one api and version), or one part that joins all
    of them."""

    def __call__(
        self, correlation_ids: Iterable[int], bodies: Sequence[object], *, faulty: bool = True
    ) -> list[Written]:
        """Encode responses for the requests with these correlation ids. `faulty=False` promises
        that no body has an error code."""
        ...


_INTEGERS: Final = {
    8: FieldKind.INT8,
    16: FieldKind.INT16,
    32: FieldKind.INT32,
    64: FieldKind.INT64,
}


def field_kind(wire_type: WireType | type[Any]) -> str:
    """Return the kind of field for a type, as the kernel names it."""
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
    """Return the function that cuts texts of a type; `None` if they are not cut."""
    if isinstance(wire_type, Text) and wire_type.clipped:
        return partial(clip, max_bytes=wire_type.max_bytes)
    return None


def clip(text: str, max_bytes: int) -> str:
    """Return the longest prefix of `text` that has at most `max_bytes` bytes in UTF-8.

    Lone surrogates, which UTF-8 cannot encode, become question marks.
    """
    encoded = text.encode("utf-8", "replace")
    return encoded[:max_bytes].decode("utf-8", "ignore")


def in_memory(frame: Written) -> bytes:
    """Return a frame as bytes. All its record sets must be in memory."""
    return frame if isinstance(frame, bytes) else b"".join(frame)  # type: ignore[arg-type]
