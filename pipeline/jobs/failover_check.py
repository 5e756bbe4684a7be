"""Whether a failover missed messages, and how many come twice: both clusters are compared.

Offsets differ between clusters, so messages are compared by what they are: key, create time and
value, or an identity of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .dataframes import between, identity_of, read_ranges
from .ranges import PartitionRange, ReadPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class FailoverCheck:
    """What comparing found."""

    consumed: int
    """Messages read in the old cluster."""
    skipped: int
    """Messages before the offsets of resumption in the new cluster."""
    ahead: int
    """Messages from there on."""
    missed: int
    """How many are among those skipped only, and were not read in the old cluster: they would be
    lost. Copies count once."""
    twice: int
    """Of those ahead, how many had been read in the old cluster."""


def part_before(plan: ReadPlan, offsets: Mapping[int, int]) -> ReadPlan:
    """The part of a plan below these offsets, by partition."""
    return _parts(plan, {one.partition: (0, offsets[one.partition]) for one in plan.ranges})


def part_from(plan: ReadPlan, offsets: Mapping[int, int]) -> ReadPlan:
    """The part of a plan from these offsets on, by partition."""
    return _parts(
        plan, {one.partition: (offsets[one.partition], one.end_offset) for one in plan.ranges}
    )


def failover_check(
    spark: "SparkSession",
    consumed: ReadPlan,
    skipped: ReadPlan,
    ahead: ReadPlan,
    identity: str | None = None,
) -> FailoverCheck:
    """Compare what was read in the old cluster with both sides of the offsets in the new one.

    `identity` is an SQL expression over the columns of a message. Messages of equal identity are
    copies of one: it is not missed when any copy was read, or is ahead.
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
