"""A data directory that tests open, stop, kill and open again."""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from random import Random

from ..config.broker import BrokerSettings, broker_settings
from ..protocol.records.kernel import walk
from ..protocol.records.messages.sets import records
from ..storage.directory.directory_opening import open_directory
from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.position_records import StoredPosition
from ..storage.directory.topics import TopicEntry
from ..storage.files import Files, SystemFiles
from ..storage.log.log import Log
from ..storage.metadata.records import PositionsCommitted
from ..storage.names import random_id
from ..storage.read import reader
from ..storage.stepped_change import SteppedChange
from .clock import ManualClock
from .logs import RecordedEvents, timed_set

_MAX_BYTES = 1 << 30


@lru_cache(maxsize=16)
def _settings_of(given: tuple[tuple[str, str], ...]) -> BrokerSettings:
    """Parse settings; cached, because a test of every crash opens a directory hundreds of times."""
    return broker_settings(dict(given))


class DataDirectory:
    """A data directory with a clock that stands still, recorded events and settings to choose."""

    def __init__(self, path: Path, **settings: object) -> None:
        """`settings` are the broker's, named with underscores. The directory is not opened yet."""
        self.path = path
        self.clock = ManualClock()
        self.events = RecordedEvents()
        self.files: Files = SystemFiles()
        self.random = Random(1)
        """Continues from one opening to the next, so that no random number is repeated."""
        self.settings = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.member = False
        """Whether the directory is that of a cluster member."""
        self._directory: LogDirectory | None = None

    @property
    def directory(self) -> LogDirectory:
        """The directory that was opened last."""
        assert self._directory is not None
        return self._directory

    def open(self) -> LogDirectory:
        """Open the directory. Events recorded before are dropped."""
        self.events.seen.clear()
        given = {"retention.ms": "-1"} | self.settings | {"data.dir": str(self.path)}
        self._directory = open_directory(
            _settings_of(tuple(given.items())),
            clock=self.clock,
            files=self.files,
            observe=self.events,
            random=self.random,
            member=self.member,
        )
        return self._directory

    def close(self) -> None:
        """Close the directory cleanly."""
        self.directory.close()

    def restart(self) -> LogDirectory:
        """Close the directory cleanly, and open it again."""
        self.close()
        return self.open()

    def append(self, topic: str, *timestamps_ms: int, partition: int = 0) -> None:
        """Append one set, with a message for each timestamp."""
        self.directory.log(topic, partition).appender.append(timed_set(*timestamps_ms))

    def commit(self, name: str, *positions: StoredPosition) -> None:
        """Commit positions; on stable storage, and to be read, when this returns."""
        metadata = self.directory.metadata
        ids = {topic: entry.topic_id for topic, entry in metadata.state.topics.items()}
        metadata.append(PositionsCommitted(name, [(ids[each.topic], each) for each in positions]))
        metadata.log.flusher.flush()
        metadata.apply()

    def make_topic(self, name: str, partitions: int, overrides: Mapping[str, str]) -> LogDirectory:
        """Make a topic at a cluster member, as if a leader had recorded it."""
        topic_id = random_id(self.random)
        entry = TopicEntry(name=name, partitions=partitions, topic_id=topic_id, overrides=overrides)
        self._match(name, entry)
        return self.directory

    def drop_topic(self, name: str) -> None:
        """Delete a topic at a cluster member, as if a leader had recorded it."""
        self._match(name, None)

    def _match(self, name: str, entry: TopicEntry | None) -> None:
        change = SteppedChange(self.directory.changes.match(name, entry, lambda *_: None))
        change.finish()
        change.result()

    def opened_with_topic(
        self, name: str, partitions: int, overrides: Mapping[str, str]
    ) -> LogDirectory:
        """`open`, then `make_topic`."""
        self.open()
        return self.make_topic(name, partitions, overrides)

    def times(self, topic: str, partition: int = 0) -> list[int]:
        """Return the timestamps of all messages of a log, in order."""
        return [message[1] for message in read_messages(self.directory.log(topic, partition))]

    def names(self) -> list[str]:
        """Return the names in the directory."""
        return sorted(path.name for path in self.path.iterdir())

    def topics_file(self) -> dict[str, dict[str, object]]:
        """Return the entry of each topic in the topics file."""
        document = json.loads((self.path / "topics.json").read_text())
        topics: dict[str, dict[str, object]] = document["topics"]
        return topics

    def copy(self, path: Path, **settings: object) -> "DataDirectory":
        """Copy the directory to another path, in the state that `kill -9` would leave now."""
        copy_as_killed(self.path, path)
        copied = DataDirectory(path, **settings)
        copied.settings = self.settings | copied.settings
        copied.clock = self.clock
        copied.member = self.member
        return copied


def copy_as_killed(source: Path, target: Path) -> None:
    """Copy a data directory, in the state that `kill -9` would leave now. Files that a running
    broker renames or removes meanwhile are left out."""

    def copy(file: str, copied: str) -> None:
        with suppress(FileNotFoundError):
            shutil.copy2(file, copied)

    shutil.copytree(source, target, symlinks=True, copy_function=copy)


def read_messages(log: Log) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Return `(offset, timestamp, key, value)` of every message of a log, in order."""
    if not log.prepared:
        log.prepare()
    found: list[tuple[int, int, bytes | None, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        data = reader.read(log, offset, 1 << 20, whole_first=True).read()
        if not data:
            break  # A log that may have gaps has one at its end.
        found += [
            (record.offset, record.timestamp_ms, record.key, record.value)
            for record in records(data, max_decompressed_bytes=_MAX_BYTES, from_offset=offset)
        ]
        # After the last message, or after control batches, which have none.
        offset = walk(data, 0, len(data), check_crc=False).last_offset + 1
    return found
