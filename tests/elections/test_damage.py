"""Damage that is found while brokers run (replication.md, section 4): who has it does not lead."""

import asyncio
import time
from pathlib import Path

import pytest

from horolog import Consumer, HorologError
from horolog.testing.etcd import EtcdProcess
from horolog.testing.waiting import content_of

from .brokers import TOPIC, Broker, Cluster, cluster

pytestmark = [pytest.mark.elections, pytest.mark.timeout(300)]

COUNT = 20

LEASE_S = 2
"""Of the brokers here."""


def with_messages(all_: Cluster) -> Broker:
    """One partition with some sets; who leads."""
    all_.start()
    all_.program.ok("topic", "create", TOPIC)
    for number in range(COUNT):
        all_.program.ok("produce", TOPIC, stdin=f"{number}\n")
    return all_.in_sync()


def flip(broker: Broker) -> None:
    """Change what the second set of the log says of its size: who reads from there meets that."""
    path = broker.data_dir / f"{TOPIC}-0" / f"{0:020d}.log"
    stored = bytearray(path.read_bytes())
    stored[12 + int.from_bytes(stored[8:12], "big") + 8] ^= 0x40
    path.write_bytes(stored)


async def meet(broker: Broker) -> None:
    """Read behind the damage, at this very broker, until it has noticed."""
    while "segment_damaged" not in broker.told():
        consumer = Consumer(broker.address, read_from="any", max_wait_ms=100)
        reads = consumer._cluster.reads
        assert reads is not None
        reads.replicas.learn = lambda addresses: None  # type: ignore[method-assign]
        try:
            async with asyncio.timeout(5), consumer:
                consumer.assign(TOPIC)
                consumer.seek(TOPIC, 0, COUNT - 1)
                await anext(consumer)
        except (HorologError, TimeoutError):
            pass


def values(all_: Cluster) -> list[str]:
    return [value for _, value in sorted(all_.stored().items())]


def test_a_leader_lets_another_one_lead(place: Path, etcd: EtcdProcess) -> None:
    with cluster(place, etcd) as all_:
        first = with_messages(all_)
        flip(first)
        asyncio.run(meet(first))
        second = all_.leader(other_than=first.broker_id)
        # The damaged one follows it, and copies what it lacks.
        assert all_.in_sync() is second
        assert values(all_) == [str(number) for number in range(COUNT)]
        all_.program.ok("produce", TOPIC, stdin="after\n")
        second.program.ok("cluster", "promote", str(first.broker_id))
        assert all_.in_sync() is first
        assert values(all_) == [*(str(number) for number in range(COUNT)), "after"]


def test_a_follower_leaves_and_copies_the_segment_again(place: Path, etcd: EtcdProcess) -> None:
    with cluster(place, etcd) as all_:
        leader = with_messages(all_)
        follower = next(one for one in all_.all.values() if one is not leader)
        flip(follower)
        asyncio.run(meet(follower))
        all_.program.ok("produce", TOPIC, stdin="after\n")
        assert all_.in_sync() is leader
        leader.program.ok("cluster", "promote", str(follower.broker_id))
        assert all_.in_sync() is follower
        assert values(all_) == [*(str(number) for number in range(COUNT)), "after"]
        # A start finds damage, too: the broker does not lead while the others are down, which have
        # everything.
        others = all_.others(follower)
        for one in (follower, *others):
            one.kill()
        flip(follower)
        for path in (follower.data_dir / f"{TOPIC}-0").glob("*.index"):
            path.unlink()
        follower.start()
        in_sync = sorted(one.broker_id for one in others)
        all_.eventually(lambda: follower.status().in_sync == in_sync)
        time.sleep(LEASE_S + 2)  # in which it would have been elected
        assert follower.status().leader == -1
        assert follower.status().in_sync == in_sync
        for one in others:
            one.start()
        second = all_.leader(other_than=follower.broker_id)
        assert all_.in_sync() is second
        second.program.ok("cluster", "promote", str(follower.broker_id))
        assert all_.in_sync() is follower
        assert values(all_) == [*(str(number) for number in range(COUNT)), "after"]


def spoil_epochs(broker: Broker) -> Path:
    """Make the epochs of its log unreadable."""
    checkpoint = broker.data_dir / f"{TOPIC}-0" / "leader-epoch-checkpoint"
    checkpoint.write_text("garbage\n")
    return checkpoint


def test_the_only_copy_leads_where_its_epochs_cannot_be_read(
    place: Path, etcd: EtcdProcess
) -> None:
    """What the other one has may be of any epoch: it is copied anew."""
    with cluster(place, etcd, count=2) as all_:
        all_.start()
        all_.program.ok("topic", "create", TOPIC)
        leader = all_.in_sync()
        (other,) = all_.others(leader)
        leader.program.ok("produce", TOPIC, stdin="0\n")
        all_.in_sync()
        other.stop()
        all_.in_sync(leader.broker_id)
        for number in range(1, COUNT):
            leader.program.ok("produce", TOPIC, stdin=f"{number}\n")
        leader.stop()
        checkpoint = spoil_epochs(leader)
        leader.start()
        assert all_.in_sync(leader.broker_id) is leader
        assert "[error    ] leader_epochs_unreadable" in leader.told()
        epoch = leader.status().epoch
        assert checkpoint.read_text() == f"0\n1\n{epoch} 0\n"
        other.start()
        assert all_.in_sync() is leader
        copied = other.data_dir / f"{TOPIC}-0" / checkpoint.name
        assert copied.read_text() == checkpoint.read_text()
        leader.program.ok("produce", TOPIC, stdin="after\n")
        leader.program.ok("cluster", "promote", str(other.broker_id))
        assert all_.in_sync() is other
        assert values(all_) == [*(str(number) for number in range(COUNT)), "after"]


def test_of_lost_epochs_nobody_leads_before_all_are_heard_who_were_in_sync(
    place: Path, etcd: EtcdProcess
) -> None:
    with cluster(place, etcd, count=2) as all_:
        leader = with_messages(all_)
        (other,) = all_.others(leader)
        # After a kill, append times behind the last checkpoint are unknown.
        points = [one.data_dir / "recovery-point-offset-checkpoint" for one in (leader, other)]
        wanted = f"{TOPIC} 0 {COUNT}".encode()
        all_.eventually(lambda: all(wanted in (content_of(point) or b"") for point in points))
        for one in (leader, other):
            one.kill()
        checkpoints = [spoil_epochs(one) for one in (leader, other)]
        leader.start()
        all_.eventually(lambda: leader.status().in_sync == [other.broker_id])
        leader.kill()
        time.sleep(LEASE_S + 2)  # after which what it said of itself is gone
        other.start()
        all_.eventually(lambda: "may have lost something" in other.status().waits_for)
        waits_for = other.status().waits_for
        assert f"leader-epoch-checkpoint of {TOPIC}-0 cannot be read here" in waits_for
        time.sleep(LEASE_S + 2)  # in which it would have been elected
        assert other.status().leader == -1
        assert [checkpoint.read_text() for checkpoint in checkpoints] == ["garbage\n"] * 2
        refused = other.program("cluster", "promote", str(other.broker_id))
        assert f"leader-epoch-checkpoint of {TOPIC}-0 cannot be read here" in refused.err
        assert "What may be missing here: not known; its last message came at 20" in refused.err
        leader.start()
        all_.in_sync()
        assert values(all_) == [str(number) for number in range(COUNT)]
