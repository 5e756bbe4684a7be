"""How far streams have come, stored at the broker."""

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from horolog import blocking
from horolog.client.cluster.servers import parse_servers
from horolog.pipeline import publish_progress
from horolog.pipeline.option_values import OptionError
from horolog.pipeline.options import BrokerOptions
from horolog.pipeline.progress_listener import (
    ProgressListener,
    Publisher,
    destination,
    publisher_of,
)
from horolog.testing.broker import BrokerThread

from .sources import told

MakeTopic = Callable[..., str]

PYTHON = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1"
WARNED = "the progress of groupId=billing could not be stored at {} ("


def positions(address: str, name: str, topic: str, partitions: int = 1) -> list[int | None]:
    """The offsets stored under a name."""
    with blocking.Admin(address) as admin:
        found = [admin.position(name, topic, partition) for partition in range(partitions)]
    return [None if one is None else one.offset for one in found]


@contextmanager
def publishing(address: str) -> Iterator[Publisher]:
    publisher = Publisher(BrokerOptions(parse_servers(address)), "billing")
    try:
        yield publisher
    finally:
        publisher.close()


def test_the_end_of_each_batch(broker: BrokerThread, make_topic: MakeTopic) -> None:
    topic, other = make_topic(2), make_topic()
    with publishing(broker.address) as publisher:
        publisher.publish({(topic, 0): 0, (topic, 1): 4})
        assert positions(broker.address, "billing", topic, 2) == [0, 4]
        publisher.publish({(topic, 0): 7, (topic, 1): 4, (other, 0): 1})
        assert positions(broker.address, "billing", topic, 2) == [7, 4]
        assert positions(broker.address, "billing", other) == [1]


