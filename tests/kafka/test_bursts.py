"""Produce requests that come many at a time are answered as they would be one by one."""

from collections.abc import Sequence

import pytest

from horolog.protocol.api.framing import FrameReader
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.produce import ProducePartitionResult
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import (
    CorruptMessage,
    DuplicateSequenceNumber,
    OutOfOrderSequenceNumber,
    StorageError,
    UnknownTopicOrPartition,
)
from horolog.protocol.limits import REQUESTS_IN_A_TURN
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.messages.sets import NewRecord, build_set
from horolog.server.broker import Broker
from horolog.server.network import connection
from horolog.server.network.connection import VIEWED_BYTES
from horolog.testing.requests import create_topic, list_offsets, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

VALUE = bytes(VIEWED_BYTES)
GOOD = bytes(build_set([NewRecord(VALUE, timestamp_ms=1000)], magic=2))
BAD = GOOD[:-1] + b"x"


@pytest.fixture
def bursts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests came at once each time that some were handled where they were received."""
    seen: list[int] = []
    received = FrameReader.received_views

    def counted(self: FrameReader, count: int) -> list[bytearray | memoryview]:
        frames = received(self, count)
        if any(isinstance(frame, memoryview) for frame in frames):
            seen.append(len(frames))
        return frames

    monkeypatch.setattr(FrameReader, "received_views", counted)
    return seen


def numbered(sequence: int, epoch: int = 0) -> bytes:
    """What idempotent producer 7 sends."""
    encoder = RecordEncoder()
    encoder.add(VALUE, None, 1000)
    return bytes(finish_batch(encoder, producer_id=7, producer_epoch=epoch, base_sequence=sequence))


async def told(client: Wire, count: int) -> list[tuple[int, int]]:
    """Error code and base offset of the next answers."""
    got: Sequence[ProducePartitionResult]
    got = [result((await client.receive())[1]) for _ in range(count)]
    return [(one.error_code, one.base_offset) for one in got]


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_burst(broker: Broker, client: Wire, bursts: list[int], acks: int) -> None:
    good = produce("a", GOOD, acks=acks)
    await client.call(good)
    client.send_together(*[good] * 20)
    assert await told(client, 20) == [(0, 1 + number) for number in range(20)]
    assert bursts
    assert broker.figures.requests["produce", "NONE"] == 21
    assert broker.figures.topic("a").messages == 21
    assert broker.directory.log("a", 0).log_end_offset == 21


async def test_answers_stay_in_order_whatever_is_between(client: Wire, bursts: list[int]) -> None:
    await client.call(create_topic("b"))
    good, other = produce("a", GOOD), produce("b", GOOD)
    await client.call(good)
    await client.call(other)
    end = list_offsets("a", (0, -1))
    client.send_together(good, good, other, other, good, end, good, good, produce("a", BAD), good)
    expected = [1, 2, 1, 2, 3, 4, 4, 5, None, 6]
    for offset in expected:
        one = result((await client.receive())[1])
        if offset is None:
            assert one.error_code == CorruptMessage.code
        else:
            assert one.error_code == 0
            assert getattr(one, "base_offset", getattr(one, "offset", None)) == offset
    assert bursts


async def test_one_that_is_refused_touches_no_other(
    broker: Broker, client: Wire, bursts: list[int]
) -> None:
    await client.call(produce("a", GOOD))
    client.send_together(*(produce("a", data) for data in (GOOD, BAD, GOOD, BAD, GOOD)))
    found = await told(client, 5)
    assert [offset for code, offset in found if not code] == [1, 2, 3]
    assert [code for code, _ in found] == [0, CorruptMessage.code, 0, CorruptMessage.code, 0]
    assert broker.figures.topic("a").rejected == {"corrupt": 2}
    assert bursts


async def test_an_idempotent_producer_repeats_itself(client: Wire, bursts: list[int]) -> None:
    await client.call(produce("a", numbered(0)))
    sequences = (1, 2, 2, 3, 9, 4)
    client.send_together(*(produce("a", numbered(sequence)) for sequence in sequences))
    assert await told(client, 6) == [
        (0, 1),
        (0, 2),
        (0, 2),
        (0, 3),
        (OutOfOrderSequenceNumber.code, -1),
        (0, 4),
    ]
    client.send_together(*(produce("a", numbered(sequence)) for sequence in range(5, 25)))
    assert await told(client, 20) == [(0, number) for number in range(5, 25)]
    client.send_together(*[produce("a", numbered(0))] * 3)
    assert {code for code, _ in await told(client, 3)} == {DuplicateSequenceNumber.code}
    assert bursts


async def test_durable_ones_wait_for_each_other(
    broker: Broker, client: Wire, bursts: list[int]
) -> None:
    good = produce("a", GOOD, acks=-1)
    await client.call(good)
    log = broker.directory.log("a", 0)
    log.hold_high_watermark(1)
    client.send_together(good, good, good, MetadataRequest(), good, good)
    await until(lambda: log.log_end_offset == 6)
    assert bursts
    log.hold_high_watermark(None)
    assert await told(client, 3) == [(0, 1), (0, 2), (0, 3)]
    await client.receive()
    assert await told(client, 2) == [(0, 4), (0, 5)]


async def test_a_log_that_failed_refuses_all_of_them(
    broker: Broker, client: Wire, bursts: list[int]
) -> None:
    good = produce("a", GOOD)
    await client.call(good)
    log = broker.directory.log("a", 0)
    log.failure = StorageError("it failed")
    client.send_together(*[good] * 8)
    assert {code for code, _ in await told(client, 8)} == {StorageError.code}
    log.failure = None
    assert bursts


async def test_bursts_of_two_kinds_by_turns(client: Wire, bursts: list[int]) -> None:
    kinds = [produce("a", GOOD), produce("b", GOOD, acks=-1)]
    for good in kinds:
        await client.call(create_topic(good.topics[0].name))
        await client.call(good)
    for offset in (1, 21, 41):
        for good in kinds:
            bursts.clear()
            client.send_together(*[good] * 20)
            assert await told(client, 20) == [(0, offset + number) for number in range(20)]
            assert bursts


async def test_a_topic_that_is_gone(broker: Broker, client: Wire, bursts: list[int]) -> None:
    good = produce("a", GOOD, partition=3)
    await client.call(create_topic("a", 4))
    await client.call(good)
    client.send_together(*[good] * 6)
    assert {code for code, _ in await told(client, 6)} == {0}
    assert bursts
    bursts.clear()
    broker.directory.delete_topic("a")
    client.send_together(*[good] * 6)
    assert {code for code, _ in await told(client, 6)} == {UnknownTopicOrPartition.code}
    assert bursts


async def test_bursts_of_several_connections(
    broker: Broker, client: Wire, bursts: list[int]
) -> None:
    assert broker.addresses.kafka is not None
    good = produce("a", GOOD)
    await client.call(good)
    async with wire(broker.addresses.kafka, kafka) as second:
        for each in (client, second):
            each.send_together(*[good] * 30)
        offsets = []
        for each in (client, second):
            found = await told(each, 30)
            assert {code for code, _ in found} == {0}
            of_one = [offset for _, offset in found]
            assert of_one == sorted(of_one)
            offsets += of_one
    assert sorted(offsets) == list(range(1, 61))
    assert bursts


async def test_no_memory_for_what_waits_ends_one_connection(
    broker: Broker, client: Wire, bursts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that are left for the next turn cannot stay where they were received."""

    def no_memory(frame: object) -> bytes:
        raise MemoryError

    many = [produce("a", bytes(build_set([NewRecord(bytes(200))])))] * (4 * REQUESTS_IN_A_TURN)
    await client.call(many[0])
    assert broker.addresses.kafka is not None
    async with wire(broker.addresses.kafka, kafka) as other:
        with monkeypatch.context() as patched:
            patched.setattr(connection, "bytearray", no_memory, raising=False)
            other.send_together(*many)
            await until(lambda: broker.figures.connections_dropped.get("memory"))
    assert bursts
    assert result(await client.call(many[0])).error_code == 0
