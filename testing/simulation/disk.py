"""Logs and directories in memory, which can lose what a power cut takes."""

from collections.abc import Callable, Container, Mapping
from random import Random
from typing import Any, ClassVar, NamedTuple, Protocol

from ...replication.partition_log import Identity, Partition
from ...replication.settings import Member
from ...storage.log.epoch_history import EpochHistory, EpochStart
from ...storage.replica.copy_facts import Stored
from .times import Times
from .violation import Violation

Entry = tuple[int, Any, int]
"""One message: (epoch, writer, number)."""

METADATA: Partition = ("__metadata", 0)
DATA: Partition = ("data", 0)
TOPIC: Partition = ("topic0", 0)
"""Partition of the topic that clients create."""


class SentStretch(NamedTuple):
    """The part of a log that a leader sends to a follower."""

    entries: list[Entry | None]
    times_ms: list[int]
    bases: list[int]
    """Base offsets of the segments that start in it."""
    damaged: bool = False


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
    """A `PartitionLog` as a list of messages, of which the first `synced_offset` survive a power
    cut."""

    __slots__ = (
        "_before_cut",
        "_epochs",
        "_last",
        "_refused",
        "bad_from",
        "checkpoint",
        "damage_known",
        "directory",
        "entries",
        "expired",
        "high_watermark",
        "history_lost",
        "log_start_offset",
        "partition",
        "synced_offset",
        "times",
    )

    cuts_are_synced: ClassVar[bool] = True

    def __init__(self, partition: Partition, directory: "SimulatedDirectory") -> None:
        self.partition = partition
        self.directory = directory
        self.entries: list[Entry | None] = []
        """Messages by offset; `None` below the log start."""
        self.times = Times()
        self.bad_from: int | None = None
        """Offset from which the stored bytes are damaged, up to the end of its segment, whether the
        broker knows it or not."""
        self.damage_known = False
        self._refused = False
        """Whether the last messages received were damaged."""
        self._epochs = EpochHistory()
        self.history_lost = False
        self.log_start_offset = 0
        self.high_watermark = 0
        self.synced_offset = 0
        self.checkpoint = 0
        """The watermark as stored on the disk."""
        self._before_cut: tuple[list[Entry | None], Times] | None = None
        self._last: dict[Any, tuple[int, int]] = {}
        self.expired: dict[Any, tuple[int, int]] = {}
        """By writer, its last message below the log start, as `last_of` returns it."""

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
    def damaged_from(self) -> int | None:
        return self.bad_from if self.damage_known else None

    @property
    def _is_sent(self) -> bool:
        """Whether a leader sends damaged messages: only the CRCs reveal them, which the leader does
        not verify."""
        return self.bad_from is not None and bool(self.bad_from % 2) and not self.damage_known

    def go_bad(self, offset: int) -> None:
        """Damage a stored message, as a flipped bit or a cut file would."""
        if self.bad_from is None or offset < self.bad_from:
            self.bad_from, self.damage_known = offset, False

    def find_damage(self) -> None:
        """Notice the damage, as a reader or a scrub does."""
        if self.bad_from is not None and not self.damage_known:
            self.damage_known = self.directory.damage_met = True

    def repair(self) -> None:
        """Cut off what cannot be read, as an operator does."""
        assert self.bad_from is not None
        del self.entries[self.bad_from :]
        self._cut()

    def _keep_damage(self, start: int, end: int) -> None:
        """Adjust the damage: only the part of the damaged segment between `start` and `end` is
        left."""
        if self.bad_from is None:
            return
        self.bad_from = max(self.bad_from, start)
        if self.bad_from >= end:
            self.bad_from, self.damage_known = None, False

    @property
    def epochs(self) -> EpochHistory:
        if self.history_lost:
            raise Violation(f"{name_of(self)}: what cannot be read is asked for")
        return self._epochs

    @epochs.setter
    def epochs(self, history: EpochHistory) -> None:
        self._epochs = history

    def lose_history(self) -> None:
        """Make the epochs unreadable."""
        self._epochs = EpochHistory()
        self.history_lost = True

    def set_high_watermark(self, offset: int) -> None:
        self.directory.watcher.watermark(self, offset)
        self.high_watermark = offset
        if offset >= self.checkpoint + 3:
            self.checkpoint = offset

    def lead(self, epoch: int) -> None:
        """Messages whose epochs are lost become messages of this epoch."""
        if self.history_lost:
            self.history_lost = False
            starts = (EpochStart(epoch, self.log_start_offset),)
            self._epochs = EpochHistory(starts if self.log_start_offset < len(self.entries) else ())

    def begin_epoch(self, epoch: int, offset: int) -> None:
        self.epochs = self.epochs.assigned(epoch, offset)

    def append(self, entry: Entry, time_ms: int) -> None:
        """Append a message as the leader."""
        self.times.append(time_ms)
        self._last[entry[1]] = (entry[2], len(self.entries))
        self.entries.append(entry)

    def next_stamp_ms(self, now_ms: int) -> int:
        """Return the append time that the broker assigns: its clock, but never before the last
        one."""
        last_ms = self.times.of[-1] if len(self.entries) > self.log_start_offset else now_ms
        return max(now_ms, last_ms)

    def last_of(self, writer: Any) -> tuple[int, int]:
        """Return (number, offset) of the last message of a writer; (-1, -1) without one."""
        return self._last.get(writer, (-1, -1))

    def read_stored(self, offset: int, max_bytes: int) -> Stored:
        stretch = self.stretch(offset, offset + max(1, max_bytes))
        count = len(stretch.entries)
        return Stored(stretch, offset + count, count)

    def stretch(self, offset: int, end: int) -> SentStretch:
        """Return messages and their times up to `end`, the log end, or what cannot be read."""
        bad_from, damaged = self.bad_from, False
        if bad_from is not None and bad_from < end:
            in_front = offset < bad_from
            if in_front or offset < self.times.segment_of(bad_from)[1]:
                damaged = self._is_sent
                if not damaged:
                    end = bad_from if in_front else offset
                    if not in_front:
                        self.find_damage()
        times = self.times
        return SentStretch(
            self.entries[offset:end],
            times.of[offset:end],
            times.bases_between(offset, end),
            damaged,
        )

    def append_stored(self, stored: Stored) -> bool:
        stretch: SentStretch = stored.data
        if stretch.damaged:
            self._refused = True
            self._epochs = self._epochs.cut(len(self.entries))
            return False
        first = stored.next_offset - len(stretch.entries)
        if first != len(self.entries):
            if self._refused:
                return True  # the fetch was sent before that
            raise Violation(f"what begins at {first} is appended at {len(self.entries)}")
        self._refused = False
        for offset, entry in enumerate(stretch.entries, first):
            if entry is not None:
                self._last[entry[1]] = (entry[2], offset)
        if stretch.entries:
            self.entries += stretch.entries
            self.take_times(first, stretch)
        else:  # an epoch start without a message means nothing
            self._epochs = self._epochs.cut(first)
        return True

    def take_times(self, first: int, stretch: SentStretch) -> None:
        """Add the leader's segments and times, as a follower."""
        times, bases = self.times, stretch.bases
        if not bases:
            for time_ms in stretch.times_ms:
                times.add(time_ms)
            return
        for offset, time_ms in enumerate(stretch.times_ms, first):
            if offset in bases:
                times.roll(offset)
            times.add(time_ms)

    def truncate(self, offset: int) -> None:
        self.directory.watcher.cut(self, offset)
        if not self.cuts_are_synced:
            self._before_cut = self.entries[:], self.times.copy()
        del self.entries[offset:]
        self._cut()
        self.directory.forget_topics()

    def _cut(self) -> None:
        end = len(self.entries)
        self._keep_damage(0, end)
        self.times.cut(end)
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
        self.times.begin(offset)
        self.bad_from, self.damage_known = None, False
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
        if self.bad_from is not None:
            self._keep_damage(offset, self.times.segment_of(self.bad_from)[1])
        self.log_start_offset = offset
        self.times.raise_start(offset)
        self.high_watermark = max(self.high_watermark, offset)
        self._epochs = _begun_at(self._epochs, offset)

    def sync(self) -> None:
        self.synced_offset = len(self.entries)
        self._before_cut = None

    def lose(self, random: Random) -> None:
        """Cut the power: some of what is not synced is lost."""
        before = self._before_cut
        kept = random.randint(max(self.synced_offset, self.log_start_offset), len(self.entries))
        del self.entries[kept:]
        if before is not None:
            entries, times = before
            self.entries += entries[kept:]
            self.times.go_on_as(times, kept)
            self._before_cut = None
            self._count()
        else:
            self._cut()

    def open(self) -> None:
        """Start the process: it knows the watermark that is on the disk."""
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
        made.times = self.times.copy()
        made.bad_from, made.damage_known = self.bad_from, self.damage_known
        made.checkpoint = self.checkpoint
        made.expired = dict(self.expired)
        made._count()
        return made


