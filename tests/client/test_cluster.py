"""Connections come when they are needed, and again when they broke."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from horolog import (
    Admin,
    ClientClosed,
    ConnectionFailed,
    LeaderNotAvailable,
    Producer,
    ProtocolError,
)
from horolog.protocol.api.native.frames import RequestHead
from horolog.protocol.api.topics.metadata import MetadataResponse, MetadataTopicResult
from horolog.testing.broker import running_broker
from horolog.testing.ports import free_port


async def topics(*_: Any) -> MetadataResponse:
    return MetadataResponse(brokers=[], topics=[MetadataTopicResult(name="a")])


async def test_a_broken_connection_is_replaced_at_the_next_request(scripted_broker: Any) -> None:
    async def break_the_first(_: RequestHead, __: Any, writer: Any) -> Any:
        if len(broker.connections) == 1:
            writer.transport.abort()
            return None
        return await topics()

    async with scripted_broker(break_the_first) as broker:
        async with Admin(broker.address) as admin:
            with pytest.raises(ConnectionFailed):
                await admin.list_topics()
            assert await admin.list_topics() == {"a": 0}
        assert len(broker.connections) == 2


async def test_entering_connects() -> None:
    with pytest.raises(ConnectionFailed):
        async with Producer("127.0.0.1:1"):
            pytest.fail("nobody listens there")


async def test_one_connection_serves_many_callers(scripted_broker: Any) -> None:
    async with scripted_broker(topics) as broker:
        admin = Admin(broker.address)
        await asyncio.gather(*(admin.list_topics() for _ in range(20)))
        await admin.close()
        assert len(broker.connections) == 1


async def test_a_topic_without_partitions_is_not_ready(scripted_broker: Any) -> None:
    async with (
        scripted_broker(topics) as broker,
        Producer(broker.address, delivery_timeout_ms=0) as producer,
    ):
        with pytest.raises(LeaderNotAvailable, match="a has no partitions yet"):
            await producer.partition_for("a", b"k")
        with pytest.raises(ProtocolError, match="a response without b"):
            await producer.partition_for("b", b"k")


async def test_a_closed_client_says_so(address: str) -> None:
    async with Admin(address) as admin:
        pass
    with pytest.raises(ClientClosed, match=f"the client of {address} is closed"):
        await admin.list_topics()
    await admin.close()


async def test_closing_while_connecting_leaves_no_connection(scripted_broker: Any) -> None:
    async with scripted_broker(topics) as broker:
        admin = Admin(broker.address)
        asking = asyncio.ensure_future(admin.list_topics())
        await asyncio.sleep(0)
        await admin.close()
        with pytest.raises(ClientClosed):
            await asking


async def test_a_client_outlives_a_restart_of_its_broker(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with AsyncExitStack() as stack:
        async with running_broker(tmp_path, listen=address, http_listen="off"):
            producer = await stack.enter_async_context(Producer(address))
            await producer.send("clicks", b"before")
        async with running_broker(tmp_path, listen=address, http_listen="off"):
            sent = await producer.send("clicks", b"after")
            assert sent.offset == 1


async def test_the_port_of_the_other_protocol_is_told_from_a_lost_connection(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, http_listen="off", kafka_listen="127.0.0.1:0") as broker:
        native, kafka = broker.addresses.native, broker.addresses.kafka
        with pytest.raises(ConnectionFailed, match="Kafka's protocol is written kafka://HOST:PORT"):
            await Admin(str(kafka)).__aenter__()
        with pytest.raises(ConnectionFailed, match="is written HOST:PORT, without kafka://"):
            await Admin(f"kafka://{native}").__aenter__()
