"""The metadata log of the simulation that is a broker's own as well: topics and positions are what
its records say, on every broker and after each step."""

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from horolog.protocol.records.batch import read_header
from horolog.protocol.records.messages.sets import records
from horolog.server.replication.replica_directory import ReplicaMetadataLog
from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.directory.topics import TopicEntry
from horolog.storage.metadata.folder import METADATA_PARTITION
from horolog.storage.metadata.metadata_log import MetadataLog
from horolog.storage.metadata.records import (
    MetadataRecord,
    PositionsCommitted,
    SettingsAltered,
    TopicCreated,
    decode_record,
)
from horolog.storage.metadata.snapshot import StatePart
from horolog.storage.names import METADATA_FOLDER, folder_name
from horolog.storage.replica.copy_facts import Stored
from horolog.testing.directories import DataDirectory
from horolog.testing.files import QuickFiles
from horolog.testing.simulation.disk import TOPIC, Entry, SimulatedLog

from .stored_logs import MAX_BYTES, Drops, StoredToo

GROUP = "g"
NAME = TOPIC[0]
NOWHERE = "nowhere"
"""A topic that there is not: a position in it is none, and says which message it is of."""


class Shown(NamedTuple):
    """Topic and position as a client sees them."""

    topic_id: str = ""
    """Empty: there is no topic."""
    retention_ms: int = -1
    offset: int = -1
    """Of the position."""


def topic_id(epoch: int) -> str:
    return f"{epoch:022d}"


def is_settings(number: int) -> bool:
    """Whether a change of the topic's settings stands in the place of a position."""
    return number % 4 == 3


def record_of(entry: Entry, known: str) -> MetadataRecord:
    """The record of a message; `known` is the topic's id where there is one."""
    epoch, kind, number = entry
    if kind == "topic":
        settings = {"retention.ms": "0"}
        return TopicCreated(
            TopicEntry(name=NAME, partitions=1, topic_id=topic_id(epoch), overrides=settings)
        )
    if is_settings(number):
        settings = {"retention.ms": str(number), "retention.bytes": str(epoch)}
        return SettingsAltered(NAME, known or topic_id(0), settings)

    def position(topic: str) -> StoredPosition:
        return StoredPosition(topic, 0, number, -1, 1, "", leader_epoch=epoch)

    named = [(topic_id(0), position(NOWHERE))]
    return PositionsCommitted(GROUP, (*named, *([(known, position(NAME))] if known else ())))


def entry_of(record: MetadataRecord) -> Entry:
    match record:
        case TopicCreated(entry):
            return int(entry.topic_id), "topic", 0
        case SettingsAltered(_, _, overrides):
            return int(overrides["retention.bytes"]), "position", int(overrides["retention.ms"])
        case PositionsCommitted(_, positions):
            position = positions[0][1]
            return position.leader_epoch, "position", position.offset
    raise AssertionError(record)


def read(data: bytes) -> list[MetadataRecord]:
    return [
        decode_record(bytes(each.value or b""))
        for each in records(data, max_decompressed_bytes=MAX_BYTES)
    ]


def shown_by(said: Iterable[MetadataRecord]) -> Shown:
    """What there is after these records, without any of our code."""
    shown = Shown()
    for record in said:
        match record:
            case TopicCreated(entry) if not shown.topic_id:
                shown = Shown(entry.topic_id, int(entry.overrides["retention.ms"]))
            case SettingsAltered(_, known, overrides) if known == shown.topic_id:
                shown = shown._replace(retention_ms=int(overrides["retention.ms"]))
            case PositionsCommitted(_, positions):
                for known, position in positions:
                    if known == shown.topic_id:
                        shown = shown._replace(offset=position.offset)
    return shown


class AtStart(dict[Any, tuple[int, int]]):
    """What goes with a copy that begins at the log start: the model's, and the stored state."""

    parts: list[StatePart]
    said: list[MetadataRecord]
    """All that the state comes from."""


