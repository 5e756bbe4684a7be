"""The start of a data directory: its topics file and its folders are made to agree with the
metadata log.

A single broker makes the topics match the log: it finishes deletions and creations, and removes the
folders of creations that are not in the log. Then it adopts folders that belong to no topic,
creates missing folders again, and gives ids to topics without one. These changes are recorded in
the log before they are written to the topics file. Whatever a power cut leaves, the next start has
the same result.

A cluster member finishes deletions and creates missing folders again; the other changes follow as
the log is applied. Anything else is left alone and reported.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from ...config.broker import BrokerSettings
from ...protocol.errors import StorageError
from ..files import Files
from ..metadata.local_metadata import LocalMetadata, open_local_metadata
from ..metadata.records import (
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
    TopicRecord,
    TopicRenewed,
)
from ..names import (
    BROKEN_SUFFIX,
    deleted_folder_name,
    folder_name,
    is_deleted_folder_name,
    parse_folder_name,
    random_id,
)
from ..seams import Seams
from .deletion import remove
from .known_files import CLUSTER_ID_FILE, KNOWN_FILES, is_set_aside
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
"""Maximum number of removed folders named in the event."""

_TEMPORARY_SUFFIX: Final = ".tmp"

KEEP_EVERYTHING: Final = {"retention.bytes": "-1", "retention.ms": "-1"}
"""Settings of topics whose own settings were lost: the defaults might delete messages that were
meant to be kept."""

_KEEPS: Final = (
    f"there was no {TOPICS_FILE} that says for how long to keep messages, so all of them are kept "
    "(retention.ms = -1, retention.bytes = -1): alter the topic"
)


class Startup:
    """One start of a data directory whose lock is held."""

    def __init__(
        self,
        seams: Seams,
        settings: BrokerSettings,
        reserve: Reserve,
        *,
        member: bool,
        has_metadata_log: bool,
    ) -> None:
        """With `member`, for a cluster member that has a metadata log: no folder is adopted, and no
        topic gets another id, because the log decides which topics there are."""
        self._seams = seams
        self._files = seams.files
        self._observe = seams.observe
        self._random = seams.random
        self._directory = settings.data_dir
        self._settings = settings
        self._reserve = reserve
        self.missing: set[tuple[str, int]] = set()
        """Partitions whose folder was missing and was created again."""
        self.made: set[tuple[str, int]] = set()
        """All partitions whose folder was created: the missing ones, and those of topics whose
        creation was not finished."""
        self._member = member
        self._has_metadata_log = has_metadata_log
        self._follows_log = member and has_metadata_log
        self.metadata: LocalMetadata | None = None
        """The metadata log of a single broker."""
        self.metadata_offset: int | None = None
        """An offset of the metadata log below which all records were committed; `None` without a
        metadata log."""
        self.lost = False
        """Whether there was no readable topics file."""
        self._open_to_others: list[tuple[Path, OSError]] = []

    def run(self) -> dict[str, TopicEntry]:
        """Return the topics; all their folders exist. Raises `OSError`, `StorageError`."""
        path = self._directory / TOPICS_FILE
        there = self._files.exists(path)
        if self._has_metadata_log or not self._member:
            self.metadata_offset = read_metadata_offset(self._files, path)
        written, adopted_overrides = self._read_topics(path)
        damaged, written = written is None, written or {}
        self.lost = damaged or (self._follows_log and not there)
        if not (there or self._member or damaged or adopted_overrides):
            # Once this file is written, a missing topics file means that it was lost.
            write_topics(self._files, path, {}, 0)
        topics = self._without_deleted(written) if self._member else self._recorded(written)
        folders = self._folders()
        if not damaged:
            unnamed = unnamed_folders(folders, topics)
            folders -= self._remove_unfinished(unnamed, has_file=there)
        if not self._follows_log:
            self._adopt(topics, folders, adopted_overrides)
        self.made = self._without_folder(topics, folders)
        unknown = self.lost or bool(adopted_overrides)
        if unknown and not self._member:
            _allow_gaps(topics, folders)
        self.missing = {key for key in self.made if unknown or self._member or _names(written, key)}
        if not self._follows_log:
            self._give_ids(topics, written)
        if self.metadata is not None:
            self._record(self.metadata, topics)
        # A partition of the file without a folder has lost its messages. So the file comes after
        # the folders of unfinished creations, and before those that would hide a loss.
        self._reserve.retrying(partial(self._make_folders, self.made - self.missing))
        if topics != written or not (self._member or self._files.exists(path)):
            self._reserve.retrying(
                partial(write_topics, self._files, path, topics, self.metadata_offset)
            )
        self._reserve.retrying(partial(self._make_folders, self.missing))
        self._report_missing()
        self._remove_deleted()
        return topics

    def abandon(self) -> None:
        """Close what `run` has opened, after a failure."""
        if self.metadata is not None:
            with suppress(OSError, StorageError):
                self.metadata.log.close()

    def _without_deleted(self, written: Mapping[str, TopicEntry]) -> dict[str, TopicEntry]:
        """Return the topics of the file, and finish deletions that were begun."""
        for entry in written.values():
            if entry.deleting:
                self._take_away(entry)
        return {name: entry for name, entry in written.items() if not entry.deleting}

    def _recorded(self, written: Mapping[str, TopicEntry]) -> dict[str, TopicEntry]:
        """Open the metadata log, or create it from the topics of the file, and return its topics.
        Topics of the file that the log does not have any more are deleted."""
        entries = {
            name: replace(entry, topic_id=entry.topic_id or random_id(self._random))
            for name, entry in written.items()
            if not entry.deleting
        }
        noted = self.metadata_offset or 0
        metadata = open_local_metadata(self._directory, self._seams, entries, noted)
        self.metadata = metadata
        same = {entry.name for entry in written.values() if self._is_recorded(entry, metadata)}
        begun = [written[name] for name in sorted(same) if written[name].deleting]
        if begun:
            records = [
                TopicDeleted(each.name, metadata.state.topics[each.name].topic_id) for each in begun
            ]
            self._reserve.retrying(partial(metadata.record, records))
        topics = dict(metadata.state.topics)
        for name, entry in written.items():
            if name in topics and name in same:
                partitions = max(entry.partitions, topics[name].partitions)
                gaps = entry.gaps or topics[name].gaps
                topics[name] = replace(topics[name], partitions=partitions, gaps=gaps)
            elif not entry.deleting and not noted and name not in topics:
                topics[name] = entries[name]  # The file is older than the log.
            else:
                self._take_away(entry)
        return topics

    def _is_recorded(self, entry: TopicEntry, metadata: LocalMetadata) -> bool:
        """Whether a topic of the file is also in the log, by its id."""
        state = metadata.state
        target = state.topics.get(entry.name)
        ids = ("", target.topic_id, state.former_ids.get(entry.name)) if target is not None else ()
        return entry.topic_id in ids

    def _record(self, metadata: LocalMetadata, topics: Mapping[str, TopicEntry]) -> None:
        """Record in the log how `topics` differ from its state."""
        records = list(_differences(metadata.state.topics, topics))
        if records:
            self._reserve.retrying(partial(metadata.record, records))
        self.metadata_offset = metadata.current.offset

    def _take_away(self, entry: TopicEntry) -> None:
        renaming = partial(rename_deleted, self._files, self._directory, entry, self._random, [])
        self._reserve.retrying(renaming)
        self._observe("topic_deletion_finished", topic=entry.name)

    def _read_topics(self, path: Path) -> tuple[dict[str, TopicEntry] | None, Mapping[str, str]]:
        """Return the topics in the file, `None` if it is damaged, and the settings for topics that
        it lacks.

        A directory with folders that Horolog has used but without a topics file has lost that file.
        A directory written by Kafka never had one.
        """
        if not self._files.exists(path) and self._was_used():
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

    def _was_used(self) -> bool:
        """Whether a broker used the directory before."""
        led = self._has_metadata_log and not self._member
        return led or self._files.exists(self._directory / CLUSTER_ID_FILE)

    def _folders(self) -> set[tuple[str, int]]:
        """Return the partition folders. Report everything that does not belong in the directory."""
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
        """Remove permissions that `data.file.mode` does not grant: an older version, or another
        program, may have created the file. A closed folder also closes its files."""
        try:
            self._files.restrict(path)
        except FileNotFoundError:
            pass  # A link to nothing.
        except OSError as error:
            self._open_to_others.append((path, error))

    def _ignore(self, path: Path, reason: str) -> None:
        self._observe("stray_file", path=str(path), reason=reason)

    def _remove_unfinished(
        self, unnamed: set[tuple[str, int]], *, has_file: bool
    ) -> set[tuple[str, int]]:
        """Remove the folders of unfinished creations. Return all such folders."""
        unfinished = unfinished_creations(self._files, self._directory, unnamed, has_file=has_file)
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
        """Return the partitions without a folder. Something else with the folder's name is reported
        when the log is opened."""
        return {
            (entry.name, partition)
            for entry in topics.values()
            for partition in range(entry.partitions)
            if (entry.name, partition) not in folders
            and not self._files.exists(self._directory / folder_name(entry.name, partition))
        }

    def _give_ids(self, topics: dict[str, TopicEntry], written: Mapping[str, TopicEntry]) -> None:
        """Give ids to topics without one, and new ids to topics with a partition that begins anew:
        the same offsets will have other messages. A topic whose new id is in the log already keeps
        it."""
        anew = {
            name
            for name, _ in self.missing
            if name not in written or written[name].topic_id == topics[name].topic_id
        }
        for name, entry in sorted(topics.items()):
            if name in anew or not entry.topic_id:
                topics[name] = replace(entry, topic_id=random_id(self._random))

    def _make_folders(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Create durable folders. Those that exist already stay. Raises `OSError`."""
        paths = [self._directory / folder_name(*key) for key in sorted(partitions)]
        for path in paths:
            if not self._files.exists(path):
                self._files.make_directory(path)
        if paths:
            self._files.sync_directory(self._directory)

    def _report_missing(self) -> None:
        for name, partition in sorted(self.missing):
            self._observe(
                "partition_folder_missing",
                topic=name,
                partition=partition,
                path=str(self._directory / folder_name(name, partition)),
                consequence="an empty folder was made; a leader's messages are copied"
                if self._follows_log
                else "an empty folder was made and the topic got another id; messages that the "
                "partition had are gone",
            )

    def _remove_deleted(self) -> None:
        for name in self._files.names(self._directory):
            if is_deleted_folder_name(name):
                path = self._directory / name
                try:
                    remove(self._files, path)
                except OSError as error:
                    self._observe("deletion_failed", path=str(path), reason=str(error))


