"""Faults on demand, at both ports: where the error stands, which requests meet it, what is
recorded, and what clients make of it."""

import asyncio
from types import ModuleType
from typing import Any

import pytest

from horolog import HorologError, blocking
from horolog.clock import SystemClock
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import Array, Boolean, Float, Integer, Text, fields_of
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataTopic
from horolog.protocol.errors import CodedError, NotLeader, RequestTimedOut
from horolog.server.outcomes import first_error
from horolog.testing.broker import BrokerThread
from horolog.testing.faults import BrokerFaults, RecordedFault
from horolog.testing.requests import fetch, list_offsets, message_set, produce, result, results
from horolog.testing.waiting import until
from horolog.testing.wire import wire
from horolog.tests.groups.requests import heartbeat, join, kafka_client, stable

SET = message_set(1_500_000_000_000)
ENCODINGS: tuple[ModuleType, ...] = (native, kafka)


@pytest.fixture
def faults(horolog_broker: BrokerThread) -> BrokerFaults:
    return horolog_broker.faults


def address_of(broker: BrokerThread, encoding: Any) -> str:
    address = broker.address if encoding.NATIVE else broker.kafka_address
    assert address is not None
    return address


def sample(struct: type[Any], version: int, *, is_native: bool) -> Any:
    """A request, or an item of one, with one item in each array."""
    values: dict[str, Any] = {}
    for spec in fields_of(struct, version, native=is_native):
        match spec.type:
            case Array(of=type() as inner):
                values[spec.name] = [sample(inner, version, is_native=is_native)]
            case Array(of=Text()):
                values[spec.name] = ["name"]
            case Array(of=Integer()):
                values[spec.name] = [0]
            case _ if not spec.required:
                continue
            case Text():
                values[spec.name] = "name"
            case Integer() | Float():
                values[spec.name] = 1
            case Boolean():
                values[spec.name] = False
            case _:
                values[spec.name] = b""
    return struct(**values)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.NAME)
async def test_each_request_fails_in_each_version(
    horolog_broker: BrokerThread, faults: BrokerFaults, encoding: Any
) -> None:
    """The error stands in the answer; where an answer has no place for one, the connection ends."""
    faults.fail(error="REQUEST_TIMED_OUT", times=None)
    closed = []
    for api in APIS.values():
        for version in api.versions(native=encoding.NATIVE):
            body = sample(api.request, version, is_native=encoding.NATIVE)
            async with wire(address_of(horolog_broker, encoding), encoding) as client:
                client.send(api, version, body)
                try:
                    _, answer = await client.receive()
                except CodedError as error:
                    found = error.code
                except asyncio.IncompleteReadError:
                    closed.append((api.name, version))
                    continue
                else:
                    found = first_error(answer)
                assert found == RequestTimedOut.code, (api.name, version)
    assert {name for name, _ in closed} <= {"sasl-authenticate", "describe-quorum"}


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.NAME)
async def test_only_the_named_topic_fails(
    horolog_broker: BrokerThread, faults: BrokerFaults, encoding: Any
) -> None:
    async with wire(address_of(horolog_broker, encoding), encoding) as client:
        both = produce("a", SET)
        both.topics += produce("b", SET).topics
        faults.fail("Produce", "NOT_LEADER_FOR_PARTITION", topic="a", times=2)
        for count in (1, 2):
            answer = await client.call(both)
            codes = {each.name: each.partitions[0].error_code for each in answer.topics}
            assert codes == {"a": NotLeader.code, "b": 0}
            assert len(horolog_broker.topic("b").messages()) == count
        answer = await client.call(both)
        assert [each.error_code for each in results(answer)] == [0, 0]
        assert len(horolog_broker.topic("a").messages()) == 1


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.NAME)
async def test_metadata_still_names_the_brokers(
    horolog_broker: BrokerThread, faults: BrokerFaults, encoding: Any
) -> None:
    async with wire(address_of(horolog_broker, encoding), encoding) as client:
        await client.call(produce("a", SET))
        await client.call(produce("b", SET))
        for topics in (None, [MetadataTopic(name="a"), MetadataTopic(name="b")]):
            faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="a" if topics else None)
            version = min(5, client.newest(METADATA))
            answer = await client.call(MetadataRequest(topics=topics), version)
            assert {each.name: each.error_code for each in answer.topics} == {
                "a": 5,
                "b": 0 if topics else 5,
            }
            assert answer.brokers


