"""Brokers that are gone, and times when none leads: what is said of them (replication.md, 6, 7)."""

from pathlib import Path

from horolog.testing.etcd import EtcdProcess
from horolog.testing.program import Program

from .brokers import TOPIC, cluster, line


def test_a_broker_that_died_is_said_to_be_down_until_it_is_removed(
    place: Path, etcd: EtcdProcess
) -> None:
    """Also by a leader that took over since; so that somebody sees that a copy is missing."""
    with cluster(place, etcd) as all_:
        all_.start()
        dead = all_.leader()
        dead.kill()
        leader = all_.leader(other_than=dead.broker_id)

        def states() -> dict[int, str]:
            return {one.broker_id: one.state for one in leader.status().members}

        all_.in_sync(*(one.broker_id for one in all_.others(dead)))
        all_.eventually(lambda: states().get(dead.broker_id) == "down")
        assert sorted(states()) == [1, 2, 3]
        row = next(one for one in leader.status().members if one.broker_id == dead.broker_id)
        assert row.address == dead.to_me.address
        number, name = str(dead.broker_id), "test"
        removing = ("cluster", "remove", number, "--etcd", etcd.url, "--cluster", name)
        all_.eventually(lambda: leader.program(*removing).code == 0)
        all_.eventually(lambda: dead.broker_id not in states())


def test_while_none_leads_each_says_how_it_is(place: Path, etcd: EtcdProcess) -> None:
    """The only one in sync is dead: the others are there, are not down, and say who is needed."""
    with cluster(place, etcd) as all_:
        all_.start()
        all_.program.ok("topic", "create", TOPIC)
        leader = all_.in_sync()
        others = all_.others(leader)
        for one in others:
            one.kill()
        all_.in_sync(leader.broker_id)
        leader.kill()
        for one in others:
            one.start()
        program = Program(",".join(one.address for one in others))

        def states() -> dict[int, str]:
            found = line(program.ok("cluster", "status", "--json"))
            return {one["id"]: one["state"] for one in found["members"]}

        wanted = {one.broker_id: "catching-up" for one in others}
        all_.eventually(lambda: {k: v for k, v in states().items() if k in wanted} == wanted)
        text = program.ok("cluster", "status").out
        assert "no leader" in text
        all_.eventually(
            lambda: (
                f"one of the brokers in sync, [{leader.broker_id}], can be elected"
                in program.ok("cluster", "status").out
            )
        )
        for one in others:
            assert "is not HOST:PORT" not in one.told()
