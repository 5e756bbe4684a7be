"""One segment: a file of messages (`.log`) with its indexes and its append times.

A segment is *active* while it takes appends and *closed* after the next one began. It knows
positions and sizes, keeps its indexes true to its log, and knows nothing of requests or rolls.
Bytes that are no entries are remembered as damage: the segment is not read from there on, and a
reader that would have to gets an error.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from ...config.topic import TopicSettings
from ...protocol.errors import CodedError, StorageError
from ...protocol.records.kernel import Walk, scan_offset
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
from ...protocol.records.marks import NO_MARKS, Marks
from ...times import INT64_MAX
from ..entries.damage import Damage, first_damage
from ..entries.segment_scan import SegmentScan, scan_log_file
from ..files import Buffer, File
from ..index.append_times import AppendTimes, Span
from ..index.offset_index import OffsetIndex
from ..index.time_index import TimeIndex
from ..index.time_map import SetSpans, SetTimes, TimeMap
from ..names import DELETED_SUFFIX, RELATIVE_OFFSET_MAX, TRANSACTION_INDEX
from ..seams import Seams
from .known_positions import KnownPositions
from .write_ahead import WriteAhead

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


class FarAway(Exception):
    """To find what is looked for takes more than a look: see `Segment.located`."""


_Noted = tuple[int, Buffer, int, SetTimes | SetSpans | bytes | None]
"""Where a set lies, its bytes, the offset behind it and the times of its messages, as the time map
gets them."""


class _Staged(msgspec.Struct):
    """Sets that are not written yet."""

    append_time_ms: int
    before: tuple[int, int, int, tuple[int, int], int | None, int]
    """What the segment was before the first of them: its size, next offset, bytes since the last
    index entry, largest time, tail's stamp, and how many changes of the format it had."""
    sets: list[_Noted] = []
    first_offsets: list[int] = []
    append_spans: Sequence[Span] | None = None
    """Append times of another log, instead of `append_time_ms`."""
    broken: bool = False
    """Whether one of them was taken by half, because there was no memory."""
    entries: tuple[int, int] | None = None
    """How many the indexes had, if some were added."""


