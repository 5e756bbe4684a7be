"""The topics of a data directory: the topics file with their settings, checks of new topics, and
the settings in force.

`topics.json` is replaced as a whole (temporary file, sync, rename). Its content:

    {"version": 1,
     "topics": {"<name>": {"id": "6lLnpQzLQv6Rlvh8YUXcFA",
                           "partitions": 3,
                           "overrides": {"retention.ms": "-1"},
                           "gaps": true,          only when its offsets may have gaps
                           "deleting": true}},    only while it is being deleted
     "metadata_offset": 17}                       only of a cluster member

Folders are created before a topic is written here, and renamed before it is removed, so a start can
tell an unfinished creation from an unfinished deletion. Topics in files of older versions have no
id until a start gives them one.

The topics of a cluster member are in its metadata log (`storage/metadata`). This file has the part
of them that was applied here. `metadata_offset` is an offset of that log: all records below it were
committed when the file was written.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

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
from ...values import value_class
from ..files import Files, replace_file
from ..names import (
    MAX_FILE_NAME,
    MAX_OFFSET,
    METADATA_TOPIC,
    check_topic_name,
    folder_name,
    is_id,
    is_topic_name,
)

TOPICS_FILE: Final = "topics.json"
VERSION: Final = 1


@value_class
class TopicEntry:
    """One topic in the topics file."""

    _: KW_ONLY

    name: str
    partitions: int
    topic_id: str = ""
    """Random, so that a topic that was deleted and created again can be told apart. Empty until a
    start gives the topic an id."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """The topic's own settings: canonical name -> value as text."""
    gaps: bool = False
    """Whether its logs may hold bytes written elsewhere, whose offsets may have gaps."""
    deleting: bool = False


class MalformedTopics(ValueError):
    """The topics file's content is malformed. The text says where and why."""


class NewerTopics(ValueError):
    """The topics file was written by a later version of Horolog."""


def encode_topics(entries: Mapping[str, TopicEntry], metadata_offset: int | None = None) -> bytes:
    """Return the content of a topics file, sorted by topic name."""
    topics: dict[str, dict[str, object]] = {}
    for name, entry in sorted(entries.items()):
        topic: dict[str, object] = {"id": entry.topic_id} if entry.topic_id else {}
        topic["partitions"] = entry.partitions
        topic["overrides"] = dict(sorted(entry.overrides.items()))
        if entry.gaps:
            topic["gaps"] = True
        if entry.deleting:
            topic["deleting"] = True
        topics[name] = topic
    document: dict[str, object] = {"version": VERSION, "topics": topics}
    if metadata_offset is not None:
        document["metadata_offset"] = metadata_offset
    return (json.dumps(document, indent=1) + "\n").encode()


def decode_topics(content: bytes) -> dict[str, TopicEntry]:
    """Return the topics in a topics file's content, by name.

    Raises `MalformedTopics` for anything that `encode_topics` cannot have written, except values of
    settings (they are checked when they are used), and `NewerTopics` for a later version.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise MalformedTopics(f"it is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("version"), int):
        raise MalformedTopics("it has no version")
    if document["version"] > VERSION:
        raise NewerTopics(
            f"it has version {document['version']}, this Horolog knows up to {VERSION}"
        )
    topics = document.get("topics")
    if not isinstance(topics, dict):
        raise MalformedTopics("it has no topics")
    return {name: _decode_topic(name, value) for name, value in topics.items()}


def _decode_topic(name: str, value: Any) -> TopicEntry:
    if not is_topic_name(name):
        raise MalformedTopics(f"{name[:80]!r} is not a topic name")
    if not isinstance(value, dict):
        raise MalformedTopics(f"topic {name}: it is not an object")
    topic_id = value.get("id", "")
    if topic_id != "" and not is_id(topic_id):
        raise MalformedTopics(
            f"topic {name}: id is {topic_id!r}, not 22 characters of base64 for URLs"
        )
    partitions = value.get("partitions")
    if type(partitions) is not int or partitions < 1:
        raise MalformedTopics(f"topic {name}: partitions is {partitions!r}, not 1 or more")
    overrides = value.get("overrides", {})
    if not isinstance(overrides, dict) or not all(isinstance(v, str) for v in overrides.values()):
        raise MalformedTopics(f"topic {name}: overrides are not texts by name")
    flags = {flag: value.get(flag, False) for flag in ("gaps", "deleting")}
    for flag, state in flags.items():
        if not isinstance(state, bool):
            raise MalformedTopics(f"topic {name}: {flag} is neither true nor false")
    return TopicEntry(
        name=name, partitions=partitions, topic_id=topic_id, overrides=overrides, **flags
    )


def read_topics(files: Files, path: Path) -> dict[str, TopicEntry]:
    """Return the topics of the file at `path`; none if it is missing.

    Raises `OSError`, `MalformedTopics`, `NewerTopics`.
    """
    if not files.exists(path):
        return {}
    return decode_topics(files.read_bytes(path))


def read_metadata_offset(files: Files, path: Path) -> int:
    """Return the `metadata_offset` of the file at `path`, 0 if it has none or is invalid.

    Raises `OSError`.
    """
    if not files.exists(path):
        return 0
    try:
        document = json.loads(files.read_bytes(path))
    except (ValueError, RecursionError):
        return 0
    offset = document.get("metadata_offset") if isinstance(document, dict) else None
    return offset if type(offset) is int and 0 <= offset <= MAX_OFFSET else 0


def write_topics(
    files: Files,
    path: Path,
    entries: Mapping[str, TopicEntry],
    metadata_offset: int | None = None,
) -> None:
    """Replace the file at `path` atomically and durably. Raises `OSError`."""
    replace_file(files, path, encode_topics(entries, metadata_offset))


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
