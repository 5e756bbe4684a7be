"""Clients over their quotas, at real sockets: what they are told, and that nobody listens to them
for as long. The clock that quotas go by stands still, so what is told is known exactly."""

import asyncio

import pytest

from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.security.client_quotas import (
    DescribeClientQuotasRequest,
    QuotaComponent,
)
from horolog.protocol.api.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from horolog.protocol.api.topics.create_topics import CreatableTopic, CreateTopicsRequest
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import InvalidRequest
from horolog.server.quotas.meter import MAX_WAIT_SECONDS
from horolog.server.quotas.rules import Entity, Quota
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, fetch, message_set, produce, result

from .conftest import (
    ENCODINGS,
    FOREVER_SECONDS,
    Muted,
    Serving,
    answered_after,
    connection,
    set_quota,
)

SET = message_set(5, value=bytes(10_000))
SIZE = len(SET)
WIRE = {"client-id": "wire"}
NONSENSE = DescribeClientQuotasRequest(
    components=[QuotaComponent(entity_type="shoe", match_type=2, match=None)]
)
SPAN_SECONDS = 10.0
"""What nobody took is counted over: all windows but one."""


def produce_limit(throttle_seconds: float, sets: int = 1) -> float:
    """The quota that has a client wait for so long behind so many sets."""
    return float(round(sets * SIZE / (SPAN_SECONDS + throttle_seconds)))


def expected_ms(taken: float, limit: float) -> int:
    return round((taken / limit - SPAN_SECONDS) * 1000)


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_producer_is_answered_first_and_not_listened_to_then(
    serving: Serving, muted: Muted, encoding: Encoding
) -> None:
    limit = produce_limit(0.4)
    async with (
        serving() as broker,
        connection(broker, encoding) as client,
        connection(broker) as other,
    ):
        await client.call(create_topic("t"))
        await set_quota(client, WIRE, producer_byte_rate=limit)
        answer = await client.call(produce("t", SET))
        throttle_ms = expected_ms(SIZE, limit)
        assert 350 < throttle_ms < 450
        assert (result(answer).error_code, answer.throttle_time_ms) == (0, throttle_ms)
        assert muted.seconds == [throttle_ms / 1000]
        waiting = asyncio.ensure_future(client.call(MetadataRequest(topics=[])))
        await answered_after(muted, other, waiting)
        await client.call(MetadataRequest(topics=[]))
        assert broker.figures.throttled == {"producer_byte_rate": 1}
        assert broker.figures.throttled_seconds == {"producer_byte_rate": throttle_ms / 1000}


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_requests_that_came_already_wait_too(
    serving: Serving, muted: Muted, encoding: Encoding
) -> None:
    limit = produce_limit(0.3)
    async with (
        serving() as broker,
        connection(broker, encoding) as client,
        connection(broker) as other,
    ):
        await client.call(create_topic("t"))
        await set_quota(client, WIRE, producer_byte_rate=limit)
        client.send_together(produce("t", SET), MetadataRequest(topics=[]))
        await client.receive()
        await answered_after(muted, other, asyncio.ensure_future(client.receive()))
        assert muted.seconds == [expected_ms(SIZE, limit) / 1000]


