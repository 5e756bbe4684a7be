"""Carrying out the repair of one partition as it was planned.

Whatever may stop it, a crash at any point included, everything good is in place afterwards, and
everything else beside it: the repair can be planned and run again. A log file is replaced at once
by one that was built and synced beside it.
"""

from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

from ...clock import Clock
from ...config.topic import TopicSettings
from ..directory.deletion import DeletionQueue
from ..entries.log_survey import LogRun
from ..events import Observer
from ..files import File, Files, replace_file
from ..index.index_checksums import FILE_NAME as INDEX_CHECKSUMS
from ..index.index_checksums import SegmentChecksums, format_checksums, parse_checksums
from ..names import segment_bases
from ..open_files import OpenFiles
from ..producers.producer_snapshots import newest_first
from ..quarantine import quarantine_bytes, quarantine_file
from ..seams import ProducerBudget, Seams
from ..segment.index_loading import apply_scan, checksums_of, scan_segment
from ..segment.segment import Segment
from .repair_plan import PartitionPlan, SegmentPlan

_BUILT_SUFFIX: Final = ".repair"
_CHUNK_BYTES: Final = 1 << 20
_OPEN_FILES: Final = 16


class PartitionRepair:
    """The repair of the partition in `plan.folder`."""

    def __init__(
        self,
        plan: PartitionPlan,
        settings: TopicSettings,
        *,
        recovery_point: int | None,
        files: Files,
        clock: Clock,
        observe: Observer,
    ) -> None:
        """`settings` are the topic's; append times are certain below `recovery_point` only."""
        self._plan = plan
        self._settings = settings
        self._recovery_point = recovery_point or 0
        self._files = files
        deletions = DeletionQueue(files, clock, observe)
        open_files = OpenFiles(files, _OPEN_FILES)
        room = ProducerBudget(clock)
        self._seams = Seams(clock, files, observe, deletions, open_files, Random(), room)
        self._checksums: dict[int, SegmentChecksums] = {}

    def run(self) -> None:
        """Do it. Raises `OSError`, `HorologError`."""
        try:
            self._take_checksums_out()
            # First of all, so that an interrupted repair does not forget where the log ended.
            self._add_segment()
            for segment in self._plan.segments:
                if segment.good and segment.bad:
                    self._rewrite(segment)
            for path in self._plan.aside:
                if self._files.exists(path):
                    quarantine_file(self._files, path)
            for segment in self._plan.segments:
                if not segment.stays:
                    self._take_away(segment)
            # From the end on, so that no segment gets the name of one that is still to go.
            for segment in reversed(self._plan.segments):
                if segment.stays and segment.new_base_offset != segment.base_offset:
                    self._rename(segment)
            self._add_segment()
            self._files.sync_directory(self._plan.folder)
            if self._plan.segments:
                self._drop_snapshots()
            self._rebuild()
            self._write_checksums()
        finally:
            self._seams.open_files.close()

    def _drop_snapshots(self) -> None:
        """Let producers be known by the messages that are left alone."""
        for _, path in newest_first(self._files, self._plan.folder):
            self._files.unlink(path)
        self._files.sync_directory(self._plan.folder)

    def _add_segment(self) -> None:
        base_offset = self._plan.new_segment
        if base_offset is None or self._files.exists(self._log_path(base_offset)):
            return
        Segment.create(self._plan.folder, base_offset, self._settings, self._seams)
        self._files.sync_directory(self._plan.folder)

    def _log_path(self, base_offset: int) -> Path:
        return self._plan.folder / f"{base_offset:020d}.log"

    def _take_checksums_out(self) -> None:
        """Let no index be believed that will not fit its log any more."""
        path = self._plan.folder / INDEX_CHECKSUMS
        if not self._files.exists(path) or self._files.is_directory(path):
            return
        self._checksums = parse_checksums(self._files.read_bytes(path))
        changed = {segment.base_offset for segment in self._plan.segments if segment.bad}
        changed |= self._plan.rebuild
        left = {
            base: checksums for base, checksums in self._checksums.items() if base not in changed
        }
        if path not in self._plan.aside and left != self._checksums:
            replace_file(self._files, path, format_checksums(left))

    def _rewrite(self, segment: SegmentPlan) -> None:
        """Put the good stretches of a log file in its place, and the bad ones beside it."""
        path = self._log_path(segment.base_offset)
        for stretch in segment.bad:
            quarantine_bytes(self._files, path, stretch.start, stretch.end)
        built = path.with_name(path.name + _BUILT_SUFFIX)
        with (
            closing(self._files.open(path, read_only=True)) as source,
            closing(self._files.open(built, create=True)) as target,
        ):
            target.truncate(0)
            position = 0
            for stretch in segment.good:
                position = _copy(source, stretch, target, position)
            target.sync()
        # Retention goes by the file's time where the messages have none.
        self._files.set_modified_ms(built, self._files.modified_ms(path))
        self._files.rename(built, path)
        self._files.sync_directory(path.parent)

    def _take_away(self, segment: SegmentPlan) -> None:
        """Set a whole segment aside; what is derived from it goes."""
        path = self._log_path(segment.base_offset)
        self._drop_derived(path)
        quarantine_file(self._files, path)

    def _rename(self, segment: SegmentPlan) -> None:
        path = self._log_path(segment.base_offset)
        self._drop_derived(path)
        self._files.rename(path, self._log_path(segment.new_base_offset))

    def _drop_derived(self, log_path: Path) -> None:
        for suffix in (".index", ".timeindex", ".timemap"):
            path = log_path.with_suffix(suffix)
            if self._files.exists(path):
                self._files.unlink(path)
        append_times = log_path.with_suffix(".appendtime")
        if self._files.exists(append_times):
            quarantine_file(self._files, append_times)

    def _rebuild(self) -> None:
        """Make the indexes anew that may not fit any more."""
        plan = self._plan
        renamed = {segment.base_offset: segment.new_base_offset for segment in plan.segments}
        wanted = {renamed.get(base, base) for base in plan.rebuild}
        for base_offset, following in pairwise([*self._bases(), None]):
            assert base_offset is not None
            closed = following is not None
            if base_offset in wanted or (not closed and plan.segments):
                segment = Segment.existing(plan.folder, base_offset, self._settings, self._seams)
                segment.next_offset = base_offset if following is None else following
                self._rebuild_segment(segment, closed)

    def _rebuild_segment(self, segment: Segment, closed: bool) -> None:
        base_offset = segment.base_offset
        scan = scan_segment(segment, gaps=True)
        if not closed:
            segment.next_offset = scan.next_offset
        apply_scan(segment, scan, closed=True)
        old = self._checksums.pop(base_offset, None)
        append_times = None if old is None else old.append_times
        segment.append_times.recover(append_times, self._recovery_point, segment.next_offset)
        if segment.size_bytes:
            self._checksums[base_offset] = checksums_of(segment)
        for path in segment.paths[1:]:
            if self._files.exists(path):
                with closing(self._files.open(path)) as file:
                    file.sync()

    def _bases(self) -> list[int]:
        return segment_bases(self._files.names(self._plan.folder))

    def _write_checksums(self) -> None:
        bases = set(self._bases())
        checksums = {
            base: checksums for base, checksums in self._checksums.items() if base in bases
        }
        replace_file(self._files, self._plan.folder / INDEX_CHECKSUMS, format_checksums(checksums))


def _copy(source: File, stretch: LogRun, target: File, position: int) -> int:
    """Copy good bytes to `position` of the new log; returns the position after them."""
    for start in range(stretch.start, stretch.end, _CHUNK_BYTES):
        data = source.pread(min(_CHUNK_BYTES, stretch.end - start), start)
        target.pwrite(data, position)
        position += len(data)
    return position
