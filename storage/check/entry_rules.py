"""What is wrong with stored entries, in words, and the rules that a walk alone cannot judge.

The CRC of an entry covers neither its offset nor its size. In a log that only produce has written
offsets are contiguous, and a compressed entry has the offset of its last message, so a changed
offset shows. Where bytes came from elsewhere offsets may jump: an offset that jumps is believed
unless the entry after it falls back behind it, and not behind the one before. Then it was the jump
that was wrong.
"""

from itertools import pairwise
from struct import Struct
from typing import Final

from ...protocol.errors import HorologError, MessageTooLarge
from ...protocol.records.batches.batch import BatchHeader, batch_content, read_header
from ...protocol.records.kernel import RecordCursor, Walk, walk
from ...protocol.records.kernel.terms import NO_MORE, RECORD, Offsets, Problem
from ...protocol.records.layout import (
    CODEC_MASK,
    ENTRY_OVERHEAD,
    MAGIC_AT,
    NO_TIMESTAMP,
    SIZE_AT,
    Codec,
)
from ...protocol.records.messages.message import Entry, entries, open_set, open_wrapper
from ...values import value_class
from ..files import Buffer

RULES: Final = {
    Problem.PARTIAL: "an entry goes on past the end of the file",
    Problem.SIZE: "an entry says that it is smaller than any message",
    Problem.CRC: "a message's CRC does not fit its content",
    Problem.LENGTHS: "a message's key and value do not add up to its size",
    Problem.MAGIC: "a message has a format (magic byte) that this version cannot read",
    Problem.CODEC: "a message is compressed in a way (codec) that this version does not know",
    Problem.OFFSET: "an entry's offset does not go on from the one before it",
}
_HOLES_RULE: Final = "offsets are missing inside a batch"
ZEROS_RULE: Final = "the rest of the file is zeros"

MAX_DECOMPRESSED_BYTES: Final = 256 << 20
"""Stored data passed a broker's own limit once; this one only keeps a damaged or hostile file from
taking all memory. What is larger is believed without being opened."""

BATCH_MAGIC: Final = 2

_PLAIN = 1 << Codec.NONE
_BATCHES = 1 << BATCH_MAGIC
_HEAD = Struct(">qi4xBB")
"""Offset, size, magic and attributes of an entry."""


@value_class
class Breach:
    """An entry that breaks a rule."""

    position: int
    """Of the entry in its file."""
    problem: Problem
    rule: str
    """What is wrong, in words."""
    overlap: bool = False
    """Whether all that is wrong is that the next segment should have begun before it."""


def walk_row(data: bytes, start: int, end: int, offset: int) -> Walk | None:
    """A walk over these entries, if they are good ones whose offsets count up from the one that
    `offset` is in: plain messages or batches, as nearly all are."""
    if len(data) < end:
        return None
    first = offset
    if data[start + MAGIC_AT] == BATCH_MAGIC:
        # An index has the last offset of a batch.
        first = int.from_bytes(data[start : start + SIZE_AT], "big", signed=True)
    found = walk(data, start, end, offsets=Offsets.CONTIGUOUS, base_offset=first)
    if found.problem is not Problem.NONE or found.last_offset - first + 1 != found.count:
        return None
    if found.magics & ~_BATCHES:
        good = first == offset and not found.last_codec
    else:
        good = first <= offset <= found.last_offset
    return found if good else None


def falls_rule(offset: int, expected: int) -> str:
    """The rule that an entry below the due offset breaks."""
    return f"offset {offset} comes where {expected} is due: offsets must rise"


def jumps_rule(offset: int, expected: int) -> str:
    """The rule that an entry above the due offset breaks in a log without gaps."""
    return f"offset {offset} comes where {expected} is due, and this log has no gaps"


def wrong_jump_rule(offset: int, expected: int) -> str:
    """The rule that an entry breaks whose offset jumps past that of the entry behind it."""
    return f"offset {offset} comes where {expected} is due, and the next entry is below it"


def beyond_rule(offset: int, limit_offset: int) -> str:
    """The rule that an entry breaks whose offset belongs into the next segment."""
    return f"offset {offset} comes here, but the next segment begins at {limit_offset}"


def inner_offsets_rule(entry: Entry, inner: list[Entry], *, gaps: bool) -> str | None:
    """The rule that the offsets in a compressed entry break; `None` when they keep all."""
    offsets = [message.offset for message in inner]
    if any(after <= before for before, after in pairwise(offsets)):
        return "the offsets inside a compressed message do not rise"
    if not gaps and offsets[-1] - offsets[0] != len(offsets) - 1:
        return "offsets are missing inside a compressed message"
    if not entry.magic and offsets[-1] != entry.offset:
        return "a compressed message does not have the offset of its last message"
    return None


def first_offset_inside(entry: Entry, inner: list[Entry]) -> int:
    """The offset of the first message in a compressed entry."""
    base_offset = entry.offset - inner[-1].offset if entry.magic else 0
    return base_offset + inner[0].offset


