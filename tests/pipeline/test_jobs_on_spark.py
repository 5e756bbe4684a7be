"""The jobs that need Spark, on a real session and a real broker."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from horolog import blocking
from horolog.client.results import ConsumerRecord
from horolog.pipeline.jobs.bootstrap import (
    Mapped,
    facts_of,
    load,
    messages,
    read_input,
    topic_ends,
)
from horolog.pipeline.jobs.dataframes import read_plans
from horolog.pipeline.jobs.latency import Latencies, latency_report
from horolog.pipeline.jobs.ranges import plan_by_append_time, plan_by_create_time
from horolog.pipeline.jobs.replay import replay, replay_target
from horolog.pipeline.jobs.watch import Watch, start_watch
from horolog.protocol.partitioner import partition_of
from horolog.testing.broker import BrokerThread

from .brokers import create, send

T = 1_479_132_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE


@pytest.fixture
def broker(horolog_broker: BrokerThread) -> BrokerThread:
    create(horolog_broker, "m", 2)
    return horolog_broker


def parquet_files(folder: Path) -> list[Path]:
    return sorted(path.parent.relative_to(folder) for path in folder.rglob("*.parquet"))


def test_a_replay_is_exact_and_done_again_it_is_the_same(
    spark: SparkSession, broker: BrokerThread, tmp_path: Path
) -> None:
    late = [T + minute * MINUTE for minute in (1, 70, 130, 20, 125, -1)]
    send(broker, "m", late)
    send(broker, "m", [T + 59 * MINUTE, None], partition=1)
    plan = plan_by_create_time(broker.address, "m", T, T + 2 * HOUR)
    target = replay_target(str(tmp_path), plan)
    wanted = sorted(f"message of {T + minute * MINUTE}" for minute in (1, 20, 59, 70))
    for schema in (None, "value binary"):
        found = read_plans(spark, [plan], schema)
        assert sorted(bytes(row.value).decode() for row in found.collect()) == wanted
        assert schema is None or found.columns == ["value"]
    first = replay(spark, plan, target)
    assert (first.kept, first.stored, first.hours, first.missing) == (4, 4, 2, 0)
    assert (first.scanned, first.without_time) == (8, 1)
    # Messages that come later are in the same hours: nothing is there twice.
    send(broker, "m", [T + 2 * MINUTE], partition=1)
    plan = plan_by_create_time(broker.address, "m", T, T + 2 * HOUR)
    again = replay(spark, plan, target)
    assert (again.kept, again.stored, again.exact) == (5, 5, True)
    assert set(parquet_files(tmp_path)) == {
        Path("topic=m/dt=2016-11-14/hour=14"),
        Path("topic=m/dt=2016-11-14/hour=15"),
    }
    rows = spark.read.parquet(f"{tmp_path}/topic=m/dt=2016-11-14/hour=14").collect()
    assert sorted(bytes(row.value).decode() for row in rows) == sorted(
        f"message of {T + minute * MINUTE}" for minute in (1, 2, 20, 59)
    )


def test_a_replay_of_a_part_of_an_hour_has_a_folder_of_its_own(
    spark: SparkSession, broker: BrokerThread, tmp_path: Path
) -> None:
    send(broker, "m", [T, T + MINUTE, T + 2 * MINUTE])
    plan = plan_by_create_time(broker.address, "m", T + MINUTE, T + 2 * MINUTE)
    done = replay(spark, plan, replay_target(str(tmp_path), plan))
    assert (done.kept, done.exact) == (1, True)
    assert parquet_files(tmp_path) == [
        Path("run=20161114T140100.000Z_20161114T140200.000Z/topic=m/dt=2016-11-14/hour=14")
    ]
    # The topic is made again, and has nothing of these times.
    with blocking.Admin(broker.address) as admin:
        admin.delete_topic("m")
    create(broker, "m", 2)
    plan = plan_by_create_time(broker.address, "m", T + MINUTE, T + 2 * MINUTE)
    empty = replay(spark, plan, replay_target(str(tmp_path), plan))
    assert (empty.kept, empty.stored, empty.exact) == (0, 0, True)
    assert parquet_files(tmp_path) == []


def test_files_of_what_the_log_has_no_more_are_told(
    spark: SparkSession, broker: BrokerThread, tmp_path: Path
) -> None:
    for wrong, minute in ((0, 0), (2, HOUR // MINUTE)):
        with blocking.Admin(broker.address) as admin:
            admin.delete_topic("m")
        create(broker, "m", 2)
        send(broker, "m", [T + minute * MINUTE] * 2)
        plan = plan_by_create_time(broker.address, "m", T, T + HOUR)
        done = replay(spark, plan, replay_target(str(tmp_path), plan))
        assert (done.stored - done.kept, done.exact) == (wrong, not wrong)


def test_latency_by_minute_partition_and_topic(spark: SparkSession, broker: BrokerThread) -> None:
    clock = broker.clock
    clock.freeze()
    clock.step((60_000 - clock.now_ms() % 60_000) / 1000)  # windows are minutes of append time
    now_ms = clock.now_ms()
    send(broker, "m", [now_ms - late for late in range(1, 101)])
    clock.step(60)
    send(broker, "m", [clock.now_ms() - 123_456, clock.now_ms() + 5], partition=1)
    send(broker, "m", [None], partition=1)
    report = latency_report(spark, [plan_by_append_time(broker.address, "m", None, None)])
    assert (report.measured, report.unknown, report.skewed) == (102, 1, 1)
    assert report.max_latency_ms == 123_456
    assert report.select(of_partition=True, of_window=True) == [
        Latencies("m", 0, now_ms, 100, 50.5, 95.05, 99.01, 100, 0),
        # Above a second latencies are counted to three digits; the largest is exact.
        Latencies("m", 1, now_ms + 60_000, 2, 61_500.0, 116_850.0, 121_770.0, 123_456, 1),
    ]
    (whole,) = report.select("m", of_partition=False, of_window=False)
    assert (whole.count, whole.p50_ms, whole.max_ms, whole.skewed) == (102, 50.5, 123_456, 1)


def test_bootstrap_keeps_times_and_partitions(spark: SparkSession, broker: BrokerThread) -> None:
    create(broker, "loaded", 3)
    rows = spark.createDataFrame(
        [(f"user {n % 7}", n, T + (n * 37 % 100) * 1000) for n in range(200)],
        "user string, n int, at bigint",
    ).repartition(2)
    mapped = messages(rows, Mapped(value="n", key="user", timestamp="at"), 3)
    facts = facts_of(mapped)
    assert (facts.rows, facts.first_ms, facts.last_ms) == (200, T, T + 99_000)
    for _ in range(2):  # the second run of the job appends nothing
        load(mapped, broker.address, "loaded", 3, job_id="once")
        assert sum(topic_ends(broker.address, "loaded").offsets) == 200
    with blocking.Consumer(broker.address) as consumer:
        for partition in range(3):
            consumer.assign("loaded", partition)
        found: list[ConsumerRecord] = []
        while len(found) < 200:
            found += consumer.fetch()
    for partition in range(3):
        times = [one.timestamp_ms for one in found if one.partition == partition]
        assert times == sorted(times, key=lambda ms: ms or 0)
    for one in found:
        number = int(one.value or b"")
        assert one.key == f"user {number % 7}".encode()
        assert one.partition == partition_of(one.key, 3)
        assert one.timestamp_ms == T + (number * 37 % 100) * 1000


def test_bootstrap_from_a_database(
    spark: SparkSession, broker: BrokerThread, tmp_path: Path
) -> None:
    table = {
        "url": f"jdbc:derby:{tmp_path / 'database'};create=true",  # comes with Spark
        "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        "dbtable": "orders",
    }
    made = spark.createDataFrame([("ann", T), ("bob", T + 1000)], "who string, at bigint")
    made.selectExpr("who", "timestamp_millis(at) AS at").write.format("jdbc").options(
        **table
    ).save()
    rows = read_input(spark, None, "jdbc", {**table, "numPartitions": "1"})
    load(messages(rows, Mapped(value="who", timestamp="at"), 1), broker.address, "m", 1)
    with blocking.Consumer(broker.address) as consumer:
        consumer.assign("m")
        found = [(one.value, one.timestamp_ms) for one in consumer.fetch()]
    assert found == [(b"ann", T), (b"bob", T + 1000)]


def test_rows_without_value_column_are_json(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("2016-11-14 14:00:00", 1), ("1479132000000", 2)], "timestamp string, n int"
    )
    nulls = messages(rows, Mapped(value="if(n = 1, null, n)"), 2)
    facts = facts_of(nulls)
    assert (facts.rows, facts.without_value, facts.without_key) == (2, 1, 2)
    first, second = messages(rows, Mapped(), 2).orderBy("value").collect()
    assert bytes(first.value) == b'{"timestamp":"1479132000000","n":2}'
    assert first.timestamp == second.timestamp
    assert first.key is None
    with pytest.raises(ValueError, match="no column `timestamp`"):
        messages(rows.select("n"), Mapped(), 2)


def test_watch_counts_copies_once_and_leaves_out_the_far_future(
    spark: SparkSession, broker: BrokerThread
) -> None:
    # First, so that all of its partition is behind it.
    send(broker, "m", [T + 100 * 365 * 24 * HOUR, T, T + 1000, T + 1000, T + MINUTE])
    send(broker, "m", [T + 5, T + 10 * MINUTE], partition=1)
    seen: dict[datetime, int] = {}

    def show(windows: DataFrame, batch: int) -> None:
        seen.update({row.start: row["count"] for row in windows.collect()})

    query = start_watch(spark, Watch(broker.address, "m", available_now=True), show)
    query.awaitTermination()
    minutes = {0: 3, 1: 1, 10: 1}
    assert seen == {
        datetime.fromtimestamp((T + minute * MINUTE) / 1000, UTC).replace(tzinfo=None): count
        for minute, count in minutes.items()
    }
