"""Loads rows of files or a database into a topic, each with its own time.

Before loading, `preflight` checks whether the topic would accept the rows and keep them. A row goes
to the partition that a Kafka client would choose by its key. One task writes each partition, in
the order of times, so that a search by time in the topic is quick.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ...blocking import Admin
from ...client.cluster.servers import Servers
from ...client.results import TopicSetting
from ...clock import Clock, SystemClock
from ...protocol.api.log.list_offsets import LATEST
from ...protocol.errors import UnknownTopicOrPartition
from ...protocol.partitioner import partition_of
from ...times import INT64_MAX, format_time
from ..spark_types import Column, DataFrame, SparkSession

_DIFFERENCE_NAMES: Final = (
    "max.message.time.difference.ms",
    "message.timestamp.difference.max.ms",
)
"""The two names of one setting: Horolog's and Kafka's."""

_DELETE: Final = "delete"
_COMPACT: Final = "compact"
"""Values in `cleanup.policy`."""

_MANY_SEGMENTS: Final = 1000
"""Segments in a partition above which there is a warning: each has three or four files."""

_MESSAGE_OVERHEAD: Final = 100
"""Upper estimate of the bytes that a stored message takes besides key and value."""

FORMATS: Final = ("parquet", "csv", "json", "orc", "jdbc")


@dataclass(frozen=True, slots=True)
class DataFacts:
    """Statistics of the rows to load."""

    rows: int
    first_ms: int | None
    """Smallest time; None if no row has one."""
    last_ms: int | None
    without_time: int
    largest_bytes: int
    """Size of key and value of the largest row."""
    total_bytes: int
    """Size of all keys and values."""
    without_value: int = 0
    without_key: int = 0


class FindingLevel(StrEnum):
    """How much a finding matters."""

    REFUSED = "refused"
    """Rows would be refused or lost: loading does not start."""
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """A conflict between the topic and the data."""

    level: FindingLevel
    text: str
    fix: str
    """A command, or what to change; empty if there is nothing to do."""


def preflight(
    server: str | Servers, topic: str, facts: DataFacts, *, clock: Clock | None = None
) -> list[PreflightFinding]:
    """Find out why `topic` would refuse these rows, or would not keep them.

    Loading is safe if no finding is `REFUSED`. Raises ConnectionFailed.
    """
    now_ms = (clock or SystemClock()).now_ms()
    with Admin(server) as admin:
        try:
            settings = admin.describe_topic(topic).settings
        except UnknownTopicOrPartition:
            return [_missing_topic(topic, facts, now_ms)]
    return list(judge(topic, {one.name: one for one in settings}, facts, now_ms))


def judge(
    topic: str, settings: Mapping[str, TopicSetting], facts: DataFacts, now_ms: int
) -> Iterator[PreflightFinding]:
    """Yield the findings, from the topic's effective settings."""
    topic_settings = _Settings(topic, settings)
    if facts.without_value:
        yield PreflightFinding(
            FindingLevel.REFUSED,
            f"{facts.without_value} rows have null for a value",
            "name another expression as the value, as coalesce(VALUE, ''), or leave such rows out "
            "of the input",
        )
    yield from _about_times(topic_settings, facts, now_ms)
    policies = topic_settings.text("cleanup.policy", _DELETE).split(",")
    if _COMPACT in policies and facts.without_key:
        yield PreflightFinding(
            FindingLevel.REFUSED,
            f"{facts.without_key} rows have null for a key, and the topic is compacted "
            f"(cleanup.policy={','.join(policies)}): their sets would be refused",
            "name another expression as the key, or load into a topic with cleanup.policy=delete",
        )
    if _DELETE in policies:
        yield from _about_retention(topic_settings, facts, now_ms)
    yield from _about_sizes(topic_settings, facts)


class _Settings:
    """Reads a topic's settings as texts and numbers, and writes the command that changes one."""

    def __init__(self, topic: str, settings: Mapping[str, TopicSetting]) -> None:
        self._topic = topic
        self._settings = settings

    def text(self, name: str, default: str) -> str:
        found = self._settings.get(name)
        return default if found is None or found.value is None else found.value

    def number(self, name: str, default: int) -> int:
        return int(self.text(name, str(default)))

    def is_set(self, name: str) -> bool:
        found = self._settings.get(name)
        return found is not None and found.source != "default"

    def alter(self, name: str, value: object) -> str:
        return f"horolog topic alter {self._topic} --set {name}={value}"


def _missing_topic(topic: str, facts: DataFacts, now_ms: int) -> PreflightFinding:
    keep = ""
    if facts.first_ms is not None and facts.first_ms < now_ms:
        keep = " --set retention.ms=-1"
    return PreflightFinding(
        FindingLevel.REFUSED,
        f"there is no topic {topic}",
        f"horolog topic create {topic} --partitions 1{keep}",
    )


