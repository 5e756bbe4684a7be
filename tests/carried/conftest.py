"""A broker with a log of every kind of message, and an empty one to carry it to."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock

from .carrying import Side, fill


@dataclass(frozen=True)
class Filled:
    """A data directory, and what time it was when it was stopped."""

    path: Path
    now_ms: int
    begin: list[int]
    """The offsets at which the sets of the log begin."""


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    path = tmp_path_factory.mktemp("filled") / "source"
    clock = ManualClock()

    async def send() -> list[int]:
        async with (
            running_broker(path, clock, http_listen="off") as broker,
            Side.connected(broker) as side,
        ):
            return await fill(side, clock)

    begin = asyncio.run(send())
    return Filled(path, clock.now_ms(), begin)


@pytest.fixture
def clock(filled: Filled) -> ManualClock:
    """One clock for both brokers; ten days after the first message until it is moved."""
    return ManualClock(filled.now_ms)


@pytest.fixture
async def source(tmp_path: Path, filled: Filled, clock: ManualClock) -> AsyncIterator[Side]:
    """The broker that the messages were sent to."""
    path = tmp_path / "source"
    shutil.copytree(filled.path, path)
    async with (
        running_broker(path, clock, http_listen="off") as broker,
        Side.connected(broker) as side,
    ):
        yield side


@pytest.fixture
async def target(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Side]:
    """An empty broker."""
    async with (
        running_broker(tmp_path / "target", clock, http_listen="off") as broker,
        Side.connected(broker) as side,
    ):
        yield side
