"""A broker in a process of its own for each test, and a client that sends and reads."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from horolog.testing.program import ServerProcess
from horolog.tests.clients.conftest import kafka_broker

from .messages import Messages


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with kafka_broker(tmp_path / "data") as started:
        yield started


@pytest.fixture
def address(server: ServerProcess) -> str:
    assert server.kafka is not None
    return server.kafka


@pytest.fixture
def messages(address: str) -> Messages:
    return Messages(address)
