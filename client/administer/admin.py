"""Looking after topics, offsets and named positions, and after the members of a cluster. In a Kafka
cluster the brokers learn of a change of topics one by one."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from ...clock import SystemClock
from ...protocol.api.broker.describe_broker import (
    DESCRIBE_BROKER,
    DescribeBrokerRequest,
    DescribeBrokerResponse,
)
from ...protocol.api.cluster.describe_replicas import (
    DESCRIBE_REPLICAS,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
)
from ...protocol.api.cluster.promote import PROMOTE, PromoteRequest, PromoteResponse
from ...protocol.api.log.describe_log import (
    DESCRIBE_LOG,
    DescribeLogPartitionResult,
    DescribeLogRequest,
    DescribeLogResponse,
    DescribeLogTopic,
)
from ...protocol.api.log.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ...protocol.api.topics.alter_configs import (
    ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from ...protocol.api.topics.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ...protocol.api.topics.create_topics import (
    CREATE_TOPICS,
    CreatableConfig,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ...protocol.api.topics.delete_records import (
    ALL_READABLE,
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ...protocol.api.topics.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ...protocol.api.topics.describe_configs import (
    BROKER_RESOURCE,
    DESCRIBE_CONFIGS,
    FROM_DEFAULT,
    FROM_TOPIC,
    TOPIC_RESOURCE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribedConfig,
)
from ...protocol.api.topics.metadata import MetadataTopicResult
from ...protocol.errors import NO_ERROR, LeaderNotAvailable, UnknownTopicOrPartition
from ...protocol.window_topics import WindowName
from ..arguments import check_int, check_place, check_settings, check_topic, epoch_ms
from ..client import Client
from ..cluster.kafka_cluster import KafkaCluster, partition_counts, topic_metadata
from ..cluster.retry import Backoff
from ..cluster.targets import NodeById, PartitionLeader, Some, Target
from ..consume.time_bounds import CREATE, WindowBy
from ..consume.window_names import find_window
from ..errors import ConnectionFailed
from ..responses import check, partition_result, topic_result
from ..results import (
    ClusterDescription,
    CommittedPosition,
    FindResult,
    LogDir,
    OffsetAt,
    PartitionSize,
    TimeCounts,
    TopicDescription,
    TopicSetting,
    TopicSummary,
)
from .counting import count_by_time, intervals_of
from .lagging import PositionLag, lags_of, position_names
from .positions import Position, commit, committed
from .searching import By, find_offset, offsets_at

_SETTLING_S: Final = 10.0
"""How long the brokers may take to learn of a change; tenths of a second are usual."""


class ReplicaAdmin(Client):
    """Asks one broker of a cluster. What it refuses is raised as the error class of its code."""

    async def describe(self) -> DescribeReplicasResponse:
        """What the broker knows of the cluster."""
        response: DescribeReplicasResponse = await self._cluster.request(
            DESCRIBE_REPLICAS, DescribeReplicasRequest()
        )
        return response

    async def promote(self, broker_id: int = 0, *, accept_loss: bool = False) -> int:
        """Let a broker lead, by the word of the leader; or with 0 the one that is asked. Returns
        the epoch that the answering broker leads in, or led in."""
        response: PromoteResponse = await self._cluster.request(
            PROMOTE, PromoteRequest(broker_id=broker_id, accept_loss=accept_loss)
        )
        return response.epoch


class Admin(Client):
    """Creates, describes, changes and deletes topics; finds offsets; keeps named positions.

    What the broker refuses is raised as the error class of its code, with its words.
    """

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Raises InvalidTopic, TopicAlreadyExists, InvalidPartitions, InvalidConfig,
        InvalidReplicationFactor.

        `replication_factor` copies of each partition; -1: as many as the cluster's default says.
        With `validate_only` nothing is made, and what it would raise is raised.
        """
        check_topic(name, "name")
        check_int(partitions, "partitions")
        check_int(replication_factor, "replication_factor")
        check_settings(settings or {})
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[
                CreatableConfig(name=setting, value=value)
                for setting, value in (settings or {}).items()
            ],
        )
        response: CreateTopicsResponse = await self._cluster.request(
            CREATE_TOPICS,
            CreateTopicsRequest(topics=[topic], validate_only=validate_only),
            to=Some.CONTROLLER,
        )
        for result in response.topics:
            check(result)
        if not validate_only:
            await self._settle(name, partitions)

    async def list_topics(self) -> dict[str, int]:
        """Number of partitions by topic, in order of name; without a cluster's internal ones."""
        topics = (await self.describe_cluster()).topics
        return {name: topic.partitions for name, topic in topics.items()}

    async def describe_cluster(self, topics: Sequence[str] = ()) -> ClusterDescription:
        """What ids tell apart: the broker's data directory or the cluster, and its topics; all of
        them, or those of `topics` that exist."""
        response = await topic_metadata(self._cluster, topics)
        found = {
            topic.name: TopicSummary(
                len(topic.partitions), topic.topic_id or None, _least_in_sync(topic)
            )
            for topic in sorted(response.topics, key=_name)
            if topic.error_code != UnknownTopicOrPartition.code and not topic.is_internal
        }
        return ClusterDescription(response.cluster_id, found)

    async def partition_count(self, name: str) -> int:
        """How many partitions a topic has. Raises UnknownTopicOrPartition. The right to read a
        topic is enough for that, other than for its settings (`describe_topic`)."""
        return (await partition_counts(self._cluster, [name]))[name]

    async def find_window(self, name: str) -> WindowName | None:
        """The window that a topic's name means (`clicks..20161114T14Z..1h`); None where it is a
        topic's own name. Raises UnknownTopicOrPartition for a window that no time is in."""
        return await find_window(self._cluster, name)

    async def describe_topic(self, name: str) -> TopicDescription:
        """Raises UnknownTopicOrPartition."""
        topic = topic_result((await topic_metadata(self._cluster, [name])).topics, name)
        settings = await self._settings(TOPIC_RESOURCE, name)
        return TopicDescription(name, len(topic.partitions), settings, topic.topic_id or None)

    async def broker_settings(self) -> tuple[TopicSetting, ...]:
        """The broker's own settings, and the defaults that it has for its topics; of a cluster
        those of one broker."""
        if isinstance(self._cluster, KafkaCluster):
            node_id = (await self._cluster.node_ids())[0]
            return await self._settings(BROKER_RESOURCE, str(node_id), NodeById(node_id))
        return await self._settings(BROKER_RESOURCE, "0")

    async def _settings(
        self, kind: int, name: str, at: Target = Some.ANY
    ) -> tuple[TopicSetting, ...]:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name)
        response: DescribeConfigsResponse = await self._cluster.request(
            DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=[resource]), to=at
        )
        settings: list[TopicSetting] = []
        for result in response.results:
            check(result)
            settings += [TopicSetting(one.name, one.value, sourced(one)) for one in result.configs]
        return tuple(settings)

    async def alter_topic(
        self, name: str, settings: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change these settings and keep the others; None unsets one.

        Raises InvalidConfig and UnknownTopicOrPartition; nothing is changed then. At a Kafka
        cluster a change that another makes at the same moment can get lost.
        """
        check_topic(name, "name")
        check_settings(settings)
        if self._cluster.kafka:
            configs = merged((await self.describe_topic(name)).settings, settings)
        else:
            configs = [
                AlterableConfig(name=setting, value=value) for setting, value in settings.items()
            ]
        resource = AlterConfigsResource(resource_name=name, configs=configs)
        response: AlterConfigsResponse = await self._cluster.request(
            ALTER_CONFIGS,
            AlterConfigsRequest(
                resources=[resource], validate_only=validate_only, incremental=True
            ),
        )
        for result in response.responses:
            check(result)

    async def create_partitions(
        self, name: str, partitions: int, *, validate_only: bool = False
    ) -> None:
        """Raise the number of partitions to `partitions`.

        Messages stay where they are; those with a key may go elsewhere from then on. Raises
        UnknownTopicOrPartition, InvalidPartitions.
        """
        check_topic(name, "name")
        check_int(partitions, "partitions")
        topic = CreatePartitionsTopic(name=name, count=partitions)
        response: CreatePartitionsResponse = await self._cluster.request(
            CREATE_PARTITIONS,
            CreatePartitionsRequest(topics=[topic], validate_only=validate_only),
            to=Some.CONTROLLER,
        )
        for result in response.results:
            check(result)
        if not validate_only:
            await self._settle(name, partitions)

    async def delete_records(self, topic: str, partition: int, before: int | None) -> int:
        """Drop every message with an offset below `before`; None drops all that can be read.

        They are gone for good on return; that is the first offset there is now. Raises
        UnknownTopicOrPartition, OffsetOutOfRange.
        """
        check_place(topic, partition)
        if before is not None:
            check_int(before, "before")
            if before < 0:
                raise ValueError(f"before is an offset from 0 on, or None for all, not {before}")
        offset = ALL_READABLE if before is None else before
        places = [DeleteRecordsPartition(partition=partition, offset=offset)]
        response: DeleteRecordsResponse = await self._cluster.request(
            DELETE_RECORDS,
            DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=places)]),
            to=PartitionLeader(topic, partition),
        )
        return partition_result(response.topics, topic, partition).low_watermark

    async def describe_log_dirs(
        self, partitions: Mapping[str, Sequence[int]] | None = None
    ) -> list[LogDir]:
        """What partitions take on the broker's disk: all, or these by topic; of a cluster on the
        disks of all brokers.

        Those that do not exist are left out.
        """
        asked = None
        if partitions is not None:
            asked = [
                DescribableLogDirTopic(name=topic, partitions=list(numbers))
                for topic, numbers in partitions.items()
            ]
        nodes: list[Target] = [Some.ANY]
        if isinstance(self._cluster, KafkaCluster):
            nodes = [NodeById(node_id) for node_id in await self._cluster.node_ids()]
        responses: list[DescribeLogDirsResponse] = [
            await self._cluster.request(
                DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=asked), to=node
            )
            for node in nodes
        ]
        return [
            LogDir(
                result.log_dir,
                tuple(
                    PartitionSize(topic.name, one.partition, one.size_bytes)
                    for topic in result.topics
                    for one in topic.partitions
                    if one.error_code == NO_ERROR
                ),
            )
            for response in responses
            for result in response.results
        ]

    async def delete_topic(self, name: str) -> None:
        """Raises UnknownTopicOrPartition."""
        response: DeleteTopicsResponse = await self._cluster.request(
            DELETE_TOPICS, DeleteTopicsRequest(topic_names=[name]), to=Some.CONTROLLER
        )
        for result in response.responses:
            check(result)
        await self._settle(name, 0)

    async def find_offset(
        self,
        topic: str,
        partition: int = 0,
        when: datetime | None = None,
        *,
        timestamp_ms: int | None = None,
        by: By = "timestamp",
    ) -> FindResult:
        """The first message at or after a time: `Found`, or why none is, `AfterEnd` or
        `NoTimestamps`.

        `by="append"` goes by the times at which the broker appended the messages, as far as it
        knows them.
        """
        target_ms = epoch_ms(when, timestamp_ms, check_units=self._check_units, is_bound=True)
        if target_ms is None:
            raise TypeError("find_offset needs a datetime or timestamp_ms")
        return await find_offset(self._cluster, topic, partition, target_ms, by=by)

    async def list_offsets(
        self, topic: str, partition: int, targets: Sequence[int]
    ) -> list[OffsetAt]:
        """One answer for each target: epoch milliseconds, `LATEST`, `EARLIEST` or `LARGEST`.

        `LATEST` and `EARLIEST` answer without a timestamp. `LARGEST` raises UnsupportedVersion at
        a Kafka cluster.
        """
        for target in targets:
            if target >= 0:
                epoch_ms(None, target, check_units=self._check_units)
        return await offsets_at(self._cluster, topic, partition, targets)

    async def count_by_time(
        self,
        topic: str,
        start: datetime | int,
        end: datetime | int,
        every: timedelta | None = None,
        *,
        partitions: Sequence[int] | None = None,
        by: WindowBy = CREATE,
    ) -> TimeCounts:
        """How many messages there are in each interval of a window of time, in all partitions or
        in these together.

        The first interval begins at `start` and the last ends at `end`, which is not in it; without
        `every` there is one. `by="append"` goes by the times at which the broker appended the
        messages. From a Kafka cluster the messages are read for it. Raises ValueError for a start
        after the end and for more than 100,000 intervals.
        """
        intervals = intervals_of(start, end, every, by, check_units=self._check_units)
        return await count_by_time(self._cluster, topic, intervals, partitions)

    async def describe_log(
        self, topic: str, partition: int = 0, *, at_ms: int | None = None
    ) -> DescribeLogPartitionResult:
        """Offsets, segments and what retention says of them; and how a search for `at_ms` goes.

        Raises UnsupportedVersion at a Kafka cluster, whose protocol has no such request.
        """
        response: DescribeLogResponse = await self._cluster.request(
            DESCRIBE_LOG,
            DescribeLogRequest(
                topics=[DescribeLogTopic(name=topic, partitions=[partition])],
                at_ms=-1 if at_ms is None else at_ms,
            ),
        )
        return partition_result(response.topics, topic, partition)

    async def describe_broker(self) -> DescribeBrokerResponse:
        """What the broker knows of itself and of its machine. Raises UnsupportedVersion at a Kafka
        cluster, whose protocol has no such request."""
        response: DescribeBrokerResponse = await self._cluster.request(
            DESCRIBE_BROKER, DescribeBrokerRequest()
        )
        return response

    async def commit_position(
        self,
        name: str,
        topic: str,
        partition: int,
        offset: int,
        *,
        timestamp_ms: int | None = None,
        metadata: str = "",
    ) -> None:
        """Remember `offset` as the next one to read, under `name`; durable on return.

        `timestamp_ms` is the time of the last message read.
        """
        timestamp_ms = epoch_ms(None, timestamp_ms, check_units=self._check_units)
        position = Position(topic, partition, offset, timestamp_ms, metadata)
        await commit(self._cluster, name, [position])

    async def position(self, name: str, topic: str, partition: int = 0) -> CommittedPosition | None:
        """The position committed last under `name`; None when there is none."""
        found = await committed(self._cluster, name, [(topic, partition)])
        return found[topic, partition]

    async def position_names(self) -> list[str]:
        """The names under which positions are stored, sorted."""
        return await position_names(self._cluster)

    async def lag(self, name: str) -> list[PositionLag]:
        """How far behind its log each position of `name` is; empty when it has none."""
        return await lags_of(self._cluster, name, now_ms=SystemClock().now_ms())

    async def _settle(self, topic: str, partitions: int) -> None:
        if isinstance(self._cluster, KafkaCluster):
            await settle(self._cluster, topic, partitions=partitions)


def _name(topic: MetadataTopicResult) -> str:
    return topic.name


def _least_in_sync(topic: MetadataTopicResult) -> int | None:
    return min((len(one.isr_nodes) for one in topic.partitions), default=0) or None


async def settle(cluster: KafkaCluster, topic: str, *, partitions: int) -> None:
    """Wait until every broker that is up knows `topic` with so many partitions that have a leader;
    0: until none knows it. Gives up after a while, as the change itself is made."""
    end = asyncio.get_running_loop().time() + _SETTLING_S
    backoff = Backoff()
    cluster.forget(topic)
    for node_id in await cluster.node_ids():
        while not await _knows(cluster, node_id, topic, partitions):
            if asyncio.get_running_loop().time() > end:
                return
            await asyncio.sleep(backoff.next_s())


async def _knows(cluster: KafkaCluster, node_id: int, topic: str, partitions: int) -> bool:
    try:
        response = await cluster.topics([topic], at=NodeById(node_id))
    except (ConnectionFailed, LeaderNotAvailable):
        return True  # it is gone
    (found,) = response.topics
    led = [one for one in found.partitions if one.leader_id >= 0]
    return (len(led) if found.error_code == NO_ERROR else 0) == partitions


def sourced(config: DescribedConfig) -> str:
    """Where a setting's value comes from, in the words of the native protocol."""
    if config.source:
        return config.source
    return {FROM_TOPIC: "topic", FROM_DEFAULT: "default"}.get(config.config_source, "broker")


def merged(
    settings: Sequence[TopicSetting], changes: Mapping[str, str | None]
) -> list[AlterableConfig]:
    """All settings that a topic is to have of its own, when these are changed.

    Kafka's request takes no others, so a change that another makes meanwhile gets lost.
    """
    own = {one.name: one.value for one in settings if one.source == "topic"}
    kept = {**own, **changes}
    return [
        AlterableConfig(name=name, value=value) for name, value in kept.items() if value is not None
    ]
