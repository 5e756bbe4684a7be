"""What requests are taken for before they are worked on is what they take, at the least."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from itertools import count, islice, repeat
from typing import Any

import pytest

from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.groups.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.count_by_time import COUNT_BY_TIME, CountByTimeRequest
from horolog.protocol.api.log.describe_log import DESCRIBE_LOG, DescribeLogRequest, DescribeLogTopic
from horolog.protocol.api.log.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from horolog.protocol.api.log.list_offsets import (
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native import frames as native
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import (
    Api,
    Array,
    Boolean,
    Data,
    Float,
    Integer,
    Records,
    Text,
    WireType,
    all_fields,
    fields_of,
)
from horolog.protocol.api.topics.describe_configs import (
    BROKER_RESOURCE,
    DESCRIBE_CONFIGS,
    TOPIC_RESOURCE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataTopic
from horolog.protocol.limits import MAX_INTERVALS
from horolog.server.broker import Broker
from horolog.server.network.endpoint import Caller
from horolog.server.requests import PendingAnswer
from horolog.server.weights import LARGE_BYTES, weight_of
from horolog.testing.requests import create_topic, message_set, produce
from horolog.testing.wire import Wire

AT_14 = 1_479_132_000_000
CALLER = Caller(("127.0.0.1", 7070), "127.0.0.1")
ITEMS = 200
NAMED = 100
ATTEMPTS = 5
FIXED_BYTES = 8 * 1024
"""What a request takes that has no items, beyond what it is taken for: it is gone at once."""


class Maker:
    """Makes requests with many items, each of another name or number."""

    def __init__(self, version: int, encoding: Encoding) -> None:
        self._version, self._native = version, encoding.NATIVE
        self._numbers = count(1_000_000)

    def message(self, struct: type[Any]) -> Any:
        specs = fields_of(struct, self._version, native=self._native)
        made = {
            spec.name: self._value(spec.type, spec.name)
            for spec in specs
            if spec.required or not isinstance(spec.type, Array)
        }
        return struct(**made)

    def _value(self, wire_type: WireType | type[Any], name: str = "") -> Any:
        match wire_type:
            case Integer():
                number = next(self._numbers) if name in ("", "partition") else 1_000_000
                return min(number, wire_type.high)
            case Float() | Boolean():
                return False
            case Text():
                return f"n{next(self._numbers)}"
            case Data():
                return b"x"
            case Records():
                return None
            case Array():
                items = min(1 if holds_arrays(wire_type) else ITEMS, wire_type.max_items)
                return [self._value(wire_type.of) for _ in range(items)]
            case type():
                return self.message(wire_type)


def has_arrays(struct: type[Any]) -> bool:
    return any(isinstance(spec.type, Array) for spec in all_fields(struct))


def holds_arrays(wire_type: Array) -> bool:
    inner = wire_type.of
    return isinstance(inner, type) and any(
        isinstance(spec.type, Array) and spec.required for spec in all_fields(inner)
    )


@pytest.fixture
async def traced(broker: Broker) -> AsyncIterator[None]:
    # Else the broker makes its reserve a second after its start, beside some request.
    await broker.maintenance.tasks["reserve"].run_now()
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def answered(broker: Broker, encoding: Encoding, api: Api, body: Any) -> tuple[int, int]:
    """Have a request answered: what it took, and what it is taken for."""
    version = api.last_version(native=encoding.NATIVE)
    dispatcher = broker.dispatcher if encoding.NATIVE else broker.kafka_dispatcher
    frame = bytearray(encoding.encode_request(api, version, 1, "c", body)[4:])
    weight = weight_of(api.key, version, encoding.NATIVE)
    taken_for = weight.of_request(broker.services, body, version) + 2 * len(frame)
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    answer = dispatcher.answer_one(frame, CALLER)
    while isinstance(answer, PendingAnswer):
        if not answer.ready.done():
            await asyncio.wait([asyncio.ensure_future(answer.ready)])
        answer = answer.make()
    return tracemalloc.get_traced_memory()[1] - before, taken_for + FIXED_BYTES


async def heavier(
    broker: Broker, encoding: Encoding, api: Api, bodies: Iterable[Any]
) -> tuple[int, int] | None:
    """What a request took and was taken for, if it took more each time.

    The first one imports modules and opens logs. A task of the broker that runs while a later one
    waits adds its memory: so the least of several counts.
    """
    first, *others = islice(bodies, 1 + ATTEMPTS)
    await answered(broker, encoding, api, first)
    least = None
    for body in others:
        took, taken_for = await answered(broker, encoding, api, body)
        if took <= taken_for:
            return None
        least = min(least or (took, taken_for), (took, taken_for))
    return least


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("encoding", [native, kafka], ids=["native", "kafka"])
async def test_requests_with_many_items(broker: Broker, encoding: Encoding) -> None:
    """Of each kind; what is imported for the first one, and kept, is not its."""
    too_heavy = {}
    for api in APIS.values():
        versions = api.versions(native=encoding.NATIVE)
        if not versions or api is PRODUCE or not has_arrays(api.request):
            continue
        bodies = map(Maker(versions[-1], encoding).message, repeat(api.request))
        if found := await heavier(broker, encoding, api, bodies):
            too_heavy[api.name] = found
    assert too_heavy == {}


@pytest.mark.usefixtures("traced")
async def test_answers_that_have_more_than_what_is_named(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a", partitions=100))
    named = DescribeLogTopic(name="a", partitions=list(range(100)))
    own = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="0")
    count = CountByTimeRequest(
        topic="a", partition=0, from_ms=0, until_ms=MAX_INTERVALS, every_ms=1
    )
    bodies: dict[Api, Any] = {
        METADATA: MetadataRequest(topics=None),
        DESCRIBE_LOG: DescribeLogRequest(topics=[named]),
        COUNT_BY_TIME: count,
        DESCRIBE_CONFIGS: DescribeConfigsRequest(resources=[own]),
    }
    too_heavy = {}
    for api, body in bodies.items():
        if found := await heavier(broker, native, api, repeat(body)):
            too_heavy[api.name] = found
    assert too_heavy == {}


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("base", ["a", "a..1..b", "a..20161114T14Z"])
async def test_windows_that_are_described(broker: Broker, client: Wire, base: str) -> None:
    """Up to as many as an answer has, also of a base with the separator of windows in its name."""
    await client.call(create_topic("a", partitions=3))
    if base == "a..1..b":
        await client.call(create_topic(base, partitions=3))
    names = [f"{base}..{1_479_132_000_000 + number}..1h..append" for number in range(100)]
    resources = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name) for name in names
    ]
    bodies: dict[Api, Any] = {
        DESCRIBE_CONFIGS: DescribeConfigsRequest(resources=resources, include_synonyms=True),
        METADATA: MetadataRequest(topics=[MetadataTopic(name=name) for name in names]),
    }
    too_heavy = {}
    for api, body in bodies.items():
        if found := await heavier(broker, native, api, repeat(body)):
            too_heavy[api.name] = found
    assert too_heavy == {}


def wanted(partitions: int, **fields: Any) -> list[FetchPartition]:
    return [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20, **fields)
        for number in range(partitions)
    ]


def fetch_of(topics: dict[str, list[FetchPartition]]) -> FetchRequest:
    named = [FetchTopic(name=name, partitions=wanted) for name, wanted in topics.items()]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=named)


def naming_windows() -> dict[str, tuple[Api, Any]]:
    """Requests for many windows of `a`, whose partition 0 has messages of 14 o'clock."""
    names = [f"a..{AT_14 - number}..1h" for number in range(NAMED)]
    far = [FetchPartition(partition=0, fetch_offset=1 << 60, partition_max_bytes=1)]
    places = [ListOffsetsPartition(partition=0, timestamp=LATEST)]
    listed = [ListOffsetsTopic(name=name, partitions=places) for name in names]
    read = [OffsetFetchTopic(name=name, partitions=[0]) for name in names]
    return {
        "each": (FETCH, fetch_of({name: wanted(1) for name in names})),
        "by append time": (FETCH, fetch_of({f"{name}..append": wanted(1) for name in names})),
        "partitions of one": (FETCH, fetch_of({names[0]: wanted(NAMED)})),
        "one partition": (FETCH, fetch_of({names[0]: wanted(1) * NAMED})),
        "one partition out of range": (FETCH, fetch_of({names[0]: far * NAMED})),
        "missing partitions": (FETCH, fetch_of({name: wanted(NAMED + 1)[-1:] for name in names})),
        "places": (LIST_OFFSETS, ListOffsetsRequest(topics=listed)),
        "positions": (OFFSET_FETCH, OffsetFetchRequest(group_id="g", topics=read)),
    }


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("encoding", [native, kafka], ids=["native", "kafka"])
async def test_windows_that_are_read(broker: Broker, client: Wire, encoding: Encoding) -> None:
    await client.call(create_topic("a", partitions=NAMED))
    await client.call(produce("a", message_set(AT_14, AT_14 + 1)))
    requests = naming_windows()
    if encoding.NATIVE:
        times = {"window_from_ms": AT_14 + 1, "window_until_ms": AT_14 + 2}
        requests["without topics of their own"] = FETCH, fetch_of({"a": wanted(NAMED, **times)})
    too_heavy = {}
    for kind, (api, body) in requests.items():
        if found := await heavier(broker, encoding, api, repeat(body)):
            too_heavy[kind] = found
    assert too_heavy == {}


