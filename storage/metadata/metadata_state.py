"""The state that results from the records: topics, the positions in them, access, and the journal.
No I/O."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from ...protocol.api.pieces import Pieces, finish
from ...protocol.window_topics import base_of
from ..directory.journal import Journal, Removal
from ..directory.position_records import (
    COMMIT,
    FORGET,
    FORGET_SOME,
    PositionChange,
    StoredPosition,
    no_position,
)
from ..directory.position_table import PositionTable
from ..directory.topics import TopicEntry
from .access_records import AccessRecord, AccessState
from .records import (
    POSITIONS_IN_PIECE,
    MessagesRemoved,
    MetadataRecord,
    PartitionsAdded,
    PositionRecord,
    PositionsCommitted,
    PositionsForgotten,
    PositionsUsed,
    SettingsAltered,
    SomeForgotten,
    TopicCreated,
    TopicDeleted,
    TopicRenewed,
)

POSITIONS_IN_RECORD = 200
"""Number of positions in one record of a state."""

REMOVALS_IN_RECORD = 500
"""Number of entries of the journal in one record of a state."""


class MetadataState:
    """Topics, positions, users, rules, quotas and the journal. The same records in the same order
    give the same state on every broker.

    A record that does not fit the state has no effect: for example a new topic whose name is taken,
    or a topic id that does not belong to the named topic.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicEntry] = {}
        self.positions = PositionTable()
        self.access = AccessState()
        self.journal = Journal()
        self.former_ids: dict[str, str] = {}
        """The former ids of topics that were renewed by records after the stored state."""

    def apply(self, record: MetadataRecord) -> str | None:
        """Apply a record. Return the name of the topic that it changes, if it changes one."""
        return finish(self.apply_in_pieces(record))

    def apply_in_pieces(self, record: MetadataRecord) -> Pieces[str | None]:
        """As `apply`, in pieces. If the work ends early, the state is of no use."""
        if isinstance(record, PositionRecord):
            yield from self._move(record)
            return None
        if isinstance(record, AccessRecord):
            self.access = self.access.after(record)
            return None
        if isinstance(record, MessagesRemoved):
            for removal in record.removals:
                self.journal.add(removal)
            return None
        if isinstance(record, TopicCreated):
            name = record.entry.name
            if name in self.topics:
                return None
            if base_of(self.topics, name) != name:
                # The name belonged to a window of another topic until now.
                yield from self.positions.forget_topics(name, set())
            self.topics[name] = record.entry
            return name
        entry = self.topics.get(record.name, _NO_TOPIC)
        if entry.topic_id != record.topic_id:
            return None
        if isinstance(record, TopicDeleted):
            yield from self._forget_topic(record.name)
        return record.name if self._change(entry, record) else None

    def _forget_topic(self, name: str) -> Pieces[None]:
        """Forget the positions in a topic and in its windows."""
        windows = yield from self.positions.window_topics(name)
        for number, each in enumerate(list(windows), start=1):
            if base_of(self.topics, each) != name:
                windows.discard(each)
            if number % POSITIONS_IN_PIECE == 0:
                yield
        yield from self.positions.forget_topics(name, windows)

    def _move(self, record: PositionRecord) -> Pieces[None]:
        match record:
            case PositionsCommitted(group, positions):
                kept = yield from self._existing(positions)
                change = PositionChange(COMMIT, group, kept)
            case PositionsUsed(group, used_ms):
                # One position is enough, because a group's positions expire together: the first, so
                # that every broker changes the same one.
                first, _ = yield from self.positions.first_expiring(group)
                used = [] if first is None else [first._replace(used_ms=used_ms)]
                change = PositionChange(COMMIT, group, used)
            case PositionsForgotten(group):
                change = PositionChange(FORGET, group, ())
            case SomeForgotten(group, partitions):
                places = ((each[0], no_position(each[1], each[2])) for each in partitions)
                gone = yield from self._existing(places)
                change = PositionChange(FORGET_SOME, group, gone)
        yield from self.positions.apply_in_pieces(change)

    def _change(
        self,
        entry: TopicEntry,
        record: PartitionsAdded | TopicRenewed | SettingsAltered | TopicDeleted,
    ) -> bool:
        """Change a topic that is there; whether that is a change."""
        match record:
            case PartitionsAdded(name, _, partitions, gaps):
                if partitions <= entry.partitions:
                    return False
                self.topics[name] = replace(entry, partitions=partitions, gaps=entry.gaps or gaps)
            case TopicRenewed(name, former_id, new_id):
                self.topics[name] = replace(entry, topic_id=new_id)
                self.former_ids[name] = former_id
                self.journal.renew(name, former_id, new_id)
            case SettingsAltered(name, _, overrides):
                self.topics[name] = replace(entry, overrides=overrides)
            case TopicDeleted(name, _, removals):
                for removal in removals:
                    self.journal.add(removal)
                del self.topics[name]
                self.former_ids.pop(name, None)
        return True

    def _existing(
        self, positions: Iterable[tuple[str, StoredPosition]]
    ) -> Pieces[list[StoredPosition]]:
        """Return the positions whose topic has this id, and the partition."""
        found: list[StoredPosition] = []
        for number, (topic_id, position) in enumerate(positions, start=1):
            entry = self.topics.get(base_of(self.topics, position.topic), _NO_TOPIC)
            if entry.topic_id == topic_id and position.partition < entry.partitions:
                found.append(position)
            if number % POSITIONS_IN_PIECE == 0:
                yield
        return found


_NO_TOPIC = TopicEntry(name="", partitions=0)


def records_of(
    topics: Iterable[TopicEntry],
    positions: Iterable[tuple[str, list[StoredPosition]]],
    access: AccessState,
    journal: Iterable[Removal] = (),
) -> Iterator[MetadataRecord]:
    """Yield records that create a state from an empty one: its topics, its positions by name,
    users, rules and quotas, and the entries of its journal."""
    yield from access.records()
    ids: dict[str, str] = {}
    for entry in topics:
        ids[entry.name] = entry.topic_id
        yield TopicCreated(entry)
    for name, held in positions:
        based = ((base_of(ids, each.topic), each) for each in held)
        own = [(ids[base], each) for base, each in based if base in ids]
        for start in range(0, len(own), POSITIONS_IN_RECORD):
            yield PositionsCommitted(name, tuple(own[start : start + POSITIONS_IN_RECORD]))
    removals = iter(journal)
    while part := tuple(islice(removals, REMOVALS_IN_RECORD)):
        yield MessagesRemoved(part)
