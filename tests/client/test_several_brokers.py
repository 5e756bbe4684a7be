"""Clients with the addresses of several brokers: the one that leads is found."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from horolog import Admin, ConnectionFailed, Consumer, Producer
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, http_listen="off") as started:
        yield started


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nothing listens, as long as the test runs."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where connections are taken and nothing is ever answered, as of a stopped
    process."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


async def test_the_broker_that_answers_is_used(broker: Broker, nobody: str, silent: str) -> None:
    address = f"{silent},{nobody},{broker.addresses.native}"
    # Within the first attempt: the silent one would take all of it, were it asked alone.
    async with asyncio.timeout(20):
        async with Admin(address) as admin:
            await admin.create_topic("t")
        async with Producer(address) as producer:
            await producer.send("t", b"one")
        async with Consumer(address) as consumer:
            consumer.assign("t")
            assert (await anext(consumer)).value == b"one"


async def test_nobody_answers(nobody: str, silent: str) -> None:
    with pytest.raises(ConnectionFailed, match=f"no leader at {nobody},{silent}: ") as failed:
        async with Admin(f"{nobody},{silent}", request_timeout_ms=1500):
            pass
    assert f"cannot connect to {nobody}" in str(failed.value)
    assert f"{silent}: no answer within 1500 ms" in str(failed.value)
