"""fetch 0 and 1 over the wire: format v0 always, whatever is stored; 2 and 3: what is stored."""

import asyncio
import socket
import struct
import tracemalloc
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from horolog.protocol.api.log.fetch import FETCH
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import (
    CorruptMessage,
    MessageTooLarge,
    OffsetOutOfRange,
    StorageError,
    UnknownTopicOrPartition,
)
from horolog.protocol.records.layout import MESSAGE_CODECS, Codec
from horolog.protocol.records.messages.sets import build_wrapper, entries
from horolog.server.broker import Broker
from horolog.server.conversions import CONCURRENT
from horolog.server.handlers import HANDLERS_OF_MANY
from horolog.server.handlers.fetch import FIRST_VERSION_WITH_V1, _Reading
from horolog.server.requests import PendingAnswer
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.logs import timed_set
from horolog.testing.requests import (
    create_topic,
    fetch,
    message_set,
    produce,
    result,
    results,
)
from horolog.testing.wire import Wire, wire
from horolog.tests.followers.appending import append_copy

from .wishes import NEW, OLD, magics, read, read_all, set_format, set_topic

NOW = ManualClock().now_ms()


def log_bytes(broker: Broker, topic: str = "a") -> bytes:
    """Everything in the log files of partition 0, as it is on disk."""
    segments = broker.directory.log(topic, 0).segments
    return b"".join(segment.log_path.read_bytes() for segment in segments)


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("codec", MESSAGE_CODECS, ids=lambda codec: codec.label)
async def test_v1_data_for_an_old_reader_tc58(client: Wire, version: int, codec: Codec) -> None:
    """F-4."""
    await client.call(create_topic("a", message_format_version="0.10.0"))
    await client.call(produce("a", message_set(NOW, -1, NOW, codec=codec)))
    got = result(await client.call(fetch("a", (0, 0)), version))
    assert (got.error_code, got.high_watermark) == (0, 3)
    assert magics(got.records) == {0}
    assert [(r.offset, r.key, r.value, r.timestamp_ms) for r in read(got.records)] == [
        (offset, None, b"hello", -1) for offset in range(3)
    ]
    assert {entry.codec for entry in entries(got.records)} == {codec}


@pytest.mark.parametrize("version", [*OLD, *NEW])
@pytest.mark.parametrize("setting", ["0.9.0", "0.10.0", "producer"])
async def test_v0_data_goes_to_everybody_as_it_is_tc59(
    broker: Broker, client: Wire, version: int, setting: str
) -> None:
    await client.call(create_topic("a", message_format_version="0.9.0"))
    for codec in MESSAGE_CODECS:
        await client.call(produce("a", message_set(-1, -1, magic=0, codec=codec)))
    await set_format(client, "a", setting)
    got = result(await client.call(fetch("a", (0, 0)), version))
    assert got.records == log_bytes(broker)


async def fill_mixed(client: Wire) -> None:
    """v0, v1, v0, v1: eight messages in four stretches."""
    for magic, codec in ((0, Codec.NONE), (1, Codec.GZIP), (0, Codec.SNAPPY), (1, Codec.NONE)):
        times = (NOW, NOW) if magic else (-1, -1)
        await client.call(produce("a", message_set(*times, magic=magic, codec=codec)))


@pytest.mark.parametrize("version", NEW)
async def test_a_new_reader_gets_every_byte_tc60(
    broker: Broker, client: Wire, version: int
) -> None:
    await fill_mixed(client)
    slices = await read_all(client, "a", version)
    assert b"".join(slices) == log_bytes(broker)
    assert [magics(data) for data in slices] == [{0}, {1}, {0}, {1}], "decision 26"


@pytest.mark.parametrize("version", OLD)
async def test_an_old_reader_gets_every_message(client: Wire, version: int) -> None:
    await fill_mixed(client)
    slices = await read_all(client, "a", version)
    assert [magics(data) for data in slices] == [{0}] * 4
    assert [record.offset for data in slices for record in read(data)] == list(range(8))


