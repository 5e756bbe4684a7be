"""Background tasks over real logs: retention, rolling, deletion, flushing, checkpoints, faults."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.api.log.describe_log import DescribeLogRequest, DescribeLogTopic
from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.server import logs, maintenance
from horolog.server.broker import Broker
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker, synced
from horolog.testing.clock import ManualClock
from horolog.testing.files import FaultyFiles
from horolog.testing.requests import (
    create_topic,
    fetch,
    list_offsets,
    message_set,
    produce,
    result,
)
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
ENTRY_BYTES = 39


async def run(broker: Broker, task: str) -> None:
    await broker.maintenance.tasks[task].run_now()


async def test_an_idle_topic_expires(broker: Broker, client: Wire, clock: ManualClock) -> None:
    """Decision 17: nothing is appended any more, and still the messages go in time."""
    await client.call(create_topic("a", retention_ms=1000))
    await client.call(produce("a", message_set(NOW, NOW - 300)))
    log = broker.directory.log("a", 0)
    clock.advance(1000)
    await run(broker, "retention")
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)
    clock.advance(1)
    await run(broker, "retention")
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    assert broker.figures.topic("a").rolls == {"retention": 1}
    assert broker.figures.topic("a").deleted_segments == 1


@pytest.mark.parametrize("at_once_bytes", [0, 1 << 20])
async def test_trimmed_messages_keep_no_segment_fo11(
    broker: Broker,
    client: Wire,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    at_once_bytes: int,
) -> None:
    """What has to be read for that, if it is much, is read in a thread."""
    monkeypatch.setattr(logs, "READ_AT_ONCE_BYTES", at_once_bytes)
    await client.call(create_topic("a", retention_ms=1000))
    await client.call(produce("a", message_set(NOW + 1_000_000, NOW, NOW)))
    partition = DeleteRecordsPartition(partition=0, offset=1)
    topic = DeleteRecordsTopic(name="a", partitions=[partition])
    trimmed = result(await client.call(DeleteRecordsRequest(topics=[topic])))
    assert (trimmed.error_code, trimmed.low_watermark) == (0, 1)
    log = broker.directory.log("a", 0)
    asked = DescribeLogRequest(topics=[DescribeLogTopic(name="a", partitions=[0])])
    described = result(await client.call(asked))
    assert [one.largest_timestamp_ms for one in described.segments] == [NOW]
    clock.advance(1000)
    await run(broker, "retention")
    assert (log.log_start_offset, log.log_end_offset) == (1, 3)
    clock.advance(1)
    await run(broker, "retention")
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


async def test_a_snapshot_of_producers_that_waits_is_written_within_a_second(
    broker: Broker, client: Wire
) -> None:
    """Also where nothing else asks for a sync, as behind a sync that found no room for it."""
    encoder = RecordEncoder()
    encoder.add(b"hello", None, NOW, ())
    sent = finish_batch(encoder, producer_id=7, producer_epoch=0, base_sequence=0)
    await client.call(produce("a", bytes(sent), acks=-1))
    log = broker.directory.log("a", 0)
    log.appender.roll()
    assert log.producers.to_be_written
    await run(broker, "flush")
    idle = asyncio.Event()
    broker.services.commits.when_idle(idle.set)
    await idle.wait()
    assert not log.producers.to_be_written
    assert (log.path / f"{1:020d}.producers").exists()


async def test_garbage_waits_for_logs_and_requests_but_not_for_ever(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look for it stops everything else."""
    await until(lambda: broker._all_open)
    collected: list[None] = []
    monkeypatch.setattr(maintenance, "collect_garbage", lambda: collected.append(None))
    monkeypatch.setattr(broker.maintenance, "_all_open", False)
    await run(broker, "garbage")
    assert not collected
    await broker.maintenance.open_logs()
    await until(lambda: broker.services.work.is_quiet)
    await run(broker, "garbage")
    assert len(collected) == 1
    ended = asyncio.Event()
    request = broker.services.work.start(ended.wait())
    for _ in range(maintenance.BUSY_ROUNDS_MAX):
        await run(broker, "garbage")
    assert len(collected) == 1
    await run(broker, "garbage")
    assert len(collected) == 2
    ended.set()
    await request
    await run(broker, "garbage")
    assert len(collected) == 3