class Segment:
    """Messages from `base_offset` up to, not including, `next_offset`."""

    # There are thousands, and a search reads one that was not read for long: what it takes of
    # memory is what it waits for.
    __slots__ = (
        "_ahead",
        "_file",
        "_indexes_behind",
        "_known_positions",
        "_known_positions_cuts",
        "_log_name",
        "_staged",
        "append_times",
        "base_offset",
        "before_append",
        "created_ms",
        "cuts",
        "damaged",
        "dropped",
        "first_ms",
        "gaps",
        "indexed",
        "interval_bytes",
        "jitter_ms",
        "largest",
        "largest_unknown",
        "log_path",
        "magic_changes",
        "next_offset",
        "offset_index",
        "on_damage",
        "open_files",
        "open_form",
        "seams",
        "since_bytes",
        "size_bytes",
        "tail_stamp_ms",
        "time_index",
        "time_map",
    )

    def __init__(
        self, directory: Path, base_offset: int, settings: TopicSettings, seams: Seams
    ) -> None:
        stem = f"{base_offset:020d}"
        self.base_offset = self.next_offset = base_offset
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
        self.first_ms: int | None = None
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
        self.on_damage: Callable[[Segment], None] | None = None
        """Called when reading meets damage that was not known."""
        self._known_positions: KnownPositions | None = None
        self._known_positions_cuts = 0
        self.open_files = seams.open_files
        self.seams = seams
        self._file: File | None = None
        self.created_ms = seams.clock.now_ms()
        self.since_bytes = 0
        """Bytes in the log since the last index entry's place."""
        self.indexed = True
        """Whether the indexes are in memory and fit the log."""
        self.tail_stamp_ms: int | None = None
        """Append time of the last message, -1 when no broker stamped it; `None` when it was not
        looked at, or has not been the last since."""
        self.interval_bytes = settings.index_interval_bytes
        self._indexes_behind = True
        """Whether the files of the indexes may differ from what is in memory."""
        self.open_form: tuple[int, int] | None = None
        """What the time index was before it was closed, where that changed it."""
        self.jitter_ms = _jitter_ms(settings, seams)
        self._staged: _Staged | None = None
        self._ahead: WriteAhead | None = None
        self.before_append: Callable[[Segment], None] | None = None
        """Called before anything is staged."""

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, settings: TopicSettings, seams: Seams
    ) -> "Segment":
        """A new, empty segment with its files.

        Raises `OSError`, and `StorageError` when some of the files were made and stay: if the
        log went on without them, they would hide what comes behind their offset.
        """
        segment = cls(directory, base_offset, settings, seams)
        try:
            for path in segment.paths:
                file = seams.open_files.making_room(partial(seams.files.open, path, create=True))
                try:
                    file.truncate(0)
                finally:
                    file.close()
            segment.keep_creation_time()
            segment.time_map.begin()
        except (OSError, MemoryError):
            segment._unmake()
            raise
        return segment

    def _unmake(self) -> None:
        try:
            for path in self.paths:
                if self.seams.files.exists(path):
                    self.seams.files.unlink(path)
        except OSError as error:
            raise StorageError(
                f"{self.log_path}: the files of a segment that could not be begun cannot be "
                f"removed ({error}); appends to this partition are refused until the broker has "
                "been restarted"
            ) from error

    @classmethod
    def existing(
        cls, directory: Path, base_offset: int, settings: TopicSettings, seams: Seams
    ) -> "Segment":
        """A segment whose log file is there; its indexes are neither read nor believed yet."""
        segment = cls(directory, base_offset, settings, seams)
        segment.size_bytes = seams.files.size(segment.log_path)
        segment.indexed = False
        if seams.files.exists(segment.time_index.path):
            segment.created_ms = seams.files.modified_ms(segment.time_index.path)
        return segment

    @property
    def paths(self) -> tuple[Path, Path, Path, Path]:
        """Of the log, its indexes and its append times."""
        index_paths = self.offset_index.path, self.time_index.path
        return self.log_path, *index_paths, self.append_times.path

    @property
    def paths_to_sync(self) -> list[Path]:
        """The files that are synced when the segment is closed, beside the log."""
        _, *others = self.paths
        if self.append_times.sync_failed:
            del others[-1]
        mapped = self.time_map.checksum(self.size_bytes)
        return [*others, self.time_map.path] if mapped and mapped.size_bytes else others

    @property
    def file(self) -> File:
        """The log file, open; valid until another segment's file is asked for."""
        return self._file or self.open_files.use(self._log_name, self.log_path, read_only=True)

    def hold_open(self) -> File:
        """Keep the log file open until `release`: it has bytes that are not synced."""
        if self._file is None:
            open_files, files = self.seams.open_files, self.seams.files
            self._file = open_files.making_room(lambda: files.open(self.log_path), kept=1)
        return self._file

    def release(self, *, readers: bool = False) -> bool:
        """Release the handle that `hold_open` keeps; `readers` may keep it open if all is synced.
        Returns whether there was one."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:  # The files are about to go, or are recovered at the next start.
            with suppress(OSError, MemoryError):
                ahead.end()
        file, self._file = self._file, None
        if file is None:
            return False
        if readers:
            self.open_files.keep(self._log_name, file)
        else:
            file.close()
        return True

    def close_side_files(self) -> None:
        """Have the files beside the log not open: they are seldom needed."""
        for path in (*self.paths[1:], self.time_map.path):
            self.open_files.forget(str(path))

    def set_aside(self) -> list[Path]:
        """Rename the files to `.deleted` and return their new paths.

        A file that is missing is passed over. The log goes last: until then the segment can be
        read, and the renaming tried again. Raises `OSError`.
        """
        files = self.seams.files
        targets = []
        aborted = self.log_path.with_suffix(f".{TRANSACTION_INDEX}")
        for path in (aborted, self.time_map.path, *reversed(self.paths)):
            self.seams.open_files.forget(str(path))
            target = path.with_name(path.name + DELETED_SUFFIX)
            if files.exists(path):
                files.rename(path, target)
                targets.append(target)
            elif files.exists(target):
                targets.append(target)  # of an earlier try that failed half way
        self.dropped = True
        self.release()
        return targets

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest message time, -1 when no message has one."""
        return self.largest[0]

    @property
    def largest_possible_ms(self) -> int:
        """The largest message time that may be in it; above `largest_timestamp_ms` when part of
        it cannot be read and its time index does not tell."""
        return TIMESTAMP_MAX if self.largest_unknown else self.largest[0]

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
        return self.seams.files.modified_ms(self.log_path)

    @property
    def first_timestamp_ms(self) -> int:
        """Timestamp of the first entry, -1 when it has none or the segment is empty."""
        if self.first_ms is None:
            self.first_ms = self._read_first_ms()
        return self.first_ms

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

    def magic_span(self, position: int) -> tuple[int, int]:
        """Message format at `position` and the position where another one begins."""
        number = bisect_right(self.magic_changes, (position, 1 << 62))
        end = self.size_bytes
        if number < len(self.magic_changes):
            end = self.magic_changes[number][0]
        return self.magic_changes[number - 1][1] if number else -1, end

    @property
    def readable_bytes(self) -> int:
        """Where the entries end that can be read: at the end of the log, or at its damage."""
        return self.size_bytes if self.damaged is None else self.damaged.position

    def set_created(self, created_ms: int) -> None:
        """Have been begun then, also after a restart. Raises `OSError`."""
        self.created_ms = created_ms
        self.keep_creation_time()

    def keep_creation_time(self) -> None:
        """The time index file's own time tells the creation time while no message does."""
        if not self.size_bytes or self.first_timestamp_ms < 0:
            self.seams.files.set_modified_ms(self.time_index.path, self.created_ms)

    def latest_time_ms(self, segment_ms: int, now_ms: int) -> int:
        """The largest timestamp for which it is not to be closed yet; below that of messages
        without a time when it is to be closed whatever comes.

        Time is counted between messages: from its first one to the newest of a set. Only while the
        first message has no time does the clock count, from the segment's creation on.
        """
        waits_ms, first_ms = segment_ms - self.jitter_ms, self.first_ms
        if first_ms is None:
            first_ms = self.first_timestamp_ms
        if first_ms >= 0:
            return min(first_ms + waits_ms, INT64_MAX)
        return INT64_MAX if now_ms - self.created_ms <= waits_ms else NO_TIMESTAMP - 1

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

    def index_entry_before(self, position: int) -> tuple[int, int]:
        """Offset and position of the last entry in front of `position` that the index knows."""
        count = self.offset_index.count_before(position)
        return self.offset_index.entry(count - 1) if count else (self.base_offset, 0)

    def end_before(self, offset: int) -> int:
        """The offset behind the last entry that is below `offset`. Raises `StorageError`."""
        start, end = self._known_around(offset - 1)[0], self.locate(offset)
        return max(self._scan(start, max(start, end)).next_offset, self.base_offset)

    def damage(self, position: int, file: File | None = None) -> CodedError:
        """The error for bytes that cannot be read, at or soon before `position` of the log file.

        The segment remembers them: from there on it is not read any more.
        """
        if self.damaged is None or position < self.damaged.position:
            _, start = self.index_entry_before(position)
            damage = first_damage(
                file or self.file, start, position, self.size_bytes, self.base_offset
            )
            self.record_damage(damage)
        assert self.damaged is not None
        return self.damaged.error(self.log_path)

    def record_damage(self, damage: Damage) -> None:
        """Remember damage: from there on the segment is not read any more."""
        if self.damaged is None or damage.position < self.damaged.position:
            self.damaged = damage
            if self.on_damage is not None:
                self.on_damage(self)

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

    @property
    def index_room(self) -> int:
        """How many places in the log can still be indexed."""
        return min(self.offset_index.room, self.time_index.room)

    def fits(self, last_offset: int) -> bool:
        """Whether index entries can hold `last_offset` and the offset after it."""
        return last_offset + 1 - self.base_offset <= RELATIVE_OFFSET_MAX

    @property
    def _index_entries(self) -> tuple[int, int]:
        return self.offset_index.count, self.time_index.count

    def add_marks(self, marks: Marks) -> None:
        self._indexes_behind = True
        if len(marks.offsets) > self.index_room:
            marks = marks.first(self._room_for(marks))
        self.offset_index.add_all(marks.offsets, marks.positions)
        self.time_index.add_all(marks.timestamps_ms, marks.next_offsets)

    def _room_for(self, marks: Marks) -> int:
        """How many of `marks` there is room for: none behind the one that fills an index."""
        time_room = self.time_index.room
        if time_room <= 0:
            return 0
        filling = bisect_right(marks.timestamps_ms, self.time_index.last_timestamp_ms) + time_room
        count = len(marks)
        if filling <= len(marks.timestamps_ms):
            count = bisect_left(marks.offsets, marks.next_offsets[filling - 1] - 1) + 1
        return min(count, self.offset_index.room)

    def _write_time_entries(self, first: int) -> None:
        if self.time_index.write_from(first):
            self.keep_creation_time()

    def close_indexes(self) -> None:
        """Write the closing time entry: the largest timestamp and the next offset."""
        self.drop_ahead()
        changed = self.finish_time_index(self.largest[0], self.next_offset)
        self._write_time_entries(changed)
        self.offset_index.write_from(len(self.offset_index))
        self.time_map.end(self.size_bytes)

    def finish_time_index(self, timestamp_ms: int, next_offset: int) -> int:
        form, entries = self.time_index.open_form, len(self.time_index)
        changed = self.time_index.finish(timestamp_ms, next_offset)
        if changed < len(self.time_index) or entries != len(self.time_index):
            self.open_form = form
        return changed

    def reopen(self) -> None:
        """Take appends again, after `close_indexes` and a restart, from the end of its messages on.

        Raises `OSError`.
        """
        self._undo_closing()
        self.find_end()

    def go_on(self) -> None:
        """As `reopen`, with indexes as if it had never been closed. Raises `OSError`."""
        known = self.open_form is not None
        self.reopen()
        entries = len(self.time_index)
        if not known and entries and self.time_index.entry(entries - 1)[1] >= self.next_offset:
            self._indexes_behind = True
            self.time_index.keep(entries - 1)
            self._find_largest(self.size_bytes)

    def _undo_closing(self) -> None:
        if self.open_form is not None:
            self.time_index.reopen(*self.open_form)
            self.open_form = None
            self._indexes_behind = True

    def release_indexes(self) -> None:
        """Keep no more of the indexes in memory than is often needed: the segment is closed.

        Later reads of them go through `OpenFiles`, which is for one thread.
        """
        self.offset_index.release()
        self.time_index.release()

    def find_end(self) -> None:
        """Take the offset after the last entry as `next_offset`.

        After a cut that took a whole wrapper the closing time entry speaks of a later end; what
        is appended from here on begins below that, so the entry goes.
        """
        self.next_offset = max(self.scan_tail().next_offset, self.base_offset)
        true_entries = self.time_index.count_below(self.next_offset + 1)
        if true_entries < len(self.time_index):
            self._indexes_behind = True
            self.time_index.keep(true_entries)
            self.keep_creation_time()
        self.append_times.end_at(self.next_offset)

    def write_ahead(self, data: Buffer) -> WriteAhead:
        """A write of `data` to where the next append goes, for another thread. The next append of
        the same `data` takes it over. Raises `OSError`, `StorageError`.

        A large write takes long: for each page of the file the kernel has to find memory.
        """
        self.drop_ahead()
        self.check_end(self.size_bytes)
        if self.seams.disk_room.keepers:
            self.seams.disk_room.check_append()
        file = self.seams.open_files.making_room(self.hold_open().duplicate, kept=1)
        self._ahead = WriteAhead(file, data, self.size_bytes)
        return self._ahead

    def has_ahead(self, data: Buffer) -> bool:
        """Whether the next append of `data` takes a write over."""
        return self._ahead is not None and self._ahead.data is data

    def drop_ahead(self) -> None:
        """Remove what `write_ahead` wrote, if no append has taken it over; waits for the thread.

        Raises `StorageError` where the file cannot be cut back.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            with suppress(OSError, MemoryError):
                ahead.end()
            self._cut_back(self.size_bytes, *self._index_entries)

    def append(self, data: Buffer, found: Walk, *, append_time_ms: int = NO_TIMESTAMP) -> None:
        """Append `data`, whole entries with final offsets that `found` is the walk over.

        `append_time_ms` is when that is; -1 where it is not to be kept. All or nothing: after an
        `OSError` the files are as they were, unless cutting them back fails too, which raises
        `StorageError`.
        """
        self.stage(data, found, append_time_ms)
        self.commit()

    def stage(
        self,
        data: Buffer,
        found: Walk,
        append_time_ms: int,
        first_offsets: Sequence[int] = (),
        times: SetTimes | SetSpans | bytes | None = None,
        append_spans: Sequence[Span] | None = None,
    ) -> None:
        """As `append`, but the files get `data` with `commit`, which has to follow at once.

        Sets that are staged one behind the other become one write to each file. They must have
        the same append time. `first_offsets` are of the sets in `data`, if it is more than one, and
        `times` those of its messages, as far as they are known, or their spans. `append_spans` are
        append times of another log, of all that is staged together. Raises `OSError`, and then
        nothing is staged.
        """
        staged = self._staged
        if staged is None:
            if self.before_append is not None:
                self.before_append(self)
            if self._file is None:
                self.hold_open()
            before = (
                self.size_bytes,
                self.next_offset,
                self.since_bytes,
                self.largest,
                self.tail_stamp_ms,
                len(self.magic_changes),
            )
            staged = self._staged = _Staged(append_time_ms, before)
        assert staged.append_time_ms == append_time_ms
        if staged.broken:
            raise MemoryError
        staged.broken = True
        position, next_offset = self.size_bytes, found.last_offset + 1
        staged.sets.append((position, data, next_offset, times))
        staged.first_offsets += first_offsets or (self.next_offset,)
        if found.marks is not NO_MARKS:
            assert found.marks.positions[0] >= position
            if staged.entries is None:
                staged.entries = self._index_entries
            self.add_marks(found.marks)
        if not position:
            self.first_ms = found.first_timestamp_ms
        if found.max_timestamp_ms > self.largest[0]:
            self.largest = (found.max_timestamp_ms, found.max_offset)
        for at, magic in found.magic_changes:
            self.magic_changes.append((position + at, magic))
        self.since_bytes = found.since_bytes
        self.tail_stamp_ms = None
        self.size_bytes = position + len(data)
        self.next_offset = next_offset
        staged.append_spans = append_spans
        staged.broken = False

    def commit(self) -> None:
        """Write what is staged, all or nothing, as `append` says. Raises `StorageError`, too, where
        the file is shorter than it was: a write behind its end would leave a hole."""
        staged = self._staged
        if staged is None:
            return
        self._staged = None
        try:
            self.check_end(staged.sets[0][0])
            if staged.broken:
                raise MemoryError
            disk_room = self.seams.disk_room
            if disk_room.keepers:
                disk_room.check_append()
            sets = staged.sets
            # A copy of small sets is cheaper than a vectored write of them, and for those of
            # 16 KiB hardly dearer.
            data = sets[0][1] if len(sets) == 1 else b"".join([one[1] for one in sets])
            if self._ahead is None:
                (self._file or self.hold_open()).pwrite(data, sets[0][0])
            else:
                self._write_behind(self._ahead, data, sets[0][0])
            if self._indexes_behind:
                offset_entries, time_entries = staged.entries or self._index_entries
                self.offset_index.write_from(offset_entries)
                self._write_time_entries(time_entries)
                self._indexes_behind = False
            if staged.append_spans is None:
                self.append_times.add_sets(
                    staged.first_offsets, self.next_offset, staged.append_time_ms
                )
            else:
                self.append_times.add_spans(staged.append_spans, self.next_offset)
            if self.time_map.makes:
                for one in sets:
                    self.time_map.add(*one)
        except (OSError, MemoryError, StorageError):
            self._take_back(staged)
            raise

    def _write_behind(self, ahead: WriteAhead, data: Buffer, position: int) -> None:
        """Write `data`, unless `ahead` has. Raises `OSError`, `MemoryError`."""
        self._ahead = None
        if ahead.data is data:
            if ahead.end():
                return
        else:
            with suppress(OSError, MemoryError):
                ahead.end()
        file = self.hold_open()
        file.truncate(position)
        file.pwrite(data, position)

    def check_end(self, size_bytes: int) -> None:
        """Raise the damage of a file that is shorter than `size_bytes`, which were written."""
        file = self._file
        if file is not None:
            ends = file.size()
            if ends < size_bytes:
                raise self.damage(ends, file)

    def _take_back(self, staged: "_Staged") -> None:
        """Be as before the first set of `staged`, in memory and on disk."""
        position, self.next_offset, self.since_bytes, self.largest, self.tail_stamp_ms, changes = (
            staged.before
        )
        self.size_bytes = position
        if not position:
            self.first_ms = None
        del self.magic_changes[changes:]
        self.time_map.take_back(position)
        self._cut_back(position, *(staged.entries or self._index_entries))

    def _cut_back(self, position: int, offset_entries: int, time_entries: int) -> None:
        self._indexes_behind = True
        try:
            file = self.hold_open()
            if file.size() >= position:  # One that was cut short would grow.
                file.truncate(position)
            self.offset_index.keep(offset_entries)
            self.time_index.keep(time_entries)
            self.keep_creation_time()
            self.append_times.take_back()
        except OSError as error:
            raise StorageError(
                f"{self.log_path}: a failed write could not be taken back ({error}); "
                "appends to this partition are refused until the broker has been restarted"
            ) from error

    def truncate(self, offset: int) -> None:
        """Remove the entries that reach `offset` or beyond; the segment ends at `offset`.

        A wrapper that holds `offset` goes as a whole. Raises `OSError`, `StorageError`.
        """
        self.drop_ahead()
        position = self.locate(offset)
        self.cuts += 1
        self.time_map.discard()
        self.tail_stamp_ms = None
        if position < self.size_bytes:
            file = self.hold_open()
            file.truncate(position)
            file.sync()  # Else what was cut off may come back below a segment begun at `offset`.
        self.size_bytes = position
        self.next_offset = offset
        if self.damaged is not None:
            self.damaged = None  # It was behind `offset`, which could be found.
            self.largest_unknown = False
        self._undo_closing()
        self._indexes_behind = True
        self.offset_index.truncate(offset, position)
        self.time_index.truncate(offset)
        self.magic_changes = [change for change in self.magic_changes if change[0] < position]
        if not position:
            self.created_ms = self.seams.clock.now_ms()
            self.first_ms = None
            self.time_map.begin()
        self.keep_creation_time()
        kept = len(self.offset_index)
        self.since_bytes = position - (self.offset_index.entry(kept - 1)[1] if kept else 0)
        self._find_largest(position)
        self.append_times.truncate(max(self.scan_tail().next_offset, self.base_offset), offset)
        self.append_times.sync()  # Their old checksum may be on disk, and fit what comes back.

    def _find_largest(self, end: int) -> None:
        """Learn the largest timestamp, now that the log was cut at `end`, from the last time entry
        that is left; and that entry's successors, up to where the offset index ends."""
        entries = len(self.time_index)
        largest_ms, known = self.time_index.entry(entries - 1) if entries else (-1, 0)
        start = min(self.locate(known), end)
        offset_entries = len(self.offset_index)
        marked_at = self.offset_index.count_before(start)
        marked_position = self.offset_index.entry(marked_at - 1)[1] if marked_at else 0
        scan = self._scan(
            start,
            end,
            interval_bytes=self.interval_bytes,
            since_bytes=start - marked_position,
            largest_ms=largest_ms,
        )
        self.largest = (scan.largest_ms, scan.largest_offset)
        last_marked = self.offset_index.entry(offset_entries - 1)[0] if offset_entries else -1
        count = bisect_right(scan.marks.offsets, last_marked - self.base_offset)
        marks = scan.marks.first(count)
        fitting = bisect_right(marks.timestamps_ms, largest_ms) + max(self.time_index.room, 0)
        self.time_index.add_all(marks.timestamps_ms[:fitting], marks.next_offsets[:fitting])
        self._write_time_entries(entries)


def _jitter_ms(settings: TopicSettings, seams: Seams) -> int:
    """How much earlier than `segment.ms` the segment is closed, so that not all close at once."""
    bound_ms = min(settings.segment_jitter_ms, settings.segment_ms)
    return seams.random.randrange(max(bound_ms, 1)) if settings.segment_jitter_ms > 0 else 0
