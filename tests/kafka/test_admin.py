"""Admin requests on Kafka's port, in every version: what differs from the native ones."""

import pytest

from horolog.protocol.api.log.describe_log_dirs import DescribeLogDirsRequest
from horolog.protocol.api.log.init_producer_id import NO_PRODUCER_ID, InitProducerIdRequest
from horolog.protocol.api.topics.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from horolog.protocol.api.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from horolog.protocol.api.topics.create_topics import (
    CreatableAssignment,
    CreatableConfig,
    CreatableTopic,
    CreateTopicsRequest,
)
from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.api.topics.delete_topics import DeleteTopicsRequest
from horolog.protocol.api.topics.describe_configs import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribedConfig,
)
from horolog.protocol.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from horolog.server.broker import Broker
from horolog.testing.requests import create_topic, message_set, produce, result
from horolog.testing.wire import Wire

SET = message_set(1_500_000_000_000, 1_500_000_001_000)


@pytest.mark.parametrize("version", range(5))
async def test_creating_and_deleting_topics(broker: Broker, client: Wire, version: int) -> None:
    configs = [CreatableConfig(name="message.timestamp.difference.max.ms", value="5")]
    topics = [
        CreatableTopic(name="a", num_partitions=2, replication_factor=1, configs=configs),
        CreatableTopic(name="b", assignments=[CreatableAssignment(partition=0, broker_ids=[0])]),
        CreatableTopic(name="c", num_partitions=1, replication_factor=3),
    ]
    tried = CreateTopicsRequest(topics=topics, validate_only=True)
    codes = [0, 0, InvalidReplicationFactor.code]
    if version:
        answer = await client.call(tried, version)
        assert [each.error_code for each in answer.topics] == codes
        assert not broker.directory.topics()
    answer = await client.call(CreateTopicsRequest(topics=topics), version)
    assert [each.error_code for each in answer.topics] == codes
    assert (answer.topics[2].error_message is not None) == (version >= 1)
    made = broker.directory.topics()
    assert {name: entry.partitions for name, entry in made.items()} == {"a": 2, "b": 1}
    assert made["a"].overrides == {"max.message.time.difference.ms": "5"}
    answer = await client.call(DeleteTopicsRequest(topic_names=["a", "nowhere"]), min(version, 3))
    assert [each.error_code for each in answer.responses] == [0, UnknownTopicOrPartition.code]
    assert set(broker.directory.topics()) == {"b"}


@pytest.mark.parametrize("version", range(5))
async def test_what_a_topic_leaves_out_the_broker_chooses(
    broker: Broker, client: Wire, version: int
) -> None:
    topics = [
        CreatableTopic(name="none"),
        CreatableTopic(name="partitions", num_partitions=3),
        CreatableTopic(name="replicas", replication_factor=1),
    ]
    answer = await client.call(CreateTopicsRequest(topics=topics), version)
    assert [each.error_code for each in answer.topics] == [0, 0, 0]
    made = broker.directory.topics()
    assert {name: entry.partitions for name, entry in made.items()} == {
        "none": 1,
        "partitions": 3,
        "replicas": 1,
    }


@pytest.mark.parametrize("version", range(2))
async def test_partitions_are_added_trimmed_and_measured(
    broker: Broker, client: Wire, version: int
) -> None:
    await client.call(produce("a", SET), 2)
    raising = [CreatePartitionsTopic(name="a", count=count) for count in (3,)]
    answer = await client.call(CreatePartitionsRequest(topics=raising), version)
    assert [each.error_code for each in answer.results] == [0]
    again = await client.call(CreatePartitionsRequest(topics=raising), version)
    assert again.results[0].error_code == InvalidPartitions.code
    assert "3 partitions" in again.results[0].error_message
    partitions = [
        DeleteRecordsPartition(partition=partition, offset=offset)
        for partition, offset in ((0, 1), (1, 1), (7, 0))
    ]
    trimming = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="a", partitions=partitions)])
    answer = await client.call(trimming, version)
    assert [(each.low_watermark, each.error_code) for each in answer.topics[0].partitions] == [
        (1, 0),
        (-1, OffsetOutOfRange.code),
        (-1, UnknownTopicOrPartition.code),
    ]
    answer = await client.call(DescribeLogDirsRequest(), version)
    (directory,) = answer.results
    assert directory.log_dir == str(broker.settings.data_dir)
    sizes = [each.size_bytes for each in directory.topics[0].partitions]
    assert sizes == [len(SET), 0, 0]


async def configs(
    client: Wire, version: int, kind: int, name: str, *keys: str, synonyms: bool = False
) -> dict[str, DescribedConfig]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
    (got,) = (await client.call(request, version)).results
    assert got.error_code == 0
    return {each.name: each for each in got.configs}


async def test_settings_of_all_brokers_at_once(client: Wire) -> None:
    """Kafka keeps such settings, and its tools ask for them under an empty name."""
    assert await configs(client, 2, BROKER_RESOURCE, "") == {}


