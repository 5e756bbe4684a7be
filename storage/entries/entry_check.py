"""The check of stored entries that recovery, repair and verify share.

The CRC of an entry covers neither its offset nor its size. In a log that only producers wrote to,
offsets are contiguous, and a wrapper message has the offset of its last message, so a changed
offset is detected. In a log with bytes from elsewhere, offsets may jump. A jump is accepted unless
the next entry's offset falls back below it, but not below the entry before the jump: then the jump
itself was wrong.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ...protocol.errors import HorologError, MessageTooLarge
from ...protocol.records.batch import BatchHeader, read_header
from ...protocol.records.kernel import Walk, walk
from ...protocol.records.kernel.terms import Offsets, Problem
from ...protocol.records.layout import BATCH_MAGIC, CODEC_MASK, ENTRY_OVERHEAD, SIZE_AT, Codec
from ...protocol.records.messages.sets import Entry, entries, open_set
from ...values import value_class
from ..files import Buffer
from ..names import MAX_OFFSET
from .entry_rules import (
    HOLES_RULE,
    MAX_DECOMPRESSED_BYTES,
    RULES,
    batch_rule,
    beyond_rule,
    falls_rule,
    first_offset_inside,
    inner_offsets_rule,
    jumps_rule,
    wrapper_times_rule,
    wrong_jump_rule,
)
from .log_reader import StoredEntry, stored_entries

_PLAIN = 1 << Codec.NONE
_BATCHES = 1 << BATCH_MAGIC
_HEAD = Struct(">qi4xBB")
"""Offset, size, magic and attributes of an entry."""


@value_class
class Breach:
    """An entry that violates a rule."""

    position: int
    """Position of the entry in its file."""
    problem: Problem
    rule: str
    """What is wrong, in words."""
    overlap: bool = False
    """Whether the only problem is that the entry's offset belongs to the next segment."""


class Inside(NamedTuple):
    """What an entry contains."""

    first_offset: int
    """Offset of the first message; the smallest possible one if it is not known."""
    rule: str | None = None
    """What is wrong inside the entry, in words."""
    problem: Problem = Problem.NONE
    """Why the entry is rejected. `Problem.NONE` if a start and a repair keep the entry, whatever
    `rule` says."""


class CheckedEntry(NamedTuple):
    """A stored entry that was checked."""

    stored: StoredEntry
    inside: Inside


