"""The end of a schedule: all faults end, and the cluster has to recover by itself."""

from typing import TYPE_CHECKING

from ...replication.cluster_node import ClusterNode
from ...storage.log.epoch_history import NO_EPOCH
from .disk import DATA
from .violation import Violation

if TYPE_CHECKING:
    from .machine import Machine
    from .schedule import Simulation

_ROUNDS_MAX = 80

_WRITE_ROUNDS = 20
"""Rounds of 0.2 s: a member that does not confirm leaves the ISR within 2 s, and etcd has to be
told."""


def heal(simulation: "Simulation") -> None:
    """End all faults, and wait until the cluster has recovered. Raises `Violation` if it does
    not."""
    simulation.network.cut.clear()
    if not simulation.etcd_up:
        simulation.etcd_up = True
        simulation.etcd.restart(simulation.now_s)
    for machine in simulation.machines.values():
        machine.paused_until_s = machine.slow_until_s = 0.0
        machine.wall_offset_ms = 0
        if machine.node is None:
            machine.start()
        for log in machine.directory.logs.values():
            log.find_damage()
    for number in range(_ROUNDS_MAX):
        simulation.now_s += 0.4
        simulation.round()
        if _is_well(simulation):
            break
        if simulation.etcd.state.halt is not None and number % 10 == 9:
            simulation.cure()
        elif number > 30 and number % 10 == 0:
            _accept_loss(simulation)
            _repair(simulation)
    else:
        raise Violation(f"the cluster does not come right: {_report(simulation)}")
    _compare_answers(simulation)
    _write(simulation)


def _compare_answers(simulation: "Simulation") -> None:
    """Check that all brokers give the same answers about the times of all messages. Done in one
    schedule of four, as it takes long."""
    if simulation.seed % 4:
        return
    for machine in simulation.machines.values():
        for log in machine.directory.logs.values():
            simulation.oracle.same_answers(log)


def _leaders(simulation: "Simulation") -> "list[Machine]":
    return [m for m in simulation.machines.values() if m.node is not None and m.node.leader]


def _is_well(simulation: "Simulation") -> bool:
    """Whether there is one leader, all brokers are in its ISR, and all have the same messages."""
    leaders = _leaders(simulation)
    if len(leaders) != 1 or leaders[0].node is None or leaders[0].node.leader is None:
        return False
    leader = leaders[0].node.leader
    all_members = {machine.directory.member for machine in simulation.machines.values()}
    if simulation.etcd.state.isr != all_members or leader.isr.members != all_members:
        return False
    first = leaders[0].directory
    for partition, log in first.logs.items():
        if log.high_watermark != log.log_end_offset or log.bad_from is not None:
            return False
        for machine in simulation.machines.values():
            other = machine.directory.logs.get(partition)
            if other is None or other.log_start_offset < log.log_start_offset:
                return False
            start = other.log_start_offset  # An earlier leader may have removed more.
            if other.entries[start:] != log.entries[start:]:
                return False
            if other.high_watermark != log.high_watermark or other.bad_from is not None:
                return False
            starts = log.epochs.between(start, log.log_end_offset)
            epochs = [it.epoch for it in starts if it.epoch != NO_EPOCH]
            if start < log.log_end_offset and epochs != [it.epoch for it in other.epochs.starts]:
                return False
    return True


def _accept_loss(simulation: "Simulation") -> None:
    """Accept a loss, as an operator does when the members that have everything are gone for
    good."""
    if _leaders(simulation):
        return
    state = simulation.etcd.state
    there = {machine.directory.member for machine in simulation.machines.values()}
    in_doubt = any(it.directory.identity.in_doubt for it in simulation.machines.values())
    if state.isr & there or ({kept.member for kept in state.kept} <= there and not in_doubt):
        return
    simulation.oracle.count("losses accepted")
    simulation.loss_accepted = True
    machine = max(
        simulation.machines.values(),
        key=lambda machine: sum(log.log_end_offset for log in machine.directory.logs.values()),
    )
    if isinstance(machine.node, ClusterNode):
        machine.node.accepts_loss = True


def _repair(simulation: "Simulation") -> None:
    """Cut off damage at a leader, as an operator does when no other in-sync member can lead."""
    for machine in _leaders(simulation):
        logs = [log for log in machine.directory.logs.values() if log.damage_known]
        isr = simulation.etcd.state.isr
        if logs and len(isr) == 1 and machine.directory.is_in(isr):
            machine.stop(silent=False)
            simulation.oracle.count("repairs")
            simulation.loss_accepted = machine.lost_power = True
            for log in logs:
                log.repair()
            simulation.look_for_losses(leads=True)
            machine.start()


def _write(simulation: "Simulation") -> None:
    """Check that a producer's write is acknowledged."""
    machine = _leaders(simulation)[0]
    if simulation.min_insyncs[DATA] > len(simulation.machines):
        return
    write = simulation.clients.write_now(machine)
    for _ in range(_WRITE_ROUNDS):
        if simulation.clients.is_done(write):
            return
        simulation.now_s += 0.2
        simulation.round()
        for machine in _leaders(simulation):
            simulation.clients.deliver(write, machine)
    raise Violation(f"no broker answers a write: {_report(simulation)}")


def _report(simulation: "Simulation") -> str:
    lines = [f"etcd {simulation.etcd.state}"]
    for machine in simulation.machines.values():
        node = machine.node
        role = "leads" if node and node.leader else "follows" if node and node.follower else "waits"
        logs = {
            name[0]: (
                (log.log_start_offset, log.high_watermark, log.log_end_offset),
                (log.bad_from, log.damage_known),
            )
            for name, log in machine.directory.logs.items()
        }
        directory = machine.directory
        lines.append(f"broker {machine.broker_id} {role} {directory.identity} {logs}")
    return "\n".join(lines)
