"""Conversion of a slice in bounded steps: what it gives, and how it is carried out.

The work is a generator that pauses between pieces, and that hands out compression and decompression
as calls which may run in another thread.
"""

from collections.abc import Callable, Generator
from typing import Final, TypeVar

from ....values import value_class
from ..layout import Buffer

PIECE_BYTES: Final = 16 * 1024
"""Bytes of messages between two pauses: when they are small and nothing is compiled, half a
millisecond's work."""

Call = Callable[[], Buffer]
"""Work on a whole buffer; the generator is sent what it returns, or has raised what it raises."""

T = TypeVar("T")

Steps = Generator[Call | None, Buffer | None, T]
"""Pauses (`None`) and calls."""


@value_class
class Downconverted:
    """A slice as a reader of an older format gets it."""

    data: Buffer
    messages: int
    """How many are in `data`. 0 when the slice has no complete message: then `data` is the slice,
    and its size tells the reader to ask for more; or, `data` being empty, when all that it has is
    marks that are no messages, and records below the offset that was asked for."""
    used_bytes: int
    """Bytes of the slice that `data` stands for; what follows is left to the next read."""
    headers: int = 0
    """How many headers of records had no place in the older format."""


class DamagedSlice(Exception):
    """The first entry of a slice is not as it was stored: in what way."""


def run(steps: Steps[T]) -> T:
    """Do all steps here and now."""
    try:
        call = next(steps)
        while True:
            try:
                result = call() if call is not None else None
            except Exception as error:
                call = steps.throw(error)
            else:
                call = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