class EntryCheck:
    """Checks entries that a walk has passed, in the order of their file: their offsets, and the
    contents of wrapper messages that affect them.

    A deep check also opens all compressed entries and batches, for rules that no start and no
    repair applies. `entries` returns what it found.
    """

    def __init__(
        self,
        next_offset: int,
        *,
        gaps: bool,
        limit_offset: int | None = None,
        deep: bool = False,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        """The first entry may have `next_offset`. The last one must be below `limit_offset`."""
        self._expected = next_offset
        self._gaps = gaps
        self._limit_offset = limit_offset
        self._deep = deep
        self._max_decompressed_bytes = max_decompressed_bytes
        self._insides: dict[int, Inside] = {}
        """Contents of the wrapper messages and batches of the last walk, by position
        in the file."""
        self._jump: Breach | None = None
        """The problem of the last entry, if the next entry's offset falls back below it."""
        self._jump_due = 0
        """The offset that was expected at that entry."""

    def check(self, data: Buffer, found: Walk, position: int) -> Breach | None:
        """Check the entries of `found`, the walk over `data`, which is at `position` of the file.

        Returns the first invalid entry. Has to be called with consecutive walks.
        """
        self._insides.clear()
        if found.end:
            below = self._limit_offset is None or found.last_offset < self._limit_offset
            in_row = found.last_offset - self._expected + 1 == found.count
            # A batch is not opened: its CRC covers its content, its number of messages and the
            # distance of its last offset.
            plain = found.codecs == _PLAIN
            shut = plain and not found.batches if self._deep else plain or found.magics == _BATCHES
            if not (below and in_row and shut):
                breach = self._check_each(data, found.end, position)
                if breach is not None:
                    return breach
            else:
                self._expected = found.last_offset + 1
                self._jump = None
        if found.problem is not Problem.OFFSET:
            return None
        offset = int(_HEAD.unpack_from(data, found.end)[0])
        return self._out_of_row(offset, position + found.end)

    def entries(self, data: bytes, position: int, end: int) -> Iterator[CheckedEntry]:
        """Yield the entries of `data` up to position `end`. `data` was checked last and is at
        `position` of the file."""
        for stored in stored_entries(data, 0, end - position, position):
            inside = self._insides.get(stored.position)
            yield CheckedEntry(stored, inside or Inside(stored.offset))

    def _check_each(self, data: Buffer, end: int, base: int) -> Breach | None:
        position = 0
        while position < end:
            offset, size, magic, attributes = _HEAD.unpack_from(data, position)
            following = position + ENTRY_OVERHEAD + size
            first, inside = offset, None
            if magic == BATCH_MAGIC:
                header = read_header(data, position)
                offset = header.last_offset
                if self._deep or not self._gaps:
                    inside = self._in_batch(data, position, header)
            elif attributes & CODEC_MASK:
                (entry,) = entries(data, position, following, verify_crc=False)
                inside = self._in_wrapper(entry)
            if inside is not None:
                first, rule, problem = inside
                if problem is not Problem.NONE:
                    return Breach(base + position, problem, str(rule))
                if self._deep:
                    self._insides[base + position] = inside
            breach = self._check_one(first, offset, base + position)
            if breach is not None:
                return breach
            position = following
        return None

    def check_alone(self, stored: StoredEntry) -> Inside:
        """Check the content of a single entry, whatever its offset. It does not
        count as checked."""
        entry = stored.entry
        if not stored.crc_ok:
            unknown = isinstance(entry, Entry) and entry.codec is not Codec.NONE
            first = min(stored.offset, self._expected) if unknown else stored.offset
            return Inside(first, RULES[Problem.CRC], Problem.CRC)
        if isinstance(entry, BatchHeader):
            return self._in_batch(stored.data, 0, entry)
        return Inside(stored.offset) if entry.codec is Codec.NONE else self._in_wrapper(entry)

    def _in_batch(self, data: Buffer, position: int, header: BatchHeader) -> Inside:
        first = header.base_offset
        if not self._gaps and header.last_offset - first + 1 != header.record_count:
            return Inside(first, HOLES_RULE, Problem.OFFSET)
        if not self._deep:
            return Inside(first)
        most = self._max_decompressed_bytes
        try:
            rule = batch_rule(data, position, header, max_decompressed_bytes=most)
        except HorologError as error:
            rule = error.message
        return Inside(first, rule)

    def _in_wrapper(self, entry: Entry) -> Inside:
        unknown = min(self._expected, entry.offset)
        try:
            data, opened = open_set(entry, max_decompressed_bytes=self._max_decompressed_bytes)
        except MessageTooLarge as error:
            return Inside(unknown, error.message)
        except HorologError as error:
            return Inside(unknown, error.message, Problem.CRC)
        first = _first_in_row(entry, data, opened.end)
        if first is None:
            inner = list(entries(data, 0, opened.end, verify_crc=False))
            first = first_offset_inside(entry, inner)
            rule = inner_offsets_rule(entry, inner, gaps=self._gaps)
            if rule is not None:
                return Inside(first, rule, Problem.CRC)
        if not self._deep:
            return Inside(first)
        return Inside(first, wrapper_times_rule(entry, opened.max_timestamp_ms))

    def _check_one(self, first: int, last: int, position: int) -> Breach | None:
        expected = self._expected
        jumps = first > expected
        if first < expected or (jumps and not self._gaps):
            return self._out_of_row(first, position)
        if self._limit_offset is not None and last >= self._limit_offset:
            rule = beyond_rule(last, self._limit_offset)
            overlap = not jumps and self._limit_offset < MAX_OFFSET
            return Breach(position, Problem.OFFSET, rule, overlap=overlap)
        self._jump = None
        if jumps:
            self._jump = Breach(position, Problem.OFFSET, wrong_jump_rule(first, expected))
            self._jump_due = expected
        self._expected = last + 1
        return None

    def _out_of_row(self, offset: int, position: int) -> Breach:
        if offset >= self._expected:
            rule = jumps_rule(offset, self._expected)
        elif self._jump is not None and offset >= self._jump_due:
            return self._jump
        else:
            rule = falls_rule(offset, self._expected)
        return Breach(position, Problem.OFFSET, rule)


def _first_in_row(entry: Entry, data: bytes, end: int) -> int | None:
    """Return the first offset in a wrapper message if the offsets of its messages, in `data`, are
    contiguous, as nearly always; else `None`."""
    first = int.from_bytes(data[:SIZE_AT], "big", signed=True)
    row = walk(data, 0, end, offsets=Offsets.CONTIGUOUS, base_offset=first, check_crc=False)
    in_row = row.problem is Problem.NONE and row.last_offset - first + 1 == row.count
    if not in_row:
        return None
    if entry.magic:
        return entry.offset - row.last_offset + first
    return first if row.last_offset == entry.offset else None
