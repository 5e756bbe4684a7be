"""Damage that no reader has met, in a cluster that etcd decides for (replication.md, section 4)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from horolog import Admin, Consumer, Producer, StorageError
from horolog.server.broker import Broker
from horolog.server.replication.cluster import Cluster
from horolog.testing.broker import running_broker
from horolog.testing.etcd import EtcdProcess

from .inside import Settings, in_sync, leads, until

TOPIC = "t"
SENT = [b"message %d" % number for number in range(20)]


@asynccontextmanager
async def two_brokers(place: Path, etcd: EtcdProcess) -> AsyncIterator[tuple[str, list[Broker]]]:
    """Their addresses, and the leader and the follower with a topic of several segments."""
    settings = Settings(etcd, 2)
    async with AsyncExitStack() as stack:
        brokers = []
        for number in (1, 2):
            path = place / f"broker{number}"
            running = running_broker(path, **settings.of(number))
            brokers.append(await stack.enter_async_context(running))
            await until(lambda: leads(brokers[0]))
        await until(lambda: in_sync(brokers[1]))
        async with Admin(settings.addresses) as admin:
            await admin.create_topic(TOPIC, settings={"segment.bytes": "400"})
        async with Producer(settings.addresses, acks="all") as producer:
            for value in SENT:
                await producer.send(TOPIC, value, partition=0)
        yield settings.addresses, brokers


def flip(broker: Broker, number: int) -> Path:
    """Change the last byte of a segment; the path of its log."""
    path = broker.directory.log(TOPIC, 0).segments[number].log_path
    stored = bytearray(path.read_bytes())
    stored[-1] ^= 1
    path.write_bytes(stored)
    return path


def logs(broker: Broker) -> list[bytes]:
    return [one.log_path.read_bytes() for one in broker.directory.log(TOPIC, 0).segments]


async def scrub(broker: Broker) -> None:
    scrubber, rounds = broker.services.scrubber, broker.figures.scrub_rounds
    scrubber._next_round_s = 0.0
    while broker.figures.scrub_rounds == rounds:
        await scrubber.run_pass()


def all_in_sync(brokers: list[Broker]) -> bool:
    leaders = [broker for broker in brokers if leads(broker)]
    if not leaders:
        return False
    known = leaders[0].services.replication.describe()
    return list(known.in_sync) == [1, 2] and {one.lag_messages for one in known.members} == {0}


async def read_all(addresses: str) -> list[bytes | None]:
    async with Consumer(addresses, max_wait_ms=100) as consumer:
        consumer.assign(TOPIC, 0, offset=0)
        return [(await anext(consumer)).value for _ in SENT]


@pytest.mark.parametrize("found_by", ["scrub", "reader", "append"])
async def test_a_damaged_leader_resigns_and_copies_what_is_damaged(
    place: Path, etcd: EtcdProcess, found_by: str
) -> None:
    """A reader gets all messages, without an error: a moment later another broker leads."""
    async with two_brokers(place, etcd) as (addresses, brokers):
        first, second = brokers
        good = logs(first)
        if found_by == "append":
            path = first.directory.log(TOPIC, 0).segments[-1].log_path
            path.write_bytes(path.read_bytes()[:-1])
            async with Producer(addresses, acks="all") as producer:
                await producer.send(TOPIC, b"more", partition=0)
        else:
            flip(first, 1)
        if found_by == "scrub":
            await scrub(first)
        if found_by == "reader":
            assert await read_all(addresses) == SENT
        await until(lambda: leads(second))
        await until(lambda: all_in_sync(brokers))
        assert await read_all(addresses) == SENT
        assert logs(first) == logs(second)
        assert found_by == "append" or logs(first) == good
        assert first.figures.topic(TOPIC).damaged_segments == 1
        assert list(first.services.scrubber.damages()) == []


async def test_a_damaged_follower_copies_what_is_damaged(place: Path, etcd: EtcdProcess) -> None:
    async with two_brokers(place, etcd) as (addresses, brokers):
        first, second = brokers
        good = logs(second)
        cluster = second.services.replication
        assert isinstance(cluster, Cluster)
        nonce = cluster.node.identity.nonce
        flip(second, 1)
        await scrub(second)
        await until(lambda: cluster.node.identity.nonce != nonce)
        await until(lambda: all_in_sync(brokers))
        assert leads(first)
        assert logs(second) == good
        assert await read_all(addresses) == SENT


async def test_the_only_broker_in_sync_keeps_its_bytes_and_leads(
    place: Path, etcd: EtcdProcess
) -> None:
    async with two_brokers(place, etcd) as (addresses, brokers):
        first, second = brokers
        await second.stop()
        cluster = first.services.replication
        await until(lambda: list(cluster.describe().in_sync) == [1])
        path = flip(first, 1)
        damaged = path.read_bytes()
        await scrub(first)
        await asyncio.sleep(1.5)  # in which it would have resigned
        assert leads(first)
        assert path.read_bytes() == damaged
        with pytest.raises(StorageError, match="damaged at byte"):
            await read_all(addresses)
        (text,) = first.services.scrubber.damages()
        assert text.startswith(f"{TOPIC}-0 is damaged at byte")


async def test_a_follower_whose_metadata_log_is_damaged_at_its_start_is_in_sync_again(
    place: Path, etcd: EtcdProcess
) -> None:
    """It leaves the ISR with what it had, and enters it once."""
    settings = Settings(etcd, 2)
    async with running_broker(place / "broker1", **settings.of(1)) as first:
        await until(lambda: leads(first))
        async with running_broker(place / "broker2", **settings.of(2)) as second:
            await until(lambda: in_sync(second))
            async with Admin(settings.addresses) as admin:
                await admin.create_topic(TOPIC)
            await until(lambda: TOPIC in second.directory.topics())
            assert second.directory.metadata is not None
            path = second.directory.metadata.log.segments[0].log_path
        stored = path.read_bytes()
        path.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
        async with running_broker(place / "broker2", **settings.of(2)) as second:
            await until(lambda: all_in_sync([first, second]))
            await until(lambda: in_sync(second))
            assert path.read_bytes() == stored
            assert isinstance(second.services.replication, Cluster)
            assert not second.services.replication.node.identity.in_doubt
