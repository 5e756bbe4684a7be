"""Finding the next trustworthy entry in a damaged log file.

The bytes behind the point where a scan stopped are divided into entries with a correct CRC and
bytes between them. The first try is where the bad entry should end according to its size; after
that, every byte is tried. Of all ways to trust some of the next entries and not the others, the one
that contradicts the fewest entries is chosen.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from ...protocol.errors import HorologError
from ...protocol.records.batch import read_header
from ...protocol.records.kernel import crc32, crc32c, walk
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import (
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    CRC_AT,
    ENTRY_OVERHEAD,
    MAGIC_AT,
    MESSAGE_OVERHEAD,
    Codec,
)
from ...protocol.records.messages.sets import entries, open_wrapper
from ..files import File
from ..names import RELATIVE_OFFSET_MAX
from .entry_rules import MAX_DECOMPRESSED_BYTES, first_offset_inside
from .segment_scan import scan_log_file

_CHUNK_BYTES = 1 << 20
_HEAD = Struct(">qi")
_HEAD_BYTES = MAGIC_AT + 1
_LOOKAHEAD = 8
"""Number of entries behind bad ones that are considered together."""

OFFSETS_PER_BYTE: Final = 16
"""Maximum number of offsets per byte of log, including compression. Limits the offset of an entry
behind bytes that cannot be read."""


def offsets_at(file: File, position: int, size_bytes: int) -> tuple[int, int] | None:
    """Return the first and the last offset in the entry at `position`; `None` if it
    is not valid."""
    entry = _entry_at(file, position, size_bytes)
    return None if entry is None else (entry.first_offset, entry.last_offset)


def has_wrong_size(file: File, position: int, size_bytes: int) -> bool:
    """Whether the entry at `position`, which seems to extend beyond the end of the file, is
    complete: its CRC matches the bytes that are there. Then nothing is missing, and its size is
    wrong."""
    data = memoryview(file.pread(size_bytes - position, position))
    if len(data) < ENTRY_OVERHEAD + MESSAGE_OVERHEAD[0]:
        return False
    if data[MAGIC_AT] == BATCH_MAGIC:
        crc = int.from_bytes(data[BATCH_CRC_AT:BATCH_ATTRIBUTES_AT], "big")
        whole = len(data) >= BATCH_OVERHEAD
        return whole and crc32c(data, BATCH_ATTRIBUTES_AT, len(data)) == crc
    return crc32(data[MAGIC_AT:]) == int.from_bytes(data[CRC_AT:MAGIC_AT], "big")


class _GoodEntry(NamedTuple):
    """A valid entry."""

    first_offset: int
    """Offset of the first message in it. For a wrapper message that cannot be opened, its own
    offset."""
    last_offset: int
    size: int
    """Size without the 12 bytes before it."""


def _entry_at(file: File, position: int, size_bytes: int) -> _GoodEntry | None:
    """Return the entry at `position` if it is complete and its CRC is correct."""
    head = file.pread(ENTRY_OVERHEAD, position)
    if position + ENTRY_OVERHEAD > size_bytes or len(head) < ENTRY_OVERHEAD:
        return None
    size = _HEAD.unpack(head)[1]
    if size < MESSAGE_OVERHEAD[0] or position + ENTRY_OVERHEAD + size > size_bytes:
        return None
    data = file.pread(ENTRY_OVERHEAD + size, position)
    if walk(data, 0, len(data)).problem is not Problem.NONE:
        return None
    if data[MAGIC_AT] == BATCH_MAGIC:
        header = read_header(data)
        return _GoodEntry(header.base_offset, header.last_offset, size)
    (entry,) = entries(data, verify_crc=False)
    first_offset = entry.offset
    if entry.codec is not Codec.NONE:
        with suppress(HorologError):
            inner = open_wrapper(entry, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
            first_offset = first_offset_inside(entry, inner)
    return _GoodEntry(first_offset, entry.offset, size)


class _Unit(NamedTuple):
    """An entry with a correct CRC, or bytes of unknown content."""

    start: int
    end: int
    fewest: int
    """Minimum number of offsets that it takes up."""
    most: int
    entry: _GoodEntry | None = None
    """The entry; `None` for bytes of unknown content."""


class _Interpretation(NamedTuple):
    """One way to divide entries into right and wrong ones, up to an entry that it trusts. The
    smallest tuple is the best."""

    contradicted: int
    """Number of entries that it rejects, plus the number of places where offsets do not fit the
    bytes there, although nothing should be missing."""
    lost: int
    """Number of offsets that it leaves without an entry."""
    misfits: int
    """Number of places where offsets do not fit the bytes there; 0 if offsets may jump."""
    wrong: int
    """Number of entries that it rejects."""
    units: int
    """Number of units that it covers."""
    next_offset: int
    first: _Unit | None = None
    """The first entry that it trusts."""

    def after_skipping(
        self, skipped: Sequence[_Unit], offset: int | None, *, gaps: bool, jumps: bool
    ) -> "_Interpretation":
        """Return the interpretation after rejecting all of `skipped`. The next entry has `offset`,
        if known. `gaps` says whether more may be missing before it, `jumps` whether offsets of the
        log may jump."""
        entries = [unit for unit in skipped if unit.entry is not None]
        scarce = missing = False
        lost = 0
        if offset is not None:
            taken = offset - self.next_offset
            scarce = taken < sum(unit.fewest for unit in skipped)
            missing = taken > sum(unit.most for unit in skipped)
            lost = max(taken - sum(unit.most for unit in entries), 0)
        return self._replace(
            contradicted=self.contradicted + len(entries) + (scarce or (missing and not gaps)),
            lost=self.lost + lost,
            misfits=self.misfits + (not jumps and (scarce or missing)),
            wrong=self.wrong + len(entries),
        )


class EntrySearch:
    """Finds the first trustworthy entry behind the point where a scan stopped."""

    def __init__(
        self,
        file: File,
        size_bytes: int,
        due_offset: int,
        upper_offset: int,
        end_offset: int | None,
        gaps: bool,
        *,
        whole: bool,
    ) -> None:
        """The offset of the entry is at least `due_offset` and below `upper_offset`. If it is
        searched byte by byte, its offset is also less than 2**31 above `due_offset`. `end_offset`
        comes after the last message of the file, if that is known and the file is `whole`, or it is
        the base offset of the next segment."""
        self._file = file
        self._size_bytes = size_bytes
        self._due_offset = due_offset
        self._upper_offset = upper_offset
        # Without a limit for offsets, many bytes look like the header of an entry.
        self._near_offset = min(upper_offset, due_offset + RELATIVE_OFFSET_MAX)
        self._end_offset = end_offset
        self._gaps = gaps
        self._whole = whole

    def after(self, position: int) -> tuple[int, int] | None:
        """Return position and first offset of the entry. It may be at `position` itself, if its
        offset jumps and the next entries confirm it."""
        start = position
        while position < self._size_bytes:
            units = list(islice(self._units(position), _LOOKAHEAD))
            if start < position:
                units.insert(0, _bytes(start, position))
            first = self._best_reading(units).first
            if first is not None:
                assert first.entry is not None
                return first.start, first.entry.first_offset
            position = units[-1].end
        return None

    def _best_reading(self, units: Sequence[_Unit]) -> _Interpretation:
        readings = [_Interpretation(0, 0, 0, 0, 0, self._due_offset)]
        for number, unit in enumerate(units):
            if unit.entry is None:
                continue
            first_offset, last_offset, _ = unit.entry
            if self._due_offset <= first_offset <= last_offset < self._upper_offset:
                best = min(
                    reading.after_skipping(
                        units[reading.units : number],
                        first_offset,
                        gaps=self._gaps,
                        jumps=self._gaps,
                    )
                    for reading in readings
                    if reading.next_offset <= first_offset
                )
                readings.append(
                    best._replace(
                        units=number + 1, next_offset=last_offset + 1, first=best.first or unit
                    )
                )
        end = self._end_offset if units[-1].end == self._size_bytes else None
        return min(
            reading.after_skipping(
                units[reading.units :], end, gaps=not self._whole, jumps=self._gaps
            )
            for reading in readings
        )

    def _units(self, position: int) -> Iterator[_Unit]:
        """Yield the units from `position` on."""
        while position < self._size_bytes:
            unit = self._unit_at(position)
            if unit is None:
                unit = _bytes(position, self._next_entry(position))
            yield unit
            position = unit.end

    def _unit_at(self, position: int) -> _Unit | None:
        """Return the entry at `position`, if it is valid apart from, possibly, its offset."""
        entry = _entry_at(self._file, position, self._size_bytes)
        if entry is None:
            return None
        end = position + ENTRY_OVERHEAD + entry.size
        alone = scan_log_file(
            self._file,
            position,
            end,
            next_offset=entry.first_offset,
            gaps=self._gaps,
            check_crc=True,
        )
        if alone.problem is not Problem.NONE:
            return None
        taken = entry.last_offset - entry.first_offset + 1
        before = 2 * position - end
        if before >= 0:
            data = self._file.pread(2 * (end - position), before)
            if data[: end - position] == data[end - position :]:
                taken = 0  # The entry is there twice.
        return _Unit(position, end, taken, taken, entry)

    def _next_entry(self, bad: int) -> int:
        """Return the position of the next entry behind the bad bytes at `bad`; the end if there is
        none."""
        if bad + ENTRY_OVERHEAD <= self._size_bytes:
            size: int = _HEAD.unpack(self._file.pread(ENTRY_OVERHEAD, bad))[1]
            following = bad + ENTRY_OVERHEAD + size
            if size >= MESSAGE_OVERHEAD[0] and self._unit_at(following) is not None:
                return following
        for position in self._candidates(bad + 1):
            unit = self._unit_at(position)
            if unit is not None:
                assert unit.entry is not None
                first_offset, last_offset, _ = unit.entry
                upper = self._near_offset
                if not self._gaps:
                    upper = min(upper, self._due_offset + OFFSETS_PER_BYTE * (unit.end - bad))
                if self._due_offset <= first_offset <= last_offset < upper:
                    return position
        return self._size_bytes

    def _candidates(self, start: int) -> Iterator[int]:
        """Yield positions from `start` on where bytes look like the header of an entry."""
        due = self._due_offset.to_bytes(8, "big")
        highest = max(self._near_offset - 1, self._due_offset).to_bytes(8, "big")
        same = next((at for at in range(8) if due[at] != highest[at]), 8)
        head = re.compile(
            b"(?="
            + re.escape(due[:same])
            + b".{%d}" % (8 - same)
            + b"(?!\\0\\0\\0[\\0-\\x0d])[\\0-\\x7f].{3}"  # a size of at least 14
            + b".{4}[\\0-\\2])",  # CRC, magic
            re.DOTALL,
        )
        while start + _HEAD_BYTES <= self._size_bytes:
            data = self._file.pread(_CHUNK_BYTES + _HEAD_BYTES - 1, start)
            if data.strip(b"\0"):
                for match in head.finditer(data):
                    yield start + match.start()
            start += _CHUNK_BYTES


def _bytes(start: int, end: int) -> _Unit:
    """Return a unit of bytes that were at least one message."""
    return _Unit(start, end, 1, OFFSETS_PER_BYTE * (end - start))
