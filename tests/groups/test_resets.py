"""Members whose positions do not exist any more, and rebalances that are cancelled."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horolog import Admin, Consumer, NewRecord, OffsetOutOfRange, Producer, blocking
from horolog.testing.broker import BrokerThread

GROUP = "team"
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 20, "session_timeout_ms": 30_000}
T0 = 1_479_144_272_000
DEADLINE_S = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    folder = tmp_path_factory.mktemp("resets")
    settings = {"kafka.listen": "127.0.0.1:0", "retention.ms": -1}
    with BrokerThread(folder, settings) as started:
        yield started


@pytest.fixture(params=["native", "kafka"])
def place(server: BrokerThread, request: pytest.FixtureRequest) -> Iterator[str]:
    yield server.address if request.param == "native" else f"kafka://{server.kafka_address}"
    server.faults.clear()


@pytest.fixture
async def topic(place: str, request: pytest.FixtureRequest) -> str:
    """Ten messages in two partitions each; in the first one the group was at offset 2 when the
    messages below 5 were deleted."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    async with Admin(place) as admin, Producer(place) as producer:
        await admin.create_topic(name, partitions=2)
        for partition in range(2):
            records = [NewRecord(b"%d" % n, None, T0 + n) for n in range(10)]
            await producer.send_many(name, records, partition=partition)
            await admin.commit_position(f"{GROUP}-{name}", name, partition, 2)
        await admin.delete_records(name, 0, 5)
    return name


async def read(consumer: Consumer) -> dict[int, list[int]]:
    """The first offsets that arrive from each partition, until both partitions are at their end."""
    found: dict[int, list[int]] = {0: [], 1: []}
    async with asyncio.timeout(DEADLINE_S):
        while any(consumer.position(topic, n) != 10 for topic, n in consumer.assignment) or not (
            consumer.assignment
        ):
            for record in await consumer.fetch(max_wait_ms=50):
                found[record.partition].append(record.offset)
    return found


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 5),
        ("latest", 10),
        (datetime.fromtimestamp((T0 + 7) / 1000, UTC), 7),
        (datetime.fromtimestamp(T0 / 1000, UTC), 5),
        (timedelta(days=40_000), 5),
        (timedelta(0), 10),
    ],
)
async def test_a_member_behind_the_log_start_goes_on_where_its_start_says(
    place: str, topic: str, start: Any, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with Consumer(place) as consumer:
        consumer.subscribe(topic, group=f"{GROUP}-{topic}", start=start, **QUICK)
        assert await read(consumer) == {0: list(range(first, 10)), 1: list(range(2, 10))}
        await consumer.commit()
    told = [one.getMessage() for one in caplog.records if "has no offset 2" in one.getMessage()]
    assert len(told) == 1
    assert f"{topic}-0 has no offset 2; reading goes on at {first}" in told[0]
    async with Admin(place) as admin:
        position = await admin.position(f"{GROUP}-{topic}", topic, 0)
        assert position is not None
        assert position.offset == 10


async def test_a_member_behind_the_end_too(place: str, topic: str) -> None:
    async with Consumer(place) as consumer:
        consumer.subscribe(topic, group=f"{GROUP}-{topic}", **QUICK)
        await read(consumer)
        consumer.seek(topic, 1, 100)
        found: list[int] = []
        while len(found) < 10:
            found += [record.offset for record in await consumer.fetch()]
        assert found == list(range(10))
        columns: list[int] = []
        consumer.seek(topic, 0, 100)
        while not columns:
            columns = [batch.offsets[0] for batch in await consumer.fetch_columns()]
        assert columns == [5]


async def test_without_a_group_it_stays_an_error(place: str, topic: str) -> None:
    async with Consumer(place, name=f"{GROUP}-{topic}") as consumer:
        consumer.assign(topic)
        await consumer.seek_to_committed()
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange):
                await consumer.fetch()
            assert consumer.position(topic, 0) == 2
    async with Consumer(place) as consumer:
        consumer.subscribe(topic, group=f"{GROUP}-{topic}", **QUICK)
        await read(consumer)
        await consumer.unsubscribe()
        consumer.assign(topic, 0, offset=2)
        with pytest.raises(OffsetOutOfRange):
            await consumer.fetch()


def test_the_blocking_member_too(server: BrokerThread) -> None:
    with blocking.Producer(server.address) as producer, blocking.Admin(server.address) as admin:
        producer.send_many("waits", [NewRecord(b"")] * 10)
        admin.commit_position("team-waits", "waits", 0, 2)
        admin.delete_records("waits", 0, 5)
    with blocking.Consumer(server.address) as consumer:
        consumer.subscribe("waits", group="team-waits", **QUICK)
        assert [next(consumer).offset for _ in range(5)] == list(range(5, 10))


async def test_partitions_of_a_cancelled_rebalance_are_revoked_once(
    server: BrokerThread, place: str, topic: str
) -> None:
    changes: list[str] = []
    async with Consumer(place) as consumer:
        consumer.subscribe(
            topic,
            group=f"{GROUP}-{topic}",
            on_assigned=lambda keys: changes.append(f"+{len(keys)}"),
            on_revoked=lambda keys: changes.append(f"-{len(keys)}"),
            **QUICK,
        )
        await read(consumer)
        server.faults.delay("OffsetCommit", 1.0)
        server.faults.rebalance(f"{GROUP}-{topic}")
        while changes == ["+2"]:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    await consumer.fetch(max_wait_ms=10)
        assert changes == ["+2", "-2"]
        while changes != ["+2", "-2", "+2"]:
            await asyncio.wait_for(consumer.fetch(), DEADLINE_S)
            assert changes in (["+2", "-2"], ["+2", "-2", "+2"])