def _about_times(settings: _Settings, facts: DataFacts, now_ms: int) -> Iterator[PreflightFinding]:
    kind = settings.text("message.timestamp.type", "CreateTime")
    if kind != "CreateTime":
        yield PreflightFinding(
            FindingLevel.REFUSED,
            f"the topic replaces the rows' times by its own (message.timestamp.type={kind})",
            settings.alter("message.timestamp.type", "CreateTime"),
        )
    version = settings.text("message.format.version", "producer")
    if version.startswith(("0.8", "0.9")):
        yield PreflightFinding(
            FindingLevel.REFUSED,
            f"the topic stores no times (message.format.version={version})",
            settings.alter("message.format.version", "producer"),
        )
    if facts.without_time:
        yield PreflightFinding(
            FindingLevel.WARNING,
            f"{facts.without_time} rows have no time: they get that of the loading",
            "",
        )
    if facts.first_ms is None or facts.last_ms is None:
        return
    if facts.first_ms < 0:
        yield PreflightFinding(
            FindingLevel.REFUSED,
            f"the oldest row is {-facts.first_ms} ms before 1970, which no message can be",
            "",
        )
    for direction, apart_ms, when in (
        ("before", now_ms - facts.first_ms, f"oldest row is of {format_time(facts.first_ms)}"),
        ("after", facts.last_ms - now_ms, f"newest row is of {format_time(facts.last_ms)}"),
    ):
        name, allowed_ms = _allowed(settings, direction)
        if apart_ms > allowed_ms:
            yield PreflightFinding(
                FindingLevel.REFUSED,
                f"the {when}, {apart_ms} ms from now, and {name} allows {allowed_ms} ms: its set "
                "would be refused",
                settings.alter(name, INT64_MAX),
            )


def _allowed(settings: _Settings, direction: str) -> tuple[str, int]:
    """Return the setting that limits timestamps before or after now, and its value in ms."""
    own = f"message.timestamp.{direction}.max.ms"
    if settings.is_set(own):
        return own, settings.number(own, INT64_MAX)
    for name in _DIFFERENCE_NAMES:
        if settings.is_set(name):
            return name, settings.number(name, INT64_MAX)
    return own, settings.number(own, INT64_MAX)


def _about_retention(
    settings: _Settings, facts: DataFacts, now_ms: int
) -> Iterator[PreflightFinding]:
    retention_ms = settings.number("retention.ms", -1)
    if retention_ms >= 0 and facts.first_ms is not None and facts.last_ms is not None:
        oldest_ms = now_ms - retention_ms
        if facts.first_ms < oldest_ms:
            which = "all rows are" if facts.last_ms < oldest_ms else "the oldest rows are"
            yield PreflightFinding(
                FindingLevel.REFUSED,
                f"{which} older than retention.ms={retention_ms} (the oldest is of "
                f"{format_time(facts.first_ms)}): retention goes by message time, so they would "
                "be deleted again",
                settings.alter("retention.ms", -1),
            )
    retention_bytes = settings.number("retention.bytes", -1)
    if 0 <= retention_bytes < facts.total_bytes:
        yield PreflightFinding(
            FindingLevel.WARNING,
            f"the rows are {facts.total_bytes} bytes, and retention.bytes={retention_bytes} keeps "
            "so much of a partition: with few partitions the oldest would be deleted again",
            settings.alter("retention.bytes", -1),
        )


