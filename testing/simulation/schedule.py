"""The schedule: steps, faults, and the recovery at the end, all determined by one seed."""

from random import Random
from typing import Any

from ...replication.cluster_node import ClusterNode
from ...replication.cluster_state import ClusterState
from ...replication.effects import Transact
from ...replication.node import Node
from ...replication.partition_log import Identity, Partition
from ...replication.settings import Incarnation
from ...storage.log.epoch_history import NO_EPOCH
from .clients import Clients
from .disk import DATA, METADATA, TOPIC, SimulatedDirectory
from .etcd import EtcdModel
from .faults import Faults
from .healing import heal
from .machine import ONE_NONCE, EtcdRequest, Machine
from .network import Network
from .options import ScheduleOptions, draw_settings
from .oracle import Oracle

_STEPS_S = (0.0, 0.0, 0.0, 0.02, 0.1, 0.3)

ALTERED = 0.02
"""Probability per step that an operator alters `min.insync.replicas` of the topics."""

ETCD = 0
"""Stands for etcd in place of a broker id."""


class Simulation:
    """One cluster and everything that happens to it."""

    def __init__(self, seed: int, options: ScheduleOptions | None = None) -> None:
        self.seed = seed
        self.options = options or ScheduleOptions()
        self.random = Random(seed)
        self.settings = draw_settings(self.random)
        brokers = self.options.brokers or self.random.choice(self.options.brokers_of)
        self.now_s = 0.0
        self.oracle = self.make_oracle()
        self.network = Network(self.random)
        self.clients = Clients(self, self.random)
        self.loss_accepted = False
        self.topics_made = False
        """Whether the metadata of some broker name the second topic."""
        self.etcd_up = True
        self.requests: list[EtcdRequest] = []
        self.replies: list[tuple[EtcdRequest, Any]] = []
        self.min_insyncs = dict.fromkeys((DATA, TOPIC), self.settings.min_insync)
        """By partition, `min.insync.replicas` of its topic. All brokers learn of a change at once:
        only the leader uses the value."""
        self.times = Random(f"{seed} times")
        self.stamped = {name for name in (DATA, TOPIC) if self.times.random() < 0.4}
        """Partitions of topics whose messages get an append time."""
        self.oracle.stamped = self.stamped
        self._alters = Random(f"{seed} min.insync.replicas")
        self._durability = Random(f"{seed} acks.all.durability")
        self.machines: dict[int, Machine] = {}
        for broker_id in range(1, brokers + 1):
            self.machines[broker_id] = Machine(self, self.new_directory(broker_id))
        first = self.machines[1].directory
        first.store(Identity(self.machines[1].new_nonce(), highest_epoch=0))
        state = ClusterState(0, None, frozenset({first.member}))
        self.etcd = EtcdModel(state, self.settings.lease_s)
        self.oracle.isr = state.isr
        self._before_election = state
        self.faults = Faults(self, self.random)
        self.draw()
        self.alter_topics(DATA, TOPIC)
        for machine in self.machines.values():
            if machine.broker_id == 1 or self.random.random() < self.options.there_at_first:
                machine.start()  # the others are added later

    def new_directory(self, broker_id: int) -> SimulatedDirectory:
        """Return the directory of a new disk."""
        directory = SimulatedDirectory(
            broker_id, self.oracle, self.min_insyncs, self.options.log_class
        )
        directory.add(METADATA)
        directory.add(DATA)
        if self.options.one_nonce:
            directory.identity = Identity(ONE_NONCE)
        return directory

    def least_in_sync(self, partition: Partition) -> int:
        """Return how many members have to be in sync when a message is acknowledged."""
        return self.min_insyncs.get(partition, self.settings.min_insync)

    def data_partitions(self) -> list[Partition]:
        return [DATA, TOPIC] if self.topics_made else [DATA]

    def run(self) -> Oracle:
        """Run the whole schedule. Raises `Violation`."""
        self.warm_up()
        for _ in range(self.options.steps):
            self.step()
        self.heal()
        return self.oracle

    def make_oracle(self) -> Oracle:
        return Oracle(reads_may_be_old=not self.options.lease)

    def draw(self) -> None:
        """Override what was drawn, before the first broker starts."""

    def heal(self) -> None:
        """End all faults; the cluster has to recover. Raises `Violation` if it does not."""
        heal(self)

    def make_node(self, machine: Machine, node_class: type) -> Node:
        """Return the node of a starting process."""
        node: Node = node_class(
            machine.directory,
            Incarnation(machine.broker_id, machine.run),
            self.settings,
            machine.new_nonce,
            may_have_lost=machine.may_have_lost,
            copied=machine.directory.copied,
        )
        return node

    def leave(self, machine: Machine, node: Node) -> None:
        """Stop a broker in order: a leader hands over, a follower leaves the ISR. This takes about
        a second at most, in which other things happen."""
        leader = node.leader
        node.leave()
        if leader is not None and isinstance(node, ClusterNode):
            heirs = [
                it.member for it in leader.sessions.values() if it.member in leader.isr.members
            ]
            if heirs:
                node.hand_over(machine.now_s, self.random.choice(heirs).broker_id)
        machine.settle()
        for _ in range(self.random.randint(0, 12)):
            self.now_s += 0.1
            self.deliver()
            machine.tick()
            if machine.node is not node:
                return
        machine.stop(silent=False)

    def warm_up(self) -> None:
        """Run until the first leader is there and known."""
        for _ in range(4):
            self.now_s += 0.4
            self.round()

    def alter_topics(self, *partitions: Partition) -> None:
        """Give topics new values of `min.insync.replicas` and `acks.all.durability`, as an operator
        does."""
        for partition in partitions:
            value = self._alters.choice((self.settings.min_insync, *self.options.min_insyncs))
            if not self.options.own_min_insync:
                value = self.settings.min_insync
            self.min_insyncs[partition] = value
            if self.options.own_durability:
                self.oracle.syncs[partition] = self._durability.random() < 0.7

    def syncs(self, partition: Partition) -> bool:
        """Whether a message that comes with `acks=all` now waits for a sync."""
        return self.oracle.syncs.get(partition, self.settings.sync_for_acks_all)

    def step(self) -> None:
        """Let one thing happen."""
        if self._alters.random() < ALTERED:
            self.alter_topics(DATA, TOPIC)
        random = self.random.random
        self.now_s += _STEPS_S[int(random() * 6)]
        chance = random()
        if chance < 0.48:
            self.deliver()
        elif chance < 0.68:
            self._random_machine().tick()
        elif chance < 0.76:
            self._random_machine().sync()
        elif chance < 0.965:
            self.clients.act()
        else:
            self.faults.act()

    def set_back(self, saved: EtcdModel) -> None:
        """Restore etcd from a snapshot. Running brokers read it before anything else happens. A
        broker that knows a later epoch must notice; others notice if etcd has fewer revisions than
        they know. Another broker may be elected at the same moment, even into a known epoch, and
        must resign."""
        oracle = self.oracle
        oracle.count("set back")
        self.drop_requests()
        self.etcd.restore(saved, self.now_s)
        self.etcd_up = True
        self.network.cut.clear()
        oracle.set_back = True
        known_epoch = NO_EPOCH
        for machine in self.machines.values():
            machine.paused_until_s = 0.0
            node = machine.node
            if isinstance(node, ClusterNode) and node.sent.epoch > saved.state.epoch:
                known_epoch = max(known_epoch, node.highest_epoch)
        for _ in range(4):
            self.now_s += 0.4
            self.round()
        if known_epoch != NO_EPOCH:
            oracle.halt(known_epoch)

    def drop_requests(self) -> None:
        """Lose all requests and answers between brokers and etcd."""
        self.requests.clear()
        self.replies.clear()

    def cure(self) -> None:
        """Stop all brokers and make the state anew with the directory of one, as an operator
        does."""
        for machine in self.machines.values():
            if machine.node is not None:
                machine.stop(silent=False)
        self.drop_requests()
        chosen, state = self._random_machine(), self.etcd.state
        directory = chosen.directory
        epoch = max(directory.identity.highest_epoch, state.epoch, state.least_epoch - 1)
        directory.store(Identity(chosen.new_nonce(), highest_epoch=epoch))
        members = frozenset({directory.member})
        self.etcd.create(ClusterState(epoch, None, members, settled_epoch=epoch))
        self.oracle.count("cures")
        self.oracle.halted = False
        for machine in self.machines.values():
            machine.start()

    def _random_machine(self) -> Machine:
        return self.machines[1 + int(self.random.random() * len(self.machines))]

    # Messages in flight.

    def deliver(self) -> None:
        """Deliver one message, request or answer."""
        wires = self.network.deliverable()
        waiting = len(wires) + len(self.requests) + len(self.replies)
        if not waiting:
            return
        number = int(self.random.random() * waiting)
        if number < len(wires):
            self._deliver_on(*wires[number])
        elif number < len(wires) + len(self.requests):
            self._ask_etcd(number - len(wires))
        else:
            self._hear_etcd(number - len(wires) - len(self.requests))

    def _deliver_on(self, wire: Any, to_leader: bool) -> None:
        machine = self.machines[wire.leader_id if to_leader else wire.follower_id]
        machine.deliver(wire, to_leader)

    def _ask_etcd(self, number: int) -> None:
        """Deliver a request to etcd. Its answer arrives at once, or late, or is lost."""
        request = self.requests[number]
        if not self.etcd_up or not self.network.reaches(request.machine.broker_id, ETCD):
            return
        del self.requests[number]
        answer = self.etcd.handle(self.now_s, request.effect)
        if self.etcd.state.isr != self.oracle.isr:
            self.oracle.isr = self.etcd.state.isr
            if self.options.damages:
                self._isr_changed(request.effect)
        self.replies.append((request, answer))
        chance = self.random.random()
        if chance < 0.7:
            self._hear_etcd(len(self.replies) - 1)
        elif chance < 0.75:
            self.replies.pop()

    def _isr_changed(self, effect: object) -> None:
        """Record lost messages after a change of the ISR, except after an election: an elected
        broker has to prove itself, so the members in sync before the election count until it
        leads."""
        if not isinstance(effect, Transact) or effect.lead_on_lease is None:
            self.look_for_losses(leads=True)

    def led_last(self, broker_id: int) -> bool:
        """Whether an elected broker led before, with no other broker elected since. After damage
        such a broker continues alone, and hands over to one that comes back."""
        leader = self._before_election.leader
        return leader is not None and leader.broker_id == broker_id

    def look_for_losses(self, *, leads: bool) -> None:
        """Report messages as lost that no in-sync member can read any more. `leads`: the current
        ISR in etcd counts."""
        directories = [machine.directory for machine in self.machines.values()]
        if leads:
            self._before_election = self.etcd.state
        if any(log.bad_from is not None for it in directories for log in it.logs.values()):
            self.oracle.disks_lost(self._before_election, directories, swapped=True)

    def _hear_etcd(self, number: int) -> None:
        request, answer = self.replies[number]
        machine = request.machine
        if machine.node is not None and machine.run == request.run:
            if machine.active is None or not self.network.reaches(ETCD, machine.broker_id):
                return
            del self.replies[number]
            machine.answered(request, answer)
        else:
            del self.replies[number]

    def round(self) -> None:
        """Give each broker the time to do everything that is pending."""
        for machine in self.machines.values():
            machine.tick()
        for _ in range(60):
            wires = self.network.deliverable()
            for wire, to_leader in wires:
                self._deliver_on(wire, to_leader)
            for number in reversed(range(len(self.requests))):
                self._ask_etcd(number)
            for number in reversed(range(len(self.replies))):
                self._hear_etcd(number)
            busy = bool(wires or self.requests or self.replies)
            for machine in self.machines.values():
                if machine.is_due:
                    machine.sync()
                    busy = True
            if not busy:
                break
