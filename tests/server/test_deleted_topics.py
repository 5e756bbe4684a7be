"""Requests that are at work in a log at the moment in which its topic is deleted, and perhaps
created again: they get error 3, and nothing of the new topic."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from horolog import Admin, UnknownTopicOrPartition
from horolog.protocol.records.layout import Codec
from horolog.server.broker import Broker
from horolog.server.handlers.fetch import _Reading
from horolog.server.handlers.list_offsets import _Listing
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker
from horolog.testing.files import FaultyFiles
from horolog.testing.requests import fetch, list_offsets, message_set, produce, result
from horolog.testing.wire import wire

T0 = 1_479_144_000_000


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(SystemFiles())


@pytest.fixture
async def broker(tmp_path: Path, files: FaultyFiles) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, files=files, http_listen="off", retention_ms=-1) as started:
        yield started


@pytest.fixture(params=["deleted", "created again"])
def again(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "created again")


async def fill(broker: Broker, time_ms: int = T0, size: int = 1, codec: Codec = Codec.NONE) -> None:
    times_ms = range(time_ms, time_ms + 10)
    async with wire(broker.addresses.native) as client:
        sent = message_set(*times_ms, value=bytes(size), codec=codec)
        assert result(await client.call(produce("a", sent))).error_code == 0


async def delete(broker: Broker, again: bool) -> None:
    async with Admin(broker.addresses.native) as admin:
        await admin.delete_topic("a")
    if again:
        await fill(broker, T0 + 1_000_000, size=10)


@pytest.mark.parametrize("size", [1, 20_000])
async def test_a_fetch_that_located_messages(broker: Broker, again: bool, size: int) -> None:
    """It sends few of them from memory, and more from the file."""
    await fill(broker, size=size)
    reading = _Reading(broker.services, fetch("a", (0, 0)), 4)
    assert all(reading.find())
    await delete(broker, again)
    got = result(reading.answer_now())
    assert (got.error_code, got.records) == (UnknownTopicOrPartition.code, b"")


async def test_a_search_that_opens_a_large_set(broker: Broker, again: bool) -> None:
    await fill(broker, size=100_000, codec=Codec.GZIP)
    listing = _Listing(broker.services, list_offsets("a", (0, T0 + 5)), 1)
    steps = listing.steps()
    assert next(steps) is not None
    await delete(broker, again)
    for _ in steps:
        pass
    got = result(listing.response)
    assert (got.error_code, got.offset) == (UnknownTopicOrPartition.code, -1)


async def test_a_count_that_reads_in_a_thread(
    broker: Broker, files: FaultyFiles, again: bool
) -> None:
    await fill(broker)
    async with Admin(broker.addresses.native) as admin:
        hold = files.hold("open", ".log")
        counting = asyncio.ensure_future(admin.count_by_time("a", T0, T0 + 100))
        await asyncio.to_thread(hold.reached.wait)
        files._holds.clear()
        await delete(broker, again)
        hold.let_go()
        with pytest.raises(UnknownTopicOrPartition, match="a-0 was deleted meanwhile"):
            await counting
