"""Reading one segment: its files, what is known of its messages, where an offset is.

Bytes that make no sense are remembered as damage: from there on the segment is not read any more,
and a reader that would have to gets an error.
"""

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...config.topic import TopicSettings
from ...protocol.errors import CodedError
from ...protocol.records.kernel import scan_offset
from ...protocol.records.kernel.terms import NOT_FOUND, Problem
from ...protocol.records.layout import (
    ATTRIBUTES_AT,
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    CODEC_MASK,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    SIZE_AT,
    TIMESTAMP_AT,
)
from ..entries.damage import Damage, first_damage
from ..entries.entry_rules import walk_row
from ..entries.salvage import offsets_at
from ..entries.segment_scan import SegmentScan, scan_log_file
from ..files import File
from ..index.append_times import AppendTimes
from ..index.offset_index import OffsetIndex
from ..index.time_index import TimeIndex
from ..index.time_map import TimeMap
from ..seams import Seams
from .known_positions import KnownPositions

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TIME_MAP_SUFFIX = ".timemap"
APPEND_TIMES_SUFFIX = ".appendtime"
TIMESTAMP_MAX: Final = 2**63 - 1
TIMESTAMP_BYTES: Final = 8
_LOCATE_BYTES = 8 << 10
_LOCATE_BYTES_MAX = 256 << 10
_PLACE_BYTES: Final = 128 << 10
"""Distance of the places that are remembered, at least."""
_CHECKED_BYTES: Final = 512 << 10
"""What is checked in front of an entry that a search found, at most: some 0.3 ms of work."""


class FarAway(Exception):
    """To find what is looked for takes more than a look: see `ReadableSegment.located`."""