async def rolls(broker: Broker, topic: str = "a") -> dict[str, int]:
    """Why segments were begun, after a pass over all logs."""
    await run(broker, "retention")
    return dict(broker.figures.topic(topic).rolls)


async def test_an_idle_segment_is_closed(broker: Broker, client: Wire, clock: ManualClock) -> None:
    """Decision 41: it has messages, and none came for segment.ms. Answers stay as they are."""
    await client.call(create_topic("a", retention_ms=-1, segment_ms=1000))
    await client.call(produce("a", message_set(NOW, NOW - 300)))
    log = broker.directory.log("a", 0)
    clock.advance(1000)
    assert await rolls(broker) == {}
    await client.call(produce("a", message_set(NOW)))
    clock.advance(1000)
    assert await rolls(broker) == {}
    clock.advance(1)
    for _ in range(2):
        assert await rolls(broker) == {"idle": 1}
        clock.advance(10_000)
    await synced(broker, log)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert (broker.settings.data_dir / "a-0" / "index-checksums").exists()
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    got = result(await client.call(list_offsets("a", (0, NOW)), 1))
    assert (got.offset, got.timestamp) == (0, NOW)
    assert result(await client.call(produce("a", message_set(NOW)))).base_offset == 3
    assert await rolls(broker) == {"idle": 1}


