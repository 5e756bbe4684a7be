"""Making the topics file and the folders of a data directory agree, at start.

Deletions that were begun are finished. What a creation left that was cut off is removed: it makes
folders before the topics file names them, and no client had an answer yet. Folders the file does
not have are adopted, folders it has that are gone are made anew. Topics get the ids that they lack.
Anything else is left alone and reported.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from ...config.broker import BrokerSettings
from ...protocol.errors import StorageError
from ..files import Files
from ..names import (
    BROKEN_SUFFIX,
    deleted_folder_name,
    folder_name,
    is_deleted_folder_name,
    parse_folder_name,
)
from ..seams import Seams
from .deletion import remove
from .known_files import CLUSTER_ID_FILE, KNOWN_FILES, is_set_aside
from .positions import Positions
from .random_ids import random_id
from .reserve import Reserve
from .topics import (
    TOPICS_FILE,
    MalformedTopics,
    NewerTopics,
    TopicEntry,
    read_metadata_offset,
    read_topics,
    write_topics,
)

UNFINISHED: Final = (
    f"it is empty, and {TOPICS_FILE} does not have this partition: a creation that is under way, "
    "or was cut off, made it; the next start removes it unless the creation ends"
)

_MAX_NAMES: Final = 10
"""How many of the folders that were removed are named in the event."""

_TEMPORARY_SUFFIX: Final = ".tmp"

KEEP_EVERYTHING: Final = {"retention.bytes": "-1", "retention.ms": "-1"}
"""Settings of topics whose own were lost: the defaults might delete what was meant to be kept."""

_KEEPS: Final = (
    f"there was no {TOPICS_FILE} that says for how long to keep messages, so all of them are kept "
    "(retention.ms = -1, retention.bytes = -1): alter the topic"
)


class Startup:
    """One look at a data directory whose lock is held."""

    def __init__(
        self,
        seams: Seams,
        settings: BrokerSettings,
        positions: Positions,
        reserve: Reserve,
        *,
        has_metadata_log: bool = False,
    ) -> None:
        """With a metadata log, which says what topics there are, no folder is adopted, and no topic
        gets another id."""
        self._files = seams.files
        self._observe = seams.observe
        self._random = seams.random
        self._directory = settings.data_dir
        self._settings = settings
        self._positions = positions
        self._reserve = reserve
        self.missing: set[tuple[str, int]] = set()
        """Partitions whose folder was gone and has been made anew."""
        self._has_metadata_log = has_metadata_log
        self.metadata_offset: int | None = None
        """What the topics file says of the metadata log, if there is one."""
        self.lost = False
        """Whether there was no topics file that could be read."""
        self._open_to_others: list[tuple[Path, OSError]] = []

    def run(self) -> dict[str, TopicEntry]:
        """The topics, all of their folders there. Raises `OSError`, `StorageError`."""
        path = self._directory / TOPICS_FILE
        if self._has_metadata_log:
            self.metadata_offset = read_metadata_offset(self._files, path)
            self.lost = not self._files.exists(path)
        written, adopted_overrides = self._read_topics(path)
        damaged, written = written is None, written or {}
        self.lost = self.lost or damaged
        topics = dict(written)
        for entry in written.values():
            if entry.deleting:
                self._reserve.retrying(partial(self._take_away, entry))
                del topics[entry.name]
                self._observe("topic_deletion_finished", topic=entry.name)
        folders = self._folders()
        if not damaged:
            folders -= self._remove_unfinished(unnamed_folders(folders, topics))
        if not self._has_metadata_log:
            self._adopt(topics, folders, adopted_overrides)
        self.missing = self._without_folder(topics, folders)
        if not self._has_metadata_log:
            self._give_ids(topics)
        # Before folders are made: they would hide from the next start that messages are gone.
        if topics != written:
            self._reserve.retrying(
                partial(write_topics, self._files, path, topics, self.metadata_offset)
            )
        self._make_missing()
        self._remove_deleted()
        return topics

    def _take_away(self, entry: TopicEntry) -> None:
        rename_deleted(self._files, self._directory, entry, self._random, [])
        self._positions.forget_topic(entry.name)

    def _read_topics(self, path: Path) -> tuple[dict[str, TopicEntry] | None, Mapping[str, str]]:
        """The file's topics, `None` when it is damaged, and the settings for those it lacks.

        A directory that this broker or another one has used and that has no file has lost it, if
        there are folders; one that Kafka wrote never had one.
        """
        if not self._files.exists(path) and self._files.exists(self._directory / CLUSTER_ID_FILE):
            return {}, KEEP_EVERYTHING
        try:
            return read_topics(self._files, path), {}
        except NewerTopics as error:
            raise StorageError(
                f"{path}: {error}; start the version that wrote it, or a later one"
            ) from error
        except MalformedTopics as error:
            kept = path.with_name(path.name + BROKEN_SUFFIX)
            self._files.rename(path, kept)
            self._observe(
                "topics_file_broken",
                path=str(path),
                reason=str(error),
                kept=str(kept),
                consequence="topics, ids and settings are those of the metadata log"
                if self._has_metadata_log
                else "every folder is adopted, with settings that keep all messages",
            )
            return None, KEEP_EVERYTHING

    def _folders(self) -> set[tuple[str, int]]:
        """The partition folders; everything that does not belong here is reported."""
        found: set[tuple[str, int]] = set()
        for name in self._files.names(self._directory):
            path = self._directory / name
            key = parse_folder_name(name)
            if name in KNOWN_FILES or name.endswith(BROKEN_SUFFIX) or is_deleted_folder_name(name):
                self._restrict(path)
                continue
            if name.removesuffix(_TEMPORARY_SUFFIX) in KNOWN_FILES:
                remove(self._files, path)
            elif is_set_aside(name):
                self._restrict(path)
            elif key is None:
                self._ignore(path, "its name is not <topic>-<partition>")
            elif not self._files.is_directory(path):
                self._ignore(path, "it is not a folder")
            else:
                self._restrict(path)
                found.add(key)
        if self._open_to_others:
            self._observe(
                "permissions_left",
                path=str(self._open_to_others[0][0]),
                reason=str(self._open_to_others[0][1]),
                count=len(self._open_to_others),
                consequence="others may read it against data.file.mode",
            )
        return found

    def _restrict(self, path: Path) -> None:
        """Take the permissions away that `data.file.mode` does not give: an older version, or
        another program, may have made the file. A folder that is closed closes its files too."""
        try:
            self._files.restrict(path)
        except FileNotFoundError:
            pass  # A link to nothing.
        except OSError as error:
            self._open_to_others.append((path, error))

    def _ignore(self, path: Path, reason: str) -> None:
        self._observe("stray_file", path=str(path), reason=reason)

    def _remove_unfinished(self, unnamed: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """Remove the folders of creations that were cut off; returns all of those."""
        unfinished = unfinished_creations(self._files, self._directory, unnamed)
        removed: list[str] = []
        for key in sorted(unfinished):
            path = self._directory / folder_name(*key)
            try:
                self._files.remove_directory(path)
                removed.append(path.name)
            except OSError as error:  # A mount point, perhaps.
                self._ignore(path, f"it is empty and of no topic, and cannot be removed: {error}")
        if removed:
            self._observe(
                "unfinished_creation_removed", folders=removed[:_MAX_NAMES], count=len(removed)
            )
        return unfinished

    def _adopt(
        self,
        topics: dict[str, TopicEntry],
        folders: set[tuple[str, int]],
        overrides: Mapping[str, str],
    ) -> None:
        for name, partition in sorted(unnamed_folders(folders, topics)):
            path = self._directory / folder_name(name, partition)
            limit = self._settings.max_partitions
            if partition >= limit:
                self._ignore(path, f"its partition is not below max.partitions, which is {limit}")
            else:
                entry = topics.get(name) or TopicEntry(name=name, partitions=1, overrides=overrides)
                partitions = max(entry.partitions, partition + 1)
                topics[name] = replace(entry, partitions=partitions, gaps=True)
                kept = {} if topics[name].overrides != KEEP_EVERYTHING else {"settings": _KEEPS}
                self._observe(
                    "folder_adopted", topic=name, partition=partition, path=str(path), **kept
                )

    def _without_folder(
        self, topics: Mapping[str, TopicEntry], folders: set[tuple[str, int]]
    ) -> set[tuple[str, int]]:
        """Where something else is in its place, opening the log tells it."""
        return {
            (entry.name, partition)
            for entry in topics.values()
            for partition in range(entry.partitions)
            if (entry.name, partition) not in folders
            and not self._files.exists(self._directory / folder_name(entry.name, partition))
        }

    def _give_ids(self, topics: dict[str, TopicEntry]) -> None:
        """To topics without one, and others to those that begin anew in a partition: its offsets
        come again with other messages."""
        anew = {name for name, _ in self.missing}
        for name, entry in sorted(topics.items()):
            if name in anew or not entry.topic_id:
                topics[name] = replace(entry, topic_id=random_id(self._random))

    def _make_missing(self) -> None:
        for name, partition in sorted(self.missing):
            path = self._directory / folder_name(name, partition)
            self._files.make_directory(path)
            self._observe(
                "partition_folder_missing",
                topic=name,
                partition=partition,
                path=str(path),
                consequence="an empty folder was made; a leader's messages are copied"
                if self._has_metadata_log
                else "an empty folder was made and the topic got another id; messages that the "
                "partition had are gone",
            )
        if self.missing:
            self._files.sync_directory(self._directory)

    def _remove_deleted(self) -> None:
        for name in self._files.names(self._directory):
            if is_deleted_folder_name(name):
                path = self._directory / name
                try:
                    remove(self._files, path)
                except OSError as error:
                    self._observe("deletion_failed", path=str(path), reason=str(error))


def rename_deleted(
    files: Files, directory: Path, entry: TopicEntry, random: Random, renamed: list[Path]
) -> None:
    """Give the folders of a topic names under which they are no partitions any more, durably.

    The new paths go to `renamed`, also when it fails. Folders that are gone already are passed
    over. Raises `OSError`.
    """
    unique = random.getrandbits(64)
    for partition in range(entry.partitions):
        path = directory / folder_name(entry.name, partition)
        if files.exists(path):
            target = directory / deleted_folder_name(entry.name, partition, unique)
            files.rename(path, target)
            renamed.append(target)
    files.sync_directory(directory)


def unnamed_folders(
    folders: Iterable[tuple[str, int]], topics: Mapping[str, TopicEntry]
) -> set[tuple[str, int]]:
    """Those of the partition folders that the topics file does not name."""
    return {
        (name, partition)
        for name, partition in folders
        if name not in topics or partition >= topics[name].partitions
    }


def unfinished_creations(
    files: Files, directory: Path, unnamed: Iterable[tuple[str, int]]
) -> set[tuple[str, int]]:
    """Those of the unnamed folders that are empty because their creation was cut off.

    For a topics file that can be read, or a directory that has none. Where it is missing beside
    folders with files it is lost, and an empty folder may be a partition without messages. Raises
    `OSError`.
    """
    unnamed = set(unnamed)
    empty = {key for key in unnamed if not files.names(directory / folder_name(*key))}
    lost = empty != unnamed and not files.exists(directory / TOPICS_FILE)
    return set() if lost else empty
