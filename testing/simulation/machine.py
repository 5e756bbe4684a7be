"""One broker's machine: its disk, its process, its clocks."""

from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...protocol.api.cluster.replicate import Says
from ...replication.cluster_node import ClusterNode
from ...replication.cluster_state import RequestState
from ...replication.effects import (
    Answer,
    Close,
    Connect,
    Effect,
    GrantLease,
    ReadCluster,
    Register,
    Remind,
    RenewLease,
    RevokeLease,
    Send,
    SyncLog,
    Transact,
)
from ...replication.in_sync import InSyncReplicas
from ...replication.messages import FromFollower, partition_of
from ...replication.node import Node
from ...replication.partition_log import Partition
from ...replication.settings import Incarnation
from .disk import METADATA, SimulatedDirectory
from .network import SimulatedWire

if TYPE_CHECKING:
    from .schedule import Simulation

ONE_NONCE: Final = 7

BEGIN_MS: Final = 1_600_000_000_000
"""Wall clock at the start, in ms since the epoch."""

_watched: dict[type[Node], type[Node]] = {}


def _watching(node_class: type[Node]) -> type[Node]:
    """Return a subclass of `node_class` that calls the oracle before it leads."""
    found = _watched.get(node_class)
    if found is None:

        class Watched(node_class):  # type: ignore[valid-type,misc]
            machine: "Machine"

            def lead(self, now_s: float, isr: InSyncReplicas, epoch: int) -> None:
                self.machine.elected(epoch)
                super().lead(now_s, isr, epoch)

        found = _watched[node_class] = Watched
    return found


class EtcdRequest(NamedTuple):
    """A request that a process sent to etcd."""

    machine: "Machine"
    run: int
    effect: ReadCluster | GrantLease | RenewLease | RevokeLease | Register | Transact
    sent: RequestState | None
    """What the process knew when it sent the request."""


