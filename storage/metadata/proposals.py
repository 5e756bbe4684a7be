"""Changes of topics at the leader: each becomes a record, and is made when that is applied.

The generators have the names and answers of those of `TopicChanges`. What they yield is work that
changes nothing, or a `Proposal`: the caller waits until its record is applied, and reports the
result.
"""

from collections.abc import Callable, Mapping

from ...protocol.errors import LeaderNotAvailable
from ..directory.topic_changes import TopicChanges
from ..directory.topics import TopicEntry
from ..stepped_change import Steps
from .records import MetadataRecord, PartitionsAdded, SettingsAltered, TopicCreated, TopicDeleted


class Proposal:
    """A record that was appended, in the place of a change's work."""

    def __init__(self, name: str, offset: int) -> None:
        self.name = name
        """Of the topic."""
        self.offset = offset
        """Of the record."""
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


class ProposedChanges:
    """Changes of the topics of a leader.

    One at a time, each carried out when all before it are applied: so what they are checked against
    is what they change. `check` raises where this broker may not take any, `append` appends a
    record to the metadata log.
    """

    def __init__(
        self,
        changes: TopicChanges,
        check: Callable[[], None],
        append: Callable[[MetadataRecord], int],
    ) -> None:
        self._changes = changes
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
        """As `TopicChanges.create`."""
        self._check()
        entry = yield from self._changes.new_entry(name, partitions, overrides)
        if not validate_only:
            yield self._propose(name, TopicCreated(entry))
        return entry

    def raise_partitions(
        self, name: str, partitions: int, *, validate_only: bool = False
    ) -> Steps[TopicEntry]:
        """As `TopicChanges.raise_partitions`."""
        self._check()
        entry = yield from self._changes.raised_entry(name, partitions)
        if not validate_only:
            yield self._propose(name, PartitionsAdded(name, entry.topic_id, partitions))
        return entry

    def alter(self, name: str, overrides: Mapping[str, str]) -> Steps[TopicEntry]:
        """As `TopicChanges.alter`."""
        self._check()
        entry = self._changes.altered_entry(name, overrides)
        yield self._propose(name, SettingsAltered(name, entry.topic_id, entry.overrides))
        return entry

    def delete(self, name: str, gone: Callable[[], None]) -> Steps[TopicEntry]:
        """As `TopicChanges.delete`; `gone` is not called: every broker calls `MetadataLog.gone`."""
        self._check()
        entry = self._changes.entry(name)
        yield self._propose(name, TopicDeleted(name, entry.topic_id))
        return entry

    def _propose(self, name: str, record: MetadataRecord) -> Proposal:
        return Proposal(name, self._append(record))
