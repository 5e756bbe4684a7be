"""Sets that take long to open: others are served meanwhile, and nothing overtakes them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import CorruptMessage, UnknownServerError, UnknownTopicOrPartition
from horolog.protocol.records.batch import NewRecord, build_batch, set_producer
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import Record, records
from horolog.server.broker import Broker
from horolog.server.handlers import produce as handler
from horolog.server.late_appends import LateAppends, Sender
from horolog.server.network.held_memory import FREE_BYTES
from horolog.server.work import Work
from horolog.storage.log import appender
from horolog.storage.read import reader
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
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
LIGHT = message_set(NOW, value=b"light", magic=2, codec=Codec.GZIP)
PLAIN = message_set(NOW, value=b"plain", magic=2)


def heavy(value: bytes = b"heavy", magic: int = 2) -> bytes:
    """A small set that opens to much."""
    return message_set(NOW, value=value + bytes(400_000), magic=magic, codec=Codec.GZIP)


HEAVY = heavy()
LARGE = message_set(NOW, value=Random(1).randbytes(400_000), magic=2, codec=Codec.GZIP)
BROKEN = heavy()[:-30] + bytes(30)


class Admissions:
    """Stands for the thread of admissions: each of them waits until it is let go."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()

    def __call__(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        done = asyncio.get_running_loop().create_future()
        self.waiting.append((done, call))
        return done

    async def let_go(self) -> None:
        """Do the next one, which may still have to come."""
        await until(lambda: self.waiting)
        done, call = self.waiting.popleft()
        try:
            done.set_result(call())
        except Exception as error:
            done.set_exception(error)


@pytest.fixture
def admissions(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Admissions:
    made = Admissions()
    monkeypatch.setattr(broker.services.late_appends, "_left_seconds", 600)
    monkeypatch.setattr(broker.services.work, "in_admission_thread", made)
    return made


@pytest.fixture
async def other(broker: Broker) -> AsyncIterator[Wire]:
    async with wire(broker.addresses.native) as connected:
        yield connected


def values(broker: Broker, topic: str = "t", partition: int = 0) -> list[bytes]:
    """The stored messages, as far as they are no zeros."""
    return [(each.value or b"").rstrip(b"\0") for each in stored(broker, topic, partition)]


def stored(broker: Broker, topic: str = "t", partition: int = 0) -> list[Record]:
    log = broker.services.logs.find(topic, partition)
    found: list[Record] = []
    while (offset := found[-1].offset + 1 if found else 0) < log.high_watermark:
        data = reader.read(log, offset, 1 << 24, whole_first=True).read()
        found += records(data, max_decompressed_bytes=1 << 24, from_offset=offset)
    return found


def held_bytes(broker: Broker) -> int:
    return broker._connections.held_memory.total_bytes


async def test_others_are_served_while_a_set_is_opened(
    client: Wire, other: Wire, admissions: Admissions
) -> None:
    await client.call(create_topic("t", 2))
    client.send(PRODUCE, 3, produce("t", HEAVY))
    await until(lambda: admissions.waiting)
    for number in range(3):
        sent = result(await other.call(produce("t", LIGHT, partition=1, acks=-1)))
        assert (sent.error_code, sent.base_offset) == (0, number)
    assert result(await other.call(fetch("t", (0, 0)))).high_watermark == 0
    await admissions.let_go()
    answered = result((await client.receive())[1])
    assert (answered.error_code, answered.base_offset) == (0, 0)


async def test_a_set_for_which_there_is_no_memory_to_wait_is_refused_alone(
    broker: Broker, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call(create_topic("t", 2))

    def no_memory(record_set: object) -> bytes:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(handler, "_kept", no_memory)
        found = results(await client.call(produce_to("t", [(0, HEAVY), (1, PLAIN)])))
    assert [(one.error_code, one.base_offset) for one in found] == [
        (UnknownServerError.code, -1),
        (0, 0),
    ]
    assert result(await client.call(produce("t", HEAVY))).base_offset == 0


@pytest.mark.parametrize(
    "behind", [PLAIN, LIGHT, heavy(b"second")], ids=["plain", "light", "heavy"]
)
async def test_nothing_overtakes_a_set_on_its_partition(
    broker: Broker, client: Wire, other: Wire, admissions: Admissions, behind: bytes
) -> None:
    await client.call(create_topic("t"))
    client.send(PRODUCE, 3, produce("t", HEAVY))
    await until(lambda: admissions.waiting)
    other.send(PRODUCE, 3, produce("t", behind))
    await is_heard(broker, 1)
    assert values(broker) == []
    await admissions.let_go()
    if behind == heavy(b"second"):
        await admissions.let_go()
    assert result((await client.receive())[1]).base_offset == 0
    assert result((await other.receive())[1]).base_offset == 1
    assert values(broker)[0] == b"heavy"
    assert len(values(broker)) == 2
    assert not broker.services.late_appends.holds(("t", 0))


async def is_heard(broker: Broker, requests: int) -> None:
    """Wait until more than so many appends wait, the one that is under way included."""
    waiting = broker.services.late_appends._by_partition.values()
    await until(lambda: sum(map(len, waiting)) > requests)


async def test_one_connection_is_answered_in_order(
    broker: Broker, client: Wire, admissions: Admissions
) -> None:
    await client.call(create_topic("t", 2))
    numbers = client.send_together(
        produce("t", HEAVY),
        produce("t", PLAIN),
        produce("t", PLAIN, partition=1),
        MetadataRequest(),
        produce("t", LIGHT),
    )
    await admissions.let_go()
    answers = [await client.receive() for _ in numbers]
    assert [number for number, _ in answers] == numbers
    offsets = [result(answers[place][1]).base_offset for place in (0, 1, 2, 4)]
    assert offsets == [0, 1, 0, 2]
    assert values(broker) == [b"heavy", b"plain", b"light"]


async def test_the_partitions_of_one_request_do_not_wait_for_each_other(
    broker: Broker, client: Wire, admissions: Admissions
) -> None:
    await client.call(create_topic("t", 4))
    sets = [(0, HEAVY), (1, PLAIN), (2, BROKEN), (3, LIGHT)]
    client.send(PRODUCE, 3, produce_to("t", sets))
    await until(lambda: admissions.waiting)
    assert [values(broker, partition=number) for number in range(4)] == [
        [],
        [b"plain"],
        [],
        [b"light"],
    ]
    await admissions.let_go()
    response = (await client.receive())[1]
    codes = [each.error_code for each in results(response)]
    assert codes == [0, 0, CorruptMessage.code, 0]


@pytest.mark.parametrize("acks", [1, -1])
async def test_bursts_that_repeat_are_copied_out_of_the_buffer(
    broker: Broker, other: Wire, acks: int
) -> None:
    """Requests of one form, many in one piece: they are looked at where they were received."""
    sets = [heavy(b"%d" % number) if number % 3 else message_set(NOW, value=b"%d" % number, magic=2)
            for number in range(60)]  # fmt: skip
    async with wire(broker.addresses.kafka or broker.addresses.native) as client:
        await client.call(produce("t", PLAIN, acks=acks))
        pad = [message_set(NOW, value=bytes(9_000), magic=2) for _ in range(20)]
        client.send_together(*(produce("t", each, acks=acks) for each in [*pad, *sets]))
        answers = [result((await client.receive())[1]) for _ in range(80)]
    assert [answer.error_code for answer in answers] == [0] * 80
    assert [answer.base_offset for answer in answers] == list(range(1, 81))
    assert values(broker)[21:] == [b"%d" % number for number in range(60)]


async def test_a_refusal_without_answer_closes_and_nothing_behind_it_is_appended(
    broker: Broker, client: Wire, admissions: Admissions
) -> None:
    await client.call(create_topic("t", 2))
    client.send_together(
        produce("t", BROKEN, acks=0),
        produce("t", PLAIN, partition=1, acks=0),
        produce("t", PLAIN, partition=1, acks=1),
    )
    del admissions.waiting  # a broken set is refused before it is opened
    assert await client.at_end()
    assert values(broker, partition=1) == []


async def test_without_answers_what_stands_behind_is_appended_later(
    broker: Broker, client: Wire, admissions: Admissions
) -> None:
    await client.call(create_topic("t", 2))
    client.send_together(
        produce("t", HEAVY, acks=0),
        produce("t", PLAIN, partition=1, acks=0),
        produce("t", PLAIN, partition=1, acks=1),
    )
    await until(lambda: admissions.waiting)
    assert values(broker, partition=1) == []
    await admissions.let_go()
    assert result((await client.receive())[1]).base_offset == 1
    assert values(broker) == [b"heavy"]


async def test_a_topic_that_is_deleted_meanwhile_does_not_come_back(
    broker: Broker, client: Wire, other: Wire, admissions: Admissions
) -> None:
    await client.call(create_topic("t"))
    client.send_together(produce("t", HEAVY), produce("t", PLAIN))
    await until(lambda: admissions.waiting)
    await other.call(DeleteTopicsRequest(topic_names=["t"]))
    await admissions.let_go()
    for _ in range(2):
        refused = result((await client.receive())[1])
        assert refused.error_code == UnknownTopicOrPartition.code
        assert "deleted" in refused.error_message
    assert "t" not in broker.directory.topics()


@pytest.mark.parametrize("ended", ["appended", "deleted"])
async def test_others_are_served_while_a_large_set_is_written(
    broker: Broker,
    client: Wire,
    other: Wire,
    admissions: Admissions,
    monkeypatch: pytest.MonkeyPatch,
    ended: str,
) -> None:
    """A write of 60 MB holds its thread for 0.1 s where the kernel has to find memory for it
    (decision 51)."""
    monkeypatch.setattr(appender, "AHEAD_BYTES", 1)
    await client.call(create_topic("t", 2))
    client.send_together(produce("t", HEAVY), produce("t", PLAIN))
    await admissions.let_go()
    await until(lambda: admissions.waiting)
    log = broker.services.logs.find("t", 0)
    for number in range(3):
        sent = result(await other.call(produce("t", LIGHT, partition=1, acks=-1)))
        assert (sent.error_code, sent.base_offset) == (0, number)
    assert log.log_end_offset == 0
    if ended == "deleted":
        await other.call(DeleteTopicsRequest(topic_names=["t"]))
    await admissions.let_go()
    codes = [result((await client.receive())[1]).error_code for _ in range(2)]
    if ended == "deleted":
        assert codes == [UnknownTopicOrPartition.code] * 2
    else:
        assert codes == [0, 0]
        assert values(broker) == [b"heavy", b"plain"]


async def test_what_waits_counts_as_held_until_it_is_appended(
    broker: Broker, client: Wire, admissions: Admissions
) -> None:
    await client.call(create_topic("t", 3))
    client.send(PRODUCE, 3, produce_to("t", [(0, LARGE), (1, LARGE), (2, LARGE)]))
    await until(lambda: admissions.waiting)
    assert 3 * len(LARGE) <= held_bytes(broker) < 3 * len(LARGE) + FREE_BYTES
    for _ in range(3):
        await admissions.let_go()
    assert {each.error_code for each in results((await client.receive())[1])} == {0}
    await until(lambda: held_bytes(broker) == 0)


async def test_what_came_with_one_read_and_waits_counts_as_held(
    broker: Broker, client: Wire, admissions: Admissions
) -> None:
    await client.call(create_topic("t", 2))
    large = message_set(NOW, value=Random(1).randbytes(500_000), magic=2, codec=Codec.GZIP)
    middle = message_set(
        NOW, value=Random(2).randbytes(150_000) + bytes(400_000), magic=2, codec=Codec.GZIP
    )
    for _ in range(10):  # The system lets more come at once to who reads as much.
        client.send(PRODUCE, 3, produce("t", large, partition=1))
        await admissions.let_go()
        assert result((await client.receive())[1]).error_code == 0
    client.send(PRODUCE, 3, produce("t", middle))
    await until(lambda: admissions.waiting)
    assert len(middle) <= held_bytes(broker) < len(middle) + FREE_BYTES
    await admissions.let_go()
    assert result((await client.receive())[1]).error_code == 0
    await until(lambda: held_bytes(broker) == 0)


async def test_requests_behind_a_waiting_one_count_as_held(
    broker: Broker, client: Wire, admissions: Admissions
) -> None:
    await client.call(create_topic("t", 3))
    client.send_together(produce("t", HEAVY), *[produce("t", bytes(PLAIN), partition=1)] * 5_000)
    await until(lambda: admissions.waiting)
    (connection,) = broker._connections._open
    await until(lambda: connection._frames)
    assert connection.held_bytes() >= sum(map(len, connection._frames))
    await admissions.let_go()
    for number in range(5_001):
        sent = result((await client.receive())[1])
        assert (sent.error_code, sent.base_offset) == (0, max(number - 1, 0))


@pytest.mark.parametrize("written_bytes", [appender.AHEAD_BYTES, 1])
async def test_a_client_that_is_gone_keeps_nobody_waiting(
    broker: Broker,
    other: Wire,
    admissions: Admissions,
    monkeypatch: pytest.MonkeyPatch,
    written_bytes: int,
) -> None:
    monkeypatch.setattr(appender, "AHEAD_BYTES", written_bytes)
    await other.call(create_topic("t", 2))
    async with wire(broker.addresses.native) as gone:
        gone.send(PRODUCE, 3, produce_to("t", [(0, HEAVY), (1, LARGE)]))
        await is_heard(broker, 1)
        other.send(PRODUCE, 3, produce("t", PLAIN, partition=1))
        await is_heard(broker, 2)
        gone.writer.transport.abort()
    answer = asyncio.ensure_future(other.receive())
    while not answer.done():
        if admissions.waiting:
            await admissions.let_go()
        await asyncio.sleep(0)
    # The broker may have seen that nobody waits for the set in front of it, or may not.
    assert result(answer.result()[1]).base_offset == len(values(broker, partition=1)) - 1
    await until(lambda: held_bytes(broker) == 0)


async def test_above_the_limit_those_who_wait_for_the_longest_time_are_closed(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 3 * len(LARGE) + FREE_BYTES
    async with running_broker(
        tmp_path, clock, http_listen="off", max_buffered_bytes=limit
    ) as broker:
        admissions = Admissions()
        monkeypatch.setattr(broker.services.work, "in_admission_thread", admissions)
        senders = [await Wire.open(broker.addresses.native) for _ in range(5)]
        for number, sender in enumerate(senders):
            sender.send(PRODUCE, 3, produce("t", LARGE))
            if number < 3:
                await is_heard(broker, number)
            else:
                assert await senders[number - 3].at_end()
            assert held_bytes(broker) <= limit
        for _ in range(4):  # the first one was under way when its client was closed
            await admissions.let_go()
        offsets = [result((await sender.receive())[1]).base_offset for sender in senders[2:]]
        assert offsets == [0, 1, 2]
        for sender in senders:
            sender.close()


@pytest.mark.parametrize("kind", ["batch", "wrapper", "opened", "recompressed"])
async def test_the_append_time_is_that_of_the_append(
    broker: Broker, client: Wire, admissions: Admissions, clock: ManualClock, kind: str
) -> None:
    compression = {"opened": "uncompressed", "recompressed": "snappy"}.get(kind, "producer")
    settings: dict[str, Any] = {
        "message_timestamp_type": "LogAppendTime",
        "compression_type": compression,
    }
    await client.call(create_topic("t", **settings))
    await client.call(produce("t", PLAIN))
    client.send(PRODUCE, 3, produce("t", heavy(magic=1 if kind == "wrapper" else 2)))
    await until(lambda: admissions.waiting)
    clock.advance(5_000)
    await admissions.let_go()
    answered = result((await client.receive())[1])
    assert (answered.base_offset, answered.log_append_time_ms) == (1, NOW + 5_000)
    assert [record.timestamp_ms for record in stored(broker)] == [NOW, NOW + 5_000]
    log = broker.services.logs.find("t", 0)
    assert log.segments[0].largest_timestamp_ms == NOW + 5_000
    assert reader.append_time_ms(log, 1) == NOW + 5_000
    found = reader.find_time(log, NOW + 1).run()
    assert found is not None
    assert found.offset == 1


async def test_a_retry_is_recognised_behind_the_first_try(
    broker: Broker, client: Wire, admissions: Admissions
) -> None:
    sent = build_batch([NewRecord(b"heavy" + bytes(400_000))], codec=Codec.GZIP)
    set_producer(sent, 0, 7, 0, 0)
    await client.call(create_topic("t"))
    client.send_together(produce("t", bytes(sent)), produce("t", bytes(sent)))
    await admissions.let_go()
    await admissions.let_go()
    answers = [result((await client.receive())[1]) for _ in range(2)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 0)]
    assert values(broker) == [b"heavy"]


async def test_a_broker_stops_while_a_set_is_opened(tmp_path: Path, clock: ManualClock) -> None:
    async with (
        running_broker(tmp_path, clock, http_listen="off", num_partitions=20) as broker,
        wire(broker.addresses.native) as client,
    ):
        client.send(PRODUCE, 3, produce_to("t", [(number, HEAVY) for number in range(20)]))
        await until(lambda: broker.services.late_appends.holds(("t", 19)))
    async with running_broker(tmp_path, clock, http_listen="off") as broker:
        for number in range(20):
            assert set(values(broker, partition=number)) <= {b"heavy"}


async def test_kafka_clients_wait_in_the_same_way(tmp_path: Path, clock: ManualClock) -> None:
    async with running_broker(
        tmp_path, clock, http_listen="off", kafka_listen="127.0.0.1:0"
    ) as broker:
        assert broker.addresses.kafka is not None
        async with wire(broker.addresses.kafka, kafka) as client:
            for _ in range(3):
                client.send_together(*(produce("t", each) for each in (HEAVY, PLAIN, HEAVY) * 4))
            answers = [result((await client.receive())[1]) for _ in range(36)]
        assert [answer.base_offset for answer in answers] == list(range(36))
        assert values(broker) == [b"heavy", b"plain", b"heavy"] * 12


async def test_senders_take_turns() -> None:
    work = Work(asyncio.get_running_loop())
    late = LateAppends(work, asyncio.get_running_loop().call_soon)
    done: list[str] = []
    many, few = Sender(), Sender()

    def add(sender: Sender, name: str, partition: int) -> None:
        async def append() -> None:
            done.append(name)

        late.add(sender, ("t", partition), append)

    for number in range(5):
        add(many, f"many {number}", number)
    add(few, "few, behind", 4)
    add(few, "few", 7)
    assert late.holds(("t", 4))
    assert not late.holds(("t", 5))
    await until(lambda: len(done) == 7)
    assert done[:3] == ["many 0", "few", "many 1"]
    assert done[-2:] == ["many 4", "few, behind"]
    await until(lambda: not late.holds(("t", 4)))
    await work.stop()
