"""Opening a partition's folder: what is there, whether it was closed cleanly, and recovery.

A log that was closed cleanly is taken as it is: only the end of its active segment is read, the
other segments are looked at when they are used. Otherwise every segment from the recovery point
on is read whole and its indexes are rebuilt; the first entry there that is not good, or missing,
is where a write was torn, and the log ends before it. What is cut off is kept beside it as
`.broken`.
"""

from itertools import pairwise
from pathlib import Path

from ..config.topic import TopicSettings
from ..protocol.errors import StorageError
from ..protocol.records.kernel import Problem
from .index_checksums import FILE_NAME, Seal, parse_seals
from .log import Log
from .names import BROKEN_SUFFIX, DELETED_SUFFIX, parse_segment_file
from .seams import Seams
from .segment import Segment
from .segment_list import SegmentList
from .segment_scan import SegmentScan


def open_log(
    path: Path,
    topic: str,
    partition: int,
    settings: TopicSettings,
    seams: Seams,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    gaps: bool = False,
) -> Log:
    """Open the log in folder `path`, which exists; an empty folder becomes an empty log.

    `clean` says that the broker was stopped cleanly and the checkpoints hold. Raises `OSError`,
    `StorageError`, and `UnsupportedForMessageFormat` when messages of a format that this version
    cannot read are stored (they are left as they are).
    """
    opening = _Opening(path, topic, partition, settings, seams, gaps)
    segments = opening.find_segments(log_start_offset)
    if not segments:
        segments = [Segment.create(path, log_start_offset, settings, seams)]
        opening.names_changed = True
    elif clean:
        opening.open_active(segments[-1])
        recovery_point = segments[-1].next_offset
    else:
        segments = opening.recover(segments, recovery_point)
    listed = SegmentList(
        path, tuple(segments), opening.seals, seams, topic=topic, partition=partition, gaps=gaps
    )
    listed.names_changed = opening.names_changed
    listed.seals_changed = bool(opening.new_seals)
    listed.unsynced_indexes = opening.new_seals
    log_end_offset = segments[-1].next_offset
    log = Log(
        topic,
        partition,
        settings,
        listed,
        seams,
        log_start_offset=min(max(log_start_offset, segments[0].base_offset), log_end_offset),
        recovery_point=min(recovery_point, log_end_offset),
        last_stamp_ms=listed.last_stamp_ms(),
    )
    if log.recovery_point < log_end_offset:
        log.unflushed_since = seams.clock.monotonic()
    return log