async def test_the_client_id_chooses(horolog_broker: BrokerThread, faults: BrokerFaults) -> None:
    faults.fail("produce", "CORRUPT_MESSAGE", client_id="chosen")
    async with wire(horolog_broker.address) as client:
        assert result(await client.call(produce("a", SET))).error_code == 0
        client.client_id = "chosen"
        assert result(await client.call(produce("a", SET))).error_code == 2
        assert result(await client.call(produce("a", SET))).error_code == 0


async def test_what_was_injected_is_recorded(
    horolog_broker: BrokerThread, faults: BrokerFaults
) -> None:
    horolog_broker.clock.freeze()
    now_ms = horolog_broker.clock.now_ms()
    faults.fail("Produce", "NOT_LEADER_FOR_PARTITION", topic="a", times=2)
    faults.delay("ListOffsets", 0.001)
    assert [fault.kind for fault in faults.waiting] == ["fail", "delay"]
    async with wire(horolog_broker.address) as client:
        for _ in range(3):
            await client.call(produce("a", SET))
        await client.call(list_offsets("a", (0, -1)))
    met = RecordedFault("fail", now_ms, "produce", ("a",), "wire", "NOT_LEADER_OR_FOLLOWER")
    late = RecordedFault("delay", now_ms, "list-offsets", ("a",), "wire", "0.001 s")
    assert faults.injected == [met, met, late]
    assert not faults.waiting
    faults.clear()
    assert faults.injected == []


async def test_a_late_answer_comes_late_and_in_its_turn(
    horolog_broker: BrokerThread, faults: BrokerFaults
) -> None:
    faults.delay("Produce", 0.05)
    async with wire(horolog_broker.address) as client:
        began = SystemClock.monotonic()
        numbers = client.send_together(produce("a", SET), list_offsets("a", (0, -2)))
        first, _ = await client.receive()
        assert SystemClock.monotonic() - began >= 0.045  # A loop counts whole milliseconds.
        second, _ = await client.receive()
        assert [first, second] == numbers
    assert len(horolog_broker.topic("a").messages()) == 1


async def test_a_late_answer_does_not_hold_up_a_stop(
    horolog_broker: BrokerThread, faults: BrokerFaults
) -> None:
    faults.delay("Produce", 3600)
    async with wire(horolog_broker.address) as client:
        sent = client.send(APIS[0], 3, produce("a", SET))
        await until(lambda: faults.injected)
        await asyncio.to_thread(horolog_broker.stop)
        received, answer = await client.receive()
        assert (received, result(answer).error_code) == (sent, 0)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.NAME)
@pytest.mark.parametrize(("kind", "stored"), [("drop_connection", 0), ("lose_answer", 1)])
async def test_a_connection_that_ends_instead_of_an_answer(
    horolog_broker: BrokerThread, faults: BrokerFaults, encoding: Any, kind: str, stored: int
) -> None:
    for acks in (1, -1):
        getattr(faults, kind)("Produce", topic="a")
        async with wire(address_of(horolog_broker, encoding), encoding) as client:
            assert result(await client.call(produce("b", SET))).error_code == 0
            client.send(APIS[0], 3, produce("a", SET, acks=acks))
            assert await client.at_end()
    names = {each.topic for each in await stored_messages(horolog_broker)}
    assert len(horolog_broker.topic("b").messages()) == 2
    assert names == ({"a", "b"} if stored else {"b"})
    if stored:
        assert len(horolog_broker.topic("a").messages()) == 2


async def stored_messages(broker: BrokerThread) -> list[Any]:
    with blocking.Admin(broker.address) as admin:
        names = list(admin.list_topics())
    return [message for name in names for message in broker.topic(name).messages()]


async def test_a_fetch_that_waits_loses_its_answer(
    horolog_broker: BrokerThread, faults: BrokerFaults
) -> None:
    async with wire(horolog_broker.address) as producer, wire(horolog_broker.address) as reader:
        await producer.call(produce("a", SET))
        faults.lose_answer("Fetch")
        reader.send(APIS[1], 3, fetch("a", (0, 1), max_wait_ms=60_000, min_bytes=1))
        await until(lambda: faults.injected)
        await producer.call(produce("a", SET))
        assert await reader.at_end()


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.NAME)
async def test_a_throttled_client_is_told_and_not_read_from(
    horolog_broker: BrokerThread, faults: BrokerFaults, encoding: Any
) -> None:
    faults.throttle("Produce", 0.1)
    async with wire(address_of(horolog_broker, encoding), encoding) as client:
        began = SystemClock.monotonic()
        assert (await client.call(produce("a", SET))).throttle_time_ms == 100
        assert (await client.call(produce("a", SET))).throttle_time_ms == 0
        assert SystemClock.monotonic() - began >= 0.08