def name_of(log: SimulatedLog) -> str:
    """Return a name for messages."""
    return f"{log.partition} at broker {log.directory.broker_id}"


def _begun_at(history: EpochHistory, log_start_offset: int) -> EpochHistory:
    """Return the history of a log that starts at `log_start_offset`, where the current epoch then
    starts too. An emptied log has one start, at its end."""
    left = history.begun_at(log_start_offset).starts
    if not left or left[0].start_offset >= log_start_offset:
        return EpochHistory(left)
    return EpochHistory((EpochStart(left[0].epoch, log_start_offset), *left[1:]))


class SimulatedDirectory:
    """A `Directory` with `SimulatedLog`s."""

    __slots__ = (
        "broker_id",
        "copied",
        "damage_met",
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
        """By partition, the current `min.insync.replicas` of its topic."""
        self.make_log = make_log
        self.logs: dict[Partition, SimulatedLog] = {}
        self.topics_at = 0
        """Offset up to which the metadata log was applied."""
        self.stored: Callable[[], None] = _nothing
        self.damage_met = False
        """Whether a log met damage that has not been reported yet."""
        self.copied = False
        """Whether the directory is a copy with which no process has started yet."""

    @property
    def member(self) -> Member:
        return Member(self.broker_id, self.identity.nonce)

    def is_in(self, members: Container[Member]) -> bool:
        """Whether the directory is one of `members`, under its nonce or the next one. A copy is
        not."""
        following = Member(self.broker_id, self.identity.next_nonce)
        return not self.copied and (self.member in members or following in members)

    @property
    def complete(self) -> bool:
        if any(log.damage_known for log in self.logs.values()):
            return False
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
        """Remove a topic that the metadata no longer name, because a leader lost it."""
        topic = ("topic0", 0)
        if topic in self.logs and self.logs[METADATA].last_of("topic")[0] < 0:
            del self.logs[topic]

    def copy(self) -> "SimulatedDirectory":
        """Return a copy of the directory in its current state."""
        made = SimulatedDirectory(self.broker_id, self.watcher, self.min_insyncs, self.make_log)
        made.identity = self.identity
        made.owners = self.owners
        made.logs = {name: log.copy(made) for name, log in self.logs.items()}
        return made


def _nothing() -> None:
    """Default of `stored`: does nothing."""
