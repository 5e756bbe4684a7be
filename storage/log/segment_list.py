"""The segments of one log, in order: the last one is active, the others are closed.

Begins new segments, drops old ones and truncates the end. Keeps what is known of all segments
together: the checksums of their indexes and the running maximum of their timestamps.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Final

from ...config.topic import TopicSettings
from ...protocol.errors import HorologError
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import NO_TIMESTAMP
from ..index.index_checksums import ChecksumTable, SegmentChecksums
from ..seams import Seams
from ..segment.index_loading import apply_scan, checksums_of, load_indexes, scan_segment
from ..segment.segment import Segment
from .closed_times import ClosedTimes
from .flush import FlushWork
from .recovery import apply_damage, check_end, damage_fields

COPIED_ADVICE: Final = (
    "a follower copies it again by itself; a leader lets another broker in sync lead where etcd "
    "decides, else promote one that is"
)
"""Advice for damage in a log that has copies on other brokers."""

_STRIDE: Final = 64
"""Number of segments per step of the first, coarse bisection."""


class SegmentList:
    """The segments of the log in folder `path`. Never empty."""

    def __init__(
        self,
        path: Path,
        segments: tuple[Segment, ...],
        checksums: dict[int, SegmentChecksums],
        seams: Seams,
        *,
        topic: str,
        partition: int,
        gaps: bool,
    ) -> None:
        self.path = path
        self.segments = segments
        """Replaced as a whole on a change, so that a running search keeps its own tuple."""
        self.active = segments[-1]
        """The segment that takes appends."""
        self.names_changed = False
        """Whether files were made or renamed since the last sync of the folder, apart from those of
        segments dropped from the front."""
        self.segments_dropped = False
        """Whether segments were dropped from the front since the last sync of the folder."""
        self._gaps = gaps
        self.on_damage: Callable[[], None] | None = None
        """Called, in any thread, when damage is met that was not known."""
        self.copied = False
        """Whether other brokers have copies of the log."""
        self._checksums = ChecksumTable(checksums)
        self.checksums_changed = False
        """Whether `index-checksums` has to be rewritten."""
        self.unsynced_indexes: set[int] = set()
        """Base offsets of the segments with new checksums, whose indexes are not synced yet."""
        self._seams = seams
        self._log_name = {"topic": topic, "partition": partition}
        self._closed_max_ms: array[int] | None = None
        self._strides: tuple[array[int] | None, array[int]] = None, array("q")
        """The array of `closed_max_ms`, and every `_STRIDE`th value of it."""
        self._closed_times: ClosedTimes | None = None
        self._append_maxima: tuple[tuple[Segment, ...], list[int]] = (), []
        self._prepared = False
        for segment in segments:
            self._adopt(segment)

    def _change(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        self.active = segments[-1]

    def _adopt(self, segment: Segment) -> Segment:
        """Add a segment to the log."""
        segment.gaps = self._gaps
        segment.on_damage = self._damage_met
        if segment.base_offset in self._checksums:
            segment.before_append = self._forget_checksums
        return segment

    def _damage_met(self, segment: Segment) -> None:
        self._forget_times()
        fields = damage_fields(segment)
        if self.copied:
            fields["advice"] = COPIED_ADVICE
        self._observe("segment_damaged", **fields)
        if self.on_damage is not None:
            self.on_damage()

    @property
    def gaps(self) -> bool:
        """Whether offsets may jump."""
        return self._gaps

    def allow_gaps(self) -> None:
        """Let offsets jump from now on."""
        self._gaps = True
        for segment in self.segments:
            segment.gaps = True

    @property
    def first(self) -> Segment:
        return self.segments[0]

    def holding(self, offset: int) -> Segment:
        """Return the segment whose offsets include `offset`; the first segment for any offset below
        it."""
        if offset >= self.segments[-1].base_offset:
            return self.segments[-1]
        return self.segments[max(self._number(offset) - 1, 0)]

    def after(self, segment: Segment) -> Segment | None:
        """Return the segment after `segment`, or `None` if `segment` is the last one or not in the
        list."""
        number = self._number(segment.base_offset)
        return self.segments[number] if number < len(self.segments) else None

    def number_of(self, segment: Segment) -> int:
        """Return the number of a segment in the list, counted from 0 for the oldest."""
        return self._number(segment.base_offset) - 1

    def _number(self, offset: int) -> int:
        """Return how many segments begin at or below `offset`."""
        return bisect_right(self.segments, offset, key=lambda segment: segment.base_offset)

    @property
    def closed_max_ms(self) -> "array[int]":
        """For each closed segment, the largest timestamp that may be in it or in one before it.

        An array, because the numbers of a list are objects spread over the memory, and a bisection
        over thousands waits for each of them.
        """
        if self._closed_max_ms is None:
            closed = (segment.largest_possible_ms for segment in self.segments[:-1])
            self._closed_max_ms = array("q", accumulate(closed, max))
        return self._closed_max_ms

    def reaching(self, target_ms: int) -> tuple[Segment, bool]:
        """Return the first segment that may have a message at `target_ms` or later, the active one
        if no other may; and whether it may.

        A bisection over thousands of values touches distant memory at each step. A bisection over a
        few strided values first, and then over adjacent ones, waits half as long.
        """
        maxima = self.closed_max_ms
        of, strides = self._strides
        if of is not maxima:
            strides = maxima[_STRIDE - 1 :: _STRIDE]
            self._strides = maxima, strides
        begin = bisect_left(strides, target_ms) * _STRIDE
        count = len(maxima)
        number = bisect_left(maxima, target_ms, begin, min(begin + _STRIDE, count))
        segment = self.segments[number]
        return segment, number < count or segment.largest_possible_ms >= target_ms

    def _forget_times(self) -> None:
        """Discard what is known of the closed segments' times together, because it changed."""
        self._closed_max_ms = None
        self._closed_times = None

    @property
    def closed_times(self) -> ClosedTimes:
        """The times of the closed segments, used to skip many of them at once."""
        known = self._closed_times
        if known is None:
            known = self._closed_times = ClosedTimes(self.segments[:-1])
        return known

    @property
    def closed_append_max_ms(self) -> Sequence[int]:
        """For each closed segment, an upper bound of the append times in it and before it."""
        segments, maxima = self._append_maxima
        if segments is not self.segments:
            closed = (segment.append_times.largest_ms for segment in self.segments[:-1])
            maxima = list(accumulate(closed, max))
            self._append_maxima = self.segments, maxima
        return maxima

    def sync_append_times(self, offset: int) -> bool:
        """Sync the append times below `offset`. Return false if that is not possible.

        May run in another thread. Raises `OSError` when a sync fails for the first time.
        """
        below = (segment for segment in self.segments if segment.base_offset < offset)
        return all(segment.append_times.sync() for segment in below)

    @property
    def prepared(self) -> bool:
        """Whether the indexes of all segments are loaded."""
        self._prepared = self._prepared or all(segment.indexed for segment in self.segments)
        return self._prepared

    def prepare(self) -> None:
        """Load the indexes of all segments. Rebuild those that do not match their checksums.

        Damage met by a rebuild is reported and remembered for the segment. May run in another
        thread, because closed segments do not change. Raises `OSError`.
        """
        if self.prepared:
            return
        for segment in self.segments:
            if not segment.indexed:
                self._prepare_segment(segment)
                if segment is not self.active:
                    segment.release_indexes()

    def _prepare_segment(self, segment: Segment) -> None:
        checksums = self._checksums.get(segment.base_offset)
        reason = "no checksum" if checksums is None else "checksum does not fit"
        if load_indexes(segment, checksums):
            if not self._ends_early(segment):
                return
            reason = "the next segment begins later than this one ended"
        limit_offset = segment.next_offset if segment is not self.active else None
        scan = scan_segment(segment, gaps=self.gaps, limit_offset=limit_offset)
        if limit_offset is not None:
            check_end(segment, scan, gaps=self.gaps)
        if scan.problem is Problem.NONE:
            apply_scan(segment, scan, closed=True)
            self._record_checksums(segment)
        else:
            apply_damage(segment, scan, closed=True)
            self._forget_checksums(segment)
            self._damage_met(segment)
        self._forget_times()
        self._observe("index_rebuilt", path=str(segment.log_path), reason=reason)

    def _ends_early(self, segment: Segment) -> bool:
        """Whether a segment is missing after this one, as far as its loaded indexes show."""
        if self.gaps or segment is self.active:
            return False
        entries = len(segment.time_index)
        if entries:
            return segment.time_index.entry(entries - 1)[1] < segment.next_offset
        with closing(self._seams.files.open(segment.log_path, read_only=True)) as file:
            return segment.scan_tail(file).next_offset < segment.next_offset

    def _observe(self, event: str, **fields: object) -> None:
        self._seams.observe(event, **self._log_name, **fields)

    def known_checksums(self, segment: Segment) -> SegmentChecksums | None:
        """Return the checksums of a closed segment's indexes, if they are known and the indexes are
        loaded."""
        return self._checksums.get(segment.base_offset) if segment.indexed else None

    def doubt_indexes(self, segment: Segment) -> None:
        """Check the indexes of a closed segment again, and rebuild them if they do not match,
        before the log is next read (`prepare`)."""
        if segment is not self.active:
            segment.indexed = self._prepared = False

    def _record_checksums(self, segment: Segment, *, open_form: bool = False) -> None:
        checksums = checksums_of(segment, open_form=open_form)
        if self._checksums.get(segment.base_offset) != checksums:
            # In this order, because a sync may begin at any point between these lines.
            self.unsynced_indexes.add(segment.base_offset)
            self._checksums.put(segment.base_offset, checksums)
            self.checksums_changed = True
            segment.before_append = self._forget_checksums

    def time_map_made(self, segment: Segment) -> None:
        """Record the checksum of a time map that was made from the log, so that it is trusted after
        a restart."""
        if self._closed_times is not None and segment is not self.active:
            self._closed_times.update(self.number_of(segment), segment)
        known = self._checksums.get(segment.base_offset)
        if segment is self.active or segment.damaged is not None or known is None:
            return
        time_map = segment.time_map.checksum(segment.size_bytes)
        if known.time_map != time_map:
            self._checksums.put(segment.base_offset, known.with_time_map(time_map))
            self.checksums_changed = True
            self.unsynced_indexes.add(segment.base_offset)

    def _forget_checksums(self, segment: Segment) -> None:
        segment.before_append = None
        if self._checksums.forget(segment.base_offset):
            self.checksums_changed = True

    def flush_work(self, safe_offset: int, target_offset: int) -> FlushWork:
        """Return the work that syncs all segments that begin below `target_offset`. The messages
        below `safe_offset` are synced already."""
        dirty: list[Segment] = []
        for segment in reversed(self.segments):
            if segment.next_offset <= safe_offset:
                break
            if segment.size_bytes and segment.base_offset < target_offset:
                dirty.append(segment)
        unsynced, self.unsynced_indexes = self.unsynced_indexes, set()
        checksums_changed, self.checksums_changed = self.checksums_changed, False
        closed = map(self.holding, sorted(unsynced))
        work = FlushWork(
            target_offset=target_offset,
            directory=self.path,
            files=self._seams.files,
            index_paths=[
                path
                for segment in closed
                if segment.base_offset in unsynced
                for path in segment.paths_to_sync
            ],
            checksums=self._checksums.content() if checksums_changed else None,
            new_checksums=frozenset(unsynced),
            sync_directory=self.names_changed,
            segments_dropped=self.segments_dropped,
        )
        try:
            for segment in reversed(dirty):
                held = segment.hold_open()
                work.log_files.append(self._seams.open_files.making_room(held.duplicate))
        except OSError:
            work.close()
            self.unsynced_indexes |= unsynced
            self.checksums_changed = self.checksums_changed or checksums_changed
            raise
        self.names_changed = self.segments_dropped = False
        return work

    def take_back(self, work: FlushWork) -> None:
        """Let the next sync do what `work` could not finish."""
        self.checksums_changed = True
        self.unsynced_indexes |= work.new_checksums
        self.names_changed = self.names_changed or (work.not_begun and work.sync_directory)
        self.segments_dropped = self.segments_dropped or work.segments_dropped

    def release_synced(self, recovery_point: int) -> None:
        """Release the handles of closed segments that are synced. Readers may find them open."""
        # Thousands of segments may lie behind the recovery point if more is appended than is
        # synced.
        begun = min(self._number(recovery_point), len(self.segments) - 1)
        for segment in reversed(self.segments[:begun]):
            if segment.next_offset <= recovery_point and not segment.release(readers=True):
                return

    def release_all(self) -> None:
        """Close all handles."""
        for segment in self.segments:
            segment.release()
            self._seams.open_files.forget(str(segment.log_path))
            segment.close_side_files()

    def close_indexes(self, *, stops: bool = False) -> None:
        """Write the closed form of the active segment's indexes and record their checksums.

        `stops` says that the segment will take appends again after the next start. For a log with
        copies, its open form is recorded too, so that its indexes equal those of the copies,
        whenever each broker was stopped.
        """
        if self.active.damaged is None:
            self.active.close_indexes()
        if self.active.size_bytes and self.active.damaged is None:
            self._record_checksums(self.active, open_form=stops and self.copied)
        else:
            # Rebuilding the indexes of an empty segment takes no longer than checking them. Those
            # of a damaged segment have to be rebuilt, so that the damage is met again.
            self._forget_checksums(self.active)

    def last_stamp_ms(self, log_start_offset: int) -> int:
        """Append time of the last message if a broker stamped it, else -1. Raises `OSError`.

        A segment that ends below the log start may be damaged; that does not matter.
        """
        for segment in reversed(self.segments):
            if segment.size_bytes:
                if segment.tail_stamp_ms is not None:
                    return segment.tail_stamp_ms
                if not segment.indexed:
                    load_indexes(segment, self._checksums.get(segment.base_offset))
                if segment.next_offset <= log_start_offset:
                    return segment.tail_append_time_ms()
                try:
                    return segment.scan_tail().last_append_time_ms
                except HorologError:
                    # Reading a damaged closed segment raises. Appends can continue.
                    break
        return NO_TIMESTAMP

    def roll(self, base_offset: int, settings: TopicSettings, reason: str) -> None:
        """Begin a new active segment at `base_offset`. It replaces the active segment if that is
        empty.

        Raises `OSError` and leaves the list as it was.
        """
        closing = self.active
        if closing.size_bytes:
            self.close_indexes()
        opened = self._adopt(Segment.create(self.path, base_offset, settings, self._seams))
        self.names_changed = True
        if closing.size_bytes:
            closing.release_indexes()
            closing.close_side_files()
            self._change((*self.segments, opened))
            if self._closed_times is not None:
                self._closed_times.append(closing)
            if self._closed_max_ms is not None:
                before = self._closed_max_ms[-1] if self._closed_max_ms else NO_TIMESTAMP
                # A running search keeps the old array.
                self._closed_max_ms = self._closed_max_ms + array(
                    "q", (max(before, closing.largest_possible_ms),)
                )
        else:
            self._change((*self.segments[:-1], opened))
            self._set_aside([closing], settings)
        for previous in self.segments[-2:-1]:
            # Offsets missing between the two segments belong to the earlier one, as after a
            # restart.
            previous.next_offset = base_offset
        self._observe("segment_rolled", base_offset=base_offset, reason=reason)

    def drop_below(self, offset: int, settings: TopicSettings, reasons: Mapping[int, str]) -> None:
        """Drop the segments that end at or below `offset`, but never the active one.

        `reasons` gives the reason for each base offset. Raises `OSError`.
        """
        while len(self.segments) > 1 and self.segments[1].base_offset <= offset:
            dropped = self.segments[0]
            reason = reasons.get(dropped.base_offset, f"the log begins at offset {offset}")
            self.segments_dropped = True
            self._set_aside([dropped], settings)
            self._change(self.segments[1:])
            self._closed_max_ms = None
            if self._closed_times is not None:
                self._closed_times.drop_first()
            self._observe(
                "segment_deleted",
                base_offset=dropped.base_offset,
                size_bytes=dropped.size_bytes,
                reason=reason,
            )

    def _drop_last(self) -> None:
        """Remove the last segment, so that the one before it takes appends again."""
        self._change(self.segments[:-1])
        self._closed_max_ms = None
        if self._closed_times is not None:
            self._closed_times.drop_last()

    def _set_aside(self, dropped: Sequence[Segment], settings: TopicSettings) -> None:
        """Remove segments from the folder. Their files are deleted after `file.delete.delay.ms`."""
        for segment in dropped:
            self._forget_checksums(segment)
            self._seams.deletions.add(segment.set_aside(), settings.file_delete_delay_ms)

    def _sync_names(self) -> None:
        """Sync the folder, so that files set aside never appear beside those that replace them."""
        self._seams.files.sync_directory(self.path)

    def end_before(self, offset: int) -> int:
        """Return where the log ends when truncated at `offset`: at `offset`, or before the batch
        that contains it. A damaged segment is removed as a whole.

        Raises `OSError`, and `StorageError` if `offset` cannot be located.
        """
        becomes_active = self.holding(offset)
        if becomes_active.damaged is not None:
            return becomes_active.base_offset
        if not becomes_active.indexed:
            self._prepare_segment(becomes_active)
        return becomes_active.end_before(offset)

    def truncate(self, offset: int, settings: TopicSettings) -> None:
        """Remove everything from `offset` on. The segment that contains it becomes active. A
        damaged segment is replaced by an empty one."""
        becomes_active = self.holding(offset)
        if self.active is not becomes_active:
            while self.active is not becomes_active:
                # Newest first, so that a crash in between leaves no gap.
                self._set_aside(self.segments[-1:], settings)
                self._drop_last()
            self._sync_names()
        if self.active.damaged is not None:
            self._replace_active(settings)
            return
        self.active.truncate(offset)
        self._forget_checksums(self.active)

    def _replace_active(self, settings: TopicSettings) -> None:
        """Set the active segment aside and create it again, empty."""
        base_offset = self.active.base_offset
        self._set_aside(self.segments[-1:], settings)
        self._sync_names()
        opened = self._adopt(Segment.create(self.path, base_offset, settings, self._seams))
        self._change((*self.segments[:-1], opened))
        self.names_changed = True
        self._forget_times()

    def reopen(self, settings: TopicSettings) -> None:
        """Drop the active segment, which is empty. The one before it takes appends again at the end
        of its messages. Raises `OSError`."""
        self._set_aside(self.segments[-1:], settings)
        self._drop_last()
        self._sync_names()
        if not self.active.indexed:
            self._prepare_segment(self.active)
        self._forget_checksums(self.active)
        self.active.go_on()

    def restart_at(self, offset: int, settings: TopicSettings) -> None:
        """Drop all segments and begin one empty segment at `offset`."""
        dropped = self.segments
        self._set_aside(dropped, settings)
        self._sync_names()
        self._change((self._adopt(Segment.create(self.path, offset, settings, self._seams)),))
        self.names_changed = True
        self._forget_times()
