"""Changes of topics that the metadata log asks for, and checks of changes that may be recorded in
it. A change is made on disk, in the topics file and in memory, in that order.

Folders are created before the topics file names them, and renamed before their topic is removed
from the file, so that a start can tell an unfinished creation from an unfinished deletion.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from ...protocol.errors import StorageError, TopicAlreadyExists
from ..names import BROKEN_SUFFIX, folder_name, random_id
from ..seams import Seams
from ..stepped_change import SteppedChange, Steps, Work
from .checkpoints import Checkpoints
from .log_table import LogTable
from .reserve import Reserve
from .startup import rename_deleted
from .topics import TopicEntry, TopicRegistry

_FOLDERS_AT_ONCE: Final = 16
"""Maximum number of new folders checked in the event loop's thread."""


class TopicChanges:
    """Changes of the topics in a data directory, one change at a time."""

    def __init__(
        self,
        seams: Seams,
        directory: Path,
        registry: TopicRegistry,
        logs: LogTable,
        checkpoints: Checkpoints,
        reserve: Reserve,
    ) -> None:
        self._seams = seams
        self._files = seams.files
        self._path = directory
        self._registry = registry
        self._logs = logs
        self._checkpoints = checkpoints
        self._reserve = reserve
        self._asked: deque[tuple[str, SteppedChange[TopicEntry]]] = deque()
        """Pending changes with their topics, in the order in which they are carried out. Only the
        first one may have begun."""

    def ask(self, name: str, steps: Steps[TopicEntry]) -> SteppedChange[TopicEntry]:
        """Queue a change of topic `name`. The caller carries it out in its turn, or another change
        does so earlier."""
        self._forget_done()
        change = SteppedChange(steps)
        self._asked.append((name, change))
        return change

    def settle(self, name: str) -> None:
        """Finish the change in progress, and all changes up to the last one of topic `name`."""
        self._forget_done()
        needed = 0
        for count, (topic, change) in enumerate(self._asked, start=1):
            if topic == name or change.begun:
                needed = count
        self._finish(needed)

    def settle_all(self) -> None:
        """Finish all queued changes."""
        self._finish(len(self._asked))

    def _finish(self, count: int) -> None:
        for _ in range(count):
            self._asked[0][1].finish()
            self._asked.popleft()

    def _forget_done(self) -> None:
        while self._asked and self._asked[0][1].done:
            self._asked.popleft()

    def _add(self, entry: TopicEntry, new: Sequence[int], what: str, *, taken: bool) -> Steps[None]:
        """Create the partitions `new` of `entry`, then make the entry visible.

        Existing folders with files are taken over if `taken`, else set aside (`_clear`).
        """
        made: list[Path] = []
        found: list[int] = []
        entries = self._registry.with_entry(entry)

        def work() -> None:
            nonlocal entries
            if any((entry.name, number) in self._checkpoints.partitions() for number in new):
                # Offsets of a deleted topic with this name must not apply to the new one.
                self._checkpoints.write(*self._logs.offsets())
            found[:] = self._clear(entry.name, new, taken=taken)
            if found:
                entries = self._registry.with_entry(replace(entry, gaps=True))
            self._make_folders(entry.name, [each for each in new if each not in found], made)
            self._registry.write(entries)

        try:
            yield work
        except OSError as error:
            yield partial(self._remove_folders, made)
            raise StorageError(f"{what}: {error}") from error
        self._registry.adopt(entries)
        for partition in new:
            self._logs.add((entry.name, partition), clean=partition not in found)

    def _check_folders(self, name: str, partitions: Sequence[int]) -> list[Path]:
        """Return the paths of new folders. Raises `TopicAlreadyExists` if one of them has files."""
        paths = [self._path / folder_name(name, partition) for partition in partitions]
        for path in paths:
            if self._files.exists(path) and self._files.names(path):
                raise TopicAlreadyExists(
                    f"there is a folder {path} with files in it; a restart adopts it as a topic"
                )
        return paths

    def _folders_checked(self, name: str, partitions: Sequence[int]) -> Steps[None]:
        """Like `_check_folders`; many folders are checked in another thread."""
        if len(partitions) <= _FOLDERS_AT_ONCE:
            self._check_folders(name, partitions)
        else:
            yield partial(self._look_at_folders, name, partitions)

    def _look_at_folders(self, name: str, partitions: Sequence[int]) -> None:
        self._check_folders(name, partitions)

    def _make_folders(self, name: str, partitions: Sequence[int], made: list[Path]) -> None:
        for path in self._check_folders(name, partitions):
            made.append(path)
            self._files.make_directory(path)
        self._files.sync_directory(self._path)

    def _remove_folders(self, made: Sequence[Path]) -> None:
        for path in made:
            with suppress(OSError):
                self._files.remove_directory(path)

    def _alter(self, name: str, overrides: Mapping[str, str]) -> Steps[TopicEntry]:
        """Replace the settings of a topic; a leader has checked them."""
        altered = replace(self._registry.get(name), overrides=overrides)
        entries = self._registry.with_entry(altered)
        try:
            yield self._with_reserve(partial(self._registry.write, entries))
        except OSError as error:
            raise StorageError(f"topic {name!r} cannot be altered: {error}") from error
        self._registry.adopt(entries)
        settings = self._registry.settings(name)
        for partition in range(altered.partitions):
            self._logs.set_settings((name, partition), settings)
        self._seams.observe("topic_altered", topic=name, overrides=dict(altered.overrides))
        return altered

    def _delete(self, name: str, gone: Callable[[], None]) -> Steps[TopicEntry]:
        """Delete a topic; `gone` is called as soon as requests no longer find it."""
        entry = replace(self._registry.find_any(name), deleting=True)
        delay_ms = self._registry.delete_delay_ms(entry)
        entries = self._registry.with_entry(entry)
        try:
            yield self._with_reserve(partial(self._registry.write, entries))
            self._registry.adopt(entries)
            for partition in range(entry.partitions):
                self._logs.forget((name, partition))
            gone()
            yield self._with_reserve(partial(self._take_away, entry, delay_ms))
            entries = self._registry.without(name)
            yield self._with_reserve(partial(self._registry.write, entries))
        except OSError as error:
            raise StorageError(f"topic {name!r} cannot be deleted: {error}") from error
        self._registry.adopt(entries)
        self._seams.observe("topic_deleted", topic=name, partitions=entry.partitions)
        return entry

    # For the metadata log: entries to propose, and changes to apply.

    def new_entry(
        self, name: str, partitions: int, overrides: Mapping[str, str]
    ) -> Steps[TopicEntry]:
        """Return the entry of a topic that may be created, with a new id. Changes nothing.

        Raises `InvalidTopic`, `TopicAlreadyExists`, `InvalidPartitions`, `InvalidConfig`,
        `PolicyViolation` if there are too many topics.
        """
        entry = self._registry.check_new(name, partitions, overrides)
        yield from self._folders_checked(name, range(partitions))
        return replace(entry, topic_id=random_id(self._seams.random))

    def raised_entry(self, name: str, partitions: int) -> Steps[TopicEntry]:
        """Return the entry of a topic with more partitions. Changes nothing.

        Raises `UnknownTopicOrPartition`, `InvalidPartitions`."""
        entry = self._registry.check_raise(name, partitions)
        new = range(self._registry.get(name).partitions, partitions)
        yield from self._folders_checked(name, new)
        return entry

    def altered_entry(self, name: str, overrides: Mapping[str, str]) -> TopicEntry:
        """Return the entry of a topic with other settings. Changes nothing.

        Raises `UnknownTopicOrPartition`, `InvalidConfig`."""
        checked = self._registry.check_settings(overrides)
        return replace(self._registry.get(name), overrides=checked)

    def names(self) -> frozenset[str]:
        """Return all topics in the topics file."""
        return self._registry.names()

    def entry(self, name: str) -> TopicEntry:
        """Return a topic of the topics file, without its deletion mark."""
        return replace(self._registry.find_any(name), deleting=False)

    def note_metadata(self, offset: int) -> None:
        """Record that all records of the metadata log below `offset` are committed and on stable
        storage. The next change of a topic stores that."""
        self._registry.metadata_offset = max(self._registry.metadata_offset or 0, offset)

    def keep_metadata(self, offset: int) -> None:
        """Like `note_metadata`, but store it at once, even if the offset is lower now. Raises
        `OSError`."""
        if self._registry.metadata_offset != offset:
            self._registry.metadata_offset = offset
            self._registry.write(self._registry.with_entries(()))

    @property
    def metadata_offset(self) -> int:
        """The offset recorded last."""
        return self._registry.metadata_offset or 0

    def matches(self, name: str, target: TopicEntry | None) -> bool:
        """Whether a topic matches `target`; `None` means that there is no topic.

        `gaps` is not compared: it differs between the copies of a topic.
        """
        if not self._registry.has_any(name):
            return target is None
        present = self._registry.find_any(name)
        return target is not None and replace(present, gaps=target.gaps) == target

    def match(
        self,
        name: str,
        target: TopicEntry | None,
        gone: Callable[[str, int], None],
        *,
        adopt: bool = False,
    ) -> Steps[TopicEntry]:
        """Make a topic match `target`, whatever its present state. Idempotent.

        `gone` is called with a topic and its number of partitions once requests no longer find it.
        Existing folders with files in place of new ones are taken over with `adopt`, else set
        aside. Raises `StorageError`.
        """
        present = self._registry.find_any(name) if self._registry.has_any(name) else None
        if present is not None and not _continues(present, target):
            was = present
            yield from self._delete(name, lambda: gone(name, was.partitions))
            present = None
        if target is None:
            return replace(present or TopicEntry(name=name, partitions=1), deleting=True)
        had = 0 if present is None else present.partitions
        gaps = target.gaps or (present is not None and present.gaps)
        if had < target.partitions:
            new = range(had, target.partitions)
            grown = replace(present or target, partitions=target.partitions, gaps=gaps)
            what = "made" if present is None else "given more partitions"
            yield from self._add(grown, new, f"topic {name!r} cannot be {what}", taken=adopt)
            event = "topic_created" if present is None else "partitions_created"
            self._seams.observe(event, topic=name, partitions=target.partitions)
        if dict(self._registry.get(name).overrides) != dict(target.overrides):
            yield from self._alter(name, target.overrides)
        return self._registry.get(name)

    def _clear(self, name: str, partitions: Sequence[int], *, taken: bool) -> list[int]:
        """Clear the places of folders to be created: set folders with files aside, or keep them if
        `taken`. Return the kept partitions."""
        found = []
        for partition in partitions:
            path = self._path / folder_name(name, partition)
            if self._files.exists(path) and self._files.names(path):
                found.append(partition)
                if not taken:
                    unique = self._seams.random.getrandbits(64)
                    aside = path.with_name(f"{path.name}.{unique:016x}{BROKEN_SUFFIX}")
                    self._files.rename(path, aside)
                    self._seams.observe("folder_set_aside", path=str(path), kept=str(aside))
        return found if taken else []

    def _with_reserve(self, work: Work) -> Work:
        """Return `work` with the reserve: a full disk must not prevent it, because
        it makes room."""
        return partial(self._reserve.retrying, work)

    def _take_away(self, entry: TopicEntry, delay_ms: int) -> None:
        renamed: list[Path] = []
        try:
            rename_deleted(self._files, self._path, entry, self._seams.random, renamed)
        finally:
            self._seams.deletions.add(renamed, delay_ms)
        self._checkpoints.write(*self._logs.offsets())


def _continues(present: TopicEntry, target: TopicEntry | None) -> bool:
    """Whether a topic can become `target` by growing: it has the same id, and no
    more partitions."""
    if target is None or present.deleting:
        return False
    return present.topic_id == target.topic_id and present.partitions <= target.partitions
