"""Moves a reader to another cluster that gets the same messages, and checks whether it misses any.

The clusters have the messages at different offsets and in a different order, so offsets are
translated by time. Let t be the create time of the last message read in the old cluster, and let
every message there be appended within `max_latency_ms` after its creation. Then every message
created up to t - max_latency_ms was appended before that last message, and so was read. A reader
that goes on in the new cluster at the first message with a time of t - max_latency_ms or later
misses nothing; messages after it that were read in the old cluster come twice. Only the latency of
the old cluster matters.

The check compares messages of both clusters by key, create time and value, or by an identity that
the user gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ...blocking import Admin, Consumer
from ...client.cluster.servers import Servers, parse_servers
from ...client.results import AfterEnd, Found, NoTimestamps
from ...protocol.api.log.list_offsets import EARLIEST, LATEST
from ..spark_types import DataFrame, SparkSession
from .dataframes import between, identity_of, read_ranges
from .lag import last_read
from .ranges import PartitionRange, ReadPlan, offsets_json

_NEVER: Final = -1
"""Time that stands for "from the beginning" in comparisons."""


@dataclass(frozen=True, slots=True)
class FailoverCheck:
    """Result of comparing the messages of both clusters."""

    consumed: int
    """Number of messages read in the old cluster."""
    skipped: int
    """Number of messages before the offsets of resumption in the new cluster."""
    ahead: int
    """Number of messages from these offsets on."""
    missed: int
    """Number of skipped messages that were neither read in the old cluster nor are ahead: the
    reader would miss them. Copies count once."""
    twice: int
    """Number of messages ahead that were read in the old cluster."""


def part_before(plan: ReadPlan, offsets: Mapping[int, int]) -> ReadPlan:
    """The part of a plan below these offsets, by partition."""
    return _parts(plan, {one.partition: (0, offsets[one.partition]) for one in plan.ranges})


def part_from(plan: ReadPlan, offsets: Mapping[int, int]) -> ReadPlan:
    """The part of a plan from these offsets on, by partition."""
    return _parts(
        plan, {one.partition: (offsets[one.partition], one.end_offset) for one in plan.ranges}
    )


def failover_check(
    spark: SparkSession,
    consumed: ReadPlan,
    skipped: ReadPlan,
    ahead: ReadPlan,
    identity: str | None = None,
) -> FailoverCheck:
    """Compare the messages read in the old cluster with those before and after the offsets of
    resumption in the new one.

    `identity` is an SQL expression over the columns of a message. Messages with equal identities
    are copies: a message is not missed if any copy was read or is ahead.
    """
    from pyspark.sql import functions as sf

    sides = {"consumed": consumed, "skipped": skipped, "ahead": ahead}
    rows: DataFrame | None = None
    for side, plan in sides.items():
        if plan.rows == 0:
            continue
        one = (
            read_ranges(spark, [plan])
            .where(between(sf.col("timestamp"), plan.from_ms, plan.to_ms))
            .select(identity_of(identity).alias("id"), sf.lit(side).alias("side"))
        )
        rows = one if rows is None else rows.unionByName(one)
    if rows is None:
        return FailoverCheck(0, 0, 0, 0, 0)
    by_id = rows.groupBy("id").agg(
        *(sf.count_if(sf.col("side") == side).alias(side) for side in sides)
    )
    read = sf.col("consumed") > 0
    (found,) = by_id.agg(
        *(sf.sum(side) for side in sides),
        sf.count_if((sf.col("skipped") > 0) & ~read & (sf.col("ahead") == 0)),
        sf.sum(sf.when(read, sf.col("ahead"))),
    ).collect()
    return FailoverCheck(*(count or 0 for count in found))


def _parts(plan: ReadPlan, bounds: Mapping[int, tuple[int, int]]) -> ReadPlan:
    return replace(plan, ranges=tuple(_part(one, *bounds[one.partition]) for one in plan.ranges))


def _part(whole: PartitionRange, first: int, stop: int) -> PartitionRange:
    start = min(max(whole.start_offset, first), whole.end_offset)
    return replace(whole, start_offset=start, end_offset=max(start, min(stop, whole.end_offset)))


@dataclass(frozen=True, slots=True)
class Consumed:
    """How far a partition of the old cluster was read."""

    partition: int
    start_offset: int
    """Log start."""
    position: int
    """Offset of the next message to read."""
    last_ms: int | None
    """Create time of the last message read, or its append time if that is earlier; None if nothing
    was read, or if the message has no time."""
    empty: bool
    """Whether the partition has no messages, so that there was nothing to read."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to go on in a partition of the new cluster."""

    partition: int
    from_ms: int | None
    """The time that was searched for; None for the log start."""
    offset: int
    timestamp_ms: int | None
    """Time of the first message that will be read; None if there is none yet, or without a search.
    """
    end_offset: int

    @property
    def rows(self) -> int:
        """Number of offsets left to read, including messages that were read before."""
        return self.end_offset - self.offset


