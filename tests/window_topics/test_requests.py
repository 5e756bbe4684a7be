"""Every request of the protocol that names a window: those that read are answered as for its base,
all others are refused, and nothing is made or changed."""

import asyncio
from typing import Any

import pytest

from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from horolog.protocol.api.groups.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.count_by_time import CountByTimeRequest
from horolog.protocol.api.log.describe_log import DescribeLogRequest, DescribeLogTopic
from horolog.protocol.api.log.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from horolog.protocol.api.log.fetch import FetchRequest, FetchTopic
from horolog.protocol.api.log.offset_for_leader_epoch import (
    OffsetForLeaderEpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochTopic,
)
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.schema import Api
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
from horolog.protocol.api.topics.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from horolog.protocol.api.topics.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from horolog.protocol.api.topics.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)
from horolog.protocol.api.topics.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopic,
)
from horolog.protocol.api.topics.metadata import MetadataRequest, MetadataTopic
from horolog.protocol.errors import InvalidTopic, TopicAlreadyExists, UnknownTopicOrPartition
from horolog.server.broker import Broker
from horolog.server.outcomes import first_error
from horolog.storage.directory.position_records import StoredPosition
from horolog.testing.requests import (
    create_topic,
    fetch,
    list_offsets,
    message_set,
    produce,
    result,
    results,
)
from horolog.testing.wire import Wire, wire

from .reading import latest, read

AT_14 = 1_479_132_000_000
HOUR = "20161114T14Z..1h"
NAME = f"clicks..{HOUR}"
EMPTY = "clicks..20161114T14Z..0h"
NO_BASE = f"nowhere..{HOUR}"
SET = message_set(AT_14 - 1, AT_14, AT_14 + 3_600_000, AT_14 + 5)


def reading(name: str) -> dict[str, Any]:
    commit = OffsetCommitPartition(partition=0, committed_offset=3)
    return {
        "metadata": MetadataRequest(topics=[MetadataTopic(name=name)]),
        "fetch": fetch(name, (0, 0)),
        "list-offsets": list_offsets(name, (0, -1)),
        "offset-for-leader-epoch": OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderEpochTopic(
                    name=name,
                    partitions=[OffsetForLeaderEpochPartition(partition=0, leader_epoch=0)],
                )
            ]
        ),
        "describe-configs": DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_name=name)]
        ),
        "offset-commit": OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitTopic(name=name, partitions=[commit])]
        ),
        "offset-fetch": OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchTopic(name=name, partitions=[0])]
        ),
        "offset-delete": OffsetDeleteRequest(
            group_id="g",
            topics=[OffsetDeleteTopic(name=name, partitions=[OffsetDeletePartition(partition=0)])],
        ),
    }


def refused(name: str) -> dict[str, Any]:
    trimmed = DeleteRecordsPartition(partition=0, offset=-1)
    setting = AlterableConfig(name="retention.ms", value="1")
    changed = IncrementalConfig(name="retention.ms", config_operation=0, value="1")
    return {
        "produce": produce(name, SET),
        "create-topics": create_topic(name),
        "delete-topics": DeleteTopicsRequest(topic_names=[name]),
        "delete-records": DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=[trimmed])], timeout_ms=1000
        ),
        "create-partitions": CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=3)]
        ),
        "alter-configs": AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_name=name, configs=[setting])]
        ),
        "incremental-alter-configs": IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=2, resource_name=name, configs=[changed]
                )
            ]
        ),
        "describe-producers": DescribeProducersRequest(
            topics=[DescribeProducersTopic(name=name, partitions=[0])]
        ),
    }


def unlisted(name: str) -> dict[str, Any]:
    """In whose answers there is nothing of it: they are refused altogether, or list what is
    stored."""
    return {
        "elect-leaders": ElectLeadersRequest(
            topic_partitions=[ElectLeadersTopic(topic=name, partitions=[0])]
        ),
        "list-partition-reassignments": ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsTopic(name=name, partition_indexes=[0])]
        ),
    }


