"""Brokers with a metadata log each, whose watermarks and elections a test moves, and what topics
and positions have to be then: plain dictionaries."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from horolog.protocol.errors import OffsetOutOfRange
from horolog.storage.directory.journal import Cause, Removal
from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.directory.topics import TopicEntry
from horolog.storage.log.log import Log
from horolog.storage.metadata.access_records import (
    CredentialsAltered,
    QuotasAltered,
    RulesAdded,
    RulesRemoved,
    StoredCredential,
    StoredRule,
)
from horolog.storage.metadata.metadata_log import MetadataLog
from horolog.storage.metadata.records import (
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
)
from horolog.storage.metadata.snapshot import StateReading
from horolog.storage.names import folder_name
from horolog.storage.replica.copy_facts import CopyFacts
from horolog.storage.replica.replica_log import ReplicaLog
from horolog.testing.directories import DataDirectory
from horolog.testing.files import QuickFiles
from horolog.tests.followers.copies import epoch_end

NAMES = ("a", "b", "c-1")
GROUPS = ("g", "h")
MAX_BYTES = 400


def topic_id(number: int) -> str:
    return f"{number:022d}"


Topics = dict[str, tuple[str, int, tuple[tuple[str, str], ...]]]
Held = dict[tuple[str, str, int], tuple[int, str, int, int]]
Access = dict[tuple[str, ...], float]
"""Users, rules and quotas, each under a key of its own; the number is iterations, 1 or the quota.
"""


@dataclass
class Plain:
    """Topics, positions, users, rules and quotas as the records below some offset say,
    without any of our code."""

    topics: Topics = field(default_factory=dict)
    held: Held = field(default_factory=dict)
    access: Access = field(default_factory=dict)
    removed: list[Removal] = field(default_factory=list)

    def apply(self, record: MetadataRecord) -> None:
        match record:
            case PositionsCommitted() | PositionsUsed() | PositionsForgotten() | SomeForgotten():
                self._move(record)
            case TopicCreated(entry):
                own = (entry.topic_id, entry.partitions, tuple(sorted(entry.overrides.items())))
                self.topics.setdefault(entry.name, own)
            case PartitionsAdded(name, known, partitions) if self._is(name, known):
                _, before, settings = self.topics[name]
                self.topics[name] = (known, max(before, partitions), settings)
            case SettingsAltered(name, known, overrides) if self._is(name, known):
                self.topics[name] = (known, self.topics[name][1], tuple(sorted(overrides.items())))
            case MessagesRemoved(removals):
                for removal in removals:
                    join(self.removed, removal)
            case TopicDeleted(name, known, removals) if self._is(name, known):
                for removal in removals:
                    join(self.removed, removal)
                del self.topics[name]
                self.held = {key: own for key, own in self.held.items() if key[1] != name}
            case _:
                self._allow(record)

    def _allow(self, record: MetadataRecord) -> None:
        match record:
            case CredentialsAltered(credentials):
                for user, mechanism, found in credentials:
                    self._set(("user", user, mechanism), found and found.iterations)
            case RulesAdded(rules):
                for rule in rules:
                    self._set(("rule", *rule), 1)
            case RulesRemoved(rules):
                for rule in rules:
                    self._set(("rule", *rule), None)
            case QuotasAltered(quotas):
                for (who, _), values in quotas:
                    self._set(("quota", who or ""), values.get("request_percentage"))

    def _set(self, key: tuple[str, ...], value: float | None) -> None:
        self.access.pop(key, None)
        if value is not None:
            self.access[key] = value

    def _move(self, record: PositionRecord) -> None:
        match record:
            case PositionsCommitted(group, positions):
                for known, each in positions:
                    if self._is(each.topic, known) and each.partition < self.topics[each.topic][1]:
                        own = (each.offset, each.metadata, each.retention_ms, each.used_ms)
                        self.held[group, each.topic, each.partition] = own
            case PositionsUsed(group, used_ms):
                expiring = [
                    key for key, own in self.held.items() if key[0] == group and own[2] >= 0
                ]
                for key in sorted(expiring)[:1]:
                    offset, text, retention_ms, _ = self.held[key]
                    self.held[key] = (offset, text, retention_ms, used_ms)
            case PositionsForgotten(group):
                self.held = {key: own for key, own in self.held.items() if key[0] != group}
            case SomeForgotten(group, partitions):
                self._drop(
                    group,
                    {(group, topic, n) for known, topic, n in partitions if self._is(topic, known)},
                )

    def _drop(self, group: str, places: set[tuple[str, str, int]]) -> None:
        gone = {key: own for key, own in self.held.items() if key in places}
        for key in gone:
            del self.held[key]
        used_ms = max((own[3] for own in gone.values()), default=-1)
        kept = sorted(key for key, own in self.held.items() if key[0] == group and own[2] >= 0)
        if kept and used_ms > max(self.held[key][3] for key in kept):
            offset, text, retention_ms, _ = self.held[kept[0]]
            self.held[kept[0]] = (offset, text, retention_ms, used_ms)

    def _is(self, name: str, known: str) -> bool:
        return name in self.topics and self.topics[name][0] == known


def removal(topic: str, known: str, first: int, end: int, **other: Any) -> Removal:
    """What a trim removed, each message a millisecond later than the one before."""
    made = Removal(Cause.TRIM, "User:a", topic, known, 0, first, end, end - first, first, end, 5, 5)
    return made._replace(**other)


def join(removed: list[Removal], new: Removal, topic_max: int = 1000) -> None:
    """Add a removal to a plain list as a journal does."""
    own = [at for at, each in enumerate(removed) if each[2:5] == new[2:5]]
    last = removed[own[-1]] if own else new
    if own and last[:2] == new[:2] and last.first_offset <= new.first_offset <= last.end_offset:
        del removed[own[-1]]  # By its place, as an earlier one may be equal.
        if new.end_offset > last.end_offset:
            known = [
                each for each in (last.first_timestamp_ms, new.first_timestamp_ms) if each >= 0
            ]
            counted = last.messages >= 0 and new.messages >= 0
            more = max(new.messages - (last.end_offset - new.first_offset), 0)
            last = last._replace(
                end_offset=new.end_offset,
                messages=last.messages + more if counted else -1,
                first_timestamp_ms=known[0] if known else -1,
                largest_timestamp_ms=max(last.largest_timestamp_ms, new.largest_timestamp_ms),
                at_ms=new.at_ms,
                times=last.times + new.times,
            )
        new = last
    removed.append(new)
    of_topic = [each for each in removed if each.topic == new.topic]
    for each in of_topic[: max(len(of_topic) - topic_max, 0)]:
        removed.remove(each)


class Copy:
    """One broker's data directory, opened as that of a cluster member."""

    def __init__(self, path: Path, *, files: Any = None) -> None:
        self.data = DataDirectory(path, file_delete_delay_ms=0)
        self.data.member = True
        self.data.files = files or QuickFiles()
        self.metadata: MetadataLog
        self.began_anew = 0
        """How often."""
        self.open()

    @property
    def log(self) -> Log:
        return self.metadata.log

    def open(self) -> None:
        self.metadata = self.data.open().open_metadata()
        self.metadata.min_log_bytes = 1 << 30
        self.log.prepare()

    def restart(self) -> None:
        self.data.close()
        self.open()

    def kill(self, path: Path) -> None:
        """Go on with what `kill -9` leaves now."""
        self.data = self.data.copy(path)
        self.data.files = QuickFiles()
        self.open()

    def apply(self) -> None:
        if self.metadata.unsynced:
            self.log.flusher.flush()
        self.metadata.apply()

    def plain(self) -> Plain:
        """What it shows, of folders too."""
        directory = self.data.directory
        topics: Topics = {}
        for name, entry in directory.topics().items():
            settings = tuple(sorted(entry.overrides.items()))
            topics[name] = (entry.topic_id, entry.partitions, settings)
        folders = {
            folder_name(name, number)
            for name, (_, partitions, _) in topics.items()
            for number in range(partitions)
        }
        assert {path.name for path in self.data.path.glob("*-[0-9]")} == folders
        held: Held = {}
        for group in directory.committed.names():
            for each in directory.committed.of(group):
                own = (each.offset, each.metadata, each.retention_ms, each.used_ms)
                held[group, each.topic, each.partition] = own
        assert len(directory.committed) == len(held)
        return Plain(topics, held, self._access(), list(self.metadata.state.journal))

    def _access(self) -> Access:
        state = self.metadata.state.access
        found: Access = {
            ("user", user, mechanism): each.iterations
            for user, held in state.users.items()
            for mechanism, each in held.items()
        }
        found |= {("rule", *rule): 1 for rule in state.rules}
        quotas = state.quotas.items()
        return found | {("quota", who or ""): own["request_percentage"] for (who, _), own in quotas}


