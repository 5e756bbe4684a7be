"""The same messages in another format: v0 with 8 bytes for a time, v1 without them.

Keys, values and the reserved attribute bits stay, the CRC is new. What wrappers hold is converted
message by message and compressed anew, never copied: lz4 frames of the two formats differ, and
so do the offsets inside.
"""

from collections.abc import Iterator

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
    """Add the plain entries of `buffer[start:end]` to `target`, each in format `magic`.

    They must be good: a walk has passed them. `magic` `None` leaves each its own format. Offsets
    count up from `first_offset`, or are the entries' own plus `offset_shift`. In v1 a message
    keeps its time, as a create time, and has none if it was v0; with `stamp_ms` all have that
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
    """Where the plain entries, wrappers and batches of `buffer[start:end]` are: `(start, end,
    codec)`.

    Plain entries that follow each other are one run with `Codec.NONE`, a wrapper is one by itself,
    and so is a batch, with `None`. The entries must be good.
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
