"""Messages in columns."""

from array import array
from typing import Any

import pytest

from horolog import (
    Admin,
    BinaryColumn,
    ColumnBatch,
    Consumer,
    ConsumerRecord,
    CorruptMessage,
    NewRecord,
    Producer,
    TimestampType,
)
from horolog.protocol.records.messages.sets import build_set
from horolog.testing.clock import ManualClock

from .test_consumer import fetching

T0 = 1_479_144_272_000
TYPES = {0: TimestampType.CREATE_TIME, 1: TimestampType.LOG_APPEND_TIME, -1: None}


def strings(column: BinaryColumn) -> list[bytes | None]:
    """Read as Arrow says."""
    ends = memoryview(column.offsets).cast("i")
    found: list[bytes | None] = []
    for row in range(len(ends) - 1):
        null = column.valid is not None and not column.valid[row // 8] >> row % 8 & 1
        found.append(None if null else bytes(column.data[ends[row] : ends[row + 1]]))
    assert found.count(None) == column.nulls
    return found


def rows(batch: ColumnBatch) -> list[ConsumerRecord]:
    count = batch.count
    append = batch.append_times_ms
    assert len(batch.offsets) == len(batch.timestamps_ms) == len(batch.timestamp_types) == count
    return [
        ConsumerRecord(
            batch.topic,
            batch.partition,
            batch.offsets[row],
            None if batch.timestamps_ms[row] == -1 else batch.timestamps_ms[row],
            TYPES[batch.timestamp_types[row]],
            key,
            value,
            (),
            None if append is None or append[row] == -1 else append[row],
        )
        for row, (key, value) in enumerate(
            zip(strings(batch.keys), strings(batch.values), strict=True)
        )
    ]


async def read_both(address: str, **options: Any) -> tuple[list[Any], list[Any]]:
    async with Consumer(address, max_wait_ms=0, **options) as consumer:
        consumer.assign("t", 0, offset=options.pop("offset", 0))
        records = []
        while batch := await consumer.fetch():
            records += batch
        consumer.seek("t", 0, 0)
        columns = []
        while batches := await consumer.fetch_columns():
            columns += [row for batch in batches for row in rows(batch)]
        assert consumer.position("t") == columns[-1].offset + 1
    return records, columns


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("append_times", [False, True])
async def test_they_say_what_records_say(
    address: str, clock: ManualClock, kind: str, append_times: bool
) -> None:
    sent: list[NewRecord] = []
    stamps: list[int] = []
    async with Admin(address) as admin, Producer(address, stamp_missing=False) as producer:
        await admin.create_topic("t", settings={"message.timestamp.type": kind})
        for n, compression in enumerate(("none", "gzip", "none", "lz4", "snappy", "none")):
            records = [
                NewRecord(
                    None if m % 7 == 0 else b"%d" % m,
                    b"k" * (m % 5) or None,
                    T0 + m if m % 3 else -1,
                )
                for m in range(n * 20, n * 20 + 20)
            ]
            await producer.send_many("t", records, compression=compression)  # type: ignore[arg-type]
            sent += records
            stamps += [clock.now_ms()] * len(records)
            clock.advance(n)
    read, columns = await read_both(address, append_times=append_times, partition_max_bytes=1_000)
    expected = [
        ConsumerRecord(
            "t",
            0,
            offset,
            stamp
            if kind == "LogAppendTime"
            else None
            if own.timestamp_ms < 0
            else own.timestamp_ms,
            TimestampType(kind),
            own.key,
            own.value,
            (),
            stamp if append_times else None,
        )
        for offset, (own, stamp) in enumerate(zip(sent, stamps, strict=True))
    ]
    assert columns == expected
    assert read == expected


async def test_they_can_be_taken_as_they_are(address: str) -> None:
    async with Producer(address) as producer:
        await producer.send_batch("t", [b"a", None, b"ccc"], timestamps_ms=[T0, T0 + 1, T0 + 2])
    async with Consumer(address) as consumer:
        consumer.assign("t")
        (batch,) = await consumer.fetch_columns()
    assert (batch.count, batch.next_offset) == (3, 3)
    assert array("q", batch.offsets) == array("q", [0, 1, 2])
    assert batch.timestamps_ms.format == "q"
    assert batch.timestamps_ms.tolist() == [T0, T0 + 1, T0 + 2]
    assert bytes(batch.values.data) == b"accc"
    assert batch.append_times_ms is None


async def test_columns_that_are_not_wanted_are_null(address: str) -> None:
    async with Producer(address) as producer:
        await producer.send_batch("t", [b"a", b"b"], keys=[b"k", None], timestamps_ms=T0)
    async with Consumer(address) as consumer:
        consumer.assign("t")
        (batch,) = await consumer.fetch_columns(columns=["keys"])
        assert strings(batch.keys) == [b"k", None]
        assert strings(batch.values) == [None, None]
        assert not batch.values.data
        assert batch.timestamps_ms.tolist() == [T0, T0]
        consumer.seek("t", 0, 1)
        (batch,) = await consumer.fetch_columns(columns=())
        assert (batch.offsets.tolist(), batch.keys.nulls) == ([1], 1)
        for wrong in ("keys", ["keys", "key"]):
            with pytest.raises(ValueError, match="some of headers, keys, values"):
                await consumer.fetch_columns(columns=wrong)  # type: ignore[arg-type]


async def test_what_was_fetched_as_records_comes_again_as_columns(address: str) -> None:
    async with Producer(address) as producer:
        await producer.send_batch("t", [b"%d" % n for n in range(10)])
    async with Consumer(address, max_wait_ms=0, name="n") as consumer:
        consumer.assign("t")
        assert (await anext(consumer)).offset == 0
        (batch,) = await consumer.fetch_columns()
        assert batch.offsets.tolist() == list(range(1, 10))
        assert await consumer.fetch_columns() == []
        await consumer.commit()
        assert await consumer.fetch() == []


async def test_sound_messages_before_a_damaged_one_come_first(scripted_broker: Any) -> None:
    good = build_set([NewRecord(b"a"), NewRecord(b"b")])
    bad = bytearray(build_set([NewRecord(b"c")], base_offset=2))
    bad[-1] ^= 1
    for data, expected in ((good + bad, [0, 1]), (bad, None)):
        async with (
            scripted_broker(fetching(bytes(data))) as broker,
            Consumer(broker.address) as consumer,
        ):
            consumer.assign("t", 0, offset=0)
            if expected is None:
                with pytest.raises(CorruptMessage, match="horolog verify"):
                    await consumer.fetch_columns()
            else:
                (batch,) = await consumer.fetch_columns()
                assert batch.offsets.tolist() == expected
