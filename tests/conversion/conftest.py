"""Logs and brokers for the tests of conversion."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.logs import LogFolder
from horolog.testing.wire import Wire, wire


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LogFolder]:
    """A folder for a log that the test opens."""
    folder = LogFolder(tmp_path / "t-0")
    yield folder
    folder.let_go()


@pytest.fixture
def clock() -> ManualClock:
    """Stands at 2016-11-14T17:24:32.509Z until it is moved."""
    return ManualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    """A broker without HTTP whose clock is `clock`."""
    async with running_broker(
        tmp_path / "data", clock, http_listen="off", retention_ms=-1
    ) as started:
        yield started


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Wire]:
    """A connection to `broker`."""
    async with wire(broker.addresses.native) as connected:
        yield connected
