"""A broker with a port for Kafka's clients, and logs with what a plain list knows of them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from horolog.protocol.api.kafka import frames as kafka
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.wire import Wire, wire


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(
        tmp_path / "data", http_listen="off", kafka_listen="127.0.0.1:0", retention_ms=-1
    ) as started:
        yield started


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Wire]:
    """A client that speaks Kafka's encoding."""
    assert broker.addresses.kafka is not None
    async with wire(broker.addresses.kafka, kafka) as connected:
        yield connected