def batch_rule(
    data: bytes, header: BatchHeader, *, gaps: bool, max_decompressed_bytes: int
) -> str | None:
    """The rule that the records of a whole batch break; `None` when they keep all.

    Raises what `batch_content` raises.
    """
    content = batch_content(data, 0, header, max_decompressed_bytes=max_decompressed_bytes)
    cursor = RecordCursor(content, 0, len(content))
    count, last_delta, largest_ms = 0, -1, NO_TIMESTAMP
    while (step := cursor.step()) == RECORD:
        if cursor.offset_delta <= last_delta:
            return "the offsets inside a batch do not rise"
        count, last_delta = count + 1, cursor.offset_delta
        largest_ms = max(largest_ms, header.base_timestamp_ms + cursor.timestamp_delta_ms)
    if step != NO_MORE:
        return f"record {count} of a batch is not good"
    if count != header.record_count:
        return f"a batch says that it holds {header.record_count} records, and holds {count}"
    if last_delta > header.last_offset_delta:
        return "a batch holds a record behind its last offset"
    if not gaps and count != header.last_offset_delta + 1:
        return _HOLES_RULE
    if not header.is_append_time and largest_ms > header.max_timestamp_ms:
        return (
            f"a batch has the timestamp {header.max_timestamp_ms}, its records have up to "
            f"{largest_ms}"
        )
    return None


def _first_in_row(entry: Entry) -> int | None:
    """The first offset in a compressed entry whose offsets count up, as in nearly all of them; else
    `None`. Raises what `open_set` raises."""
    data, opened = open_set(entry, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
    first = int.from_bytes(data[:SIZE_AT], "big", signed=True)
    row = walk(data, 0, opened.end, offsets=Offsets.CONTIGUOUS, base_offset=first, check_crc=False)
    in_row = row.problem is Problem.NONE and row.last_offset - first + 1 == row.count
    if not in_row:
        return None
    if entry.magic:
        return entry.offset - row.last_offset + first
    return first if row.last_offset == entry.offset else None


class OffsetCheck:
    """Checks the offsets of entries that a walk has passed, in the order of their file."""

    def __init__(self, next_offset: int, *, gaps: bool, limit_offset: int | None = None) -> None:
        """The first entry may have `next_offset`, the last one must be below `limit_offset`."""
        self._expected = next_offset
        self._gaps = gaps
        self._limit_offset = limit_offset
        self._jump: Breach | None = None
        """What is wrong with the last entry, should the next one fall back behind it."""
        self._jump_due = 0
        """The offset that was due where that entry is."""

    def check(self, data: Buffer, found: Walk, position: int) -> Breach | None:
        """Check the entries of `found`, the walk over `data`, which is at `position` of the file.

        Returns the first that is not good. To be called with one walk after the other.
        """
        if found.count:
            below = self._limit_offset is None or found.last_offset < self._limit_offset
            in_row = found.last_offset - self._expected + 1 == found.count
            # What is in a batch is covered by its CRC, and so are its number of messages and the
            # distance of its last offset: it need not be opened.
            if not (below and in_row and (found.codecs == _PLAIN or found.magics == _BATCHES)):
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

    def _check_each(self, data: Buffer, end: int, base: int) -> Breach | None:
        position = 0
        while position < end:
            offset, size, magic, attributes = _HEAD.unpack_from(data, position)
            following = position + ENTRY_OVERHEAD + size
            first = offset
            if magic == BATCH_MAGIC:
                header = read_header(data, position)
                if not self._gaps and header.last_offset - first + 1 != header.record_count:
                    return Breach(base + position, Problem.OFFSET, _HOLES_RULE)
                offset = header.last_offset
            elif attributes & CODEC_MASK:
                (entry,) = entries(data, position, following, verify_crc=False)
                opened = self._open(entry)
                if isinstance(opened, str):
                    return Breach(base + position, Problem.CRC, opened)
                first = opened
            breach = self._check_one(first, offset, base + position)
            if breach is not None:
                return breach
            position = following
        return None

    def _open(self, entry: Entry) -> int | str:
        """The first offset in a compressed entry, or what is wrong in it."""
        try:
            first = _first_in_row(entry)
            if first is not None:
                return first
            inner = open_wrapper(entry, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
        except MessageTooLarge:
            return min(self._expected, entry.offset)
        except HorologError as error:
            return error.message
        rule = inner_offsets_rule(entry, inner, gaps=self._gaps)
        return first_offset_inside(entry, inner) if rule is None else rule

    def _check_one(self, first: int, last: int, position: int) -> Breach | None:
        expected = self._expected
        jumps = first > expected
        if first < expected or (jumps and not self._gaps):
            return self._out_of_row(first, position)
        if self._limit_offset is not None and last >= self._limit_offset:
            rule = beyond_rule(last, self._limit_offset)
            return Breach(position, Problem.OFFSET, rule, overlap=not jumps)
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
