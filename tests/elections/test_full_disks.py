"""A full disk in a cluster that etcd decides for (replication.md, 8.2)."""

import asyncio
import errno
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from horolog import Admin, Producer
from horolog.server.broker import Broker
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker
from horolog.testing.etcd import EtcdProcess
from horolog.testing.files import FaultyFiles

from .inside import Settings, in_sync, leads, until

TOPIC = "t"


def members_in_sync(leader: Broker) -> list[int]:
    return list(leader.services.replication.describe().in_sync)


async def test_who_has_a_full_disk_holds_nobody_up_and_does_not_lead(
    place: Path, etcd: EtcdProcess
) -> None:
    settings = Settings(etcd, 2)
    files = FaultyFiles(SystemFiles())
    sent = 0
    async with AsyncExitStack() as stack:
        first_running = await stack.enter_async_context(AsyncExitStack())
        first = await first_running.enter_async_context(
            running_broker(place / "one", **settings.of(1))
        )
        await until(lambda: leads(first))
        second = await stack.enter_async_context(
            running_broker(place / "two", files=files, **settings.of(2))
        )
        await until(lambda: in_sync(second))
        admin = await stack.enter_async_context(Admin(settings.addresses))
        producer = await stack.enter_async_context(Producer(settings.addresses, acks="all"))
        await admin.create_topic(TOPIC)
        await producer.send(TOPIC, b"at both")
        files.fail("pwrite", errno.ENOSPC, times=-1, name=".log", written=20)
        for _ in range(5):
            await producer.send(TOPIC, b"at the leader alone")
        sent += 6
        assert members_in_sync(first) == [1]
        # The leader goes: what is answered is at no other broker, so none leads.
        await first_running.aclose()
        await asyncio.sleep(3)
        assert not leads(second)
        files.heal()
        first = await stack.enter_async_context(
            running_broker(place / "one", **settings.of(1, cluster_create=False))
        )
        await until(lambda: leads(first))
        assert not leads(second)
        await until(lambda: members_in_sync(first) == [1, 2])
        await producer.send(TOPIC, b"at both again")
        ends = [broker.directory.log(TOPIC, 0).log_end_offset for broker in (first, second)]
        assert ends == [sent + 1, sent + 1]


async def test_a_leader_with_a_full_disk_lets_another_one_lead(
    place: Path, etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horolog.server.replication.etcd.election.REFUSED_S", 0.2)
    settings = Settings(etcd, 2)
    files = FaultyFiles(SystemFiles())
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(
            running_broker(place / "one", files=files, **settings.of(1))
        )
        await until(lambda: leads(first))
        second = await stack.enter_async_context(running_broker(place / "two", **settings.of(2)))
        await until(lambda: in_sync(second))
        admin = await stack.enter_async_context(Admin(settings.addresses))
        producer = await stack.enter_async_context(
            Producer(settings.addresses, acks="all", delivery_timeout_ms=60_000)
        )
        await admin.create_topic(TOPIC)
        await producer.send(TOPIC, b"at both")
        # One write that fails is no reason: the next one may find room.
        files.fail("pwrite", errno.ENOSPC, name=".log")
        await producer.send(TOPIC, b"tried again")
        assert leads(first)
        files.fail("pwrite", errno.ENOSPC, times=-1, name=".log")
        await producer.send(TOPIC, b"at the one with room")
        assert leads(second)
        assert second.directory.log(TOPIC, 0).log_end_offset == 3
        files.heal()
        await until(lambda: members_in_sync(second) == [1, 2])
