"""Recovery of one log after an unclean stop.

Everything below the recovery point was synced. At or above the recovery point, the first entry that
is bad or missing marks a torn write: the log ends there, and the bytes behind it are kept as
`.broken`. Below the recovery point, bad bytes are damage: they stay where they are, the log keeps
its end, and only reads that need them are refused.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, cast

from ...protocol.errors import StorageError
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import NO_TIMESTAMP
from ..entries.damage import damage_of, unreadable_format
from ..entries.entry_rules import ANY_REACH, OffsetLimit, last_reach
from ..entries.log_survey import LogSurvey, goes_on_far, good_after
from ..entries.salvage import OFFSETS_PER_BYTE, has_wrong_size
from ..entries.segment_scan import Progress, SegmentScan
from ..files import File
from ..index.index_checksums import SegmentChecksums
from ..names import MAX_OFFSET
from ..quarantine import quarantine_bytes, quarantine_file
from ..seams import Seams
from ..segment.index_loading import apply_scan, checksums_of, scan_segment
from ..segment.segment import Segment
from .retention import RemovedRange

_OFFSET_BYTES = 8

_READ_BYTES: Final = 4096
"""What each read of a torn write costs beside its bytes."""

_SURVEY_BYTES: Final = 4 << 20
_SURVEYS: Final = 4
"""Messages behind a torn write are searched for with reads of at most `_SURVEY_BYTES`, and
`_SURVEYS` times its size: producers may send what looks like the beginnings of messages."""

OnTorn = Callable[[RemovedRange], None]
"""Called with what is about to be cut off at the end of a log."""


class Recovery:
    """The recovery of the log in folder `path`."""

    def __init__(
        self,
        path: Path,
        seams: Seams,
        checksums: dict[int, SegmentChecksums],
        *,
        recovery_point: int,
        gaps: bool,
        log_name: Mapping[str, object],
        end_offset: int | None = None,
        progress: Progress | None = None,
        on_torn: OnTorn | None = None,
    ) -> None:
        """`checksums` is brought up to date. `log_name` is added to every event. `end_offset` is
        where the log ended, if known."""
        self.names_changed = False
        self.new_checksums: set[int] = set()
        """Base offsets of the segments whose indexes were rebuilt and are not synced."""
        self._path = path
        self._seams = seams
        self._checksums = checksums
        self._recovery_point = recovery_point
        self._gaps = gaps
        self._log_name = log_name
        self._end_offset = end_offset
        self._progress = progress
        self._on_torn = on_torn
        self._clean = False
        """Whether the log was closed cleanly, although it is recovered."""
        self._closed_form: SegmentChecksums | None = None
        """Checksums of the present segment from when it was last closed."""

    def run(self, segments: Sequence[Segment], first: int | None = None) -> list[Segment]:
        """Read whole segments, from the one that holds the recovery point, or from number `first`,
        on. Return the segments that are left.

        Raises `OSError`, `UnsupportedForMessageFormat` if messages of a later format begin, and
        `StorageError` if segments overlap. Nothing from there on has been changed then.
        """
        self._clean = first is not None
        if first is None:
            below = sum(segment.base_offset <= self._recovery_point for segment in segments)
            first = max(below - 1, 0)
            for segment in segments[:first]:
                if segment.base_offset not in self._checksums:
                    # Rolled since the last sync, which had synced everything in it.
                    self._recover_append_times(segment)
        for number in range(first, len(segments)):
            segment = segments[number]
            closed = number < len(segments) - 1
            scan = self._scan(segment, closed)
            self._closed_form = self._checksums.pop(segment.base_offset, None)
            if scan.problem is Problem.NONE:
                self._take_good(segment, scan, closed)
            elif self._is_torn(segment, scan, closed):
                self._report_torn(segment, scan, segments[number + 1 :])
                self._set_aside(segments[number + 1 :])
                self._end_at(segment, scan)
                return list(segments[: number + 1])
            else:
                self._take_damaged(segment, scan, closed)
        return list(segments)

    def _observe(self, event: str, **fields: object) -> None:
        self._seams.observe(event, **self._log_name, **fields)

    def _scan(self, segment: Segment, closed: bool) -> SegmentScan:
        following = segment.next_offset if closed else None
        scan = self._scan_last(segment) if following is None else self._scanned(segment, following)
        if scan.later_format:
            raise unreadable_format(segment.log_path, scan.good_bytes)
        if scan.overlap:
            raise StorageError(
                f"{segment.log_path}: holds offset {scan.next_offset} and more, but the next "
                f"segment begins at {following}; move one of the two elsewhere, or stop the broker "
                "and run 'horolog repair' on its data directory"
            )
        return check_end(segment, scan, gaps=self._gaps) if closed else scan

    def _scanned(self, segment: Segment, limit_offset: int) -> SegmentScan:
        return scan_segment(
            segment, gaps=self._gaps, limit_offset=limit_offset, progress=self._progress
        )

    def _scan_last(self, last: Segment) -> SegmentScan:
        reach = self._reach(last)
        scan = self._scanned(last, reach.limit_offset)
        if not self._gaps or reach.exact or scan.problem is not Problem.OFFSET:
            return scan
        with closing(self._seams.files.open(last.log_path, read_only=True)) as file:
            goes_on = goes_on_far(file, scan, last.size_bytes, reach.limit_offset)
        return self._scanned(last, MAX_OFFSET) if goes_on else scan

    def _reach(self, last: Segment) -> OffsetLimit:
        return last_reach(last.base_offset, self._end_offset)

    def _good_after(self, file: File, scan: SegmentScan, last: Segment) -> int | None:
        return good_after(file, scan, last.size_bytes, self._reach(last), gaps=self._gaps)

    def _take_good(self, segment: Segment, scan: SegmentScan, closed: bool) -> None:
        if not closed:
            segment.next_offset = scan.next_offset
        apply_scan(segment, scan, closed=closed)
        self._recover_append_times(segment)
        if closed:
            self._checksums[segment.base_offset] = checksums_of(segment)
            self.new_checksums.add(segment.base_offset)
            segment.release_indexes()
        self._observe(
            "segment_recovered",
            path=str(segment.log_path),
            next_offset=segment.next_offset,
            size_bytes=segment.size_bytes,
        )

    def _is_torn(self, segment: Segment, scan: SegmentScan, closed: bool) -> bool:
        """Whether `scan` stopped at a write that was never known to be synced."""
        if scan.next_offset >= self._recovery_point:
            return True
        if closed:
            return False
        unbelievable = self._is_unbelievable(segment, scan)
        if unbelievable and not self._gaps:
            return True
        file = self._seams.files.open(segment.log_path, read_only=True)
        try:
            if self._good_after(file, scan, segment) is not None:
                return False
            if unbelievable:
                return True
            if scan.problem is Problem.PARTIAL:
                # The file was cut off. The rest is gone, whether it was synced or not.
                return not has_wrong_size(file, scan.good_bytes, segment.size_bytes)
            head = file.pread(_OFFSET_BYTES, scan.good_bytes)
            offset = int.from_bytes(head, "big", signed=True)
            return self._gaps and offset >= self._recovery_point
        finally:
            file.close()

    def _is_unbelievable(self, segment: Segment, scan: SegmentScan) -> bool:
        """Whether the recovery point is wrong: the file cannot have held that many messages."""
        left_bytes = segment.size_bytes - scan.good_bytes
        return self._recovery_point - scan.next_offset > OFFSETS_PER_BYTE * left_bytes

    def _take_damaged(self, segment: Segment, scan: SegmentScan, closed: bool) -> None:
        if not closed:
            segment.next_offset = self._end_behind(segment, scan)
        apply_damage(segment, scan, closed=closed)
        self._recover_append_times(segment)
        self._observe("segment_damaged", **damage_fields(segment))

    def _recover_append_times(self, segment: Segment) -> None:
        checksum = None if self._closed_form is None else self._closed_form.append_times
        certain_offset = self._recovery_point
        if self._clean:
            certain_offset = 0 if checksum is None else checksum.end_offset
        segment.append_times.recover(checksum, certain_offset, segment.next_offset)

    def _end_behind(self, segment: Segment, scan: SegmentScan) -> int:
        """Return the log end offset of a log whose last segment is damaged."""
        file = self._seams.files.open(segment.log_path, read_only=True)
        try:
            found = self._good_after(file, scan, segment)
        finally:
            file.close()
        return max(self._recovery_point, found or 0)

    def _end_at(self, segment: Segment, scan: SegmentScan) -> None:
        """Truncate the log at a torn write. The log continues from there."""
        position = scan.good_bytes
        cut_bytes = segment.size_bytes - position
        if cut_bytes:
            kept = quarantine_bytes(
                self._seams.files, segment.log_path, position, segment.size_bytes
            )
            file = self._seams.files.open(segment.log_path)
            try:
                file.truncate(position)
                file.sync()  # Otherwise the bytes could return below a segment begun here.
            finally:
                file.close()
            segment.size_bytes = position
            self._observe(
                "torn_tail_cut",
                path=str(segment.log_path),
                position=position,
                offset=scan.next_offset,
                cut_bytes=cut_bytes,
                problem=scan.problem.name,
                rule=scan.rule,
                kept_as=str(kept),
            )
        segment.next_offset = scan.next_offset
        apply_scan(segment, scan, closed=False)
        self._recover_append_times(segment)

    def _report_torn(self, torn: Segment, scan: SegmentScan, later: Sequence[Segment]) -> None:
        """Report what is about to be cut off, before a stop in between could hide it.

        A write that was never acknowledged may be all that is cut. So only the offsets of messages
        behind it are known to be gone. The times are never known: the first bytes are bad.
        """
        if self._on_torn is None:
            return
        size_bytes = torn.size_bytes - scan.good_bytes + sum(each.size_bytes for each in later)
        end, whole = self._end_of_torn(torn, scan, later)
        offset = scan.next_offset
        if self._end_offset is not None and end <= self._end_offset:
            end, whole = self._end_offset, True  # Nothing was appended behind a clean stop.
        elif not self._gaps and not self._is_unbelievable(torn, scan):
            end = max(end, self._recovery_point)
        if size_bytes:
            rule = f"a start found {size_bytes} B incomplete or damaged; they are kept as .broken"
        elif end > offset:
            rule = f"a start found that the bytes before offset {end} are missing"
        else:
            return
        messages = end - offset if whole and not self._gaps else -1
        self._on_torn(RemovedRange(rule, offset, end, messages, NO_TIMESTAMP, NO_TIMESTAMP))

    def _end_of_torn(
        self, torn: Segment, scan: SegmentScan, later: Sequence[Segment]
    ) -> tuple[int, bool]:
        """Return the offset after the last message that is found behind a torn write, or where that
        begins, and whether no other bytes follow."""
        end, whole = scan.next_offset, False
        for segment in (torn, *later):
            position = scan.good_bytes if segment is torn else 0
            limit_bytes = _SURVEY_BYTES + _SURVEYS * (segment.size_bytes - position)
            if segment is not torn:
                end, whole = max(end, segment.base_offset), True
            is_last = segment is (later[-1] if later else torn)
            try:
                with closing(self._seams.files.open(segment.log_path, read_only=True)) as file:
                    survey = LogSurvey(
                        cast("File", _LimitedReads(file, limit_bytes)),
                        segment.size_bytes,
                        next_offset=end,
                        limit_offset=None if is_last else segment.next_offset,
                        gaps=self._gaps,
                        start=position,
                        reach=self._reach(segment) if is_last else ANY_REACH,
                    )
                    for run in survey.runs():
                        end, whole = max(end, run.next_offset), run.good
            except OSError:
                whole = False
        return end, whole

    def _set_aside(self, later: Sequence[Segment]) -> None:
        """Remove the segments behind a torn write from the log.

        They must not return beside the segments that replace them.
        """
        files = self._seams.files
        # Newest first, so that a crash in between leaves no gap.
        for segment in reversed(later):
            for path in (segment.time_map.path, *segment.paths[1:]):
                if files.exists(path):
                    files.unlink(path)
            kept = quarantine_file(files, segment.log_path)
            self._checksums.pop(segment.base_offset, None)
            self.names_changed = True
            self._observe(
                "segment_set_aside",
                path=str(segment.log_path),
                base_offset=segment.base_offset,
                size_bytes=segment.size_bytes,
                kept_as=str(kept),
            )
        if later:
            files.sync_directory(later[0].log_path.parent)


class _LimitedReads:
    """A file that is only read, and not without limit: beyond it, `OSError` is raised."""

    def __init__(self, file: File, limit_bytes: int) -> None:
        self._file = file
        self._left_bytes = limit_bytes

    def pread(self, size: int, position: int) -> bytes:
        if self._left_bytes < 0:
            raise OSError("the search for messages behind a torn write took too long")
        data = self._file.pread(size, position)
        self._left_bytes -= len(data) + _READ_BYTES
        return data


def check_end(segment: Segment, scan: SegmentScan, *, gaps: bool) -> SegmentScan:
    """Record in the `scan` of a closed segment if the end of the segment is missing."""
    if scan.problem is Problem.NONE and not gaps and scan.next_offset < segment.next_offset:
        scan.stop(
            Problem.PARTIAL,
            f"the segment ends before offset {scan.next_offset}, the next one begins at "
            f"{segment.next_offset}, and this log has no gaps",
        )
    return scan


def apply_damage(segment: Segment, scan: SegmentScan, *, closed: bool) -> None:
    """Use the good part that `scan` found, and record the damage."""
    apply_scan(segment, scan, closed=closed)
    segment.damaged = damage_of(scan)
    segment.largest_unknown = True


def damage_fields(segment: Segment) -> dict[str, object]:
    """Return the event fields that describe the damage in `segment`."""
    damaged = segment.damaged
    assert damaged is not None
    return {
        "path": str(segment.log_path),
        "position": damaged.position,
        "offset": damaged.offset,
        "rule": damaged.rule,
        "advice": "stop the broker and run 'horolog repair' on its data directory",
    }
