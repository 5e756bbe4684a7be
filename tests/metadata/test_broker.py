"""The only member of a cluster: real sockets and clients; what no request sees."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from horolog.protocol.api.encodings import Encoding
from horolog.protocol.api.groups.delete_groups import DeleteGroupsRequest
from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_fetch import (
    LIST_POSITIONS,
    OFFSET_FETCH,
    OffsetFetchRequest,
)
from horolog.protocol.api.kafka import frames as kafka_frames
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.native import frames as native_frames
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
    fields_of,
)
from horolog.protocol.api.topics.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from horolog.protocol.api.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.describe_configs import TOPIC_RESOURCE
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.protocol.errors import CodedError, NotCoordinator
from horolog.server.broker import Broker
from horolog.server.metadata_store import MetadataStore
from horolog.storage.names import METADATA_TOPIC
from horolog.testing.broker import running_broker
from horolog.testing.files import QuickFiles
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire

NOW = 1_700_000_000_000
PORTS: Any = {"kafka_listen": "127.0.0.1:0"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "data", **PORTS) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Wire]:
    async with wire(broker.addresses.native) as client:
        yield client


def commit(group: str, topic: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitPartition(partition=0, committed_offset=offset)
    topics = [OffsetCommitTopic(name=topic, partitions=[partition])]
    return OffsetCommitRequest(group_id=group, topics=topics)


async def held(client: Wire, group: str) -> dict[str, int]:
    answer = await client.call(
        OffsetFetchRequest(group_id=group, topics=[], listing=LIST_POSITIONS)
    )
    return {each.name: each.partitions[0].committed_offset for each in answer.topics}


async def forget(broker: Broker, group: str) -> int:
    """The error code of an attempt to delete a group, as only Kafka's clients can."""
    async with wire(str(broker.addresses.kafka), encoding=kafka_frames) as client:
        answer = await client.call(DeleteGroupsRequest(groups_names=[group]))
    code: int = answer.results[0].error_code
    return code


def alter(topic: str, **settings: str) -> AlterConfigsRequest:
    configs = [AlterableConfig(name=name, value=value) for name, value in settings.items()]
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=configs
    )
    return AlterConfigsRequest(resources=[resource])


async def test_topics_and_positions_are_records_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "data"
    async with running_broker(path, **PORTS) as broker, wire(broker.addresses.native) as client:
        assert (await client.call(create_topic("a", 2))).topics[0].error_code == 0
        assert (await client.call(create_topic("gone"))).topics[0].error_code == 0
        raised = CreatePartitionsTopic(name="a", count=3)
        answer = await client.call(CreatePartitionsRequest(topics=[raised]))
        assert answer.results[0].error_code == 0
        altered = await client.call(alter("a", **{"retention.ms": "-1"}))
        assert altered.responses[0].error_code == 0
        assert (
            result(await client.call(produce("a", message_set(NOW, NOW), acks=-1))).base_offset == 0
        )
        assert result(await client.call(commit("g", "a", 1))).error_code == 0
        assert result(await client.call(commit("g", "gone", 1))).error_code == 0
        assert result(await client.call(commit("h", "a", 2))).error_code == 0
        deleted = await client.call(DeleteTopicsRequest(topic_names=["gone"]))
        assert deleted.responses[0].error_code == 0
        assert await forget(broker, "h") == 0
        assert await held(client, "g") == {"a": 1}
        metadata = broker.directory.metadata
        assert metadata is not None
        assert metadata.applied == metadata.log.log_end_offset == 9
        entry = broker.directory.topics()["a"]
    async with running_broker(path, **PORTS) as broker, wire(broker.addresses.native) as client:
        assert broker.directory.topics() == {"a": entry}
        assert (entry.partitions, entry.overrides) == (3, {"retention.ms": "-1"})
        assert await held(client, "g") == {"a": 1}
        assert await held(client, "h") == {}
        assert len(bytes(result(await client.call(fetch("a", (0, 0)))).records)) > 0
        # Another topic of that name has no position.
        await client.call(DeleteTopicsRequest(topic_names=["a"]))
        assert (await client.call(create_topic("a", 1))).topics[0].error_code == 0
        assert await held(client, "g") == {}


