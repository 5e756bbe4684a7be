"""Clusters without etcd: operators promote brokers, and choose which leader the others follow."""

from random import Random

from ...replication.cluster_state import ClusterState
from ...replication.hand_node import EPOCHS_APART, HandNode
from ...replication.partition_log import Identity, Partition
from ...replication.settings import Incarnation
from ...storage.log.epoch_history import NO_EPOCH
from .disk import Entry, SimulatedDirectory, SimulatedLog
from .faults import Faults
from .machine import Machine
from .options import ScheduleOptions
from .oracle import Oracle
from .schedule import Simulation
from .violation import Violation

_ROUNDS_MAX = 60


class HandOracle(Oracle):
    """Under manual promotion, what was acknowledged with `acks=all` is promised; what was only
    visible is not.

    Every acknowledged message is on all brokers or, with a smaller `min.insync.replicas`, at least
    on the leader. So every leader has it, unless an operator accepted a loss.
    """

    def __init__(self) -> None:
        super().__init__(reads_may_be_old=True)
        self.answered: list[tuple[Partition, int, Entry]] = []
        self.of_all = False
        """Whether `min.insync.replicas` is the number of brokers."""
        self.broken = False
        """Whether two brokers may lead at once, each with acknowledgements of its own."""

    def watermark(self, log: SimulatedLog, offset: int) -> None:
        if not log.high_watermark <= offset <= log.log_end_offset:
            raise Violation(f"{log.partition}: the watermark {log.high_watermark} goes to {offset}")

    def cut(self, log: SimulatedLog, offset: int) -> None:
        self.count("cuts")

    def started(self, log: SimulatedLog, offset: int) -> None:
        """Ignored: a leader may remove messages."""

    def elected(
        self, directory: SimulatedDirectory, epoch: int, who: Incarnation, may_lose: bool
    ) -> None:
        self.count("elections")
        self.leaders[directory] = (epoch, who)
        if self.led.setdefault(epoch, who) != who:
            raise Violation(f"two leaders in epoch {epoch}: {self.led[epoch]} and {who}")
        if may_lose:
            self.count("losses accepted")
            self.answered.clear()
            self.broken = not self.of_all
        for partition, offset, entry in self.answered:
            log = directory.logs.get(partition)
            end = log.log_end_offset if log is not None else 0
            if log is None or offset >= end or log.entries[offset] not in (entry, None):
                raise Violation(
                    f"broker {directory.broker_id} leads in epoch {epoch} without {entry}, "
                    f"answered at {offset} of {partition}"
                )

    def disks_lost(
        self, state: ClusterState, directories: list[SimulatedDirectory], *, swapped: bool
    ) -> None:
        """Ignored: a broker that may have lost something is in doubt, and does not lead."""

    def acknowledged(
        self, partition: Partition, offset: int, entry: Entry, *, synced: bool
    ) -> None:
        self.count("acknowledged")
        if not self.broken:
            self.answered.append((partition, offset, entry))

    def trimmed(self, partition: Partition, offset: int) -> None:
        """Ignored: trims are not checked here."""

    def read(self, directory: SimulatedDirectory) -> None:
        """Ignored: reads may be stale, as there is no lease."""


class HandFaults(Faults):
    """A follower's disk may be swapped for an empty one, or for a copy of its directory.

    The disk of a broker that leads, or led last, is never swapped, and no disk is set back to an
    older state: with no other broker to ask, a broker would not notice.
    """

    chosen: dict[int, int | None]

    def watch(self, directory: SimulatedDirectory) -> None:
        """Ignored: older states are not kept."""

    def may_swap(self, machine: Machine) -> bool:
        others = [it for it in self._simulation.machines.values() if it is not machine]
        left = any(it.directory.identity.highest_epoch > NO_EPOCH for it in others)
        # After a handover the new leader still has its setting to follow.
        led_last = machine.directory.identity.highest_epoch % EPOCHS_APART == machine.broker_id
        return left and not led_last and self.chosen.get(machine.broker_id) is not None


