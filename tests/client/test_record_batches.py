"""Record batches of our producers and for our consumers, over the native protocol."""

import asyncio
from typing import Any

import pytest

from horolog import (
    Admin,
    ClientClosed,
    Consumer,
    MessageTooLarge,
    NewRecord,
    PartlySent,
    Producer,
)
from horolog.client.consume.fetching import FetchOptions, next_offset
from horolog.client.produce.encoding import Headers
from horolog.protocol.api.log.fetch import FetchPartitionResult
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


@pytest.mark.parametrize("wrong", ["ab", [("a", b"b", b"c")], [b"ab"], 7])
async def test_what_are_no_pairs_is_refused(address: str, wrong: Any) -> None:
    async with Producer(address) as producer:
        with pytest.raises(TypeError, match="header"):
            await producer.send("clicks", b"", headers=wrong)
        with pytest.raises(TypeError, match="header"):
            await producer.send_batch("clicks", [b""], headers=[wrong])


async def test_a_name_that_is_no_text_fails_alone(address: str) -> None:
    async with Producer(address, linger_ms=1) as producer:
        good = await producer.enqueue("clicks", b"", headers=[("\u00fc", b"")])
        with pytest.raises(ValueError, match="surrogates"):
            await producer.enqueue("clicks", b"", headers=[("\ud800", b"")])
        assert (await good).offset == 0


@pytest.mark.parametrize("idempotent", [False, True])
async def test_columns_with_headers(address: str, idempotent: bool) -> None:
    values = [b"%d" % n for n in range(300)]
    keys = [b"key %d" % (n % 7) for n in range(300)]
    headers: list[Headers | None] = [
        None if n % 3 == 0 else [] if n % 3 == 1 else [("n", b"%d" % n), ("none", None)]
        for n in range(300)
    ]
    async with Admin(address) as admin:
        await admin.create_topic("wide", partitions=3)
    async with Producer(address, idempotent=idempotent, batch_bytes=2000) as producer:
        await producer.send_batch("wide", values, keys=keys, headers=headers)
        with pytest.raises(ValueError, match="headers has 1 items, and there are 2 values"):
            await producer.send_batch("wide", [b"", b""], headers=[None])
    expected = {value: tuple(one or ()) for value, one in zip(values, headers, strict=True)}
    found: dict[bytes | None, Headers] = {}
    async with Consumer(address, max_wait_ms=0) as consumer:
        for partition in range(3):
            consumer.assign("wide", partition)
        while batch := await consumer.fetch():
            found |= {one.value: one.headers for one in batch}
    assert found == expected


async def test_headers_stay_with_their_messages_when_one_is_refused(address: str) -> None:
    settings = {"max.message.bytes": "1000"}
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("small", settings=settings)
        values = [b"a" * 300, b"b" * 300, b"c" * 300, b"d" * 300, b"e" * 2000, b"f"]
        headers: list[Headers] = [[("is", value[:1])] for value in values]
        with pytest.raises(PartlySent):
            await producer.send_batch("small", values, headers=headers)
    async with Consumer(address) as consumer:
        consumer.assign("small")
        (columns, *_) = await consumer.fetch_columns()
        assert columns.headers is not None
        assert [dict(one)["is"] for one in columns.headers] == [b"a", b"b", b"c", b"d"][
            : columns.count
        ]


async def test_an_idempotent_producer_waits_for_all(address: str) -> None:
    with pytest.raises(ValueError, match="needs acks='all', not acks=1"):
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
