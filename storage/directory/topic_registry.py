"""The topics of a running broker: the topics file, checks of new topics, and settings in force."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from ...config.broker import BrokerSettings
from ...config.topic import TopicSettings, check_overrides, topic_settings
from ...protocol.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from ..files import Files
from ..names import MAX_FILE_NAME, METADATA_TOPIC, check_topic_name, folder_name
from .topics import TOPICS_FILE, TopicEntry, write_topics


class TopicRegistry:
    """The entries of the topics file, and the visible ones among them, which requests find."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        settings: BrokerSettings,
        entries: Mapping[str, TopicEntry],
    ) -> None:
        """Begin with the entries of the topics file, all visible."""
        self._files = files
        self._path = directory / TOPICS_FILE
        self._settings = settings
        self._entries = dict(entries)
        self.metadata_offset: int | None = None
        """For a cluster member, an offset of its metadata log below which everything was committed.
        Stored with the topics."""
        self._visible: dict[str, TopicEntry] = {}
        self._topic_settings: dict[str, TopicSettings | InvalidConfig] = {}
        self.visible = MappingProxyType(self._visible)
        """A live view of the topics by name."""
        self._partitions = _partitions_of(entries)
        self.changes = 0
        """How often the topics changed."""
        for entry in entries.values():
            self._show(entry)

    def get(self, name: str) -> TopicEntry:
        """Return a visible topic. Raises `UnknownTopicOrPartition`."""
        entry = self._visible.get(name)
        if entry is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return entry

    def names(self) -> frozenset[str]:
        """Return all topics, including those being deleted."""
        return frozenset(self._entries)

    def has_any(self, name: str) -> bool:
        """Whether the topic exists, even if it is being deleted."""
        return name in self._entries

    def find_any(self, name: str) -> TopicEntry:
        """Return a topic, even if it is being deleted. Raises `UnknownTopicOrPartition`."""
        entry = self._entries.get(name)
        if entry is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return entry

    def settings(self, name: str) -> TopicSettings:
        """Return the settings in force for a topic.

        Raises `UnknownTopicOrPartition`, and `InvalidConfig` if the topics file has invalid
        settings for it.
        """
        settings = self._topic_settings.get(name)
        if settings is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        if isinstance(settings, InvalidConfig):
            # A new instance each time: an exception keeps every traceback with which it was raised.
            raise InvalidConfig(settings.message)
        return settings

    def delete_delay_ms(self, entry: TopicEntry) -> int:
        """Return how long the files of a deleted topic are kept, in ms."""
        defaults = self._settings.topic_defaults
        try:
            return topic_settings(defaults, entry.overrides).file_delete_delay_ms
        except InvalidConfig:
            return topic_settings(defaults, {}).file_delete_delay_ms

    def check_settings(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """Return the overrides by canonical name, if a topic may have them. Raises
        `InvalidConfig`."""
        checked = check_overrides(overrides)
        topic_settings(self._settings.topic_defaults, checked)
        return checked

    def check_new(self, name: str, partitions: int, overrides: Mapping[str, str]) -> TopicEntry:
        """Return the entry of a topic that may be created. Writes nothing.

        Raises `InvalidTopic`, `TopicAlreadyExists`, `InvalidPartitions`, `InvalidConfig`,
        `PolicyViolation`.
        """
        check_topic_name(name)
        if name == METADATA_TOPIC:
            raise InvalidTopic(
                f"the topic name {name!r} is kept for the log in which brokers that are several "
                "keep their topics and positions; choose another one"
            )
        if name in self._entries:
            being_deleted = " and is being deleted" if self._entries[name].deleting else ""
            raise TopicAlreadyExists(f"topic {name!r} exists{being_deleted}")
        self._check_partitions(name, partitions)
        if len(self._entries) >= self._settings.max_topics:
            raise PolicyViolation(
                f"topic {name!r} would be one too many: there are {len(self._entries)}, and "
                f"max.topics is {self._settings.max_topics}"
            )
        return TopicEntry(
            name=name, partitions=partitions, overrides=self.check_settings(overrides)
        )

    def check_raise(self, name: str, partitions: int) -> TopicEntry:
        """Return the entry of a visible topic with more partitions. Writes nothing.

        Raises `UnknownTopicOrPartition`, `InvalidPartitions`.
        """
        entry = self.get(name)
        if partitions <= entry.partitions:
            raise InvalidPartitions(
                f"topic {name!r} has {entry.partitions} partitions, so it cannot be given "
                f"{partitions}; their number can only grow"
            )
        self._check_partitions(name, partitions, entry.partitions)
        return replace(entry, partitions=partitions)

    def _check_partitions(self, name: str, partitions: int, own: int = 0) -> None:
        """Raise `InvalidPartitions` unless a topic with `own` partitions may have `partitions`."""
        present = self._partitions
        limit = self._settings.max_partitions
        most = limit - present + own
        if not 1 <= partitions <= most:
            raise InvalidPartitions(
                f"topic {name!r} cannot have {partitions} partitions; it may have 1 to "
                f"{most} (max.partitions is {limit}, and {present} exist)"
            )
        if len(folder_name(name, partitions - 1)) > MAX_FILE_NAME:
            raise InvalidPartitions(
                f"topic {name!r} cannot have {partitions} partitions: the names of their folders "
                f"would pass {MAX_FILE_NAME} bytes"
            )

    def with_entry(self, entry: TopicEntry) -> dict[str, TopicEntry]:
        """Return all entries with one added or replaced, for `write` and `adopt`."""
        return self.with_entries((entry,))

    def with_entries(self, entries: Iterable[TopicEntry]) -> dict[str, TopicEntry]:
        """Like `with_entry`, for several entries."""
        return self._entries | {entry.name: entry for entry in entries}

    def without(self, name: str) -> dict[str, TopicEntry]:
        """Return all entries but one, for `write` and `adopt`."""
        return {other: entry for other, entry in self._entries.items() if other != name}

    def write(self, entries: Mapping[str, TopicEntry]) -> None:
        """Store `entries` durably in place of the present ones.

        May run in another thread, if nothing else is written meanwhile. Raises `OSError` and leaves
        everything as it was.
        """
        try:
            write_topics(self._files, self._path, entries, self.metadata_offset)
        except OSError:
            # The new file may be in place but not synced. A refused change must not take effect at
            # the next start.
            with suppress(OSError):
                write_topics(self._files, self._path, self._entries, self.metadata_offset)
            raise

    def adopt(self, entries: Mapping[str, TopicEntry]) -> None:
        """Use `entries`, which have been written. Topics being deleted become invisible."""
        before, self._entries = self._entries, dict(entries)
        self._partitions = _partitions_of(entries)
        self.changes += 1
        for name in before.keys() | self._entries.keys():
            entry = self._entries.get(name)
            if entry is None or entry.deleting:
                self._visible.pop(name, None)
                self._topic_settings.pop(name, None)
            elif entry is not before.get(name):
                self._show(entry)

    def _show(self, entry: TopicEntry) -> None:
        self._visible[entry.name] = entry
        try:
            self._topic_settings[entry.name] = topic_settings(
                self._settings.topic_defaults, entry.overrides
            )
        except InvalidConfig as error:
            self._topic_settings[entry.name] = InvalidConfig(
                f"topic {entry.name!r} has settings in {self._path} that are not allowed: "
                f"{error.message}; alter the topic"
            )


def _partitions_of(entries: Mapping[str, TopicEntry]) -> int:
    return sum(entry.partitions for entry in entries.values())
