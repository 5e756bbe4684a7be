"""Fault 19: a client goes away at every point at which its request waits for something.

A request is taken so many steps of the event loop far, then it is cancelled, as a connection that
is lost cancels what it waits for. Whatever had happened by then, nothing is left behind, others are
served as before, and the data directory is sound.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from horolog.config.address import split_address
from horolog.protocol.api.groups.join_group import JoinGroupProtocol, JoinGroupRequest
from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.describe_log_dirs import DescribeLogDirsRequest
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.topics.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from horolog.protocol.api.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.records.layout import Codec
from horolog.server.broker import Broker
from horolog.server.network.endpoint import Caller
from horolog.server.network.sending import Answer
from horolog.server.requests import PendingAnswer
from horolog.storage.check.verify import verify
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker
from horolog.testing.requests import (
    create_topic,
    fetch,
    list_offsets,
    message_set,
    produce,
    result,
)
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

CALLER = Caller(("127.0.0.1", 9092), "127.0.0.1")
T0 = 1_500_000_000_000
STEPS = [*range(12), 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024]
"""How far a request may come; those that wait for a thread are still waiting then."""

API_OF = {api.request: api for api in APIS.values()}


@dataclass(frozen=True)
class Asked:
    """A request in a version, for a topic of its own where it changes one."""

    make: Callable[[str], object]
    version: int


def committed(name: str) -> OffsetCommitRequest:
    partition = OffsetCommitPartition(partition=0, committed_offset=1)
    topics = [OffsetCommitTopic(name=name, partitions=[partition])]
    return OffsetCommitRequest(group_id="positions", topics=topics)


def joining(name: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=name,
        session_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupProtocol(name="range", metadata=b"")],
    )


def altered(name: str) -> AlterConfigsRequest:
    configs = [AlterableConfig(name="segment.bytes", value="20000")]
    return AlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=2, resource_name=name, configs=configs)]
    )


def altered_one(name: str) -> IncrementalAlterConfigsRequest:
    configs = [IncrementalConfig(name="segment.bytes", value="30000")]
    resource = IncrementalAlterConfigsResource(resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def trimmed(name: str) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition=0, offset=2)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=partitions)])


def more_partitions(name: str) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=3)])


REQUESTS = {
    "produce": Asked(lambda name: produce(name, message_set(T0), acks=-1), 2),
    "fetch-waiting": Asked(
        lambda name: fetch(name, (0, 3), max_wait_ms=60_000, min_bytes=1 << 20), 3
    ),
    "fetch-converted": Asked(lambda name: fetch(name, (0, 0)), 0),
    "fetch": Asked(lambda name: fetch(name, (0, 0)), 10),
    "list-offsets-0": Asked(lambda name: list_offsets(name, (0, T0 + 1)), 0),
    "list-offsets-1": Asked(lambda name: list_offsets(name, (0, T0 + 1)), 1),
    "create-topics": Asked(lambda name: create_topic(f"{name}-new", 2), 1),
    "delete-topics": Asked(lambda name: DeleteTopicsRequest(topic_names=[name]), 1),
    "create-partitions": Asked(more_partitions, 1),
    "alter-configs": Asked(altered, 0),
    "incremental-alter-configs": Asked(altered_one, 0),
    "delete-records": Asked(trimmed, 1),
    "describe-log-dirs": Asked(lambda name: DescribeLogDirsRequest(topics=None), 1),
    "offset-commit": Asked(committed, 0),
    "join-group": Asked(joining, 1),
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(
        tmp_path / "data", http_listen="off", kafka_listen="127.0.0.1:0", retention_ms=-1
    ) as started:
        yield started
    wrong = [found for found in verify(SystemFiles(), tmp_path / "data") if found.error]
    assert wrong == []


async def filled(client: Wire, name: str) -> None:
    """A topic with three messages, compressed, so that an old reader needs them converted."""
    for codec in (Codec.NONE, Codec.GZIP, Codec.GZIP):
        answer = result(await client.call(produce(name, message_set(T0, codec=codec)), 2))
        assert answer.error_code == 0


async def cancelled(broker: Broker, frame: bytes, steps: int) -> bool:
    """Take a request so many steps far, then cancel it; False when it was answered before."""
    answers = broker.kafka_dispatcher.answer(deque([frame]), 1, CALLER)
    (answer,) = list[Answer](answers)
    while isinstance(answer, PendingAnswer):
        while not answer.ready.done():
            if steps == 0:
                answer.ready.cancel()
                return True
            steps -= 1
            await asyncio.sleep(0)
        answer = answer.make()
    return False


async def settled(broker: Broker) -> None:
    """Nothing waits any more that was there for a request."""
    await until(lambda: not any(broker.parked().values()))
    await until(lambda: broker.services.conversions.under_way == 0)


async def check(broker: Broker, name: str) -> None:
    """Everything still works with this topic, or with another one in its place."""
    assert broker.addresses.kafka is not None
    async with wire(broker.addresses.kafka, kafka) as client:
        # Changes of topics are made in order: this one comes when those before it are over.
        made = await client.call(create_topic(f"{name}-other"), 1)
        assert made.topics[0].error_code == 0
        described = await client.call(MetadataRequest(topics=[MetadataTopic(name=name)]))
        assert [topic.error_code for topic in described.topics] == [0]
        answer = result(await client.call(produce(name, message_set(T0), acks=-1), 2))
        assert answer.error_code == 0
        found = result(await client.call(list_offsets(name, (0, -1)), 1))
        assert found.offset == answer.base_offset + 1
        old = result(await client.call(fetch(name, (0, answer.base_offset)), 0))
        assert (old.error_code, len(old.records)) == (0, len(message_set(T0)) - 8)
        assert (await client.call(altered(name), 0)).responses[0].error_code == 0
        committing = result(await client.call(committed(name), 0))
        assert committing.error_code == 0
        position = OffsetFetchRequest(
            group_id="positions", topics=[OffsetFetchTopic(name=name, partitions=[0])]
        )
        assert result(await client.call(position, 1)).committed_offset == 1


@pytest.mark.parametrize("which", REQUESTS)
async def test_19_a_request_that_is_cancelled(broker: Broker, which: str) -> None:
    asked = REQUESTS[which]
    tasks = len(asyncio.all_tasks())
    assert broker.addresses.kafka is not None
    for number, steps in enumerate(STEPS):
        name = f"t{number}"
        async with wire(broker.addresses.kafka, kafka) as client:
            await filled(client, name)
        request = asked.make(name)
        api = API_OF[type(request)]
        frame = kafka.encode_request(api, asked.version, 7, "c", request)[4:]
        under_way = await cancelled(broker, frame, steps)
        await settled(broker)
        await check(broker, name)
        if not under_way:
            break
    await until(lambda: len(asyncio.all_tasks()) <= tasks)


@pytest.mark.both_loops
@pytest.mark.parametrize("which", REQUESTS)
async def test_19_a_client_that_is_gone(broker: Broker, which: str) -> None:
    asked = REQUESTS[which]
    assert broker.addresses.kafka is not None
    for steps in range(12):
        name = f"t{steps}"
        async with wire(broker.addresses.kafka, kafka) as client:
            await filled(client, name)
            await client.call(MetadataRequest(topics=[]))
        await until(lambda: broker.connections() == 0)
        host, port = split_address(broker.addresses.kafka)
        _, writer = await asyncio.open_connection(host, port)
        await until(lambda: broker.connections() == 1)
        request: Any = asked.make(name)
        api = API_OF[type(request)]
        writer.write(kafka.encode_request(api, asked.version, 7, "c", request))
        for _ in range(steps):
            await asyncio.sleep(0)
        writer.transport.abort()
        await until(lambda: broker.connections() == 0)
        await settled(broker)
        await check(broker, name)
