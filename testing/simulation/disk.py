"""Logs and directories in memory, with what a power cut takes away."""

from collections.abc import Callable, Container, Mapping
from random import Random
from typing import Any, ClassVar, Protocol

from ...replication.partition_log import Identity, Partition, Stored
from ...replication.settings import Member
from ...storage.replica.epoch_history import EpochHistory, EpochStart
from .violation import Violation

Entry = tuple[int, Any, int]
"""(epoch, who wrote it, number): one message."""

METADATA: Partition = ("__metadata", 0)
DATA: Partition = ("data", 0)
TOPIC: Partition = ("topic0", 0)
"""Of the topic that clients make."""


class Watcher(Protocol):
    """Called before a log changes in a way that concerns the promises."""

    @property
    def syncs(self) -> Mapping[Partition, bool]:
        """By partition, whether `acks.all.durability` of its topic is `fsync` now."""
        ...

    def watermark(self, log: "SimulatedLog", offset: int) -> None: ...

    def cut(self, log: "SimulatedLog", offset: int) -> None: ...

    def emptied(self, log: "SimulatedLog", offset: int) -> None: ...

    def started(self, log: "SimulatedLog", offset: int) -> None: ...


class SimulatedLog:
    """A `PartitionLog`: a list of messages, of which the first `synced_offset` survive."""

    __slots__ = (
        "_before_cut",
        "_epochs",
        "_last",
        "checkpoint",
        "directory",
        "entries",
        "expired",
        "high_watermark",
        "history_lost",
        "log_start_offset",
        "partition",
        "synced_offset",
    )

    cuts_are_synced: ClassVar[bool] = True

    def __init__(self, partition: Partition, directory: "SimulatedDirectory") -> None:
        self.partition = partition
        self.directory = directory
        self.entries: list[Entry | None] = []
        """By offset; `None` below the log start."""
        self._epochs = EpochHistory()
        self.history_lost = False
        self.log_start_offset = 0
        self.high_watermark = 0
        self.synced_offset = 0
        self.checkpoint = 0
        """The watermark as it is on the disk."""
        self._before_cut: list[Entry | None] | None = None
        self._last: dict[Any, tuple[int, int]] = {}
        self.expired: dict[Any, tuple[int, int]] = {}
        """By writer, its last message below the log start, as `last_of` gives it."""

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    @property
    def min_insync(self) -> int | None:
        return self.directory.min_insyncs.get(self.partition)

    @property
    def sync_for_acks_all(self) -> bool | None:
        return self.directory.watcher.syncs.get(self.partition)

    @property
    def damaged_from(self) -> None:
        """Damage is not simulated."""
        return None

    @property
    def epochs(self) -> EpochHistory:
        if self.history_lost:
            raise Violation(f"{name_of(self)}: what cannot be read is asked for")
        return self._epochs

    @epochs.setter
    def epochs(self, history: EpochHistory) -> None:
        self._epochs = history

    def lose_history(self) -> None:
        """The epochs cannot be read any more."""
        self._epochs = EpochHistory()
        self.history_lost = True

    def set_high_watermark(self, offset: int) -> None:
        self.directory.watcher.watermark(self, offset)
        self.high_watermark = offset
        if offset >= self.checkpoint + 3:
            self.checkpoint = offset

    def lead(self, epoch: int) -> None:
        """Messages of which nobody knows the epochs become those of this one."""
        if self.history_lost:
            self.history_lost = False
            starts = (EpochStart(epoch, self.log_start_offset),)
            self._epochs = EpochHistory(starts if self.log_start_offset < len(self.entries) else ())

    def begin_epoch(self, epoch: int, offset: int) -> None:
        self.epochs = self.epochs.assigned(epoch, offset)

    def append(self, entry: Entry) -> None:
        """As the leader."""
        self._last[entry[1]] = (entry[2], len(self.entries))
        self.entries.append(entry)

    def last_of(self, writer: Any) -> tuple[int, int]:
        """(number, offset) of the last message of a writer; (-1, -1) without one."""
        return self._last.get(writer, (-1, -1))

    def read_stored(self, offset: int, max_bytes: int) -> Stored:
        data = self.entries[offset : offset + max(1, max_bytes)]
        return Stored(data, offset + len(data), len(data))

    def append_stored(self, stored: Stored) -> None:
        first = stored.next_offset - len(stored.data)
        if first != len(self.entries):
            raise Violation(f"what begins at {first} is appended at {len(self.entries)}")
        for offset, entry in enumerate(stored.data, len(self.entries)):
            self._last[entry[1]] = (entry[2], offset)
        self.entries += stored.data

    def truncate(self, offset: int) -> None:
        self.directory.watcher.cut(self, offset)
        if not self.cuts_are_synced:
            self._before_cut = self.entries[:]
        del self.entries[offset:]
        self._cut()
        self.directory.forget_topics()

    def _cut(self) -> None:
        end = len(self.entries)
        self._epochs = self._epochs.cut(end)
        self.high_watermark = min(self.high_watermark, end)
        self.checkpoint = min(self.checkpoint, end)
        self.synced_offset = min(self.synced_offset, end)
        self._count()

    def _count(self) -> None:
        self._last = dict(self.expired)
        self._last |= {
            entry[1]: (entry[2], offset)
            for offset, entry in enumerate(self.entries)
            if entry is not None
        }

    def producers_at_start(self) -> dict[Any, tuple[int, int]]:
        return dict(self.expired)

    def truncate_fully(self, offset: int, producers: dict[Any, tuple[int, int]] | None) -> None:
        self.directory.watcher.emptied(self, offset)
        self.entries = [None] * offset
        self._epochs = EpochHistory()
        self.history_lost = False
        self.log_start_offset = self.high_watermark = self.checkpoint = offset
        self.synced_offset = offset
        self.expired = dict(producers or {})
        self._last = dict(self.expired)
        self.directory.forget_topics()

    def raise_log_start(self, offset: int) -> None:
        self.directory.watcher.started(self, offset)
        for at in range(self.log_start_offset, offset):
            entry = self.entries[at]
            if entry is not None:
                self.expired[entry[1]] = (entry[2], at)
        self.entries[self.log_start_offset : offset] = [None] * (offset - self.log_start_offset)
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self._epochs = _begun_at(self._epochs, offset)

    def sync(self) -> None:
        self.synced_offset = len(self.entries)
        self._before_cut = None

    def lose(self, random: Random) -> None:
        """The power is cut: of what is not synced, something is lost."""
        before = self._before_cut
        kept = random.randint(max(self.synced_offset, self.log_start_offset), len(self.entries))
        del self.entries[kept:]
        if before is not None:
            self.entries += before[kept:]
            self._before_cut = None
            self._count()
        else:
            self._cut()

    def open(self) -> None:
        """The process is started: what it knew of the watermark is what is on the disk."""
        self.high_watermark = self.opened_watermark()

    def opened_watermark(self) -> int:
        return min(max(self.checkpoint, self.log_start_offset), len(self.entries))

    def copy(self, directory: "SimulatedDirectory") -> "SimulatedLog":
        made = type(self)(self.partition, directory)
        made.entries = self.entries[:]
        made._epochs = self._epochs
        made.history_lost = self.history_lost
        made.log_start_offset = self.log_start_offset
        made.high_watermark = self.high_watermark
        made.synced_offset = self.synced_offset
        made.checkpoint = self.checkpoint
        made.expired = dict(self.expired)
        made._count()
        return made


