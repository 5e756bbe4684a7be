"""Exact windows and counts by time at brokers that know neither: they are read for."""

from datetime import timedelta
from random import Random

import pytest

from horolog import Admin, Consumer, NewRecord, Producer, UnknownTopicOrPartition
from horolog.client.produce.producer import Compression
from horolog.testing.program import Program

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


async def test_the_name_of_a_window_is_unknown_and_the_error_says_what_reads_it(
    cluster: str, new_topic: NewTopic
) -> None:
    topic = await new_topic(cluster)
    async with Producer(cluster) as producer:
        for number in range(5):
            await producer.send(topic, b"%d" % number, timestamp_ms=START_MS + number * MINUTE_MS)
    name = f"{topic}..{START_MS + MINUTE_MS}..2m"
    async with Consumer(cluster, retry_timeout_ms=0) as consumer:
        consumer.assign(name)
        with pytest.raises(UnknownTopicOrPartition) as refused:
            await consumer.fetch()
        told = f"{name} reads as a window of {topic}, which only Horolog serves as a topic"
        assert told in str(refused.value)
        offer = f"Consumer.window('{topic}', {START_MS + MINUTE_MS}, {START_MS + 3 * MINUTE_MS})"
        assert offer in str(refused.value)
    async with Admin(cluster) as admin:
        with pytest.raises(UnknownTopicOrPartition, match="only Horolog has append times"):
            await admin.partition_count(f"{name}..append")
        assert name not in await admin.list_topics()


def test_a_command_reads_the_window_that_a_name_means_by_itself(cluster: str) -> None:
    program = Program(cluster)
    program.ok("topic", "create", "named", "--set", "retention.ms=-1")
    sent = "".join(
        f'{{"value": "{number}", "timestamp_ms": {START_MS + number * MINUTE_MS}}}\n'
        for number in (3, 1, 0, 2)
    )
    program.ok("produce", "named", "--json", stdin=sent)
    read = program.ok("consume", f"named..{START_MS + MINUTE_MS}..2m", "--json")
    assert [one["value"] for one in read.objects] == ["1", "2"]
    assert "is a window of named: this client finds its messages itself" in read.err