async def test_a_group_rebalances(horolog_broker: BrokerThread, faults: BrokerFaults) -> None:
    async with kafka_client(horolog_broker.kafka_address) as client:
        member_id, generation = await stable(client, "group")
        faults.rebalance("group")
        told = await client.call(heartbeat("group", member_id, generation))
        assert told.error_code == 27  # REBALANCE_IN_PROGRESS
        joined = await client.call(join("group", member_id))
        assert joined.generation_id == generation + 1
    assert [(each.kind, each.detail) for each in faults.injected] == [("rebalance", "group")]
    with pytest.raises(ValueError, match="has no members"):
        faults.rebalance("another")


async def test_a_produce_without_an_answer_fails_by_the_connection(
    horolog_broker: BrokerThread, faults: BrokerFaults
) -> None:
    faults.fail("Produce", "NOT_LEADER_FOR_PARTITION")
    async with wire(horolog_broker.address) as client:
        client.send(APIS[0], 3, produce("a", SET, acks=0))
        assert await client.at_end()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"api": "Produze"}, "did you mean produce"),
        ({"api": "Produce", "error": "NOT_LEADER"}, "did you mean NOT_LEADER_OR_FOLLOWER"),
        ({"api": "Produce", "error": "SOON"}, "no error of this name; a code is accepted too"),
        ({"api": "Produce", "error": 0}, "not 0"),
        ({"api": "Produce", "error": 40_000}, "32767"),
        ({"api": "Produce", "times": 0}, "1 or more"),
        ({"api": "JoinGroup", "topic": "t"}, "no join-group request names a topic"),
    ],
)
def test_what_is_no_fault_is_refused(
    faults: BrokerFaults, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        faults.fail(**arguments)
    for seconds in (0, -1, float("nan"), 1e9):
        with pytest.raises(ValueError, match="above 0 and at most 3600"):
            faults.delay("Produce", seconds)
    assert not faults.waiting


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"api": 0}, "api 0: it must be the name of a request"),
        ({"error": None}, "error None: it must be the name or the code"),
        ({"times": "3"}, "times '3': it must be a whole number"),
        ({"topic": b"t"}, "topic b't': it must be a str"),
        ({"client_id": 7}, "client_id 7: it must be a str"),
    ],
)
def test_arguments_of_another_type_are_refused(
    faults: BrokerFaults, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        faults.fail(**arguments)
    with pytest.raises(TypeError, match="seconds None: it must be a number"):
        faults.throttle("Produce", None)  # type: ignore[arg-type]
    assert not faults.waiting


def test_without_faults_requests_go_the_way_that_they_go_in_production(
    horolog_broker: BrokerThread, faults: BrokerFaults
) -> None:
    before = handlers_of(horolog_broker)
    faults.fail("Produce", "CORRUPT_MESSAGE")
    assert handlers_of(horolog_broker) != before
    with blocking.Producer(horolog_broker.address, delivery_timeout_ms=0) as producer:
        with pytest.raises(HorologError):
            producer.send("a", b"value")
        producer.send("a", b"value")
    assert handlers_of(horolog_broker) == before


def handlers_of(broker: BrokerThread) -> list[object]:
    """What answers requests at both ports."""

    async def find(running: Any) -> list[object]:
        return [
            part
            for each in (running.dispatcher, running.kafka_dispatcher)
            for part in (each._handlers, each._kinds.keys())
        ]

    return broker.in_loop(find)


def test_faults_outlive_a_restart(horolog_broker: BrokerThread, faults: BrokerFaults) -> None:
    faults.fail("Produce", "CORRUPT_MESSAGE")
    horolog_broker.restart()
    with (
        blocking.Producer(horolog_broker.address, delivery_timeout_ms=0) as producer,
        pytest.raises(HorologError, match="a test had"),
    ):
        producer.send("a", b"value")


def test_a_leader_that_was_stopped_starts_again(
    horolog_broker: BrokerThread, faults: BrokerFaults
) -> None:
    faults.stop_leader()
    assert not horolog_broker.is_running
    assert [each.kind for each in faults.injected] == ["stop_leader"]
    horolog_broker.start()
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("a", b"value")


@pytest.fixture(autouse=True)
def unused(faults: BrokerFaults) -> None:
    """A test finds no fault of the one before."""
    assert not faults.waiting
    assert faults.injected == []
