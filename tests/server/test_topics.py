"""Topics and settings over the wire: metadata, create, delete, describe, alter."""

import gc
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.api.log.describe_log import DescribeLogRequest, DescribeLogTopic
from horolog.protocol.api.topics.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from horolog.protocol.api.topics.create_topics import (
    CreatableAssignment,
    CreatableConfig,
    CreatableTopic,
    CreateTopicsRequest,
)
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.describe_configs import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.errors import (
    CodedError,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTimestamp,
    InvalidTopic,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from horolog.server.broker import Broker
from horolog.storage.stepped_change import SteppedChange
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.requests import create_topic, fetch, message_set, produce, result
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()


async def test_metadata_of_everything(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("b", partitions=3))
    await client.call(create_topic("a"))
    response = await client.call(MetadataRequest())
    (node,) = response.brokers
    assert f"{node.host}:{node.port}" == broker.addresses.native
    assert {topic.name: len(topic.partitions) for topic in response.topics} == {"a": 1, "b": 3}
    for topic in response.topics:
        assert topic.error_code == 0
        for number, partition in enumerate(topic.partitions):
            assert (partition.partition, partition.error_code) == (number, 0)
            assert partition.leader_id == node.node_id
            assert partition.replica_nodes == partition.isr_nodes == [node.node_id]


async def metadata(client: Wire, *names: str, create: bool = True) -> list[tuple[str, int, int]]:
    """(name, error code, number of partitions)."""
    request = MetadataRequest(
        topics=[MetadataTopic(name=name) for name in names], allow_auto_topic_creation=create
    )
    response = await client.call(request)
    return [(topic.name, topic.error_code, len(topic.partitions)) for topic in response.topics]


async def test_metadata_creates_what_is_asked_about(tmp_path: Path) -> None:
    """Decision 31."""
    async with (
        running_broker(tmp_path, http_listen="off", num_partitions=2) as broker,
        wire(broker.addresses.native) as client,
    ):
        unknown = UnknownTopicOrPartition.code
        assert await metadata(client, "a", create=False) == [("a", unknown, 0)]
        assert not broker.directory.topics()
        assert await metadata(client, "b", "bad/name", "b") == [
            ("b", 0, 2),
            ("bad/name", InvalidTopic.code, 0),
        ]
        assert set(broker.directory.topics()) == {"b"}


async def test_metadata_creates_nothing_when_that_is_off(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, http_listen="off", auto_create_topics_enable=False) as broker,
        wire(broker.addresses.native) as client,
    ):
        assert await metadata(client, "a") == [("a", UnknownTopicOrPartition.code, 0)]
        assert not broker.directory.topics()


def assigned(*partitions: tuple[int, list[int]]) -> list[CreatableAssignment]:
    return [CreatableAssignment(partition=number, broker_ids=ids) for number, ids in partitions]


def config(name: str, value: str | None) -> CreatableConfig:
    return CreatableConfig(name=name, value=value)


