"""One segment: a file of messages (`.log`) with its indexes and its append times.

A segment is *active* while it takes appends and *closed* after the next one began. It knows
positions and sizes, keeps its indexes true to its log, and knows nothing of requests or rolls.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from ...config.topic import TopicSettings
from ...protocol.errors import StorageError
from ...protocol.records.kernel import Walk
from ...protocol.records.layout import NO_TIMESTAMP
from ...protocol.records.marks import NO_MARKS
from ...times import INT64_MAX
from ..files import Buffer
from ..index.append_times import Span
from ..index.time_map import SetSpans, SetTimes
from ..names import DELETED_SUFFIX, TRANSACTION_INDEX
from ..seams import Seams
from .indexed_segment import IndexedSegment

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


class Segment(IndexedSegment):
    """A segment whose files can be written."""

    __slots__ = (
        "_staged",
        "before_append",
        "jitter_ms",
    )

    def __init__(
        self, directory: Path, base_offset: int, settings: TopicSettings, seams: Seams
    ) -> None:
        super().__init__(directory, base_offset, settings, seams)
        self.jitter_ms = 0
        if settings.segment_jitter_ms > 0:
            bound = min(settings.segment_jitter_ms, settings.segment_ms)
            self.jitter_ms = seams.random.randrange(max(bound, 1))
        self._staged: _Staged | None = None
        self.before_append: Callable[[Segment], None] | None = None
        """Called before anything is staged."""

    def latest_time_ms(self, segment_ms: int, now_ms: int) -> int:
        """The largest timestamp for which it is not to be closed yet; below that of messages
        without a time when it is to be closed whatever comes.

        Time is counted between messages: from its first one to the newest of a set. Only while the
        first message has no time does the clock count, from the segment's creation on.
        """
        waits_ms, first_ms = segment_ms - self.jitter_ms, self._first_ms
        if first_ms is None:
            first_ms = self.first_timestamp_ms
        if first_ms >= 0:
            return min(first_ms + waits_ms, INT64_MAX)
        return INT64_MAX if now_ms - self.created_ms <= waits_ms else NO_TIMESTAMP - 1

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
            self._add_marks(found.marks)
        if not position:
            self._first_ms = found.first_timestamp_ms
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
            disk_room = self._seams.disk_room
            if disk_room.keepers:
                disk_room.check_append()
            sets = staged.sets
            # A copy of small sets is cheaper than a vectored write of them, and for those of
            # 16 KiB hardly dearer.
            data = sets[0][1] if len(sets) == 1 else b"".join([one[1] for one in sets])
            (self._file or self.hold_open()).pwrite(data, sets[0][0])
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
            self._first_ms = None
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
            self._keep_creation_time()
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
            self.created_ms = self._seams.clock.now_ms()
            self._first_ms = None
            self.time_map.begin()
        self._keep_creation_time()
        kept = len(self.offset_index)
        self.since_bytes = position - (self.offset_index.entry(kept - 1)[1] if kept else 0)
        self._find_largest(position)
        self.append_times.truncate(max(self.scan_tail().next_offset, self.base_offset), offset)
        self.append_times.sync()  # Their old checksum may be on disk, and fit what comes back.

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
