"""Requests that name a setting, a topic or a partition more than once: nothing is done about it."""

import pytest

from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from horolog.protocol.api.log.describe_log import DescribeLogRequest, DescribeLogTopic
from horolog.protocol.api.log.offset_for_leader_epoch import (
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochTopic,
)
from horolog.protocol.api.topics.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from horolog.protocol.api.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from horolog.protocol.api.topics.describe_configs import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from horolog.protocol.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from horolog.server.broker import Broker
from horolog.testing.requests import create_topic, message_set, produce
from horolog.testing.wire import Wire

OWN, KAFKAS = "max.message.time.difference.ms", "message.timestamp.difference.max.ms"


def resource(topic: str, *configs: tuple[str, str | None]) -> AlterConfigsResource:
    named = [AlterableConfig(name=name, value=value) for name, value in configs]
    return AlterConfigsResource(resource_name=topic, configs=named)


@pytest.fixture(params=["kafka", "own"])
def speaker(request: pytest.FixtureRequest, client: Wire, own_client: Wire) -> Wire:
    """A client of each encoding."""
    return client if request.param == "kafka" else own_client


@pytest.mark.parametrize(
    ("speaker", "incremental"),
    [("kafka", False), ("own", False), ("own", True)],
    indirect=["speaker"],
)
@pytest.mark.parametrize(
    ("configs", "error", "named"),
    [
        ([("retention.ms", "5"), ("retention.ms", "5")], InvalidRequest, "retention.ms"),
        ([("retention.ms", "5"), ("retention.ms", "6")], InvalidRequest, "retention.ms"),
        ([("retention.ms", None), ("retention.ms", "5")], InvalidRequest, "retention.ms"),
        ([("retention.ms", None), ("retention.ms", None)], InvalidRequest, "retention.ms"),
        ([(OWN, "5"), (KAFKAS, None)], InvalidRequest, OWN),
        ([(KAFKAS, None), (OWN, "5")], InvalidRequest, OWN),
        ([(KAFKAS, "6"), (OWN, "5")], InvalidConfig, KAFKAS),
    ],
)
async def test_a_setting(
    broker: Broker,
    client: Wire,
    speaker: Wire,
    configs: list[tuple[str, str | None]],
    error: type[InvalidRequest | InvalidConfig],
    named: str,
    incremental: bool,
) -> None:
    """Kafka answers 42 as well: "Error due to duplicate config keys"."""
    for topic in ("a", "b"):
        await client.call(create_topic(topic, segment_ms=7), 0)
    wanted = [resource("a", ("segment.ms", "9"), *configs), resource("b", ("segment.ms", "8"))]
    request = AlterConfigsRequest(resources=wanted, incremental=incremental)
    refused, made = (await speaker.call(request)).responses
    assert refused.error_code == error.code
    assert named in refused.error_message
    assert made.error_code == 0
    standing = {name: one.overrides for name, one in broker.directory.topics().items()}
    assert standing == {"a": {"segment.ms": "7"}, "b": {"segment.ms": "8"}}


async def test_a_setting_under_two_names_that_agree(
    broker: Broker, client: Wire, speaker: Wire
) -> None:
    await client.call(create_topic("a"), 0)
    request = AlterConfigsRequest(resources=[resource("a", (OWN, "5"), (KAFKAS, "5"))])
    (made,) = (await speaker.call(request)).responses
    assert made.error_code == 0
    request = AlterConfigsRequest(resources=[resource("a", (OWN, None), (KAFKAS, None))])
    (made,) = (await speaker.call(request)).responses
    assert made.error_code == 0
    assert not broker.directory.topics()["a"].overrides


async def test_a_topic(broker: Broker, client: Wire, speaker: Wire) -> None:
    for topic in ("a", "b"):
        await client.call(create_topic(topic), 0)
    wanted = [
        resource("a", ("retention.ms", "5")),
        resource("b", ("retention.ms", "5")),
        resource("a", ("segment.ms", "6")),
    ]
    answers = (await speaker.call(AlterConfigsRequest(resources=wanted))).responses
    assert {one.resource_name: one.error_code for one in answers} == {
        "a": InvalidRequest.code,
        "b": 0,
    }
    assert "'a' 2 times" in answers[0].error_message
    assert {name: one.overrides for name, one in broker.directory.topics().items()} == {
        "a": {},
        "b": {"retention.ms": "5"},
    }


