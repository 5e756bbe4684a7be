"""The fetch that is under way while messages are worked on: what comes of it is only used when it
is what would be asked for."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from horolog import Consumer, Producer
from horolog.protocol.api.log.fetch import (
    FETCH,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopicResult,
)
from horolog.protocol.api.native.frames import RequestHead
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.server.broker import Broker

END = 100


class Log:
    """Partitions of topic t with messages 0 to `END`, of which a fetch brings two."""

    def __init__(self) -> None:
        self.asked: list[dict[int, int]] = []
        """Offsets by partition, of each fetch."""
        self.waits_ms: list[int] = []
        self.came = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    async def serve(self, head: RequestHead, body: Any, _: Any) -> FetchResponse:
        assert head.api_key == FETCH.key
        assert isinstance(body, FetchRequest)
        wanted = {
            partition.partition: partition.fetch_offset
            for topic in body.topics
            for partition in topic.partitions
        }
        self.asked.append(wanted)
        self.waits_ms.append(body.max_wait_ms)
        self.came.set()
        await self.hold.wait()
        return FetchResponse(
            topics=[
                FetchTopicResult(name="t", partitions=[self.result(number, offset)])
                for number, offset in wanted.items()
            ]
        )

    def result(self, partition: int, offset: int) -> FetchPartitionResult:
        values = [str(number).encode() for number in range(offset, min(offset + 2, END))]
        records = build_set([NewRecord(value) for value in values], base_offset=offset)
        return FetchPartitionResult(
            partition=partition, high_watermark=END, records=bytes(records) if values else b""
        )

    async def until(self, count: int) -> None:
        """Wait for so many fetches."""
        while len(self.asked) < count:
            self.came.clear()
            await self.came.wait()


@pytest.fixture
async def log() -> Log:
    return Log()


async def offsets(consumer: Consumer) -> list[int]:
    return [record.offset for record in await consumer.fetch()]


async def test_the_next_fetch_is_under_way_before_the_first_is_worked_on(
    scripted_broker: Any, log: Log
) -> None:
    async with scripted_broker(log.serve) as broker, Consumer(broker.address) as consumer:
        consumer.assign("t", 0, offset=0)
        assert await offsets(consumer) == [0, 1]
        await log.until(2)
        assert log.asked == [{0: 0}, {0: 2}]
        assert log.waits_ms == [500, 0]
        assert consumer.position("t") == 2
        assert await offsets(consumer) == [2, 3]
        assert await offsets(consumer) == [4, 5]
        await log.until(4)
        assert log.asked == [{0: 0}, {0: 2}, {0: 4}, {0: 6}]


async def test_at_the_end_nothing_is_asked_for_before_its_time(
    scripted_broker: Any, log: Log
) -> None:
    async with scripted_broker(log.serve) as broker, Consumer(broker.address) as consumer:
        consumer.assign("t", 0, offset=END - 2)
        assert await offsets(consumer) == [END - 2, END - 1]
        assert await consumer.fetch() == []
        assert log.asked == [{0: END - 2}, {0: END}]
        assert log.waits_ms == [500, 500]


Change = Callable[[Consumer], None]


def pause_and_resume(consumer: Consumer) -> None:
    consumer.pause("t")
    consumer.resume("t")


def assign_again(consumer: Consumer) -> None:
    consumer.unassign("t")
    consumer.assign("t", 0, offset=20)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        pytest.param(lambda consumer: consumer.seek("t", 0, 20), [20, 21], id="seek"),
        pytest.param(lambda consumer: consumer.seek("t", 0, 0), [0, 1], id="seek back"),
        pytest.param(lambda consumer: consumer.seek("t", 0, 2), [2, 3], id="seek to where it is"),
        pytest.param(assign_again, [20, 21], id="assigned again"),
        pytest.param(pause_and_resume, [2, 3], id="paused and resumed"),
    ],
)
async def test_a_consumer_that_was_moved_reads_on_from_there(
    scripted_broker: Any, log: Log, change: Change, wanted: list[int]
) -> None:
    async with scripted_broker(log.serve) as broker, Consumer(broker.address) as consumer:
        consumer.assign("t", 0, offset=0)
        assert await offsets(consumer) == [0, 1]
        await log.until(2)
        change(consumer)
        assert await offsets(consumer) == wanted
        assert consumer.position("t") == wanted[-1] + 1


async def test_a_partition_that_is_added_or_paused_meanwhile(
    scripted_broker: Any, log: Log
) -> None:
    async with scripted_broker(log.serve) as broker, Consumer(broker.address) as consumer:
        consumer.assign("t", 0, offset=0)
        await consumer.fetch()
        await log.until(2)
        consumer.assign("t", 1, offset=50)
        records = await consumer.fetch()
        assert sorted((record.partition, record.offset) for record in records) == [
            (0, 2),
            (0, 3),
            (1, 50),
            (1, 51),
        ]
        consumer.pause("t", 0)
        assert {record.partition for record in await consumer.fetch()} == {1}
        assert (consumer.position("t", 0), consumer.position("t", 1)) == (4, 54)


async def test_records_and_columns_in_turns_give_every_message_once(
    scripted_broker: Any, log: Log
) -> None:
    async with scripted_broker(log.serve) as broker, Consumer(broker.address) as consumer:
        consumer.assign("t", 0, offset=0)
        assert (await anext(consumer)).offset == 0
        (batch,) = await consumer.fetch_columns()  # what was fetched and not given out comes again
        assert batch.offsets.tolist() == [1, 2]
        assert await offsets(consumer) == [3, 4]
        (batch,) = await consumer.fetch_columns()
        assert batch.offsets.tolist() == [5, 6]


async def test_a_fetch_that_is_cancelled_loses_nothing(scripted_broker: Any, log: Log) -> None:
    async with scripted_broker(log.serve) as broker, Consumer(broker.address) as consumer:
        consumer.assign("t", 0, offset=0)
        assert await offsets(consumer) == [0, 1]
        await log.until(2)
        assert await offsets(consumer) == [2, 3]
        log.hold.clear()
        await log.until(3)
        reading = asyncio.create_task(consumer.fetch())
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        log.hold.set()
        assert await offsets(consumer) == [4, 5]
        assert log.asked[2:].count({0: 4}) == 1, "it was still under way"


async def test_a_broker_that_goes_away_meanwhile_is_asked_again(
    scripted_broker: Any, log: Log
) -> None:
    async with scripted_broker(log.serve) as broker, Consumer(broker.address) as consumer:
        consumer.assign("t", 0, offset=0)
        assert await offsets(consumer) == [0, 1]
        log.hold.clear()
        await log.until(2)
        for writer in broker.connections:
            writer.transport.abort()
        log.hold.set()
        assert await offsets(consumer) == [2, 3]


async def test_one_that_is_never_used_leaves_nothing_behind(
    scripted_broker: Any, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()  # of earlier tests
    caplog.clear()
    async with scripted_broker(log.serve) as broker:
        async with Consumer(broker.address) as consumer:
            consumer.assign("t", 0, offset=0)
            await consumer.fetch()
            log.hold.clear()
            await log.until(2)
        log.hold.set()
        del consumer
        gc.collect()  # a future whose error nobody looked at says so when it goes
    assert "never retrieved" not in caplog.text


async def test_everything_is_read_once_and_in_order(broker: Broker, address: str) -> None:
    count = 3_000
    async with Producer(address) as producer:
        await producer.send_batch("t", [b"%d" % number for number in range(count)])
    async with Consumer(address, partition_max_bytes=2_000) as consumer:
        consumer.assign("t", 0)
        found: list[bytes | None] = []
        while len(found) < count:
            found += [record.value for record in await consumer.fetch()]
            if len(found) == count // 2:
                assert (await consumer.lag())["t", 0].messages == count - len(found)
        assert found == [b"%d" % number for number in range(count)]
        assert consumer.position("t") == count
        assert (await consumer.lag())["t", 0].messages == 0
