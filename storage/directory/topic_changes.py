"""Making, altering and deleting topics: on disk, in the topics file, and in memory, in that order.

Folders are made before the topics file names them, and renamed before it forgets them, so that a
start can tell an unfinished creation from an unfinished deletion.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...protocol.errors import StorageError, TopicAlreadyExists
from ..names import folder_name
from ..seams import Seams
from .checkpoints import Checkpoints
from .log_table import LogTable
from .positions import Positions
from .random_ids import random_id
from .reserve import Reserve
from .startup import rename_deleted
from .stepped_change import SteppedChange, Steps, Work
from .topic_registry import TopicRegistry
from .topics import TopicEntry


class TopicChanges:
    """The topics of a data directory as they are changed: one change at a time."""

    def __init__(
        self,
        seams: Seams,
        directory: Path,
        registry: TopicRegistry,
        logs: LogTable,
        checkpoints: Checkpoints,
        positions: Positions,
        reserve: Reserve,
    ) -> None:
        self._seams = seams
        self._files = seams.files
        self._path = directory
        self._registry = registry
        self._logs = logs
        self._checkpoints = checkpoints
        self._positions = positions
        self._reserve = reserve
        self._asked: deque[tuple[str, SteppedChange[TopicEntry]]] = deque()
        """Topics and changes that are not done, in the order in which they have to be carried out;
        only the first one may have begun."""

    def ask(self, name: str, steps: Steps[TopicEntry]) -> SteppedChange[TopicEntry]:
        """A change of topic `name` that the caller carries out in its turn, or one before it."""
        self._forget_done()
        change = SteppedChange(steps)
        self._asked.append((name, change))
        return change

    def at_once(self, name: str, steps: Steps[TopicEntry]) -> TopicEntry:
        """Carry out a change of topic `name` here and now; returns, or raises, what it does."""
        self.settle(name)
        change = SteppedChange(steps)
        change.finish()
        return change.result()

    def settle(self, name: str) -> None:
        """Finish the change that is under way, and all up to the last one of topic `name`."""
        self._forget_done()
        needed = 0
        for count, (topic, change) in enumerate(self._asked, start=1):
            if topic == name or change.begun:
                needed = count
        self._finish(needed)

    def settle_all(self) -> None:
        """Finish all that was asked for."""
        self._finish(len(self._asked))

    def _finish(self, count: int) -> None:
        for _ in range(count):
            self._asked[0][1].finish()
            self._asked.popleft()

    def _forget_done(self) -> None:
        while self._asked and self._asked[0][1].done:
            self._asked.popleft()

    def create(
        self,
        name: str,
        partitions: int,
        overrides: Mapping[str, str],
        *,
        validate_only: bool = False,
        topic_id: str = "",
        gaps: bool = False,
    ) -> Steps[TopicEntry]:
        """As `LogDirectory.create_topic`; with `validate_only` nothing is made. A copy of another
        broker's topic has its `topic_id`, and its `gaps`."""
        entry = self._registry.check_new(name, partitions, overrides)
        if validate_only:
            self._check_folders(name, range(partitions))
            return entry
        topic_id = topic_id or random_id(self._seams.random)
        entry = replace(entry, topic_id=topic_id, gaps=gaps)
        yield from self._add(entry, range(partitions), f"topic {name!r} cannot be made")
        self._seams.observe("topic_created", topic=name, partitions=partitions)
        return entry

    def raise_partitions(
        self, name: str, partitions: int, *, validate_only: bool = False
    ) -> Steps[TopicEntry]:
        """As `LogDirectory.create_partitions`; with `validate_only` nothing is made."""
        entry = self._registry.check_raise(name, partitions)
        new = range(self._registry.get(name).partitions, partitions)
        if validate_only:
            self._check_folders(name, new)
            return entry
        yield from self._add(entry, new, f"topic {name!r} cannot be given more partitions")
        self._seams.observe("partitions_created", topic=name, partitions=partitions)
        return entry

    def _add(self, entry: TopicEntry, new: Sequence[int], what: str) -> Steps[None]:
        """Make the partitions `new` of `entry`, then let it be seen."""
        made: list[Path] = []
        entries = self._registry.with_entry(entry)

        def work() -> None:
            if any((entry.name, number) in self._checkpoints.partitions() for number in new):
                # Offsets of a deleted topic of this name must not become the new one's.
                self._checkpoints.write(*self._logs.offsets())
            self._make_folders(entry.name, new, made)
            self._registry.write(entries)

        try:
            yield work
        except OSError as error:
            yield partial(self._remove_folders, made)
            raise StorageError(f"{what}: {error}") from error
        self._registry.adopt(entries)
        for partition in new:
            self._logs.add((entry.name, partition), clean=True)

    def _check_folders(self, name: str, partitions: Sequence[int]) -> list[Path]:
        """The paths of new folders. Raises `TopicAlreadyExists` when there is something in one."""
        paths = [self._path / folder_name(name, partition) for partition in partitions]
        for path in paths:
            if self._files.exists(path) and self._files.names(path):
                raise TopicAlreadyExists(
                    f"there is a folder {path} with files in it; a restart adopts it as a topic"
                )
        return paths

    def _make_folders(self, name: str, partitions: Sequence[int], made: list[Path]) -> None:
        for path in self._check_folders(name, partitions):
            made.append(path)
            self._files.make_directory(path)
        self._files.sync_directory(self._path)

    def _remove_folders(self, made: Sequence[Path]) -> None:
        for path in made:
            with suppress(OSError):
                self._files.remove_directory(path)

    def alter(self, name: str, overrides: Mapping[str, str]) -> Steps[TopicEntry]:
        """As `LogDirectory.alter_topic`."""
        checked = self._registry.check_settings(overrides)
        altered = replace(self._registry.get(name), overrides=checked)
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

    def delete(self, name: str, gone: Callable[[], None]) -> Steps[TopicEntry]:
        """As `LogDirectory.delete_topic`; `gone` is called as soon as it is found no more."""
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

    def _with_reserve(self, work: Work) -> Work:
        """`work` that a full disk must not keep from being done: it is a way to make room."""
        return partial(self._reserve.retrying, work)

    def _take_away(self, entry: TopicEntry, delay_ms: int) -> None:
        renamed: list[Path] = []
        try:
            rename_deleted(self._files, self._path, entry, self._seams.random, renamed)
        finally:
            self._seams.deletions.add(renamed, delay_ms)
        self._checkpoints.write(*self._logs.offsets())
        self._positions.forget_topic(entry.name)
