"""Appends that arrive together: one write, and for each request what it would have got alone."""

import errno
from collections.abc import AsyncIterator
from pathlib import Path

import msgpack
import pytest

from horolog.protocol.api.broker.api_versions import ApiVersionsRequest
from horolog.protocol.errors import (
    CorruptMessage,
    InvalidRequest,
    InvalidRequiredAcks,
    StorageError,
    UnknownTopicOrPartition,
)
from horolog.server.broker import Broker
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.files import FaultyFiles
from horolog.testing.requests import create_topic, message_set, produce, produce_to, result, results
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
BAD = b"\0" * 40


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(SystemFiles())


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock, files: FaultyFiles) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "data", clock, files, http_listen="off") as started:
        yield started


def framed(request: list[object]) -> bytes:
    payload: bytes = msgpack.packb(request)
    return len(payload).to_bytes(4, "big") + payload


async def codes(client: Wire, count: int) -> list[tuple[int, int]]:
    """`(error code, base offset)` of the next answers, each of one partition."""
    got = [result((await client.receive())[1]) for _ in range(count)]
    return [(one.error_code, one.base_offset) for one in got]


@pytest.mark.both_loops
@pytest.mark.parametrize("acks", [1, -1])
async def test_one_write_for_what_one_read_brings(
    client: Wire, files: FaultyFiles, acks: int
) -> None:
    await client.call(create_topic("a"))
    written, synced = files.did("pwrite", ".log"), files.did("sync", ".log")
    append_times = files.did("pwrite", ".appendtime")
    client.send_together(*[produce("a", message_set(NOW, NOW), acks=acks)] * 20)
    assert await codes(client, 20) == [(0, 2 * number) for number in range(20)]
    assert files.did("pwrite", ".log") == written + 1
    assert files.did("pwrite", ".appendtime") == append_times + 1
    assert files.did("sync", ".log") == synced + (acks == -1)


async def test_a_refused_one_touches_no_other(broker: Broker, client: Wire) -> None:
    good = produce("a", message_set(NOW))
    client.send_together(good, produce("a", BAD), produce("a", message_set(NOW), acks=7), good)
    assert await codes(client, 4) == [
        (0, 0),
        (CorruptMessage.code, -1),
        (InvalidRequiredAcks.code, -1),
        (0, 1),
    ]
    assert broker.figures.topic("a").messages == 2
    assert broker.figures.topic("a").rejected == {"corrupt": 1}


async def test_several_partitions_and_topics(client: Wire) -> None:
    await client.call(create_topic("a", 2))
    both = produce_to("a", [(0, message_set(NOW)), (1, message_set(NOW, NOW))])
    client.send_together(
        both,
        produce("b", message_set(NOW)),
        both,
        produce("a", message_set(NOW), partition=5),
    )
    answers = [results((await client.receive())[1]) for _ in range(4)]
    assert [[(one.partition, one.base_offset) for one in answer] for answer in answers] == [
        [(0, 0), (1, 0)],
        [(0, 0)],
        [(0, 1), (1, 2)],
        [(5, -1)],
    ]
    assert answers[3][0].error_code == UnknownTopicOrPartition.code


async def test_other_requests_keep_their_place(broker: Broker, client: Wire) -> None:
    good = produce("a", message_set(NOW))
    sent = client.send_together(good, good, ApiVersionsRequest(), good, good)
    assert await codes(client, 2) == [(0, 0), (0, 1)]
    assert (await client.receive())[0] == sent[2]
    assert await codes(client, 2) == [(0, 2), (0, 3)]
    assert broker.figures.requests["produce", "NONE"] == 4


async def test_a_body_that_cannot_be_read_touches_no_other(client: Wire) -> None:
    good = produce("a", message_set(NOW))
    client.send_together(good)
    client.send_bytes(framed([0, 2, 2, "c", {"acks": "all"}]))
    client.send_together(good, good)
    assert await codes(client, 1) == [(0, 0)]
    with pytest.raises(InvalidRequest):
        await client.receive()
    assert await codes(client, 2) == [(0, 1), (0, 2)]


@pytest.mark.parametrize("head", [[0, 2, "x", "c"], [0, 2, 2**40, "c"]], ids=["text", "huge"])
async def test_what_came_before_a_frame_that_is_no_request_is_in_the_log(
    broker: Broker, client: Wire, head: list[object]
) -> None:
    good = produce("a", message_set(NOW))
    client.send_together(good, good)
    client.send_bytes(framed([*head, {}]))
    client.send_together(good)
    assert await codes(client, 2) == [(0, 0), (0, 1)]
    assert await client.at_end()
    assert broker.directory.log("a", 0).log_end_offset == 2
    assert broker.figures.connections_dropped == {"protocol": 1}


async def test_a_full_disk_is_told_to_all_that_shared_the_write(
    client: Wire, files: FaultyFiles
) -> None:
    await client.call(produce("a", message_set(NOW)))
    await client.call(produce("b", message_set(NOW)))
    files.fail("pwrite", errno.ENOSPC, name=".log", written=50)
    good = produce("a", message_set(NOW))
    client.send_together(good, produce("a", BAD), good, produce("b", message_set(NOW)))
    assert await codes(client, 4) == [
        (StorageError.code, -1),
        (CorruptMessage.code, -1),
        (StorageError.code, -1),
        (0, 1),
    ]
    client.send_together(good, good)
    assert await codes(client, 2) == [(0, 1), (0, 2)]


async def test_no_more_are_taken_than_may_be_in_flight(tmp_path: Path, files: FaultyFiles) -> None:
    async with (
        running_broker(
            tmp_path / "few", files=files, http_listen="off", max_requests_in_flight=3
        ) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a"))
        slow = files.hold("sync", ".log")
        client.send_together(*[produce("a", message_set(NOW), acks=-1)] * 7)
        log = broker.directory.log("a", 0)
        await until(slow.reached.is_set)
        await until(lambda: log.log_end_offset == 3)
        slow.let_go()
        assert await codes(client, 7) == [(0, number) for number in range(7)]
