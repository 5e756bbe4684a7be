"""No producer makes a set that the topic's limits refuse."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from horolog import Admin, Consumer, MessageTooLarge, NewRecord, Producer, RecordListTooLarge
from horolog.client.produce.set_limits import FALLBACK_BYTES
from horolog.protocol.api.topics.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)
from horolog.protocol.api.topics.metadata import METADATA
from horolog.protocol.errors import RequestTimedOut, TopicAuthorizationFailed
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock

from .fakes import Log, refusal

T0_MS = 1_479_144_272_000
SMALL = {"max.message.bytes": "20000", "segment.bytes": "15000"}
FORMS: list[dict[str, Any]] = [
    {},
    {"idempotent": True},
    {"compression": "gzip"},
    {"compression": "lz4", "idempotent": True},
    {"compression": "snappy"},
    {"compression": "zstd"},
]


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    async with running_broker(
        tmp_path, clock=clock, http_listen="off", kafka_listen="127.0.0.1:0"
    ) as started:
        yield started


def refused(broker: Broker, topic: str) -> dict[str, int]:
    """Messages of refused sets, by reason."""
    return broker.services.figures.topic(topic).rejected


async def stored(address: str, topic: str, partition: int = 0) -> list[bytes | None]:
    async with Consumer(address, max_wait_ms=0) as consumer:
        consumer.assign(topic, partition, offset=0)
        found: list[bytes | None] = []
        while batch := await consumer.fetch():
            found += [record.value for record in batch]
        return found


def noise(count: int, most_bytes: int = 300, seed: int = 1) -> list[bytes]:
    """What no codec can shrink."""
    random = Random(seed)
    return [random.randbytes(random.randrange(most_bytes)) for _ in range(count)]


async def send_each(producer: Producer, topic: str, values: list[bytes]) -> None:
    await asyncio.gather(*(producer.send(topic, value) for value in values))


async def send_columns(producer: Producer, topic: str, values: list[bytes]) -> None:
    await producer.send_batch(topic, values)


async def send_with_headers(producer: Producer, topic: str, values: list[bytes]) -> None:
    headers = [[("näme" * 20, value)] for value in values]
    await producer.send_batch(topic, values, headers=headers)


async def send_each_with_headers(producer: Producer, topic: str, values: list[bytes]) -> None:
    await asyncio.gather(
        *(producer.send(topic, value, headers=[("ä" * 50, b"")] * 9) for value in values)
    )


SENDS = [send_each, send_columns, send_with_headers, send_each_with_headers]
LIMITS = [
    {"segment.bytes": "15000"},
    {"max.message.bytes": "15000"},
    {"max.decompressed.bytes": "15000", "segment.bytes": "200000"},
    {**SMALL, "compression.type": "uncompressed"},
    {**SMALL, "compression.type": "gzip"},
    {**SMALL, "compression.type": "snappy"},
]


def combinations() -> Iterator[ParameterSet]:
    """All of ways to send, forms and limits in the soak; else each pair of two of them."""
    for (at, form), (by, limits), (how, send) in product(
        enumerate(FORMS), enumerate(LIMITS), enumerate(SENDS)
    ):
        is_tried = (at + by) % len(SENDS) == how
        name = f"{send.__name__}-{form}-{limits}"
        yield pytest.param(
            send, form, limits, id=name, marks=[] if is_tried else [pytest.mark.soak]
        )


@pytest.mark.parametrize(("send", "form", "settings"), list(combinations()))
async def test_no_set_is_made_that_is_refused_for_its_size(
    broker: Broker, send: Any, form: dict[str, Any], settings: dict[str, str]
) -> None:
    address = str(broker.addresses.native)
    values = noise(500)
    async with Admin(address) as admin, Producer(address, **form) as producer:
        await admin.create_topic("t", settings=settings)
        await send(producer, "t", values)
    assert await stored(address, "t") == values
    assert refused(broker, "t") == {}


@pytest.mark.parametrize("version", ["0.9.0", "0.10.0", "0.11.0"])
async def test_a_topic_that_stores_another_format(broker: Broker, version: str) -> None:
    address = str(broker.addresses.native)
    values = noise(2000, 8)
    settings = {"segment.bytes": "15000", "message.format.version": version}
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("t", settings=settings)
        times = [T0_MS + n % 7 * 10**12 for n in range(len(values))]
        await producer.send_batch("t", values, timestamps_ms=times)
    assert await stored(address, "t") == values
    assert refused(broker, "t") == {}


async def test_a_kafka_address_is_asked_too(broker: Broker) -> None:
    values = noise(500)
    async with Admin(str(broker.addresses.native)) as admin:
        await admin.create_topic("t", settings=SMALL)
    async with Producer(f"kafka://{broker.addresses.kafka}") as producer:
        await send_each(producer, "t", values)
        await send_columns(producer, "t", values)
    assert await stored(str(broker.addresses.native), "t") == values * 2
    assert refused(broker, "t") == {}


async def test_a_message_that_is_too_large_fails_alone(broker: Broker) -> None:
    """decision 38."""
    address = str(broker.addresses.native)
    values = [b"a" * 100] * 50 + [b"b" * 30_000] + [b"c" * 100] * 50
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("t", settings=SMALL)
        answers = await asyncio.gather(
            *(producer.send("t", value) for value in values), return_exceptions=True
        )
    failed = [number for number, one in enumerate(answers) if isinstance(one, Exception)]
    assert failed == [50]
    assert isinstance(answers[50], MessageTooLarge)
    assert await stored(address, "t") == values[:50] + values[51:]
    assert refused(broker, "t") == {"too_large": 1}


@pytest.mark.parametrize("idempotent", [False, True])
async def test_limits_that_are_lowered_while_it_sends(broker: Broker, idempotent: bool) -> None:
    address = str(broker.addresses.native)
    values = noise(2000)
    async with (
        Admin(address) as admin,
        Producer(address, idempotent=idempotent, batch_bytes=50_000) as producer,
    ):
        await admin.create_topic("t")
        first = [await producer.enqueue("t", value) for value in values[:1000]]
        await asyncio.gather(*first)
        await admin.alter_topic("t", SMALL)
        sent = await asyncio.gather(*(producer.send("t", value) for value in values[1000:]))
        assert [one.offset for one in sent] == list(range(1000, 2000))
        so_far = dict(refused(broker, "t"))
        assert so_far  # or the limits were lowered too late to be met
        await producer.send_batch("t", values)
        await send_each(producer, "t", values)
        assert refused(broker, "t") == so_far
        await admin.alter_topic("t", {"segment.bytes": "7000"})
        batch = await producer.send_batch("t", values)
        assert batch.count == len(values)
    assert await stored(address, "t") == values * 4


async def test_a_set_of_send_many_is_refused_whole(broker: Broker) -> None:
    address = str(broker.addresses.native)
    records = [NewRecord(value) for value in noise(500)]
    async with (
        Admin(address) as admin,
        Producer(address) as producer,
        Producer(address, batch_bytes=256 * 1024) as smaller,
    ):
        await admin.create_topic("t", settings={"segment.bytes": "15000"})
        with pytest.raises(RecordListTooLarge, match=r"segment\.bytes"):
            await producer.send_many("t", records)
        for one in (producer, smaller):
            assert 10_000 < await one.set_bytes_for("t") < 15_000
        assert await smaller.set_bytes_for("other") == 256 * 1024
        assert 900_000 < await producer.set_bytes_for("other") < FALLBACK_BYTES
    assert await stored(address, "t") == []


class Topic:
    """A scripted broker with one topic, which says what its limits are, and keeps to `real`."""

    def __init__(self, said: int | None, real: int) -> None:
        self.log = Log()
        self.said = said
        self.real = real
        self.questions = 0

    async def serve(self, head: Any, body: Any, _: Any) -> Any:
        if head.api_key == METADATA.key:
            return self.log.metadata()
        if head.api_key == DESCRIBE_CONFIGS.key:
            self.questions += 1
            return DescribeConfigsResponse(results=[self.described()])
        ((sent,),) = [topic.partitions for topic in body.topics]
        if len(sent.records) > self.real:
            return refusal(self.log.saw(body)[0], RecordListTooLarge)
        return self.log.append(body)

    def described(self) -> DescribeConfigsResult:
        result = DescribeConfigsResult(resource_type=2, resource_name="t")
        if self.said is None:
            result.error_code = TopicAuthorizationFailed.code
        else:
            result.configs = [DescribedConfig(name="segment.bytes", value=str(self.said))]
        return result


async def test_the_question_is_asked_once_for_each_topic(scripted_broker: Any) -> None:
    topic = Topic(2000, 2000)
    async with (
        scripted_broker(topic.serve, describes=True) as broker,
        Producer(broker.address) as producer,
    ):
        for _ in range(3):
            await asyncio.gather(
                *(producer.send("t", value) for value in noise(100)),
                *(producer.send_batch("t", noise(100)) for _ in range(3)),
            )
    assert topic.questions == 1


async def test_a_question_that_is_denied_leaves_what_is_usual(scripted_broker: Any) -> None:
    topic = Topic(None, FALLBACK_BYTES)
    values = [b"a" * 1000] * 3000
    async with (
        scripted_broker(topic.serve, describes=True) as broker,
        Producer(broker.address, batch_bytes=2**22) as producer,
    ):
        await producer.send_batch("t", values)
    assert topic.questions == 1
    assert topic.log.stored == {0: values}
    assert sum(len(sent) for _, sent in topic.log.sets) == len(values)


async def test_denied_limits_are_learned(scripted_broker: Any) -> None:
    topic = Topic(None, 100_000)
    async with (
        scripted_broker(topic.serve, describes=True) as broker,
        Producer(broker.address, batch_bytes=256 * 1024) as producer,
    ):
        for _ in range(10):
            await producer.send_batch("t", [b"a" * 1000] * 1000)
    assert topic.log.stored == {0: [b"a" * 1000] * 10_000}
    most = 10_000 + 3 * 256
    assert sum(len(sent) for _, sent in topic.log.sets) < most


async def test_a_question_without_an_answer_ends_with_the_delivery(scripted_broker: Any) -> None:
    async def serve(head: Any, body: Any, writer: Any) -> Any:
        return None if head.api_key == DESCRIBE_CONFIGS.key else await log.serve(head, body, writer)

    log = Log()
    async with (
        scripted_broker(serve, describes=True) as broker,
        Producer(broker.address, delivery_timeout_ms=200) as producer,
    ):
        with pytest.raises(RequestTimedOut, match="delivery_timeout_ms=200"):
            await asyncio.wait_for(producer.send("t", b"a"), 20)
        with pytest.raises(RequestTimedOut, match="delivery_timeout_ms=200"):
            await asyncio.wait_for(producer.send_batch("t", [b"a"]), 20)
    assert log.sets == []
