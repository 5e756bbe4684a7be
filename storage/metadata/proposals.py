"""Requested changes of topics: each becomes a record, and is made when the record is applied.

The generators yield work that changes nothing, or a `Proposal`: then the caller waits until the
proposal's record is applied, and reports the result.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ...protocol.errors import LeaderNotAvailable
from ..directory.journal import Removal
from ..directory.reserve import Reserve
from ..directory.topic_changes import TopicChanges
from ..directory.topics import TopicEntry
from ..stepped_change import Steps
from .records import (
    MetadataRecord,
    PartitionsAdded,
    SettingsAltered,
    TopicCreated,
    TopicDeleted,
)


class Proposal:
    """An appended record, which a change yields in place of work."""

    def __init__(self, name: str, offset: int) -> None:
        self.name = name
        """The name of the topic."""
        self.offset = offset
        """The offset of the record."""
        self.applied = False
        self.failure: Exception | None = None

    def __call__(self) -> None:
        """Raise the reason, if the change was not applied."""
        if self.failure is not None:
            raise self.failure
        if not self.applied:
            raise LeaderNotAvailable(
                f"topic {self.name!r} is being changed, and not all brokers in sync have that yet"
            )


class TopicProposals:
    """Changes of the topics of a leader, in steps.

    One at a time, each carried out when all before it are applied: so what they are checked against
    is what they change. `check` raises where this broker may not take a change of a topic, `append`
    appends a record to the metadata log.
    """

    def __init__(
        self,
        changes: TopicChanges,
        reserve: Reserve,
        append: Callable[[MetadataRecord], int],
        check: Callable[[str], None],
    ) -> None:
        self._changes = changes
        self._reserve = reserve
        self._check = check
        self._append = append

    def create(
        self,
        name: str,
        partitions: int,
        overrides: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> Steps[TopicEntry]:
        """Create a topic. With `validate_only` nothing is created.

        Raises `InvalidTopic`, `TopicAlreadyExists`, `InvalidPartitions`, `InvalidConfig`,
        `PolicyViolation` for one topic too many, `StorageError`.
        """
        self._check(name)
        entry = yield from self._changes.new_entry(name, partitions, overrides)
        if not validate_only:
            yield self._propose(name, TopicCreated(entry))
        return entry

    def raise_partitions(
        self, name: str, partitions: int, *, validate_only: bool = False
    ) -> Steps[TopicEntry]:
        """Raise the number of a topic's partitions. With `validate_only` nothing is changed.

        Raises `UnknownTopicOrPartition`, `InvalidPartitions`, `StorageError`.
        """
        self._check(name)
        entry = yield from self._changes.raised_entry(name, partitions)
        if not validate_only:
            yield self._propose(name, PartitionsAdded(name, entry.topic_id, partitions))
        return entry

    def alter(self, name: str, overrides: Mapping[str, str]) -> Steps[TopicEntry]:
        """Replace the settings of a topic. Its logs use them once the record is applied.

        Raises `UnknownTopicOrPartition`, `InvalidConfig`, `StorageError`.
        """
        self._check(name)
        entry = self._changes.altered_entry(name, overrides)
        record = SettingsAltered(name, entry.topic_id, entry.overrides)
        yield self._with_reserve(name, record)
        return entry

    def delete(
        self, name: str, removed: Callable[[TopicEntry], Sequence[Removal]] = lambda _: ()
    ) -> Steps[TopicEntry]:
        """Take a topic away with all its messages and the positions in it; every broker calls
        `MetadataLog.gone` then. `removed` returns what the journal records about that. Raises
        `UnknownTopicOrPartition`, `StorageError`."""
        self._check(name)
        entry = self._changes.entry(name)
        yield self._with_reserve(name, TopicDeleted(name, entry.topic_id, removed(entry)))
        return entry

    def _with_reserve(self, name: str, record: MetadataRecord) -> Proposal:
        """Append a record with the help of the reserve: a full disk must not prevent a deletion,
        which makes room."""
        return self._reserve.retrying(partial(self._propose, name, record))

    def _propose(self, name: str, record: MetadataRecord) -> Proposal:
        return Proposal(name, self._append(record))
