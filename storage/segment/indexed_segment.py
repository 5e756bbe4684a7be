"""One segment's indexes: kept true to its log, closed and opened again, and made anew from it."""

from bisect import bisect_left, bisect_right
from pathlib import Path
from zlib import crc32

from ...config.topic import TopicSettings
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.marks import Marks
from ..entries.segment_scan import Progress, SegmentScan, scan_log_file
from ..index.index_checksums import SegmentChecksums
from ..names import MAX_OFFSET, RELATIVE_OFFSET_MAX
from ..seams import Seams
from .readable_segment import ReadableSegment


class IndexedSegment(ReadableSegment):
    """A segment with what its indexes go by."""

    __slots__ = (
        "_indexes_behind",
        "_interval_bytes",
        "_open_form",
        "created_ms",
        "indexed",
        "since_bytes",
        "tail_stamp_ms",
    )

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
        self._interval_bytes = settings.index_interval_bytes
        self._indexes_behind = True
        """Whether the files of the indexes may differ from what is in memory."""
        self._open_form: tuple[int, int] | None = None
        """What the time index was before it was closed, where that changed it."""

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

    def _add_marks(self, marks: Marks) -> None:
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
            self._keep_creation_time()

    def _keep_creation_time(self) -> None:
        """The time index file's own time tells the creation time while no message does."""
        if not self.size_bytes or self.first_timestamp_ms < 0:
            self._seams.files.set_modified_ms(self.time_index.path, self.created_ms)

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
        """Keep no more of the indexes in memory than is often needed: the segment is closed.

        Whoever reads them from then on goes through `OpenFiles`, which is for one thread.
        """
        self.offset_index.let_go()
        self.time_index.let_go()

    def close_side_files(self) -> None:
        """Have the files beside the log not open: they are seldom needed."""
        for path in (*self.paths[1:], self.time_map.path):
            self.open_files.forget(str(path))

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
        """Read the whole log, as `scan_log_file` does; changes nothing. Raises `OSError`.

        Without `limit_offset` any offset may come that has a next one. Messages that are too far
        from the base offset for an index entry are served without one, as Kafka does.
        """
        if limit_offset is None:
            limit_offset = MAX_OFFSET
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
        self._first_ms = scan.first_timestamp_ms
        self.tail_stamp_ms = scan.last_append_time_ms
        if not scan.later_format:
            self.offset_index.replace(self._seams.files)
            self.time_index.replace(self._seams.files)
            self._keep_creation_time()
        self.largest = (scan.largest_ms, scan.largest_offset)
        self.magic_changes = scan.magic_changes
        self.since_bytes = scan.since_bytes
        self.indexed = True

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
        self._write_time_entries(entries)
