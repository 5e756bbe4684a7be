"""Topics at a Kafka cluster of three brokers, and at Kafka's port of a Horolog broker."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from horolog import Admin
from horolog.testing.broker import running_broker

NewTopic = Callable[..., Awaitable[str]]

_NUMBERS = itertools.count()


@asynccontextmanager
async def kafka_port(data_dir: Path) -> AsyncIterator[str]:
    async with running_broker(
        data_dir, kafka_listen="127.0.0.1:0", http_listen="off", retention_ms=-1
    ) as broker:
        yield f"kafka://{broker.addresses.kafka}"


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[str]:
    """The address of Kafka's port of a Horolog broker."""
    async with kafka_port(tmp_path) as address:
        yield address


@pytest.fixture(params=["cluster", "port"])
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Either of them."""
    if request.param == "cluster":
        yield request.getfixturevalue("cluster")
        return
    async with kafka_port(tmp_path) as address:
        yield address


@pytest.fixture
def new_topic() -> NewTopic:
    """`await new_topic(address, partitions=1, **settings)` makes one, with underscores for dots."""

    async def make(address: str, partitions: int = 1, **settings: str) -> str:
        name = f"topic-{next(_NUMBERS)}"
        async with Admin(address) as admin:
            given = {key.replace("_", "."): value for key, value in settings.items()}
            await admin.create_topic(name, partitions=partitions, settings=given)
        return name

    return make
