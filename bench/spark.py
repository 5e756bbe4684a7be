"""`python -m horolog.bench.spark [NAME...]`: rows a second through Spark beside Parquet files, and
the latency of a message from a producer through a stream of Spark into another topic.

Prints a table and writes `build/bench-spark.json`. Needs Java.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from .. import blocking
from ..pipeline.java import NoJava
from ..pipeline.spark_session import session
from ..protocol.api.log.list_offsets import LATEST
from .brokers import RETENTION_LIMIT, broker
from .figure import Figure, measure, median_ratio, quantile
from .raw_client import RefusedRequest
from .spark_prebuilt import NAME as PREBUILT_SOURCE
from .spark_prebuilt import Prebuilt

RESULTS: Final = Path("build") / "bench-spark.json"

_STREAM_PARTITIONS: Final = 2
_APART_S: Final = 0.01
_COLD_S: Final = 12
"""For how long batches are not counted: Java still compiles them."""
_SECONDS: Final = 12
_CHECKED: Final = 100
_TRIGGER: Final = "100 milliseconds"
_DEADLINE_S: Final = 60

_PARTITIONS: Final = 4

_ROWS: Final = 500_000
"""Number of rows in each partition."""
_BATCH: Final = 50_000
_VALUE_BYTES: Final = 100
_FIRST_MS: Final = 1_479_144_272_509
_WRITTEN: Final = 2_000_000
_ROUNDS: Final = 5
LATENCIES: Final = ("spark_latency_p50", "spark_latency_p95")

PARQUET: Final = {
    "spark_read_all": "parquet_read_all",
    "spark_read_timestamp": "parquet_read_timestamp",
}
"""Figure -> the figure that it is compared with."""

PREBUILT: Final = ("spark_prebuilt_all", "spark_prebuilt_timestamp")
"""The rates at which Spark takes rows from Python, without Horolog."""
NAMES: Final = (*PARQUET, *PREBUILT, "spark_read_range", "spark_write", *LATENCIES)


@dataclass(frozen=True, slots=True)
class Bench:
    """The Spark session, the broker and the folders of the measurements."""

    spark: SparkSession
    server: str
    folder: Path

    def read(
        self, columns: str | None = None, options: Mapping[str, int] = MappingProxyType({})
    ) -> DataFrame:
        """Read the topic `bench`."""
        reader = self.spark.read.format("horolog").option("bootstrap.servers", self.server)
        if columns is not None:
            reader = reader.schema(columns)
        return reader.options(**options).load(subscribe="bench")

    @property
    def parquet(self) -> str:
        """Read the same rows from Parquet, as Spark writes them."""
        return str(self.folder / "parquet")


def main(names: list[str]) -> int:
    try:
        return measure(names, NAMES, _figures, RESULTS)
    except NoJava as error:
        sys.stderr.write(f"{error}\n")
        return 1


@contextmanager
def _bench() -> Iterator[Bench]:
    spark = session("bench", master="local[2]", conf={"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("OFF")
    try:
        with TemporaryDirectory(prefix="horolog-bench-") as folder, broker() as (server, _):
            yield Bench(spark, server.native, Path(folder))
    finally:
        spark.stop()


def _figures(wanted: set[str]) -> Iterator[Figure]:
    with _bench() as bench:
        if not wanted.isdisjoint(NAMES[: -len(LATENCIES)]):
            yield from _rates(bench, wanted)
        if not wanted.isdisjoint(LATENCIES):
            yield from stream_latency(bench.spark, bench.server, bench.folder / "checkpoint")


def _rates(bench: Bench, wanted: set[str]) -> Iterator[Figure]:
    """Return rows a second of each work, in turns, after one uncounted turn."""
    _fill(bench.server)
    bench.read().write.parquet(bench.parquet)
    _check_same(bench.read(), bench.spark.read.parquet(bench.parquet))
    works = {name: work for name, work in _works(bench).items() if _origin(name) in wanted}
    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(_ROUNDS + 1):
        for name, work in works.items():
            began = time.perf_counter()
            rows = work()
            if number:
                found[name].append(rows / (time.perf_counter() - began))
    for name, rates in found.items():
        beside = PARQUET.get(name)
        if beside is None:
            yield Figure(name, median(rates), "rows/s")
            continue
        ratio = median_ratio(rates, found[beside])
        yield Figure(name, median(rates), "rows/s", beside, ratio)


def _origin(name: str) -> str:
    """Return the figure with which a figure is compared, or the figure itself."""
    return next((ours for ours, beside in PARQUET.items() if beside == name), name)


def _works(bench: Bench) -> dict[str, Callable[[], int]]:
    """Return the work of each figure. A work returns the number of its rows."""
    rows = _PARTITIONS * _ROWS
    tenth = {
        "startingTimestamp": _FIRST_MS + _ROWS // 2,
        "endingTimestamp": _FIRST_MS + _ROWS // 2 + _ROWS // 10,
    }
    parquet = bench.spark.read.parquet(bench.parquet)
    bench.spark.dataSource.register(Prebuilt)
    prebuilt = bench.spark.read.format(PREBUILT_SOURCE).options(tasks=_PARTITIONS, rows=_ROWS)
    prebuilt_all = prebuilt.load()
    prebuilt_timestamp = prebuilt.schema("timestamp timestamp").load()
    return {
        "spark_read_all": lambda: _drop(bench.read(), rows),
        "parquet_read_all": lambda: _drop(parquet, rows),
        "spark_read_timestamp": lambda: _drop(bench.read("timestamp timestamp"), rows),
        "parquet_read_timestamp": lambda: _drop(parquet.select("timestamp"), rows),
        "spark_prebuilt_all": lambda: _drop(prebuilt_all, rows),
        "spark_prebuilt_timestamp": lambda: _drop(prebuilt_timestamp, rows),
        "spark_read_range": lambda: _drop(bench.read(options=tenth), rows // 10),
        "spark_write": _Writing(bench).write,
    }


def _drop(read: DataFrame, rows: int) -> int:
    """Have Spark make every row, with all columns, and discard it."""
    read.write.format("noop").mode("overwrite").save()
    return rows


def _check_same(ours: DataFrame, theirs: DataFrame) -> None:
    """Raise `RefusedRequest` unless both have all rows, and the same rows."""
    hashes = f"sum(CAST(xxhash64({', '.join(ours.columns)}) AS decimal(38)))"
    found = [some.selectExpr("count(*)", hashes).head() for some in (ours, theirs)]
    if found[0] != found[1] or found[0] is None or found[0][0] != _PARTITIONS * _ROWS:
        raise RefusedRequest(f"rows and hashes of the topic and of its Parquet files: {found}")


def _fill(server: str) -> None:
    """Fill a topic with random values, one message a millisecond in each partition."""
    with blocking.Admin(server) as admin:
        settings = {"retention.ms": "-1"}
        admin.create_topic("bench", partitions=_PARTITIONS, settings=settings)
    with blocking.Producer(server) as producer:
        for first in range(0, _ROWS, _BATCH):
            times_ms = range(_FIRST_MS + first, _FIRST_MS + first + _BATCH)
            for partition in range(_PARTITIONS):
                data = os.urandom(_BATCH * _VALUE_BYTES)
                values = [data[at : at + _VALUE_BYTES] for at in range(0, len(data), _VALUE_BYTES)]
                producer.send_batch("bench", values, timestamps_ms=times_ms, partition=partition)


class _Writing:
    """Writes rows that Spark has in memory into a topic at its retention limit."""

    def __init__(self, bench: Bench) -> None:
        self._server = bench.server
        self._total = 0
        settings = {name.replace("_", "."): str(value) for name, value in RETENTION_LIMIT.items()}
        with blocking.Admin(self._server) as admin:
            admin.create_topic("written", partitions=_PARTITIONS, settings=settings)
        few = bench.read("value binary, timestamp timestamp").limit(_WRITTEN)
        self._rows = few.repartition(2).cache()
        if self._rows.count() != _WRITTEN:
            raise RefusedRequest(f"fewer than {_WRITTEN} rows to write")

    def write(self) -> int:
        """Write all rows once."""
        written = self._rows.write.format("horolog").mode("append").option("topic", "written")
        written.option("bootstrap.servers", self._server).save()
        self._total += _WRITTEN
        with blocking.Admin(self._server) as admin:
            asked = [admin.list_offsets("written", each, [LATEST]) for each in range(_PARTITIONS)]
        ends = [found.offset or 0 for (found,) in asked]
        if sum(ends) != self._total:
            raise RefusedRequest(
                f"written ends at {ends}, although {self._total} rows were written"
            )
        return _WRITTEN


def stream_latency(spark: SparkSession, server: str, checkpoint: Path) -> Iterator[Figure]:
    """Yield the latency of a stream: from the create time of a message to its append time in the
    topic to which the stream copies it, with 100 messages a second and a trigger every 100 ms."""
    with blocking.Admin(server) as admin:
        for name in ("live", "copied"):
            admin.create_topic(name, partitions=_STREAM_PARTITIONS, settings={"retention.ms": "-1"})
    query = _copying(spark, server, checkpoint)
    try:
        sent, counted_from_ms = _send(server, query)
        latencies_ms = _latencies_ms(server, sent, counted_from_ms)
    finally:
        query.stop()
    for share, name in ((0.5, "spark_latency_p50"), (0.95, "spark_latency_p95")):
        yield Figure(name, quantile(latencies_ms, share) / 1000, "s")


def _copying(spark: SparkSession, server: str, checkpoint: Path) -> StreamingQuery:
    live = spark.readStream.format("horolog").option("bootstrap.servers", server)
    read = live.load(subscribe="live", startingOffsets="earliest")
    copied = read.select("value", "timestamp").writeStream.format("horolog")
    return (
        copied.option("bootstrap.servers", server)
        .option("topic", "copied")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=_TRIGGER)
        .start()
    )


def _send(server: str, query: StreamingQuery) -> tuple[int, int]:
    """Return the number of sent messages, and the create time from which on they count."""
    sent, began = 0, time.monotonic()
    counted_from_ms = int((time.time() + _COLD_S) * 1000)
    with blocking.Producer(server, acks=1) as producer:
        while time.monotonic() < began + _COLD_S + _SECONDS:
            producer.enqueue("live", b"v" * 100, partition=sent % _STREAM_PARTITIONS)
            sent += 1
            time.sleep(max(began + sent * _APART_S - time.monotonic(), 0))
            if sent % _CHECKED == 0 and not query.isActive:
                raise RefusedRequest(f"the stream ended: {query.exception()}")
    return sent, counted_from_ms


def _latencies_ms(server: str, sent: int, counted_from_ms: int) -> list[int]:
    """Return the latencies of all counted messages. Raises Refused unless every message arrives
    exactly once."""
    found: list[int] = []
    read, deadline = 0, time.monotonic() + _DEADLINE_S
    with blocking.Consumer(server, append_times=True) as consumer:
        for partition in range(_STREAM_PARTITIONS):
            consumer.assign("copied", partition, offset=0)
        while read < sent and time.monotonic() < deadline:
            for batch in consumer.fetch_columns():
                read += batch.count
                assert batch.append_times_ms is not None
                times_ms = zip(batch.timestamps_ms, batch.append_times_ms, strict=True)
                found += [end - begin for begin, end in times_ms if begin >= counted_from_ms]
    if read != sent:
        raise RefusedRequest(f"{sent} messages were sent, and {read} came through the stream")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
