"""Produce requests that come together get what each would have got alone."""

import errno
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from horolog.protocol.api.log.produce import ProduceRequest
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import (
    CorruptMessage,
    RequestTimedOut,
    StorageError,
    UnknownTopicOrPartition,
)
from horolog.server.broker import Broker
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.files import FaultyFiles
from horolog.testing.requests import create_topic, message_set, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
BAD = b"\0" * 40


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "data", clock, http_listen="off") as started:
        yield started


async def answers(client: Wire, count: int) -> list[tuple[int, int, int, int]]:
    """Partition, error code, base offset and append time of the next answers."""
    got = [result((await client.receive())[1]) for _ in range(count)]
    return [(one.partition, one.error_code, one.base_offset, one.log_append_time_ms) for one in got]


async def test_the_second_and_all_behind_it(broker: Broker, client: Wire) -> None:
    good = produce("a", message_set(NOW, NOW))
    await client.call(good)
    await client.call(good)
    client.send_together(good, produce("a", message_set(NOW)), good)
    assert await answers(client, 3) == [(0, 0, 4, -1), (0, 0, 6, -1), (0, 0, 7, -1)]
    assert broker.figures.requests["produce", "NONE"] == 5
    assert broker.figures.topic("a").messages == 9


async def test_those_that_wait_for_the_same_sync_are_answered_together(
    broker: Broker, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call(create_topic("a", acks_all_durability="fsync"))
    durable = produce("a", message_set(NOW), acks=-1)
    await client.call(durable)
    together: list[int] = []
    for kind in broker.dispatcher._kinds.values():

        def encode(
            ids: Iterable[int], bodies: Sequence[object], *, faulty: bool, real: Any = kind.encode
        ) -> Any:
            together.append(len(bodies))
            return real(ids, bodies, faulty=faulty)

        monkeypatch.setattr(kind, "encode", encode)
    client.send_together(*[durable] * 5)
    assert await answers(client, 5) == [(0, 0, number, -1) for number in range(1, 6)]
    assert together == [5]


async def test_answers_that_cannot_be_made_together_are_made_one_by_one(
    broker: Broker, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no memory for all of them."""
    tried = []

    def fail(*given: object, faulty: bool) -> NoReturn:
        tried.append(given)
        raise MemoryError

    good = produce("a", message_set(NOW))
    await client.call(good)
    for kind in broker.dispatcher._kinds.values():
        monkeypatch.setattr(kind, "encode", fail)
    client.send_together(good, good)
    assert await answers(client, 2) == [(0, 0, 1, -1), (0, 0, 2, -1)]
    assert tried
    assert broker.figures.requests["produce", "NONE"] == 3


async def test_every_version_and_partition_is_its_own(client: Wire) -> None:
    await client.call(create_topic("a", 2, message_timestamp_type="LogAppendTime"))
    for number in range(4):
        for version in (0, 1, 2):
            for partition in (0, 1):
                sent = produce("a", message_set(NOW), partition=partition)
                one = result(await client.call(sent, version))
                assert (one.partition, one.error_code) == (partition, 0)
                assert one.base_offset == 3 * number + version
                assert one.log_append_time_ms == (NOW if version == 2 else -1)


async def test_partitions_between_each_other(client: Wire) -> None:
    await client.call(create_topic("a", 2))
    first, second = (produce("a", message_set(NOW), partition=number) for number in (0, 1))
    await client.call(first)
    await client.call(second)
    client.send_together(first, second, first, first, second)
    told = [(partition, offset) for partition, _, offset, _ in await answers(client, 5)]
    assert told == [(0, 1), (1, 1), (0, 2), (0, 3), (1, 2)]


async def test_a_refused_one_touches_no_other(broker: Broker, client: Wire) -> None:
    good = produce("a", message_set(NOW))
    await client.call(good)
    client.send_together(good, produce("a", BAD), good, produce("a", None), good)
    assert await answers(client, 5) == [
        (0, 0, 1, -1),
        (0, CorruptMessage.code, -1, -1),
        (0, 0, 2, -1),
        (0, 0, -1, -1),
        (0, 0, 3, -1),
    ]
    assert broker.figures.requests["produce", "NONE"] == 5
    assert broker.figures.requests["produce", "CORRUPT_MESSAGE"] == 1
    assert broker.figures.topic("a").rejected == {"corrupt": 1}


@pytest.mark.parametrize("acks", [0, -1])
async def test_other_acks_between_them(client: Wire, acks: int) -> None:
    good, other = (produce("a", message_set(NOW), acks=each) for each in (1, acks))
    await client.call(good)
    client.send_together(good, other, other, good)
    told = [offset for _, _, offset, _ in await answers(client, 4 if acks else 2)]
    assert told == ([1, 2, 3, 4] if acks else [1, 4])


async def test_acks_in_turns_keep_their_order(client: Wire) -> None:
    once, durable = (produce("a", message_set(NOW), acks=acks) for acks in (1, -1))
    await client.call(once)
    await client.call(durable)
    client.send_together(once, durable, durable, once, durable)
    assert [offset for _, _, offset, _ in await answers(client, 5)] == [2, 3, 4, 5, 6]


async def test_durable_ones_of_several_connections_share_a_write_and_a_wait(
    broker: Broker, client: Wire
) -> None:
    durable = produce("a", message_set(NOW, NOW), acks=-1)
    await client.call(durable)
    log = broker.directory.log("a", 0)
    async with wire(broker.addresses.native) as second, wire(broker.addresses.native) as third:
        for each in (second, third):
            await each.call(MetadataRequest())
        log.hold_high_watermark(2)
        client.send_together(durable, durable)
        second.send_together(durable)
        third.send_together(durable, MetadataRequest())
        await until(lambda: log.log_end_offset == 10)
        assert len(broker.services.produces) == 4
        third.reset()
        await until(lambda: broker.connections() == 2)
        log.hold_high_watermark(None)
        assert [offset for _, _, offset, _ in await answers(client, 2)] == [2, 4]
        assert [offset for _, _, offset, _ in await answers(second, 1)] == [6]
    assert len(broker.services.produces) == 0
    answered = broker.figures.requests["produce", "NONE"]
    assert answered == 4, "of the connection that is gone none is"


async def test_a_durable_one_times_out_with_its_own_offset(broker: Broker, client: Wire) -> None:
    durable = produce("a", message_set(NOW), acks=-1, timeout_ms=1)
    await client.call(produce("a", message_set(NOW), acks=-1, timeout_ms=30_000))
    log = broker.directory.log("a", 0)
    log.hold_high_watermark(1)
    await client.call(durable)
    client.send_together(durable, durable)
    timed_out = RequestTimedOut.code
    assert await answers(client, 2) == [(0, timed_out, 2, -1), (0, timed_out, 3, -1)]
    assert broker.figures.requests["produce", "REQUEST_TIMED_OUT"] == 3


async def answers_to(client: Wire, request: ProduceRequest) -> list[tuple[int, int, int, int]]:
    client.send_together(request)
    return await answers(client, 1)


async def test_durable_ones_that_meet_a_failed_sync(tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    durable = produce("a", message_set(NOW), acks=-1)
    with pytest.raises(StorageError, match="not clean"):  # noqa: PT012  (raised at the stop)
        async with (
            running_broker(tmp_path / "other", files=files, http_listen="off") as broker,
            wire(broker.addresses.native) as client,
        ):
            await client.call(durable)
            await client.call(durable)
            files.fail("sync", errno.EIO, name=".log")
            client.send_together(durable, durable)
            got = await answers(client, 2)
            assert [code for _, code, _, _ in got] == [StorageError.code] * 2
            assert await answers_to(client, durable) == [(0, StorageError.code, -1, -1)]


async def test_where_durable_is_written_nobody_waits(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a", acks_all_durability="written"))
    durable = produce("a", message_set(NOW), acks=-1)
    assert await answers_to(client, durable) == [(0, 0, 0, -1)]
    client.send_together(durable, durable)
    assert await answers(client, 2) == [(0, 0, 1, -1), (0, 0, 2, -1)]
    assert broker.directory.log("a", 0).recovery_point == 0


async def test_a_topic_that_is_deleted_meanwhile(
    tmp_path: Path, clock: ManualClock, client: Wire, broker: Broker
) -> None:
    await client.call(create_topic("a", 3))
    good = produce("a", message_set(NOW), partition=2)
    await client.call(good)
    await client.call(DeleteTopicsRequest(topic_names=["a"]))
    assert result(await client.call(good)).error_code == UnknownTopicOrPartition.code
    await client.call(create_topic("a", 3))
    assert result(await client.call(good)).base_offset == 0
    assert broker.figures.requests["produce", "UNKNOWN_TOPIC_OR_PARTITION"] == 1
