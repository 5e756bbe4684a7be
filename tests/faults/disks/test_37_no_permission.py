"""Files and folders that may not be read or written, or that are gone, under a broker.

Root may do everything, so these run in a child that has given up being root.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.errors import NO_ERROR, StorageError
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.crashing import in_child
from horolog.testing.requests import fetch, result
from horolog.testing.wire import wire

from .correspondent import REFUSED, Correspondent, check_files
from .small_disk import SmallDisk

NOBODY = 65534
SETTINGS: dict[str, Any] = {"segment_bytes": 1900, "http_listen": "off"}


@asynccontextmanager
async def corresponding(data_dir: Path) -> AsyncIterator[tuple[Broker, Correspondent]]:
    """A broker, and somebody who talks to it."""
    async with (
        running_broker(data_dir, **SETTINGS) as broker,
        wire(broker.addresses.native) as client,
    ):
        yield broker, Correspondent(client)


async def fill(data_dir: Path) -> dict[str, dict[int, bytes]]:
    """Two topics with some messages, and a clean stop; returns the messages."""
    async with corresponding(data_dir) as (_, correspondent):
        for topic in ("a", "b"):
            assert await correspondent.create(topic) == NO_ERROR
            for _ in range(2):
                assert await correspondent.produce(topic, acks=-1) == NO_ERROR
    return correspondent.acknowledged


@pytest.fixture
def folder(as_root: None) -> Iterator[Path]:
    """A folder of somebody who may do nothing else."""
    with tempfile.TemporaryDirectory(prefix="horolog-disks-") as name:
        os.chown(name, NOBODY, NOBODY)
        yield Path(name)


def as_nobody(work: Callable[[Path], Coroutine[None, None, None]], folder: Path) -> None:
    """Do `work` in a child without any rights."""

    def child() -> None:
        # What is imported late may lie where nobody else may read it.
        with tempfile.TemporaryDirectory() as name:
            asyncio.run(_warm_up(Path(name)))
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        asyncio.run(work(folder))

    assert in_child(child) == 0, "see standard error"


async def _warm_up(data_dir: Path) -> None:
    await fill(data_dir)
    (data_dir / "topics.json").write_text("{")
    async with running_broker(data_dir, **SETTINGS):
        pass


async def refused_start(data_dir: Path) -> None:
    """The broker does not start, and says what to do."""
    with pytest.raises(StorageError, match=r"cannot be used.*make it readable and writable"):
        async with running_broker(data_dir, **SETTINGS):
            pass


@pytest.mark.parametrize("mode", [0o555, 0o000, 0o333], ids=["read-only", "none", "write-only"])
def test_37_a_data_directory_without_permission(folder: Path, mode: int) -> None:
    async def work(folder: Path) -> None:
        data_dir = folder / "data"
        acknowledged = await fill(data_dir)
        data_dir.chmod(mode)
        await refused_start(data_dir)
        data_dir.chmod(0o755)
        async with corresponding(data_dir) as (_, correspondent):
            correspondent.acknowledged = acknowledged
            await correspondent.check()

    as_nobody(work, folder)


def test_37_a_place_where_no_data_directory_can_be_made(folder: Path) -> None:
    async def work(folder: Path) -> None:
        (folder / "others").mkdir(mode=0o555)
        await refused_start(folder / "others" / "data")

    as_nobody(work, folder)


def test_37_a_disk_that_is_mounted_read_only(small_disk: SmallDisk) -> None:
    data_dir = small_disk.path / "data"
    asyncio.run(fill(data_dir))
    subprocess.run(["mount", "-o", "remount,ro", small_disk.path], check=True)
    asyncio.run(refused_start(data_dir))


@pytest.mark.parametrize("name", [f"{0:020d}.log", "."])
def test_37_a_log_that_may_not_be_read(folder: Path, name: str) -> None:
    """Only that partition suffers, and no longer than it takes to give the permission back."""

    async def work(folder: Path) -> None:
        data_dir = folder / "data"
        acknowledged = await fill(data_dir)
        path = data_dir / "a-0" / name
        mode = path.stat().st_mode
        path.chmod(0)
        async with corresponding(data_dir) as (_, correspondent):
            correspondent.acknowledged = acknowledged
            await correspondent.check("b")
            assert await correspondent.produce("b", acks=-1) == NO_ERROR
            answer = result(await correspondent.wire.call(fetch("a", (0, 0))))
            assert answer.error_code == REFUSED
            assert str(data_dir / "a-0") in answer.error_message
            assert await correspondent.produce("a") == REFUSED
            path.chmod(mode)
            assert await correspondent.produce("a", acks=-1) == NO_ERROR
            await correspondent.check()
        check_files(data_dir)

    as_nobody(work, folder)


def test_37_a_folder_that_becomes_read_only_under_a_broker(folder: Path) -> None:
    """What is open goes on; a new segment cannot be made until the permission is back."""

    async def work(folder: Path) -> None:
        data_dir = folder / "data"
        async with corresponding(data_dir) as (_, correspondent):
            for topic in ("a", "b"):
                assert await correspondent.create(topic) == NO_ERROR
                assert await correspondent.produce(topic, acks=-1) == NO_ERROR
            (data_dir / "a-0").chmod(0o555)
            while await correspondent.produce("a") == NO_ERROR:
                pass
            assert len(correspondent.acknowledged["a"]) >= 6
            assert await correspondent.produce("b", acks=-1) == NO_ERROR
            await correspondent.check()
            (data_dir / "a-0").chmod(0o755)
            assert await correspondent.produce("a", acks=-1) == NO_ERROR
            await correspondent.check()
        check_files(data_dir)

    as_nobody(work, folder)


async def test_37_a_partition_that_somebody_removes_under_a_broker(tmp_path: Path) -> None:
    """What is written to its open files is not acknowledged as safe."""
    data_dir = tmp_path / "data"
    async with corresponding(data_dir) as (broker, correspondent):
        for topic in ("a", "b"):
            assert await correspondent.create(topic) == NO_ERROR
            assert await correspondent.produce(topic, acks=-1) == NO_ERROR
        shutil.rmtree(data_dir / "a-0")
        assert await correspondent.produce("a", acks=-1) == REFUSED
        assert await correspondent.produce("a") == REFUSED
        failure = broker.directory.log("a", 0).failure
        assert failure is not None
        assert "somebody removed" in failure.message
        assert await correspondent.produce("b", acks=-1) == NO_ERROR
        await correspondent.check("b")
        (data_dir / "a-0").mkdir()
        with pytest.raises(StorageError, match="not clean: a-0"):
            broker.directory.close()


"""
"""