@pytest.mark.parametrize(
    ("topic", "error", "words"),
    [
        pytest.param(CreatableTopic(name="there"), TopicAlreadyExists, "there", id="36"),
        pytest.param(CreatableTopic(name="x", num_partitions=0), InvalidPartitions, "0", id="37"),
        pytest.param(
            CreatableTopic(name="x", num_partitions=1_000_000),
            InvalidPartitions,
            "max.partitions",
            id="37-too-many",
        ),
        pytest.param(
            CreatableTopic(name="x", replication_factor=3),
            InvalidReplicationFactor,
            "3",
            id="38",
        ),
        pytest.param(
            CreatableTopic(name="x", assignments=assigned((0, [1]))),
            InvalidReplicaAssignment,
            "broker",
            id="39-unknown-broker",
        ),
        pytest.param(
            CreatableTopic(name="x", assignments=assigned((1, [0]))),
            InvalidReplicaAssignment,
            "partitions 0 to 0",
            id="39-gap",
        ),
        pytest.param(
            CreatableTopic(name="x", num_partitions=1, assignments=assigned((0, [0]))),
            InvalidRequest,
            "num_partitions",
            id="42-both",
        ),
        pytest.param(
            CreatableTopic(name="x", configs=[config("retention.mx", "5")]),
            InvalidConfig,
            "retention.ms",
            id="40-unknown",
        ),
        pytest.param(
            CreatableTopic(name="x", configs=[config("segment.bytes", "1")]),
            InvalidConfig,
            "14",
            id="40-out-of-bounds",
        ),
        pytest.param(
            CreatableTopic(name="x", configs=[config("cleanup.policy", "keep")]),
            InvalidConfig,
            "delete, compact",
            id="40-unknown-policy",
        ),
        pytest.param(
            CreatableTopic(name="x", configs=[config("retention.ms", None)]),
            InvalidConfig,
            "retention.ms",
            id="40-no-value",
        ),
        pytest.param(
            CreatableTopic(name="x", configs=[config("retention.ms", "1")] * 2),
            InvalidRequest,
            "more than once",
            id="42-setting-twice",
        ),
        pytest.param(CreatableTopic(name="x/y"), InvalidTopic, "x/y", id="17"),
    ],
)
async def test_a_refused_topic_says_why_and_the_others_are_made(
    broker: Broker, client: Wire, topic: CreatableTopic, error: type[CodedError], words: str
) -> None:
    await client.call(create_topic("there"))
    request = CreateTopicsRequest(topics=[topic, CreatableTopic(name="good")])
    refused, made = (await client.call(request)).topics
    assert (refused.name, refused.error_code) == (topic.name, error.code)
    assert words in refused.error_message
    assert (made.name, made.error_code) == ("good", 0)
    assert set(broker.directory.topics()) == {"there", "good"}


async def test_creating_with_all_there_is(broker: Broker, client: Wire) -> None:
    topics = [
        CreatableTopic(name="plain"),
        CreatableTopic(name="assigned", assignments=assigned((1, [0]), (0, [0]))),
        CreatableTopic(
            name="set",
            num_partitions=3,
            replication_factor=1,
            configs=[config("message.timestamp.difference.max.ms", "5")],
        ),
    ]
    response = await client.call(CreateTopicsRequest(topics=topics))
    assert [topic.error_code for topic in response.topics] == [0, 0, 0]
    entries = broker.directory.topics()
    assert {name: entry.partitions for name, entry in entries.items()} == {
        "plain": 1,
        "assigned": 2,
        "set": 3,
    }
    assert entries["set"].overrides == {"max.message.time.difference.ms": "5"}


async def test_a_topic_named_twice_is_not_made(broker: Broker, client: Wire) -> None:
    twice = [CreatableTopic(name="x"), CreatableTopic(name="x")]
    (got,) = (await client.call(CreateTopicsRequest(topics=twice))).topics
    assert got.error_code == InvalidRequest.code
    assert not broker.directory.topics()


async def test_deleting(broker: Broker, client: Wire) -> None:
    await client.call(produce("a", message_set(NOW)))
    await client.call(produce("b", message_set(NOW)))
    response = await client.call(DeleteTopicsRequest(topic_names=["a", "nowhere", "a"]))
    assert [(each.name, each.error_code) for each in response.responses] == [
        ("a", 0),
        ("nowhere", UnknownTopicOrPartition.code),
    ]
    assert await metadata(client, create=False) == [("b", 0, 1)]
    assert set(broker.figures.topics) == {"b"}
    assert b'topic="a"' not in broker.metrics_text()


async def test_a_topic_made_again_begins_anew(client: Wire) -> None:
    await client.call(produce("a", message_set(NOW, NOW)))
    await client.call(DeleteTopicsRequest(topic_names=["a"]))
    assert result(await client.call(produce("a", message_set(NOW)))).base_offset == 0
    got = result(await client.call(fetch("a", (0, 0))))
    assert got.high_watermark == 1