def agree(leader: Copy, follower: Copy) -> None:
    """Cut what the leader does not have; begin anew where nothing is common (KIP-279)."""
    log = follower.log
    while True:
        start = leader.log.segments[0].base_offset
        if not start <= log.log_end_offset:
            break
        epoch = ReplicaLog(log).last_epoch
        theirs = epoch_end(leader.log, epoch)
        if theirs.epoch == epoch and log.log_end_offset <= theirs.end_offset:
            return
        offset = min(theirs.end_offset, epoch_end(log, theirs.epoch).end_offset)
        if offset < max(log.log_start_offset, start) or offset >= log.log_end_offset:
            break
        follower.metadata.truncate(offset)
    begin_anew(leader, follower)


def begin_anew(leader: Copy, follower: Copy) -> None:
    follower.began_anew += 1
    begin_with(follower, leader.log.log_start_offset, leader.metadata.reading_state())


def begin_with(follower: Copy, offset: int, reading: StateReading) -> None:
    """Copy a state, part by part, and begin anew with it."""
    copied, snapshot = follower.metadata.copying_state(), None
    with closing(reading):
        while snapshot is None:
            snapshot = copied.take(reading.part())
    follower.metadata.begin_anew(offset, copied, snapshot)


def copy_some(
    leader: Copy, follower: Copy, max_bytes: int = MAX_BYTES, *, sync: bool = True
) -> None:
    """One request of a follower that agrees: records, where the log begins, and the watermark."""
    log = follower.log
    try:
        stretch = ReplicaLog(leader.log).read(log.log_end_offset, max_bytes)
    except OffsetOutOfRange:
        begin_anew(leader, follower)
        return
    facts = CopyFacts.decode(stretch.facts.encode())
    ReplicaLog(log).append(stretch.found.read(), facts)
    if sync:
        log.flusher.flush()
    follower.metadata.begin_at(leader.log.log_start_offset)
    tell(leader, follower)