async def test_windows_in_a_small_frame_are_small(broker: Broker, client: Wire) -> None:
    """Such frames are not counted: there is one search for each connection at a time."""
    await client.call(create_topic("a"))
    for encoding in (native, kafka):
        for version in FETCH.versions(native=encoding.NATIVE):
            weight = weight_of(FETCH.key, version, encoding.NATIVE)
            number = 0
            while True:
                body = fetch_of({"a..1479132000000..1h": wanted(1) * (number + 1)})
                frame = encoding.encode_request(FETCH, version, 1, None, body)
                if len(frame) > weight.small_frame_bytes:
                    break
                number += 1
                assert weight.of_request(broker.services, body, version) <= LARGE_BYTES
            assert number > 5


def test_the_size_of_a_frame_bounds_what_is_made_of_it() -> None:
    """Whatever is in it: of no request the items weigh more than the frame was taken for."""
    for encoding in (native, kafka):
        for api in APIS.values():
            versions = api.versions(native=encoding.NATIVE)
            if not versions or api is PRODUCE:
                continue
            version = versions[-1]
            body = Maker(version, encoding).message(api.request)
            frame = encoding.encode_request(api, version, 1, None, body)
            weight = weight_of(api.key, version, encoding.NATIVE)
            items_bytes = weight.of_items(body)
            assert items_bytes <= weight.of_frame(len(frame)), api.name
            assert weight.of_frame(weight.small_frame_bytes) <= LARGE_BYTES


def test_a_produce_is_as_large_as_its_frame() -> None:
    weight = weight_of(PRODUCE.key, 3, False)
    assert weight.of_frame(1 << 20) < (2 << 20) + 10_000
