"""An epoch belongs to the broker that led in it, and etcd that went back is not believed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.errors import StorageError
from horolog.replication.cluster_node import ClusterNode
from horolog.replication.cluster_state import Halt
from horolog.replication.epoch_owners import first_conflict, merged
from horolog.replication.settings import Member
from horolog.server.replication.member_files import (
    EpochOwnersFile,
    decode_owners,
    encode_owners,
)
from horolog.storage.files import SystemFiles
from horolog.testing.simulation.disk import DATA
from horolog.testing.simulation.machine import Machine
from horolog.testing.simulation.options import ScheduleOptions
from horolog.testing.simulation.schedule import Simulation

A, B, C = Member(1, 11), Member(2, 22), Member(3, 33)

members = st.builds(Member, st.integers(1, 999), st.integers(0, 2**63 - 1))
owners = st.dictionaries(st.integers(0, 2**31 - 1), members, max_size=8).map(
    lambda found: dict(sorted(found.items()))
)


@given(owners)
def test_the_file_says_what_was_written(known: dict[int, Member]) -> None:
    content = encode_owners(known)
    assert decode_owners(content) == known
    for size in range(len(content)):
        with pytest.raises(ValueError, match=r"version|epochs|out of order"):
            decode_owners(content[:size])


@pytest.mark.parametrize(
    "content",
    [b"1\n0\n", b"0\n1\n", b"0\n1\n5 1\n", b"0\n2\n6 1 1\n5 1 1\n", b"0\n1\n5 1 x\n", b"\xff\n0\n"],
)
def test_a_file_that_cannot_be_believed_stops_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "leader-epoch-owners").write_bytes(content)
    with pytest.raises(StorageError, match="start it with an empty data directory"):
        EpochOwnersFile(SystemFiles(), tmp_path)


def test_the_file_is_written_once_for_what_was_written_ahead(tmp_path: Path) -> None:
    file = EpochOwnersFile(SystemFiles(), tmp_path)
    file.write({1: A})
    assert file.owners == {}
    path = tmp_path / "leader-epoch-owners"
    path.unlink()
    file.store({1: A})
    assert not path.exists()
    file.store({1: A, 2: B})
    assert EpochOwnersFile(SystemFiles(), tmp_path).owners == {1: A, 2: B}


def test_two_owners_of_an_epoch_are_a_conflict_until_a_person_has_chosen() -> None:
    ours, theirs = {1: A, 2: B, 3: B}, {1: A, 2: C, 3: C, 4: C}
    assert first_conflict(ours, theirs, -1) == 2
    assert first_conflict(ours, theirs, 2) == 3
    assert first_conflict(ours, theirs, 3) is None
    assert first_conflict(ours, {4: A}, -1) is None
    # Those of the leader count from the first conflict on; those before are kept.
    assert merged({0: C, **ours, 9: B}, theirs, 100) == {0: C, **theirs}
    assert merged(ours, theirs, 2) == {3: C, 4: C}


def cluster_of_three() -> Simulation:
    simulation = Simulation(1, ScheduleOptions(brokers=3, sets_back=True))
    for machine in simulation.machines.values():
        if machine.node is None:
            machine.start()
    wait(simulation)
    return simulation


def wait(simulation: Simulation, rounds: int = 12) -> None:
    for _ in range(rounds):
        simulation.now_s += 0.4
        simulation.round()


def leader_of(simulation: Simulation) -> Machine | None:
    machines = simulation.machines.values()
    return next((each for each in machines if each.node and each.node.leader), None)


def elect_another(simulation: Simulation) -> Machine:
    """Kill the leader, and wait until another broker leads."""
    before = leader_of(simulation)
    assert before is not None
    before.stop(silent=True)
    wait(simulation, 20)
    found = leader_of(simulation)
    assert found is not None
    return found


def test_brokers_that_know_a_later_epoch_let_nobody_lead() -> None:
    simulation = cluster_of_three()
    saved = simulation.etcd.saved()
    elect_another(simulation)
    epoch = simulation.etcd.state.epoch
    assert epoch > saved.state.epoch
    simulation.set_back(saved)
    state = simulation.etcd.state
    assert (state.halt, state.least_epoch) == (Halt(-1), epoch + 1)
    for machine in simulation.machines.values():
        if machine.node is None:
            machine.start()  # It knew nothing of the later epoch, and reads it.
    wait(simulation)
    assert leader_of(simulation) is None
    simulation.cure()
    wait(simulation, 20)
    assert leader_of(simulation) is not None
    assert simulation.etcd.state.epoch > epoch
    assert len(simulation.etcd.state.isr) == 3


def test_two_leaders_of_one_epoch_are_never_silently_equal() -> None:
    """The broker that led in the later epoch is down when etcd goes back and another is elected."""
    simulation = cluster_of_three()
    saved = simulation.etcd.saved()
    first = leader_of(simulation)
    second = elect_another(simulation)
    assert first is not None
    epoch = simulation.etcd.state.epoch
    others = [it for it in simulation.machines.values() if it not in (first, second)]
    simulation.clients.write_now(second)
    wait(simulation)
    for machine in (second, *others):
        machine.stop(silent=True)
    simulation.set_back(saved)
    simulation.now_s += 10
    first.start()
    wait(simulation, 20)
    assert leader_of(simulation) is first
    simulation.clients.write_now(first)
    assert simulation.etcd.state.epoch == epoch
    assert first.directory.owners[epoch] != second.directory.owners[epoch]
    second.start()
    wait(simulation)
    assert leader_of(simulation) is None
    assert simulation.etcd.state.halt == Halt(epoch)
    for machine in others:
        machine.start()
    wait(simulation)
    assert leader_of(simulation) is None
    node = second.node
    assert isinstance(node, ClusterNode)
    simulation.cure()
    wait(simulation, 30)
    logs = [machine.directory.logs[DATA].entries for machine in simulation.machines.values()]
    assert logs[0] == logs[1] == logs[2]
    assert len(simulation.etcd.state.isr) == 3
