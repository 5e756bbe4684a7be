"""Loading what is in files or in a database into a topic, with the times that it has there.

Rows go to the partition that a Kafka client would choose by their key, and each partition gets its
own in the order of their times, from one task, so that a search by time in the topic is quick.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...blocking import Admin
from ...client.cluster.servers import Servers
from ...protocol.api.log.list_offsets import LATEST
from .preflight import DataFacts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMATS: Final = ("parquet", "csv", "json", "orc", "jdbc")


@dataclass(frozen=True, slots=True)
class Mapped:
    """SQL expressions over the columns of the input; None takes the column of that name where
    there is one."""

    value: str | None = None
    """Text or binary; without such a column, the whole row as JSON."""
    key: str | None = None
    """Text or binary; without such a column rows have no key."""
    timestamp: str | None = None
    """A timestamp, a date, text that Spark takes for one, or a number of epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class Ends:
    """End of each partition of a topic."""

    offsets: tuple[int, ...]

    def since(self, before: "Ends") -> int:
        """How many messages were appended since."""
        return sum(self.offsets) - sum(before.offsets)


def topic_ends(server: str | Servers, topic: str) -> Ends:
    """Where the partitions end now. Raises UnknownTopicOrPartition, ConnectionFailed."""
    with Admin(server) as admin:
        partitions = range(admin.partition_count(topic))
        found = (admin.list_offsets(topic, one, [LATEST])[0].offset or 0 for one in partitions)
        return Ends(tuple(found))


def read_input(
    spark: "SparkSession", path: str | None, kind: str, options: Mapping[str, str]
) -> "DataFrame":
    """The rows of files, or of a table (`kind` jdbc, with Spark's options for it and no path)."""
    reader = spark.read.format(kind)
    if kind == "csv":
        reader = reader.options(header="true", inferSchema="false")
    reader = reader.options(**options)
    return reader.load() if path is None else reader.load(path)


def messages(rows: "DataFrame", mapped: Mapped, partitions: int) -> "DataFrame":
    """The rows as `key`, `value`, `timestamp` and `partition` of messages.

    Raises ValueError when there is nothing to take the time from.
    """
    from pyspark.sql import functions as sf

    value = _chosen(rows, mapped.value, "value")
    if value is None:
        value = sf.to_json(sf.struct(*(sf.col(f"`{name}`") for name in rows.columns)))
    key = _chosen(rows, mapped.key, "key")
    time = _chosen(rows, mapped.timestamp, "timestamp")
    if time is None:
        raise ValueError(
            f"the input has no column `timestamp` ({', '.join(rows.columns)}): name the "
            "expression that is the time (timestamp)"
        )
    chosen = rows.select(
        (sf.lit(None).cast("binary") if key is None else key).alias("key"),
        value.alias("value"),
        time.alias("timestamp"),
    )
    return chosen.select(
        _as_bytes(chosen, "key"),
        _as_bytes(chosen, "value"),
        _as_timestamp(chosen).alias("timestamp"),
    ).withColumn("partition", _partition(partitions))


def facts_of(rows: "DataFrame") -> DataFacts:
    """What `preflight` wants to know of messages; one pass over them."""
    from pyspark.sql import functions as sf

    size = sf.coalesce(sf.octet_length("key"), sf.lit(0)) + sf.coalesce(
        sf.octet_length("value"), sf.lit(0)
    )
    (found,) = rows.agg(
        sf.count(sf.lit(1)),
        sf.min(sf.unix_millis("timestamp")),
        sf.max(sf.unix_millis("timestamp")),
        sf.count_if(sf.col("timestamp").isNull()),
        sf.max(size),
        sf.sum(size),
        sf.count_if(sf.col("value").isNull()),
        sf.count_if(sf.col("key").isNull()),
    ).collect()
    return DataFacts(
        rows=found[0],
        first_ms=found[1],
        last_ms=found[2],
        without_time=found[3],
        largest_bytes=found[4] or 0,
        total_bytes=found[5] or 0,
        without_value=found[6],
        without_key=found[7],
    )


def load(
    rows: "DataFrame", server: str | Servers, topic: str, partitions: int, job_id: str | None = None
) -> None:
    """Append messages to a topic with this many partitions, each partition's in order of time.

    A task that fails is run again, and what it had appended already is not appended twice. With a
    `job_id` that holds for the whole job too: the same rows under the same id, within
    `producer.id.expiration.ms`, are appended once.
    """
    from ..connecting import connection_options

    writer = (
        rows.repartitionById(partitions, "partition")
        .sortWithinPartitions("timestamp", "key", "value")
        .write.format("horolog")
        .mode("append")
        .options(**connection_options(server))
        .option("topic", topic)
    )
    (writer if job_id is None else writer.option("jobId", job_id)).save()


def _chosen(rows: "DataFrame", expression: str | None, name: str) -> "Column | None":
    from pyspark.sql import functions as sf

    if expression is not None:
        return sf.expr(expression)
    return sf.col(name) if name in rows.columns else None


def _as_bytes(rows: "DataFrame", name: str) -> "Column":
    """Bytes as they are, what has parts as JSON, all else as text."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    kind = rows.schema[name].dataType
    if isinstance(kind, BinaryType):
        return sf.col(name)
    if isinstance(kind, (ArrayType, MapType, StructType)):
        return sf.to_json(name).cast("binary").alias(name)
    return sf.col(name).cast("string").cast("binary").alias(name)


def _as_timestamp(rows: "DataFrame") -> "Column":
    from pyspark.sql import functions as sf
    from pyspark.sql.types import IntegralType, StringType

    kind = rows.schema["timestamp"].dataType
    time = sf.col("timestamp")
    if isinstance(kind, IntegralType):
        return sf.timestamp_millis(time)
    if isinstance(kind, StringType):
        # Exported numbers are text; everything else is a date and time.
        digits = sf.when(time.rlike(r"^\d{11,14}$"), sf.timestamp_millis(time.try_cast("bigint")))
        return sf.coalesce(digits, time.cast("timestamp"))
    return time.cast("timestamp")


def _partition(partitions: int) -> "Column":
    """As Kafka's clients choose it by the key; without one, by time and value, so that a task that
    is run again chooses alike."""
    from pyspark.sql import functions as sf

    from .key_partitions import partitions_of

    without_key = sf.pmod(sf.xxhash64("timestamp", "value"), sf.lit(partitions)).cast("int")
    return sf.coalesce(partitions_of(partitions)("key"), without_key)
