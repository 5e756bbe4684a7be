"""The pytest plugin: fixture `horolog_broker`, a broker in the test process.

Loaded by every pytest run where Horolog is installed, so nothing is imported here that only a
test with a broker needs.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .broker import BrokerThread


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Import before the first test what some test will want, so that no test pays for it."""
    if any("horolog_broker" in getattr(item, "fixturenames", ()) for item in items):
        pass


@pytest.fixture
def horolog_settings() -> Mapping[str, object]:
    """Settings of `horolog_broker` and defaults for its topics; override it to give some.

    For example `{"retention.ms": 60_000, "http.listen": "127.0.0.1:0"}`.
    """
    return {}


@pytest.fixture
def horolog_broker(
    horolog_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[BrokerThread]":
    """A broker on a free port, with an empty data directory and a clock that the test can move.

    `.address` is where clients connect to; `.clock` has `step(seconds)`, `jump(seconds)`,
    `freeze()`, `unfreeze()` and `now_ms()`.
    """
    from .broker import BrokerThread

    with BrokerThread(tmp_path_factory.mktemp("horolog"), horolog_settings) as broker:
        yield broker
