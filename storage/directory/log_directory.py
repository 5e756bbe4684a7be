"""The directory of all logs: opens and closes them, creates and deletes topics.

The directory and its logs are used by the event loop's thread. After an unclean stop, logs are
recovered at the start. After a clean stop, a log is opened on first use.
`directory_opening.open_directory` opens a directory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from ...config.broker import BrokerSettings
from ...config.topic import TopicSettings
from ...protocol.errors import StorageError, UnknownTopicOrPartition
from ...values import value_class
from ..files import RETRIABLE_ERRORS, Files, replace_file
from ..log.log import Log
from ..log.retention import RemovedRange
from ..metadata.metadata_log import MetadataLog, leading_metadata, open_metadata
from ..names import is_id, random_id
from ..producers.producer_ids import ProducerIds
from ..seams import Seams
from ..stepped_change import SteppedChange, Steps
from .checkpoints import Checkpoints, Offsets
from .clean_shutdown import leave_marker
from .deletion import DeletionQueue
from .journal import Cause, Removal
from .known_files import CLUSTER_ID_FILE, IDENTITY_FILE
from .lock import DirectoryLock
from .log_table import LogTable, Partition
from .position_table import PositionReading, PositionTable
from .reserve import Reserve
from .startup import Startup
from .topic_changes import TopicChanges
from .topics import TopicEntry, TopicRegistry
from .truncations import Truncations


@value_class
class DirectoryParts:
    """The parts of a data directory when its topics are known and no log is open yet."""

    settings: BrokerSettings
    lock: DirectoryLock
    seams: Seams
    deletions: DeletionQueue
    reserve: Reserve
    checkpoints: Checkpoints
    producer_ids: ProducerIds
    startup: Startup
    registry: TopicRegistry
    stopped_cleanly: bool
    """Whether the previous stop was clean, or there was none."""


class LogDirectory:
    """The topics of one data directory and their logs. Made by `open_directory`."""

    def __init__(self, parts: DirectoryParts) -> None:
        """`recover` must be called before logs are used."""
        seams = parts.seams
        self._path = parts.settings.data_dir
        self._lock: DirectoryLock | None = parts.lock
        self._last_seen_ms = parts.lock.last_seen_ms
        self._seams = seams
        self._files = seams.files
        self._observe = seams.observe
        self._cluster_id: str | None = None
        self.stopped_cleanly = parts.stopped_cleanly
        """Whether the previous stop was clean, or there was none."""
        self.missing: frozenset[Partition] = frozenset(parts.startup.missing)
        """Partitions whose folders were missing at the start."""
        self.ends_at_start: Mapping[Partition, int] = {}
        """For a cluster member, lower bounds of the log end offsets before this start."""
        self.deletions = parts.deletions
        self.committed = PositionReading(
            PositionTable(), max_bytes=parts.settings.max_positions_bytes
        )
        """The positions of consumers, for reading."""
        self._metadata: MetadataLog | None = None
        self.producer_ids = parts.producer_ids
        """Ids for idempotent producers; each is given out once."""
        self.reserve = parts.reserve
        """Disk space reserved for operations that a full disk must not prevent."""
        self._checkpoints = parts.checkpoints
        if self._checkpoints.high_watermarks is not None:
            self.ends_at_start = dict(self._checkpoints.recovery_points)
        self._startup = parts.startup
        self._registry = parts.registry
        self.truncations = Truncations(self._path, seams.files)
        """What was truncated at this broker."""
        self._logs = LogTable(
            seams,
            self._path,
            self._registry,
            self._note_gaps,
            self._note_cut,
            self._note_truncation,
            self._known_watermarks(),
        )
        self.opened_log = self._logs.find
        """Returns the log of a partition if it is open."""
        self._changes = TopicChanges(
            seams,
            self._path,
            self._registry,
            self._logs,
            self._checkpoints,
            self.reserve,
        )
        if parts.startup.metadata is not None:
            self._metadata = leading_metadata(
                parts.startup.metadata, seams, self._changes, self.committed, self.reserve
            )

    @property
    def metadata(self) -> MetadataLog:
        """The metadata log. At a cluster member `open_metadata` must have been called."""
        assert self._metadata is not None
        return self._metadata

    def recover(self, unclean: frozenset[Partition] | None) -> None:
        """Add a log for every partition, and recover those that were not closed cleanly: those in
        `unclean`, or all if it is `None`. Raises `OSError`."""
        recovery_points = self._checkpoints.recovery_points
        log_starts = self._checkpoints.log_starts
        for key in self.partitions():
            if key in self._startup.made:
                self._logs.add(key, clean=True)
                continue
            # A folder that was copied here while no broker ran has no recovery point.
            clean = unclean is not None and key not in unclean and key in recovery_points
            self._logs.add(
                key,
                recovery_point=recovery_points.get(key),
                log_start_offset=log_starts.get(key, 0),
                clean=clean,
            )
        self._logs.recover()
        with suppress(OSError):  # Requests about truncations read the file again, and say why.
            self.truncations.load()
            self._renew_truncations()
        if self._startup.made or self._checkpoints.partitions() - set(self.partitions()):
            # Offsets of logs that are gone must not be taken for those of later ones.
            try:
                self.reserve.retrying(self._write_checkpoints)
            except OSError as error:
                self._observe("checkpoint_failed", error=str(error))

    def _renew_truncations(self) -> None:
        """Give the ids that this start gave to topics to their truncations. Raises `OSError`."""
        metadata = self._startup.metadata
        former_ids = {} if metadata is None else metadata.state.former_ids
        for name in self._registry.names():
            topic_id = self._registry.get(name).topic_id
            for former_id in {"", former_ids.get(name, "")} if topic_id else ():
                self.truncations.renew(name, former_id, topic_id)

    def open_metadata(self) -> MetadataLog:
        """Open the metadata log of a cluster member. If there is none, create it from the existing
        topics.

        Nothing is applied yet (`MetadataLog.next_change`). Raises `StorageError`, `OSError`.
        """
        assert self._metadata is None
        startup = self._startup
        self._metadata = metadata = open_metadata(
            self._path,
            self._seams,
            self._changes,
            self.committed,
            self.reserve,
            noted=startup.metadata_offset or 0,
            adopts=startup.lost,
        )
        if startup.lost:
            metadata.doubt("there was no topics file that could be read")
        elif startup.missing:
            metadata.doubt(f"{len(startup.missing)} folders of partitions were missing")
        return metadata

    def when_opened(self, call: Callable[[Log], None]) -> None:
        """Call `call` with every open log, and with each log opened later."""
        self._logs.on_opened = call
        for log in self._logs.opened():
            call(log)

    def _known_watermarks(self) -> Offsets | None:
        """Return the known high watermarks of the existing partitions; `None` for a
        single broker."""
        known = self._checkpoints.high_watermarks
        if known is None:
            return None
        return {key: known[key] for key in self.partitions() if key in known}

    def topics(self) -> Mapping[str, TopicEntry]:
        """A live view of the topics by name."""
        return self._registry.visible

    @property
    def topic_changes(self) -> int:
        """How often the topics changed since the start."""
        return self._registry.changes

    def partitions(self) -> Iterator[Partition]:
        """Yield every partition of every topic."""
        for entry in self._registry.visible.values():
            for partition in range(entry.partitions):
                yield entry.name, partition

    def log(self, topic: str, partition: int) -> Log:
        """Return the log of a partition. Open it if necessary.

        Raises `UnknownTopicOrPartition`, and the errors of opening it: `StorageError`,
        `UnsupportedForMessageFormat`, `InvalidConfig`.
        """
        log = self._logs.find((topic, partition))
        if log is not None:
            return log
        entry = self._registry.get(topic)
        if not 0 <= partition < entry.partitions:
            raise UnknownTopicOrPartition(
                f"topic {topic!r} has partitions 0 to {entry.partitions - 1}, not {partition}"
            )
        return self._logs.get((topic, partition))

    @property
    def last_seen_ms(self) -> int | None:
        """The last time that was passed to `seen` before this start, if known."""
        return self._last_seen_ms

    def seen(self, at_ms: int) -> None:
        """Record that the data is in use at `at_ms`, for the next start. Raises `OSError`."""
        if self._lock is not None:
            self._lock.seen(at_ms)

    @property
    def producer_states_bytes(self) -> int:
        """Memory used for the producers of the open logs."""
        return self._seams.producer_room.used_bytes

    def open_logs(self) -> Iterator[Log]:
        """Yield the logs that are open."""
        return iter(self._logs.opened())

    def topic_settings(self, name: str) -> TopicSettings:
        """Return the settings in force for a topic.

        Raises `UnknownTopicOrPartition`, and `InvalidConfig` if the topics file has invalid
        settings for it (`alter_topic` corrects that).
        """
        return self._registry.settings(name)

    @property
    def changes(self) -> TopicChanges:
        """Makes the changes that bring topics to the state of the metadata log."""
        return self._changes

    def create_topic(self, name: str, partitions: int, overrides: Mapping[str, str]) -> TopicEntry:
        """Create a topic. It is on stable storage when this returns.

        Raises `InvalidTopic`, `TopicAlreadyExists`, `InvalidPartitions`, `InvalidConfig`,
        `PolicyViolation` if there are too many topics, `StorageError`.
        """
        return self._led(self.metadata.topics.create(name, partitions, overrides))

    def create_partitions(self, name: str, partitions: int) -> TopicEntry:
        """Raise a topic's number of partitions. The change is on stable storage when this returns.

        Raises `UnknownTopicOrPartition`, `InvalidPartitions`, `StorageError`.
        """
        return self._led(self.metadata.topics.raise_partitions(name, partitions))

    def alter_topic(self, name: str, overrides: Mapping[str, str]) -> TopicEntry:
        """Replace the settings of a topic. Its logs use them from now on.

        Raises `UnknownTopicOrPartition`, `InvalidConfig`, `StorageError`.
        """
        return self._led(self.metadata.topics.alter(name, overrides))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages and the positions in it.

        The topic is deleted durably when this returns; its files are removed after
        `file.delete.delay.ms`. Raises `UnknownTopicOrPartition`, and `StorageError` if the disk
        fails: the next start, or the next change, then finishes the deletion.
        """
        self._led(self.metadata.topics.delete(name))

    def _led(self, steps: Steps[TopicEntry]) -> TopicEntry:
        """Carry out a change of a topic at once, at a single broker."""
        change = SteppedChange(steps)
        self.metadata.finish(change)
        return change.result()

    def _note_gaps(self, log: Log) -> None:
        """Store that a log may have gaps, before messages that leave one are appended."""
        self._changes.settle(log.topic)
        entry = self._registry.get(log.topic)
        if not entry.gaps:
            entries = self._registry.with_entry(replace(entry, gaps=True))
            try:
                self._registry.write(entries)
            except OSError as error:
                raise StorageError(f"the topics file cannot be written: {error}") from error
            self._registry.adopt(entries)

    def _note_cut(self, _: Log) -> None:
        """Store the lowered recovery point of a log, before the log is truncated."""
        self.write_checkpoints()

    def _note_truncation(self, topic: str, partition: int, removed: RemovedRange) -> None:
        """Record what is cut off. A disk that refuses that does not stop the truncation."""
        now_ms = self._seams.clock.now_ms()
        removal = Removal(
            *(Cause.TRUNCATION, removed.rule, topic, self._registry.get(topic).topic_id),
            *(partition, *removed[1:], now_ms, now_ms),
        )
        try:
            self.truncations.add(removal)
        except OSError as error:
            self._observe("journal_not_written", error=str(error), removals=1)

    def secure_log_starts(self, logs: Iterable[Log]) -> None:
        """Store the present log starts of `logs`, and their producer states, before the segments
        below them are dropped.

        May run in another thread. Raises `StorageError`.
        """
        try:
            for log in logs:
                with suppress(FileNotFoundError, UnknownTopicOrPartition):  # deleted meanwhile
                    self.reserve.retrying(log.producers.write_waiting)
                    self._files.sync_directory(log.path)
            self.reserve.retrying(self._write_checkpoints)
        except OSError as error:
            raise StorageError(f"the log starts cannot be written: {error}") from error

    def write_checkpoints(self) -> None:
        """Write the changed checkpoints, after syncing the append times below them.

        May run in another thread. Raises `StorageError`.
        """
        self._logs.secure_append_times()
        if self._metadata is not None:
            self._metadata.write_checkpoints()
        try:
            self._write_checkpoints()
        except OSError as error:
            raise StorageError(
                f"the checkpoints in {self._path} cannot be written: {error}"
            ) from error

    def _write_checkpoints(self) -> None:
        self._checkpoints.write(*self._logs.offsets())

    def cluster_id(self) -> str:
        """Return the id by which clients identify this cluster. Created on first use.

        If there is no room to store the id, the next start creates another one. Raises `OSError` if
        the id cannot be read, or cannot be stored for another reason.
        """
        if self._cluster_id is None:
            load = partial(load_cluster_id, self._files, self._path, self._seams.random)
            try:
                self._cluster_id = self.reserve.retrying(load)
            except OSError as error:
                if error.errno not in RETRIABLE_ERRORS:
                    raise
                self._observe("cluster_id_not_stored", error=str(error))
                self._cluster_id = random_id(self._seams.random)
        return self._cluster_id

    def keep_cluster_id(self, cluster_id: str) -> None:
        """Take over the cluster id of the leader. Raises `OSError`."""
        if cluster_id != self.cluster_id():
            store_cluster_id(self._files, self._path, cluster_id)
            self._cluster_id = cluster_id

    def close(self) -> None:
        """Close every log, then write the marker of a clean stop. A second call does nothing.

        Raises `StorageError` if something could not be closed. Everything else is closed all the
        same, and the next start recovers the rest.
        """
        if self._lock is None:
            return
        self._changes.settle_all()
        failed = self.reserve.stopping(self._logs.close)
        if self._metadata is not None:
            try:
                self.reserve.stopping(self._metadata.close)
            except (OSError, StorageError) as error:
                failed.append(f"{self._metadata.log.path}: {error}")
        self._seams.open_files.close()
        unclean = self._logs.unclean()
        try:
            self.reserve.retrying(self._write_checkpoints)
            self.reserve.retrying(partial(leave_marker, self._files, self._path, unclean))
        except OSError as error:
            failed.append(f"{self._path}: {error}")
        finally:
            self._lock.release()
            self._lock = None
        if failed:
            raise StorageError(f"the stop was not clean: {'; '.join(failed[:10])}")


def load_cluster_id(files: Files, directory: Path, random: Random) -> str:
    """Return the stored id. If the file is missing or invalid, make and store a new one.

    Raises `OSError`, and `StorageError` if a cluster member's file is invalid: with another id, the
    other members would take it for a member of another cluster.
    """
    path = directory / CLUSTER_ID_FILE
    if files.exists(path):
        stored = files.read_bytes(path).removesuffix(b"\n").decode(errors="replace")
        if is_id(stored):
            return stored
        if files.exists(directory / IDENTITY_FILE):
            raise StorageError(
                f"{path} holds no cluster id, but {stored[:60]!r}, and this broker is one of "
                "several: copy the file from the data directory of another one"
            )
    made = random_id(random)
    store_cluster_id(files, directory, made)
    return made


def store_cluster_id(files: Files, directory: Path, cluster_id: str) -> None:
    """Store an id. Raises `OSError`."""
    replace_file(files, directory / CLUSTER_ID_FILE, f"{cluster_id}\n".encode())