def name_of(log: SimulatedLog) -> str:
    """For a text."""
    return f"{log.partition} at broker {log.directory.broker_id}"


def _begun_at(history: EpochHistory, log_start_offset: int) -> EpochHistory:
    """Of a log that begins at `log_start_offset`, as does the epoch in force there: an emptied log
    has one start, at its end."""
    left = history.begun_at(log_start_offset).starts
    if not left or left[0].start_offset >= log_start_offset:
        return EpochHistory(left)
    return EpochHistory((EpochStart(left[0].epoch, log_start_offset), *left[1:]))


class SimulatedDirectory:
    """A `Directory` with `SimulatedLog`s."""

    __slots__ = (
        "broker_id",
        "copied",
        "identity",
        "logs",
        "make_log",
        "min_insyncs",
        "owners",
        "stored",
        "topics_at",
        "watcher",
    )

    def __init__(
        self,
        broker_id: int,
        watcher: Watcher,
        min_insyncs: Mapping[Partition, int],
        make_log: Callable[[Partition, "SimulatedDirectory"], SimulatedLog] = SimulatedLog,
    ) -> None:
        self.broker_id = broker_id
        self.identity = Identity()
        self.owners: Mapping[int, Member] = {}
        self.watcher = watcher
        self.min_insyncs = min_insyncs
        """By partition, `min.insync.replicas` of its topic, as it is now."""
        self.make_log = make_log
        self.logs: dict[Partition, SimulatedLog] = {}
        self.topics_at = 0
        """Up to where the metadata log was applied."""
        self.stored: Callable[[], None] = _nothing
        self.copied = False
        """Whether it is a copy that no process has started with yet."""

    @property
    def member(self) -> Member:
        return Member(self.broker_id, self.identity.nonce)

    def is_in(self, members: Container[Member]) -> bool:
        """Whether it is one of `members`, under its nonce or the one that takes its place. A copy
        is none."""
        following = Member(self.broker_id, self.identity.next_nonce)
        return not self.copied and (self.member in members or following in members)

    @property
    def complete(self) -> bool:
        return self.topics_at >= self.logs[METADATA].high_watermark

    def store(self, identity: Identity) -> None:
        if identity.nonce != self.identity.nonce:
            self.stored()
        self.identity = identity

    def keep_owners(self, owners: Mapping[int, Member]) -> None:
        self.owners = owners

    def add(self, partition: Partition) -> None:
        self.logs[partition] = self.make_log(partition, self)

    def forget_topics(self) -> None:
        """The metadata does not name a topic any more: a leader lost it."""
        topic = ("topic0", 0)
        if topic in self.logs and self.logs[METADATA].last_of("topic")[0] < 0:
            del self.logs[topic]

    def copy(self) -> "SimulatedDirectory":
        """As it lies there now."""
        made = SimulatedDirectory(self.broker_id, self.watcher, self.min_insyncs, self.make_log)
        made.identity = self.identity
        made.owners = self.owners
        made.logs = {name: log.copy(made) for name, log in self.logs.items()}
        return made


def _nothing() -> None:
    """In the place of a witness."""
