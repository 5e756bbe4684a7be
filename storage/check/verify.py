"""Checking stored files: the report of `horolog verify DIR`.

`DIR` is a data directory, the metadata log in one, or the folder of one partition. Only reads. A
broker may be running; what it writes meanwhile is not checked. Unknown files, and files that were
set aside, are listed but are not errors.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from ..directory.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    MalformedCheckpoint,
    Offsets,
    decode_checkpoint,
)
from ..directory.clean_shutdown import read_marker
from ..directory.known_files import (
    CLEAN_SHUTDOWN,
    EARLIER_FILES,
    IDENTITY_FILE,
    KNOWN_FILES,
    is_of_partition,
)
from ..directory.startup import UNFINISHED, unfinished_creations, unnamed_folders
from ..directory.topics import TOPICS_FILE, MalformedTopics, NewerTopics, TopicEntry, read_topics
from ..files import Files
from ..index.index_checksums import FILE_NAME as INDEX_CHECKSUMS
from ..index.index_checksums import following_base
from ..log.epoch_history import MalformedEpochs, decode_epochs
from ..metadata.folder import COPY_SUFFIX, METADATA_PARTITION, STATE_FILE
from ..metadata.snapshot import MalformedState, decode_state, pieces_of
from ..names import (
    LEADER_EPOCHS,
    METADATA_FOLDER,
    folder_name,
    is_deleted_folder_name,
    parse_folder_name,
    parse_segment_file,
)
from ..producers.producer_snapshots import parse_snapshot_name
from .findings import NOTHING, REPAIR, Finding, cannot_read, limited
from .verify_segment import NeighbourSegments, SegmentCheck, read_checksums

STATE_LOST: Final = (
    "the next start takes the topics from topics.json; a cluster member is in doubt until it has "
    "copied the metadata from its leader, a single broker goes on without users and rules"
)

_COPIED_ANEW: Final = "nothing on a single broker; a cluster member copies this partition anew"

__all__ = ["Finding", "verify"]

_DELETE_CHECKPOINT: Final = (
    "nothing: the next start goes on as if there were none and recovers every log in full"
)

_METADATA_FILES: Final = frozenset(
    {RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEAN_SHUTDOWN}
    | {STATE_FILE, STATE_FILE + COPY_SUFFIX, folder_name(*METADATA_PARTITION)}
)

Partition = tuple[str, int]


class PartitionCheck:
    """Check of one partition's folder. `end_offset` is valid once `run` is exhausted."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        gaps: bool,
        recovery_point: int | None,
        *,
        clean: bool = False,
    ) -> None:
        """`recovery_point` is `None` if not known. `clean` says that the log was
        stopped cleanly."""
        self._files = files
        self._directory = directory
        self._gaps = gaps
        self._recovery_point = recovery_point
        self._clean = clean
        self.end_offset: int | None = None
        """Log end offset; `None` if the log could not be read to its end."""

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
    """Check whether the file at `path` is valid. It may name epochs at or beyond the log end, whose
    messages a crash removed."""
    try:
        decode_epochs(files.read_bytes(path))
    except OSError as error:
        yield cannot_read(path, error)
    except MalformedEpochs as error:
        yield Finding(path, None, str(error), _COPIED_ANEW, error=False)


def listed(path: Path) -> Finding:
    """Return the finding for a file that a broker does not use."""
    if path.name.endswith(".broken"):
        rule = "bytes that were set aside because they could not be believed"
    elif path.name.endswith(".deleted") or is_deleted_folder_name(path.name):
        rule = "deleted, and waiting to be removed"
    else:
        rule = "not a file of ours: it is left alone"
    return Finding(path, None, rule, NOTHING, error=False)


def verify(files: Files, directory: Path) -> Iterator[Finding]:
    """Yield all findings in `directory`.

    Raises `ValueError` if it is neither a data directory nor a partition's folder, `OSError` if it
    cannot be listed.
    """
    if is_metadata_folder(files, directory):
        return _MetadataCheck(files, directory).run()
    if is_of_partition(files, directory):
        return _verify_alone(files, directory)
    return _DataDirectoryCheck(files, directory).run()


