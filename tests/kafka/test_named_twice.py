"""Requests that name a setting, or a topic, more than once: refused, and nothing is altered."""

import pytest

from horolog.protocol.api.topics.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from horolog.protocol.api.topics.describe_configs import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from horolog.protocol.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from horolog.server.broker import Broker
from horolog.testing.requests import create_topic
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