async def test_refusals_are_those_of_a_broker_by_itself(broker: Broker, client: Wire) -> None:
    together = [client.call(create_topic("a")), client.call(create_topic("a"))]
    first, second = [(await each).topics[0] for each in together]
    assert (first.error_code, second.error_code) == (0, 36)
    assert (await client.call(create_topic("b", 1, retention_ms="soon"))).topics[0].error_code == 40
    assert (await client.call(create_topic("b", 0))).topics[0].error_code == 37
    deleted = await client.call(DeleteTopicsRequest(topic_names=["b"]))
    assert deleted.responses[0].error_code == 3
    assert result(await client.call(commit("g", "b", 1))).error_code == 3
    assert result(await client.call(commit("", "a", 1))).error_code == 24
    assert await forget(broker, "nobody") == 69


async def test_creates_at_the_same_time_make_one(broker: Broker) -> None:
    async with wire(broker.addresses.native) as one, wire(broker.addresses.native) as other:
        answers = await asyncio.gather(*(each.call(create_topic("a")) for each in (one, other)))
    assert sorted(answer.topics[0].error_code for answer in answers) == [0, 36]


async def test_a_producer_s_topic_is_made(client: Wire) -> None:
    assert result(await client.call(produce("new", message_set(NOW), acks=-1))).error_code == 0


async def test_a_trim_is_answered(client: Wire, broker: Broker) -> None:
    await client.call(create_topic("a"))
    await client.call(produce("a", message_set(NOW, NOW, NOW), acks=-1))
    partition = DeleteRecordsPartition(partition=0, offset=2)
    topic = DeleteRecordsTopic(name="a", partitions=[partition])
    answer = await client.call(DeleteRecordsRequest(topics=[topic]))
    assert answer.topics[0].partitions[0].low_watermark == 2
    assert broker.directory.log("a", 0).log_start_offset == 2


async def test_what_is_not_committed_is_not_answered(broker: Broker, client: Wire) -> None:
    """Section 2, 5: what is answered is on the ISR."""
    await client.call(create_topic("a"))
    metadata = broker.directory.metadata
    assert metadata is not None
    log = metadata.log
    log.hold_high_watermark(log.log_end_offset)
    async with wire(broker.addresses.native) as other:
        committing = asyncio.ensure_future(client.call(commit("g", "a", 7)))
        creating = asyncio.ensure_future(other.call(create_topic("b")))
        await until(lambda: log.recovery_point == 3)
        assert not committing.done()
        assert not creating.done()
        async with wire(broker.addresses.native) as third:
            assert await held(third, "g") == {}
            names = [each.name for each in (await third.call(MetadataRequest(topics=None))).topics]
            assert names == ["a"]
            again = asyncio.ensure_future(third.call(create_topic("b")))
            log.hold_high_watermark(None)
            assert result(await committing).error_code == 0
            assert (await creating).topics[0].error_code == 0
            assert (await again).topics[0].error_code == 36
    assert await held(client, "g") == {"a": 7}


