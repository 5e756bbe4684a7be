"""One segment: a log file (`.log`) with its indexes and its append times.

A segment is *active* while it takes appends, and *closed* once the next segment was begun. It knows
positions and sizes and keeps its indexes consistent with its log. It knows nothing of requests and
does not decide when to roll. Bytes that are not valid entries are recorded as damage: nothing
behind them is read, and a read that would need them raises an error.
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
from ..index.offset_index import KnownPositions, OffsetIndex
from ..index.time_index import TimeIndex
from ..index.time_map import SetSpans, SetTimes, TimeMap
from ..names import DELETED_SUFFIX, RELATIVE_OFFSET_MAX, TRANSACTION_INDEX
from ..seams import Seams
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
"""Minimum distance in bytes between remembered positions."""


class FarAway(Exception):
    """The search would have to read more than `_LOCATE_BYTES_MAX`: see `Segment.located`."""


_Noted = tuple[int, Buffer, int, SetTimes | SetSpans | bytes | None]
"""A staged set: its position, its bytes, the offset after it, and its message times as the time map
takes them."""


class _Staged(msgspec.Struct):
    """Sets that were staged and are not written yet."""

    append_time_ms: int
    before: tuple[int, int, int, tuple[int, int], int | None, int]
    """State of the segment before the first staged set: size, next offset, bytes since the last
    index entry, largest timestamp, append time of the tail, and number of format changes."""
    sets: list[_Noted] = []
    first_offsets: list[int] = []
    append_spans: Sequence[Span] | None = None
    """Append times copied from another log, used instead of `append_time_ms`."""
    broken: bool = False
    """Whether staging of a set stopped half-way because memory ran out."""
    entries: tuple[int, int] | None = None
    """Numbers of entries in the offset and time index before, if entries were added."""


class Segment:
    """The messages from `base_offset` up to, but not including, `next_offset`."""

    # A broker has thousands of segments. A search often touches one that was not read for long, and
    # waits for each cache line of it: the less memory it takes, the shorter the wait.
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
        """Timestamp of the first entry, if known."""
        self.gaps = True
        """Whether offsets may jump."""
        self.largest = (NO_TIMESTAMP, -1)
        """Largest timestamp, and the offset of the first message that has it (-1: not known)."""
        self.magic_changes: list[tuple[int, int]] = []
        self.dropped = False
        """Whether the files were removed from the folder. A read still in progress then finds
        nothing."""
        self.cuts = 0
        """How often the log was truncated. A position found before a truncation is not valid after
        it."""
        self.damaged: Damage | None = None
        """Where the log becomes unreadable, once damage is known."""
        self.largest_unknown = False
        """Whether the damaged part may hold a timestamp larger than `largest`."""
        self.on_damage: Callable[[Segment], None] | None = None
        """Called when a read meets damage that was not known."""
        self._known_positions: KnownPositions | None = None
        self._known_positions_cuts = 0
        self.open_files = seams.open_files
        self.seams = seams
        self._file: File | None = None
        self.created_ms = seams.clock.now_ms()
        self.since_bytes = 0
        """Bytes of the log since the position of the last index entry."""
        self.indexed = True
        """Whether the indexes are loaded and match the log."""
        self.tail_stamp_ms: int | None = None
        """Append time of the last message, -1 if no broker stamped it. `None` if it was not read,
        or if messages were appended since."""
        self.interval_bytes = settings.index_interval_bytes
        self._indexes_behind = True
        """Whether the index files may differ from the indexes in memory."""
        self.open_form: tuple[int, int] | None = None
        """State of the time index before it was closed, if closing changed it."""
        self.jitter_ms = _jitter_ms(settings, seams)
        self._staged: _Staged | None = None
        self._ahead: WriteAhead | None = None
        self.before_append: Callable[[Segment], None] | None = None
        """Called before anything is staged."""

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, settings: TopicSettings, seams: Seams
    ) -> "Segment":
        """Create a new, empty segment with its files.

        Raises `OSError`. Raises `StorageError` if some of the files were made and cannot be
        removed: if the log continued without them, they would hide the messages behind their
        offset.
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
        """Return a segment whose log file exists. Its indexes are neither read nor trusted yet."""
        segment = cls(directory, base_offset, settings, seams)
        segment.size_bytes = seams.files.size(segment.log_path)
        segment.indexed = False
        if seams.files.exists(segment.time_index.path):
            segment.created_ms = seams.files.modified_ms(segment.time_index.path)
        return segment

    @property
    def paths(self) -> tuple[Path, Path, Path, Path]:
        """Paths of the log, its two indexes and its append times."""
        index_paths = self.offset_index.path, self.time_index.path
        return self.log_path, *index_paths, self.append_times.path

    @property
    def paths_to_sync(self) -> list[Path]:
        """Files, other than the log, that are synced when the segment is closed."""
        _, *others = self.paths
        if self.append_times.sync_failed:
            del others[-1]
        mapped = self.time_map.checksum(self.size_bytes)
        return [*others, self.time_map.path] if mapped and mapped.size_bytes else others

    @property
    def file(self) -> File:
        """The open log file. Valid until another segment's file is requested."""
        return self._file or self.open_files.use(self._log_name, self.log_path, read_only=True)

    def hold_open(self) -> File:
        """Keep the log file open until `release`, because it has bytes that are not synced."""
        if self._file is None:
            open_files, files = self.seams.open_files, self.seams.files
            self._file = open_files.making_room(lambda: files.open(self.log_path), kept=1)
        return self._file

    def release(self, *, readers: bool = False) -> bool:
        """Close the handle that `hold_open` keeps. With `readers`, it may stay open for readers, if
        all is synced. Return whether there was such a handle."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:  # The files are removed now, or recovered at the next start.
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
        """Close the files beside the log: they are seldom needed."""
        for path in (*self.paths[1:], self.time_map.path):
            self.open_files.forget(str(path))

    def set_aside(self) -> list[Path]:
        """Rename the files to `.deleted` and return their new paths.

        Missing files are skipped. The log file is renamed last: until then the segment can be read,
        and the renaming can be repeated. Raises `OSError`.
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
                targets.append(target)  # left by an earlier attempt that failed half-way
        self.dropped = True
        self.release()
        return targets

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest message timestamp, -1 if no message has one."""
        return self.largest[0]

    @property
    def largest_possible_ms(self) -> int:
        """The largest message timestamp that may be in the segment. It is above
        `largest_timestamp_ms` if part of the segment cannot be read and the time index does not
        cover that part."""
        return TIMESTAMP_MAX if self.largest_unknown else self.largest[0]

    @property
    def age_from_ms(self) -> int:
        """The time that retention uses: that of the newest message, else that of the file."""
        return self.age_by(self.largest[0])

    def age_by(self, largest_ms: int) -> int:
        """Like `age_from_ms`, for some of the messages, with their largest timestamp."""
        if self.largest_unknown:
            return max(largest_ms, self.modified_ms)
        return largest_ms if largest_ms >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        """Time of the last write to the log file."""
        return self.seams.files.modified_ms(self.log_path)

    @property
    def first_timestamp_ms(self) -> int:
        """Timestamp of the first entry, -1 if it has none or the segment is empty."""
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
        """Message format of the last entry, -1 if there is none."""
        return self.magic_changes[-1][1] if self.magic_changes else -1

    def magic_span(self, position: int) -> tuple[int, int]:
        """Return the message format at `position`, and the position where another format begins."""
        number = bisect_right(self.magic_changes, (position, 1 << 62))
        end = self.size_bytes
        if number < len(self.magic_changes):
            end = self.magic_changes[number][0]
        return self.magic_changes[number - 1][1] if number else -1, end

    @property
    def readable_bytes(self) -> int:
        """End of the readable entries: the end of the log, or the position of its damage."""
        return self.size_bytes if self.damaged is None else self.damaged.position

    def set_created(self, created_ms: int) -> None:
        """Set the creation time, so that it also survives a restart. Raises `OSError`."""
        self.created_ms = created_ms
        self.keep_creation_time()

    def keep_creation_time(self) -> None:
        """Store the creation time as modification time of the time index file, while no message has
        a timestamp."""
        if not self.size_bytes or self.first_timestamp_ms < 0:
            self.seams.files.set_modified_ms(self.time_index.path, self.created_ms)

    def latest_time_ms(self, segment_ms: int, now_ms: int) -> int:
        """Return the largest timestamp that can be appended without a roll. It is below
        `NO_TIMESTAMP` if any message rolls the segment.

        Time is measured between messages: from the segment's first message to the newest one of a
        set. Only while the first message has no timestamp, it is measured by the clock from the
        segment's creation.
        """
        waits_ms, first_ms = segment_ms - self.jitter_ms, self.first_ms
        if first_ms is None:
            first_ms = self.first_timestamp_ms
        if first_ms >= 0:
            return min(first_ms + waits_ms, INT64_MAX)
        return INT64_MAX if now_ms - self.created_ms <= waits_ms else NO_TIMESTAMP - 1

    def locate(self, offset: int) -> int:
        """Return the position of the first entry whose offset is >= `offset`; the size if there is
        none.

        Raises as `locate_entry`.
        """
        return self.locate_entry(offset)[0]

    def locate_entry(self, offset: int, *, far: bool = True) -> tuple[int, bytes]:
        """Like `locate`, and also return the bytes read from that position on, if any were read.

        Reads entry headers from the last position on that the index or an earlier search knows.
        That can be far away (see `located`): without `far`, `FarAway` is raised then. Raises
        `StorageError` on bytes that are not entries, and if `offset` may be in the damaged part of
        the segment.
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
        """Do a bounded part of the search for `offset` where no index entry is near it. The next
        search begins further on. Return `True` once `locate` has only little left to read."""
        start, end = self._known_around(offset)
        if end - start <= _LOCATE_BYTES_MAX:
            return True
        data = self.file.pread(_LOCATE_BYTES_MAX, start)
        found, stopped = scan_offset(data, 0, len(data), offset)
        if found != NOT_FOUND or not stopped or start + stopped >= end:
            return True
        # If the bytes here are damaged, `locate` soon meets the damage and reports it.
        return not self._remember(data, start + stopped)

    def _known_around(self, offset: int) -> tuple[int, int]:
        """Return the position of the last known entry at or below `offset`, and that of the next
        known entry."""
        _, start, end = self.offset_index.around(offset)
        end = min(end, self.size_bytes if self.damaged is None else self.damaged.position)
        if self._known_positions is not None and self._known_positions_cuts == self.cuts:
            before, behind = self._known_positions.around(offset)
            start = max(start, before)
            if behind is not None:
                end = min(end, behind)
        return start, end

    def _remember(self, data: bytes, position: int) -> bool:
        """Remember the entry at `position`, which follows the entries whose headers are in `data`.

        No CRC covers its offset. The offset is trusted if it is above all of theirs.
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
        """Check the offset of the entry that was found to hold `offset`."""
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
        """Offset and position of the last entry before `position` that the index knows."""
        count = self.offset_index.count_before(position)
        return self.offset_index.entry(count - 1) if count else (self.base_offset, 0)

    def end_before(self, offset: int) -> int:
        """Return the offset after the last entry below `offset`. Raises `StorageError`."""
        start, end = self._known_around(offset - 1)[0], self.locate(offset)
        return max(self._scan(start, max(start, end)).next_offset, self.base_offset)

    def damage(self, position: int, file: File | None = None) -> CodedError:
        """Return the error for bytes that cannot be read, at or shortly before `position` in the
        log file.

        The segment remembers the damage: nothing behind it is read any more.
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
        """Remember damage: the segment is not read from there on any more."""
        if self.damaged is None or damage.position < self.damaged.position:
            self.damaged = damage
            if self.on_damage is not None:
                self.on_damage(self)

    def scan_tail(self, file: File | None = None) -> SegmentScan:
        """Read the entries from the last offset index entry on: next offset, last append time.

        A thread other than the loop's needs its own handle on the log file.
        """
        return self._scan(self._tail_position, self.size_bytes, file)

    def tail_append_time_ms(self) -> int:
        """The last append time in what `scan_tail` reads; -1 also if the bytes there are not
        entries."""
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
        """How many more positions of the log can be indexed."""
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
        """Return how many of `marks` fit: none after the one that fills an index."""
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
        """Write the closing time entry: the largest timestamp, and the next offset."""
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
        """Take appends again at the end of the messages, after `close_indexes` and a restart.

        Raises `OSError`.
        """
        self._undo_closing()
        self.find_end()

    def go_on(self) -> None:
        """Like `reopen`, and restore the indexes as if the segment had never been closed. Raises
        `OSError`."""
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
        """Keep only the frequently used parts of the indexes in memory: the segment is closed.

        Later index reads go through `OpenFiles`, which only one thread may use.
        """
        self.offset_index.release()
        self.time_index.release()

    def find_end(self) -> None:
        """Set `next_offset` to the offset after the last entry.

        If a truncation removed a whole wrapper message, the closing time entry names a later end.
        The next appends begin below that end, so the entry is removed.
        """
        self.next_offset = max(self.scan_tail().next_offset, self.base_offset)
        true_entries = self.time_index.count_below(self.next_offset + 1)
        if true_entries < len(self.time_index):
            self._indexes_behind = True
            self.time_index.keep(true_entries)
            self.keep_creation_time()
        self.append_times.end_at(self.next_offset)

    def write_ahead(self, data: Buffer) -> WriteAhead:
        """Prepare a write of `data` to the position of the next append, to be run by another
        thread. The next append of the same `data` uses the bytes. Raises `OSError`, `StorageError`.

        Large writes are slow because the kernel has to find memory for each page of the file.
        """
        self.drop_ahead()
        self.check_end(self.size_bytes)
        if self.seams.disk_room.keepers:
            self.seams.disk_room.check_append()
        file = self.seams.open_files.making_room(self.hold_open().duplicate, kept=1)
        self._ahead = WriteAhead(file, data, self.size_bytes)
        return self._ahead

    def has_ahead(self, data: Buffer) -> bool:
        """Whether `data` is being written ahead, so that its append uses those bytes."""
        return self._ahead is not None and self._ahead.data is data

    def drop_ahead(self) -> None:
        """Remove what `write_ahead` wrote, unless an append has used it. Waits for the writing
        thread.

        Raises `StorageError` if the file cannot be truncated.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            with suppress(OSError, MemoryError):
                ahead.end()
            self._cut_back(self.size_bytes, *self._index_entries)

    def append(self, data: Buffer, found: Walk, *, append_time_ms: int = NO_TIMESTAMP) -> None:
        """Append `data`, complete entries with final offsets. `found` is the walk over them.

        `append_time_ms` is the time of the append, -1 if it is not to be stored. All or nothing:
        after an `OSError` the files are as before. If truncating them fails too, `StorageError` is
        raised.
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
        """Like `append`, but `data` is written by `commit`, which has to follow at once.

        Sets staged one after the other become one write to each file. They must have the same
        append time. `first_offsets` are those of the sets in `data`, if there is more than one.
        `times` are the message timestamps, as far as known, or their spans. `append_spans` are
        append times from another log, for everything that is staged together. Raises `OSError`;
        nothing is staged then.
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
        """Write what is staged, all or nothing, like `append`. Also raises `StorageError` if the
        file is shorter than before: a write behind its end would leave a hole."""
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
            # Copying small sets costs less than a vectored write; for sets of 16 KiB it costs about
            # the same.
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
        """Write `data`, unless `ahead` wrote it already. Raises `OSError`, `MemoryError`."""
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
        """Raise the damage of a log file that is shorter than `size_bytes`, the bytes that were
        written."""
        file = self._file
        if file is not None:
            ends = file.size()
            if ends < size_bytes:
                raise self.damage(ends, file)

    def _take_back(self, staged: "_Staged") -> None:
        """Restore the state before the first set of `staged`, in memory and on disk."""
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
            if file.size() >= position:  # A file that was truncated by somebody else would grow.
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
        """Remove the entries that reach `offset` or beyond. The segment then ends at `offset`.

        A wrapper message that contains `offset` is removed as a whole. Raises `OSError`,
        `StorageError`.
        """
        self.drop_ahead()
        position = self.locate(offset)
        self.cuts += 1
        self.time_map.discard()
        self.tail_stamp_ms = None
        if position < self.size_bytes:
            file = self.hold_open()
            file.truncate(position)
            file.sync()  # Else removed bytes could return below a segment begun at `offset`.
        self.size_bytes = position
        self.next_offset = offset
        if self.damaged is not None:
            self.damaged = None  # It was behind `offset`, which could be located.
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
        self.append_times.sync()  # The old checksum may be on disk and match bytes that return.

    def _find_largest(self, end: int) -> None:
        """Find the largest timestamp after a truncation at `end`, from the last time entry left and
        the messages behind it. Restore the time entries up to the end of the offset index."""
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
    """Random time in milliseconds by which the segment is rolled before `segment.ms`, so that not
    all segments roll at once."""
    bound_ms = min(settings.segment_jitter_ms, settings.segment_ms)
    return seams.random.randrange(max(bound_ms, 1)) if settings.segment_jitter_ms > 0 else 0
