"""Brokers in the test's own loop that have the same data. They stop cleanly, or not at all."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from horolog import Consumer, Producer
from horolog.client.administer.admin import ReplicaAdmin
from horolog.client.cluster.link import ClientLink
from horolog.client.cluster.route import ANY_REPLICA
from horolog.protocol.api.cluster.describe_replicas import DescribeReplicasResponse
from horolog.server.broker import Broker
from horolog.storage.files import Files
from horolog.testing.broker import running_broker
from horolog.testing.ports import free_port
from horolog.testing.wire import Wire

DEADLINE_S = 40.0
PATIENCE_MS = 300_000
"""`replica.lag.time.max.ms` of members: a machine that stands still for a second takes no follower
out of sync."""
SHORT_MS = 1000
HAND_OVER_S = 30.0
"""How long a handover, or leaving the ISR, may take; as short as it is for users, a machine that
stands still for a second ends it."""


def reading_link(client: Any) -> ClientLink | None:
    """The link of a client with `read_from="any"` to the broker that it reads from; a consumer
    reads in the lane of its fetches."""
    links = client._cluster._links
    lanes = [lane for address, lane in links if address == ANY_REPLICA]
    return links[ANY_REPLICA, max(lanes)] if lanes else None


async def eventually(condition: Callable[[], Any]) -> Any:
    """Ask until the answer is not false; the answer."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = condition()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.01)


class Member:
    """One of them. Its address stays the same."""

    def __init__(self, place: Path, broker_id: int, settings: dict[str, object]) -> None:
        self.broker_id = broker_id
        self.data_dir = place / f"member{broker_id}"
        self.address = f"127.0.0.1:{free_port()}"
        self._settings = settings
        self._stack = AsyncExitStack()
        self.broker: Broker | None = None
        self.files: Files | None = None
        """What it stores on, if not the system's files as they are."""

    async def start(self, *, follow: "Member | None" = None, **more: object) -> None:
        settings: dict[str, Any] = {
            "listen": self.address,
            "broker_id": self.broker_id,
            "http_listen": "off",
        }
        settings |= self._settings | more
        if follow is not None:
            settings["cluster_follow"] = follow.address
        started = running_broker(self.data_dir, files=self.files, **settings)
        self.broker = await self._stack.enter_async_context(started)
        node = self.cluster.node
        node.settings = node.settings._replace(hand_over_s=HAND_OVER_S)

    async def stop(self) -> None:
        """Stop cleanly, but without a word to the leader: a member of the ISR stays in it."""
        if self.broker is not None:
            self.cluster.node.leave = lambda: False
        await self.leave()

    async def leave(self) -> None:
        """Stop in order."""
        await self._stack.aclose()
        self._stack, self.broker = AsyncExitStack(), None

    @property
    def cluster(self) -> Any:
        """What drives it."""
        assert self.broker is not None
        return self.broker.services.replication

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """In the block `replica.lag.time.max.ms` is short at this broker."""
        self._have_lag_max(SHORT_MS)
        yield
        followers = self.cluster.followers
        in_sync = self.cluster.admin.describe().in_sync
        for channel in list(followers._channels.values()):
            # A follower that is gone would be in sync again once more time is given.
            if channel.broker_id not in in_sync and not channel.waits:
                followers._gone(channel)
        self._have_lag_max(PATIENCE_MS)

    def _have_lag_max(self, lag_max_ms: int) -> None:
        cluster, node, lag_max_s = self.cluster, self.cluster.node, lag_max_ms / 1000
        cluster.settings = replace(cluster.settings, replica_lag_time_max_ms=lag_max_ms)
        node.settings = node.settings._replace(lag_max_s=lag_max_s)
        if node.leader is not None:
            node.leader._settings = node.leader._settings._replace(lag_max_s=lag_max_s)

    async def status(self) -> DescribeReplicasResponse:
        async with ReplicaAdmin(self.address) as admin:
            return await admin.describe()

    async def promote(self, broker_id: int = 0, *, accept_loss: bool = False) -> int:
        async with ReplicaAdmin(self.address) as admin:
            return await admin.promote(broker_id, accept_loss=accept_loss)

    async def call(self, request: object) -> Any:
        """One request on a connection of its own."""
        wire = await Wire.open(self.address)
        try:
            return await wire.call(request)
        finally:
            wire.close()

    async def produce(self, topic: str, *values: str, partition: int = 0) -> None:
        async with Producer(self.address, delivery_timeout_ms=0) as producer:
            for value in values:
                await producer.send(topic, value.encode(), partition=partition)

    async def values(self, topic: str, count: int, partition: int = 0) -> list[str]:
        """The first values of a partition."""
        async with Consumer(self.address) as consumer:
            consumer.assign(topic, partition)
            consumer.seek(topic, partition, 0)
            found: list[str] = []
            async for record in consumer:
                found.append((record.value or b"").decode())
                if len(found) == count:
                    break
            return found

    def log(self, topic: str, partition: int = 0) -> Any:
        assert self.broker is not None
        return self.broker.directory.log(topic, partition)


class Members:
    """A cluster in one folder."""

    def __init__(self, place: Path, count: int, settings: dict[str, object]) -> None:
        named = {
            "cluster_brokers": count,
            "replica_lag_time_max_ms": PATIENCE_MS,
            "retention_ms": -1,  # Messages of tests are old, and a slow test meets retention.
        } | settings
        self.all = {number: Member(place, number, named) for number in range(1, count + 1)}

    def __getitem__(self, number: int) -> Member:
        return self.all[number]

    async def start(self) -> None:
        """The first leads, the others follow, and all are in sync."""
        await self[1].start(cluster_create=True)
        for number in list(self.all)[1:]:
            await self[number].start(follow=self[1])
        await self.in_sync(self[1])

    async def in_sync(self, leader: Member) -> DescribeReplicasResponse:
        """Wait until all have everything."""

        async def found() -> DescribeReplicasResponse | None:
            status = leader.cluster.admin.describe()
            lags = {member.lag_messages for member in status.members}
            isr = leader.cluster.node.leader.isr.members if lags == {0} else None
            # One that was started again is in the list before it has entered the ISR anew.
            return (
                status if isr == {each.cluster.node.member for each in self.all.values()} else None
            )

        status: DescribeReplicasResponse = await eventually(found)
        return status


@asynccontextmanager
async def members(place: Path, count: int = 2, **settings: object) -> AsyncIterator[Members]:
    made = Members(place, count, settings)
    try:
        yield made
    finally:
        for member in made.all.values():
            await member.stop()
