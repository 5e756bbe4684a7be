"""What a plan says, as a DataFrame; and what is said of times in every zone alike."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..logs import Logs
from .ranges import ReadPlan, offsets_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def read_plans(
    spark: "SparkSession", plans: Sequence[ReadPlan], schema: str | None = None
) -> "DataFrame":
    """The rows of these plans, which are of one server; `schema` names the columns, else all but
    headers and append times. The session must know the format `horolog`."""
    from ..connecting import connection_options

    ranges = [one for plan in plans for one in plan.ranges]
    ids = {plan.topic: plan.log.topic_id for plan in plans if plan.log.topic_id}
    logs = Logs(plans[0].log.cluster_id, ids)
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


def between(time: "Column", from_ms: int | None, to_ms: int | None) -> "Column":
    """Whether a timestamp column is in `[from_ms, to_ms)`; false where it is null."""
    from pyspark.sql import functions as sf

    found = time.isNotNull()
    if from_ms is not None:
        found &= sf.unix_millis(time) >= from_ms
    if to_ms is not None:
        found &= sf.unix_millis(time) < to_ms
    return found


def identity_of(expression: str | None) -> "Column":
    """Text that is equal for copies of a message: an SQL expression over its columns, else its key,
    time and value."""
    from pyspark.sql import functions as sf

    if expression is not None:
        return sf.expr(expression).cast("string")
    parts = (sf.hex("key"), sf.unix_millis("timestamp").cast("string"), sf.md5("value"))
    return sf.concat_ws("/", *(sf.coalesce(part, sf.lit("-")) for part in parts))


def utc_date(time: "Column") -> "Column":
    """The date in UTC, as text: 2016-11-14. Whatever the session's zone is."""
    from pyspark.sql import functions as sf

    days = sf.floor(sf.unix_millis(time) / 86_400_000).cast("int")
    return sf.date_from_unix_date(days).cast("string")


def utc_hour(time: "Column") -> "Column":
    """The hour in UTC, as two digits."""
    from pyspark.sql import functions as sf

    hours = sf.floor(sf.unix_millis(time) / 3_600_000)
    return sf.lpad(sf.pmod(hours, sf.lit(24)).cast("string"), 2, "0")