async def test_formats_one_after_the_other_tc158(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a", message_format_version="0.9.0"))
    await client.call(produce("a", message_set(NOW, NOW)))
    await set_format(client, "a", "0.10.0")
    await client.call(produce("a", message_set(NOW, NOW)))
    for version in OLD:
        slices = await read_all(client, "a", version)
        assert [magics(data) for data in slices] == [{0}, {0}]
        assert [record.offset for data in slices for record in read(data)] == [0, 1, 2, 3]
    for version in NEW:
        slices = await read_all(client, "a", version)
        assert [magics(data) for data in slices] == [{0}, {1}]
        assert b"".join(slices) == log_bytes(broker)


@pytest.mark.parametrize("setting", ["0.9.0", "producer"])
@pytest.mark.parametrize("version", OLD)
async def test_the_data_decide_not_the_setting_tc63(
    client: Wire, version: int, setting: str
) -> None:
    """F-32."""
    await client.call(create_topic("a", message_format_version="0.10.0"))
    await client.call(produce("a", message_set(NOW, NOW)))
    await set_format(client, "a", setting)
    got = result(await client.call(fetch("a", (0, 0)), version))
    assert magics(got.records) == {0}
    assert [record.offset for record in read(got.records)] == [0, 1]


@pytest.mark.parametrize("version", OLD)
async def test_gaps_stay_tc61(broker: Broker, client: Wire, version: int) -> None:
    await client.call(create_topic("a"))
    plain = timed_set(NOW) + timed_set(NOW, base_offset=2)
    stored = build_wrapper(plain, offset=2, timestamp_ms=NOW, magic=1, codec=Codec.GZIP)
    append_copy(broker.directory.log("a", 0), bytes(stored))
    got = result(await client.call(fetch("a", (0, 0)), version))
    assert [record.offset for record in read(got.records)] == [0, 2]
    (wrapper,) = entries(got.records)
    assert (wrapper.magic, wrapper.codec, wrapper.offset) == (0, Codec.GZIP, 2)


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("limit", [0, 1, 12, 38])
async def test_a_first_message_too_large_tc62(
    broker: Broker, client: Wire, version: int, limit: int
) -> None:
    """F-34: the size of what came tells the reader to ask for more."""
    await client.call(produce("a", message_set(NOW, NOW)))
    got = result(await client.call(fetch("a", (0, 0), partition_max_bytes=limit), version))
    assert (got.error_code, got.records) == (0, log_bytes(broker)[:limit])


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("limit", [39, 40, 80, 200])
async def test_a_slice_is_limited_as_stored(client: Wire, version: int, limit: int) -> None:
    await client.call(produce("a", message_set(*[NOW] * 10)))
    slices = await read_all(client, "a", version, limit)
    assert [record.offset for data in slices for record in read(data)] == list(range(10))
    assert {len(data) for data in slices[:-1]} == {limit // 39 * 31}


async def test_from_the_middle_of_a_wrapper_f11(client: Wire) -> None:
    await client.call(produce("a", message_set(NOW, NOW, NOW, codec=Codec.SNAPPY)))
    got = result(await client.call(fetch("a", (0, 2)), 1))
    assert [record.offset for record in read(got.records)] == [0, 1, 2]


async def test_only_below_the_watermark(broker: Broker, client: Wire) -> None:
    await client.call(produce("a", message_set(NOW, NOW, NOW)))
    broker.directory.log("a", 0).hold_high_watermark(2)
    got = result(await client.call(fetch("a", (0, 0)), 1))
    assert (got.high_watermark, len(read(got.records))) == (2, 2)


@pytest.mark.parametrize("version", OLD)
async def test_several_partitions_and_their_errors(client: Wire, version: int) -> None:
    await client.call(create_topic("a", partitions=3))
    await client.call(produce("a", message_set(NOW), partition=0))
    await client.call(produce("a", message_set(-1, magic=0), partition=1))
    await client.call(produce("a", message_set(NOW, codec=Codec.GZIP), partition=2))
    places = [(2, 0), (0, 0), (9, 0), (0, 5), (1, 0)]
    got = results(await client.call(fetch("a", *places), version))
    assert [each.partition for each in got] == [2, 0, 9, 0, 1]
    assert [each.error_code for each in got] == [
        0,
        0,
        UnknownTopicOrPartition.code,
        OffsetOutOfRange.code,
        0,
    ]
    assert [magics(each.records) for each in got] == [{0}, {0}, set(), set(), {0}]


@pytest.mark.both_loops
async def test_a_waiting_reader_is_woken_and_served_v0(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a"))
    async with wire(broker.addresses.native) as other:
        client.send(FETCH, 1, fetch("a", (0, 0), max_wait_ms=50_000, min_bytes=1))
        while not len(broker.services.fetches):
            await other.call(MetadataRequest())
        await other.call(produce("a", message_set(NOW, NOW)))
        _, response = await client.receive()
    assert magics(result(response).records) == {0}
    assert len(read(result(response).records)) == 2


async def test_min_bytes_counts_stored_bytes_f22(client: Wire) -> None:
    """78 bytes are stored and 62 are sent: who waits for 70 has them."""
    await client.call(produce("a", message_set(NOW, NOW)))
    request = fetch("a", (0, 0), max_wait_ms=50_000, min_bytes=70)
    got = result(await asyncio.wait_for(client.call(request, 1), 20))
    assert len(got.records) == 62


async def test_damage_on_disk_is_told_with_its_place(broker: Broker, client: Wire) -> None:
    """Decision 20: conversion checks CRCs. What is good before it is served."""
    for _ in range(3):
        await client.call(produce("a", message_set(NOW)))
    path = broker.directory.log("a", 0).segments[0].log_path
    with path.open("r+b") as file:
        file.seek(2 * 39 - 1)
        file.write(b"?")
    got = result(await client.call(fetch("a", (0, 0)), 1))
    assert [record.offset for record in read(got.records)] == [0]
    got = result(await client.call(fetch("a", (0, 1)), 1))
    assert (got.error_code, got.high_watermark, got.records) == (StorageError.code, -1, b"")
    assert f"{path}: damaged at byte 39" in got.error_message
    assert "horolog repair" in got.error_message


async def test_a_bad_wrapper_is_the_old_readers_trouble_alone(broker: Broker, client: Wire) -> None:
    """Its own CRC is right, so the log is not damaged: others read on, producers append."""
    await client.call(create_topic("a"))
    await client.call(produce("a", message_set(NOW, codec=Codec.GZIP)))
    plain = bytearray(timed_set(NOW))
    plain[-1] ^= 1
    stored = build_wrapper(plain, offset=0, timestamp_ms=NOW, magic=1, codec=Codec.GZIP)
    assert len(stored) == len(log_bytes(broker))
    broker.directory.log("a", 0).segments[0].log_path.write_bytes(stored)
    await client.call(produce("a", message_set(NOW)))
    got = result(await client.call(fetch("a", (0, 0)), 1))
    assert got.error_code == CorruptMessage.code
    assert "offset 0" in got.error_message
    got = result(await client.call(fetch("a", (0, 1)), 1))
    assert [record.offset for record in read(got.records)] == [1]
    got = result(await client.call(fetch("a", (0, 0)), 3))
    assert got.records == log_bytes(broker)
    assert result(await client.call(produce("a", message_set(NOW)))).error_code == 0


async def test_a_wrapper_beyond_the_present_limit_is_refused_by_name(client: Wire) -> None:
    await client.call(create_topic("a"))
    await client.call(produce("a", message_set(NOW, value=bytes(5000), codec=Codec.GZIP)))
    await set_topic(client, "a", max_decompressed_bytes=1024)
    got = result(await client.call(fetch("a", (0, 0)), 0))
    assert got.error_code == MessageTooLarge.code
    assert "max.decompressed.bytes" in got.error_message
    got = result(await client.call(fetch("a", (0, 0)), 2))
    assert got.error_code == 0, "who needs no conversion is not concerned"


def bombs(count: int, content_bytes: int) -> bytes:
    """Wrappers that hold far more than they take, as one stored stretch."""
    stored = bytearray()
    for offset in range(count):
        plain = timed_set(NOW, value=bytes(content_bytes))
        stored += build_wrapper(plain, offset=offset, timestamp_ms=NOW, magic=1, codec=Codec.GZIP)
    return bytes(stored)


async def test_what_is_decompressed_at_a_time_is_bounded(broker: Broker, client: Wire) -> None:
    """Faults 8: a slice of 60 KB that holds 60 MB comes in answers of the topic's bound."""
    await client.call(create_topic("a", max_decompressed_bytes=3 << 20))
    append_copy(broker.directory.log("a", 0), bombs(60, 1 << 20))
    assert len(log_bytes(broker)) < 200_000
    got = result(await client.call(fetch("a", (0, 0)), 1))
    assert [record.offset for record in read(got.records)] == [0, 1]
    slices = await read_all(client, "a", 1)
    assert [record.offset for data in slices for record in read(data)] == list(range(60))


async def test_plain_messages_stay_within_the_readers_limit(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a"))
    log = broker.directory.log("a", 0)
    append_copy(log, bytes(timed_set(NOW)))
    wrapper = build_wrapper(
        timed_set(*[NOW] * 9, value=bytes(1000)),
        offset=9,
        timestamp_ms=NOW,
        magic=1,
        codec=Codec.GZIP,
    )
    append_copy(log, bytes(wrapper))
    sizes = [len(data) for data in await read_all(client, "a", 1, limit=5000)]
    assert sizes[0] == 31
    assert max(sizes) <= 5000


async def test_others_are_served_while_a_large_slice_is_converted(
    broker: Broker, client: Wire
) -> None:
    """Requests on other connections come in between; none waits for the whole conversion."""
    await client.call(create_topic("a"))
    many = message_set(*[NOW] * 60_000)
    await client.call(produce("a", many))
    async with wire(broker.addresses.native) as other:
        await other.call(MetadataRequest())
        client.send(FETCH, 1, fetch("a", (0, 0), partition_max_bytes=len(many)))
        receiving = asyncio.ensure_future(client.receive())
        answered = 0
        while not receiving.done():
            await other.call(MetadataRequest())
            answered += 1
        _, response = await receiving
    assert len(read(result(response).records)) == 60_000
    assert answered >= 5


def converting() -> int:
    """The tasks that convert, or wait for their turn; the broker has others."""
    wanted = _Reading._converted.__code__
    coroutines = [task.get_coro() for task in asyncio.all_tasks()]
    return sum(getattr(each, "cr_code", None) is wanted for each in coroutines)


async def test_pipelined_fetches_are_converted_one_by_one(broker: Broker, client: Wire) -> None:
    """A connection has one conversion at a time, however many requests it sends ahead."""
    await client.call(create_topic("a"))
    await client.call(produce("a", message_set(*[NOW] * 3000)))
    numbers = [client.send(FETCH, 1, fetch("a", (0, at))) for at in range(0, 3000, 100)]
    most = 0
    for number in numbers:
        received, response = await client.receive()
        most = max(most, converting())
        assert received == number
        assert magics(result(response).records) == {0}
    assert most <= 1


async def test_few_conversions_run_at_a_time(broker: Broker, client: Wire) -> None:
    """However many old readers there are: what a conversion holds is held few times."""
    await client.call(create_topic("a"))
    await client.call(produce("a", message_set(*[NOW] * 5000)))
    conversions = broker.services.conversions
    clients = [await Wire.open(broker.addresses.native) for _ in range(10)]
    try:
        for each in clients:
            each.send(FETCH, 0, fetch("a", (0, 0)))
        receiving = asyncio.gather(*(each.receive() for each in clients))
        most = 0
        while not receiving.done():
            await client.call(MetadataRequest())
            most = max(most, conversions.under_way)
        for _, response in await receiving:
            assert len(read(result(response).records)) == 5000
    finally:
        for each in clients:
            each.close()
    assert most == CONCURRENT
    assert conversions.under_way == 0
    assert broker.figures.topic("a").converted_messages == {"fetch_down": 50_000}


def reset(leaving: Wire) -> None:
    """Leave as a process that is killed does: with a reset, not with an orderly end."""
    socket_ = leaving.writer.get_extra_info("socket")
    socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    leaving.writer.transport.abort()


async def test_slices_are_not_read_before_they_can_be_converted(
    broker: Broker, client: Wire
) -> None:
    """Twenty readers of 2 MB each do not make the broker hold 40."""
    await client.call(create_topic("a"))
    many = message_set(*[NOW] * 55_000)
    await client.call(produce("a", many))
    readers = [await Wire.open(broker.addresses.native) for _ in range(20)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for reader in readers:
            reader.send(FETCH, 1, fetch("a", (0, 0), partition_max_bytes=len(many)))
        for _ in range(5):  # each lets the broker handle what has come, and convert a little
            await client.call(MetadataRequest())
        assert broker.services.conversions.under_way == CONCURRENT
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        for reader in readers:
            reset(reader)
    assert held < 4 * CONCURRENT * len(many)


async def test_a_reader_that_is_gone_costs_nothing_more(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a"))
    many = message_set(*[NOW] * 55_000)
    await client.call(produce("a", many))
    for _ in range(CONCURRENT + 3):
        leaving = await Wire.open(broker.addresses.native)
        leaving.send(FETCH, 1, fetch("a", (0, 0), partition_max_bytes=len(many)))
        await client.call(MetadataRequest())
        reset(leaving)
    got = result(await asyncio.wait_for(client.call(fetch("a", (0, 0)), 1), 20))
    assert len(read(got.records)) > 1000
    assert broker.services.conversions.under_way == 0
    assert broker.figures.topic("a").converted_messages["fetch_down"] == len(read(got.records))


@pytest.mark.both_loops
async def test_logs_are_prepared_before_they_are_converted(tmp_path: Path) -> None:
    def start() -> AbstractAsyncContextManager[Broker]:
        return running_broker(tmp_path, http_listen="off", segment_bytes=80, retention_ms=-1)

    async with (
        start() as broker,
        wire(broker.addresses.native) as client,
    ):
        for _ in range(6):
            await client.call(produce("a", message_set(NOW)))
    async with (
        start() as broker,
        wire(broker.addresses.native) as client,
    ):
        slices = await read_all(client, "a", 0)
    assert [record.offset for data in slices for record in read(data)] == list(range(6))
    assert [magics(data) for data in slices] == [{0}] * 3


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_slice_for_an_old_reader_is_read_when_its_turn_has_come(
    broker: Broker, client: Wire, version: int
) -> None:
    """Of a hundred requests in flight, each would hold its slice until then."""
    await client.call(create_topic("a", message_format_version="0.9.0"))
    await client.call(produce("a", message_set(-1, magic=0)))
    request = fetch("a", (0, 0))
    (outcome,) = HANDLERS_OF_MANY[FETCH.key](broker.services, version, [request])
    assert isinstance(outcome, PendingAnswer) == (version < FIRST_VERSION_WITH_V1)
