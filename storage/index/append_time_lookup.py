"""Queries on the append times of a segment: of given messages, and of a given time.

Each query takes an `AppendTimes`, whose file is read block by block.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterator

from ...protocol.records.layout import NO_TIMESTAMP
from ...values import value_class
from .append_times import BLOCK_ENTRIES, ENTRY, STEP_ENTRIES, AppendTimes, Span


@value_class
class KnownTimes:
    """The append times of messages between two offsets, as far as known."""

    spans: list[Span]
    end_offset: int
    """The times are known up to this offset."""
    sets: int
    """Number of entries that were used."""


def known_times(
    times: AppendTimes, first_offset: int, end_offset: int, sets_max: int = 1 << 62
) -> KnownTimes:
    """Return the append times of the messages from one offset to another, or as far as `sets_max`
    entries reach.

    The first span begins at or below `first_offset`. Loads entries that are not loaded. Raises
    `OSError`.
    """
    while not times.load():
        pass
    if first_offset >= times.end_offset:
        return KnownTimes([(times.end_offset, NO_TIMESTAMP)], end_offset, 0)
    number = _number_at(times, first_offset)
    spans = [(times.base_offset, NO_TIMESTAMP)] if number < 0 else []
    sets = 0
    for offset, append_time_ms in _entries(times, max(number, 0)):
        if offset >= end_offset:
            break
        if sets == sets_max:
            return KnownTimes(spans, offset, sets)
        sets += 1
        if not spans or spans[-1][1] != append_time_ms:
            spans.append((offset, append_time_ms))
    if not spans:  # Another process truncated the file meanwhile.
        return KnownTimes([(times.base_offset, NO_TIMESTAMP)], end_offset, 0)
    if end_offset > times.end_offset and spans[-1][1] != NO_TIMESTAMP:
        spans.append((times.end_offset, NO_TIMESTAMP))
    return KnownTimes(spans, end_offset, sets)


def run_between(times: AppendTimes, first_ms: int, last_ms: int, offset: int) -> tuple[int, int]:
    """Find the next messages, from `offset` on, that were appended between two times, both
    included. Return the first offset, and the offset after the last. If both are equal, there are
    no such messages before that offset; ask again from there.

    Does a bounded amount of work. The times have to be loaded. Raises `OSError`.
    """
    begin: int | None = None
    changes, blocks = times.changes, times.blocks
    block = max(blocks.first_reaching(first_ms), blocks.holding(offset - times.base_offset), 0)
    for _ in range(STEP_ENTRIES // BLOCK_ENTRIES):
        if begin is None:
            block = blocks.first_below(block, last_ms)
        if block == len(blocks):
            break
        entries = _block(times, block)
        if times.changes != changes:  # Another process truncated the file.
            return run_between(times, first_ms, last_ms, offset)
        block += 1
        ends = [*(first for first, _ in entries[1:]), _block_start(times, block)]
        for (first, append_time_ms), end in zip(entries, ends, strict=True):
            inside = first_ms <= append_time_ms <= last_ms and end > offset
            if inside and begin is None:
                begin = max(first, offset)
            elif begin is not None and not inside:
                return begin, first
    reached = max(_block_start(times, block), offset)
    return (reached if begin is None else begin), reached


def first_since(
    times: AppendTimes, target_ms: int, start_offset: int, end_offset: int
) -> Generator[None, None, tuple[int, int] | None]:
    """Find `(offset, append time)` of the first message between two offsets that was appended at or
    after `target_ms`, in bounded steps. Raises `OSError`.

    If entries are removed meanwhile, the search starts again.
    """
    target_ms = max(target_ms, 0)
    while not times.load():
        yield
    changes = times.changes
    start_block = times.blocks.holding(start_offset - times.base_offset)
    block = max(times.blocks.first_reaching(target_ms), start_block)
    while block < len(times.blocks) and _block_start(times, block) < end_offset:
        entries = _block(times, block)
        ends = [*(offset for offset, _ in entries[1:]), _block_start(times, block + 1)]
        for (offset, append_time_ms), end in zip(entries, ends, strict=False):
            first_offset = max(offset, start_offset)
            if append_time_ms >= target_ms and first_offset < min(end, end_offset):
                return first_offset, append_time_ms
        block += 1
        yield
        if times.changes != changes:
            return (yield from first_since(times, target_ms, start_offset, end_offset))
    return None


def _block_start(times: AppendTimes, block: int) -> int:
    """Return the offset at which a block begins; the end offset for the block after the last."""
    if block == len(times.blocks):
        return times.end_offset
    return times.base_offset + times.blocks.start(block)


def _number_at(times: AppendTimes, offset: int) -> int:
    """Return the number of the last entry at or below `offset`; -1 if there is none."""
    block = times.blocks.holding(offset - times.base_offset)
    if block < 0:
        return -1
    data = times.read_block(block)
    relative = offset - times.base_offset

    def offset_of(number: int) -> int:
        found: int = ENTRY.unpack_from(data, number * ENTRY.size)[0]
        return found

    entries = range(len(data) // ENTRY.size)
    return block * BLOCK_ENTRIES + bisect_right(entries, relative, key=offset_of) - 1


def _entries(times: AppendTimes, number: int) -> Iterator[tuple[int, int]]:
    """Yield `(offset, append time)` of the entries from `number` on."""
    skipped = number % BLOCK_ENTRIES
    block = number // BLOCK_ENTRIES
    while block < len(times.blocks):
        yield from _block(times, block, skipped)
        skipped = 0
        block += 1


def _block(times: AppendTimes, block: int, skipped: int = 0) -> list[tuple[int, int]]:
    """Return `(offset, append time)` of a block's entries, without the first `skipped`. Empty if
    another process truncated the file."""
    base_offset = times.base_offset
    data = times.read_block(block, skipped)
    return [(base_offset + relative, ms) for relative, ms in ENTRY.iter_unpack(data)]