@pytest.mark.parametrize("step_ms", [10**12, -(10**11)])
@pytest.mark.parametrize("while_stopped", [True, False])
async def test_a_step_of_the_clock_closes_no_segment(
    tmp_path: Path, clock: ManualClock, step_ms: int, while_stopped: bool
) -> None:
    """Nor when the clock is believed."""
    settings: dict[str, Any] = {"segment_ms": 86_400_000, "retention_ms": -1}
    async with (
        running_broker(tmp_path, clock, http_listen="off", **settings) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(produce("a", message_set(NOW)))
        if not while_stopped:
            clock.step(step_ms)
            await believes_clock_and_rolls_nothing(broker, clock)
    if not while_stopped:
        return
    [log_file] = (tmp_path / "a-0").glob("*.log")
    os.utime(log_file, ns=(NOW * 1_000_000, NOW * 1_000_000))
    clock.step(step_ms)
    async with running_broker(tmp_path, clock, http_listen="off", **settings) as broker:
        await believes_clock_and_rolls_nothing(broker, clock)


async def believes_clock_and_rolls_nothing(broker: Broker, clock: ManualClock) -> None:
    assert await rolls(broker) == {}
    clock.advance(broker.settings.clock_settle_ms + 1)
    assert broker.trusted_time.now_ms() == clock.now_ms()
    assert await rolls(broker) == {}
    clock.advance(86_400_000)
    assert await rolls(broker) == {"idle": 1}


async def test_a_pass_closes_a_bounded_number_of_idle_segments(
    broker: Broker, client: Wire, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "IDLE_ROLLS", 2)
    await client.call(create_topic("a", partitions=5, retention_ms=-1, segment_ms=1000))
    for partition in range(5):
        await client.call(produce("a", message_set(NOW), partition=partition))
    clock.advance(1001)
    assert [await rolls(broker) for _ in range(4)] == [{"idle": n} for n in (2, 4, 5, 5)]


async def test_files_go_after_their_delay(broker: Broker, client: Wire, clock: ManualClock) -> None:
    """tc130, RT-10."""
    await client.call(create_topic("a", retention_ms=1000, file_delete_delay_ms=500))
    await client.call(produce("a", message_set(NOW)))
    folder = broker.settings.data_dir / "a-0"
    clock.advance(2000)
    await run(broker, "retention")
    await run(broker, "deletion")
    assert {path.suffixes[0] for path in folder.glob("*.deleted")} >= {
        ".log",
        ".index",
        ".timeindex",
    }
    got = result(await client.call(fetch("a", (0, 0))))
    assert got.error_code == 1
    clock.advance(500)
    await run(broker, "deletion")
    assert not list(folder.glob("*.deleted"))


async def test_the_first_pass_comes_after_the_initial_delay(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Logs that nobody has used since the start are looked at too (RT-11)."""
    async with (
        running_broker(tmp_path, clock, http_listen="off", retention_ms=10) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(produce("a", message_set(NOW)))
    clock.advance(1000)
    async with running_broker(
        tmp_path, clock, http_listen="off", retention_ms=10, log_initial_task_delay_ms=1
    ) as broker:
        assert broker.settings.log_retention_check_interval_ms > 60_000
        await until(lambda: [log.log_start_offset for log in broker.logs()] == [1])


async def test_flush_ms(broker: Broker, client: Wire, clock: ManualClock) -> None:
    await client.call(create_topic("a", flush_ms=1000))
    await client.call(produce("a", message_set(NOW)))
    log = broker.directory.log("a", 0)
    synced_before = sum(broker.figures.fsync.counts)
    clock.advance(999)
    await run(broker, "flush")
    await synced(broker)
    assert log.recovery_point == 0
    clock.advance(1)
    await run(broker, "flush")
    await synced(broker)
    assert log.recovery_point == 1
    assert sum(broker.figures.fsync.counts) == synced_before + 1


def recovery_points(broker: Broker) -> str:
    path = broker.settings.data_dir / "recovery-point-offset-checkpoint"
    return path.read_text() if path.exists() else ""


async def test_recovery_points_are_written_after_syncs(broker: Broker, client: Wire) -> None:
    await client.call(produce("a", message_set(NOW, NOW)))
    await run(broker, "recovery_points")
    assert "a 0 2" not in recovery_points(broker)
    await client.call(produce("a", message_set(NOW), acks=-1))
    await run(broker, "recovery_points")
    assert "a 0 3" in recovery_points(broker)


async def test_a_roll_has_the_closed_segments_synced_dec20_r13(
    faulty: Broker, files: FaultyFiles
) -> None:
    """And not the one that is written to meanwhile."""
    async with wire(faulty.addresses.native) as client:
        await client.call(create_topic("a", segment_bytes=2 * ENTRY_BYTES))
        files.operations.clear()
        await client.call(produce("a", message_set(NOW, NOW)))
        await client.call(produce("a", message_set(NOW)))
        await synced(faulty)
        assert [files.did("sync", f"{base:020d}.log") for base in (0, 2)] == [1, 0]
        await run(faulty, "recovery_points")
        assert "a 0 2" in recovery_points(faulty)


async def test_recovery_points_that_wait_for_indexes_are_written_after_their_sync(
    faulty: Broker, files: FaultyFiles
) -> None:
    """Also where a pass falls between the sync of the messages and that of the indexes."""
    async with wire(faulty.addresses.native) as client:
        await client.call(create_topic("a", segment_bytes=2 * ENTRY_BYTES))
        held = files.hold("sync", f"{0:020d}.index")
        await client.call(produce("a", message_set(NOW, NOW)))
        await client.call(produce("a", message_set(NOW)))
        await until(held.reached.is_set)
        await run(faulty, "recovery_points")
        assert "a 0 2" not in recovery_points(faulty)
        held.let_go()
        await synced(faulty)
        await run(faulty, "recovery_points")
        assert "a 0 2" in recovery_points(faulty)


async def test_log_starts_are_written(broker: Broker, client: Wire, clock: ManualClock) -> None:
    await client.call(create_topic("a", retention_ms=10))
    await client.call(produce("a", message_set(NOW)))
    clock.advance(100)
    await run(broker, "retention")
    await run(broker, "checkpoints")
    path = broker.settings.data_dir / "log-start-offset-checkpoint"
    assert "a 0 1" in path.read_text()


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(SystemFiles())


@pytest.fixture
async def faulty(tmp_path: Path, clock: ManualClock, files: FaultyFiles) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, clock, files, http_listen="off") as started:
        yield started


async def test_one_log_that_fails_does_not_keep_the_others(
    faulty: Broker, files: FaultyFiles, clock: ManualClock
) -> None:
    async with wire(faulty.addresses.native) as client:
        for topic in ("a", "b", "c"):
            await client.call(create_topic(topic, retention_ms=1000))
            await client.call(produce(topic, message_set(NOW)))
        clock.advance(5000)
        files.fail("open", errno.ENOMEM, name=".log")
        await run(faulty, "retention")
        starts = {log.topic: log.log_start_offset for log in faulty.logs()}
        assert sorted(starts.values()) == [0, 1, 1]
        assert faulty.figures.failed_passes == {"retention": 1}
        await run(faulty, "retention")
        assert all(log.log_start_offset == 1 for log in faulty.logs())
        assert faulty.figures.failed_passes == {"retention": 1}
        for topic in ("a", "b", "c"):
            assert result(await client.call(produce(topic, message_set(NOW)))).error_code == 0


async def test_a_failing_checkpoint_is_tried_again(faulty: Broker, files: FaultyFiles) -> None:
    async with wire(faulty.addresses.native) as client:
        # The task may run by itself at any time, so each of its passes fails until it is healed.
        files.fail("rename", errno.ENOSPC, times=-1, name="recovery-point-offset-checkpoint")
        files.fail("rename", errno.ENOSPC, times=-1, name="recovery-point-offset-checkpoint.tmp")
        await client.call(produce("a", message_set(NOW), acks=-1))
        await run(faulty, "recovery_points")
        assert faulty.figures.failed_passes["recovery_points"] >= 1
        assert "a 0 1" not in recovery_points(faulty)
        files.heal()
        await run(faulty, "recovery_points")
        assert "a 0 1" in recovery_points(faulty)


async def test_a_sync_that_could_not_begin_is_begun_again(
    faulty: Broker, files: FaultyFiles
) -> None:
    """Whoever waits for it is not left to time out."""
    async with wire(faulty.addresses.native) as client:
        await client.call(produce("a", message_set(NOW)))
        log = faulty.directory.log("a", 0)
        files.fail("duplicate", errno.EMFILE, times=-1)
        waiting = asyncio.ensure_future(client.call(produce("a", message_set(NOW), acks=-1)))
        await until(lambda: len(faulty.services.produces))
        await synced(faulty)
        assert log.high_watermark == 1
        files.heal()
        await run(faulty, "flush")
        assert result(await waiting).error_code == 0
        assert log.high_watermark == 2


async def test_retention_beside_a_sync(faulty: Broker, clock: ManualClock) -> None:
    """Files that retention takes away while they are being synced are no failed sync."""
    async with wire(faulty.addresses.native) as client:
        await client.call(create_topic("a", retention_ms=1000, segment_bytes=2 * ENTRY_BYTES))
        log = faulty.directory.log("a", 0)
        for _ in range(7):
            log.appender.append(message_set(NOW))
        work = log.flusher.begin_flush()
        assert work is not None
        clock.advance(5000)
        await run(faulty, "retention")
        await synced(faulty)
        assert log.log_start_offset == 7
        work.run()
        log.flusher.end_flush(work)
        assert log.failure is None
        assert result(await client.call(produce("a", message_set(NOW), acks=-1))).error_code == 0


async def test_a_topic_deleted_during_a_pass(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a", partitions=50))
    passing = asyncio.ensure_future(run(broker, "retention"))
    broker.directory.delete_topic("a")
    await passing
    assert not broker.figures.failed_passes
