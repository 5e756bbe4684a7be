"""Topics that are made for who produces to them or asks about them, while the disk takes its time.

The loop goes on meanwhile, and nothing that a connection has sent overtakes what it sent before.
"""

import asyncio
import errno
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from horolog.protocol.api.broker.api_versions import ApiVersionsRequest
from horolog.protocol.api.framing import FrameReader
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.schema import Api
from horolog.protocol.api.topics.create_topics import CREATE_TOPICS
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.errors import InvalidTopic, StorageError, UnknownTopicOrPartition
from horolog.protocol.limits import SHARED_SLAB_BYTES
from horolog.protocol.records.messages.sets import NewRecord, build_set, records
from horolog.server.broker import Broker
from horolog.server.network.endpoint import Caller
from horolog.server.requests import PendingAnswer
from horolog.storage.files import SystemFiles
from horolog.storage.read import reader
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.files import FaultyFiles
from horolog.testing.requests import (
    create_topic,
    fetch,
    message_set,
    produce,
    produce_to,
    result,
    results,
)
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
SET = message_set(NOW)
TOPICS_FILE = "topics.json.tmp"


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(SystemFiles())


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock, files: FaultyFiles) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "data", clock, files, http_listen="off") as started:
        yield started


@pytest.fixture
async def other(broker: Broker) -> AsyncIterator[Wire]:
    async with wire(broker.addresses.native) as connected:
        yield connected


def asking(*topics: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataTopic(name=topic) for topic in topics])


def taken_up(broker: Broker, api: Api, request: object) -> PendingAnswer:
    """The answer that a connection waits for, to be cancelled as one does that is lost."""
    frame = native.encode_request(api, api.last_version(native=True), 7, "c", request)[4:]
    (answer,) = broker.dispatcher.answer(deque([frame]), 1, Caller(("127.0.0.1", 1), ""))
    assert isinstance(answer, PendingAnswer)
    return answer


async def offsets(client: Wire, count: int) -> list[tuple[int, int]]:
    """`(error code, base offset)` of the next answers, each of one partition."""
    got = [result((await client.receive())[1]) for _ in range(count)]
    return [(one.error_code, one.base_offset) for one in got]


@pytest.mark.parametrize("kind", ["sync_directory", "sync"])
@pytest.mark.parametrize("acks", [1, -1])
async def test_the_loop_goes_on_while_a_topic_is_made(
    client: Wire, other: Wire, files: FaultyFiles, acks: int, kind: str
) -> None:
    assert result(await other.call(produce("there", SET))).error_code == 0
    slow = files.hold(kind, TOPICS_FILE if kind == "sync" else "data")
    client.send_together(*[produce("new", SET, acks=acks)] * 3)
    await until(slow.reached.is_set)
    for number in range(5):
        assert result(await other.call(produce("there", SET))).base_offset == number + 1
    client.send_together(produce("new", SET), produce("there", SET), fetch("new", (0, 0)))
    assert result(await other.call(produce("there", SET))).base_offset == 6
    slow.let_go()
    assert await offsets(client, 5) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 7)]
    fetched = result((await client.receive())[1])
    assert (fetched.error_code, fetched.high_watermark) == (0, 4)


