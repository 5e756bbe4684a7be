"""Record batches of our producers and for our consumers, over the native protocol."""

import asyncio

import pytest

from horolog import Admin, ClientClosed, Consumer, MessageTooLarge, NewRecord, Producer
from horolog.client.fetching import FetchOptions, next_offset
from horolog.protocol.api.fetch import FetchPartitionResult
from horolog.protocol.records.batch import build_batch, read_header, write_header
from horolog.protocol.records.layout import CONTROL_BIT

OPTIONS = FetchOptions(
    min_bytes=1,
    partition_max_bytes=1000,
    max_bytes=1000,
    max_decompressed_bytes=1000,
    append_times=False,
)


@pytest.mark.parametrize("idempotent", [False, True])
async def test_headers_are_kept(address: str, idempotent: bool) -> None:
    async with Producer(address, idempotent=idempotent) as producer:
        waiting = [
            await producer.enqueue("clicks", b"%d" % n, headers=[("n", b"%d" % n)] if n % 2 else [])
            for n in range(10)
        ]
        await producer.flush()
        assert [one.result().offset for one in waiting] == list(range(10))
        record = NewRecord(b"10", headers=(("a", None), ("a", b"b")))
        assert [one.offset for one in await producer.send_many("clicks", [record])] == [10]
    async with Consumer(address) as consumer:
        consumer.assign("clicks")
        found = [await anext(consumer) for _ in range(11)]
    assert [one.value for one in found] == [b"%d" % n for n in range(11)]
    assert [one.headers for one in found[:10]] == [
        (("n", b"%d" % n),) if n % 2 else () for n in range(10)
    ]
    assert found[10].headers == (("a", None), ("a", b"b"))


async def test_zstd_is_for_batches(address: str) -> None:
    async with Producer(address, compression="zstd") as producer:
        await producer.send_batch("clicks", [b"a" * 100] * 100)
    async with Consumer(address) as consumer:
        consumer.assign("clicks")
        assert [one.value for one in await consumer.fetch()] == [b"a" * 100] * 100


async def test_what_is_no_header_is_refused(address: str) -> None:
    async with Producer(address) as producer:
        for wrong in ([("a", "b")], [(b"a", b"b")]):
            with pytest.raises(TypeError, match="a header is a pair of str and bytes or None"):
                await producer.send("clicks", b"", headers=wrong)  # type: ignore[arg-type]


async def test_an_idempotent_producer_waits_for_all(address: str) -> None:
    with pytest.raises(ValueError, match="needs acks='all', not 1"):
        Producer(address, acks=1, idempotent=True)


async def test_a_refused_set_of_an_idempotent_producer_leaves_nothing(address: str) -> None:
    settings = {"max.message.bytes": "1000"}
    async with Admin(address) as admin, Producer(address, idempotent=True) as producer:
        await admin.create_topic("a", settings=settings)
        for round_number in range(2):
            with pytest.raises(MessageTooLarge):
                await producer.send_many("a", [NewRecord(b"x" * 400)] * 3)
            sent = await producer.send_many("a", [NewRecord(b"x" * 400)] * 2)
            assert [one.offset for one in sent] == [2 * round_number, 2 * round_number + 1]
        unnumbered = await producer.send_many("a", [NewRecord(b"y")], acks=1)
        assert [one.offset for one in unnumbered] == [4]


async def test_a_set_that_waits_fails_when_the_producer_closes(address: str) -> None:
    async with Producer(address, idempotent=True) as producer:
        await producer.send_many("a", [NewRecord(b"1")])
        answer = asyncio.create_task(producer.send_many("a", [NewRecord(b"2")]))
        await asyncio.sleep(0)
        await producer.close(flush=False)
        with pytest.raises(ClientClosed):
            await answer
        with pytest.raises(ClientClosed):
            await producer.send_many("a", [NewRecord(b"3")])


def marked(offset: int) -> bytes:
    """A batch that is a mark in the log, not a message."""
    batch = build_batch([NewRecord(b"", b"\0\0\0\0")], base_offset=offset)
    header = read_header(batch)
    write_header(batch, header._replace(attributes=header.attributes | CONTROL_BIT))
    return bytes(batch)


def test_reading_goes_on_behind_marks() -> None:
    result = FetchPartitionResult(partition=0, records=marked(7))
    assert OPTIONS.records("a", result, 7) == []
    assert OPTIONS.columns("a", result, 7) == []
    assert next_offset(result, 7) == 8


def test_reading_does_not_go_on_behind_a_part_of_a_message() -> None:
    result = FetchPartitionResult(partition=0, records=marked(7)[:-1])
    with pytest.raises(MessageTooLarge):
        OPTIONS.records("a", result, 7)