@dataclass(frozen=True, slots=True)
class FailoverPlan:
    """Offsets of resumption in the new cluster, and what they were computed from."""

    topic: str
    new_server: str | Servers
    max_latency_ms: int
    consumed: tuple[Consumed, ...]
    """Partitions of the old cluster; empty when only a time was given."""
    resume: tuple[Resume, ...]
    """Partitions of the new cluster."""

    def starting_offsets(self) -> str:
        """The option `startingOffsets` for a query in the new cluster (with a new checkpoint)."""
        return offsets_json((self.topic, one.partition, one.offset) for one in self.resume)


def failover_plan(
    old_server: str | Servers,
    new_server: str | Servers,
    topic: str,
    name: str,
    max_latency_ms: int,
    *,
    same_partitions: bool = False,
) -> FailoverPlan:
    """Plan where a reader with positions under `name` in the old cluster goes on in the new one.

    A key may be in another partition there, so by default every partition goes on from the
    earliest time of all old partitions. `same_partitions` says that each message has the same
    partition number in both clusters; then each partition goes on from its own time. Raises
    ValueError if no position is stored under the name, UnknownTopicOrPartition, ConnectionFailed.
    """
    _check_latency(max_latency_ms)
    consumed = read_positions(old_server, topic, name)
    with Admin(new_server, check_units=False) as admin:
        partitions = admin.partition_count(topic)
        if same_partitions and partitions != len(consumed):
            raise ValueError(
                f"{topic} has {len(consumed)} partitions in the old cluster and {partitions} in "
                "the new one, so messages cannot be in partitions of the same number"
            )
        if same_partitions:
            times = {one.partition: _resume_ms([one], max_latency_ms) for one in consumed}
        else:
            times = dict.fromkeys(range(partitions), _resume_ms(consumed, max_latency_ms))
        resume = _resume(admin, topic, times)
    return FailoverPlan(topic, new_server, max_latency_ms, tuple(consumed), resume)


def failover_plan_at(
    new_server: str | Servers, topic: str, last_read_ms: int, max_latency_ms: int
) -> FailoverPlan:
    """Plan without the old cluster. `last_read_ms` is the create time of the last message read
    there, in the partition where that is earliest."""
    _check_latency(max_latency_ms)
    from_ms = max(last_read_ms - max_latency_ms, 0)
    with Admin(new_server, check_units=False) as admin:
        times = dict.fromkeys(range(admin.partition_count(topic)), from_ms)
        resume = _resume(admin, topic, times)
    return FailoverPlan(topic, new_server, max_latency_ms, (), resume)


def read_positions(server: str | Servers, topic: str, name: str) -> list[Consumed]:
    """Return how far each partition of `topic` was read, by the positions under `name`.

    Raises ValueError if no position is stored.
    """
    with (
        Admin(server, check_units=False) as admin,
        # A Kafka cluster has no append times.
        Consumer(server, append_times=not parse_servers(server).kafka) as consumer,
    ):
        found = []
        any_position = False
        for partition in range(admin.partition_count(topic)):
            committed = admin.position(name, topic, partition)
            any_position = any_position or committed is not None
            earliest, latest = admin.list_offsets(topic, partition, [EARLIEST, LATEST])
            start, end = earliest.offset or 0, latest.offset or 0
            position = start if committed is None else committed.offset
            last = last_read(admin, consumer, topic, partition, position)
            times = [time for time in (last.timestamp_ms, last.append_time_ms) if time is not None]
            last_ms = min(times) if last.timestamp_ms is not None else None
            if last_ms is None and committed is not None and position > 0:
                last_ms = committed.timestamp_ms
            found.append(Consumed(partition, start, position, last_ms, end == 0))
    if not any_position:
        raise ValueError(
            f"nothing is committed under {name!r} for {topic}; `horolog lag` shows the names. A "
            "plan can go by the create time of the last message read, too, if that is known "
            "otherwise (last read)"
        )
    return found


def _check_latency(max_latency_ms: int) -> None:
    if max_latency_ms < 0:
        raise ValueError(f"the largest latency is from 0 ms on, not {max_latency_ms} ms")


def _resume_ms(consumed: list[Consumed], max_latency_ms: int) -> int | None:
    """Return the time to search for; None (the log start) if a partition was not read yet."""
    read = [_NEVER if one.last_ms is None else one.last_ms for one in consumed if not one.empty]
    earliest = min(read, default=_NEVER)
    return None if earliest == _NEVER else max(earliest - max_latency_ms, 0)


def _resume(admin: Admin, topic: str, times: Mapping[int, int | None]) -> tuple[Resume, ...]:
    return tuple(
        _resume_at(admin, topic, partition, from_ms) for partition, from_ms in times.items()
    )


def _resume_at(admin: Admin, topic: str, partition: int, from_ms: int | None) -> Resume:
    earliest, latest = admin.list_offsets(topic, partition, [EARLIEST, LATEST])
    start, end = earliest.offset or 0, latest.offset or 0
    if from_ms is None:
        return Resume(partition, None, start, None, end)
    match admin.find_offset(topic, partition, timestamp_ms=from_ms):
        case Found(offset, timestamp_ms):
            return Resume(partition, from_ms, offset, timestamp_ms, max(end, offset))
        case AfterEnd(end_offset):
            return Resume(partition, from_ms, end_offset, None, max(end, end_offset))
        case NoTimestamps():
            # Without timestamps no message can be excluded.
            return Resume(partition, from_ms, start, None, end)
