"""A disk whose syncs take their time: who asked for one waits, and nobody else."""

import asyncio
from pathlib import Path

from horolog.protocol.api.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.errors import NO_ERROR
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker
from horolog.testing.files import FaultyFiles
from horolog.testing.requests import fetch, message_set, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import wire

from .correspondent import Correspondent


async def test_24_nobody_else_waits_for_a_slow_sync(tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    async with (
        running_broker(tmp_path / "data", files=files) as broker,
        wire(broker.addresses.native) as connection,
        wire(broker.addresses.native) as first,
        wire(broker.addresses.native) as second,
    ):
        client = Correspondent(connection)
        for topic in ("a", "b"):
            assert await client.create(topic) == NO_ERROR
        synced = files.did("sync", ".log")
        slow = files.hold("sync", ".log")
        waits = [asyncio.ensure_future(first.call(produce("a", message_set(1, 2), acks=-1)))]
        await until(slow.reached.is_set)
        for topic in ("a", "b"):
            for _ in range(20):
                assert await client.produce(topic) == NO_ERROR
        await client.check("b")
        seen = result(await connection.call(fetch("a", (0, 0))))
        assert (seen.high_watermark, seen.records) == (0, b""), "what is not safe is not seen"
        assert b"horolog_" in broker.metrics_text()
        log = broker.directory.log("a", 0)
        waits.append(asyncio.ensure_future(second.call(produce("a", message_set(3), acks=-1))))
        await until(lambda: log.log_end_offset == 63)
        assert files.did("sync", ".log") == synced + 1, "one at a time"
        assert not any(wait.done() for wait in waits)
        slow.let_go()
        results = [result(answer) for answer in await asyncio.gather(*waits)]
        assert [(one.error_code, one.base_offset) for one in results] == [(0, 0), (0, 62)]
        assert files.did("sync", ".log") == synced + 2, "the second served both who came meanwhile"
        assert log.high_watermark == 63


async def test_24_nobody_waits_for_somebody_elses_topics(tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    async with (
        running_broker(tmp_path / "data", files=files) as broker,
        wire(broker.addresses.native) as connection,
        wire(broker.addresses.native) as other,
    ):
        client, changes = Correspondent(connection), Correspondent(other)
        for topic in ("a", "b"):
            assert await client.create(topic) == NO_ERROR
        for change in (
            changes.create("c"),
            other.call(CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=2)])),
            other.call(DeleteTopicsRequest(topic_names=["b"])),
        ):
            slow = files.hold("sync", "topics.json.tmp")
            waiting = asyncio.ensure_future(change)
            await until(slow.reached.is_set)
            for _ in range(20):
                assert await client.produce("a") == NO_ERROR
            assert not waiting.done()
            slow.let_go()
            await waiting
        entries = broker.directory.topics()
        assert {name: entry.partitions for name, entry in entries.items()} == {"a": 2, "c": 1}


async def test_24_a_stop_waits_for_the_sync_that_is_under_way(tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    async with (
        running_broker(tmp_path / "data", files=files) as broker,
        wire(broker.addresses.native) as client,
    ):
        slow = files.hold("sync", ".log")
        waits = asyncio.ensure_future(client.call(produce("a", message_set(1), acks=-1)))
        await until(slow.reached.is_set)
        stopping = asyncio.ensure_future(broker.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        slow.let_go()
        assert result(await waits).error_code == NO_ERROR
        await stopping
