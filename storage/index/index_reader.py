"""Reading an index file offline, entry by entry, believing nothing."""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from ..entries.log_reader import CHUNK_BYTES
from ..files import File

OFFSET_ENTRY: Final = Struct(">ii")
"""Relative offset, position in the log."""

TIME_ENTRY: Final = Struct(">qi")
"""Timestamp in ms, relative offset."""


def entries_end(file: File, entry: Struct, size_bytes: int) -> int:
    """Where the entries of an index end: before a torn one, and before zeros to the end.

    Kafka makes an index file at its full size; slots that are still zero are no entries.
    """
    end = size_bytes - size_bytes % entry.size
    step = CHUNK_BYTES - CHUNK_BYTES % entry.size
    while end:
        start = max(0, end - step)
        data = file.pread(end - start, start).rstrip(b"\0")
        if data:
            return start + -(-len(data) // entry.size) * entry.size
        end = start
    return 0


def index_entries(file: File, entry: Struct, end: int) -> Iterator[tuple[int, int, int]]:
    """`(byte position, first number, second number)` of the entries before `end`."""
    step = CHUNK_BYTES - CHUNK_BYTES % entry.size
    for start in range(0, end, step):
        data = file.pread(min(step, end - start), start)
        data = data[: len(data) - len(data) % entry.size]
        for number, (first, second) in enumerate(entry.iter_unpack(data)):
            yield start + number * entry.size, first, second