class ReadableSegment:
    """Messages from `base_offset` up to, not including, `next_offset`."""

    # There are thousands, and a search reads one that was not read for long: what it takes of
    # memory is what it waits for.
    __slots__ = (
        "_file",
        "_first_ms",
        "_known_positions",
        "_known_positions_cuts",
        "_log_name",
        "_seams",
        "append_times",
        "base_offset",
        "cuts",
        "damaged",
        "dropped",
        "gaps",
        "largest",
        "largest_unknown",
        "log_path",
        "magic_changes",
        "next_offset",
        "offset_index",
        "on_damage",
        "open_files",
        "size_bytes",
        "time_index",
        "time_map",
    )

    def __init__(
        self, directory: Path, base_offset: int, settings: TopicSettings, seams: Seams
    ) -> None:
        stem = f"{base_offset:020d}"
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.log_path = directory / (stem + LOG_SUFFIX)
        self._log_name = str(self.log_path)
        index_bytes = settings.segment_index_bytes
        shared = base_offset, index_bytes, seams.open_files, seams.index_cache
        self.offset_index = OffsetIndex(directory / (stem + OFFSET_INDEX_SUFFIX), *shared)
        self.time_index = TimeIndex(directory / (stem + TIME_INDEX_SUFFIX), *shared)
        self.time_map = TimeMap(directory / (stem + TIME_MAP_SUFFIX), base_offset, seams)
        self.append_times = AppendTimes(
            directory / (stem + APPEND_TIMES_SUFFIX), base_offset, seams
        )
        self._first_ms: int | None = None
        """Timestamp of the first entry, if it is known."""
        self.gaps = True
        """Whether offsets may jump."""
        self.largest = (NO_TIMESTAMP, -1)
        """Largest timestamp and the offset of the first message that has it (-1: not known)."""
        self.magic_changes: list[tuple[int, int]] = []
        self.dropped = False
        """Whether the files are out of the folder: a read that still goes on finds nothing."""
        self.cuts = 0
        """How often the end was cut off: a position found before that means nothing after."""
        self.damaged: Damage | None = None
        """From where on the log cannot be read, once that is known."""
        self.largest_unknown = False
        """Whether the damaged rest may hold a larger timestamp than `largest`."""
        self.on_damage: Callable[[ReadableSegment], None] | None = None
        """Called when reading meets damage that was not known."""
        self._known_positions: KnownPositions | None = None
        self._known_positions_cuts = 0
        self.open_files = seams.open_files
        self._seams = seams
        self._file: File | None = None

    @property
    def paths(self) -> tuple[Path, Path, Path, Path]:
        """Of the log, its indexes and its append times."""
        index_paths = self.offset_index.path, self.time_index.path
        return self.log_path, *index_paths, self.append_times.path

    @property
    def file(self) -> File:
        """The log file, open; valid until another segment's file is asked for."""
        return self._file or self.open_files.use(self._log_name, self.log_path, read_only=True)

    def hold_open(self) -> File:
        """Keep the log file open until `release`: it has bytes that are not synced."""
        if self._file is None:
            open_files, files = self._seams.open_files, self._seams.files
            self._file = open_files.making_room(lambda: files.open(self.log_path), kept=1)
        return self._file

    def release(self, *, readers: bool = False) -> bool:
        """Give up a handle kept by `hold_open`, to those who read if all is synced; say whether
        there was one."""
        file, self._file = self._file, None
        if file is None:
            return False
        if readers:
            self.open_files.keep(self._log_name, file)
        else:
            file.close()
        return True

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest message time, -1 when no message has one."""
        return self.largest[0]

    @property
    def age_from_ms(self) -> int:
        """The time that retention goes by: of the newest message, else of the file."""
        return self.age_by(self.largest[0])

    def age_by(self, largest_ms: int) -> int:
        """As `age_from_ms`, of a part of the messages, with their largest timestamp."""
        if self.largest_unknown:
            return max(largest_ms, self.modified_ms)
        return largest_ms if largest_ms >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        """When the log file was last written."""
        return self._seams.files.modified_ms(self.log_path)

    @property
    def first_timestamp_ms(self) -> int:
        """Timestamp of the first entry, -1 when it has none or the segment is empty."""
        if self._first_ms is None:
            self._first_ms = self._read_first_ms()
        return self._first_ms

    def _read_first_ms(self) -> int:
        head = self.file.pread(BATCH_OVERHEAD, 0)
        magic = head[MAGIC_AT] if len(head) > MAGIC_AT else 0
        at = {1: TIMESTAMP_AT, BATCH_MAGIC: MAX_TIMESTAMP_AT}.get(magic)
        if at is None or len(head) < at + TIMESTAMP_BYTES:
            return NO_TIMESTAMP
        return int.from_bytes(head[at : at + TIMESTAMP_BYTES], "big", signed=True)

    @property
    def last_magic(self) -> int:
        """Format of the last entry, -1 when there is none."""
        return self.magic_changes[-1][1] if self.magic_changes else -1

    def locate(self, offset: int) -> int:
        """Position of the first entry whose offset is >= `offset`; the size when there is none.

        Raises as `locate_entry`.
        """
        return self.locate_entry(offset)[0]

    def locate_entry(self, offset: int, *, far: bool = True) -> tuple[int, bytes]:
        """As `locate`, with what was read of the log from there on, if that was read.

        Reads from the last entry on that the index or an earlier look knows, entry heads only; see
        `located` for when that may be far, which without `far` raises `FarAway`. Raises
        `StorageError` on bytes that are no entries, and where what is searched may be in the
        damaged rest of the segment.
        """
        known, behind = self._known_around(offset)
        if not far and behind - known > _LOCATE_BYTES_MAX:
            raise FarAway
        position = known
        end = self.size_bytes if self.damaged is None else self.damaged.position
        wanted = _LOCATE_BYTES
        while position < end:
            data = self.file.pread(min(wanted, end - position), position)
            found, stopped = scan_offset(data, 0, len(data), offset)
            if found >= 0:
                data = data[found:]
                self._check_located(data, offset, position + found)
                return position + found, data
            if found != NOT_FOUND or not stopped:
                raise self.damage(position + stopped)
            position += stopped
            if position - known >= _PLACE_BYTES and self._remember(data, position):
                known = position
            wanted = min(wanted * 2, _LOCATE_BYTES_MAX)
        if position > end or self.damaged is not None:
            raise self.damage(min(position, end))
        return position, b""

    def located(self, offset: int) -> bool:
        """Look for `offset` where no index entry is near it: a bounded piece of work, after which
        the next one begins further on. `True` when `locate` has not far to read any more.
        """
        start, end = self._known_around(offset)
        if end - start <= _LOCATE_BYTES_MAX:
            return True
        data = self.file.pread(_LOCATE_BYTES_MAX, start)
        found, stopped = scan_offset(data, 0, len(data), offset)
        if found != NOT_FOUND or not stopped or start + stopped >= end:
            return True
        # What is wrong here `locate` meets too, soon, and tells.
        return not self._remember(data, start + stopped)

    def _known_around(self, offset: int) -> tuple[int, int]:
        """Position of the last entry at or below `offset` that is known, and of the next one."""
        _, start, end = self.offset_index.around(offset)
        end = min(end, self.size_bytes if self.damaged is None else self.damaged.position)
        if self._known_positions is not None and self._known_positions_cuts == self.cuts:
            before, behind = self._known_positions.around(offset)
            start = max(start, before)
            if behind is not None:
                end = min(end, behind)
        return start, end

    def _remember(self, data: bytes, position: int) -> bool:
        """Remember the entry at `position`, which follows those whose heads are in `data`.

        No CRC covers its offset: it is believed when it is above all of theirs.
        """
        head = self.file.pread(SIZE_AT, position)
        offset = int.from_bytes(head, "big", signed=True)
        if position >= self.readable_bytes or not self.base_offset <= offset < self.next_offset:
            return False
        if scan_offset(data, 0, len(data), offset)[0] != NOT_FOUND:
            return False
        if self._known_positions is None or self._known_positions_cuts != self.cuts:
            self._known_positions, self._known_positions_cuts = KnownPositions(), self.cuts
        self._known_positions.add(offset, position)
        return True

    def _check_located(self, data: bytes, offset: int, position: int) -> None:
        """Check the offset of the entry that was taken for the one that holds `offset`."""
        found = int.from_bytes(data[:8], "big", signed=True)
        if found >= self.next_offset:
            raise self.damage(position)
        if not self.gaps and found != offset and len(data) > ATTRIBUTES_AT:
            if data[MAGIC_AT] == BATCH_MAGIC:
                if found > offset >= self.base_offset:
                    raise self.damage(position)
                return
            plain = not data[ATTRIBUTES_AT] & CODEC_MASK
            if plain and offset >= self.base_offset:
                raise self.damage(position)

    def _index_entry_before(self, position: int) -> tuple[int, int]:
        """Offset and position of the last entry in front of `position` that the index knows."""
        count = self.offset_index.count_before(position)
        return self.offset_index.entry(count - 1) if count else (self.base_offset, 0)

    @property
    def readable_bytes(self) -> int:
        """Where the entries end that can be read: at the end of the log, or at its damage."""
        return self.size_bytes if self.damaged is None else self.damaged.position

    def visible_end(self, high_watermark: int, *, far: bool = True) -> int:
        """Position after the last entry below `high_watermark` that can be read.

        Raises as `locate_entry`.
        """
        damaged = self.damaged
        if damaged is None:
            if self.next_offset <= high_watermark:
                return self.size_bytes
        elif min(self.next_offset, damaged.offset) <= high_watermark:
            return damaged.position
        return self.locate_entry(high_watermark, far=far)[0]

    def check_readable(self, high_watermark: int) -> None:
        """Raise the damage that is in front of `high_watermark`, if there is any."""
        damaged = self.damaged
        if damaged is not None and damaged.offset < high_watermark:
            raise damaged.error(self.log_path)

    def damage(self, position: int, file: File | None = None) -> CodedError:
        """The error for bytes that cannot be read, at or soon before `position` of the log file.

        The segment remembers them: from there on it is not read any more.
        """
        if self.damaged is None or position < self.damaged.position:
            _, start = self._index_entry_before(position)
            damage = first_damage(
                file or self.file, start, position, self.size_bytes, self.base_offset
            )
            self.note_damage(damage)
        assert self.damaged is not None
        return self.damaged.error(self.log_path)

    def note_damage(self, damage: Damage) -> None:
        """Remember damage: from there on the segment is not read any more."""
        if self.damaged is None or damage.position < self.damaged.position:
            self.damaged = damage
            if self.on_damage is not None:
                self.on_damage(self)

    @property
    def largest_possible_ms(self) -> int:
        """The largest message time that may be in it; above `largest_timestamp_ms` when part of
        it cannot be read and its time index does not tell."""
        return TIMESTAMP_MAX if self.largest_unknown else self.largest[0]

    def check_entries(self, start: int, end: int, data: bytes, position: int) -> None:
        """Check the entries up to the one from `start` to `end`, from the last one before it that
        the index knows: CRCs, and offsets, which no CRC covers.

        `data` are bytes from `position` on that have been read already, up to `end` at least.
        Raises `StorageError` when an entry is not good.
        """
        offset, begin = self._index_entry_before(start + 1)
        if end - begin > _CHECKED_BYTES:
            return
        if begin < position:
            data, position = self.file.pread(end - begin, begin), begin
        if not self.gaps and walk_row(data, begin - position, end - position, offset):
            return
        offsets = offsets_at(self.file, begin, end)
        if offsets is None:
            raise self.damage(begin)
        first, last = offsets
        in_place = first <= offset <= last
        if not begin:
            in_place = first >= offset if self.gaps else first == offset
        scan = scan_log_file(
            self.file, begin, end, next_offset=first, gaps=self.gaps, check_crc=True
        )
        if not in_place:
            raise self.damage(begin)
        if scan.problem is not Problem.NONE:
            raise self.damage(scan.good_bytes)

    def magic_span(self, position: int) -> tuple[int, int]:
        """Message format at `position` and the position where another one begins."""
        number = bisect_right(self.magic_changes, (position, 1 << 62))
        end = self.size_bytes
        if number < len(self.magic_changes):
            end = self.magic_changes[number][0]
        return self.magic_changes[number - 1][1] if number else -1, end

    def scan_tail(self, file: File | None = None) -> SegmentScan:
        """Read the entries from the last offset index entry on: next offset, last stamp.

        A thread of its own needs a handle of its own on the log file.
        """
        return self._scan(self._tail_position, self.size_bytes, file)

    def tail_append_time_ms(self) -> int:
        """The last stamp of what `scan_tail` reads; -1 also where the bytes are no entries."""
        scan = self._scan_any(self._tail_position, self.size_bytes, self.file)
        return scan.last_append_time_ms if scan.problem is Problem.NONE else NO_TIMESTAMP

    @property
    def _tail_position(self) -> int:
        count = len(self.offset_index)
        return self.offset_index.entry(count - 1)[1] if count else 0

    def end_before(self, offset: int) -> int:
        """The offset behind the last entry that is below `offset`. Raises `StorageError`."""
        start, end = self._known_around(offset - 1)[0], self.locate(offset)
        return max(self._scan(start, max(start, end)).next_offset, self.base_offset)

    def _scan_any(
        self,
        start: int,
        end: int,
        file: File,
        *,
        interval_bytes: int = -1,
        since_bytes: int = 0,
        largest_ms: int = NO_TIMESTAMP,
    ) -> SegmentScan:
        return scan_log_file(
            file,
            start,
            end,
            next_offset=self.base_offset,
            interval_bytes=interval_bytes,
            since_bytes=since_bytes,
            largest_ms=largest_ms,
            gaps=True,
            check_crc=False,
        )

    def _scan(self, start: int, end: int, file: File | None = None, **how: int) -> SegmentScan:
        scan = self._scan_any(start, end, file or self.file, **how)
        if scan.problem is not Problem.NONE or start > end:
            raise self.damage(min(scan.good_bytes, end), file)
        return scan
