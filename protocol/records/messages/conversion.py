"""The same messages in another format: v0 with 8 bytes for a time, v1 without them; and conversion
of a slice of a log in bounded steps.

The work on a slice is a generator. It pauses between pieces, and yields compression and
decompression as calls that may run in another thread.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final, TypeVar

from ....values import value_class
from ..kernel import plain_end, rewrite
from ..kernel.terms import OWN
from ..layout import (
    ATTRIBUTES_AT,
    BATCH_MAGIC,
    CODEC_MASK,
    ENTRY_OVERHEAD,
    MAGIC_AT,
    SIZE_AT,
    Buffer,
    Codec,
)

PIECE_BYTES: Final = 16 * 1024
"""Bytes of messages between two pauses. Small messages of this size take the Python form of the
kernel half a millisecond."""

Call = Callable[[], Buffer]
"""Work on a whole buffer. The generator receives its result, or its exception."""

T = TypeVar("T")

Steps = Generator[Call | None, Buffer | None, T]
"""Steps of a conversion: pauses (`None`), and calls to run."""


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


def convert_entries(
    target: bytearray,
    buffer: Buffer,
    start: int,
    end: int,
    *,
    magic: int | None,
    first_offset: int | None = None,
    offset_shift: int = 0,
    stamp_ms: int | None = None,
) -> int:
    """Append the plain entries of `buffer[start:end]` to `target`, each in format `magic`.

    A walk must have passed the entries. `magic=None` keeps each entry's format. Offsets count up
    from `first_offset`, or are the entries' own plus `offset_shift`. A v1 message keeps its time,
    as a create time; a v0 message converted to v1 has none. With `stamp_ms` all messages have that
    time, as an append time. Returns how many messages changed their format.
    """
    return rewrite(
        target,
        buffer,
        start,
        end,
        OWN if magic is None else magic,
        OWN if first_offset is None else first_offset,
        offset_shift,
        OWN if stamp_ms is None else stamp_ms,
    )


def runs(buffer: Buffer, start: int, end: int) -> Iterator[tuple[int, int, Codec | None]]:
    """Yield the runs of plain entries, the wrappers and the batches of `buffer[start:end]` as
    `(start, end, codec)`.

    Consecutive plain entries are one run with `Codec.NONE`. A wrapper is a run of its own, and so
    is a batch, with `None`. A walk must have passed the entries.
    """
    position = start
    while position < end:
        run_end = plain_end(buffer, position, end)
        if run_end > position:
            yield position, run_end, Codec.NONE
            position = run_end
        else:
            size = int.from_bytes(buffer[position + SIZE_AT : position + SIZE_AT + 4], "big")
            stop = position + ENTRY_OVERHEAD + size
            if buffer[position + MAGIC_AT] == BATCH_MAGIC:
                yield position, stop, None
            else:
                yield position, stop, Codec(buffer[position + ATTRIBUTES_AT] & CODEC_MASK)
            position = stop
