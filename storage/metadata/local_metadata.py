"""The metadata log of a single broker while it does not serve clients: at its start, and in
commands that change users, access rules and quotas of a stopped broker.

All records of the log are committed, because they are synced here and there is no other copy. If
the log cannot be read, or is known to lack confirmed records, it is kept under another name and
created anew, from the topics that the caller gives (those of the topics file) and the positions
and entries of the journal that could be read. Users, access rules and quotas are left out then,
because the missing records may have taken rights away: no user can log in until an administrator
adds them again. A log of a later version, or a disk that cannot be read, stops the start instead.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from typing import Final, TypeVar

from ...clock import SystemClock
from ...protocol.api.pieces import finish
from ...protocol.errors import HorologError, StorageError
from ...protocol.window_topics import base_of
from ..directory.deletion import DeletionQueue
from ..directory.known_files import IDENTITY_FILE, check_format
from ..directory.lock import DirectoryLock
from ..directory.position_records import StoredPosition
from ..directory.topics import (
    TOPICS_FILE,
    MalformedTopics,
    NewerTopics,
    TopicEntry,
    read_metadata_offset,
    read_topics,
)
from ..events import Observer
from ..files import Files
from ..log.log import Log
from ..open_files import OpenFiles
from ..seams import ProducerBudget, Seams
from .access_records import AccessRecord, AccessState, NewerRecord
from .current_state import CurrentState, append_record, encode_checked
from .folder import MetadataFolder
from .metadata_state import MetadataState, records_of
from .records import MetadataRecord
from .snapshot import MalformedState, Snapshot, encode_state

_OPEN_FILES: Final = 16

R = TypeVar("R")

_LOST: Final = (
    "topics are those of topics.json, positions those that could be read; users, access rules and "
    "quotas are gone: add them again"
)
_DAMAGED: Final = "topics, positions, users, access rules and quotas are as they were"


class _Unreadable(Exception):
    """The metadata log cannot be used."""

    def __init__(self, reason: str, state: MetadataState, *, whole: bool = False) -> None:
        """`state` results from the records that could be read; `whole` if these are all records."""
        super().__init__(reason)
        self.reason = reason
        self.state = state
        self.whole = whole


class LocalMetadata:
    """An open metadata log of a single broker, and the state that results from its records."""

    def __init__(
        self, folder: MetadataFolder, log: Log, current: CurrentState, state_offset: int
    ) -> None:
        self.folder = folder
        self.log = log
        self.current = current
        self.state_offset = state_offset
        """The offset of the first record that is not in the stored state."""

    @property
    def state(self) -> MetadataState:
        return self.current.state

    def record(self, records: Iterable[MetadataRecord]) -> None:
        """Append records; they are on stable storage, and in `state`, when this returns.

        Raises `InvalidRequest`, `StorageError`.
        """
        for record in records:
            append_record(self.log, finish(encode_checked(record)))
        self.log.flusher.flush()
        while self.current.take(_ignore) or self.current.paused:
            pass

    def change_access(self, plan: Callable[[], tuple[R, Sequence[AccessRecord]]]) -> R:
        """Change users, rules or quotas as `plan` says, durably. Raises `StorageError`, and the
        errors of `plan`."""
        outcome, records = plan()
        if records:
            self.record(records)
        return outcome

    def close(self) -> None:
        """Close the log cleanly. Raises `OSError`, `StorageError`."""
        self.log.close()
        self.folder.write_checkpoints(self.log)
        self.folder.leave_marker()


def open_local_metadata(
    directory: Path, seams: Seams, topics: Mapping[str, TopicEntry], noted: int
) -> LocalMetadata:
    """Open the metadata log of a single broker. If the log is missing or cannot be used, it is
    created from `topics`, each of which has an id.

    `noted` is the log's committed offset by the topics file, 0 for none. Raises `OSError`,
    `StorageError`.
    """
    folder = MetadataFolder(directory, seams)
    folder.finish_replacing()
    state, access, unreadable = MetadataState(), AccessState(), None
    if folder.exists:
        try:
            return _opened(folder, seams, noted)
        except _Unreadable as error:
            state, unreadable = error.state, error
            if error.whole:
                access, topics = state.access, state.topics
    elif topics:
        seams.observe("metadata_log_made", topics=len(topics), positions=0)
    positions = _positions_in(state, topics)
    records = records_of(topics.values(), positions, access, state.journal)
    kept = folder.make(noted, encode_state(noted, records))
    if unreadable is not None:
        seams.observe(
            "metadata_log_set_aside",
            path=str(folder.path),
            reason=unreadable.reason,
            kept=str(kept),
            consequence=_DAMAGED if unreadable.whole else _LOST,
        )
    folder = MetadataFolder(directory, seams)
    try:
        return _opened(folder, seams, noted)
    except _Unreadable as error:
        raise StorageError(f"{folder.path} cannot be used: {error.reason}") from error


def _positions_in(
    state: MetadataState, topics: Mapping[str, TopicEntry]
) -> Iterable[tuple[str, list[StoredPosition]]]:
    """Yield the positions of a state, by name, in topics that still exist with the same id."""
    same = {
        name
        for name, entry in topics.items()
        if name in state.topics and state.topics[name].topic_id == entry.topic_id
    }
    for name in state.positions.names():
        held = state.positions.of(name)
        yield name, [each for each in held if base_of(topics, each.topic) in same]


def _opened(folder: MetadataFolder, seams: Seams, noted: int) -> LocalMetadata:
    """Open an existing log. Raises `_Unreadable`, `OSError`, `StorageError`."""
    snapshot = None
    try:
        snapshot = folder.read_state()
        reason = ""
    except MalformedState as error:
        reason = f"the stored state: {error}"
    except OSError as error:
        raise StorageError(f"the state in {folder.path} cannot be read: {error}") from error
    known = MetadataState() if snapshot is None else snapshot.state
    try:
        log = folder.open(leads=True)
    except StorageError as error:
        if isinstance(error.__cause__, OSError):
            raise
        raise _Unreadable(error.message, known) from error
    try:
        return _replayed(folder, log, snapshot, reason, noted)
    except BaseException:
        with suppress(OSError, HorologError):
            log.close()
        raise


def _replayed(
    folder: MetadataFolder, log: Log, snapshot: Snapshot | None, reason: str, noted: int
) -> LocalMetadata:
    if log.recovery_point < log.log_end_offset:
        log.flusher.flush()
    if snapshot is None:
        snapshot = Snapshot(0, MetadataState())
        if log.log_start_offset > 0:
            raise _Unreadable(reason, snapshot.state)
        # The log begins at offset 0, so it has all records of the lost state.
        folder.replace_state(encode_state(0, ()))
    current = CurrentState(log)
    if snapshot.offset < log.log_start_offset:
        reason = f"the stored state ends at {snapshot.offset}, below {log.log_start_offset}"
        raise _Unreadable(reason, snapshot.state)
    try:
        current.begin(snapshot, log.log_end_offset)
    except StorageError as error:
        if isinstance(error.__cause__, NewerRecord | OSError):
            raise
        raise _Unreadable(error.message, current.state) from error
    reached = max(noted, snapshot.offset)
    if reached > log.log_end_offset:
        # A record after the log end was known to be committed.
        reason = f"the log ends at {log.log_end_offset}, and reached {reached}"
        raise _Unreadable(reason, current.state)
    if folder.lost:
        raise _Unreadable(folder.lost, current.state)
    if any(segment.damaged is not None for segment in log.segments):
        reason = "a part of the log that is not needed any more is damaged"
        raise _Unreadable(reason, current.state, whole=True)
    return LocalMetadata(folder, log, current, snapshot.offset)


def _ignore(_: str) -> None:
    """Do nothing: the caller compares topics with the state."""


@contextmanager
def offline_metadata(
    files: Files, directory: Path, observe: Observer, *, advice: str
) -> Iterator[LocalMetadata]:
    """Open the metadata log of a data directory, hold the directory's lock meanwhile, and close the
    log cleanly at the end.

    `advice` says how to ask a broker instead. Raises `StorageError`, `OSError`.
    """
    lock = DirectoryLock(files, directory, advice=f"stop that broker, or {advice}")
    try:
        check_format(files, directory)
        if files.exists(directory / IDENTITY_FILE):
            raise StorageError(
                f"{directory} is of a cluster member, whose users, rules and quotas are the "
                f"cluster's: {advice}"
            )
        seams = _seams(files, observe)
        metadata = _opened_offline(files, directory, seams)
        try:
            yield metadata
        except BaseException:
            with suppress(OSError, StorageError):
                metadata.close()
            raise
        metadata.close()
    finally:
        lock.release()


def _opened_offline(files: Files, directory: Path, seams: Seams) -> LocalMetadata:
    path = directory / TOPICS_FILE
    try:
        topics = read_topics(files, path)
    except (MalformedTopics, NewerTopics) as error:
        raise StorageError(f"{path} cannot be read: {error}; start the broker first") from error
    if not all(entry.topic_id for entry in topics.values()):
        raise StorageError(f"{path} has topics without ids: start the broker first")
    entries = {name: entry for name, entry in topics.items() if not entry.deleting}
    return open_local_metadata(directory, seams, entries, read_metadata_offset(files, path))


def _seams(files: Files, observe: Observer) -> Seams:
    clock = SystemClock()
    return Seams(
        clock,
        files,
        observe,
        DeletionQueue(files, clock, observe),
        OpenFiles(files, _OPEN_FILES),
        SystemRandom(),
        ProducerBudget(clock),
    )