async def test_appends_that_come_together_are_each_counted(serving: Serving) -> None:
    limit = produce_limit(0.2, sets=3)
    async with serving() as broker, connection(broker) as client, connection(broker) as other:
        await client.call(create_topic("t"))
        await set_quota(client, WIRE, producer_byte_rate=limit)
        other.client_id = "another"
        client.send_together(*(produce("t", SET) for _ in range(3)))
        other.send_together(*(produce("t", SET) for _ in range(3)))
        told = [(await client.receive())[1].throttle_time_ms for _ in range(3)]
        assert told == [0, 0, expected_ms(3 * SIZE, limit)]
        assert [(await other.receive())[1].throttle_time_ms for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_every_kind_of_append_is_counted(serving: Serving, muted: Muted, acks: int) -> None:
    limit = produce_limit(0.3)
    async with serving() as broker, connection(broker) as client, connection(broker) as other:
        await client.call(create_topic("t"))
        await set_quota(client, WIRE, producer_byte_rate=limit)
        client.send(PRODUCE, 3, produce("t", SET, acks=acks))
        if acks:
            _, answer = await client.receive()
            assert answer.throttle_time_ms == expected_ms(SIZE, limit)
        waiting = asyncio.ensure_future(client.call(MetadataRequest(topics=[])))
        await answered_after(muted, other, waiting)
        assert muted.seconds == [expected_ms(SIZE, limit) / 1000]


async def test_a_fetch_over_its_quota_is_answered_with_nothing(
    serving: Serving, muted: Muted, clock: ManualClock
) -> None:
    limit = float(SIZE)  # a set a second
    async with (
        serving() as broker,
        connection(broker, kafka) as client,
        connection(broker) as other,
    ):
        await client.call(create_topic("t"))
        for _ in range(12):
            await client.call(produce("t", SET))
        await set_quota(client, WIRE, consumer_byte_rate=limit)
        # As much as the quota gives in all windows, not all that there is.
        first = await client.call(fetch("t", (0, 0)))
        assert (first.throttle_time_ms, len(result(first).records)) == (0, 10 * SIZE)
        over = await client.call(fetch("t", (0, 10)))
        assert (over.throttle_time_ms, over.topics, over.error_code) == (1000, [], 0)
        assert muted.seconds == [1.0]
        clock.advance(11_000)
        waiting = asyncio.ensure_future(client.call(fetch("t", (0, 10))))
        again = await answered_after(muted, other, waiting)
        assert (again.throttle_time_ms, len(result(again).records)) == (0, 2 * SIZE)


async def test_a_native_fetch_over_its_quota_has_its_messages_first(
    serving: Serving, muted: Muted
) -> None:
    async with serving() as broker, connection(broker) as client, connection(broker) as other:
        await client.call(create_topic("t"))
        for _ in range(12):
            await client.call(produce("t", SET))
        await set_quota(client, WIRE, consumer_byte_rate=float(SIZE))
        first = await client.call(fetch("t", (0, 0)))
        assert (first.throttle_time_ms, len(result(first).records)) == (0, 10 * SIZE)
        over = await client.call(fetch("t", (0, 10)))
        assert (over.throttle_time_ms, len(result(over).records)) == (1000, SIZE)
        assert muted.seconds == [1.0]
        waiting = asyncio.ensure_future(client.call(MetadataRequest(topics=[])))
        await answered_after(muted, other, waiting)


async def test_a_set_larger_than_the_quota_of_all_windows_comes_through(serving: Serving) -> None:
    async with serving() as broker, connection(broker, kafka) as client:
        await client.call(create_topic("t"))
        await client.call(produce("t", SET))
        await set_quota(client, WIRE, consumer_byte_rate=10)
        answer = await client.call(fetch("t", (0, 0)))
        assert (answer.throttle_time_ms, len(result(answer).records)) == (0, SIZE)
        over = await client.call(fetch("t", (0, 0)))
        assert (over.throttle_time_ms, over.topics) == (MAX_WAIT_SECONDS * 1000, [])


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_time_of_requests_is_counted(serving: Serving, encoding: Encoding) -> None:
    async with serving() as broker, connection(broker, encoding) as client:
        await client.call(create_topic("t"))
        await set_quota(client, WIRE, request_percentage=1e-6)
        answer = await client.call(produce("t", SET))
        assert answer.throttle_time_ms == 1000  # a window, as in Kafka
        assert set(broker.figures.throttled) == {"request_percentage"}


async def test_refused_requests_are_counted(serving: Serving, muted: Muted) -> None:
    async with serving() as broker, connection(broker) as client, connection(broker) as other:
        await set_quota(client, WIRE, request_percentage=1e-6)
        with pytest.raises(InvalidRequest):
            await client.call(NONSENSE)
        assert broker.figures.throttled == {"request_percentage": 1}
        assert muted.seconds == [1.0]
        waiting = asyncio.ensure_future(client.call(MetadataRequest(topics=[])))
        await answered_after(muted, other, waiting)


async def test_partitions_made_and_deleted_are_counted(serving: Serving) -> None:
    """KIP-599: a bucket of all windows' partitions, which may owe."""
    async with serving() as broker, connection(broker) as client:
        await set_quota(client, WIRE, controller_mutation_rate=2)  # 22 partitions at once

        async def told(body: object) -> int:
            return int((await client.call(body)).throttle_time_ms)

        checked = CreateTopicsRequest(
            topics=[CreatableTopic(name="big", num_partitions=100)], validate_only=True
        )
        assert await told(checked) == 0
        assert await told(create_topic("t", partitions=20)) == 0
        assert await told(create_topic("t", partitions=20)) == 0  # it is there already
        more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=22)])
        assert await told(more) == 0
        assert await told(DeleteTopicsRequest(topic_names=["none"])) == 0
        assert await told(create_topic("u")) == 500
        assert broker.figures.throttled == {"controller_mutation_rate": 1}
        assert await told(DeleteTopicsRequest(topic_names=["u"])) == 1000


