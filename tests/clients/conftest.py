"""One broker for the tests of a module, and one of each client."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from horolog.testing.program import ServerProcess, serving

from .apache_tools import ApacheTools
from .client import Client
from .librdkafka import ConfluentKafka
from .matrix import PROGRAMS

SETTINGS = ("group.min.session.timeout.ms=100", "retention.ms=-1")

Start = Callable[[type[Client]], Client]


@contextmanager
def kafka_broker(data_dir: Path, *arguments: str) -> Iterator[ServerProcess]:
    """A broker in a process of its own with a port for Kafka's clients."""
    settings = [text for setting in SETTINGS for text in ("--set", setting)]
    with serving(data_dir, "--kafka-listen", "127.0.0.1:0", *settings, *arguments) as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with kafka_broker(tmp_path_factory.mktemp("broker") / "data") as started:
        yield started


@pytest.fixture(scope="module")
def address(server: ServerProcess) -> str:
    assert server.kafka is not None
    return server.kafka


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[tuple[type[Client], str], Client]]:
    """Those that were started, by what they are and whom they talk to."""
    started: dict[tuple[type[Client], str], Client] = {}
    yield started
    for client in started.values():
        client.close()


@pytest.fixture
def start(
    request: pytest.FixtureRequest,
    address: str,
    clients: dict[tuple[type[Client], str], Client],
    require_program: Callable[[str], str],
) -> Start:
    """`start(kind)` is a client of the module's broker; it skips by name what is not installed."""

    def started(kind: type[Client]) -> Client:
        if kind is ApacheTools:
            request.getfixturevalue("require_apache_kafka")
        for program in PROGRAMS.get(kind, ()):
            require_program(program)
        if (kind, address) not in clients:
            clients[kind, address] = kind(address)
        return clients[kind, address]

    return started


@pytest.fixture
def client(request: pytest.FixtureRequest, start: Start) -> Client:
    """The client that a test with `@proves` runs for."""
    return start(request.param)


@pytest.fixture
def other(start: Start) -> Client:
    """A client that prepares what the one under test finds."""
    return start(ConfluentKafka)


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    test = request.node.originalname.removeprefix("test_")
    return f"{test}.{client.name}"