def test_what_the_broker_was_told_is_not_told_again(
    broker: BrokerThread, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with publishing(broker.address) as publisher:
        publisher.publish({(topic, 0): 7})
        with blocking.Admin(broker.address) as admin:
            admin.commit_position("billing", topic, 0, 1)
        publisher.publish({(topic, 0): 7})
        assert positions(broker.address, "billing", topic) == [1]


def test_at_a_kafka_cluster_they_are_offsets_of_the_group(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data", {"kafka.listen": "127.0.0.1:0"}) as broker:
        with blocking.Admin(broker.address) as admin:
            admin.create_topic("t", partitions=2)
        address = f"kafka://{broker.kafka_address}"
        with publishing(address) as publisher:
            publisher.publish({("t", 0): 3, ("t", 1): 9})
        assert positions(address, "billing", "t", 2) == [3, 9]
        assert positions(broker.address, "billing", "t", 2) == [3, 9]


def test_a_broker_that_is_away_for_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerThread(tmp_path / "data") as broker:
        with blocking.Admin(broker.address) as admin:
            admin.create_topic("t")
        with publishing(broker.address) as publisher, caplog.at_level(logging.WARNING):
            publisher.publish({("t", 0): 1})
            broker.stop()
            publisher.publish({("t", 0): 2})
            (warning,) = told(caplog)
            assert warning.startswith(WARNED.format(broker.address))
            publisher.publish({("t", 0): 2})
            broker.restart()
            assert positions(broker.address, "billing", "t") == [1]
            publisher.publish({("t", 0): 3})
            assert positions(broker.address, "billing", "t") == [3]


def test_what_could_not_be_stored_is_tried_once_more_at_the_end(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as broker:
        with blocking.Admin(broker.address) as admin:
            admin.create_topic("t")
        with publishing(broker.address) as publisher:
            broker.stop()
            publisher.publish({("t", 0): 2})
            broker.restart()
        assert positions(broker.address, "billing", "t") == [2]


def test_a_broker_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        publisher = Publisher(
            BrokerOptions(parse_servers(address), request_timeout_ms=50), "billing"
        )
        with caplog.at_level(logging.WARNING):
            publisher.publish({("t", 0): 1})
            publisher.close()
    texts = told(caplog)
    assert texts
    assert all(text.startswith(WARNED.format(address)) for text in texts)
    # On a slow machine one attempt may end before it is connected, and the other one behind that.
    assert len(set(texts)) == len(texts)


def test_what_is_refused_is_logged_once(
    broker: BrokerThread, caplog: pytest.LogCaptureFixture
) -> None:
    with publishing(broker.address) as publisher, caplog.at_level(logging.WARNING):
        for offset in (1, 2):
            publisher.publish({("nowhere", 0): offset})
    (warning,) = told(caplog)
    assert "nowhere" in warning


def test_a_source_without_a_name() -> None:
    assert publisher_of({"bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}) is None


def progress(run: UUID, *ends: str | None, name: str | None = None) -> QueryProgressEvent:
    """What Spark tells of a batch whose sources ended there; one that ended at `{"log...}` is of
    another kind."""
    sources: list[dict[str, object]] = [
        {
            "description": "FileStreamSource@1" if "log" in (end or "") else PYTHON,
            "startOffset": None,
            "endOffset": end,
            "latestOffset": end,
            "numInputRows": 1,
            "inputRowsPerSecond": 1.0,
            "processedRowsPerSecond": 1.0,
            "metrics": {},
        }
        for end in ends
    ]
    told = {
        "id": str(run),
        "runId": str(run),
        "name": name,
        "timestamp": "2016-11-14T14:00:00.000Z",
        "batchId": 0,
        "batchDuration": 1,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "sources": sources,
        "sink": {"description": "noop", "numOutputRows": -1, "metrics": {}},
        "observedMetrics": {},
        "numInputRows": 1,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    }
    return QueryProgressEvent.fromJson({"progress": told})


def heard(broker: BrokerThread, *names: str | None) -> tuple[ProgressListener, UUID]:
    """A listener that knows a query whose sources have these names; None is not ours."""
    listener, run = ProgressListener(lambda _: None), uuid4()
    address = {"bootstrap.servers": broker.address, "subscribe": "t"}
    listener.learn(run, [None if name is None else {**address, "groupId": name} for name in names])
    return listener, run


def test_what_spark_tells_of_a_batch(broker: BrokerThread, make_topic: MakeTopic) -> None:
    one, two = make_topic(2), make_topic()
    listener, run = heard(broker, "first", None, "second")
    ends = [json.dumps({one: {"0": 12, "1": 3}}), '{"logOffset": 0}', json.dumps({two: {"0": 5}})]
    listener.onQueryProgress(progress(run, *ends))
    assert positions(broker.address, "first", one, 2) == [12, 3]
    assert positions(broker.address, "second", two) == [5]
    listener.onQueryProgress(progress(run, ends[0], ends[1], None))  # nothing came of it
    listener.onQueryProgress(progress(uuid4(), *ends))  # of a query without such sources
    listener.onQueryTerminated(QueryTerminatedEvent(run, run, None, None))
    assert positions(broker.address, "second", two) == [5]


def test_a_source_that_cannot_be_told_from_others(
    broker: BrokerThread, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    listener, run = heard(broker, "unclear")
    with caplog.at_level(logging.ERROR):
        listener.onQueryProgress(progress(run, None, json.dumps({topic: {"0": 5}})))
    assert "has 1 sources in its plan and 2 in its progress" in caplog.text
    listener.onQueryTerminated(QueryTerminatedEvent(run, run, None, None))
    assert positions(broker.address, "unclear", topic) == [None]


def test_a_query_that_is_named(broker: BrokerThread, make_topic: MakeTopic) -> None:
    """All sources of this format count, the earliest where two read the same, and no others."""
    one, two = make_topic(2), make_topic()
    named = {"copy": destination({"bootstrap.servers": broker.address, "subscribe": one}, "copies")}
    listener, run = ProgressListener(lambda _: pytest.fail("is not asked for"), named), uuid4()
    listener.onQueryStarted(QueryStartedEvent(run, run, "copy", "2016-11-14T14:00:00.000Z", set()))
    ends = [
        json.dumps({one: {"0": 12, "1": 3}, "@ids": {"cluster": "c"}}),
        json.dumps({one: {"1": 2}, two: {"0": 5}}),
        '{"logOffset": 0}',
        '{"page": {"token": "x"}}',  # another source written in Python
        '{"page": {"0": "x"}}',
        "7",
        None,
    ]
    listener.onQueryProgress(progress(run, *ends, name="copy"))
    listener.onQueryProgress(progress(uuid4(), *ends, name="other"))
    listener.onQueryProgress(progress(run, *ends[2:], name="copy"))
    assert positions(broker.address, "copies", one, 2) == [12, 2]
    assert positions(broker.address, "copies", two) == [5]
    listener.onQueryTerminated(QueryTerminatedEvent(run, run, None, None))


@pytest.mark.parametrize(
    ("server", "group", "wrong"),
    [
        ("here", "g", "bootstrap.servers: 'here' is not HOST:PORT"),
        ({"subscribe": "t"}, "g", '"bootstrap.servers" is missing'),
        ({"bootstrap.server": "h:1"}, "g", "did you mean 'bootstrap.servers'"),
        ("h:1", " ", "groupId=' '"),
    ],
)
def test_where_the_progress_of_a_named_query_cannot_go(
    server: str | dict[str, str], group: str, wrong: str
) -> None:
    with pytest.raises(OptionError, match=wrong):
        destination(server, group)
    assert destination(parse_servers("h:1"), "g") == destination("h:1", "g")


class Ended(StreamingQueryListener):
    """Sets `ended` when what was added before it has heard of the end of a query."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self.ended.set()


def stream(spark: SparkSession, broker: BrokerThread, topic: str, **options: str) -> DataFrame:
    given = {"bootstrap.servers": broker.address, "startingOffsets": "earliest", **options}
    rows = spark.readStream.format("horolog").options(**given).load(subscribe=topic)
    return rows.select("value")


@contextmanager
def published(spark: SparkSession) -> Iterator[threading.Event]:
    """Progress is published here; the event says that the end of a query was heard of."""
    ended = Ended()
    listeners = [publish_progress(spark), ended]
    spark.streams.addListener(ended)
    try:
        yield ended.ended
    finally:
        for listener in listeners:
            spark.streams.removeListener(listener)


def test_the_named_source_of_a_query(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    billed = make_topic(2)
    producer.send_batch(billed, [b"x"] * 50, partition=0)
    producer.send_batch(billed, [b"x"] * 3, partition=1)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "one").write_text("not ours")
    files = spark.readStream.text(str(tmp_path / "files"))
    named = stream(spark, broker, billed, groupId="Totals")
    rows = files.selectExpr("CAST(value AS BINARY)").union(named).union(named)
    with published(spark) as ended:
        writer = rows.writeStream.format("noop").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.start().awaitTermination()
        assert ended.wait(60)
    assert positions(broker.address, "Totals", billed, 2) == [50, 3]
    with blocking.Admin(broker.address) as admin:
        assert [lag.topic for lag in admin.lag("Totals")] == [billed, billed]


def test_a_query_that_had_begun_before(
    spark: SparkSession,
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    topic = make_topic()
    writer = stream(spark, broker, topic, groupId="Late").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        with published(spark) as ended:
            producer.send_batch(topic, [b"x"] * 6)
            query.processAllAvailable()
            query.stop()
            assert ended.wait(60)
    finally:
        query.stop()
    assert positions(broker.address, "Late", topic) == [6]
