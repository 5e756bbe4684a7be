"""A disk without room, on a real small one: at every point where the broker needs some."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.errors import NO_ERROR
from horolog.server.broker import Broker
from horolog.storage.directory.position_records import StoredPosition
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.directories import DataDirectory
from horolog.testing.wire import wire

from .correspondent import REFUSED, Correspondent, check_files
from .small_disk import SmallDisk

NOW_MS = ManualClock().now_ms()
SETTINGS: dict[str, Any] = {
    "segment_bytes": 1900,
    "index_interval_bytes": 100,
    "retention_ms": 10_000,
}


@asynccontextmanager
async def corresponding(
    data_dir: Path, clock: ManualClock, correspondent: Correspondent | None = None
) -> AsyncIterator[tuple[Broker, Correspondent]]:
    """A broker, and somebody who talks to it, perhaps from an earlier one on."""
    async with (
        running_broker(data_dir, clock, http_listen="off", **SETTINGS) as broker,
        wire(broker.addresses.native) as client,
    ):
        if correspondent is None:
            correspondent = Correspondent(client)
        correspondent.wire = client
        yield broker, correspondent


async def run_tasks(broker: Broker) -> None:
    """Every background task once; some of them may fail."""
    for task in broker.maintenance.tasks.values():
        await task.run_now()


async def use_everything(broker: Broker, correspondent: Correspondent) -> set[int]:
    """All that needs room: messages over several segments, topics, positions, checkpoints.

    Returns the error codes.
    """
    codes = set()
    for number in range(8):
        codes.add(await correspondent.produce("a", acks=(1, -1)[number % 2], timestamp_ms=NOW_MS))
        codes.add(await correspondent.produce("b", timestamp_ms=NOW_MS))
    codes.add(await correspondent.create(f"new-{correspondent.sent}"))
    codes.add(await correspondent.commit("a", correspondent.sent))
    await run_tasks(broker)
    return codes


@pytest.mark.parametrize("free_pages", range(14))
async def test_33_a_disk_that_is_full_but_for_some_pages(
    free_pages: int, small_disk: SmallDisk
) -> None:
    clock = ManualClock()
    data_dir = small_disk.path / "data"
    async with corresponding(data_dir, clock) as (broker, correspondent):
        for topic in ("a", "b"):
            assert await correspondent.create(topic) == NO_ERROR
            assert await correspondent.produce(topic, timestamp_ms=NOW_MS) == NO_ERROR
        assert await correspondent.commit("a", 1) == NO_ERROR
        small_disk.fill(free_pages)
        codes = await use_everything(broker, correspondent)
        assert codes == {NO_ERROR, REFUSED}
        await correspondent.check()
        small_disk.make_room()
        assert all(log.failure is None for log in broker.logs())
        assert await correspondent.produce("a", acks=-1, timestamp_ms=NOW_MS) == NO_ERROR
        assert await correspondent.produce("b", acks=-1, timestamp_ms=NOW_MS) == NO_ERROR
        assert await correspondent.commit("b", 2) == NO_ERROR
        await run_tasks(broker)
        await correspondent.check()
    check_files(data_dir)
    async with corresponding(data_dir, clock, correspondent):
        await correspondent.check()


async def test_33_retention_makes_room_on_a_full_disk(small_disk: SmallDisk) -> None:
    clock = ManualClock()
    async with corresponding(small_disk.path / "data", clock) as (broker, correspondent):
        await correspondent.create("a", file_delete_delay_ms=0)
        for _ in range(9):
            assert await correspondent.produce("a", timestamp_ms=NOW_MS) == NO_ERROR
        small_disk.fill(0)
        while await correspondent.produce("a", timestamp_ms=NOW_MS) == NO_ERROR:
            pass
        clock.advance(20_000)
        await broker.maintenance.tasks["retention"].run_now()
        await broker.maintenance.tasks["deletion"].run_now()
        assert small_disk.free_pages > 0
        correspondent.acknowledged["a"].clear()
        assert await correspondent.produce("a", timestamp_ms=NOW_MS + 20_000) == NO_ERROR
        await correspondent.check()


def killed(path: Path) -> tuple[DataDirectory, dict[int, bytes]]:
    """A data directory that was killed in the middle of a write, and what is in its topic."""
    data = DataDirectory(path, **SETTINGS)
    directory = data.open()
    directory.create_topic("a", 1, {})
    directory.create_topic("b", 1, {})
    for number in range(60):
        data.append("a", NOW_MS + number)
    data.append("b", NOW_MS)
    data.commit("job", StoredPosition("a", 0, 5, -1, -1, ""))
    return data, dict.fromkeys(range(60), b"hello")


@pytest.mark.parametrize("free_pages", range(6))
@pytest.mark.parametrize("stopped", ["killed", "clean"])
async def test_33_a_start_on_a_full_disk(
    stopped: str, free_pages: int, small_disk: SmallDisk, tmp_path: Path
) -> None:
    data, values = killed(tmp_path / "before")
    if stopped == "clean":
        data.close()
    data_dir = data.copy(small_disk.path / "data").path
    if stopped == "killed":
        *_, last = sorted((data_dir / "a-0").glob("*.log"))
        last.write_bytes(last.read_bytes() + b"torn")
        for index in (data_dir / "a-0").glob("*index"):
            index.unlink()
        data.close()
    small_disk.fill(free_pages)
    clock = ManualClock()
    async with corresponding(data_dir, clock) as (broker, correspondent):
        correspondent.acknowledged |= {"a": dict(values), "b": {0: b"hello"}}
        codes = await use_everything(broker, correspondent)
        assert REFUSED in codes
        small_disk.make_room()
        clock.advance(1000)
        assert await correspondent.produce("a", acks=-1, timestamp_ms=NOW_MS) == NO_ERROR
        assert await correspondent.produce("b", acks=-1, timestamp_ms=NOW_MS) == NO_ERROR
        await correspondent.check()
    check_files(data_dir)