def copy_all(leader: Copy, follower: Copy) -> None:
    while follower.log.log_end_offset < leader.log.log_end_offset:
        copy_some(leader, follower, 1 << 20)
    copy_some(leader, follower)


def tell(leader: Copy, follower: Copy) -> None:
    """The watermark: never back, and never beyond what there is."""
    known = min(leader.log.high_watermark, follower.log.log_end_offset)
    if known > follower.log.high_watermark:
        follower.log.hold_high_watermark(known)


def commit(leader: Copy, in_sync: Sequence[Copy]) -> None:
    """Move the leader's watermark to what all in sync have."""
    leader.log.flusher.flush()
    end = min(copy.log.recovery_point for copy in in_sync)
    if end > leader.log.high_watermark:
        leader.log.hold_high_watermark(end)


def some_record(random: Random, state: dict[str, TopicEntry]) -> MetadataRecord:
    """A record that may or may not fit."""
    name = random.choice(NAMES)
    known = state[name].topic_id if name in state else topic_id(random.randrange(5))
    stale = topic_id(random.randrange(10**6))
    match random.randrange(14):
        case 0 | 1 | 2:
            entry = TopicEntry(
                name=name,
                partitions=random.randint(1, 2),
                topic_id=stale,
                overrides={} if random.random() < 0.5 else {"retention.ms": "5000"},
            )
            return TopicCreated(entry)
        case 3:
            return PartitionsAdded(name, known, random.randint(1, 4))
        case 4:
            ms = str(random.randint(1000, 9000))
            return SettingsAltered(name, known, {"retention.ms": ms})
        case 5:
            return TopicDeleted(name, random.choice([known, known, stale]))
        case 6:
            if random.random() < 0.3:
                return PositionsForgotten(random.choice(GROUPS))
            if random.random() < 0.5:
                places = [(random.choice([known, stale]), name, number) for number in range(2)]
                return SomeForgotten(random.choice(GROUPS), places)
            return PositionsUsed("g", random.randint(0, 9))
        case 7 | 8:
            return some_access_record(random)
        case _:
            some = [
                (state[each].topic_id if each in state else stale, position(random, each))
                for each in random.sample(NAMES, random.randint(1, 3))
            ]
            return PositionsCommitted(random.choice(GROUPS), some)


def some_access_record(random: Random) -> MetadataRecord:
    """A record about one of two users, rules or quotas."""
    name, gone = random.choice("xy"), random.random() < 0.3
    credential = StoredCredential(b"salt", random.randint(4096, 9999), b"k" * 32, b"k" * 32)
    rule = StoredRule(f"User:{name}", "*", "READ", "ALLOW", "TOPIC", "LITERAL", "t")
    values = {} if gone else {"request_percentage": random.randint(1, 9) / 2}
    return random.choice(
        [
            CredentialsAltered([(name, "SCRAM-SHA-256", None if gone else credential)]),
            RulesRemoved([rule]) if gone else RulesAdded([rule]),
            QuotasAltered([((name, None), values)]),
        ]
    )


def position(random: Random, topic: str) -> StoredPosition:
    return StoredPosition(
        topic,
        random.randrange(3),
        random.randrange(10**9),
        -1,
        random.randrange(10**9),
        random.choice(["", "text"]),
        random.choice([-1, 0, 60_000]),
    )
