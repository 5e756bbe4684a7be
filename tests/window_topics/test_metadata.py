"""Metadata and settings of many windows of one topic: their memory is counted and bounded."""

import pytest

from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.topics.describe_configs import (
    TOPIC_RESOURCE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from horolog.protocol.api.topics.metadata import METADATA, MetadataRequest, MetadataTopic
from horolog.protocol.errors import InvalidRequest
from horolog.server.broker import Broker
from horolog.server.handlers import metadata, settings
from horolog.server.weights import weight_of
from horolog.testing.requests import create_topic
from horolog.testing.wire import Wire

AT_14 = 1_479_132_000_000
PARTITIONS, WINDOWS = 40, 50


def windows(topic: str, count: int) -> MetadataRequest:
    names = [f"{topic}..{AT_14 + number}..1h" for number in range(count)]
    return MetadataRequest(topics=[MetadataTopic(name=name) for name in names])


async def test_the_partitions_of_windows_are_counted(broker: Broker, client: Wire) -> None:
    await client.call(create_topic("wide", PARTITIONS), 3)
    version = METADATA.last_version(native=kafka.NATIVE)
    weight = weight_of(METADATA.key, version, kafka.NATIVE)
    one, many = (
        weight.of_request(broker.services, windows("wide", count), version)
        for count in (1, WINDOWS)
    )
    absent = weight.of_request(broker.services, windows("absent", WINDOWS), version)
    assert one > PARTITIONS * 100
    assert many - absent > WINDOWS * PARTITIONS * 100


async def test_an_answer_lists_a_bounded_number_of_partitions_of_windows(
    broker: Broker, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call(create_topic("wide", PARTITIONS), 3)
    monkeypatch.setattr(metadata, "MAX_WINDOW_PARTITIONS", 3 * PARTITIONS + 1)
    answer = await client.call(windows("wide", WINDOWS), 7)
    listed = [topic for topic in answer.topics if not topic.error_code]
    refused = [topic for topic in answer.topics if topic.error_code]
    assert [len(topic.partitions) for topic in listed] == 3 * [PARTITIONS]
    assert len(refused) == WINDOWS - 3
    assert {topic.error_code for topic in refused} == {InvalidRequest.code}


async def test_one_window_is_listed_however_many_partitions_it_has(
    broker: Broker, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call(create_topic("wide", PARTITIONS), 3)
    monkeypatch.setattr(metadata, "MAX_WINDOW_PARTITIONS", PARTITIONS - 1)
    (topic,) = (await client.call(windows("wide", 1), 7)).topics
    assert topic.error_code == 0
    assert len(topic.partitions) == PARTITIONS


async def test_settings_of_a_bounded_number_of_windows_are_described(
    client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call(create_topic("t"), 3)
    monkeypatch.setattr(settings, "MAX_DESCRIBED_WINDOWS", 2)
    names = ["t", *(topic.name for topic in windows("t", 3).topics or ())]
    resources = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name) for name in names
    ]
    answer = await client.call(DescribeConfigsRequest(resources=resources), 2)
    codes = [result.error_code for result in answer.results]
    assert codes == [0, 0, 0, InvalidRequest.code]
    assert [bool(result.configs) for result in answer.results] == [True, True, True, False]
