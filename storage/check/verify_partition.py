"""Checking one partition's folder: every segment, what belongs to it, and what lies between."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..files import Files
from ..index.index_checksums import FILE_NAME as INDEX_CHECKSUMS
from ..index.index_checksums import following_base
from ..log.epoch_history import MalformedEpochs, decode_epochs
from ..names import LEADER_EPOCHS, is_deleted_folder_name, parse_segment_file
from ..producers.producer_snapshots import parse_snapshot_name
from .findings import NOTHING, REPAIR, Finding, cannot_read, limited
from .verify_checksums import read_checksums
from .verify_segment import NeighbourSegments, SegmentCheck

_COPIED_ANEW: Final = "nothing on a single broker; a cluster member copies this partition anew"


class PartitionCheck:
    """One partition's folder. `end_offset` is right once `run` is exhausted."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        gaps: bool,
        recovery_point: int | None,
        *,
        clean: bool = False,
    ) -> None:
        """`recovery_point` is `None` when it is not known; `clean` says that the log was stopped
        cleanly."""
        self._files = files
        self._directory = directory
        self._gaps = gaps
        self._recovery_point = recovery_point
        self._clean = clean
        self.end_offset: int | None = None
        """Log end offset; `None` when the log could not be read to its end."""

    def run(self) -> Iterator[Finding]:
        base_offsets: list[int] = []
        for name in self._files.names(self._directory):
            segment_file = parse_segment_file(name)
            if segment_file is not None and not segment_file.suffix:
                if segment_file.kind == "log":
                    base_offsets.append(segment_file.base_offset)
            elif name == LEADER_EPOCHS:
                yield from _check_epochs(self._files, self._directory / name)
            elif name != INDEX_CHECKSUMS and not parse_snapshot_name(name):
                yield listed(self._directory / name)
        yield from self._orphans(set(base_offsets))
        checksums, found = read_checksums(self._files, self._directory)
        yield from found
        previous: SegmentCheck | None = None
        for number, base_offset in enumerate(base_offsets):
            if previous is not None and previous.complete:
                yield from self._between(previous.next_offset, base_offset)
            following = next(iter(base_offsets[number + 1 :]), None)
            check = SegmentCheck(
                self._files,
                self._directory,
                base_offset,
                NeighbourSegments(
                    self._gaps,
                    following,
                    self._recovery_point,
                    checksums.get(base_offset),
                    self._clean,
                    following_base(checksums, base_offset, following),
                ),
            )
            yield from limited(check.run())
            previous = check
        if previous is not None and previous.complete:
            self.end_offset = previous.next_offset

    def _orphans(self, base_offsets: set[int]) -> Iterator[Finding]:
        for name in self._files.names(self._directory):
            found = parse_segment_file(name)
            if found is None or found.suffix or found.base_offset in base_offsets:
                continue
            yield Finding(
                self._directory / name,
                None,
                "it belongs to a segment whose .log is not there",
                "nothing: it is not used",
                error=False,
            )

    def _between(self, end_offset: int, base_offset: int) -> Iterator[Finding]:
        path = self._directory / f"{base_offset:020d}.log"
        if base_offset < end_offset:
            rule = f"the segment overlaps the one before it, which ends at offset {end_offset}"
            yield Finding(path, None, rule, REPAIR)
        elif base_offset > end_offset and not self._gaps:
            rule = f"the segment before it ends at offset {end_offset}, and this log has no gaps"
            yield Finding(path, None, rule, REPAIR)


def _check_epochs(files: Files, path: Path) -> Iterator[Finding]:
    """Whether the file at `path` can be believed. It may name epochs that begin at the log end, or
    behind it, where a crash took their messages."""
    try:
        decode_epochs(files.read_bytes(path))
    except OSError as error:
        yield cannot_read(path, error)
    except MalformedEpochs as error:
        yield Finding(path, None, str(error), _COPIED_ANEW, error=False)


def listed(path: Path) -> Finding:
    """What is said of a file that is none of those that a broker goes by."""
    if path.name.endswith(".broken"):
        rule = "bytes that were set aside because they could not be believed"
    elif path.name.endswith(".deleted") or is_deleted_folder_name(path.name):
        rule = "deleted, and waiting to be removed"
    else:
        rule = "not a file of ours: it is left alone"
    return Finding(path, None, rule, NOTHING, error=False)
