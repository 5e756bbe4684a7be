"""One segment: a file of messages (`.log`) with its indexes and its append times.

A segment is *active* while it takes appends and *closed* after the next one began. It knows
positions and sizes, keeps its indexes true to its log, and knows nothing of requests or rolls.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from zlib import crc32

from ...config.topic import TopicSettings
from ...protocol.errors import StorageError
from ...protocol.records.kernel import Walk
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import NO_TIMESTAMP
from ...protocol.records.marks import NO_MARKS, Marks
from ..damage import unreadable_format
from ..files import Buffer
from ..index.append_times import Span
from ..index.index_checksums import SegmentChecksums
from ..index.index_file import RELATIVE_OFFSET_MAX
from ..index.time_map import SetTimes
from ..names import TRANSACTION_INDEX
from ..read.readable_segment import ReadableSegment
from ..seams import Seams
from .segment_scan import Progress, SegmentScan, scan_log_file

DELETED_SUFFIX = ".deleted"


class _Staged:
    """Sets that are not written yet, and what the segment was before the first of them."""

    __slots__ = (
        "append_spans",
        "append_time_ms",
        "broken",
        "entries",
        "first_offsets",
        "first_timestamp_ms",
        "largest",
        "magic_changes",
        "next_offset",
        "noted",
        "sets",
        "since_bytes",
        "size_bytes",
        "tail_stamp_ms",
    )

    def __init__(self, segment: "Segment", append_time_ms: int) -> None:
        self.sets: list[Buffer] = []
        self.first_offsets: list[int] = []
        self.noted: list[tuple[int, int, int, SetTimes | None]] = []
        """What the time map gets."""
        self.append_time_ms = append_time_ms
        self.append_spans: Sequence[Span] | None = None
        """Append times that were told, instead of `append_time_ms`."""
        self.broken = False
        """Whether one of them was taken by half, because there was no memory."""
        self.size_bytes = segment.size_bytes
        self.next_offset = segment.next_offset
        self.since_bytes = segment.since_bytes
        self.largest = segment.largest
        self.tail_stamp_ms = segment.tail_stamp_ms
        self.first_timestamp_ms = segment._first_timestamp_ms
        self.magic_changes = len(segment.magic_changes)
        self.entries: tuple[int, int] | None = None
        """How many the indexes had, if some were added."""


class Segment(ReadableSegment):
    """A segment whose files can be written."""

    def __init__(
        self, directory: Path, base_offset: int, settings: TopicSettings, seams: Seams
    ) -> None:
        super().__init__(directory, base_offset, settings, seams)
        self.created_ms = seams.clock.now_ms()
        self.since_bytes = 0
        """Bytes in the log since the last index entry's place."""
        self.indexed = True
        """Whether the indexes are in memory and fit the log."""
        self.tail_stamp_ms: int | None = None
        """Append time of the last message, -1 when no broker stamped it; `None` when it was not
        looked at, or has not been the last since."""
        self.jitter_ms = 0
        if settings.segment_jitter_ms > 0:
            bound = min(settings.segment_jitter_ms, settings.segment_ms)
            self.jitter_ms = seams.random.randrange(max(bound, 1))
        self._interval_bytes = settings.index_interval_bytes
        self._staged: _Staged | None = None
        self._indexes_behind = True
        """Whether the files of the indexes may differ from what is in memory."""
        self._open_form: tuple[int, int] | None = None
        """What the time index was before it was closed, where that changed it."""

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
            segment._keep_creation_time()
            segment.time_map.begin()
        except (OSError, MemoryError):
            segment._unmake()
            raise
        return segment

    def _unmake(self) -> None:
        try:
            for path in self.paths:
                if self._seams.files.exists(path):
                    self._seams.files.unlink(path)
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
    def paths_to_sync(self) -> list[Path]:
        """The files that are synced when the segment is closed, beside the log."""
        _, *others = self.paths
        if self.append_times.sync_failed:
            del others[-1]
        mapped = self.time_map.checksum(self.size_bytes)
        return [*others, self.time_map.path] if mapped and mapped.size_bytes else others

    @property
    def index_room(self) -> int:
        """How many places in the log can still be indexed."""
        return min(self.offset_index.room, self.time_index.room)

    def fits(self, last_offset: int) -> bool:
        """Whether index entries can hold `last_offset` and the offset after it."""
        return last_offset + 1 - self.base_offset <= RELATIVE_OFFSET_MAX

    def append(self, data: Buffer, found: Walk, *, append_time_ms: int = NO_TIMESTAMP) -> None:
        """Append `data`, whole entries with final offsets that `found` is the walk over.

        `append_time_ms` is when that is; -1 where it is not to be told. All or nothing: after an
        `OSError` the files are as they were, unless cutting them back fails too, which raises
        `StorageError`.
        """
        self.stage(data, found, append_time_ms=append_time_ms)
        self.commit()

    def stage(
        self,
        data: Buffer,
        found: Walk,
        *,
        append_time_ms: int = NO_TIMESTAMP,
        first_offsets: Sequence[int] = (),
        times: SetTimes | None = None,
        append_spans: Sequence[Span] | None = None,
    ) -> None:
        """As `append`, but the files get `data` with `commit`, which has to follow at once.

        Sets that are staged one behind the other become one write to each file. They must have
        the same append time. `first_offsets` are of the sets in `data`, if it is more than one, and
        `times` those of its messages, as far as they are known. `append_spans` are append times
        that another log told, of all that is staged together. Raises `OSError`, and then nothing
        is staged.
        """
        staged = self._staged
        if staged is None:
            if self._file is None:
                self.hold_open()
            staged = self._staged = _Staged(self, append_time_ms)
        assert staged.append_time_ms == append_time_ms
        if staged.broken:
            raise MemoryError
        staged.broken = True
        position = self.size_bytes
        staged.sets.append(data)
        staged.first_offsets += first_offsets or (self.next_offset,)
        if found.marks is not NO_MARKS:
            assert found.marks.positions[0] >= position
            if staged.entries is None:
                staged.entries = self._index_entries
            self._add_marks(found.marks)
        if not position:
            self._first_timestamp_ms = found.first_timestamp_ms
        if found.max_timestamp_ms > self.largest[0]:
            self.largest = (found.max_timestamp_ms, found.max_offset)
        for at, magic in found.magic_changes:
            self.magic_changes.append((position + at, magic))
        self.since_bytes = found.since_bytes
        self.tail_stamp_ms = None
        self.size_bytes = position + len(data)
        self.next_offset = found.last_offset + 1
        staged.append_spans = append_spans
        staged.noted.append((position, len(data), self.next_offset, times))
        staged.broken = False

    def commit(self) -> None:
        """Write what is staged, all or nothing, as `append` says."""
        staged = self._staged
        if staged is None:
            return
        self._staged = None
        try:
            if staged.broken:
                raise MemoryError
            disk_room = self._seams.disk_room
            if disk_room.keepers:
                disk_room.check_append()
            # A copy of small sets is cheaper than a vectored write of them, and for those of
            # 16 KiB hardly dearer.
            data = staged.sets[0] if len(staged.sets) == 1 else b"".join(staged.sets)
            (self._file or self.hold_open()).pwrite(data, staged.size_bytes)
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
                for noted in staged.noted:
                    self.time_map.add(*noted)
        except (OSError, MemoryError):
            self._take_back(staged)
            raise

    def _take_back(self, staged: "_Staged") -> None:
        """Be as before the first set of `staged`, in memory and on disk."""
        self.size_bytes, self.next_offset = staged.size_bytes, staged.next_offset
        self.since_bytes, self.largest = staged.since_bytes, staged.largest
        self.tail_stamp_ms = staged.tail_stamp_ms
        self._first_timestamp_ms = staged.first_timestamp_ms
        del self.magic_changes[staged.magic_changes :]
        self.time_map.take_back(staged.size_bytes)
        self._cut_back(staged.size_bytes, *(staged.entries or self._index_entries))

    @property
    def _index_entries(self) -> tuple[int, int]:
        return len(self.offset_index), len(self.time_index)

    def _add_marks(self, marks: Marks) -> None:
        self._indexes_behind = True
        if len(marks) > self.index_room:
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
            self._keep_creation_time()

    def _keep_creation_time(self) -> None:
        """The time index file's own time tells the creation time while no message does."""
        if not self.size_bytes or self.first_timestamp_ms < 0:
            self._seams.files.set_modified_ms(self.time_index.path, self.created_ms)

    def _cut_back(self, position: int, offset_entries: int, time_entries: int) -> None:
        self._indexes_behind = True
        try:
            self.hold_open().truncate(position)
            self.offset_index.keep(offset_entries)
            self.time_index.keep(time_entries)
            self._keep_creation_time()
            self.append_times.take_back()
        except OSError as error:
            raise StorageError(
                f"{self.log_path}: a failed write could not be taken back ({error}); "
                "appends to this partition are refused until the broker has been restarted"
            ) from error

    def close_indexes(self) -> None:
        """Write the closing time entry: the largest timestamp and the next offset."""
        changed = self._finish_time_index(self.largest[0], self.next_offset)
        self._write_time_entries(changed)
        self.offset_index.write_from(len(self.offset_index))
        self.time_map.end(self.size_bytes)

    def _finish_time_index(self, timestamp_ms: int, next_offset: int) -> int:
        form, entries = self.time_index.open_form, len(self.time_index)
        changed = self.time_index.finish(timestamp_ms, next_offset)
        if changed < len(self.time_index) or entries != len(self.time_index):
            self._open_form = form
        return changed

    def reopen(self) -> None:
        """Take appends again, after `close_indexes` and a restart, from the end of its messages on.

        Raises `OSError`.
        """
        self._undo_closing()
        self.find_end()

    def go_on(self) -> None:
        """As `reopen`, with indexes as if it had never been closed. Raises `OSError`."""
        known = self._open_form is not None
        self.reopen()
        entries = len(self.time_index)
        if not known and entries and self.time_index.entry(entries - 1)[1] >= self.next_offset:
            self._indexes_behind = True
            self.time_index.keep(entries - 1)
            self._find_largest(self.size_bytes)

    def _undo_closing(self) -> None:
        if self._open_form is not None:
            self.time_index.reopen(*self._open_form)
            self._open_form = None
            self._indexes_behind = True

    def set_created(self, created_ms: int) -> None:
        """Have been begun then, also after a restart. Raises `OSError`."""
        self.created_ms = created_ms
        self._keep_creation_time()

    def let_go_indexes(self) -> None:
        """Keep no more of the indexes in memory than is often needed: the segment is closed."""
        self.offset_index.let_go()
        self.time_index.let_go()

    def checksums(self, *, open_form: bool = False) -> SegmentChecksums:
        """The checksums of the indexes, and of the append times, as they are now; `open_form` adds
        what `reopen` needs."""
        return SegmentChecksums(
            self.size_bytes,
            self.offset_index.checksum(),
            self.time_index.checksum(),
            tuple(self.magic_changes),
            self.append_times.checksums(),
            self.time_map.checksum(self.size_bytes),
            self._open_form if open_form else None,
        )

    def load_indexes(self, checksums: SegmentChecksums | None) -> bool:
        """Take the indexes from their files if they fit `checksums`; say whether they did.

        The append times are taken, or not, by themselves.
        """
        if checksums is not None and checksums.log_bytes != self.size_bytes:
            checksums = None
        if not self.append_times.settled:
            self.append_times.adopt(None if checksums is None else checksums.append_times)
        mapped = None if checksums is None else checksums.time_map
        self.time_map.adopt(mapped, self.size_bytes)
        if checksums is None:
            return False
        files = self._seams.files
        try:
            offset_data = files.read_bytes(self.offset_index.path)
            time_data = files.read_bytes(self.time_index.path)
        except OSError:
            return False
        read = (len(offset_data), crc32(offset_data)), (len(time_data), crc32(time_data))
        if read != (checksums.offset_index, checksums.time_index):
            return False
        self.offset_index.load(offset_data)
        self.time_index.load(time_data)
        self.magic_changes = list(checksums.magic_changes)
        self._open_form = checksums.open_form
        self.largest = (self.time_index.last_timestamp_ms, -1)
        offset_entries = len(self.offset_index)
        last = self.offset_index.entry(offset_entries - 1)[1] if offset_entries else 0
        self.since_bytes = self.size_bytes - last
        self.indexed = True
        return True

    def scan_whole(
        self,
        *,
        gaps: bool,
        check_crc: bool = True,
        limit_offset: int | None = None,
        progress: Progress | None = None,
    ) -> SegmentScan:
        """Read the whole log, as `scan_log_file` does; changes nothing. Raises `OSError`."""
        if limit_offset is None:
            limit_offset = self.base_offset + RELATIVE_OFFSET_MAX
        file = self._seams.files.open(self.log_path)
        try:
            return scan_log_file(
                file,
                0,
                self.size_bytes,
                next_offset=self.base_offset,
                interval_bytes=self._interval_bytes,
                gaps=gaps,
                check_crc=check_crc,
                limit_offset=limit_offset,
                progress=progress,
            )
        finally:
            file.close()

    def take_scan(self, scan: SegmentScan, *, closed: bool) -> None:
        """Make both indexes fit what `scan_whole` found, in memory and on disk.

        `closed` adds the closing time entry. Messages of a later format behind it leave the files
        as they are: the version that reads them will want them. Raises `OSError`.
        """
        self.offset_index.load(b"")
        self.time_index.load(b"")
        if scan.later_format:
            self.time_map.forget()
        else:
            self.time_map.discard()
        self._add_marks(scan.marks)
        self._open_form = None
        if closed:
            # Behind a far jump the next segment's base offset is beyond what an entry can hold.
            whole = scan.problem is Problem.NONE and self.fits(self.next_offset - 1)
            end = self.next_offset if whole else scan.next_offset
            self._finish_time_index(scan.largest_ms, end)
        self._first_timestamp_ms = scan.first_timestamp_ms
        self.tail_stamp_ms = scan.last_append_time_ms
        if not scan.later_format:
            self.offset_index.replace(self._seams.files)
            self.time_index.replace(self._seams.files)
            self._keep_creation_time()
        self.largest = (scan.largest_ms, scan.largest_offset)
        self.magic_changes = scan.magic_changes
        self.since_bytes = scan.since_bytes
        self.indexed = True
        if closed:
            self.let_go_indexes()

    def rebuild_indexes(self, *, gaps: bool, check_crc: bool, closed: bool) -> SegmentScan:
        """Read the whole log and make both indexes fit it, in memory and on disk.

        Nothing of the log is changed; the scan tells how far it is good. Raises `OSError`, and
        `UnsupportedForMessageFormat`, with the indexes as they were, where messages of a later
        format begin.
        """
        scan = self.scan_whole(gaps=gaps, check_crc=check_crc)
        if scan.later_format:
            raise unreadable_format(self.log_path, scan.good_bytes)
        self.take_scan(scan, closed=closed)
        return scan

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
            self._keep_creation_time()
        self.append_times.end_at(self.next_offset)

    def truncate(self, offset: int) -> None:
        """Remove the entries that reach `offset` or beyond; the segment ends at `offset`.

        A wrapper that holds `offset` goes as a whole. Raises `OSError`, `StorageError`.
        """
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
        entries_kept = min(
            self.offset_index.count_below(offset), self.offset_index.count_before(position)
        )
        self._undo_closing()
        self._indexes_behind = True
        self.offset_index.keep(entries_kept)
        self.time_index.keep(self.time_index.count_below(offset))
        self.magic_changes = [change for change in self.magic_changes if change[0] < position]
        if not position:
            self.created_ms = self._seams.clock.now_ms()
            self._first_timestamp_ms = None
            self.time_map.begin()
        self._keep_creation_time()
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
            interval_bytes=self._interval_bytes,
            since_bytes=start - marked_position,
            largest_ms=largest_ms,
        )
        self.largest = (scan.largest_ms, scan.largest_offset)
        last_marked = self.offset_index.entry(offset_entries - 1)[0] if offset_entries else -1
        count = bisect_right(scan.marks.offsets, last_marked - self.base_offset)
        marks = scan.marks.first(count)
        fitting = bisect_right(marks.timestamps_ms, largest_ms) + max(self.time_index.room, 0)
        self.time_index.add_all(marks.timestamps_ms[:fitting], marks.next_offsets[:fitting])

    def set_aside(self) -> list[Path]:
        """Rename the files to `.deleted` and return their new paths.

        A file that is missing is passed over. The log goes last: until then the segment can be
        read, and the renaming tried again. Raises `OSError`.
        """
        files = self._seams.files
        targets = []
        aborted = self.log_path.with_suffix(f".{TRANSACTION_INDEX}")
        for path in (aborted, self.time_map.path, *reversed(self.paths)):
            self._seams.open_files.forget(str(path))
            target = path.with_name(path.name + DELETED_SUFFIX)
            if files.exists(path):
                files.rename(path, target)
                targets.append(target)
            elif files.exists(target):
                targets.append(target)  # of an earlier try that failed half way
        self.dropped = True
        self.release()
        return targets
