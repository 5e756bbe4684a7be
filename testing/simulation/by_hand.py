"""Clusters without etcd: people promote brokers, and tell the others whom to follow."""

from random import Random

from ...replication.hand_node import HandNode
from ...replication.settings import Incarnation
from .faults import Faults
from .machine import Machine
from .options import Options
from .schedule import Simulation
from .violation import Violation

_ROUNDS_MAX = 60


class HandFaults(Faults):
    """Disks of leaders are not swapped: where nobody can be asked, nobody would notice."""

    told: dict[int, int | None]

    def may_swap(self, machine: Machine) -> bool:
        return self.told[machine.broker_id] is not None


class HandSimulation(Simulation):
    """Two or three brokers, which wait for all of them or for one."""

    def __init__(self, seed: int, options: Options | None = None) -> None:
        self.told: dict[int, int | None] = {}
        """By broker, whom it was told to follow; `None`: it leads."""
        options = options or Options()
        options.brokers = Random(seed).choice((2, 2, 3))
        super().__init__(seed, options)
        self.oracle.by_hand = True
        self.oracle.isr = frozenset()

    def draw(self) -> None:
        self.faults = HandFaults(self, self.random)
        self.faults.told = self.told
        self.draw_settings()

    def draw_settings(self) -> None:
        """`min.insync.replicas` is the number of brokers, or 1 and then every promotion loses."""
        self.settings = self.settings._replace(
            min_insync=self.random.choice((1, len(self.machines), len(self.machines))),
            unclean=False,
        )

    def make_node(self, machine: Machine, node_class: type) -> HandNode:
        told = self.told.setdefault(machine.broker_id, None if machine.broker_id == 1 else 1)
        node: HandNode = node_class(
            machine.directory,
            Incarnation(machine.broker_id, machine.run),
            self.settings,
            machine.new_nonce,
            may_have_lost=machine.lost_power,
            follows=told,
            brokers=len(self.machines),
            create=self.now_s == 0.0 and machine.broker_id == 1,
        )
        return node

    def step(self) -> None:
        if self.random.random() < 0.01:
            self.person()
        super().step()

    def person(self) -> None:
        """Somebody promotes a broker, or restarts one to follow another."""
        machine = self.machines[self.random.randint(1, len(self.machines))]
        node = machine.active
        chance = self.random.random()
        if isinstance(node, HandNode) and chance < 0.6:
            self.loss_accepted = self.random.random() < 0.2
            if node.promote(machine.now_s, accept_loss=self.loss_accepted) is None:
                self.told[machine.broker_id] = None
            self.loss_accepted = False
            machine.settle()
        elif chance < 0.9:
            leader = self.newest()
            if leader is not None and leader is not machine:
                self.restart(machine, leader.broker_id)

    def newest(self) -> Machine | None:
        """The broker that leads in the latest epoch, as a person sees it."""
        leaders = [it for it in self.machines.values() if it.node is not None and it.node.leader]
        return max(leaders, key=lambda it: it.directory.identity.highest_epoch, default=None)

    def restart(self, machine: Machine, follows: int | None) -> None:
        self.told[machine.broker_id] = follows
        if machine.node is not None:
            machine.stop(silent=False)
        machine.start()

    def heal(self) -> None:
        """All faults end; one leads, and the others are told to follow it."""
        self.network.cut.clear()
        for machine in self.machines.values():
            machine.paused_until_s = 0.0
            if machine.node is None:
                machine.start()
        for _ in range(6):
            self.now_s += 0.4
            self.round()
        leader = self.newest()
        if leader is None:
            leader = self._promoted()
        for machine in self.machines.values():
            if machine is not leader:
                self.restart(machine, leader.broker_id)
        for _ in range(_ROUNDS_MAX):
            self.now_s += 0.4
            self.round()
            if self._is_well(leader):
                return
        raise Violation("the followers do not come right")

    def _promoted(self) -> Machine:
        """Nobody leads: whoever has most is made to, and may lose something."""
        machine = max(
            self.machines.values(),
            key=lambda it: sum(log.log_end_offset for log in it.directory.logs.values()),
        )
        if isinstance(machine.node, HandNode):
            self.loss_accepted = True
            machine.node.promote(machine.now_s, accept_loss=True)
            machine.settle()
            self.loss_accepted = False
            self.told[machine.broker_id] = None
        return machine

    def _is_well(self, leader: Machine) -> bool:
        everybody = {machine.directory.member for machine in self.machines.values()}
        node = leader.node
        if node is None or node.leader is None or node.leader.isr.members != everybody:
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
