"""What clients get of a partition with damage: 56 and what to do, and never a reason to jump."""

import io
from pathlib import Path

import pytest

from horolog.protocol.api.log.describe_log import DescribeLogRequest, DescribeLogTopic
from horolog.protocol.errors import OffsetOutOfRange, StorageError
from horolog.protocol.records.messages.sets import records
from horolog.testing.broker import running_broker
from horolog.testing.requests import create_topic, fetch, list_offsets, message_set, produce, result
from horolog.testing.wire import Wire, wire

from .damaging import flip, overwrite

ENTRY = 39
LATEST, EARLIEST, LARGEST = -1, -2, -3
SEGMENT_BYTES = 4 * ENTRY


async def filled(path: Path) -> None:
    """Topic `a` with two closed segments and one that takes appends, cleanly stopped."""
    async with running_broker(path, retention_ms=-1) as broker, wire(broker.addresses.native) as c:
        await c.call(create_topic("a", segment_bytes=SEGMENT_BYTES, index_interval_bytes=0))
        await c.call(create_topic("b"))
        for ms in range(10, 110, 10):
            await c.call(produce("a", message_set(ms), acks=-1))
        await c.call(produce("b", message_set(5)))


def lose_indexes(path: Path) -> None:
    for index in (path / "a-0").glob("*.timeindex"):
        index.unlink()


async def offsets_from(client: Wire, offset: int) -> list[int]:
    """What a fetch from `offset` on gives; raises nothing but `StorageError` naming the repair."""
    got = result(await client.call(fetch("a", (0, offset))))
    assert got.error_code != OffsetOutOfRange.code
    if got.error_code:
        assert got.error_code == StorageError.code
        assert "horolog repair" in got.error_message
        raise StorageError(got.error_message)
    stored = records(got.records, max_decompressed_bytes=1 << 20, from_offset=offset)
    return [record.offset for record in stored]


@pytest.mark.both_loops
async def test_a_closed_segment_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "data"
    await filled(path)
    flip(path / "a-0" / f"{4:020d}.log", ENTRY + 38, 0)
    lose_indexes(path)
    log = io.StringIO()
    async with (
        running_broker(path, retention_ms=-1, log_stream=log, log_format="json") as broker,
        wire(broker.addresses.native) as client,
    ):
        assert await offsets_from(client, 0) == [0, 1, 2, 3]
        assert await offsets_from(client, 4) == [4]
        for offset in (5, 6, 7):
            with pytest.raises(StorageError, match="damaged at byte 39"):
                await offsets_from(client, offset)
        assert await offsets_from(client, 8) == [8, 9]
        assert await offsets_from(client, 10) == []
        # A fetch that waits for more than there is in front of the damage is told at once.
        waiting = await client.call(fetch("a", (0, 6), max_wait_ms=30_000, min_bytes=1 << 20))
        assert result(waiting).error_code == StorageError.code

        targets = {EARLIEST: 0, LATEST: 10, 15: 1, 50: 4}
        for target, offset in targets.items():
            found = result(await client.call(list_offsets("a", (0, target))))
            assert (found.error_code, found.offset) == (0, offset)
        for target in (55, 90, 1000, LARGEST):
            found = result(await client.call(list_offsets("a", (0, target))))
            assert found.error_code == StorageError.code
            assert "horolog repair" in found.error_message

        sent = result(await client.call(produce("a", message_set(110), acks=-1)))
        assert (sent.error_code, sent.base_offset) == (0, 10)
        assert result(await client.call(produce("b", message_set(6)))).error_code == 0

        asked = DescribeLogRequest(topics=[DescribeLogTopic(name="a", partitions=[0])])
        described = result(await client.call(asked))
        assert [segment.damage[:18] for segment in described.segments] == [
            "",
            "damaged at byte 39",
            "",
        ]
        assert b'horolog_damaged_segments_total{topic="a"} 1.0' in broker.metrics_text()
    assert log.getvalue().count('"event": "segment_damaged"') == 1
    assert '"level": "error"' in next(
        line for line in log.getvalue().splitlines() if "segment_damaged" in line
    )


async def test_the_last_segment_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "data"
    await filled(path)
    overwrite(path / "a-0" / f"{8:020d}.log", ENTRY + 8, bytes(4))
    for _ in range(2):
        async with (
            running_broker(path, retention_ms=-1) as broker,
            wire(broker.addresses.native) as client,
        ):
            sent = result(await client.call(produce("a", message_set(110), acks=-1)))
            assert sent.error_code == StorageError.code
            assert "horolog repair" in sent.error_message
            assert await offsets_from(client, 4) == [4, 5, 6, 7]
            assert await offsets_from(client, 8) == [8]
            with pytest.raises(StorageError, match="damaged at byte 39"):
                await offsets_from(client, 9)
            assert await offsets_from(client, 10) == []
            latest = result(await client.call(list_offsets("a", (0, LATEST))))
            assert (latest.error_code, latest.offset) == (0, 10)
            assert result(await client.call(produce("b", message_set(6)))).error_code == 0


async def test_a_torn_tail_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "data"
    await filled(path)
    (path / ".kafka_cleanshutdown").unlink()
    log = path / "a-0" / f"{8:020d}.log"
    log.write_bytes(log.read_bytes() + b"torn")
    async with (
        running_broker(path, retention_ms=-1) as broker,
        wire(broker.addresses.native) as client,
    ):
        sent = result(await client.call(produce("a", message_set(110), acks=-1)))
        assert (sent.error_code, sent.base_offset) == (0, 10)
        metrics = broker.metrics_text()
        assert b'horolog_torn_tails_total{topic="a"} 1.0' in metrics
        assert b'horolog_torn_bytes_total{topic="a"} 4.0' in metrics
    assert (path / "a-0" / f"{log.name}.{2 * ENTRY}.broken").read_bytes() == b"torn"