NATIVE = {
    "describe-log": DescribeLogRequest(topics=[DescribeLogTopic(name=NAME, partitions=[0])]),
    "count-by-time": CountByTimeRequest(topic=NAME, partition=0, from_ms=0, until_ms=1),
}
NAME_NO_TOPIC = {
    *("find-coordinator", "join-group", "heartbeat", "leave-group", "sync-group"),
    *("describe-groups", "list-groups", "delete-groups", "sasl-handshake", "api-versions"),
    *("init-producer-id", "describe-acls", "create-acls", "delete-acls", "sasl-authenticate"),
    *("describe-client-quotas", "alter-client-quotas", "describe-user-scram-credentials"),
    *("alter-user-scram-credentials", "describe-quorum", "describe-cluster", "list-transactions"),
    *("describe-broker", "authenticate", "replicate", "describe-replicas", "promote"),
    "describe-log-dirs",  # which answers for what is stored
    "describe-removals",  # which answers for the base
}


def test_every_request_is_here() -> None:
    named = {*reading(""), *refused(""), *unlisted(""), *NATIVE, *NAME_NO_TOPIC}
    assert named == {api.name for api in APIS.values()}


@pytest.fixture
async def clicks(client: Wire) -> str:
    assert result(await client.call(produce("clicks", SET), 2)).error_code == 0
    return NAME


def version_of(api: Api) -> int:
    return api.offered(native=False)[-1]


def api_of(name: str) -> Api:
    return next(api for api in APIS.values() if api.name == name)


@pytest.mark.parametrize("name", list(reading("")))
async def test_those_that_read_are_answered(client: Wire, clicks: str, name: str) -> None:
    await client.call(reading(clicks)["offset-commit"])
    answer = await client.call(reading(clicks)[name], version_of(api_of(name)))
    assert first_error(answer) == 0, answer


@pytest.mark.parametrize("name", list(refused("")))
async def test_all_others_are_refused_and_change_nothing(
    broker: Broker, client: Wire, clicks: str, name: str
) -> None:
    before = dict(broker.services.directory.topics())
    for version in api_of(name).versions(native=False):
        answer = await client.call(refused(clicks)[name], version)
        expected = TopicAlreadyExists if name == "create-topics" else InvalidTopic
        assert first_error(answer) == expected.code, (version, answer)
        if version and name in ("create-topics", "create-partitions", "alter-configs"):
            assert f"{clicks} is a window of clicks: read only" in str(answer)
    assert broker.services.directory.topics() == before
    assert len(await read(client, "clicks")) == 4
    assert [one.offset for one in await read(client, clicks)] == [1, 3]


@pytest.mark.parametrize("name", list(unlisted("")))
async def test_those_that_list_what_is_stored(client: Wire, clicks: str, name: str) -> None:
    await client.call(unlisted(clicks)[name], version_of(api_of(name)))
    assert len(await read(client, "clicks")) == 4


@pytest.mark.parametrize("name", list(NATIVE))
async def test_requests_of_our_own_take_the_base(
    broker: Broker, client: Wire, clicks: str, name: str
) -> None:
    async with wire(broker.addresses.native) as own:
        assert first_error(await own.call(NATIVE[name])) == InvalidTopic.code


@pytest.mark.parametrize("name", [EMPTY, NO_BASE])
async def test_a_window_without_a_time_or_a_base_does_not_exist(
    broker: Broker, client: Wire, clicks: str, name: str
) -> None:
    """Although topics are made on demand."""
    before = dict(broker.services.directory.topics())
    for request in (*reading(name).values(), *refused(name).values()):
        if isinstance(request, OffsetFetchRequest):
            continue
        api = next(api for api in APIS.values() if api.request is type(request))
        code = first_error(await client.call(request, version_of(api)))
        if api.name == "create-topics":
            assert code == InvalidTopic.code
        elif api.name != "offset-delete":
            assert code == UnknownTopicOrPartition.code, api.name
    assert broker.services.directory.topics() == before


@pytest.mark.parametrize(
    "name",
    [
        *("..", "...", "....", "a..", "..a", "..20161114T14Z", f"..{HOUR}", "clicks..append"),
        *("clicks....1h", f"clicks..{HOUR}..", f"clicks..{HOUR}\n", f"clicks/..{HOUR}"),
        *("clicks..yesterday..1h", "clicks.." * 30, "c" * 300 + f"..{HOUR}", "\0..\0"),
        *("clicks..99999999999999999999", f"clicks..{2**63}..1h", "clicks..20161114T14Z..-1h"),
    ],
)
async def test_names_that_mean_harm(broker: Broker, client: Wire, clicks: str, name: str) -> None:
    asked = MetadataRequest(topics=[MetadataTopic(name=name)], allow_auto_topic_creation=False)
    for request in (asked, fetch(name, (0, 0)), list_offsets(name, (0, -1))):
        assert first_error(await client.call(request)) in (
            InvalidTopic.code,
            UnknownTopicOrPartition.code,
        )
    assert list(broker.services.directory.topics()) == ["clicks"]


