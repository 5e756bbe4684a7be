"""The way out of a full disk: what makes room works without any, thanks to a reserve."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import horolog
from horolog.protocol.errors import NO_ERROR, HorologError
from horolog.server.broker import Broker
from horolog.storage.check.verify import verify
from horolog.storage.directory.reserve import RESERVE_FILE
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.directories import DataDirectory
from horolog.testing.wire import wire

from .correspondent import REFUSED, Correspondent, check_files
from .small_disk import PAGE_BYTES, SmallDisk

NOW_MS = ManualClock().now_ms()
RESERVE_BYTES = 16 * PAGE_BYTES
SETTINGS: dict[str, Any] = {
    "segment_bytes": 1900,
    "index_interval_bytes": 100,
    "retention_ms": -1,
    "disk_reserve_bytes": RESERVE_BYTES,
    "http_listen": "off",
}


class User:
    """Two topics with messages, and somebody who works with them."""

    def __init__(self, broker: Broker, correspondent: Correspondent, admin: horolog.Admin) -> None:
        self.broker = broker
        self.correspondent = correspondent
        self.admin = admin

    async def fill(self) -> None:
        for topic in ("a", "b"):
            assert await self.correspondent.create(topic, file_delete_delay_ms=0) == NO_ERROR
            for _ in range(9):
                code = await self.correspondent.produce(topic, timestamp_ms=NOW_MS)
                assert code == NO_ERROR
        assert await self.correspondent.commit("a", 1) == NO_ERROR
        assert await self.correspondent.commit("b", 1) == NO_ERROR
        await self.make_reserve()

    async def make_reserve(self) -> None:
        await self.broker.maintenance.tasks["reserve"].run_now()

    async def remove(self) -> None:
        await self.broker.maintenance.tasks["deletion"].run_now()

    async def use_up(self, disk: SmallDisk) -> None:
        """Produce until there is no room at all, not in the last page of a file either."""
        disk.fill(0)
        for topic in ("a", "b"):
            while await self.correspondent.produce(topic, timestamp_ms=NOW_MS) == NO_ERROR:
                disk.fill(0)


@asynccontextmanager
async def using(
    data_dir: Path, clock: ManualClock | None = None, **settings: Any
) -> AsyncIterator[User]:
    async with (
        running_broker(data_dir, clock, **SETTINGS | settings) as broker,
        wire(broker.addresses.native) as client,
        horolog.Admin(str(broker.addresses.native)) as admin,
    ):
        yield User(broker, Correspondent(client), admin)


def reserve_bytes(data_dir: Path) -> int:
    """What the reserve takes on the disk."""
    path = data_dir / RESERVE_FILE
    return path.stat().st_blocks * 512 if path.exists() else 0


@pytest.fixture(params=["delete", "trim", "trim-all", "alter"])
def way_out(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def take(way_out: str, user: User) -> None:
    """Make room for topic `a` as the documentation says."""
    a = user.correspondent.acknowledged["a"]
    if way_out == "delete":
        await user.admin.delete_topic("b")
        del user.correspondent.acknowledged["b"], user.correspondent.positions["b"]
    elif way_out == "alter":
        await user.admin.alter_topic("a", {"retention.bytes": "2000", "file.delete.delay.ms": "0"})
        await user.broker.maintenance.tasks["retention"].run_now()
        start = next(log for log in user.broker.logs() if log.topic == "a").log_start_offset
        user.correspondent.acknowledged["a"] = {o: v for o, v in a.items() if o >= start}
    else:
        offset = max(a) + 1 if way_out == "trim-all" else 20
        await user.admin.delete_records("a", 0, offset)
        user.correspondent.acknowledged["a"] = {o: v for o, v in a.items() if o >= offset}


async def test_33_the_way_out_without_any_room(way_out: str, small_disk: SmallDisk) -> None:
    data_dir = small_disk.path / "data"
    async with using(data_dir) as user:
        await user.fill()
        assert reserve_bytes(data_dir) == RESERVE_BYTES
        await user.use_up(small_disk)
        assert await user.correspondent.create("c") == REFUSED  # That makes no room.
        assert reserve_bytes(data_dir) == RESERVE_BYTES
        await take(way_out, user)
        await user.remove()
        assert await user.correspondent.produce("a", timestamp_ms=NOW_MS) == NO_ERROR
        await user.correspondent.check()
        small_disk.make_room()
        await user.make_reserve()
        assert reserve_bytes(data_dir) == RESERVE_BYTES
    check_files(data_dir)
    listed = {one.path.name for one in verify(SystemFiles(), data_dir)}
    assert RESERVE_FILE not in listed


async def test_33_one_way_out_after_the_other(small_disk: SmallDisk) -> None:
    """What one of them has given up is there for the next one, however many there are."""
    data_dir = small_disk.path / "data"
    async with using(data_dir) as user:
        await user.fill()
        await user.use_up(small_disk)
        for number in range(40):
            await user.admin.alter_topic("a", {"retention.ms": str(10**12 + number)})
        assert reserve_bytes(data_dir) >= RESERVE_BYTES * 3 // 4
        await user.admin.delete_topic("b")


async def test_33_producers_that_take_whatever_becomes_free(small_disk: SmallDisk) -> None:
    data_dir = small_disk.path / "data"
    async with using(data_dir) as user, wire(user.broker.addresses.native) as client:
        await user.fill()
        small_disk.fill(0)
        greedy = Correspondent(client)
        greedy.acknowledged["a"] = {}

        async def produce() -> None:
            while True:
                await greedy.produce("a", timestamp_ms=NOW_MS)

        task = asyncio.create_task(produce())
        while await user.correspondent.produce("b", timestamp_ms=NOW_MS) == NO_ERROR:
            pass
        for number in range(5):
            await user.admin.alter_topic("a", {"retention.ms": str(10**12 + number)})
        await user.admin.delete_topic("b")
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_33_retention_on_a_full_disk_is_safe(small_disk: SmallDisk) -> None:
    """Where the logs begin gets to the disk before their files go."""
    clock = ManualClock()
    data_dir = small_disk.path / "data"
    async with using(data_dir, clock, retention_ms=10_000) as user:
        await user.fill()
        await user.use_up(small_disk)
        clock.advance(20_000)
        await user.broker.maintenance.tasks["retention"].run_now()
        starts = {log.topic: log.log_start_offset for log in user.broker.logs()}
        written = (data_dir / "log-start-offset-checkpoint").read_text()
        for topic, start in starts.items():
            assert start > 0
            assert f"{topic} 0 {start}\n" in written


async def test_33_a_stop_on_a_full_disk_is_clean(small_disk: SmallDisk) -> None:
    data_dir = small_disk.path / "data"
    async with using(data_dir) as user:
        await user.fill()
        await user.use_up(small_disk)
        acknowledged = user.correspondent.acknowledged
    assert (data_dir / ".kafka_cleanshutdown").read_bytes() == b""
    assert reserve_bytes(data_dir) >= RESERVE_BYTES // 2
    check_files(data_dir)
    data = DataDirectory(data_dir)
    data.open()
    recovered = {"log_recovered", "index_rebuilt", "checkpoint_ignored"}
    for topic, messages in acknowledged.items():
        assert len(data.times(topic)) == len(messages)
    assert [event for event, _ in data.events.seen if event in recovered] == []
    data.directory.close()


async def test_33_a_deletion_is_finished_by_a_start_on_a_full_disk(
    small_disk: SmallDisk,
) -> None:
    data_dir = small_disk.path / "data"
    async with using(data_dir) as user:
        await user.fill()
    topics = data_dir / "topics.json"
    content = topics.read_text()
    assert content.count('"partitions": 1') == 2
    head, tail = content.rsplit('"partitions": 1', 1)
    topics.write_text(f'{head}"partitions": 1, "deleting": true{tail}')
    small_disk.fill(0)
    async with using(data_dir) as user:
        assert list(await user.admin.list_topics()) == ["a"]


async def test_33_no_reserve_where_there_is_little_room(small_disk: SmallDisk) -> None:
    """It never takes the last room from messages."""
    data_dir = small_disk.path / "data"
    async with using(data_dir, disk_reserve_bytes=300 * 1024) as user:
        await user.fill()
        assert reserve_bytes(data_dir) == 0
        assert await user.correspondent.produce("a", timestamp_ms=NOW_MS) == NO_ERROR


async def test_33_a_smaller_reserve_or_none(small_disk: SmallDisk) -> None:
    data_dir = small_disk.path / "data"
    for wanted in (RESERVE_BYTES, RESERVE_BYTES // 2, 0, RESERVE_BYTES):
        async with using(data_dir, disk_reserve_bytes=wanted) as user:
            await user.make_reserve()
            assert reserve_bytes(data_dir) == wanted
            assert (data_dir / RESERVE_FILE).exists() == bool(wanted)


async def test_33_a_reserve_that_somebody_removed(small_disk: SmallDisk) -> None:
    data_dir = small_disk.path / "data"
    async with using(data_dir) as user:
        await user.fill()
        (data_dir / RESERVE_FILE).unlink()
        small_disk.fill(0)
        with pytest.raises(HorologError, match="No space left"):
            await user.admin.alter_topic("a", {"retention.ms": "1"})
        small_disk.make_room()
        await user.make_reserve()
        assert reserve_bytes(data_dir) == RESERVE_BYTES
