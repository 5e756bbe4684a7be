"""Faults that a schedule injects."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from .disk import SimulatedDirectory
from .etcd import EtcdModel
from .times import expired_to

if TYPE_CHECKING:
    from .machine import Machine
    from .schedule import Simulation


JUMPS_MS: Final = (0, 0, -2_000, 5_000, -10_000, 60_000, -7_200_000, 7_200_000)
"""Offsets of a wall clock after a jump; 0: the clock was set right."""

Act = tuple[Callable[[], None], int]
"""A fault, and its weight among the others."""


class Faults:
    """Injects one fault at a time, or ends one."""

    def __init__(self, simulation: "Simulation", random: Random) -> None:
        self._simulation = simulation
        self._random = random
        self._old: dict[int, SimulatedDirectory] = {}
        """Directories as they were while their brokers were out of the ISR."""
        self._copies: dict[int, SimulatedDirectory] = {}
        """Copies of directories, made at any time."""
        self._saved: list[EtcdModel] = []
        """Snapshots of etcd."""
        for machine in simulation.machines.values():
            self.watch(machine.directory)
        options = simulation.options
        always = ((self._start, 9), (self._join, 4), (self._wait, 4))
        some = (
            (self._crash, 5),
            (self._cut_power, 3),
            (self._swap, 2),
            (self._copy, 4 * options.copies),
            (self.stop_in_order, 2),
            (self._cut, 4),
            (self._break, 3),
            (self._pause, 3),
            (self._etcd, 1),
            (self._remove, 3),
            (self._slow_disk, 1),
            (self.hand_over, 1),
            (self._lose_history, 2 * options.loses_histories),
            (self._save_etcd, 6 * options.sets_back),
            (self._set_back, 4 * options.sets_back),
        )
        damages = ((self._damage, 6), (self._scrub, 6))
        jumps = ((self._jump, 6),)
        acts = [*always, *self._drawn(some)]
        acts += self._drawn(damages) if options.damages else ()
        acts += self._drawn(jumps) if options.clocks_jump else ()
        self._acts = [act for act, weight in acts for _ in range(weight)]

    def _drawn(self, acts: Sequence[Act]) -> Sequence[Act]:
        """Return all faults, or a random part of them: without some faults, others that those hide
        show up."""
        if not self._simulation.options.swarm or self._random.random() < 0.5:
            return acts
        return [each for each in acts if self._random.random() < 0.6]

    def watch(self, directory: SimulatedDirectory) -> None:
        """Save the directory whenever it gets another nonce outside of the ISR."""

        def copy() -> None:
            if not directory.is_in(self._simulation.oracle.isr):
                self._old[directory.broker_id] = directory.copy()

        directory.stored = copy

    def act(self) -> None:
        self._acts[int(self._random.random() * len(self._acts))]()

    def _machine(self) -> "Machine":
        machines = self._simulation.machines
        return machines[self._random.randint(1, len(machines))]

    def _crash(self) -> None:
        machine = self._machine()
        if machine.node is not None:
            machine.stop(silent=self._random.random() < 0.4)
            if self._random.random() < 0.4:
                machine.start()

    def _start(self) -> None:
        for machine in self._simulation.machines.values():
            if machine.node is None:
                machine.start()
                return

    def _cut_power(self) -> None:
        """Cut the power of one machine, or of all."""
        simulation = self._simulation
        machines = list(simulation.machines.values())
        if self._random.random() < 0.6:
            machines = [self._machine()]
        simulation.oracle.count("power cuts")
        simulation.look_for_losses(leads=False)
        for machine in machines:
            if machine.node is not None:
                machine.stop(silent=True)
                machine.lost_power = True
                for log in machine.directory.logs.values():
                    log.lose(self._random)
        self._lost(swapped=False)
        for machine in machines:
            if self._random.random() < 0.5 and machine.node is None:
                machine.start()

    def _lost(self, *, swapped: bool) -> None:
        simulation = self._simulation
        directories = [machine.directory for machine in simulation.machines.values()]
        # An elected member that was not in sync has not synced what the others did.
        swapped = swapped or simulation.settings.unclean
        simulation.oracle.disks_lost(simulation.etcd.state, directories, swapped=swapped)

    def _swap(self) -> None:
        machine = self._machine()
        if self.may_swap(machine):
            self.swap(machine)

    def may_swap(self, machine: "Machine") -> bool:
        return True

    def swap(self, machine: "Machine") -> None:
        """Swap a broker's disk: for a new one, for its own as it was while the broker was out of
        the ISR, or for one with a copy of its directory."""
        if machine.node is not None:
            machine.stop(silent=False)
        simulation = self._simulation
        simulation.oracle.count("swaps")
        old, copied = self._old.get(machine.broker_id), self._copies.get(machine.broker_id)
        chance = self._random.random()
        if old is not None and chance < 0.3:
            directory = old.copy()
        elif copied is not None and chance < 0.7:
            simulation.oracle.count("copies")
            directory = copied.copy()
            directory.copied = True
        else:
            directory = simulation.new_directory(machine.broker_id)
        machine.directory = directory
        self.watch(directory)
        self._lost(swapped=True)
        if self._random.random() < 0.7:
            machine.start()

    def _copy(self) -> None:
        """Copy a broker's directory, as an operator does, whether the broker runs or not."""
        directory = self._machine().directory
        self._copies[directory.broker_id] = directory.copy()

    def stop_in_order(self) -> None:
        """Stop a broker in order, with a second to leave."""
        machine = self._machine()
        node = machine.active
        if node is None:
            return
        self._simulation.oracle.count("orderly stops")
        self._simulation.leave(machine, node)

    def _save_etcd(self) -> None:
        """Take a snapshot of etcd."""
        self._saved.append(self._simulation.etcd.saved())

    def _set_back(self) -> None:
        """Restore etcd from a snapshot while some brokers run."""
        simulation = self._simulation
        if self._saved and not simulation.oracle.set_back:
            for machine in simulation.machines.values():
                if machine.node is not None and self._random.random() < 0.4:
                    machine.stop(silent=True)
            if all(machine.node is None for machine in simulation.machines.values()):
                self._machine().start()
            simulation.set_back(self._random.choice(self._saved))

    def _lose_history(self) -> None:
        """Stop a broker, and make the epochs of one of its logs unreadable."""
        machine = self._machine()
        if machine.node is not None:
            machine.stop(silent=self._random.random() < 0.4)
        logs = [log for log in machine.directory.logs.values() if log.entries]
        if logs:
            self._simulation.oracle.count("lost histories")
            self._random.choice(logs).lose_history()
        if self._random.random() < 0.7:
            machine.start()

    def _cut(self) -> None:
        """Cut the network between two machines, between one and etcd, or between one and all: in
        one direction or both."""
        simulation = self._simulation
        one = self._machine().broker_id
        others = [0, *(number for number in simulation.machines if number != one)]
        chosen = others if self._random.random() < 0.3 else [self._random.choice(others)]
        way = self._random.random()
        for other in chosen:
            if way < 0.7:
                simulation.network.cut.add((one, other))
            if way > 0.3:
                simulation.network.cut.add((other, one))

    def _join(self) -> None:
        if self._random.random() < 0.6:
            self._simulation.network.cut.clear()
        elif self._simulation.network.cut:
            cut = sorted(self._simulation.network.cut)
            self._simulation.network.cut.discard(self._random.choice(cut))

    def _break(self) -> None:
        """Break a connection; one side, or both, learn of it."""
        simulation = self._simulation
        if simulation.network.wires:
            wire = self._random.choice(simulation.network.wires)
            by_follower = self._random.random() < 0.5
            machine = simulation.machines[wire.follower_id if by_follower else wire.leader_id]
            node = machine.active
            if node is not None and wire in machine.wires:
                machine.wires.pop(wire, None)
                simulation.network.left(wire, by_follower, self._random.random() < 0.3)
                node.closed(wire)
                machine.settle()

    def _pause(self) -> None:
        """Pause a process, perhaps for longer than its lease."""
        machine = self._machine()
        lease_s = self._simulation.settings.lease_s
        machine.paused_until_s = self._simulation.now_s + self._random.choice((0.5, 1.2)) * lease_s

    def _wait(self) -> None:
        """Let time pass, while each broker does a little."""
        for _ in range(self._random.choice((2, 5))):
            self._simulation.now_s += 0.5
            for machine in self._simulation.machines.values():
                machine.tick()
                self._simulation.deliver()

    def _remove(self) -> None:
        """Remove a stopped broker from the cluster, as an operator does who has checked that
        another in-sync member runs. The broker may come back."""
        simulation = self._simulation
        machine = self._machine()
        in_sync = simulation.etcd.state.removed(machine.broker_id).isr
        runs = any(
            other.node is not None and other.directory.is_in(in_sync)
            for other in simulation.machines.values()
        )
        if machine.node is None and runs and simulation.etcd_up:
            simulation.etcd.expire(simulation.now_s)
            if simulation.etcd.remove(machine.broker_id):
                simulation.oracle.count("removals")
                simulation.oracle.isr = simulation.etcd.state.isr

    def _slow_disk(self) -> None:
        """Let a disk accept writes without syncing them for a while."""
        self._machine().slow_until_s = self._simulation.now_s + self._random.choice((1.0, 5.0))

    def _damage(self) -> None:
        """Damage stored bytes; the broker does not know it yet."""
        simulation = self._simulation
        logs = self._machine().directory.logs.values()
        found = [log for log in logs if len(log.entries) > log.log_start_offset]
        if found:
            simulation.oracle.count("damages")
            log = self._random.choice(found)
            log.go_bad(self._random.randrange(log.log_start_offset, len(log.entries)))
            self._lost(swapped=True)

    def _scrub(self) -> None:
        """Let a reader or the scrub at a broker find the damage there."""
        machine = self._machine()
        if machine.active is not None:
            for log in machine.directory.logs.values():
                log.find_damage()
            machine.tick()

    def _jump(self) -> None:
        """Let the wall clock of a broker jump, mostly of a leader, or set it right."""
        machine = self._leader() or self._machine()
        self._simulation.oracle.count("jumps")
        machine.wall_offset_ms = self._random.choice(JUMPS_MS)
        machine.tick()
        self._expire(machine)

    def _leader(self) -> "Machine | None":
        machines = self._simulation.machines.values()
        leaders = [one for one in machines if one.active and one.active.leader]
        return self._random.choice(leaders) if leaders and self._random.random() < 0.7 else None

    def _expire(self, machine: "Machine") -> None:
        """Apply retention at a leader, by its wall clock."""
        node = machine.active
        if node is None or node.leader is None or not node.readable(machine.now_s):
            return
        for partition in self._simulation.data_partitions():
            log = machine.directory.logs.get(partition)
            if log is None or node.leader is None or partition not in node.leader.partitions:
                continue
            start = expired_to(log.times.segments(log.high_watermark), machine.wall_ms)
            if start > log.log_start_offset:
                self._simulation.oracle.count("expired")
                log.raise_log_start(start)
                node.leader.trimmed(partition, None)
        machine.settle()

    def _etcd(self) -> None:
        """Stop etcd, or start it again."""
        simulation = self._simulation
        simulation.etcd_up = not simulation.etcd_up
        if simulation.etcd_up:
            simulation.etcd.restart(simulation.now_s)

    def hand_over(self) -> None:
        """Plan that another broker leads, as an operator does."""
        target = self._machine().broker_id
        for machine in self._simulation.machines.values():
            node = machine.active
            if node is not None and node.leader is not None and machine.broker_id != target:
                node.hand_over(machine.now_s, target)
                machine.settle()
