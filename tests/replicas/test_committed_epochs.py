"""Leader epochs of positions (KIP-320): kept beside them, and given back, wherever they go."""

import asyncio
from pathlib import Path

import pytest

from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from horolog.protocol.api.kafka import frames as kafka_frames
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.requests import create_topic
from horolog.testing.wire import Wire, wire

TOPIC, GROUP = "t", "g"


def committing(offset: int, epoch: int) -> OffsetCommitRequest:
    partition = OffsetCommitPartition(
        partition=0, committed_offset=offset, committed_leader_epoch=epoch
    )
    topics = [OffsetCommitTopic(name=TOPIC, partitions=[partition])]
    return OffsetCommitRequest(group_id=GROUP, topics=topics)


def kafka_of(broker: Broker | None) -> str:
    assert broker is not None
    return str(broker.addresses.kafka)


async def commit(address: str, offset: int, epoch: int, version: int = 6) -> None:
    async with wire(address, kafka_frames) as client:
        response = await client.call(committing(offset, epoch), version)
        assert response.topics[0].partitions[0].error_code == 0


async def committed(address: str, version: int = 5) -> tuple[int, int]:
    """Offset and epoch."""
    request = OffsetFetchRequest(
        group_id=GROUP, topics=[OffsetFetchTopic(name=TOPIC, partitions=[0])]
    )
    async with wire(address, kafka_frames) as client:
        (found,) = (await client.call(request, version)).topics[0].partitions
        assert found.error_code == 0
        return found.committed_offset, found.committed_leader_epoch


@pytest.mark.parametrize("epoch", [0, 7, 2**31 - 1])
async def test_by_a_broker_that_is_alone(place: Path, epoch: int) -> None:
    """It survives restarts; who commits without one, or asks in an older version, gets none."""
    settings = {"kafka_listen": "127.0.0.1:0", "http_listen": "off"}
    async with running_broker(place, **settings) as broker:  # type: ignore[arg-type]
        native = await Wire.open(str(broker.addresses.native))
        await native.call(create_topic(TOPIC))
        native.close()
        await commit(kafka_of(broker), 3, epoch)
        assert await committed(kafka_of(broker)) == (3, epoch)
        assert await committed(kafka_of(broker), 4) == (3, -1)
    async with running_broker(place, **settings) as broker:  # type: ignore[arg-type]
        assert await committed(kafka_of(broker)) == (3, epoch)
        await commit(kafka_of(broker), 4, epoch, version=5)
        assert await committed(kafka_of(broker)) == (4, -1)
        await commit(kafka_of(broker), 5, -1)
    async with running_broker(place, **settings) as broker:  # type: ignore[arg-type]
        assert await committed(kafka_of(broker)) == (5, -1)


async def test_bytes_of_the_request(place: Path) -> None:
    """As Apache Kafka's OffsetCommit version 6 and OffsetFetch version 5 have it."""
    async with running_broker(place, kafka_listen="127.0.0.1:0", http_listen="off") as broker:
        native = await Wire.open(str(broker.addresses.native))
        await native.call(create_topic(TOPIC))
        native.close()
        host, _, port = kafka_of(broker).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        async def call(api_key: int, version: int, body: str) -> str:
            head = f"{api_key:04x} {version:04x} 00000001 ffff"
            request = bytes.fromhex(head + body)
            writer.write(len(request).to_bytes(4, "big") + request)
            size = int.from_bytes(await reader.readexactly(4), "big")
            return (await reader.readexactly(size))[4:].hex()

        one_partition = "00000001 0001 74 00000001 00000000"  # topic "t", partition 0
        await call(8, 6, f"0001 67 ffffffff 0000 {one_partition} 0000000000000009 00000005 0000")
        answer = await call(9, 5, f"0001 67 {one_partition}")
        assert answer == "00000000" + (
            f"{one_partition} 0000000000000009 00000005 0000 0000 0000".replace(" ", "")
        )
        writer.close()
