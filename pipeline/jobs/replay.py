"""A stretch of a topic's time as Parquet, by date and hour; done again, it is the same."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...times import format_time
from ..spark_types import SparkSession
from .dataframes import between, read_ranges, utc_date, utc_hour
from .ranges import ReadPlan

_HOUR_MS: Final = 3_600_000
_LAYOUT: Final = ("topic", "dt", "hour")
_RUN: Final = "run="


@dataclass(frozen=True, slots=True)
class Target:
    """Where the files of a replay go."""

    path: str
    """What is written to; with `by_hour` the folder of everything, else that of this run alone."""
    by_hour: bool
    """Whether the times begin and end with an hour: then each hour that was read replaces the
    same hour of earlier replays. Else a part of an hour would replace a whole one, so that the run
    has a folder of its own, which it replaces."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a replay ended."""

    scanned: int
    """Messages read."""
    kept: int
    """Those with a time in the range, which were written."""
    without_time: int
    """Messages without a time, which are in no range."""
    stored: int
    """Messages of the range in the files, counted afterwards."""
    hours: int
    """How many folders of an hour they are in."""
    missing: int
    """Offsets of the plan at which no message was: gaps in the log, or lost messages."""

    @property
    def exact(self) -> bool:
        """Whether the files hold what was read and nothing else."""
        return self.stored == self.kept


def replay_target(out: str, plan: ReadPlan) -> Target:
    """Where the replay of `plan` below `out` goes.

    Raises ValueError when `out` is a folder here that has files of the other layout, which could
    not be read together.
    """
    by_hour = (
        plan.from_ms is not None
        and plan.to_ms is not None
        and plan.from_ms % _HOUR_MS == plan.to_ms % _HOUR_MS == 0
    )
    folder = Path(out)
    other = _RUN if by_hour else "topic="
    if folder.is_dir() and any(one.name.startswith(other) for one in folder.iterdir()):
        kind = "times that are no whole hours" if by_hour else "whole hours"
        raise ValueError(
            f"{out} has replays of {kind}, and Spark reads no folder that has both: choose "
            "another folder, or other times"
        )
    if by_hour:
        return Target(out, True)
    return Target(f"{out.rstrip('/')}/{_RUN}{_side(plan.from_ms)}_{_side(plan.to_ms)}", False)


def replay(spark: SparkSession, plan: ReadPlan, target: Target) -> Replayed:
    """Write the messages of the plan whose times are in its range; count them again in the files.

    Columns are those of the source, with folders `topic=.../dt=.../hour=...` (UTC). Done again, it
    replaces what it wrote. The caller looks at `exact` and at `missing`.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    seen = Observation("replay")
    wanted = between(sf.col("timestamp"), plan.from_ms, plan.to_ms)
    rows = (
        read_ranges(spark, [plan])
        .observe(
            seen,
            sf.count(sf.lit(1)).alias("scanned"),
            sf.count_if(wanted).alias("kept"),
            sf.count_if(sf.col("timestamp").isNull()).alias("without_time"),
        )
        .where(wanted)
        .withColumns({"dt": utc_date(sf.col("timestamp")), "hour": utc_hour(sf.col("timestamp"))})
        # The same files each time, and within them the order of the log.
        .sortWithinPartitions(*_LAYOUT, "partition", "offset")
    )
    mode = "dynamic" if target.by_hour else "static"
    (
        rows.write.mode("overwrite")
        .option("partitionOverwriteMode", mode)
        .partitionBy(*_LAYOUT)
        .parquet(target.path)
    )
    counts = seen.get
    stored, hours = _count(spark, plan, target)
    return Replayed(
        scanned=counts["scanned"],
        kept=counts["kept"],
        without_time=counts["without_time"],
        stored=stored,
        hours=hours,
        missing=plan.rows - counts["scanned"],
    )


def _count(spark: SparkSession, plan: ReadPlan, target: Target) -> tuple[int, int]:
    """(messages of the range, hours with any) in the files. There are some that this run has not
    written where the log does not have anymore what an earlier one read."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as sf

    try:
        files = spark.read.parquet(f"{target.path}/topic={plan.topic}")
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return 0, 0
    (found,) = (
        files.where(between(sf.col("timestamp"), plan.from_ms, plan.to_ms))
        .agg(sf.count(sf.lit(1)), sf.count_distinct("dt", "hour"))
        .collect()
    )
    return found[0], found[1]


def _side(ms: int | None) -> str:
    """A time as part of a folder's name."""
    return "open" if ms is None else format_time(ms).replace(":", "").replace("-", "")
