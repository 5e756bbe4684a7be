"""Clients of Kafka's protocol have topics made at whichever broker they ask, whoever leads."""

from contextlib import AsyncExitStack
from pathlib import Path

from horolog.protocol.api.kafka import frames as kafka_frames
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.etcd import EtcdProcess
from horolog.testing.wire import wire

from .inside import Settings, in_sync, leads, until


async def code_of(broker: Broker, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataTopic(name=topic)])
    async with wire(str(broker.addresses.kafka), kafka_frames) as client:
        response = await client.call(request, 4)
    return int(response.topics[0].error_code)


async def test_before_and_after_an_election(place: Path, etcd: EtcdProcess) -> None:
    settings = Settings(etcd, 2)
    kafka = {"kafka_listen": "127.0.0.1:0", "http_listen": "off"}
    async with AsyncExitStack() as stack:
        first = running_broker(place / "1", **settings.of(1, **kafka))
        async with first as leader:
            await until(lambda: leads(leader))
            second = running_broker(place / "2", **settings.of(2, **kafka))
            follower = await stack.enter_async_context(second)
            await until(lambda: in_sync(follower))
            assert await code_of(follower, "a") == 0
        await until(lambda: leads(follower))
        third = running_broker(place / "1", **settings.of(1, cluster_create=False, **kafka))
        before = await stack.enter_async_context(third)
        await until(lambda: in_sync(before))
        assert await code_of(before, "b") == 0
        assert set(follower.directory.topics()) == {"a", "b"}
