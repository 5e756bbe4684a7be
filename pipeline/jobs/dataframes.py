"""DataFrames with the messages of plans, and column expressions that do not depend on the session's
time zone."""

from collections.abc import Sequence

from ..logs import TopicLogs
from ..spark_types import Column, DataFrame, SparkSession
from .ranges import BY_TIMESTAMP, ReadPlan, offsets_json

__all__ = ["between", "identity_of", "read_plans", "read_ranges", "utc_date", "utc_hour"]


def read_plans(
    spark: SparkSession, plans: Sequence[ReadPlan], schema: str | None = None
) -> DataFrame:
    """Read the messages of plans whose timestamps are in the plans' windows. All plans are of one
    server.

    `schema` names the columns; by default all but headers and append times are read. The session
    must have the format `horolog`.
    """
    from pyspark.sql import functions as sf

    windows = [plan for plan in plans if plan.by == BY_TIMESTAMP and plan.bounded]
    if not windows:
        return read_ranges(spark, plans, schema)
    columns = None
    if schema is not None:
        columns = read_ranges(spark, plans, schema).columns
        needed = {"topic": "string", "timestamp": "timestamp"}
        more = (f"{name} {kind}" for name, kind in needed.items() if name not in columns)
        schema = ", ".join((schema, *more))
    wanted = ~sf.col("topic").isin([plan.topic for plan in windows])
    for plan in windows:
        own = sf.col("topic") == plan.topic
        wanted |= own & between(sf.col("timestamp"), plan.from_ms, plan.to_ms)
    rows = read_ranges(spark, plans, schema).where(wanted)
    return rows if columns is None else rows.select(*columns)


def read_ranges(
    spark: SparkSession, plans: Sequence[ReadPlan], schema: str | None = None
) -> DataFrame:
    """Like `read_plans`, but read all messages in the plans' ranges of offsets, whatever their
    times."""
    from ..connecting import connection_options

    ranges = [one for plan in plans for one in plan.ranges]
    ids = {plan.topic: plan.log.topic_id for plan in plans if plan.log.topic_id}
    logs = TopicLogs(plans[0].log.cluster_id, ids)
    reader = spark.read.format("horolog").options(
        **{
            **connection_options(plans[0].server),
            "subscribe": ",".join(plan.topic for plan in plans),
            "startingOffsets": offsets_json(
                ((one.topic, one.partition, one.start_offset) for one in ranges), logs
            ),
            "endingOffsets": offsets_json(
                ((one.topic, one.partition, one.end_offset) for one in ranges), logs
            ),
        }
    )
    return (reader if schema is None else reader.schema(schema)).load()


def between(time: Column, from_ms: int | None, to_ms: int | None) -> Column:
    """Whether a timestamp column is in `[from_ms, to_ms)`; false where it is null."""
    from pyspark.sql import functions as sf

    found = time.isNotNull()
    if from_ms is not None:
        found &= sf.unix_millis(time) >= from_ms
    if to_ms is not None:
        found &= sf.unix_millis(time) < to_ms
    return found


def identity_of(expression: str | None) -> Column:
    """Return a text that is equal for copies of a message: an SQL expression over its columns, by
    default its key, time and value."""
    from pyspark.sql import functions as sf

    if expression is not None:
        return sf.expr(expression).cast("string")
    parts = (sf.hex("key"), sf.unix_millis("timestamp").cast("string"), sf.md5("value"))
    return sf.concat_ws("/", *(sf.coalesce(part, sf.lit("-")) for part in parts))


def utc_date(time: Column) -> Column:
    """Return the date in UTC as text, such as 2016-11-14, in any session time zone."""
    from pyspark.sql import functions as sf

    days = sf.floor(sf.unix_millis(time) / 86_400_000).cast("int")
    return sf.date_from_unix_date(days).cast("string")


def utc_hour(time: Column) -> Column:
    """Return the hour in UTC as two digits."""
    from pyspark.sql import functions as sf

    hours = sf.floor(sf.unix_millis(time) / 3_600_000)
    return sf.lpad(sf.pmod(hours, sf.lit(24)).cast("string"), 2, "0")