def _about_sizes(settings: _Settings, facts: DataFacts) -> Iterator[PreflightFinding]:
    largest = settings.number("max.message.bytes", INT64_MAX)
    if facts.largest_bytes + _MESSAGE_OVERHEAD > largest:
        yield PreflightFinding(
            FindingLevel.REFUSED,
            f"the largest row has {facts.largest_bytes} bytes of key and value, and "
            f"max.message.bytes={largest}",
            settings.alter("max.message.bytes", facts.largest_bytes + _MESSAGE_OVERHEAD),
        )
    segment_ms = settings.number("segment.ms", INT64_MAX)
    if facts.first_ms is not None and facts.last_ms is not None and segment_ms > 0:
        segments = (facts.last_ms - facts.first_ms) // segment_ms
        if segments > _MANY_SEGMENTS:
            yield PreflightFinding(
                FindingLevel.WARNING,
                f"the times span {segments} times segment.ms={segment_ms}, so each partition "
                "would get about as many segments",
                settings.alter("segment.ms", (facts.last_ms - facts.first_ms) // _MANY_SEGMENTS),
            )


@dataclass(frozen=True, slots=True)
class Mapped:
    """SQL expressions over the columns of the input for the fields of messages; None uses the input
    column with the name of the field, if there is one."""

    value: str | None = None
    """Text or binary; without such a column, the whole row as JSON."""
    key: str | None = None
    """Text or binary; without such a column rows have no key."""
    timestamp: str | None = None
    """A timestamp, a date, text that Spark can convert to one, or epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Log end of each partition of a topic."""

    offsets: tuple[int, ...]

    def since(self, before: "Ends") -> int:
        """Number of messages appended since `before`."""
        return sum(self.offsets) - sum(before.offsets)


def topic_ends(server: str | Servers, topic: str) -> Ends:
    """Return the present log ends. Raises UnknownTopicOrPartition, ConnectionFailed."""
    with Admin(server) as admin:
        partitions = range(admin.partition_count(topic))
        found = (admin.list_offsets(topic, one, [LATEST])[0].offset or 0 for one in partitions)
        return Ends(tuple(found))


def read_input(
    spark: SparkSession, path: str | None, kind: str, options: Mapping[str, str]
) -> DataFrame:
    """Read rows of files, or of a table (`kind` jdbc, with Spark's options for it and no path)."""
    reader = spark.read.format(kind)
    if kind == "csv":
        reader = reader.options(header="true", inferSchema="false")
    reader = reader.options(**options)
    return reader.load() if path is None else reader.load(path)


def messages(rows: DataFrame, mapped: Mapped, partitions: int) -> DataFrame:
    """Convert rows to messages with the columns `key`, `value`, `timestamp` and `partition`.

    Raises ValueError if there is neither an expression nor a column for the time.
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


def facts_of(rows: DataFrame) -> DataFacts:
    """Compute the statistics that `preflight` needs, in one pass over the messages."""
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
    rows: DataFrame, server: str | Servers, topic: str, partitions: int, job_id: str | None = None
) -> None:
    """Append messages to a topic with this many partitions, in order of time in each partition.

    If a failed task runs again, messages that it had appended are not appended twice. With a
    `job_id` the same is true of the whole job: the same rows under the same id are appended once,
    within `producer.id.expiration.ms`.
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


def _chosen(rows: DataFrame, expression: str | None, name: str) -> Column | None:
    from pyspark.sql import functions as sf

    if expression is not None:
        return sf.expr(expression)
    return sf.col(name) if name in rows.columns else None


def _as_bytes(rows: DataFrame, name: str) -> Column:
    """Convert a column to bytes: binary unchanged, structured types as JSON, others as text."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    kind = rows.schema[name].dataType
    if isinstance(kind, BinaryType):
        return sf.col(name)
    if isinstance(kind, (ArrayType, MapType, StructType)):
        return sf.to_json(name).cast("binary").alias(name)
    return sf.col(name).cast("string").cast("binary").alias(name)


def _as_timestamp(rows: DataFrame) -> Column:
    from pyspark.sql import functions as sf
    from pyspark.sql.types import IntegralType, StringType

    kind = rows.schema["timestamp"].dataType
    time = sf.col("timestamp")
    if isinstance(kind, IntegralType):
        return sf.timestamp_millis(time)
    if isinstance(kind, StringType):
        # Text of 11 to 14 digits is epoch milliseconds; other text is a date and time.
        digits = sf.when(time.rlike(r"^\d{11,14}$"), sf.timestamp_millis(time.try_cast("bigint")))
        return sf.coalesce(digits, time.cast("timestamp"))
    return time.cast("timestamp")


def _partition(partitions: int) -> Column:
    """Return the partition as Kafka's clients choose it by the key. Rows without a key get one by
    time and value, so that a task that runs again makes the same choice."""
    from pyspark.sql import functions as sf

    without_key = sf.pmod(sf.xxhash64("timestamp", "value"), sf.lit(partitions)).cast("int")
    return sf.coalesce(partitions_of(partitions)("key"), without_key)


def partitions_of(partitions: int) -> Callable[..., Column]:
    """Make a Spark function from a binary key column to the partition number; null for null."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def choose(keys: pa.Array) -> pa.Array:
        return choose_partitions(keys, partitions)

    make: Any = arrow_udf  # its overloads do not have a call without a function type
    made: Callable[..., Column] = make(choose, "int")
    return made


def choose_partitions(keys: Any, partitions: int) -> Any:
    """Return the partitions (Arrow int32) for keys (Arrow binary); each distinct key is hashed
    once."""
    import pyarrow as pa

    encoded = keys.dictionary_encode()
    chosen = [partition_of(key.as_py(), partitions) for key in encoded.dictionary]
    return pa.array(chosen, pa.int32()).take(encoded.indices)