class Machine:
    """One machine. It carries out the effects of its node; what takes time is left to the
    schedule."""

    def __init__(self, simulation: "Simulation", directory: SimulatedDirectory) -> None:
        self.simulation = simulation
        self.directory = directory
        self.broker_id = directory.broker_id
        self.random: Random = simulation.random
        self.rate = 1.0 + self.random.uniform(-0.03, 0.03)
        self.offset_s = self.random.uniform(0, 1000)
        self.wall_offset_ms = simulation.times.randint(-200, 200)
        """How far the machine's wall clock is off, in ms."""
        self.paused_until_s = 0.0
        self.slow_until_s = 0.0
        """Time until which the disk completes no sync."""
        self.run = 0
        self.node: Node | None = None
        self.wires: dict[SimulatedWire, None] = {}
        self.syncs: set[Partition] = set()
        self.reminds = False
        self.lost_power = False

    @property
    def may_have_lost(self) -> bool:
        """Whether a starting process is in doubt."""
        logs = self.directory.logs.values()
        return self.lost_power or any(log.history_lost or log.damage_known for log in logs)

    @property
    def now_s(self) -> float:
        """Boot-time clock of the machine."""
        return self.simulation.now_s * self.rate + self.offset_s

    @property
    def wall_ms(self) -> int:
        """Wall clock of the machine."""
        return BEGIN_MS + int(self.simulation.now_s * 1000) + self.wall_offset_ms

    @property
    def active(self) -> Node | None:
        """The node, if the process runs and is not paused."""
        if self.paused_until_s > self.simulation.now_s:
            return None
        return self.node

    def start(self) -> None:
        self.run = self.random.getrandbits(40) + 1
        for log in self.directory.logs.values():
            log.open()
        self.directory.topics_at = 0
        if self.simulation.options.damages:
            self._look_again()
        node = self.simulation.make_node(self, _watching(self.simulation.options.node_class))
        node.machine = self  # type: ignore[attr-defined]
        self.node = node
        self.lost_power = self.directory.copied = False
        self.tick()

    def new_nonce(self) -> int:
        if self.simulation.options.one_nonce:
            return ONE_NONCE
        return self.random.getrandbits(40) + 1

    def elected(self, epoch: int) -> None:
        node, simulation = self.node, self.simulation
        may_lose = simulation.settings.unclean
        if isinstance(node, ClusterNode) and node.accepts_loss:
            may_lose = True
        run = Incarnation(self.broker_id, self.run)
        self.directory.forget_topics()
        if simulation.options.damages:
            simulation.look_for_losses(leads=False)
        may_lose = may_lose or simulation.loss_accepted
        simulation.oracle.goes_on = simulation.led_last(self.broker_id)
        simulation.oracle.elected(self.directory, epoch, run, may_lose)
        if simulation.options.damages:
            simulation.look_for_losses(leads=True)

    def tick(self) -> None:
        node = self.active
        if node is not None:
            self._remind(node)
            if self.simulation.options.damages:
                self._report_damage(node)
            node.tick(self.now_s)
            self.settle()

    def _look_again(self) -> None:
        """Forget some known damage: a starting process finds only a part of it again."""
        directory = self.directory
        directory.damage_met = False
        for log in directory.logs.values():
            if log.damage_known and self.random.random() < 0.5:
                log.damage_known = False

    def _report_damage(self, node: Node) -> None:
        """Report found damage to the node; repeatedly at a leader, until another broker leads."""
        directory = self.directory
        met, directory.damage_met = directory.damage_met, False
        known = any(log.damage_known for log in directory.logs.values())
        if known and (met or node.leader is not None):
            node.damaged()

    def _remind(self, node: Node) -> None:
        if self.reminds:
            self.reminds = False
            node.reminded()

    def stop(self, silent: bool) -> None:
        """End the process at once."""
        self.node = None
        self.syncs.clear()
        self.reminds = False
        self.simulation.oracle.resigned(self.directory)
        network = self.simulation.network
        for wire in list(self.wires):
            network.left(wire, wire.follower_run == self.run, silent)
        self.wires.clear()

    # Effects.

    def settle(self) -> None:
        """Carry out the effects of the node, and those that result from them."""
        node = self.node
        while node is not None and node.effects:
            effects = node.effects[:]
            node.effects.clear()
            for effect in effects:
                self._carry_out(node, effect)
            if node.leader is None:
                self.simulation.oracle.resigned(self.directory)
            self._make_topics(node)

    def _make_topics(self, node: Node) -> None:
        """Create the logs of the topics that committed metadata name."""
        log = self.directory.logs[METADATA]
        if self.directory.topics_at < log.high_watermark:
            visible = log.entries[self.directory.topics_at : log.high_watermark]
            numbers = [entry[2] for entry in visible if entry is not None and entry[1] == "topic"]
            if "topic" in log.expired:  # the state at the log start names the topics below it
                numbers.append(log.expired["topic"][0])
            for number in numbers:
                name = (f"topic{number}", 0)
                if name not in self.directory.logs:
                    self.directory.add(name)
                    self.simulation.topics_made = True
                    node.add_partition(name)
        self.directory.topics_at = log.high_watermark

    def _carry_out(self, node: Node, effect: Effect) -> None:
        simulation = self.simulation
        if isinstance(effect, Send):
            wire: Any = effect.connection
            if wire.follower_run == self.run:
                wire.to_leader.append(effect.message)
            elif wire.leader_run == self.run:
                wire.to_follower.append(effect.message)
        elif isinstance(effect, Answer):
            in_sync = None if node.leader is None else len(node.leader.isr.members)
            simulation.clients.answered(effect.token, effect.outcome, in_sync)
        elif isinstance(effect, SyncLog):
            self.syncs.add(effect.partition)
        elif isinstance(effect, Remind):
            self.reminds = True
        elif isinstance(effect, Connect):
            self._connect(node, effect.broker_id)
        elif isinstance(effect, Close):
            self._close(effect.connection)  # type: ignore[arg-type]
        else:
            if isinstance(effect, RevokeLease) and self.random.random() < 0.2:
                return
            sent = node.sent if isinstance(node, ClusterNode) else None
            simulation.requests.append(EtcdRequest(self, self.run, effect, sent))

    def _connect(self, node: Node, broker_id: int) -> None:
        simulation = self.simulation
        other = simulation.machines[broker_id]
        network = simulation.network
        if other.node is None or not network.reaches(self.broker_id, broker_id):
            return
        wire = SimulatedWire(self.broker_id, self.run, broker_id, other.run)
        network.wires.append(wire)
        self.wires[wire] = None
        other.wires[wire] = None
        node.connected(self.now_s, wire)

    def _close(self, wire: SimulatedWire) -> None:
        if wire in self.wires:
            del self.wires[wire]
            silent = self.random.random() < 0.2
            self.simulation.network.left(wire, wire.follower_run == self.run, silent)

    @property
    def is_due(self) -> bool:
        """Whether `sync` has something to do."""
        return self.reminds or (bool(self.syncs) and not self.is_slow)

    @property
    def is_slow(self) -> bool:
        return self.slow_until_s > self.simulation.now_s

    def sync(self) -> None:
        """Complete the requested syncs, and remind the node."""
        node = self.active
        if node is None or not self.is_due:
            return
        self._remind(node)
        if self.is_slow:
            self.settle()
            return
        partitions = sorted(self.syncs)
        self.syncs.clear()
        for partition in partitions:
            if partition not in self.directory.logs:
                continue
            self.directory.logs[partition].sync()
            node.synced(partition)
        self.settle()

    # Incoming messages.

    def deliver(self, wire: SimulatedWire, to_leader: bool) -> None:
        """Deliver the first message in flight."""
        node = self.active
        if node is None and self.node is not None:
            return  # paused: the message waits in a buffer
        queue = wire.to_leader if to_leader else wire.to_follower
        if not queue:
            return
        message = queue.popleft()
        if node is None or self.run != (wire.leader_run if to_leader else wire.follower_run):
            return
        if message is None:
            self.wires.pop(wire, None)
            self.simulation.network.left(wire, not to_leader, silent=True)
            node.closed(wire)
        elif to_leader:
            self._check_for(message)
            node.from_follower(self.now_s, wire, message)
        else:
            if self.simulation.seed % 2:
                node.ask_ahead(self.now_s, wire, message)
                self.settle()
            node.from_leader(self.now_s, wire, message)
        self.settle()

    def _check_for(self, message: FromFollower) -> None:
        """Check the messages that a follower received damaged."""
        if message.says == Says.FETCH:
            for position in message.positions:
                partition = partition_of(position)
                if position.check and partition in self.directory.logs:
                    self.directory.logs[partition].find_damage()

    def answered(self, request: "EtcdRequest", answer: Any) -> None:
        """Deliver etcd's answer."""
        effect = request.effect
        node = self.node
        if not isinstance(node, ClusterNode):
            return
        if isinstance(effect, ReadCluster | Transact):
            assert request.sent is not None
            node.cluster_read(self.now_s, answer, request.sent)
        elif isinstance(effect, GrantLease):
            node.lease_granted(self.now_s, answer[0], effect.asked_s, answer[1])
        elif isinstance(effect, RenewLease):
            if answer is None:
                node.lease_lost(effect.lease_id)
            else:
                node.lease_renewed(self.now_s, answer[0], effect.asked_s, answer[1])
        self.settle()