async def test_deleted_files_go_when_their_time_is_over(
    broker: Broker, client: Wire, clock: ManualClock
) -> None:
    await client.call(create_topic("a", file_delete_delay_ms=1000))
    await client.call(DeleteTopicsRequest(topic_names=["a"]))
    folder = broker.settings.data_dir
    assert len(list(folder.glob("*.deleted*")) + list(folder.glob("*deleted*"))) > 0
    clock.advance(1001)
    await broker.maintenance.tasks["deletion"].run_now()
    assert not list(folder.glob("*deleted*"))


async def described(
    client: Wire, name: str, *keys: str, kind: int = TOPIC_RESOURCE
) -> dict[str, tuple[str, str]]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    (got,) = (await client.call(DescribeConfigsRequest(resources=[resource]))).results
    assert got.error_code == 0
    numbers = {"topic": 1, "broker": 4, "default": 5}
    assert all(each.config_source == numbers[each.source] for each in got.configs)
    return {each.name: (each.value, each.source) for each in got.configs}


async def test_describing_tells_where_a_setting_comes_from(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, http_listen="off", segment_bytes=1000) as broker,
        wire(broker.addresses.native) as client,
    ):
        await client.call(create_topic("a", retention_ms=5))
        settings = await described(client, "a")
        assert settings["retention.ms"] == ("5", "topic")
        assert settings["segment.bytes"] == ("1000", "broker")
        assert settings["compression.type"] == ("producer", "default")
        assert await described(client, "a", "retention.ms", "nonsense") == {
            "retention.ms": ("5", "topic")
        }
        by_alias = await described(client, "a", "message.timestamp.difference.max.ms")
        assert set(by_alias) == {"max.message.time.difference.ms"}
        of_broker = await described(client, "0", kind=BROKER_RESOURCE)
        assert of_broker["http.listen"] == ("off", "broker")
        assert of_broker["max.topics"][1] == "default"
        assert of_broker["segment.bytes"] == ("1000", "broker")


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC_RESOURCE, "nowhere", UnknownTopicOrPartition),
        (BROKER_RESOURCE, "7", InvalidRequest),
        (3, "a", InvalidRequest),
    ],
)
async def test_describing_what_is_not_there(
    client: Wire, kind: int, name: str, error: type[CodedError]
) -> None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name)
    (got,) = (await client.call(DescribeConfigsRequest(resources=[resource]))).results
    assert (got.error_code, got.configs) == (error.code, [])


