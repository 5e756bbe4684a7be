"""Exact windows and counts by time at brokers that know neither: they are read for."""

from datetime import timedelta
from random import Random

import pytest

from horolog import Admin, Consumer, NewRecord, Producer
from horolog.client.produce.producer import Compression

from .conftest import NewTopic

pytestmark = pytest.mark.timeout(1200)

START_MS = 1_500_000_000_000
MINUTE_MS = 60_000


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_windows_and_counts_are_exact(
    address: str, new_topic: NewTopic, compression: Compression
) -> None:
    """Times jump by ten minutes both ways, and some by days."""
    topic, rng = await new_topic(address, partitions=3), Random(5)
    sent: list[tuple[int, int, int]] = []
    async with Producer(address, compression=compression) as producer:
        for number in range(60):
            times = [
                START_MS
                + number * MINUTE_MS
                + rng.randrange(-10 * MINUTE_MS, 10 * MINUTE_MS)
                + (rng.randrange(3 * 24) * 60 * MINUTE_MS if rng.random() < 0.02 else 0)
                for _ in range(20)
            ]
            partition = number % 3
            records = [NewRecord(b"x", None, time_ms) for time_ms in times]
            results = await producer.send_many(topic, records, partition=partition)
            sent += [
                (partition, result.offset, time_ms)
                for result, time_ms in zip(results, times, strict=True)
            ]
    until_ms = START_MS + 90 * MINUTE_MS
    async with Consumer(address) as consumer, Admin(address) as admin:
        for from_ms in range(START_MS - 15 * MINUTE_MS, until_ms, 13 * MINUTE_MS):
            window = consumer.window(topic, from_ms, from_ms + 7 * MINUTE_MS)
            found = [(record.partition, record.offset) async for record in window]
            assert sorted(found) == sorted(
                (partition, offset)
                for partition, offset, time_ms in sent
                if from_ms <= time_ms < from_ms + 7 * MINUTE_MS
            )
            assert window.messages == len(found)
        counts = await admin.count_by_time(
            topic, START_MS, until_ms, every=timedelta(milliseconds=7 * MINUTE_MS)
        )
        for count in counts.intervals:
            assert count.count == sum(
                count.from_ms <= time_ms < count.until_ms for _, _, time_ms in sent
            )
        assert counts.intervals[-1].until_ms == until_ms
