"""One segment: a file of messages (`.log`) with its offset index and its time index.

A segment is *active* while it takes appends and *closed* after the next one began. It knows
positions and sizes, keeps its indexes true to its log, and knows nothing of requests or rolls.
"""

from bisect import bisect_right
from pathlib import Path
from zlib import crc32

from ..config.topic import TopicSettings
from ..protocol.errors import StorageError, UnsupportedForMessageFormat
from ..protocol.records.kernel import Problem, Walk
from ..protocol.records.layout import ENTRY_OVERHEAD, MESSAGE_OVERHEAD, NO_TIMESTAMP
from ..protocol.records.scans import NOT_FOUND, scan_offset
from .files import Buffer, File
from .index_checksums import Seal
from .index_file import RELATIVE_OFFSET_MAX
from .offset_index import OffsetIndex
from .seams import Seams
from .segment_scan import SegmentScan, later_format_at_end, scan_log_file
from .time_index import TimeIndex

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
DELETED_SUFFIX = ".deleted"
_LOCATE_BYTES = 8 << 10
_LOCATE_BYTES_MAX = 1 << 20


class Segment:
    """Messages from `base_offset` up to, not including, `next_offset`."""

    def __init__(
        self, directory: Path, base_offset: int, settings: TopicSettings, seams: Seams
    ) -> None:
        stem = f"{base_offset:020d}"
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.log_path = directory / (stem + LOG_SUFFIX)
        index_bytes = settings.segment_index_bytes
        self.offset_index = OffsetIndex(
            directory / (stem + OFFSET_INDEX_SUFFIX), base_offset, index_bytes, seams.open_files
        )
        self.time_index = TimeIndex(
            directory / (stem + TIME_INDEX_SUFFIX), base_offset, index_bytes, seams.open_files
        )
        self.largest = (NO_TIMESTAMP, -1)
        """Largest timestamp and the offset of the first message that has it (-1: not known)."""
        self.created_ms = seams.clock.now_ms()
        self.since_bytes = 0
        """Bytes in the log since the last index entry's place."""
        self.magic_changes: list[tuple[int, int]] = []
        self.indexed = True
        """Whether the indexes are in memory and fit the log."""
        self.dropped = False
        """Whether the files are out of the folder: whoever still reads it finds nothing."""
        self.cuts = 0
        """How often the end was cut off: a position found before that means nothing after."""
        self.jitter_ms = 0
        if settings.segment_jitter_ms > 0:
            bound = min(settings.segment_jitter_ms, settings.segment_ms)
            self.jitter_ms = seams.random.randrange(max(bound, 1))
        self._interval_bytes = settings.index_interval_bytes
        self._first_timestamp_ms: int | None = None
        self._seams = seams
        self._file: File | None = None

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, settings: TopicSettings, seams: Seams
    ) -> "Segment":
        """A new, empty segment with its three files.

        Raises `OSError`, and `StorageError` when some of the files were made and stay: if the
        log went on without them, they would hide what comes behind their offset.
        """
        segment = cls(directory, base_offset, settings, seams)
        try:
            for path in segment.paths:
                file = seams.files.open(path, create=True)
                try:
                    file.truncate(0)
                finally:
                    file.close()
            segment._keep_creation_time()
        except OSError:
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
    def paths(self) -> tuple[Path, Path, Path]:
        return self.log_path, self.offset_index.path, self.time_index.path

    @property
    def file(self) -> File:
        """The log file, open; valid until another segment's file is asked for."""
        return self._file or self._seams.open_files.use(self.log_path)

    def hold_open(self) -> File:
        """Keep the log file open until `release`: it has bytes that are not synced."""
        if self._file is None:
            self._file = self._seams.files.open(self.log_path)
        return self._file

    def release(self) -> bool:
        """Give up a handle kept by `hold_open`; say whether there was one."""
        if self._file is None:
            return False
        self._file.close()
        self._file = None
        return True

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest message time, -1 when no message has one."""
        return self.largest[0]

    @property
    def age_from_ms(self) -> int:
        """The time that retention goes by: of the newest message, else of the file."""
        return self.largest[0] if self.largest[0] >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        """When the log file was last written."""
        return self._seams.files.modified_ms(self.log_path)

    @property
    def first_timestamp_ms(self) -> int:
        """Timestamp of the first entry, -1 when it has none or the segment is empty."""
        if self._first_timestamp_ms is None:
            self._first_timestamp_ms = self._read_first_timestamp()
        return self._first_timestamp_ms

    def _read_first_timestamp(self) -> int:
        head = self.file.pread(ENTRY_OVERHEAD + MESSAGE_OVERHEAD[1], 0)
        if len(head) < ENTRY_OVERHEAD + MESSAGE_OVERHEAD[1] or head[16] != 1:
            return NO_TIMESTAMP
        return int.from_bytes(head[18:26], "big", signed=True)

    @property
    def last_magic(self) -> int:
        """Format of the last entry, -1 when there is none."""
        return self.magic_changes[-1][1] if self.magic_changes else -1

    @property
    def indexes_full(self) -> bool:
        return self.offset_index.full or self.time_index.full

    def fits(self, last_offset: int) -> bool:
        """Whether index entries can hold `last_offset` and the offset after it."""
        return last_offset + 1 - self.base_offset <= RELATIVE_OFFSET_MAX

    def append(self, data: Buffer, found: Walk) -> None:
        """Append `data`, whole entries with final offsets that `found` is the walk over.

        All or nothing: after an `OSError` the files are as they were, unless cutting them back
        fails too, which raises `StorageError`.
        """
        position = self.size_bytes
        file = self.hold_open()
        offset_entries, time_entries = len(self.offset_index), len(self.time_index)
        try:
            file.pwrite(data, position)
            self._add_marks(found.marks, position)
            self.offset_index.write_from(offset_entries)
            self._write_time_entries(time_entries)
        except OSError:
            self._cut_back(position, offset_entries, time_entries)
            raise
        if not position:
            self._first_timestamp_ms = found.first_timestamp_ms
        if found.max_timestamp_ms > self.largest[0]:
            self.largest = (found.max_timestamp_ms, found.max_offset)
        for at, magic in found.magic_changes:
            self.magic_changes.append((position + at, magic))
        self.since_bytes = found.since_bytes
        self.size_bytes = position + len(data)
        self.next_offset = found.last_offset + 1

    def _add_marks(self, marks: list[tuple[int, int, int, int]], position: int) -> None:
        for at, offset, following, largest_ms in marks:
            if self.indexes_full:
                return
            self.offset_index.add(offset, position + at)
            self.time_index.add(largest_ms, following)

    def _write_time_entries(self, first: int) -> None:
        if self.time_index.write_from(first):
            self._keep_creation_time()

    def _keep_creation_time(self) -> None:
        """The time index file's own time tells the creation time while no message does."""
        if not self.size_bytes or self.first_timestamp_ms < 0:
            self._seams.files.set_modified_ms(self.time_index.path, self.created_ms)

    def _cut_back(self, position: int, offset_entries: int, time_entries: int) -> None:
        try:
            self.hold_open().truncate(position)
            self.offset_index.keep(offset_entries)
            self.time_index.keep(time_entries)
            self._keep_creation_time()
        except OSError as error:
            raise StorageError(
                f"{self.log_path}: a failed write could not be taken back ({error}); "
                "appends to this partition are refused until the broker has been restarted"
            ) from error

    def close_indexes(self) -> None:
        """Write the closing time entry: the largest timestamp and the next offset."""
        changed = self.time_index.finish(self.largest[0], self.next_offset)
        self._write_time_entries(changed)

    def seal(self) -> Seal:
        """The checksums of the indexes as they are now."""
        return Seal(
            self.offset_index.checksum(), self.time_index.checksum(), tuple(self.magic_changes)
        )

    def load_indexes(self, seal: Seal | None) -> bool:
        """Take the indexes from their files if they fit `seal`; say whether they did."""
        if seal is None:
            return False
        files = self._seams.files
        try:
            offset_data = files.read_bytes(self.offset_index.path)
            time_data = files.read_bytes(self.time_index.path)
        except OSError:
            return False
        checksums = (len(offset_data), crc32(offset_data)), (len(time_data), crc32(time_data))
        if checksums != (seal.offset_index, seal.time_index):
            return False
        self.offset_index.load(offset_data)
        self.time_index.load(time_data)
        self.magic_changes = list(seal.magic_changes)
        self.largest = (self.time_index.last_timestamp_ms, -1)
        offset_entries = len(self.offset_index)
        last = self.offset_index.entry(offset_entries - 1)[1] if offset_entries else 0
        self.since_bytes = self.size_bytes - last
        self.indexed = True
        return True

    def rebuild_indexes(self, *, gaps: bool, check_crc: bool, closed: bool) -> SegmentScan:
        """Read the whole log and make both indexes fit it, in memory and on disk.

        `closed` adds the closing time entry. Nothing of the log is changed; the scan tells how
        far it is good. Raises `OSError`, and `UnsupportedForMessageFormat`, with the indexes as
        they were, where messages of a later format begin.
        """
        files = self._seams.files
        file = files.open(self.log_path)
        try:
            scan = scan_log_file(
                file,
                0,
                self.size_bytes,
                next_offset=self.base_offset,
                interval_bytes=self._interval_bytes,
                gaps=gaps,
                check_crc=check_crc,
            )
            if later_format_at_end(file, scan, self.size_bytes):
                raise UnsupportedForMessageFormat(
                    f"{self.log_path}: at byte {scan.good_bytes} there is a record batch of format "
                    "v2 (magic 2), which this version cannot read; the partition is left as it is"
                )
        finally:
            file.close()
        self.offset_index.load(b"")
        self.time_index.load(b"")
        self._add_marks(scan.marks, 0)
        if closed:
            # Behind a far jump the next segment's base offset is beyond what an entry can hold.
            whole = scan.problem is Problem.NONE and self.fits(self.next_offset - 1)
            self.time_index.finish(scan.largest_ms, self.next_offset if whole else scan.next_offset)
        self._first_timestamp_ms = scan.first_timestamp_ms
        for path, data in (
            (self.offset_index.path, self.offset_index.encoded()),
            (self.time_index.path, self.time_index.encoded()),
        ):
            self._replace_content(path, data)
        self._keep_creation_time()
        self.largest = (scan.largest_ms, scan.largest_offset)
        self.magic_changes = scan.magic_changes
        self.since_bytes = scan.since_bytes
        self.indexed = True
        return scan

    def _replace_content(self, path: Path, data: bytes) -> None:
        files = self._seams.files
        self._seams.open_files.forget(path)
        if files.exists(path) and files.size(path) == len(data) and files.read_bytes(path) == data:
            return
        file = files.open(path, create=True)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
        finally:
            file.close()

    def locate(self, offset: int) -> int:
        """Position of the first entry whose offset is >= `offset`; the size when there is none.

        Reads at most one index interval, entry heads only. Raises `StorageError` on bytes that
        are no entries.
        """
        position = self.offset_index.lookup(offset)
        wanted = _LOCATE_BYTES
        while position < self.size_bytes:
            data = self.file.pread(min(wanted, self.size_bytes - position), position)
            found, stopped = scan_offset(data, 0, len(data), offset)
            if found >= 0:
                return position + found
            if found != NOT_FOUND or not stopped:
                raise self.damage(position + stopped)
            position += stopped
            wanted = min(wanted * 2, _LOCATE_BYTES_MAX)
        if position > self.size_bytes:
            raise self.damage(position)
        return position

    def damage(self, position: int) -> StorageError:
        """The error for bytes that cannot be read, at `position` of the log file."""
        return StorageError(
            f"{self.log_path}: damaged at byte {position}; the rest of this segment cannot be "
            "read: stop the broker and run 'horolog repair' on its data directory"
        )

    def magic_span(self, position: int) -> tuple[int, int]:
        """Message format at `position` and the position where another one begins."""
        number = bisect_right(self.magic_changes, (position, 1 << 62))
        end = self.size_bytes
        if number < len(self.magic_changes):
            end = self.magic_changes[number][0]
        return self.magic_changes[number - 1][1] if number else -1, end

    def scan_tail(self) -> SegmentScan:
        """Read the entries from the last offset index entry on: next offset, last stamp."""
        count = len(self.offset_index)
        offset, start = self.offset_index.entry(count - 1) if count else (self.base_offset, 0)
        return self._scan_from(start, offset)

    def _scan_from(self, start: int, offset: int, end: int | None = None) -> SegmentScan:
        end = self.size_bytes if end is None else end
        scan = scan_log_file(self.file, start, end, next_offset=offset, gaps=True, check_crc=False)
        if scan.problem is not Problem.NONE:
            raise self.damage(scan.good_bytes)
        return scan

    def find_end(self) -> None:
        """Take the offset after the last entry as `next_offset`.

        After a cut that took a whole wrapper the closing time entry speaks of a later end; what
        is appended from here on begins below that, so the entry goes.
        """
        self.next_offset = max(self.scan_tail().next_offset, self.base_offset)
        true_entries = self.time_index.count_below(self.next_offset + 1)
        if true_entries < len(self.time_index):
            self.time_index.keep(true_entries)
            self._keep_creation_time()

    def largest_before(self, offset: int) -> tuple[int, int]:
        """Largest timestamp below `offset`, and where it is if that was read (else -1).

        Goes by the last time entry that is true of that part and reads the entries after it.
        """
        largest_ms, known = self.time_index.known_before(offset)
        scan = self._scan_from(self.locate(known), self.base_offset, self.locate(offset))
        if scan.largest_ms > largest_ms:
            return scan.largest_ms, scan.largest_offset
        return largest_ms, -1

    def truncate(self, offset: int) -> None:
        """Remove the entries that reach `offset` or beyond; the segment ends at `offset`.

        A wrapper that holds `offset` goes as a whole. Raises `OSError`, `StorageError`.
        """
        position = self.locate(offset)
        self.cuts += 1
        if position < self.size_bytes:
            self.hold_open().truncate(position)
        self.size_bytes = position
        self.next_offset = offset
        entries_kept = min(
            self.offset_index.count_below(offset), self.offset_index.count_before(position)
        )
        self.offset_index.keep(entries_kept)
        self.time_index.keep(self.time_index.count_below(offset))
        self.magic_changes = [change for change in self.magic_changes if change[0] < position]
        if not position:
            self.created_ms = self._seams.clock.now_ms()
            self._first_timestamp_ms = None
        self._keep_creation_time()
        kept = len(self.offset_index)
        self.since_bytes = position - (self.offset_index.entry(kept - 1)[1] if kept else 0)
        self.largest = self.largest_before(offset)

    def set_aside(self) -> list[Path]:
        """Rename the three files to `.deleted` and return their new paths.

        A file that is missing is passed over. The log goes last: until then the segment can be
        read, and the renaming tried again. Raises `OSError`.
        """
        files = self._seams.files
        targets = []
        for path in reversed(self.paths):
            self._seams.open_files.forget(path)
            target = path.with_name(path.name + DELETED_SUFFIX)
            if files.exists(path):
                files.rename(path, target)
                targets.append(target)
            elif files.exists(target):
                targets.append(target)  # of an earlier try that failed half way
        self.dropped = True
        self.release()
        return targets