async def test_sets_that_wait_for_their_topic_stay_as_they_were_sent(
    broker: Broker,
    client: Wire,
    other: Wire,
    files: FaultyFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when they came as views of a buffer into which others are received meanwhile."""
    viewed: list[int] = []
    received_views = FrameReader.received_views

    def counted(self: FrameReader, count: int) -> list[bytearray | memoryview]:
        frames = received_views(self, count)
        viewed.append(len(frames))
        return frames

    monkeypatch.setattr(FrameReader, "received_views", counted)
    assert result(await other.call(produce("there", SET))).error_code == 0
    sent = [b"%d" % number * 2000 for number in range(10, 40)]
    slow = files.hold("sync", TOPICS_FILE)
    client.send_together(
        *(produce("new", bytes(build_set([NewRecord(one, timestamp_ms=NOW)]))) for one in sent)
    )
    await until(slow.reached.is_set)
    assert viewed
    assert viewed[0] > 1
    noise = produce("there", bytes(build_set([NewRecord(b"x" * 3000, timestamp_ms=NOW)])))
    other.send_together(*[noise] * 60)
    assert {code for code, _ in await offsets(other, 60)} == {0}
    slow.let_go()
    assert await offsets(client, 30) == [(0, number) for number in range(30)]
    log = broker.services.logs.find("new", 0)
    stored = records(reader.read(log, 0, 1 << 20).read(), max_decompressed_bytes=1)
    assert [one.value for one in stored] == sent


def large_set(value: bytes) -> bytes:
    """More than a buffer has that connections share."""
    record = NewRecord(value * (SHARED_SLAB_BYTES // 8), timestamp_ms=NOW)
    return bytes(build_set([record] * 9))


async def test_a_large_set_that_waits_for_its_topic_stays_as_it_was_sent(
    broker: Broker, client: Wire, other: Wire, files: FaultyFiles
) -> None:
    """The memory of large requests that are answered is used again; this one is not yet."""
    assert result(await other.call(produce("old", SET))).error_code == 0
    slow = files.hold("sync", TOPICS_FILE)
    client.send_together(produce("new", large_set(b"a")))
    await until(slow.reached.is_set)
    answers = [await other.call(produce("old", large_set(value))) for value in (b"b", b"c")]
    slow.let_go()
    assert [result(one).error_code for one in answers] == [0, 0]
    assert await offsets(client, 1) == [(0, 0)]
    log = broker.services.logs.find("new", 0)
    stored = records(reader.read(log, 0, 2 * SHARED_SLAB_BYTES).read(), max_decompressed_bytes=1)
    assert [set(one.value or b"") for one in stored] == [{ord("a")}] * 9


async def test_the_loop_goes_on_while_a_topic_is_made_for_who_asks(
    client: Wire, other: Wire, files: FaultyFiles
) -> None:
    assert result(await other.call(produce("there", SET))).error_code == 0
    slow = files.hold("sync", TOPICS_FILE)
    client.send_together(asking("new", "there", "a/b"), produce("new", SET, partition=7))
    await until(slow.reached.is_set)
    assert result(await other.call(produce("there", SET))).base_offset == 1
    slow.let_go()
    _, told = await client.receive()
    assert [(topic.name, topic.error_code) for topic in told.topics] == [
        ("new", 0),
        ("there", 0),
        ("a/b", InvalidTopic.code),
    ]
    assert await offsets(client, 1) == [(UnknownTopicOrPartition.code, -1)]


async def test_a_topic_is_made_once_for_all_who_wait(
    broker: Broker, client: Wire, other: Wire, files: FaultyFiles
) -> None:
    written = files.did("sync", TOPICS_FILE)
    slow = files.hold("sync", TOPICS_FILE)
    client.send_together(produce("new", SET))
    await until(slow.reached.is_set)
    other.send_together(produce_to("new", [(0, SET)]), asking("new"), create_topic("new"))
    async with wire(broker.addresses.native) as third:
        # What it is told is later than what the others sent.
        assert result(await third.call(fetch("nowhere", (0, 0)))).error_code
    slow.let_go()
    answers = await offsets(client, 1) + await offsets(other, 1)
    assert sorted(answers) == [(0, 0), (0, 1)]
    assert [topic.error_code for topic in (await other.receive())[1].topics] == [0]
    assert (await other.receive())[1].topics[0].error_code
    assert files.did("sync", TOPICS_FILE) == written + 1


async def test_a_disk_that_refuses_is_told_and_tried_again(
    client: Wire, files: FaultyFiles, broker: Broker
) -> None:
    files.fail("sync_directory", errno.ENOSPC, name="data")
    good = produce("new", SET)
    client.send_together(good, good, produce("other", SET))
    answers = await offsets(client, 3)
    assert answers == [(StorageError.code, -1), (StorageError.code, -1), (0, 0)]
    # It was recorded, and the next change of a topic made it.
    assert set(broker.directory.topics()) == {"new", "other"}
    assert result(await client.call(good)).base_offset == 0


async def test_who_wants_no_answer_is_closed_when_no_topic_can_be_made(
    broker: Broker, client: Wire
) -> None:
    client.send_together(produce("there", SET, acks=0), produce("a/b", SET, acks=0))
    assert await client.at_end()
    assert broker.figures.connections_dropped == {"acks_0": 1}
    assert broker.directory.log("there", 0).log_end_offset == 1


async def test_who_goes_away_leaves_the_topic_to_the_others(
    broker: Broker, client: Wire, other: Wire, files: FaultyFiles
) -> None:
    slow = files.hold("sync", TOPICS_FILE)
    leaving = taken_up(broker, PRODUCE, produce("new", SET))
    await until(slow.reached.is_set)
    client.send_together(produce("new", SET))
    # What it is told is later than what the client sent.
    assert (await other.call(ApiVersionsRequest())).error_code == 0
    leaving.ready.cancel()
    slow.let_go()
    assert await offsets(client, 1) == [(0, 0)]


async def test_a_change_is_finished_though_its_client_went_away(
    broker: Broker, client: Wire, files: FaultyFiles
) -> None:
    """Else the next one would be made upon half of it."""
    slow = files.hold("sync", TOPICS_FILE)
    leaving = taken_up(broker, CREATE_TOPICS, create_topic("first"))
    await until(slow.reached.is_set)
    leaving.ready.cancel()
    second = asyncio.ensure_future(client.call(create_topic("second")))
    slow.let_go()
    assert (await second).topics[0].error_code == 0
    assert set(broker.directory.topics()) == {"first", "second"}


async def test_a_producer_that_repeats_itself_has_its_topic_made_again(
    client: Wire, other: Wire, files: FaultyFiles
) -> None:
    for number in range(3):
        assert result(await client.call(produce("a", SET))).base_offset == number
    await other.call(DeleteTopicsRequest(topic_names=["a"]))
    slow = files.hold("sync", TOPICS_FILE)
    client.send_together(*[produce("a", SET)] * 2)
    await until(slow.reached.is_set)
    assert (await other.call(ApiVersionsRequest())).error_code == 0
    slow.let_go()
    assert await offsets(client, 2) == [(0, 0), (0, 1)]


async def test_several_partitions_of_which_one_is_not_made(client: Wire) -> None:
    answer = results(await client.call(produce_to("new", [(0, SET), (1, SET)])))
    assert [one.error_code for one in answer] == [0, UnknownTopicOrPartition.code]
