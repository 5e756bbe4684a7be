"""The pytest plugin: fixtures with a broker, or a cluster, in the process of the tests.

Every pytest run loads it where Horolog is installed, so it imports nothing that only a test with a
broker needs.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .broker import BrokerThread
    from .cluster import BrokerCluster

_ANY_PORT = "127.0.0.1:0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Import, before the first test, what some test needs, so that its import time counts for no
    test."""
    needed = {name for item in items for name in getattr(item, "fixturenames", ())}
    if "horolog_broker" in needed:
        from . import broker  # noqa: F401
    if "horolog_cluster" in needed:
        from . import cluster  # noqa: F401


@pytest.fixture
def horolog_settings() -> Mapping[str, object]:
    """Return settings of the broker and defaults for its topics. Override this fixture to set some.

    For example `{"retention.ms": 60_000, "http.listen": "127.0.0.1:0"}`. They hold during the test;
    fixtures of a wider scope see the broker without them.
    """
    return {}


@pytest.fixture(scope="session")
def horolog_broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[BrokerThread]":
    """A broker on a free port, for all tests of the run, with a clock that tests move.

    Each test finds what fixtures of a wider scope have made, and nothing of other tests. Clients
    connect to `.address`, Kafka's clients to `.kafka_address`. `.clock` has `step(seconds)`,
    `set(time)`, `freeze()`, `run(speed)` and `now_ms()`; `.faults` injects faults; `.topic(name)`
    shows what is stored; `.snapshot()` and `.restore()` go back to an earlier state.
    """
    from .broker import BrokerThread
    from .ports import free_ports

    native, kafka = free_ports(2)
    settings = {"listen": f"127.0.0.1:{native}", "kafka.listen": f"127.0.0.1:{kafka}"}
    with BrokerThread(tmp_path_factory.mktemp("horolog") / "data", settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_bootstrap(horolog_broker: "BrokerThread") -> str:
    """The address of `horolog_broker` for Kafka's clients, `HOST:PORT`: their
    `bootstrap.servers`."""
    address = horolog_broker.kafka_address
    assert address is not None
    return address


@pytest.fixture
def horolog_cluster(
    horolog_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[BrokerCluster]":
    """A leader and two followers, in sync, of this test alone, with one clock.

    Clients connect to `.address`, Kafka's clients to `.kafka_bootstrap`. `.stop_leader()` stops the
    leader, and `.promote()` has a follower lead.
    """
    from .cluster import BrokerCluster

    with BrokerCluster(tmp_path_factory.mktemp("horolog"), horolog_settings) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _horolog_isolation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Put the broker of the session back, after a test, into the state that fixtures of a wider
    scope had made."""
    if "horolog_broker" not in request.fixturenames:
        yield
        return
    settings = request.getfixturevalue("horolog_settings")
    broker: BrokerThread = request.getfixturevalue("horolog_broker")
    with broker.borrowed(settings):
        yield
