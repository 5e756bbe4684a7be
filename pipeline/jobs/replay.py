"""Writes a window of a topic as Parquet, by date and hour; a second run gives the same files."""

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
    """Folder to write to: with `by_hour` that of all replays, else the folder of this run."""
    by_hour: bool
    """Whether the window begins and ends at full hours: then each hour replaces the same hour of
    earlier replays. Otherwise a part of an hour would replace a full hour, so the run has its own
    folder, which a second run replaces."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of a replay."""

    scanned: int
    """Number of messages read."""
    kept: int
    """Number of messages with a time in the window, which were written."""
    without_time: int
    """Number of messages without a time, which are in no window."""
    stored: int
    """Number of messages of the window in the files, counted afterwards."""
    hours: int
    """Number of hour folders that they are in."""
    missing: int
    """Number of offsets of the plan without a message: gaps in the log, or lost messages."""

    @property
    def exact(self) -> bool:
        """Whether the files hold as many messages of the window as were written."""
        return self.stored == self.kept


def replay_target(out: str, plan: ReadPlan) -> Target:
    """Return where the replay of `plan` goes below `out`.

    Raises ValueError if `out` is a local folder with files of the other layout: Spark cannot read
    both together.
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
    """Write the messages of the plan whose times are in its window, and count them in the files.

    Columns are those of the source, in folders `topic=.../dt=.../hour=...` (UTC). A second run
    replaces the files of the first. The caller checks `exact` and `missing`.
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
        # Sorted, so that each run writes the same files, in the order of the log.
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
    """Count (messages of the window, hours with any) in the files. Files can hold messages that
    only an earlier run wrote, if the log has lost them since."""
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
    """Format a time for the name of a folder."""
    return "open" if ms is None else format_time(ms).replace(":", "").replace("-", "")