async def test_who_leads_no_more_answers_all_who_wait(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a"))
    store = broker.services.metadata
    assert isinstance(store, MetadataStore)
    log = store.metadata.log
    log.hold_high_watermark(log.log_end_offset)
    committing = asyncio.ensure_future(client.call(commit("g", "a", 7)))
    await until(lambda: log.recovery_point == 2)
    store.leads_no_more(NotCoordinator("another broker leads"))
    assert result(await committing).error_code == NotCoordinator.code
    store.leads()
    assert result(await client.call(commit("g", "a", 7))).error_code == NotCoordinator.code
    log.hold_high_watermark(None)
    assert result(await client.call(commit("g", "a", 8))).error_code == 0
    assert await held(client, "g") == {"a": 8}


async def test_positions_of_groups_expire_on_all_brokers_alike(
    broker: Broker, client: Wire
) -> None:
    """A record says it: followers expire nothing by their own clock."""
    await client.call(create_topic("a"))
    async with wire(str(broker.addresses.kafka), encoding=kafka_frames) as own:
        assert result(await own.call(commit("g", "a", 5))).error_code == 0
    assert result(await client.call(commit("kept", "a", 5))).error_code == 0
    store, now_ms = broker.services.metadata, broker.clock.now_ms()
    committed = broker.directory.committed
    await store.positions.used("g", now_ms + 5000)
    await store.positions.used("kept", now_ms + 5000)
    assert committed.last_used_ms("g") == now_ms + 5000
    assert committed.last_used_ms("kept") < now_ms + 5000
    assert await store.positions.expire("g", 1000, now_ms + 5999) == 0
    assert await store.positions.expire("g", 1000, now_ms + 6000) == 1
    assert await store.positions.expire("kept", 1000, now_ms + 10**9) == 0
    assert (await held(client, "g"), await held(client, "kept")) == ({}, {"a": 5})


async def test_a_group_that_commits_does_not_expire(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a"))
    async with wire(str(broker.addresses.kafka), encoding=kafka_frames) as own:
        await own.call(commit("g", "a", 5))
        log = broker.directory.metadata.log
        log.hold_high_watermark(log.log_end_offset)
        committing = asyncio.ensure_future(own.call(commit("g", "a", 6)))
        await until(lambda: log.log_end_offset == 3)
        expiring = broker.services.metadata.positions.expire(
            "g", 1000, broker.clock.now_ms() + 10**9
        )
        assert await expiring == 0
        log.hold_high_watermark(None)
        assert result(await committing).error_code == 0
    assert await held(client, "g") == {"a": 6}


async def test_commits_on_their_way_count_for_the_limit(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "data", max_positions_bytes=1500) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a"))
        log = broker.directory.metadata.log
        log.hold_high_watermark(log.log_end_offset)
        async with wire(broker.addresses.native) as other:
            first = asyncio.ensure_future(client.call(commit("g1", "a", 5)))
            second = asyncio.ensure_future(other.call(commit("g2", "a", 5)))
            await until(lambda: log.log_end_offset == 3)
            async with wire(broker.addresses.native) as third:
                refused = result(await third.call(commit("g3", "a", 5)))
            assert refused.error_code == 28
            log.hold_high_watermark(None)
            assert result(await first).error_code == result(await second).error_code == 0


async def test_many_commits_do_not_make_the_log_grow(tmp_path: Path) -> None:
    path, files, text = tmp_path / "data", QuickFiles(), "x" * 4000
    async with running_broker(path, files=files) as broker, wire(broker.addresses.native) as own:
        await own.call(create_topic("a"))
        metadata = broker.directory.metadata
        assert metadata is not None
        metadata.min_log_bytes = 200_000
        for number in range(1500):
            partition = OffsetCommitPartition(
                partition=0, committed_offset=number, committed_metadata=text
            )
            topics = [OffsetCommitTopic(name="a", partitions=[partition])]
            await own.call(OffsetCommitRequest(group_id="g", topics=topics))
        # The state is written beside the commits, and may be behind them.
        await until(lambda: metadata.log.log_start_offset > 1000)
        await until(lambda: metadata.log.size_bytes < 2_200_000)
        assert (path / "metadata-log" / "state").stat().st_size < 10_000
        assert await held(own, "g") == {"a": 1499}
    async with running_broker(path, files=files) as broker, wire(broker.addresses.native) as own:
        assert await held(own, "g") == {"a": 1499}


async def test_clients_of_kafka_find_all_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "data"
    async with running_broker(path, **PORTS) as broker:
        await asyncio.to_thread(confluent_in, str(broker.addresses.kafka), 0)
    async with running_broker(path, **PORTS) as broker:
        await asyncio.to_thread(confluent_in, str(broker.addresses.kafka), 10)
        await asyncio.to_thread(kafka_python_in, broker.addresses.kafka)


def confluent_in(address: str, first: int) -> None:
    """Ten messages to two partitions, read by a group that goes on where it was."""
    place: dict[str, str | int | float | bool] = {"bootstrap.servers": address}
    admin = AdminClient(place)
    if not first:
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
        admin.create_partitions([NewPartitions("t", 2)])["t"].result(20)
    assert set(admin.list_topics(timeout=20).topics) == {"t"}
    producer = confluent_kafka.Producer(place | {"acks": "all"})
    for number in range(first, first + 10):
        producer.produce("t", b"%d" % number, partition=number % 2)
    assert producer.flush(20) == 0
    consumer = confluent_kafka.Consumer(
        place | {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    try:
        consumer.subscribe(["t"])
        found = {int(each.value()) for each in polled(consumer, 10)}
        assert found == set(range(first, first + 10))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def polled(consumer: Any, count: int) -> Iterator[Any]:
    found = 0
    while found < count:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        found += 1
        yield message


def kafka_python_in(address: str | None) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, group_id="g")
    try:
        positions = [consumer.committed(kafka.TopicPartition("t", each)) for each in (0, 1)]
    finally:
        consumer.close()
    assert positions == [10, 10]


# What no request sees.


def filled(struct: type[Any], version: int, *, native: bool) -> Any:
    """A message whose every text is the metadata log's name, and every number 0 or 1."""
    found = {}
    for spec in fields_of(struct, version, native=native):
        found[spec.name] = filled_field(spec.name, spec.type, version, native=native)
    return struct(**found)


def filled_field(name: str, kind: Any, version: int, *, native: bool) -> Any:
    match kind:
        case Integer():
            large = ("timeout", "max_", "bytes", "retention")
            return 1000 if any(word in name for word in large) else int("replication" in name)
        case Float():
            return 1000.0
        case Boolean():
            return False
        case Text():
            return "" if name == "listing" else METADATA_TOPIC
        case Records():
            return message_set(NOW)
        case Data():
            return b""
        case Array(of=of):
            if isinstance(of, type):
                return [filled(of, version, native=native)]
            return [filled_field(name, of, version, native=native)]
    raise AssertionError(kind)


def versions(frames: Encoding) -> list[tuple[Api, int]]:
    native = frames is native_frames
    return [(api, version) for api in APIS.values() for version in api.versions(native=native)]


@pytest.mark.parametrize("frames", [native_frames, kafka_frames], ids=["native", "kafka"])
async def test_no_request_finds_or_changes_the_log(broker: Broker, frames: Encoding) -> None:
    """Fetch, produce, list, describe, trim, commit, create, alter, delete: every request of either
    protocol in every version, with the log's name wherever a text can stand."""
    metadata = broker.directory.metadata
    assert metadata is not None
    async with wire(broker.addresses.native) as client:
        await client.call(create_topic("a"))
    before = (metadata.log.log_start_offset, metadata.log.log_end_offset)
    native = frames is native_frames
    address = broker.addresses.native if native else broker.addresses.kafka
    assert address is not None
    asked = 0
    for api, version in versions(frames):
        body = filled(api.request, version, native=native)
        if api is PRODUCE:
            body.acks = 1
        async with wire(address, encoding=frames) as client:
            asked += 1
            try:
                answer = await client.call(body, version)
            except CodedError:
                continue
            if api is OFFSET_FETCH:
                assert result(answer).timestamp_ms == -1  # not known
            else:
                assert 0 not in codes(answer, about=False), (api.name, version, answer)
        assert (metadata.log.log_start_offset, metadata.log.log_end_offset) == before, api.name
        assert broker.directory.topics().keys() == {"a"}, api.name
        assert len(broker.directory.committed) == 0
    assert asked > 20
    assert broker.directory.metadata is metadata


def codes(answer: Any, *, about: bool) -> Iterator[int]:
    """The error codes of what an answer says about a topic with the log's name."""
    if isinstance(answer, list):
        for each in answer:
            yield from codes(each, about=about)
    elif hasattr(answer, "__struct_fields__"):
        names = answer.__struct_fields__
        own = [
            getattr(answer, name) for name in ("name", "topic", "resource_name") if name in names
        ]
        topic = METADATA_TOPIC in own and "Group" not in type(answer).__name__
        if "error_code" in names and (about or topic):
            yield answer.error_code
        for name in names:
            yield from codes(getattr(answer, name), about=about or topic)


async def test_it_is_in_no_list(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a"))
    listed = await client.call(MetadataRequest(topics=None))
    assert [each.name for each in listed.topics] == ["a"]
    assert [name for name, _ in broker.directory.partitions()] == ["a"]
    assert [log.topic for log in broker.directory.open_logs() if log.topic != "a"] == []
    assert METADATA_TOPIC not in broker.metrics_text().decode()
