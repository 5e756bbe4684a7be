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
from ...protocol.api.log.describe_removals import (
    DESCRIBE_REMOVALS,
    DescribeRemovalsRequest,
    DescribeRemovalsResponse,
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
from ..arguments import SettingValue, check_int, check_place, check_topic, epoch_ms, setting_texts
from ..client import Client
from ..cluster.retry import Backoff
from ..cluster.route import Route
from ..cluster.targets import NodeById, PartitionLeader, Some, Target
from ..consume.time_bounds import CREATE, WindowBy
from ..consume.window_names import find_window
from ..errors import ConnectionFailed
from ..responses import check, partition_result, topic_result
from ..results import (
    ClusterDescription,
    CommittedPosition,
    FindResult,
    GroupDescription,
    GroupSummary,
    LogDir,
    OffsetAt,
    PartitionSize,
    PositionMove,
    TimeCounts,
    TopicDescription,
    TopicSetting,
    TopicSummary,
)
from .counting import count_by_time, intervals_of
from .groups import (
    SeekTo,
    delete_positions,
    delete_whole,
    describe_group,
    list_groups,
    move,
    plan_deletion,
    plan_seek,
    seek_target,
)
from .lagging import PositionLag, lags_of, position_names
from .positions import Position, commit, committed
from .searching import By, find_offset, offsets_at

_SETTLING_S: Final = 10.0
"""Seconds that the brokers may take to learn of a change; tenths of a second are usual."""


class ReplicaAdmin(Client):
    """Asks one broker of a cluster. An error of the broker is raised as the error class of its
    code."""

    async def describe(self) -> DescribeReplicasResponse:
        """Return what the broker knows of the cluster."""
        response: DescribeReplicasResponse = await self._cluster.request(
            DESCRIBE_REPLICAS, DescribeReplicasRequest()
        )
        return response

    async def promote(self, broker_id: int = 0, *, accept_loss: bool = False) -> int:
        """Ask the leader to hand over to a broker, which happens when that broker has everything.
        With 0, the asked broker becomes the leader without the current leader's agreement.

        Returns the leader epoch of the answering broker, or its last one if it no longer leads.
        """
        response: PromoteResponse = await self._cluster.request(
            PROMOTE, PromoteRequest(broker_id=broker_id, accept_loss=accept_loss)
        )
        return response.epoch


class Admin(Client):
    """Creates, describes, changes and deletes topics, finds offsets, and manages committed
    positions.

    An error of the broker is raised as the error class of its code, with the broker's message.
    """

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        settings: Mapping[str, SettingValue] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create a topic. Raises InvalidTopic, TopicAlreadyExists, InvalidPartitions,
        InvalidConfig, InvalidReplicationFactor.

        The value of a setting is a str or an int; for a setting in milliseconds, a timedelta or a
        datetime too. `replication_factor` is the number of copies of each partition; -1 means the
        cluster's default. With `validate_only` nothing is created, but the same errors are raised.
        """
        check_topic(name, "name")
        check_int(partitions, "partitions")
        check_int(replication_factor, "replication_factor")
        texts = setting_texts(settings or {})
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[
                CreatableConfig(name=setting, value=value) for setting, value in texts.items()
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
        """Return the number of partitions by topic, in order of name, without internal topics of a
        Kafka cluster."""
        topics = (await self.describe_cluster()).topics
        return {name: topic.partitions for name, topic in topics.items()}

    async def describe_cluster(self, topics: Sequence[str] = ()) -> ClusterDescription:
        """Return the id of the cluster and its topics: all topics, or those of `topics` that
        exist."""
        response = await self._cluster.topics(topics)
        found = {
            topic.name: TopicSummary(
                len(topic.partitions), topic.topic_id or None, _least_in_sync(topic)
            )
            for topic in sorted(response.topics, key=_name)
            if topic.error_code != UnknownTopicOrPartition.code and not topic.is_internal
        }
        return ClusterDescription(response.cluster_id, found)

    async def partition_count(self, name: str) -> int:
        """Return the number of partitions of a topic. Raises UnknownTopicOrPartition. The right to
        read the topic is enough; `describe_topic` also needs the right to read its settings."""
        return (await self._cluster.partition_counts([name]))[name]

    async def find_window(self, name: str) -> WindowName | None:
        """The window that a topic's name means (`clicks..20161114T14Z..1h`); None where it is a
        topic's own name. Raises UnknownTopicOrPartition for a window that no time is in."""
        return await find_window(self._cluster, name)

    async def describe_topic(self, name: str) -> TopicDescription:
        """Return a topic with its settings. Raises UnknownTopicOrPartition."""
        topic = topic_result((await self._cluster.topics([name])).topics, name)
        settings = await self._settings(TOPIC_RESOURCE, name)
        return TopicDescription(name, len(topic.partitions), settings, topic.topic_id or None)

    async def broker_settings(self) -> tuple[TopicSetting, ...]:
        """Return the broker's own settings and its defaults for topics; at a Kafka cluster, those
        of one broker."""
        node_id = (await self._cluster.node_ids())[0]
        return await self._settings(BROKER_RESOURCE, str(node_id), NodeById(node_id))

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
        self,
        name: str,
        settings: Mapping[str, SettingValue | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change these settings and keep the others; None removes the topic's own value. Values are
        those of `create_topic`.

        Raises InvalidConfig, UnknownTopicOrPartition without changing anything. At a Kafka cluster
        a concurrent change by another client can get lost.
        """
        check_topic(name, "name")
        texts = setting_texts(settings)
        if self._cluster.kafka:
            configs = merged((await self.describe_topic(name)).settings, texts)
        else:
            configs = [
                AlterableConfig(name=setting, value=value) for setting, value in texts.items()
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
        """Increase the number of partitions to `partitions`.

        Stored messages stay where they are; new messages with the same key may go to another
        partition. Raises UnknownTopicOrPartition, InvalidPartitions.
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
        """Delete all messages with an offset below `before`; None deletes all readable messages.

        Returns the first offset of the partition when the messages are permanently deleted. Raises
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
        """Return the disk space of partitions: all, or these by topic. At a Kafka cluster this
        covers the disks of all brokers.

        Partitions that do not exist are left out.
        """
        asked = None
        if partitions is not None:
            asked = [
                DescribableLogDirTopic(name=topic, partitions=list(numbers))
                for topic, numbers in partitions.items()
            ]
        responses: list[DescribeLogDirsResponse] = [
            await self._cluster.request(
                DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=asked), to=NodeById(node_id)
            )
            for node_id in await self._cluster.node_ids()
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
        """Delete a topic. Raises UnknownTopicOrPartition."""
        response: DeleteTopicsResponse = await self._cluster.request(
            DELETE_TOPICS, DeleteTopicsRequest(topic_names=[name]), to=Some.CONTROLLER
        )
        topic_result(response.responses, name)
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
        """Find the first message at or after a time. Returns `Found`, or the reason why there is
        none: `AfterEnd` or `NoTimestamps`.

        `by="append"` searches by append time, as far as the broker knows append times.
        """
        target_ms = epoch_ms(when, timestamp_ms, check_units=self._check_units, is_bound=True)
        if target_ms is None:
            raise TypeError("find_offset needs a datetime or timestamp_ms")
        return await find_offset(self._cluster, topic, partition, target_ms, by=by)

    async def list_offsets(
        self, topic: str, partition: int, targets: Sequence[int]
    ) -> list[OffsetAt]:
        """Return one answer for each target: epoch milliseconds, `LATEST`, `EARLIEST` or `LARGEST`.

        `LATEST` and `EARLIEST` are answered without a timestamp. `LARGEST` raises
        UnsupportedVersion at a Kafka cluster.
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
        """Count the messages in each interval of a time window, over all partitions or over these.

        The first interval starts at `start`; the last ends at `end`, exclusive. Without `every`
        there is one interval. `by="append"` counts by append time. At a Kafka cluster the client
        reads the messages to count them. Raises ValueError for an end before the start and for more
        than 100,000 intervals.
        """
        intervals = intervals_of(start, end, every, by, check_units=self._check_units)
        return await count_by_time(self._cluster, topic, intervals, partitions)

    async def describe_log(
        self, topic: str, partition: int = 0, *, at_ms: int | None = None
    ) -> DescribeLogPartitionResult:
        """Describe the log of a partition: offsets, segments, retention and, with `at_ms`, the
        steps of a search for that time.

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

    async def describe_removals(
        self, topic: str, partitions: Sequence[int] = ()
    ) -> DescribeRemovalsResponse:
        """Describe what left the logs of a topic, also of a deleted one: by retention, a trim, a
        deletion or a truncation. For the given partitions, also from when on they are complete.

        Raises UnsupportedVersion at a Kafka cluster, whose protocol has no such request.
        """
        response: DescribeRemovalsResponse = await self._cluster.request(
            DESCRIBE_REMOVALS, DescribeRemovalsRequest(topic=topic, partitions=list(partitions))
        )
        return response

    async def describe_broker(self) -> DescribeBrokerResponse:
        """Describe the broker and its machine. Raises UnsupportedVersion at a Kafka cluster, whose
        protocol has no such request."""
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
        """Commit `offset` as the next one to read, under `name`. It is durable on return.

        `timestamp_ms` is the time of the last message read.
        """
        timestamp_ms = epoch_ms(None, timestamp_ms, check_units=self._check_units)
        position = Position(topic, partition, offset, timestamp_ms, metadata)
        await commit(self._cluster, name, [position])

    async def position(self, name: str, topic: str, partition: int = 0) -> CommittedPosition | None:
        """Return the last position committed under `name`; None when there is none."""
        found = await committed(self._cluster, name, [(topic, partition)])
        return found[topic, partition]

    async def position_names(self) -> list[str]:
        """Return the names under which positions are committed, sorted."""
        return await position_names(self._cluster)

    async def lag(self, name: str) -> list[PositionLag]:
        """Return how far each position committed under `name` is behind the end; empty when there
        is none."""
        return await lags_of(self._cluster, name, now_ms=SystemClock().now_ms())

    async def list_groups(self, *, idle_for: timedelta | None = None) -> list[GroupSummary]:
        """Return all consumer groups, and all names with positions, sorted by name.

        With `idle_for` only those without members that were not used for that long: no commit, and
        no member. Raises UnsupportedVersion with `idle_for` over Kafka's protocol, which does not
        say when a group was used.
        """
        if idle_for is not None and idle_for < timedelta(0):
            raise ValueError(f"idle_for is a length of time from 0 on, not {idle_for!r}")
        return await list_groups(self._cluster, idle_for)

    async def describe_group(self, name: str) -> GroupDescription:
        """Return a consumer group, or the positions under a name: members, and for each partition
        the position, its lag, when it last moved, and who has it. Raises GroupIdNotFound."""
        return await describe_group(self._cluster, name)

    async def seek_group(
        self,
        name: str,
        to: SeekTo | None = None,
        *,
        timestamp_ms: int | None = None,
        offset: int | None = None,
        by: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> list[PositionMove]:
        """Move the positions of a consumer group or of a name, all or those in `topic` (or in one
        partition of it). A group that does not exist gets positions in the partitions of `topic`.

        Give one of: `to`, which is `"earliest"`, `"latest"`, a datetime, or a timedelta before now;
        `timestamp_ms`; `offset`; `by`, a number of messages forward, or back if it is negative. A
        time means the first message, in offset order, with that time or a later one, or the end.
        `by` stops at the first and the last offset of the partition.

        Returns the moves, which are durable on return. With `dry_run` nothing moves; `move_group`
        carries out such moves later. Raises NonEmptyGroup while the group has members,
        GroupIdNotFound, UnknownTopicOrPartition, and OffsetOutOfRange for an `offset` that a
        partition does not have.
        """
        target = seek_target(
            to, timestamp_ms=timestamp_ms, offset=offset, by=by, check_units=self._check_units
        )
        _check_part(topic, partition)
        moves = await plan_seek(self._cluster, name, target, topic, partition)
        if not dry_run:
            await move(self._cluster, name, moves)
        return moves

    async def move_group(self, name: str, moves: Sequence[PositionMove]) -> None:
        """Move positions as a `seek_group` with `dry_run` returned it: each to its `new` offset.
        Raises NonEmptyGroup while the group has members."""
        await move(self._cluster, name, moves)

    async def delete_group(
        self,
        name: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> list[PositionMove]:
        """Delete a consumer group, or the positions under a name; with `topic` only the positions
        in that topic, or in one partition of it.

        Returns the deleted positions; with `dry_run` those that would be. Raises NonEmptyGroup for
        a whole group with members, GroupSubscribedToTopic for a topic to which a member subscribes,
        and GroupIdNotFound.
        """
        _check_part(topic, partition)
        gone = await plan_deletion(self._cluster, name, topic, partition)
        if dry_run:
            return gone
        if topic is None:
            await delete_whole(self._cluster, name)
        else:
            await delete_positions(self._cluster, name, gone)
        return gone

    async def _settle(self, topic: str, partitions: int) -> None:
        if self._cluster.kafka:
            await settle(self._cluster, topic, partitions=partitions)


def _check_part(topic: str | None, partition: int | None) -> None:
    if topic is not None:
        check_place(topic, partition)
    elif partition is not None:
        raise TypeError("partition is of a topic: give topic too")


def _name(topic: MetadataTopicResult) -> str:
    return topic.name


def _least_in_sync(topic: MetadataTopicResult) -> int | None:
    return min((len(one.isr_nodes) for one in topic.partitions), default=0) or None


async def settle(cluster: Route, topic: str, *, partitions: int) -> None:
    """Wait until every running broker knows `topic` with `partitions` partitions that have a
    leader; 0 waits until no broker knows the topic.

    After a time limit it returns silently, because the change itself succeeded.
    """
    end = asyncio.get_running_loop().time() + _SETTLING_S
    backoff = Backoff()
    cluster.forget(topic)
    for node_id in await cluster.node_ids():
        while not await _knows(cluster, node_id, topic, partitions):
            if asyncio.get_running_loop().time() > end:
                return
            await asyncio.sleep(backoff.next_s())


async def _knows(cluster: Route, node_id: int, topic: str, partitions: int) -> bool:
    try:
        response = await cluster.topics([topic], at=NodeById(node_id))
    except (ConnectionFailed, LeaderNotAvailable):
        return True  # the broker is down
    (found,) = response.topics
    led = [one for one in found.partitions if one.leader_id >= 0]
    return (len(led) if found.error_code == NO_ERROR else 0) == partitions


def sourced(config: DescribedConfig) -> str:
    """Return the source of a setting, in the words of the native protocol: `topic`, `broker` or
    `default`."""
    if config.source:
        return config.source
    return {FROM_TOPIC: "topic", FROM_DEFAULT: "default"}.get(config.config_source, "broker")


def merged(
    settings: Sequence[TopicSetting], changes: Mapping[str, str | None]
) -> list[AlterableConfig]:
    """Return all settings of the topic's own after these changes.

    Kafka's request replaces all of a topic's settings, so a concurrent change by another client
    gets lost.
    """
    own = {one.name: one.value for one in settings if one.source == "topic"}
    kept = {**own, **changes}
    return [
        AlterableConfig(name=name, value=value) for name, value in kept.items() if value is not None
    ]