async def test_a_partition_to_delete_records_of(
    broker: Broker, client: Wire, speaker: Wire
) -> None:
    """Nothing of it is deleted; the others of its topic are trimmed."""
    await client.call(create_topic("a", partitions=3), 0)
    for partition in range(3):
        await client.call(produce("a", message_set(1, 2, 3), partition=partition), 2)
    named = [DeleteRecordsPartition(partition=number, offset=2) for number in (1, 0, 1, 1)]
    topics = [
        DeleteRecordsTopic(name="a", partitions=named),
        DeleteRecordsTopic(
            name="a", partitions=[DeleteRecordsPartition(partition=2, offset=1)] * 2
        ),
    ]
    response = await speaker.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 0)
    answered = [
        (topic.name, one.partition, one.error_code)
        for topic in response.topics
        for one in topic.partitions
    ]
    twice = InvalidRequest.code
    assert answered == [("a", 1, twice), ("a", 0, 0), ("a", 2, twice)]
    starts = [broker.services.logs.find("a", number).log_start_offset for number in range(3)]
    assert starts == [2, 0, 0]


async def test_a_partition_whose_epoch_is_asked_for(client: Wire) -> None:
    await client.call(create_topic("a", partitions=2), 0)
    named = [
        OffsetForLeaderEpochPartition(partition=number, leader_epoch=0) for number in (0, 1, 0)
    ]
    topics = [OffsetForLeaderEpochTopic(name="a", partitions=named)]
    response = await client.call(OffsetForLeaderEpochRequest(topics=topics), 0)
    answered = [
        (one.partition, one.error_code) for topic in response.topics for one in topic.partitions
    ]
    assert answered == [(1, 0), (0, InvalidRequest.code)]


async def test_a_partition_to_describe(own_client: Wire) -> None:
    """Its segments are not listed a hundred thousand times."""
    await own_client.call(create_topic("a", partitions=2))
    topics = [DescribeLogTopic(name="a", partitions=[0] * 1000 + [1])]
    response = await own_client.call(DescribeLogRequest(topics=topics))
    (described,), (refused,) = (topic.partitions for topic in response.topics)
    assert (described.partition, described.error_code) == (1, 0)
    assert (refused.partition, refused.error_code) == (0, InvalidRequest.code)
    assert refused.segments == []
    topics = [DescribeLogTopic(name="a", partitions=[0] * 1000)]
    response = await own_client.call(DescribeLogRequest(topics=topics))
    ((refused,),) = (topic.partitions for topic in response.topics)
    assert "more than once" in refused.error_message


async def test_a_position_that_is_asked_for(client: Wire, speaker: Wire) -> None:
    """It is answered once: what it says of its text is as long as that."""
    await client.call(create_topic("a", partitions=2), 0)
    position = OffsetCommitPartition(partition=0, committed_offset=5, committed_metadata="x" * 500)
    topic = OffsetCommitTopic(name="a", partitions=[position])
    await client.call(OffsetCommitRequest(group_id="g", topics=[topic]), 2)
    named = [OffsetFetchTopic(name="a", partitions=partitions) for partitions in ([0, 0, 1], [1])]
    version = None if speaker is not client else 1
    response = await speaker.call(OffsetFetchRequest(group_id="g", topics=named), version)
    answered = [
        (one.partition, one.committed_offset)
        for topic in response.topics
        for one in topic.partitions
    ]
    assert answered == [(0, 5), (1, -1)]


async def test_settings_are_described_once(client: Wire, speaker: Wire) -> None:
    """With all that was asked about a resource in any place."""
    await client.call(create_topic("a"), 0)

    def asked(kind: int, name: str, *keys: str) -> DescribeConfigsResource:
        keys_or_all = list(keys) or None
        return DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys_or_all
        )

    request = DescribeConfigsRequest(
        resources=[
            asked(TOPIC_RESOURCE, "a", "retention.ms"),
            asked(BROKER_RESOURCE, "0", "max.topics"),
            asked(TOPIC_RESOURCE, "a", "segment.ms", "retention.ms"),
            *[asked(BROKER_RESOURCE, "0")] * 1000,
            asked(TOPIC_RESOURCE, "b"),
            asked(TOPIC_RESOURCE, "b", "segment.ms"),
        ]
    )
    topic, broker, absent = (await speaker.call(request)).results
    assert [config.name for config in topic.configs] == ["retention.ms", "segment.ms"]
    assert (broker.resource_type, broker.error_code) == (BROKER_RESOURCE, 0)
    assert {"max.topics", "max.partitions"} <= {config.name for config in broker.configs}
    assert (absent.resource_name, absent.error_code) == ("b", UnknownTopicOrPartition.code)
