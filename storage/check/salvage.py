"""What is good in a damaged log file, and what is not.

After bytes that make no sense the next entry is looked for: first where the bad entry says that
it ends, then byte by byte. An entry is believed when its CRC is right, its offset can follow, and
the entry after it, if that is good too, does not contradict it.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from ...protocol.errors import HorologError
from ...protocol.records.batches.batch import read_header
from ...protocol.records.kernel import crc32, crc32c, walk
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import (
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_OVERHEAD,
    CRC_AT,
    ENTRY_OVERHEAD,
    MAGIC_AT,
    MESSAGE_OVERHEAD,
    Codec,
)
from ...protocol.records.messages.message import entries, open_wrapper
from ...values import value_class
from ..files import File
from ..index.index_file import RELATIVE_OFFSET_MAX
from ..log.segment_scan import SegmentScan, scan_log_file
from .entry_rules import BATCH_MAGIC, MAX_DECOMPRESSED_BYTES, first_offset_inside

_CHUNK_BYTES = 1 << 20
_HEAD = Struct(">qi")
_HEAD_BYTES = MAGIC_AT + 1

OFFSETS_PER_BYTE: Final = 16
"""How many offsets a byte of log may stand for at most, compression included: what bounds an
offset behind bytes that cannot be read."""


@value_class
class Stretch:
    """Bytes `start` to `end` of a log file, all good or all bad."""

    start: int
    end: int
    first_offset: int
    """Of the first message; for bad bytes the offset that was due."""
    next_offset: int
    """The offset after the last message; for bad bytes the same as `first_offset`."""
    rule: str | None = None
    """What is wrong, in words; `None` for good bytes."""
    later_format: bool = False
    """Whether they are of a format that only a later version reads."""

    @property
    def good(self) -> bool:
        return self.rule is None

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


def stretches(
    file: File,
    size_bytes: int,
    *,
    base_offset: int,
    next_offset: int,
    limit_offset: int | None,
    gaps: bool,
    start: int = 0,
    end_offset: int | None = None,
) -> Iterator[Stretch]:
    """The good and the bad stretches of a log file from `start` on, where `next_offset` is due.

    `limit_offset` is where the next segment begins; an offset that jumps does not reach it. Where
    one message after the other does, the two segments overlap, and no message is bad for that.
    `end_offset` is the offset after the last message, where that is known and nothing is missing
    at the end of the file. Raises `OSError`.
    """
    position = start
    while position < size_bytes:
        upper = base_offset + RELATIVE_OFFSET_MAX if limit_offset is None else limit_offset
        scan = scan_log_file(
            file,
            position,
            size_bytes,
            next_offset=next_offset,
            gaps=gaps,
            check_crc=True,
            limit_offset=upper,
        )
        if scan.overlap and limit_offset is not None:
            limit_offset = end_offset = None
            continue
        if scan.good_bytes > position:
            offsets = offsets_at(file, position, scan.good_bytes)
            first = next_offset if offsets is None else offsets[0]
            yield Stretch(position, scan.good_bytes, first, scan.next_offset)
        position, next_offset = scan.good_bytes, scan.next_offset
        if scan.problem is Problem.NONE:
            return
        search = _Search(
            file,
            size_bytes,
            next_offset,
            upper,
            None if gaps else end_offset,
            gaps,
            closed=limit_offset is not None,
        )
        if scan.problem is Problem.OFFSET and (first_offset := search.jumping_to(position)):
            next_offset = first_offset
            continue
        found = None if scan.later_format else search.after(position)
        end = size_bytes if found is None else found[0]
        yield Stretch(position, end, next_offset, next_offset, scan.rule, scan.later_format)
        position = end
        if found is not None:
            next_offset = found[1]


def good_after(
    file: File,
    scan: SegmentScan,
    size_bytes: int,
    base_offset: int,
    *,
    gaps: bool,
) -> int | None:
    """The offset after the last good entry behind the one that stopped `scan`; `None` without.

    For the last segment of a log. Raises `OSError`.
    """
    found = None
    for stretch in stretches(
        file,
        size_bytes,
        base_offset=base_offset,
        next_offset=scan.next_offset,
        limit_offset=None,
        gaps=gaps,
        start=scan.good_bytes,
    ):
        if stretch.good:
            found = stretch.next_offset
    return found


def offsets_at(file: File, position: int, size_bytes: int) -> tuple[int, int] | None:
    """The first and the last offset in the entry at `position`; `None` when it is not good."""
    entry = _entry_at(file, position, size_bytes)
    return None if entry is None else (entry.first_offset, entry.last_offset)


def has_wrong_size(file: File, position: int, size_bytes: int) -> bool:
    """Whether the entry at `position`, which says that it goes on past the end of the file, is
    whole: its CRC fits what is there. Then nothing is missing, its size is wrong."""
    data = memoryview(file.pread(size_bytes - position, position))
    if len(data) < ENTRY_OVERHEAD + MESSAGE_OVERHEAD[0]:
        return False
    if data[MAGIC_AT] == BATCH_MAGIC:
        crc = int.from_bytes(data[BATCH_CRC_AT:BATCH_ATTRIBUTES_AT], "big")
        whole = len(data) >= BATCH_OVERHEAD
        return whole and crc32c(data, BATCH_ATTRIBUTES_AT, len(data)) == crc
    return crc32(data[MAGIC_AT:]) == int.from_bytes(data[CRC_AT:MAGIC_AT], "big")


class _Found(NamedTuple):
    """A good entry."""

    first_offset: int
    """Of the first message in it; of a compressed one that cannot be opened, its own."""
    last_offset: int
    size: int
    """Without the 12 bytes in front of it."""


def _entry_at(file: File, position: int, size_bytes: int) -> _Found | None:
    """The entry at `position` if there is a whole one whose CRC is right."""
    if position + ENTRY_OVERHEAD > size_bytes:
        return None
    size = _HEAD.unpack(file.pread(ENTRY_OVERHEAD, position))[1]
    if size < MESSAGE_OVERHEAD[0] or position + ENTRY_OVERHEAD + size > size_bytes:
        return None
    data = file.pread(ENTRY_OVERHEAD + size, position)
    if walk(data, 0, len(data)).problem is not Problem.NONE:
        return None
    if data[MAGIC_AT] == BATCH_MAGIC:
        header = read_header(data)
        return _Found(header.base_offset, header.last_offset, size)
    (entry,) = entries(data, verify_crc=False)
    first_offset = entry.offset
    if entry.codec is not Codec.NONE:
        with suppress(HorologError):
            inner = open_wrapper(entry, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
            first_offset = first_offset_inside(entry, inner)
    return _Found(first_offset, entry.offset, size)


class _Search:
    """Looks for the first entry that can be believed behind bytes that cannot."""

    def __init__(
        self,
        file: File,
        size_bytes: int,
        due_offset: int,
        upper_offset: int,
        end_offset: int | None,
        gaps: bool,
        *,
        closed: bool,
    ) -> None:
        """Its offset is at least `due_offset` and below `upper_offset`, where the next segment
        begins if the file is `closed`. The last message of the file is in front of `end_offset`, if
        that is known."""
        self._file = file
        self._size_bytes = size_bytes
        self._due_offset = due_offset
        self._upper_offset = upper_offset
        self._end_offset = end_offset
        self._gaps = gaps
        self._closed = closed

    def jumping_to(self, position: int) -> int | None:
        """The first offset of the entry at `position`, which is above the one that is due, if all
        behind it lead on from it: to the known end or the next segment, otherwise at least one
        entry. What was in front of it is gone without leaving bytes, then, and its offset is right.
        """
        entry = _entry_at(self._file, position, self._size_bytes)
        if self._gaps or entry is None or entry.first_offset <= self._due_offset:
            return None
        scan = scan_log_file(
            self._file,
            position,
            self._size_bytes,
            next_offset=entry.first_offset,
            gaps=False,
            check_crc=True,
        )
        if scan.problem is not Problem.NONE or scan.next_offset > self._upper_offset:
            return None
        if self._end_offset is not None:
            leads_on = scan.next_offset == self._end_offset
        elif self._closed:
            leads_on = scan.next_offset == self._upper_offset
        else:
            leads_on = position + ENTRY_OVERHEAD + entry.size < self._size_bytes
        return entry.first_offset if leads_on else None

    def after(self, bad: int) -> tuple[int, int] | None:
        """Where the entry begins that comes after the bad bytes at `bad`, and its first offset."""
        if bad + ENTRY_OVERHEAD <= self._size_bytes:
            size = _HEAD.unpack(self._file.pread(ENTRY_OVERHEAD, bad))[1]
            if size >= MESSAGE_OVERHEAD[0]:
                found = self._believed(bad + ENTRY_OVERHEAD + size, bad)
                if found is not None:
                    return found
        for position in self._candidates(bad + 1):
            found = self._believed(position, bad)
            if found is not None:
                return found
        return None

    def _candidates(self, start: int) -> Iterator[int]:
        """Positions from `start` on where bytes look like the head of an entry."""
        due = self._due_offset.to_bytes(8, "big")
        highest = max(self._upper_offset - 1, self._due_offset).to_bytes(8, "big")
        same = next((at for at in range(8) if due[at] != highest[at]), 8)
        head = re.compile(
            b"(?="
            + re.escape(due[:same])
            + b".{%d}" % (8 - same)
            + b"(?!\\0\\0\\0[\\0-\\x0d])[\\0-\\x7f].{3}"  # a size from 14 on
            + b".{4}[\\0-\\2])",  # CRC, magic
            re.DOTALL,
        )
        while start + _HEAD_BYTES <= self._size_bytes:
            data = self._file.pread(_CHUNK_BYTES + _HEAD_BYTES - 1, start)
            if data.strip(b"\0"):
                for match in head.finditer(data):
                    yield start + match.start()
            start += _CHUNK_BYTES

    def _believed(self, position: int, bad: int) -> tuple[int, int] | None:
        """`position` and the first offset there, if the entry there can be believed."""
        entry = _entry_at(self._file, position, self._size_bytes)
        if entry is None:
            return None
        following = position + ENTRY_OVERHEAD + entry.size
        upper = self._upper_offset
        if not self._gaps:
            upper = min(upper, self._due_offset + OFFSETS_PER_BYTE * (following - bad))
        first = entry.first_offset
        if not self._due_offset <= first <= entry.last_offset < upper:
            return None
        alone = scan_log_file(
            self._file, position, following, next_offset=first, gaps=self._gaps, check_crc=True
        )
        if alone.problem is not Problem.NONE or self._contradicted(
            first, entry.last_offset, following, bad
        ):
            return None
        return position, first

    def _contradicted(self, first_offset: int, offset: int, following: int, bad: int) -> bool:
        """Whether what comes behind an entry with these offsets shows that they are wrong."""
        if following == self._size_bytes:
            return self._end_offset is not None and offset + 1 != self._end_offset
        entry = _entry_at(self._file, following, self._size_bytes)
        if entry is None:
            return False
        first = entry.first_offset
        # The bad bytes in front of both were a message once, and each message has its own offset.
        known = self._is_known(bad)
        before = (1 if self._gaps else 1 + offset - first_offset) + (not known)
        if not self._due_offset + before <= first < self._upper_offset:
            return False  # It is the wrong one: no message that stands there can have that offset.
        if self._gaps:
            return first <= offset
        if first == offset + 1:
            return False
        beyond = self._offset_at(following + ENTRY_OVERHEAD + entry.size)
        if beyond == offset + 1 + entry.last_offset - first + 1:
            return False  # It is the wrong one again: what comes then goes on from the other.
        if first <= offset:
            return True
        if first_offset == self._due_offset:
            return not known
        return beyond == entry.last_offset + 1

    def _is_known(self, bad: int) -> bool:
        """Whether the bad bytes are an entry whose offsets have been there already."""
        entry = _entry_at(self._file, bad, self._size_bytes)
        return entry is not None and entry.last_offset < self._due_offset

    def _offset_at(self, position: int) -> int | None:
        """The offset that the entry at `position` begins with; at the end the one that comes after
        the last, or the limit. `None` where no good entry is."""
        if position == self._size_bytes:
            return self._upper_offset if self._end_offset is None else self._end_offset
        entry = _entry_at(self._file, position, self._size_bytes)
        return None if entry is None else entry.first_offset
