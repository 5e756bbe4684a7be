"""The pytest plugin with the fixture `horolog_broker`, a broker in the test process.

Every pytest run loads it where Horolog is installed, so it imports nothing that only a test with a
broker needs.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .broker import BrokerThread


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Import, before the first test, what some test needs, so that its import time counts for no
    test."""
    if any("horolog_broker" in getattr(item, "fixturenames", ()) for item in items):
        from . import broker  # noqa: F401


@pytest.fixture
def horolog_settings() -> Mapping[str, object]:
    """Return settings of `horolog_broker` and defaults for its topics. Override this fixture to set
    some.

    For example `{"retention.ms": 60_000, "http.listen": "127.0.0.1:0"}`.
    """
    return {}


@pytest.fixture
def horolog_broker(
    horolog_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[BrokerThread]":
    """A broker on a free port, with an empty data directory and a clock that the test can move.

    Clients connect to `.address`. `.clock` has `step(seconds)`, `jump(seconds)`, `freeze()`,
    `unfreeze()` and `now_ms()`.
    """
    from .broker import BrokerThread

    with BrokerThread(tmp_path_factory.mktemp("horolog"), horolog_settings) as broker:
        yield broker
