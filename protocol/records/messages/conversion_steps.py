"""Conversion of a slice of a log in bounded steps: its result, and how steps are run.

The work is a generator. It pauses between pieces, and yields compression and decompression as calls
that may run in another thread.
"""

from collections.abc import Callable, Generator
from typing import Final, TypeVar

from ....values import value_class
from ..layout import Buffer

PIECE_BYTES: Final = 16 * 1024
"""Bytes of messages between two pauses. Small messages of this size take the Python form of the
kernel half a millisecond."""

Call = Callable[[], Buffer]
"""Work on a whole buffer. The generator receives its result, or its exception."""

T = TypeVar("T")

Steps = Generator[Call | None, Buffer | None, T]
"""Pauses (`None`) and calls."""


@value_class
class Downconverted:
    """A slice, converted for a client that reads an older format."""

    data: Buffer
    messages: int
    """How many messages are in `data`. 0 if the slice has no complete message: `data` is then the
    slice itself, and its size tells the client to fetch more. Also 0, with empty `data`, if the
    slice has only control batches and records below the requested offset."""
    used_bytes: int
    """Bytes of the slice that were converted; the next read starts after them."""
    headers: int = 0
    """Headers of records that were dropped, because the older format has none."""


class DamagedSlice(Exception):
    """The first entry of a slice is damaged; the message says how."""


def run(steps: Steps[T]) -> T:
    """Run all steps at once."""
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