def _names(topics: Mapping[str, TopicEntry], key: tuple[str, int]) -> bool:
    """Whether a partition is among `topics`."""
    name, partition = key
    return name in topics and partition < topics[name].partitions


def _allow_gaps(topics: dict[str, TopicEntry], folders: set[tuple[str, int]]) -> None:
    """Mark topics with folders as possibly having gaps: the file that would tell was lost."""
    for name in {name for name, _ in folders if name in topics}:
        topics[name] = replace(topics[name], gaps=True)


def _differences(
    recorded: Mapping[str, TopicEntry], topics: Mapping[str, TopicEntry]
) -> Iterator[TopicRecord]:
    """Yield the records that turn the `recorded` topics into `topics`."""
    for name, entry in sorted(topics.items()):
        known = recorded.get(name)
        if known is None:
            yield TopicCreated(entry)
            continue
        if entry.partitions > known.partitions:
            yield PartitionsAdded(name, known.topic_id, entry.partitions, entry.gaps)
        if entry.topic_id != known.topic_id:
            yield TopicRenewed(name, known.topic_id, entry.topic_id)


def rename_deleted(
    files: Files, directory: Path, entry: TopicEntry, random: Random, renamed: list[Path]
) -> None:
    """Rename the folders of a deleted topic durably, so that they are no longer partition folders.

    The new paths are added to `renamed`, even on failure. Missing folders are skipped. Raises
    `OSError`.
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
    """Return the partition folders that the topics file does not name."""
    return {
        (name, partition)
        for name, partition in folders
        if name not in topics or partition >= topics[name].partitions
    }


def unfinished_creations(
    files: Files, directory: Path, unnamed: Iterable[tuple[str, int]], *, has_file: bool
) -> set[tuple[str, int]]:
    """Return the unnamed folders that are empty because their creation was interrupted.

    `has_file` says whether there is a topics file, which then must be readable. If there is none
    beside folders with files, the file was lost, and an empty folder may be a partition without
    messages: nothing is returned. Raises `OSError`.
    """
    unnamed = set(unnamed)
    empty = {key for key in unnamed if not files.names(directory / folder_name(*key))}
    lost = empty != unnamed and not has_file
    return set() if lost else empty
