"""Fetches that come together get what each would have got alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.api.log.fetch import FETCH, READ_COMMITTED, FetchRequest
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.writing import InMemory, Part
from horolog.protocol.records.layout import Codec
from horolog.server.broker import Broker
from horolog.server.dispatch import Dispatcher
from horolog.server.handlers import HANDLERS
from horolog.server.network.sending import Answer, AnswerInParts
from horolog.server.requests import PendingAnswer
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.storage.read.slices import FileRange, Slice
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, fetch, message_set, produce, result, results
from horolog.testing.wire import Wire, wire

from .alike import BOTH, CALLER, answers_to, frame_of

NOW = ManualClock().now_ms()


def whole(answer: Answer) -> bytes:
    """The bytes that are sent for an answer."""
    if not isinstance(answer, AnswerInParts):
        assert isinstance(answer, bytes)
        return answer
    return b"".join(map(in_memory, answer.parts))


def in_memory(part: Part) -> bytes:
    if isinstance(part, FileRange):
        return part.file.pread(len(part), part.position)
    assert isinstance(part, InMemory)
    return bytes(part)


async def fill(client: Wire, topic: str, message_format: str) -> None:
    """Sets of all sizes and forms, in several segments, and one message larger than a fetch."""
    settings = {"segment_bytes": 20_000, "message_format_version": message_format}
    (made,) = (await client.call(create_topic(topic, 1, **settings))).topics
    assert made.error_code == 0, made.error_message
    for count in range(1, 60):
        codec = (Codec.NONE, Codec.GZIP)[count % 2]
        await client.call(produce(topic, message_set(*[NOW] * count, codec=codec)))
    await client.call(produce(topic, message_set(NOW, value=b"x" * 5000)))


def asked(end: int) -> Iterator[FetchRequest]:
    """Requests of many kinds, for offsets from below the log to behind it."""
    for offset in (-1, 0, 1, 2, end // 3, end // 2, end - 30, end - 1, end, end + 1):
        for options in (
            {},
            {"partition_max_bytes": 700},
            {"partition_max_bytes": 1},
            {"partition_max_bytes": 0},
            {"max_bytes": 300},
            {"min_bytes": 1, "max_wait_ms": 10_000},
            {"min_bytes": 600, "max_wait_ms": 10_000, "partition_max_bytes": 500},
            {"isolation_level": READ_COMMITTED},
        ):
            yield fetch("a", (0, offset), **options)


@BOTH
@pytest.mark.parametrize("stored", ["0.9.0", "0.10.0", "0.11.0"])
async def test_answers_are_those_of_each_alone(
    broker: Broker, client: Wire, encoding: Any, stored: str
) -> None:
    await fill(client, "a", stored)
    log = broker.directory.log("a", 0)
    dispatcher = Dispatcher(broker.services, HANDLERS, encoding)
    at_once = 0
    for version in FETCH.versions(native=encoding.NATIVE):
        requests = asked(log.log_end_offset)
        frames = [
            frame_of(encoding, version, request, number) for number, request in enumerate(requests)
        ]
        answers = answers_to(dispatcher, frames)
        assert len(answers) == len(frames)
        for frame, answer in zip(frames, answers, strict=True):
            alone = dispatcher.answer_one(frame, CALLER)
            assert isinstance(answer, PendingAnswer) == isinstance(alone, PendingAnswer)
            if not isinstance(answer, PendingAnswer):
                at_once += 1
                assert whole(answer) == whole(alone)
    # Readers that have to get another format, as of batches with versions 2 and 3, wait for it.
    first = 4 if stored == "0.11.0" else 2
    assert at_once >= 30 * len(FETCH.versions(native=encoding.NATIVE)[first:])


@BOTH
async def test_large_ones_are_sent_from_their_file(
    broker: Broker, client: Wire, encoding: Any
) -> None:
    await client.call(create_topic("a"))
    sent = message_set(NOW, value=b"x" * 100_000)
    for _ in range(3):
        await client.call(produce("a", sent))
    dispatcher = Dispatcher(broker.services, HANDLERS, encoding)
    frame = frame_of(encoding, 4, fetch("a", (0, 1)))
    for answer in answers_to(dispatcher, [frame, frame]):
        assert isinstance(answer, AnswerInParts)
        assert whole(answer).count(b"x" * 100_000) == 2


async def test_they_are_counted_as_all_others(broker: Broker, client: Wire) -> None:
    await client.call(produce("a", message_set(NOW, NOW)))
    for offset in (0, 1, 0):
        assert result(await client.call(fetch("a", (0, offset)))).records
    assert broker.figures.requests["fetch", "NONE"] == 3
    assert sum(broker.figures.request_time("fetch").counts) == 3
    sent = broker.figures.topic("a").bytes_out
    await client.call(fetch("a", (0, 0)))
    assert broker.figures.topic("a").bytes_out - sent == 2 * 39


async def test_in_order_with_others_of_their_connection(client: Wire) -> None:
    """Also behind one that waits, and what is behind the log's end waits as ever."""
    first, second = message_set(NOW), message_set(NOW, NOW)
    await client.call(produce("a", first))
    await client.call(fetch("a", (0, 0), min_bytes=1, max_wait_ms=30_000))
    waiting, there = (fetch("a", (0, at), min_bytes=1, max_wait_ms=30_000) for at in (1, 0))
    numbers = client.send_together(waiting, there, produce("a", second))
    answers = [await client.receive() for _ in range(3)]
    assert [number for number, _ in answers] == numbers
    assert len(result(answers[0][1]).records) == len(second)
    assert result(answers[2][1]).base_offset == 1


async def test_each_version_and_client_is_its_own(broker: Broker, client: Wire) -> None:
    await client.call(produce("a", message_set(NOW)))
    async with wire(broker.addresses.native) as other:
        for version in (0, 1, 2, 3, 4) * 3:
            for each in (client, other):
                magic = result(await each.call(fetch("a", (0, 0)), version)).records[16]
                assert magic == (0 if version < 2 else 1)


@BOTH
async def test_partitions_in_memory_and_in_files_in_one_answer(
    tmp_path: Path, encoding: Any
) -> None:
    """Bytes that were read, and such that are sent from their file, in the order of the request."""
    sizes = (10, 200_000, 20_000, 150_000)
    async with running_broker(
        tmp_path / "other", http_listen="off", kafka_listen="127.0.0.1:0"
    ) as broker:
        async with wire(broker.addresses.native) as client:
            await client.call(create_topic("a", 4))
            for partition, size in enumerate(sizes):
                sent = message_set(NOW, value=bytes([65 + partition]) * size)
                await client.call(produce("a", sent, partition=partition))
        address = broker.addresses.native if encoding is native else broker.addresses.kafka
        assert address is not None
        async with wire(address, encoding) as reader:
            for order in ((0, 1, 2, 3), (3, 2, 1, 0), (2, 0), (1, 3)):
                request = fetch("a", *((number, 0) for number in order))
                found = results(await reader.call(request, 4))
                for number, one in zip(order, found, strict=True):
                    assert bytes(one.records).endswith(bytes([65 + number]) * sizes[number])


async def test_a_log_is_looked_at_once(client: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.call(create_topic("a"))
    looks: list[int] = []
    read = reader.read

    def counted(log: Log, offset: int, *arguments: Any, **options: Any) -> Slice:
        looks.append(offset)
        return read(log, offset, *arguments, **options)

    monkeypatch.setattr(reader, "read", counted)
    await client.call(produce("a", message_set(NOW, NOW)))
    for offset in (0, 1):
        assert result(await client.call(fetch("a", (0, offset), min_bytes=1))).records
    assert looks == [0, 1]
