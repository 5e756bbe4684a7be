"""The directory of all logs: opened, filled, emptied and closed as one.

Owned by one thread, the event loop's, as its logs are. Opening recovers what an unclean stop left;
after a clean one a log is opened when it is first used.
"""

import errno
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

from ..clock import Clock
from ..config.broker import BrokerSettings
from ..config.topic import TopicSettings
from ..protocol.errors import (
    HorologError,
    InvalidConfig,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from .checkpoints import Checkpoints, Offsets
from .clean_shutdown import leave_marker, take_marker
from .deletion import DeletionQueue
from .events import Observer
from .files import Files
from .lock import DirectoryLock
from .log import Log
from .log_opening import open_log
from .names import folder_name
from .open_files import OpenFiles
from .positions import Positions
from .seams import Seams
from .startup import Startup, rename_deleted
from .topic_registry import TopicRegistry
from .topics import TopicEntry

_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT})
"""Reasons for which a log cannot be opened now but perhaps a moment later."""

Partition = tuple[str, int]


class LogDirectory:
    """The topics of one data directory and their logs. Made by `open`."""

    def __init__(
        self, settings: BrokerSettings, lock: DirectoryLock, seams: Seams, deletions: DeletionQueue
    ) -> None:
        self._settings = settings
        self._path = settings.data_dir
        self._lock: DirectoryLock | None = lock
        self._seams = seams
        self._files = seams.files
        self._observe = seams.observe
        self.deletions = deletions
        self.positions: Positions
        self._checkpoints: Checkpoints
        self._registry: TopicRegistry
        self._logs: dict[Partition, Log] = {}
        self._failures: dict[Partition, HorologError] = {}
        """Why logs could not be opened, for the requests that ask for them."""
        self._unclean: set[Partition] = set()
        """Those that have to be recovered when they are opened."""
        self._recovery_points: Offsets = {}
        self._log_starts: Offsets = {}
        """Of logs that are not open."""

    @classmethod
    def open(
        cls,
        settings: BrokerSettings,
        *,
        clock: Clock,
        files: Files,
        observe: Observer,
        random: Random,
    ) -> "LogDirectory":
        """Open the data directory, making it when it is missing.

        Raises `StorageError` when another process holds it, when a later version wrote it, or when
        it cannot be read and written; nothing is held then. A log that cannot be opened does not
        raise: it answers its error to each request.
        """
        path = settings.data_dir
        try:
            files.make_directory(path)
            lock = DirectoryLock(files, path)
        except OSError as error:
            raise _unusable(path, error) from error
        deletions = DeletionQueue(files, clock, observe)
        open_files = OpenFiles(files, settings.max_open_files)
        seams = Seams(clock, files, observe, deletions, open_files, random)
        directory = cls(settings, lock, seams, deletions)
        try:
            directory._start()
        except BaseException as error:
            open_files.close()
            lock.release()
            if isinstance(error, OSError):
                raise _unusable(path, error) from error
            raise
        return directory

    def _start(self) -> None:
        # The marker goes first: from here on a crash at any point is an unclean stop.
        unclean = take_marker(self._files, self._path)
        self._checkpoints = Checkpoints(self._files, self._path, self._observe)
        self.positions = Positions(self._files, self._path, self._observe)
        startup = Startup(self._seams, self._settings, self.positions)
        entries = startup.run()
        self._registry = TopicRegistry(self._files, self._path, self._settings, entries)
        recovery_points, log_starts = (
            self._checkpoints.recovery_points,
            self._checkpoints.log_starts,
        )
        for key in self.partitions():
            made_anew = key in startup.missing
            self._recovery_points[key] = 0 if made_anew else recovery_points.get(key, 0)
            self._log_starts[key] = 0 if made_anew else log_starts.get(key, 0)
            # A folder that came from elsewhere while no broker ran has no recovery point.
            if unclean is None or key in unclean or key not in recovery_points:
                self._unclean.add(key)
        for key in sorted(self._unclean):
            with suppress(HorologError):
                self._open_log(key)
        if startup.missing or self._checkpoints.partitions() - self._recovery_points.keys():
            # Offsets of logs that are gone must not be taken for those of later ones.
            try:
                self._write_checkpoints()
            except OSError as error:
                self._observe("checkpoint_failed", error=str(error))

    def topics(self) -> Mapping[str, TopicEntry]:
        """The topics by name, as they are now and will be."""
        return self._registry.visible

    def partitions(self) -> Iterator[Partition]:
        """Every partition of every topic."""
        for entry in self._registry.visible.values():
            for partition in range(entry.partitions):
                yield entry.name, partition

    def log(self, topic: str, partition: int) -> Log:
        """The log of a partition, opened when it was not.

        Raises `UnknownTopicOrPartition`, and what opening it raised: `StorageError`,
        `UnsupportedForMessageFormat`, `InvalidConfig`.
        """
        log = self._logs.get((topic, partition))
        if log is not None:
            return log
        entry = self._registry.get(topic)
        if not 0 <= partition < entry.partitions:
            raise UnknownTopicOrPartition(
                f"topic {topic!r} has partitions 0 to {entry.partitions - 1}, not {partition}"
            )
        failure = self._failures.get((topic, partition))
        if failure is not None:
            # A new one each time: an exception keeps every traceback that it was raised with.
            raise type(failure)(failure.message)
        return self._open_log((topic, partition))

    def open_logs(self) -> Iterator[Log]:
        """The logs that are open."""
        return iter(list(self._logs.values()))

    def topic_settings(self, name: str) -> TopicSettings:
        """What holds for a topic.

        Raises `UnknownTopicOrPartition`, and `InvalidConfig` when the topics file has settings for
        it that are not allowed (`alter_topic` puts that right).
        """
        return self._registry.settings(name)

    def create_topic(self, name: str, partitions: int, overrides: Mapping[str, str]) -> TopicEntry:
        """Make a topic; on stable storage when this returns.

        Raises `InvalidTopic`, `TopicAlreadyExists`, `InvalidPartitions`, `InvalidConfig`,
        `PolicyViolation` for one topic too many, `StorageError`.
        """
        entry = self._registry.check_new(name, partitions, overrides)
        made: list[Path] = []
        try:
            if any(topic == name for topic, _ in self._checkpoints.partitions()):
                # Offsets of a deleted topic of this name must not become the new one's.
                self._write_checkpoints()
            self._make_folders(entry, made)
            self._registry.put(entry)
        except OSError as error:
            for path in made:
                with suppress(OSError):
                    self._files.remove_directory(path)
            raise StorageError(f"topic {name!r} cannot be made: {error}") from error
        for partition in range(partitions):
            self._recovery_points[name, partition] = self._log_starts[name, partition] = 0
        self._observe("topic_created", topic=name, partitions=partitions)
        return entry

    def _make_folders(self, entry: TopicEntry, made: list[Path]) -> None:
        paths = [
            self._path / folder_name(entry.name, partition) for partition in range(entry.partitions)
        ]
        for path in paths:
            if self._files.exists(path) and self._files.names(path):
                raise TopicAlreadyExists(
                    f"there is a folder {path} with files in it; a restart adopts it as a topic"
                )
        for path in paths:
            made.append(path)
            self._files.make_directory(path)
        self._files.sync_directory(self._path)

    def alter_topic(self, name: str, overrides: Mapping[str, str]) -> TopicEntry:
        """Replace the settings of a topic; its logs go by them from now on.

        Raises `UnknownTopicOrPartition`, `InvalidConfig`, `StorageError`.
        """
        entry = self._registry.get(name)
        altered = replace(entry, overrides=self._registry.check_settings(overrides))
        try:
            self._registry.put(altered)
        except OSError as error:
            raise StorageError(f"topic {name!r} cannot be altered: {error}") from error
        for partition in range(altered.partitions):
            log = self._logs.get((name, partition))
            if log is not None:
                log.set_settings(self._registry.settings(name))
            elif isinstance(self._failures.get((name, partition)), InvalidConfig):
                del self._failures[name, partition]
        self._observe("topic_altered", topic=name, overrides=dict(altered.overrides))
        return altered

    def delete_topic(self, name: str) -> None:
        """Take a topic away with all its messages and the positions in it.

        It is gone at once, and for good when this returns; its bytes leave the disk after
        `file.delete.delay.ms`. Raises `UnknownTopicOrPartition`, and `StorageError` when the disk
        does not let it be finished: then the next start, or another call, does.
        """
        entry = replace(self._registry.find_any(name), deleting=True)
        delay_ms = 0
        with suppress(UnknownTopicOrPartition, InvalidConfig):
            delay_ms = self._registry.settings(name).file_delete_delay_ms
        try:
            self._registry.put(entry)
            self._forget_logs(entry)
            renamed = rename_deleted(self._files, self._path, entry, self._seams.random)
            self.deletions.add(renamed, self._seams.clock.now_ms() + delay_ms)
            self._write_checkpoints()
            self.positions.forget_topic(name)
            self._registry.drop(name)
        except OSError as error:
            raise StorageError(f"topic {name!r} cannot be deleted: {error}") from error
        self._observe("topic_deleted", topic=name, partitions=entry.partitions)

    def _forget_logs(self, entry: TopicEntry) -> None:
        for partition in range(entry.partitions):
            key = (entry.name, partition)
            log = self._logs.pop(key, None)
            if log is not None:
                # Its files are about to go: how well they could be closed does not matter.
                with suppress(OSError, HorologError):
                    log.close()
            self._failures.pop(key, None)
            self._unclean.discard(key)
            self._recovery_points.pop(key, None)
            self._log_starts.pop(key, None)

    def _open_log(self, key: Partition) -> Log:
        """Open a log. A failure that will not pass by itself is kept for those who ask later."""
        topic, partition = key
        clean = key not in self._unclean
        began = self._seams.clock.monotonic()
        path = self._path / folder_name(topic, partition)
        passing = False
        try:
            log = open_log(
                path,
                topic,
                partition,
                self._registry.settings(topic),
                self._seams,
                clean=clean,
                recovery_point=self._recovery_points.get(key, 0),
                log_start_offset=self._log_starts.get(key, 0),
                gaps=self._registry.get(topic).gaps,
            )
        except OSError as error:
            passing = clean and error.errno in _PASSING
            failure: HorologError = StorageError(
                f"{path}: the log cannot be opened: {error}; once that is put right, restart the "
                "broker"
            )
        except HorologError as error:
            failure = error
        except Exception as error:
            # A bug that one log's bytes bring out must not keep all the others from being served.
            failure = StorageError(f"{path}: the log cannot be opened: {error!r}")
        else:
            self._opened(key, log, clean, began)
            return log
        if not passing:
            self._failures[key] = failure
            self._unclean.add(key)
        self._observe(
            "log_open_failed", topic=topic, partition=partition, path=str(path), error=str(failure)
        )
        raise type(failure)(failure.message) from failure

    def _opened(self, key: Partition, log: Log, clean: bool, began: float) -> None:
        self._logs[key] = log
        self._unclean.discard(key)
        log.on_gaps = self._note_gaps
        if not clean:
            self._observe(
                "log_recovered",
                topic=log.topic,
                partition=log.partition,
                log_end_offset=log.log_end_offset,
                ms=round((self._seams.clock.monotonic() - began) * 1000),
            )

    def _note_gaps(self, log: Log) -> None:
        """Remember that a log took bytes from elsewhere, before it does."""
        entry = self._registry.get(log.topic)
        if not entry.gaps:
            try:
                self._registry.put(replace(entry, gaps=True))
            except OSError as error:
                raise StorageError(f"the topics file cannot be written: {error}") from error

    def write_checkpoints(self) -> None:
        """Write the checkpoints that have changed. Raises `StorageError`."""
        try:
            self._write_checkpoints()
        except OSError as error:
            raise StorageError(
                f"the checkpoints in {self._path} cannot be written: {error}"
            ) from error

    def _write_checkpoints(self) -> None:
        recovery_points, log_starts = dict(self._recovery_points), dict(self._log_starts)
        for key, log in list(self._logs.items()):
            recovery_points[key] = log.recovery_point
            log_starts[key] = log.log_start_offset
        self._checkpoints.write(recovery_points, log_starts)

    def close(self) -> None:
        """Close every log, then leave the marker of a clean stop; does nothing the second time.

        Raises `StorageError` when something could not be closed. Everything else is closed then
        all the same, and the next start recovers what was not.
        """
        if self._lock is None:
            return
        failed = []
        for (topic, partition), log in list(self._logs.items()):
            try:
                log.close()
            except (OSError, HorologError) as error:
                self._unclean.add((topic, partition))
                failed.append(f"{topic}-{partition}: {error}")
                self._observe(
                    "log_close_failed", topic=topic, partition=partition, error=str(error)
                )
        self.positions.close()
        self._seams.open_files.close()
        try:
            self._write_checkpoints()
            leave_marker(self._files, self._path, self._unclean)
        except OSError as error:
            failed.append(f"{self._path}: {error}")
        finally:
            self._lock.release()
            self._lock = None
        if failed:
            raise StorageError(f"the stop was not clean: {'; '.join(failed[:10])}")


def _unusable(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"the data directory {path} cannot be used: {error}; make it readable and writable, or "
        "start with another --data-dir"
    )