def _verify_alone(files: Files, directory: Path) -> Iterator[Finding]:
    """Check a partition's folder, using the files of the data directory around it."""
    key = parse_folder_name(directory.resolve().name)
    parent = directory.resolve().parent
    gaps = True
    recovery_point: int | None = None
    if key is not None:
        with suppress(OSError, ValueError):
            entry = read_topics(files, parent / TOPICS_FILE).get(key[0])
            gaps = entry is None or entry.gaps
        if is_metadata_folder(files, parent):
            gaps = key != METADATA_PARTITION
        with suppress(OSError, ValueError):
            content = files.read_bytes(parent / RECOVERY_POINTS)
            recovery_point = decode_checkpoint(content).get(key)
    unclean = read_marker(files, parent) if recovery_point is not None else None
    clean = unclean is not None and key not in unclean
    check = PartitionCheck(files, directory, gaps, recovery_point, clean=clean)
    yield from check.run()


class _LogsCheck:
    """Check of a folder with partition logs, and of the files that concern all of them."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._found: list[Finding] = []
        self._recovery_points = self._checkpoint(RECOVERY_POINTS)
        self._log_starts = self._checkpoint(LOG_START_OFFSETS)
        self._check_watermarks()
        self._unclean = self._marker()

    def _error(self, name: str, position: int | None, rule: str, advice: str) -> None:
        self._found.append(Finding(self._directory / name, position, rule, advice))

    def _checkpoint(self, name: str) -> Offsets:
        path = self._directory / name
        if not self._files.exists(path):
            return {}
        try:
            return decode_checkpoint(self._files.read_bytes(path))
        except (OSError, MalformedCheckpoint) as error:
            self._error(name, None, str(error), _DELETE_CHECKPOINT)
            return {}

    def _check_watermarks(self) -> None:
        path = self._directory / HIGH_WATERMARKS
        if self._files.exists(path):
            try:
                decode_checkpoint(self._files.read_bytes(path))
            except (OSError, MalformedCheckpoint) as error:
                advice = "nothing: readers of a cluster member wait for its leader"
                self._found.append(Finding(path, None, str(error), advice, error=False))

    def _marker(self) -> frozenset[Partition] | None:
        unclean = read_marker(self._files, self._directory)
        if unclean is None and self._files.exists(self._directory / CLEAN_SHUTDOWN):
            rule = "it is neither empty nor a list of partitions"
            advice = "nothing: the next start recovers every log, as after a crash"
            self._error(CLEAN_SHUTDOWN, None, rule, advice)
        return unclean

    def _check_partition(self, key: Partition, path: Path, *, gaps: bool) -> Iterator[Finding]:
        unclean, points = self._unclean, self._recovery_points
        clean = unclean is not None and key not in unclean and key in points
        check = PartitionCheck(self._files, path, gaps, points.get(key), clean=clean)
        yield from check.run()
        if check.end_offset is not None:
            yield from self._past_end(RECOVERY_POINTS, points, key, check.end_offset)
            yield from self._past_end(LOG_START_OFFSETS, self._log_starts, key, check.end_offset)

    def _past_end(
        self, name: str, offsets: Offsets, key: Partition, end_offset: int
    ) -> Iterator[Finding]:
        offset = offsets.get(key, 0)
        if offset > end_offset:
            yield Finding(
                self._directory / name,
                None,
                f"{key[0]} {key[1]} has offset {offset}, but the log ends at {end_offset}",
                "find out where the messages between went; the broker uses the log",
            )


class _MetadataCheck(_LogsCheck):
    """The metadata log: its offsets never jump."""

    def run(self) -> Iterator[Finding]:
        yield from self._found
        yield from check_state(self._files, self._directory / STATE_FILE)
        for name in self._files.names(self._directory):
            if name not in _METADATA_FILES:
                yield listed(self._directory / name)
        path = self._directory / folder_name(*METADATA_PARTITION)
        if self._files.exists(path):
            yield from self._check_partition(METADATA_PARTITION, path, gaps=False)
        else:
            rule = "the metadata log has no folder"
            advice = f"put it back; else {STATE_LOST}"
            yield Finding(path, None, rule, advice)


class _DataDirectoryCheck(_LogsCheck):
    def __init__(self, files: Files, directory: Path) -> None:
        super().__init__(files, directory)
        self._metadata_path = directory / METADATA_FOLDER
        self._has_metadata = files.exists(self._metadata_path)
        self._is_member = files.exists(directory / IDENTITY_FILE)

    def run(self) -> Iterator[Finding]:
        known = self._topics()
        topics = known or {}
        self._check_format()
        yield from self._found
        folders: dict[Partition, Path] = {}
        for name in self._files.names(self._directory):
            path = self._directory / name
            key = parse_folder_name(name)
            if key is not None and self._files.is_directory(path):
                folders[key] = path
            elif name not in KNOWN_FILES:
                yield listed(path)
        if self._files.is_directory(self._metadata_path):
            yield from _MetadataCheck(self._files, self._metadata_path).run()
        elif self._has_metadata:
            yield Finding(self._metadata_path, None, "it is not a folder", "move it elsewhere")
        yield from self._missing_folders(topics, folders)
        yield from self._check_folders(folders, topics, has_topics=known is not None)

    def _check_folders(
        self,
        folders: Mapping[Partition, Path],
        topics: Mapping[str, TopicEntry],
        *,
        has_topics: bool,
    ) -> Iterator[Finding]:
        unnamed = unnamed_folders(folders, topics)
        unfinished = set()
        if has_topics:
            has_file = self._files.exists(self._directory / TOPICS_FILE)
            unfinished = unfinished_creations(
                self._files, self._directory, unnamed, has_file=has_file
            )
        adopts = "adopts it"
        if self._has_metadata:
            named = f"unless {METADATA_FOLDER} has it"
            adopts = f"asks {METADATA_FOLDER}" if self._is_member else f"adopts it {named}"
        for key, path in folders.items():
            entry = topics.get(key[0])
            if key in unnamed:
                rule = f"{TOPICS_FILE} does not have this partition: the next start {adopts}"
                rule = UNFINISHED if key in unfinished else rule
                yield Finding(path, None, rule, NOTHING, error=False)
            yield from self._check_partition(key, path, gaps=entry is None or entry.gaps)

    def _check_format(self) -> None:
        for name in sorted(EARLIER_FILES):
            if self._files.exists(self._directory / name):
                rule = f"an earlier build wrote it; this one keeps that in {METADATA_FOLDER}"
                advice = "move it elsewhere: a broker does not start beside it"
                self._error(name, None, rule, advice)

    def _topics(self) -> Mapping[str, TopicEntry] | None:
        """Return the topics of the topics file; `None` if it cannot be read."""
        try:
            return read_topics(self._files, self._directory / TOPICS_FILE)
        except (OSError, MalformedTopics, NewerTopics) as error:
            advice = "put it right, or put back a copy of it"
            if self._has_metadata:
                advice = f"nothing: the next start makes it again from {METADATA_FOLDER}"
            self._error(TOPICS_FILE, None, str(error), advice)
            return None

    def _missing_folders(
        self, topics: Mapping[str, TopicEntry], folders: Mapping[Partition, Path]
    ) -> Iterator[Finding]:
        for name, entry in topics.items():
            for partition in range(0 if entry.deleting else entry.partitions):
                if (name, partition) not in folders:
                    yield Finding(
                        self._directory / folder_name(name, partition),
                        None,
                        f"{TOPICS_FILE} has this partition, but its folder is not there",
                        "put the folder back; else the next start makes an empty one",
                    )


def is_metadata_folder(files: Files, directory: Path) -> bool:
    """Whether a folder is the `metadata-log` of a data directory."""
    if directory.resolve().name != METADATA_FOLDER:
        return False
    owned = (STATE_FILE, folder_name(*METADATA_PARTITION))
    return any(files.exists(directory / name) for name in owned)


def check_state(files: Files, path: Path) -> Iterator[Finding]:
    """Check whether the stored state at `path` is complete. A missing state has the same
    consequences as an unreadable one, but there is nothing to correct."""
    if not files.exists(path):
        rule = "the stored state is missing"
        yield Finding(path, None, rule, f"nothing: {STATE_LOST}", error=False)
        return
    try:
        with closing(files.open(path, read_only=True)) as file:
            decode_state(pieces_of(file))
    except OSError as error:
        yield cannot_read(path, error)
    except MalformedState as error:
        rule = f"the stored state cannot be read: {error}"
        yield Finding(path, None, rule, f"nothing: {STATE_LOST}")