class StoredMetadataToo(StoredToo):
    """Compares after each step what the real one shows with what its records say."""

    __slots__ = ("committed", "cut_at", "data", "metadata", "said", "state_said")

    def make(self, place: Path) -> None:
        self.said: list[MetadataRecord] = []
        """By offset, also below the log start."""
        self.state_said: list[MetadataRecord] = []
        """Of a state that was copied, which may reach beyond the log."""
        self.committed = 0
        """What the watermark, or a state that was copied, has said."""
        self.cut_at: int | None = None
        """What the power cut has left, if there was one since the last start."""
        self.data = DataDirectory(place, file_delete_delay_ms=0)
        self.data.member = True
        self._open()

    def _open(self) -> None:
        self.data.files = QuickFiles()
        self.metadata: MetadataLog = self.data.open().open_metadata()
        assert self.metadata.in_doubt == ""
        self.metadata.log.prepare()
        self.metadata.min_log_bytes = 1 << 30
        stored = ReplicaMetadataLog(self.metadata, Drops())
        stored.moved = self.apply
        stored.follow()
        self.stored = stored
        self.metadata.log.on_advance = self.metadata.log.on_synced = lambda _: self.apply()
        self.apply()

    def apply(self) -> None:
        self.metadata.apply()

    # What is shown.

    def shown(self) -> Shown:
        """As a client is told, and as it lies on the disk."""
        directory = self.data.directory
        entry = directory.topics().get(NAME)
        folders = {path.name for path in self.data.path.glob("*-[0-9]")}
        if entry is None:
            assert folders == set()
            return Shown()
        assert folders == {folder_name(*TOPIC)}
        held = {each.topic: each.offset for each in directory.committed.of(GROUP)}
        assert held.keys() <= {NAME}
        retention_ms = int(entry.overrides["retention.ms"])
        return Shown(entry.topic_id, retention_ms, held.get(NAME, -1))

    def check(self) -> None:
        super().check()
        applied = self.metadata.applied
        assert len(self.said) == len(self.entries)
        assert applied <= self.committed, "what not all in sync have is shown"
        assert applied <= max(self.synced_offset, self.metadata.state_offset)
        if not self.metadata.to_match:
            said = self.said if applied <= len(self.said) else self.state_said
            assert applied <= len(said)
            assert self.shown() == shown_by(said[:applied])

    # The log.

    def store(self, entry: Entry, time_ms: int) -> None:
        self._follow_start()
        entries = self.metadata.state.topics
        record = record_of(entry, entries[NAME].topic_id if NAME in entries else "")
        assert entry_of(record) == entry
        self.said.append(record)
        self.metadata.append(record)

    def decoded(self, data: bytes) -> list[Any]:
        return [entry_of(record) for record in read(data)]

    def size_bytes(self, offset: int, count: int) -> int:
        data = self.stored.read_stored(offset, MAX_BYTES).data.found.read()
        position = 0
        for _ in range(count):
            position += read_header(data, position).size_bytes
        return position

    def append_stored(self, stored: Stored) -> bool:
        self.said += read(stored.data[1])
        return super().append_stored(stored)

    def lead(self, epoch: int) -> None:
        self.stored.lead(epoch)
        end = self.stored.log_end_offset
        if end > len(self.entries):  # The state is all that it has up to there.
            self.said = self.state_said[:end]
            SimulatedLog.truncate_fully(self, end, {self._writer(it): (0, -1) for it in self.said})
        self.check()

    @staticmethod
    def _writer(record: MetadataRecord) -> str:
        return str(entry_of(record)[1])

    def set_high_watermark(self, offset: int) -> None:
        before = self.checkpoint
        self.committed = max(self.committed, offset)
        super().set_high_watermark(offset)
        if self.checkpoint != before:
            self.metadata.write_checkpoints()

    def truncate(self, offset: int) -> None:
        forgets = offset < self.metadata.state_offset
        del self.said[offset:]
        self.committed = min(self.committed, offset)
        SimulatedLog.truncate(self, offset)
        self.stored.truncate(offset)
        if forgets:  # Nothing says what there was there; at 0 there was nothing.
            self.said = []
            SimulatedLog.truncate_fully(self, 0, {})
        self.check()

    def producers_at_start(self) -> AtStart:
        found = AtStart(super().producers_at_start())
        reading = self.metadata.reading_state()
        found.parts = [reading.part()]
        while not found.parts[-1].is_last:
            found.parts.append(reading.part())
        reading.close()
        found.said = self.said[: found.parts[0].offset]
        return found

    def truncate_fully(self, offset: int, producers: Any) -> None:
        if producers is None:
            return  # The follower says its position again, and is sent the state.
        assert isinstance(producers, AtStart)
        assert isinstance(self.stored, ReplicaMetadataLog)
        SimulatedLog.truncate_fully(self, offset, producers)
        self.directory.topics_at = 0
        self.said, self.state_said = producers.said[:offset], producers.said
        self.committed = len(producers.said)
        for part in producers.parts:
            self.stored.take_part(part)
        self.stored.truncate_fully(offset, None)
        self.check()

    # A log that gets shorter.

    def write_state(self) -> bool:
        """Write a new state; whether the log begins later then, as it does at a leader."""
        before, self.metadata.state_wanted = self.log_start_offset, True
        if self.metadata.state_due:
            self.metadata.write_state()
            self._follow_start()
            self.check()
        return self.log_start_offset > before

    def raise_log_start(self, offset: int) -> None:
        self.stored.raise_log_start(offset)
        self._follow_start()
        self.check()

    def _follow_start(self) -> None:
        """The real one begins no later than its state ends."""
        self.synced_offset = max(self.synced_offset, self.stored.synced_offset)
        if self.stored.log_start_offset > self.log_start_offset:
            SimulatedLog.raise_log_start(self, self.stored.log_start_offset)

    # Kills and power cuts.

    def lose(self, random: Random) -> None:
        SimulatedLog.lose(self, random)
        self.cut_at = len(self.entries)
        del self.said[self.cut_at :]

    def open(self) -> None:
        SimulatedLog.open(self)
        self.data = self.data.copy(self.new_place())
        if self.cut_at is not None:
            self._cut_file(self.cut_at)
            self.cut_at = None
        self._open()
        # The real one has its own checkpoint, and what it has it has synced.
        self.high_watermark = self.metadata.log.high_watermark
        self.synced_offset = len(self.entries)
        self.check()
        self.check_bytes()

    def _cut_file(self, end: int) -> None:
        folder = self.data.path / METADATA_FOLDER / folder_name(*METADATA_PARTITION)
        path = max(folder.glob("*.log"))
        data, position, offset = path.read_bytes(), 0, int(path.stem)
        while position < len(data) and offset < end:
            position += read_header(data, position).size_bytes
            offset += 1
        with path.open("r+b") as file:
            file.truncate(position)