async def test_quotas_come_and_go_while_the_broker_runs(
    serving: Serving, clock: ManualClock
) -> None:
    async with serving() as broker, connection(broker) as client:
        await client.call(create_topic("t"))
        assert broker.dispatcher.meter is None
        await set_quota(client, {"user": None}, producer_byte_rate=produce_limit(0.05))
        assert broker.dispatcher.meter is not None
        assert (await client.call(produce("t", SET))).throttle_time_ms > 0
        await set_quota(client, {"user": "ANONYMOUS"}, producer_byte_rate=1_000_000)
        assert (await client.call(produce("t", SET))).throttle_time_ms == 0
        await set_quota(client, {"user": "ANONYMOUS"}, producer_byte_rate=None)
        assert (await client.call(produce("t", SET))).throttle_time_ms > 0
    async with serving() as broker, connection(broker) as client:
        assert broker.dispatcher.meter is not None
        assert broker.kafka_dispatcher.meter is broker.dispatcher.meter
        assert (await client.call(produce("t", SET))).throttle_time_ms > 0
        await set_quota(client, {"user": None}, producer_byte_rate=None)
        assert broker.dispatcher.meter is None
        assert broker.kafka_dispatcher.meter is None
        assert (await client.call(produce("t", SET))).throttle_time_ms == 0


async def test_all_connections_of_a_client_take_of_one_quota(serving: Serving) -> None:
    limit = produce_limit(0.1, sets=2)
    async with serving() as broker, connection(broker) as one, connection(broker, kafka) as other:
        await one.call(create_topic("t"))
        await set_quota(one, WIRE, producer_byte_rate=limit)
        assert (await one.call(produce("t", SET))).throttle_time_ms == 0
        assert (await other.call(produce("t", SET))).throttle_time_ms > 0
        meter = broker.dispatcher.meter
        assert meter is not None
        assert len(meter.rates[Quota.PRODUCER_BYTE_RATE]) == 1
        bound = meter._table.bound(Quota.PRODUCER_BYTE_RATE, "ANONYMOUS", "wire")
        assert bound is not None
        assert bound.taken_by == Entity(None, "wire")


async def test_a_broker_stops_though_a_client_waits(serving: Serving, muted: Muted) -> None:
    async with serving() as broker, connection(broker) as client:
        await client.call(create_topic("t"))
        await set_quota(client, WIRE, producer_byte_rate=1)
        client.send_together(produce("t", SET), MetadataRequest(topics=[]))
        _, answer = await client.receive()
        assert answer.throttle_time_ms == MAX_WAIT_SECONDS * 1000
        assert muted.seconds == [MAX_WAIT_SECONDS]
        stopping = asyncio.ensure_future(broker._connections.finish(FOREVER_SECONDS))
        await client.receive()
        await stopping


async def test_a_client_that_goes_while_it_waits_is_gone(serving: Serving) -> None:
    async with serving() as broker:
        async with connection(broker) as client:
            await client.call(create_topic("t"))
            await set_quota(client, WIRE, producer_byte_rate=produce_limit(0.3))
            await client.call(produce("t", SET))
        async with connection(broker) as other, asyncio.timeout(20):
            other.client_id = "another"
            await other.call(MetadataRequest(topics=[]))
            while broker.connections() > 1:
                await other.call(MetadataRequest(topics=[]))


def test_every_answer_that_can_tells_the_time() -> None:
    """Of requests without such a field only the connection shows it."""
    without = {
        api.name
        for api in APIS.values()
        if "throttle_time_ms" not in api.response.__struct_fields__
    }
    assert without == {
        "authenticate",
        "sasl-authenticate",
        "sasl-handshake",
        "count-by-time",
        "describe-broker",
        "describe-log",
        "describe-quorum",
        "describe-removals",
        "describe-replicas",
        "promote",
        "replicate",
    }