async def alter(
    client: Wire,
    name: str,
    *,
    incremental: bool = True,
    validate_only: bool = False,
    kind: int = TOPIC_RESOURCE,
    **settings: str | None,
) -> tuple[int, str]:
    configs = [
        AlterableConfig(name=setting.replace("_", "."), value=value)
        for setting, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = AlterConfigsRequest(
        resources=[resource], incremental=incremental, validate_only=validate_only
    )
    (got,) = (await client.call(request)).responses
    return got.error_code, got.error_message


async def test_altering_incrementally_and_as_a_whole(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("a", retention_ms=5, segment_bytes=1000))

    def overrides() -> dict[str, str]:
        return dict(broker.directory.topics()["a"].overrides)

    assert (await alter(client, "a", retention_ms="7"))[0] == 0
    assert overrides() == {"retention.ms": "7", "segment.bytes": "1000"}
    assert (await alter(client, "a", segment_bytes=None, segment_ms="9"))[0] == 0
    assert overrides() == {"retention.ms": "7", "segment.ms": "9"}
    assert (await alter(client, "a", log_retention_ms=None))[0] == 0
    assert overrides() == {"segment.ms": "9"}
    assert (await alter(client, "a", incremental=False, retention_ms="3", segment_ms=None))[0] == 0
    assert overrides() == {"retention.ms": "3"}
    assert (await alter(client, "a", validate_only=True, retention_ms="4"))[0] == 0
    assert overrides() == {"retention.ms": "3"}


@pytest.mark.parametrize(
    ("name", "kind", "settings", "error"),
    [
        ("nowhere", TOPIC_RESOURCE, {"retention_ms": "5"}, UnknownTopicOrPartition),
        ("0", BROKER_RESOURCE, {"max_topics": "5"}, InvalidRequest),
        ("a", TOPIC_RESOURCE, {"retention_ms": "5", "segment_bytes": "0"}, InvalidConfig),
        ("a", TOPIC_RESOURCE, {"retention_ms": "5", "no_such": None}, InvalidConfig),
        ("a", TOPIC_RESOURCE, {"retention_ms": "5", "message_format_version": "2"}, InvalidConfig),
    ],
)
async def test_a_refused_change_changes_nothing(
    broker: Broker,
    client: Wire,
    name: str,
    kind: int,
    settings: dict[str, str | None],
    error: type[CodedError],
) -> None:
    await client.call(create_topic("a"))
    code, message = await alter(client, name, kind=kind, **settings)  # type: ignore[arg-type]
    assert code == error.code
    assert message
    assert not broker.directory.topics()["a"].overrides


async def test_a_change_holds_from_the_next_append(client: Wire) -> None:
    """C-3."""
    old = message_set(NOW - 5000)
    assert result(await client.call(produce("a", old))).error_code == 0
    await alter(client, "a", max_message_time_difference_ms="1000")
    assert result(await client.call(produce("a", old))).error_code == InvalidTimestamp.code
    await alter(client, "a", message_timestamp_type="LogAppendTime")
    assert result(await client.call(produce("a", old))).log_append_time_ms == NOW
    await alter(client, "a", message_timestamp_type=None, max_message_time_difference_ms=None)
    assert result(await client.call(produce("a", old))).log_append_time_ms == -1


async def test_a_change_holds_from_the_next_maintenance_pass(broker: Broker, client: Wire) -> None:
    """C-3."""
    await client.call(produce("a", message_set(NOW - 5000)))
    retention = broker.maintenance.tasks["retention"]
    await retention.run_now()
    assert broker.directory.log("a", 0).log_start_offset == 0
    await alter(client, "a", retention_ms="4999")
    await retention.run_now()
    assert broker.directory.log("a", 0).log_start_offset == 1


async def test_describing_a_log(client: Wire, clock: ManualClock) -> None:
    await client.call(create_topic("a", segment_bytes=2 * 39, retention_ms=1000))
    for time in (NOW - 10, NOW - 500, NOW - 20):
        await client.call(produce("a", message_set(time)))
    clock.advance(600)
    request = DescribeLogRequest(topics=[DescribeLogTopic(name="a", partitions=[0, 1])])
    (topic,) = (await client.call(request)).topics
    log, unknown = topic.partitions
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 3, 3)
    assert log.size_bytes == 3 * 39
    assert [
        (each.base_offset, each.next_offset, each.largest_timestamp_ms, each.active)
        for each in log.segments
    ] == [(0, 2, NOW - 10, False), (2, 3, NOW - 20, True)]
    assert [each.expires_ms for each in log.segments] == [NOW + 991, NOW + 981]
    assert all(each.verdict == "kept" and each.reason for each in log.segments)
    assert unknown.error_code == UnknownTopicOrPartition.code


def changes_there_are() -> list[SteppedChange[Any]]:
    return [one for one in gc.get_referrers(SteppedChange) if isinstance(one, SteppedChange)]


async def test_refused_changes_are_gone_without_the_garbage_collector(
    client: Wire, broker: Broker
) -> None:
    """Decision 51: of a request with thousands it would have to look through all of them."""
    refused = [CreatableTopic(name="there", num_partitions=1)]
    await client.call(CreateTopicsRequest(topics=refused))
    gc.collect()
    gc.disable()
    try:
        others = changes_there_are()  # Each broker of this process may have one.
        for _ in range(20):
            response = await client.call(CreateTopicsRequest(topics=refused))
            assert response.topics[0].error_code == TopicAlreadyExists.code
        left = [one for one in changes_there_are() if not any(one is each for each in others)]
        assert len(left) <= 1, "the last one may wait for the next change"
    finally:
        gc.enable()