async def test_a_fetch_of_windows_and_topics_together(client: Wire, clicks: str) -> None:
    both = FetchRequest(
        min_bytes=1,
        max_wait_ms=500,
        topics=[
            FetchTopic(name=name, partitions=fetch(name, (0, 0)).topics[0].partitions)
            for name in ("clicks", clicks, "clicks..20161114T15Z")
        ],
    )
    answer = await client.call(both, 10)
    sizes = {topic.name: len(topic.partitions[0].records) for topic in answer.topics}
    assert sizes["clicks"] > sizes[clicks] > sizes["clicks..20161114T15Z"] > 0
    marks = {topic.name: topic.partitions[0].high_watermark for topic in answer.topics}
    assert marks == {"clicks": 4, clicks: 4, "clicks..20161114T15Z": 3}


async def test_a_reader_at_the_end_is_woken_by_messages_of_its_window_only(
    broker: Broker, client: Wire, clicks: str
) -> None:
    """And no append of other times ends its wait, or has the log read."""
    at_end = fetch(clicks, (0, 4), max_wait_ms=20_000, min_bytes=1)
    async with wire(str(broker.addresses.kafka), kafka) as other:
        waiting = asyncio.create_task(client.call(at_end, 10))
        for _ in range(1_000):
            if len(broker.services.fetches):
                break
            await asyncio.sleep(0.01)
        for _ in range(5):
            await other.call(produce("clicks", message_set(AT_14 - 7, AT_14 + 3_600_000)), 2)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await other.call(produce("clicks", message_set(AT_14 - 7, AT_14 + 9)), 2)
        answer = result(await waiting)
    assert answer.high_watermark == 16
    assert len(answer.records) > 0
    assert await latest(client, clicks) == 16


async def test_names_leave_nothing_behind(broker: Broker, client: Wire, clicks: str) -> None:
    """10,000 windows of one client: few are known of a log, and none anywhere else."""
    log = broker.services.logs.find("clicks", 0)
    topics, figures = broker.services.directory.topics(), broker.services.figures
    for number in range(10_000):
        name = f"clicks..{AT_14 + number}..1h"
        requests = (
            fetch(name, (0, 0)),
            list_offsets(name, (0, -1)),
            MetadataRequest(topics=[MetadataTopic(name=name)]),
        )
        client.send_together(*requests[number % 3 : number % 3 + 1])
        if number % 100 == 99:
            for _ in range(100):
                await client.receive()
    assert list(topics) == ["clicks"]
    assert list(figures.topics) == ["clicks"]
    assert log.window_knowledge is not None
    assert len(log.window_knowledge) <= 64
    assert not len(broker.services.fetches)
    assert not broker.services.lags._paces


async def test_metrics_carry_the_name_of_the_base(
    broker: Broker, client: Wire, clicks: str
) -> None:
    await read(client, clicks)
    text = broker.metrics_text().decode()
    assert 'horolog_fetched_bytes_total{topic="clicks",window="yes"}' in text
    assert not [line for line in text.splitlines() if line[0] != "#" and HOUR in line]


async def test_positions_in_a_window(broker: Broker, client: Wire, clicks: str) -> None:
    """Its lag counts messages of the window, and it takes no place among those followed."""
    answer = await client.call(reading(clicks)["offset-commit"])
    assert first_error(answer) == 0
    asked = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchTopic(name=clicks, partitions=[0])], lag=True
    )
    async with wire(broker.addresses.native) as own:
        (lag,) = [each for each in results(await own.call(asked)) if each.committed_offset >= 0]
        assert (lag.committed_offset, lag.lag) == (3, 1)
        await own.call(produce("clicks", message_set(*[AT_14 - 1] * 50, AT_14)))
        (lag,) = results(await own.call(asked))
        assert lag.lag == 2
    await broker.services.lags.refresh()
    assert broker.services.lags.followed == {}


async def test_a_commit_in_a_window_of_a_topic_that_is_gone_by_then_is_not_followed(
    broker: Broker,
) -> None:
    """10,000 of them would take the places of all positions that are followed."""
    lags = broker.services.lags
    lags.committed("g", StoredPosition("gone..20161114T14Z..1h", 0, 3, -1, AT_14, ""))
    assert not lags._paces
