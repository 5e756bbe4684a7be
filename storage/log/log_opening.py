"""Opening a partition's folder: finding its segments, checking for a clean stop, and recovery.

A log that was closed cleanly is taken as it is: only the end of its active segment is read, the
other segments are checked when they are used. A log that was not closed cleanly, or that does not
end where it ended then, is recovered.
"""

from itertools import pairwise
from pathlib import Path
from typing import Final

from ...config.topic import TopicSettings
from ...protocol.errors import HorologError
from ..entries.segment_scan import Progress
from ..index.index_checksums import FILE_NAME, SegmentChecksums, parse_checksums
from ..names import DELETED_SUFFIX, LEADER_EPOCHS, UNFINISHED_EPOCHS, parse_segment_file
from ..open_files import LogDeletion
from ..producers.log_producers import LogProducers
from ..producers.producer_snapshots import UNFINISHED_SUFFIX, parse_snapshot_name
from ..seams import Seams
from ..segment.index_loading import load_indexes
from ..segment.segment import Segment
from .log import Log
from .log_state import LogParts
from .recovery import OnTorn, Recovery
from .segment_list import SegmentList

_OTHER_FILES: Final = (FILE_NAME, LEADER_EPOCHS)
"""Other files of a partition folder, beside segments and snapshots."""


def open_log(
    path: Path,
    topic: str,
    partition: int,
    settings: TopicSettings,
    seams: Seams,
    *,
    clean: bool,
    end_offset: int | None = None,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    gaps: bool = False,
    high_watermark: int | None = None,
    follows: bool = False,
    progress: Progress | None = None,
    on_torn: OnTorn | None = None,
) -> Log:
    """Open the log in folder `path`, which exists. An empty folder becomes an empty log.

    `clean` says that the broker was stopped cleanly and the checkpoints are valid. `end_offset` is
    the log end at that stop, if known: a log that ends elsewhere is recovered all the same.
    `high_watermark` is the last known high watermark; it stays there until it is moved
    (`LogState.hold_high_watermark`). Without it, everything stored can be read. `follows` is set on
    a cluster member that does not lead the partition (yet): the log expires nothing, and an open
    transaction may be an incomplete copy. `progress` is called for the bytes that recovery has
    read, `on_torn` before it cuts off the end of the log. Raises `OSError`, `StorageError`, and
    `UnsupportedForMessageFormat` if messages are stored in a format that this version cannot read
    (they stay unchanged).
    """
    # Offsets below the log start are no longer part of the log, whichever of their files are left.
    # A gap between those files must not be taken for the log end.
    recovery_point = max(recovery_point, log_start_offset)
    deletion = LogDeletion(f"{topic}-{partition}")
    seams = seams.of_log(deletion)
    opening = _Opening(
        *(path, topic, partition, settings, seams, gaps, recovery_point, progress, on_torn)
    )
    segments = opening.segments(log_start_offset, clean=clean, end_offset=end_offset)
    listed = opening.listed(segments, copied=follows)
    producers = opening.producers(segments, follows=follows)
    last_stamp_ms = listed.last_stamp_ms(log_start_offset)
    log_end_offset = segments[-1].next_offset
    log_start_offset = min(max(log_start_offset, segments[0].base_offset), log_end_offset)
    if high_watermark is not None and not log_start_offset <= high_watermark <= log_end_offset:
        high_watermark = log_start_offset
    log = Log(
        LogParts(
            topic,
            partition,
            settings,
            listed,
            producers,
            seams,
            deletion,
            log_start_offset=log_start_offset,
            recovery_point=min(opening.recovery_point, log_end_offset),
            last_stamp_ms=last_stamp_ms,
            has_epochs=opening.has_epochs,
            high_watermark=high_watermark,
            follows=follows,
        )
    )
    producers.enter_room()
    if log.recovery_point < log_end_offset:
        log.unflushed_since = seams.clock.monotonic()
    return log


