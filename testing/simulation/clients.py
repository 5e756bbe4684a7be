"""Simulated clients: producers that retry, offset commits, the creation of a topic, trims,
readers."""

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ...replication.effects import Outcome, Token
from ...replication.partition_log import Partition
from ...storage.log.timestamp_range import in_range
from .disk import METADATA, Entry
from .machine import BEGIN_MS
from .times import LIMIT_MS, SETTINGS
from .violation import Violation

if TYPE_CHECKING:
    from .machine import Machine
    from .schedule import Simulation


class Write(NamedTuple):
    """One message that a client wants stored. Each writer numbers its messages from 0."""

    writer: int | str
    number: int
    partition: Partition
    acks_all: bool
    created_ms: int = 0
    """Create time of the message."""


class Pending(NamedTuple):
    """A waiting request, as the token that the broker returns."""

    write: Write
    offset: int
    entry: Entry
    synced: bool
    """Whether the answer waits until the ISR has synced the message."""


class Trim(NamedTuple):
    """A request to remove the messages below an offset."""

    partition: Partition
    offset: int


class Clients:
    """All clients of the brokers."""

    def __init__(self, simulation: "Simulation", random: Random) -> None:
        self._simulation = simulation
        self._random = random
        self._writes: list[Write | None] = [None, None, None]
        """By producer, the message that it has sent and that is not acknowledged yet."""
        self._ids = [0, 1, 2]
        self._next_id = 3
        self._numbers = [0, 0, 0]
        self._late: list[tuple[Write, Machine]] = []
        self._position: Write | None = None
        self._positions = 0
        self._topic: Write | None = None

    def act(self) -> None:
        """Let one client do something."""
        chance = self._random.random()
        if chance < 0.62:
            self._produce()
        elif chance < 0.72:
            self._commit()
        elif chance < 0.76:
            self.create()
        elif chance < 0.8 and self._late:
            write, machine = self._late.pop(self._random.randrange(len(self._late)))
            self.deliver(write, machine)
        elif chance < 0.84:
            self._expire()
        else:
            self._read()

    def _leader(self) -> "Machine | None":
        """Return a broker for a client's write: a leader of some epoch."""
        machines = list(self._simulation.machines.values())
        leaders = [machine for machine in machines if machine.active and machine.active.leader]
        if not leaders:
            return None
        return self._random.choice(leaders)

    def _produce(self) -> None:
        number = self._random.randrange(len(self._writes))
        machine = self._leader()
        if machine is None:
            return
        write = self._writes[number]
        if write is None:
            write = Write(
                self._ids[number],
                self._numbers[number],
                self._random.choice(self._simulation.data_partitions()),
                self._random.random() < 0.75,
                self._created_ms(),
            )
            self._writes[number] = write
        if self._random.random() < 0.1:
            self._late.append((write, machine))
        else:
            self.deliver(write, machine)

    def _created_ms(self) -> int:
        """Return a create time: now, or earlier for a message that waited long at its client."""
        simulation = self._simulation
        random = simulation.times.random
        waited_ms = (0, 10_000, LIMIT_MS * 0.8)[int(random() * 3)] * random()
        return BEGIN_MS + int(simulation.now_s * 1000 - waited_ms)

    def _commit(self) -> None:
        machine = self._leader()
        if machine is not None:
            if self._position is None:
                self._positions += 1
                self._position = Write("position", self._positions, METADATA, True)
            self.deliver(self._position, machine)

    def create(self) -> None:
        machine = self._leader()
        if machine is not None and not self._simulation.topics_made:
            self._topic = Write("topic", 0, METADATA, True)
            self.deliver(self._topic, machine)

    def deliver(self, write: Write, machine: "Machine") -> None:
        """Deliver a request to a broker."""
        node = machine.active
        if node is None or write.partition not in machine.directory.logs:
            return
        refusal = node.refusal(machine.now_s, write.acks_all, write.partition)
        if refusal is None and node.leader is not None:
            self._append(write, machine)
        machine.settle()

    def _append(self, write: Write, machine: "Machine") -> None:
        node = machine.node
        if node is None or node.leader is None:
            return
        log = machine.directory.logs[write.partition]
        if write.partition not in node.leader.partitions:
            return
        last, offset = log.last_of(write.writer)
        synced = self._simulation.syncs(write.partition)
        numbered = isinstance(write.writer, int)
        if numbered and write.number <= last:
            if write.number < last:
                return  # acknowledged long ago
            entry = log.entries[offset]
            if entry is None:
                self._done(write)  # committed, or it would not have expired
            elif write.acks_all:
                waits = Pending(write, offset, entry, synced)
                node.await_commit(write.partition, offset, offset + 1, waits)
            else:
                self._done(write)
            return
        if numbered and write.number != last + 1:
            self._begin_anew(write)
            return
        time_ms = self._time_ms(write, machine)
        if time_ms is None:
            self._simulation.oracle.count("refused times")
            return
        node.begin_append(write.partition)
        offset = log.log_end_offset
        entry = (node.leader.epoch, write.writer, write.number)
        log.append(entry, time_ms)
        token = Pending(write, offset, entry, synced) if write.acks_all else None
        node.appended(write.partition, offset, offset + 1, token)
        if not write.acks_all:
            self._done(write)

    def _time_ms(self, write: Write, machine: "Machine") -> int | None:
        """Return the time that the leader gives a message; `None` if it refuses the client's
        time."""
        now_ms = machine.wall_ms
        if write.partition in self._simulation.stamped:
            return machine.directory.logs[write.partition].next_stamp_ms(now_ms)
        if write.partition == METADATA:
            return now_ms
        return write.created_ms if in_range(*(write.created_ms,) * 2, SETTINGS, now_ms) else None

    def _begin_anew(self, write: Write) -> None:
        """Restart the producer: its earlier messages are gone, as only one broker had acknowledged
        them."""
        for number, outstanding in enumerate(self._writes):
            if outstanding == write:
                self._ids[number] = self._next_id
                self._next_id += 1
                self._numbers[number] = 0
                self._writes[number] = None

    def answered(self, token: Token, outcome: Outcome, in_sync: int | None) -> None:
        """Handle a broker's answer to a waiting request. `in_sync`: size of the broker's ISR, if it
        leads."""
        if outcome is Outcome.DONE and isinstance(token, Trim):
            self._simulation.oracle.trimmed(token.partition, token.offset)
        elif outcome is Outcome.DONE and isinstance(token, Pending):
            write = token.write
            least = self._simulation.least_in_sync(write.partition)
            if in_sync is not None and in_sync < least:
                raise Violation(
                    f"{write} is acknowledged with {in_sync} in sync, of {least} that are needed"
                )
            self._simulation.oracle.acknowledged(
                write.partition, token.offset, token.entry, synced=token.synced
            )
            if write.partition != METADATA and write.partition not in self._simulation.stamped:
                self._simulation.oracle.has_time(
                    write.partition, token.offset, token.entry, write.created_ms
                )
            self._done(write)

    def _done(self, write: Write) -> None:
        for number, outstanding in enumerate(self._writes):
            if outstanding == write:
                self._writes[number] = None
                self._numbers[number] += 1
        if write == self._position:
            self._position = None

    def _expire(self) -> None:
        """Let a leader remove old messages; a follower never does."""
        machine = self._leader()
        if machine is None or machine.node is None or machine.node.leader is None:
            return
        partition = self._random.choice(self._simulation.data_partitions())
        log = machine.directory.logs.get(partition)
        if log is None or partition not in machine.node.leader.partitions:
            return
        if log.high_watermark > log.log_start_offset and machine.node.readable(machine.now_s):
            start = self._random.randint(log.log_start_offset, log.high_watermark)
            log.raise_log_start(start)
            token = Trim(partition, start) if self._random.random() < 0.5 else None
            machine.node.leader.trimmed(partition, token)
        machine.settle()

    def _read(self) -> None:
        machine = self._leader()
        if machine is not None and machine.node is not None:
            if machine.node.readable(machine.now_s):
                self._simulation.oracle.read(machine.directory)
            machine.settle()

    def write_now(self, machine: "Machine") -> Write:
        """Let a new client write to a broker that leads."""
        partition = self._simulation.data_partitions()[0]
        write = Write(self._next_id, 0, partition, True, self._created_ms())
        self._next_id += 1
        self._writes.append(write)
        self._numbers.append(0)
        self._ids.append(write.writer if isinstance(write.writer, int) else 0)
        self.deliver(write, machine)
        return write

    def is_done(self, write: Write) -> bool:
        """Whether the write was acknowledged."""
        return write not in self._writes