class _Opening:
    """One folder being opened."""

    def __init__(
        self,
        path: Path,
        topic: str,
        partition: int,
        settings: TopicSettings,
        seams: Seams,
        gaps: bool,
    ) -> None:
        self.seals: dict[int, Seal] = {}
        self.names_changed = False
        self.new_seals: set[int] = set()
        self._path = path
        self._log_name = {"topic": topic, "partition": partition}
        self._settings = settings
        self._seams = seams
        self._gaps = gaps

    def _observe(self, event: str, **fields: object) -> None:
        self._seams.observe(event, **self._log_name, **fields)

    def find_segments(self, log_start_offset: int) -> list[Segment]:
        """The segments whose log files are there, oldest first; leftovers are removed."""
        files = self._seams.files
        names = files.names(self._path)
        bases = []
        for name in names:
            parsed = parse_segment_file(name)
            if parsed is None:
                if name != FILE_NAME:
                    self._observe("stray_file", path=str(self._path / name))
            elif parsed.suffix == DELETED_SUFFIX:
                self._remove(name)
            elif parsed.suffix:
                continue
            elif parsed.kind == "log":
                bases.append(parsed.base_offset)
            elif f"{parsed.base_offset:020d}.log" not in names:
                self._observe("orphan_index_removed", path=str(self._path / name))
                self._remove(name)
        if FILE_NAME in names:
            self.seals = parse_seals(files.read_bytes(self._path / FILE_NAME))
        segments = [
            Segment.existing(self._path, base, self._settings, self._seams)
            for base in sorted(bases)
        ]
        for segment, following in pairwise(segments):
            segment.next_offset = following.base_offset
        self.seals = {base: seal for base, seal in self.seals.items() if base in set(bases)}
        return segments

    def _remove(self, name: str) -> None:
        self._seams.files.unlink(self._path / name)
        self.names_changed = True

    def open_active(self, active: Segment) -> None:
        """Take the last segment of a log that was closed cleanly."""
        seal = self.seals.get(active.base_offset)
        if active.load_indexes(seal):
            active.find_end()
            return
        self.seals.pop(active.base_offset, None)
        scan = active.rebuild_indexes(gaps=self._gaps, check_crc=True, closed=False)
        if active.size_bytes:
            self._report_rebuilt(active, "no checksum" if seal is None else "checksum does not fit")
        self._end_at(active, scan)

    def _report_rebuilt(self, segment: Segment, reason: str) -> None:
        self._observe("index_rebuilt", path=str(segment.log_path), reason=reason)

    def recover(self, segments: list[Segment], recovery_point: int) -> list[Segment]:
        """Read everything from the recovery point on; returns the segments that are left."""
        first = 0
        for number, segment in enumerate(segments):
            if segment.base_offset <= recovery_point:
                first = number
        for number in range(first, len(segments)):
            segment = segments[number]
            self.seals.pop(segment.base_offset, None)
            closed = number < len(segments) - 1
            scan = segment.rebuild_indexes(gaps=self._gaps, check_crc=True, closed=closed)
            if closed and scan.next_offset > segment.next_offset:
                raise StorageError(
                    f"{segment.log_path}: holds offsets up to {scan.next_offset - 1}, but the next "
                    f"segment begins at {segment.next_offset}; move one of the two elsewhere"
                )
            torn = scan.problem is not Problem.NONE
            if torn or not closed:
                self._end_at(segment, scan)
            elif scan.next_offset < segment.next_offset and not self._gaps:
                torn = True
                segment.next_offset = scan.next_offset
            if torn:
                if closed:
                    # It takes appends now, so its indexes have no closing entry.
                    segment.rebuild_indexes(gaps=self._gaps, check_crc=False, closed=False)
                self._set_later_aside(segments[number + 1 :])
                return segments[: number + 1]
            self._observe(
                "segment_recovered",
                path=str(segment.log_path),
                next_offset=segment.next_offset,
                size_bytes=segment.size_bytes,
            )
            if closed:
                self.seals[segment.base_offset] = segment.seal()
                self.new_seals.add(segment.base_offset)
        return segments

    def _end_at(self, segment: Segment, scan: SegmentScan) -> None:
        """Take what a scan found as the segment's end; what is not good is cut off and kept."""
        if scan.problem is not Problem.NONE:
            self._cut(segment, scan)
        segment.next_offset = scan.next_offset

    def _cut(self, segment: Segment, scan: SegmentScan) -> None:
        files = self._seams.files
        position = scan.good_bytes
        kept = segment.log_path.with_name(f"{segment.log_path.name}.{position}{BROKEN_SUFFIX}")
        source = files.open(segment.log_path)
        try:
            copy = files.open(kept, create=True)
            try:
                copy.truncate(0)
                copy.pwrite(source.pread(segment.size_bytes - position, position), 0)
                copy.sync()
            finally:
                copy.close()
            self._seams.files.sync_directory(self._path)
            source.truncate(position)
        finally:
            source.close()
        self._observe(
            "torn_tail_cut",
            path=str(segment.log_path),
            position=position,
            cut_bytes=segment.size_bytes - position,
            problem=scan.problem.name,
            kept_as=str(kept),
        )
        segment.size_bytes = position

    def _set_later_aside(self, later: list[Segment]) -> None:
        for segment in later:
            target = segment.log_path.with_name(segment.log_path.name + BROKEN_SUFFIX)
            self._seams.files.rename(segment.log_path, target)
            self.seals.pop(segment.base_offset, None)
            for path in segment.paths[1:]:
                if self._seams.files.exists(path):
                    self._seams.files.unlink(path)
            self.names_changed = True
            self._observe("segment_set_aside", path=str(target), base_offset=segment.base_offset)