class _Opening:
    """One partition folder while it is opened."""

    def __init__(
        self,
        path: Path,
        topic: str,
        partition: int,
        settings: TopicSettings,
        seams: Seams,
        gaps: bool,
        recovery_point: int,
        progress: Progress | None,
        on_torn: OnTorn | None,
    ) -> None:
        self.recovery_point = recovery_point
        """Offset below which everything is on stable storage."""
        self.has_epochs = False
        """Whether a leader epoch file exists."""
        self._checksums: dict[int, SegmentChecksums] = {}
        self._recovered = False
        """Whether everything from the recovery point on had to be read."""
        self._names_changed = False
        self._checksums_changed = False
        """Whether the checksum file differs from what is known of the segments."""
        self._new_checksums: set[int] = set()
        self._path = path
        self._topic = topic
        self._partition = partition
        self._log_name = {"topic": topic, "partition": partition}
        self._settings = settings
        self._seams = seams
        self._gaps = gaps
        self._progress = progress
        self._on_torn = on_torn

    def _observe(self, event: str, **fields: object) -> None:
        self._seams.observe(event, **self._log_name, **fields)

    def segments(
        self, log_start_offset: int, *, clean: bool, end_offset: int | None
    ) -> list[Segment]:
        """Return the segments of the log, recovered as far as necessary. The last one takes
        appends."""
        segments = self._find_segments()
        if not segments:
            self._names_changed = True
            return [Segment.create(self._path, log_start_offset, self._settings, self._seams)]
        if not clean:
            return self._recover(segments)
        if not self._open_active(segments[-1], end_offset):
            if end_offset is not None:
                return self._recover(segments, end_offset=end_offset)
            segments = self._recover(segments, len(segments) - 1)
        self.recovery_point = segments[-1].next_offset
        return segments

    def listed(self, segments: list[Segment], *, copied: bool) -> SegmentList:
        """Return the segment list, with what is known of the segments' files."""
        listed = SegmentList(
            self._path,
            tuple(segments),
            self._checksums,
            self._seams,
            topic=self._topic,
            partition=self._partition,
            gaps=self._gaps,
        )
        listed.copied = copied
        listed.names_changed = self._names_changed
        listed.checksums_changed = self._checksums_changed
        listed.unsynced_indexes = self._new_checksums
        return listed

    def producers(self, segments: list[Segment], *, follows: bool) -> LogProducers:
        """Load the state of the idempotent producers."""
        producers = LogProducers(self._path, self._seams, self._log_name)
        producers.follows = follows
        producers.load(segments, self._checksums, clean=not self._recovered)
        return producers

    def _find_segments(self) -> list[Segment]:  # noqa: C901 - a case a kind of file
        """Find the segments that have a log file, oldest first. Leftover files are removed."""
        files = self._seams.files
        names = files.names(self._path)
        bases = []
        for name in names:
            parsed = parse_segment_file(name)
            if name.endswith(UNFINISHED_SUFFIX) or name == UNFINISHED_EPOCHS:
                self._remove(name)
            elif parsed is None:
                if name not in _OTHER_FILES and parse_snapshot_name(name) is None:
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
        self.has_epochs = LEADER_EPOCHS in names
        if FILE_NAME in names:
            self._checksums = parse_checksums(files.read_bytes(self._path / FILE_NAME))
        segments = [
            Segment.existing(self._path, base, self._settings, self._seams)
            for base in sorted(bases)
        ]
        for segment, following in pairwise(segments):
            segment.next_offset = following.base_offset
        self._checksums = {
            base: checksums for base, checksums in self._checksums.items() if base in set(bases)
        }
        return segments

    def _remove(self, name: str) -> None:
        self._seams.files.unlink(self._path / name)
        self._names_changed = True

    def _open_active(self, active: Segment, end_offset: int | None) -> bool:
        """Open the last segment of a log that was closed cleanly. Return false if the segment is
        not as it was at that stop."""
        checksums = self._checksums.get(active.base_offset)
        if load_indexes(active, checksums):
            try:
                active.reopen()
            except HorologError:
                active.damaged = None  # Recovery reads it next.
                reason = "the last segment cannot be read to its end"
            else:
                misfit = _misfit(active, end_offset)
                if misfit is None:
                    return True
                reason = misfit
            self._observe("clean_stop_doubted", path=str(active.log_path), reason=reason)
        elif active.size_bytes:
            reason = "no checksum" if checksums is None else "checksum does not fit"
            self._observe("index_rebuilt", path=str(active.log_path), reason=reason)
        return False

    def _recover(
        self, segments: list[Segment], first: int | None = None, *, end_offset: int | None = None
    ) -> list[Segment]:
        """Read everything from the recovery point, or from segment number `first`, on. Return the
        segments that are left. `end_offset` is where the log ended, if known."""
        recovery = Recovery(
            self._path,
            self._seams,
            self._checksums,
            recovery_point=self.recovery_point,
            gaps=self._gaps,
            log_name=self._log_name,
            end_offset=end_offset,
            progress=self._progress,
            on_torn=self._on_torn,
        )
        self._recovered = first is None
        written = dict(self._checksums)
        left = recovery.run(segments, first)
        self._names_changed = self._names_changed or recovery.names_changed
        self._new_checksums |= recovery.new_checksums
        self._checksums_changed = bool(self._new_checksums) or self._checksums != written
        return left


def _misfit(active: Segment, end_offset: int | None) -> str | None:
    """Return what contradicts a clean stop in the last segment, or `None`."""
    if end_offset not in (None, active.next_offset):
        return f"the log ends at offset {active.next_offset}, not at {end_offset}"
    index = active.offset_index
    last = index.entry(len(index) - 1)[0] if len(index) else -1
    if last >= active.next_offset:
        return f"the offset index knows of offset {last}, the log ends at {active.next_offset}"
    return None