@pytest.mark.parametrize("version", range(3))
async def test_settings_of_a_topic(client: Wire, version: int) -> None:
    await client.call(create_topic("a", max_message_time_difference_ms=5))
    difference = "message.timestamp.difference.max.ms"
    found = await configs(client, version, TOPIC_RESOURCE, "a", difference, "segment.ms", "x.y")
    # Kafka's clients look for the name that they asked for.
    assert set(found) == {difference, "segment.ms"}
    assert (found[difference].value, found[difference].read_only) == ("5", False)
    if version == 0:
        assert [found[difference].is_default, found["segment.ms"].is_default] == [False, True]
    else:
        sources = [found[difference].config_source, found["segment.ms"].config_source]
        assert sources == [1, 5]
    everything = await configs(client, version, TOPIC_RESOURCE, "a")
    own = "max.message.time.difference.ms"
    assert (everything[own].value, everything[difference].value) == ("5", "5")
    both = await configs(client, version, TOPIC_RESOURCE, "a", own, difference)
    assert set(both) == {own, difference}
    if version:
        told = await configs(client, version, TOPIC_RESOURCE, "a", "retention.ms", synonyms=True)
        synonyms = told["retention.ms"].synonyms
        assert [(each.name, each.value, each.source) for each in synonyms] == [
            ("log.retention.ms", "-1", 4),
            ("log.retention.ms", "604800000", 5),
        ]


@pytest.mark.parametrize("version", range(1, 3))
async def test_settings_of_the_broker_have_kafkas_names(
    broker: Broker, client: Wire, version: int
) -> None:
    found = await configs(client, version, BROKER_RESOURCE, "0")
    assert all(config.read_only for config in found.values())
    assert found["broker.id"].value == "0"
    assert found["log.dir"].value == str(broker.settings.data_dir)
    assert (found["log.retention.ms"].value, found["log.retention.ms"].config_source) == ("-1", 4)
    assert (found["message.max.bytes"].value, found["message.max.bytes"].config_source) == (
        "1000012",
        5,
    )
    assert found["log.message.timestamp.type"].value == "CreateTime"
    asked = await configs(client, version, BROKER_RESOURCE, "0", "retention.ms", "log.dir")
    assert set(asked) == {"retention.ms", "log.dir"}


@pytest.mark.parametrize("version", range(2))
async def test_altering_replaces_all_settings(broker: Broker, client: Wire, version: int) -> None:
    await client.call(create_topic("a", retention_ms=5, segment_ms=9))

    async def alter(kind: int, name: str, **settings: str | None) -> tuple[int, str | None]:
        given = [
            AlterableConfig(name=setting.replace("_", "."), value=value)
            for setting, value in settings.items()
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=given)
        answer = await client.call(AlterConfigsRequest(resources=[resource]), version)
        (got,) = answer.responses
        return got.error_code, got.error_message

    assert await alter(TOPIC_RESOURCE, "a", retention_ms="7", segment_bytes=None) == (0, None)
    assert broker.directory.topics()["a"].overrides == {"retention.ms": "7"}
    code, message = await alter(BROKER_RESOURCE, "0", log_retention_ms="7")
    assert code == InvalidRequest.code
    assert message is not None
    assert "restart" in message
    assert await alter(TOPIC_RESOURCE, "a") == (0, None)
    assert not broker.directory.topics()["a"].overrides


@pytest.mark.parametrize("version", range(2))
async def test_a_name_that_repeats_what_stands_gives_way_to_the_other(
    broker: Broker, client: Wire, version: int
) -> None:
    """As from clients that add everything they have read of the topic."""
    await client.call(create_topic("a", max_message_time_difference_ms=5))

    async def alter(own: str, kafkas: str) -> int:
        names = ("max.message.time.difference.ms", "message.timestamp.difference.max.ms")
        given = [
            AlterableConfig(name=name, value=value)
            for name, value in zip(names, (own, kafkas), strict=True)
        ]
        resource = AlterConfigsResource(resource_name="a", configs=given)
        (got,) = (await client.call(AlterConfigsRequest(resources=[resource]), version)).responses
        code: int = got.error_code
        return code

    def stands() -> str:
        return broker.directory.topics()["a"].overrides["max.message.time.difference.ms"]

    assert (await alter("5", "6"), stands()) == (0, "6")
    assert (await alter("7", "6"), stands()) == (0, "7")
    assert (await alter("7", "7"), stands()) == (0, "7")
    assert (await alter("8", "9"), stands()) == (InvalidConfig.code, "7")


@pytest.mark.parametrize("version", range(2))
async def test_producer_ids(client: Wire, version: int) -> None:
    first = await client.call(InitProducerIdRequest(), version)
    second = await client.call(InitProducerIdRequest(), version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert second.producer_id == first.producer_id + 1
    refused = await client.call(InitProducerIdRequest(transactional_id="orders"), version)
    assert refused.error_code == UnsupportedVersion.code
    assert refused.producer_id == NO_PRODUCER_ID
    assert result(await client.call(produce("a", SET), 2)).error_code == 0


async def test_min_insync_replicas_is_a_setting_of_topics(client: Wire) -> None:
    await client.call(create_topic("a"))
    assert result(await client.call(produce("a", SET, acks=-1))).error_code == 0
    for value, source, code in (("2", 1, 19), ("1", 1, 0)):
        config = [AlterableConfig(name="min.insync.replicas", value=value)]
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name="a", configs=config
        )
        answer = await client.call(AlterConfigsRequest(resources=[resource]))
        assert [each.error_code for each in answer.responses] == [0]
        found = (await configs(client, 2, TOPIC_RESOURCE, "a"))["min.insync.replicas"]
        assert (found.value, found.config_source, found.read_only) == (value, source, False)
        # A broker that is alone is one replica, as in Kafka.
        assert result(await client.call(produce("a", SET, acks=-1))).error_code == code
        assert result(await client.call(produce("a", SET, acks=1))).error_code == 0