class HandSimulation(Simulation):
    """Two or three brokers. Writes wait for all of them, or only for the leader."""

    def __init__(self, seed: int, options: ScheduleOptions | None = None) -> None:
        self.chosen: dict[int, int | None] = {}
        """By broker, the leader that an operator chose for it to follow; `None`: it leads."""
        options = options or ScheduleOptions()
        options.brokers = Random(seed).choice((2, 2, 3))
        super().__init__(seed, options)

    def draw(self) -> None:
        self.machines[1].directory.store(Identity())
        self.faults = HandFaults(self, self.random)
        self.faults.chosen = self.chosen
        self.draw_settings()

    def make_oracle(self) -> Oracle:
        return HandOracle()

    def draw_settings(self) -> None:
        """`min.insync.replicas` is the number of brokers, or 1; with 1, every promotion loses
        messages."""
        self.settings = self.settings._replace(
            min_insync=self.random.choice((1, len(self.machines), len(self.machines))),
            unclean=False,
        )
        if isinstance(self.oracle, HandOracle):
            self.oracle.of_all = self.settings.min_insync == len(self.machines)

    def make_node(self, machine: Machine, node_class: type) -> HandNode:
        chosen = self.chosen.setdefault(machine.broker_id, None if machine.broker_id == 1 else 1)
        node: HandNode = node_class(
            machine.directory,
            Incarnation(machine.broker_id, machine.run),
            self.settings,
            machine.new_nonce,
            may_have_lost=machine.may_have_lost,
            copied=machine.directory.copied,
            follows=chosen,
            brokers=len(self.machines),
            create=self.now_s == 0.0 and machine.broker_id == 1,
        )
        return node

    def least_in_sync(self, partition: Partition) -> int:
        brokers = len(self.machines)
        if self.settings.min_insync == brokers:
            return brokers  # A topic with a smaller value still gets this one.
        return super().least_in_sync(partition)

    def step(self) -> None:
        if self.random.random() < 0.01:
            self.person()
        super().step()

    def person(self) -> None:
        """Act as an operator: promote a broker, restart it to follow another, or plan a
        promotion."""
        machine = self.machines[self.random.randint(1, len(self.machines))]
        node = machine.active
        chance = self.random.random()
        if isinstance(node, HandNode) and chance < 0.5:
            self.loss_accepted = self.random.random() < 0.2
            if node.promote(machine.now_s, accept_loss=self.loss_accepted) is None:
                self.chosen[machine.broker_id] = None
            self.loss_accepted = False
            machine.settle()
        elif chance < 0.7:
            leader = self.newest()
            if leader is not None and leader is not machine:
                self.restart(machine, leader.broker_id)
        else:
            self.faults.hand_over()

    def newest(self) -> Machine | None:
        """Return the broker that leads in the latest epoch, as an operator sees it."""
        leaders = [it for it in self.machines.values() if it.node is not None and it.node.leader]
        return max(leaders, key=lambda it: it.directory.identity.highest_epoch, default=None)

    def restart(self, machine: Machine, follows: int | None) -> None:
        self.chosen[machine.broker_id] = follows
        if machine.node is not None:
            machine.stop(silent=False)
        machine.start()

    def heal(self) -> None:
        """End all faults. One broker leads, and the others are restarted to follow it."""
        self.network.cut.clear()
        for machine in self.machines.values():
            machine.paused_until_s = 0.0
            if machine.node is None:
                machine.start()
        for _ in range(6):
            self.now_s += 0.4
            self.round()
        leader = self.newest() or self._most()
        if leader.node is None or leader.node.leader is None:
            self._promote(leader)
        for machine in self.machines.values():
            if machine is not leader:
                self.restart(machine, leader.broker_id)
        for _ in range(_ROUNDS_MAX):
            self.now_s += 0.4
            self.round()
            if self._is_well(leader):
                return
            if leader.node is not None and leader.node.leader is None:
                self._promote(leader)  # Another broker knew a newer epoch.
        raise Violation("the followers do not come right")

    def _most(self) -> Machine:
        """Return the broker with the most messages."""
        return max(
            self.machines.values(),
            key=lambda it: sum(log.log_end_offset for log in it.directory.logs.values()),
        )

    def _promote(self, machine: Machine) -> None:
        """Make a broker lead, as an operator does, whatever is lost."""
        if isinstance(machine.node, HandNode):
            self.loss_accepted = True
            machine.node.promote(machine.now_s, accept_loss=True)
            machine.settle()
            self.loss_accepted = False
            self.chosen[machine.broker_id] = None

    def _is_well(self, leader: Machine) -> bool:
        all_members = {machine.directory.member for machine in self.machines.values()}
        node = leader.node
        if node is None or node.leader is None or node.leader.isr.members != all_members:
            return False
        for partition, log in leader.directory.logs.items():
            for machine in self.machines.values():
                other = machine.directory.logs.get(partition)
                if other is None or log.high_watermark != log.log_end_offset:
                    return False
                start = max(log.log_start_offset, other.log_start_offset)
                if other.entries[start:] != log.entries[start:]:
                    return False
        return True
