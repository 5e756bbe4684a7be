"""The bounds of a batch read are those of its `load()`, whatever happens until an action."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from horolog import blocking
from horolog.pipeline.planning import DataLoss
from horolog.protocol.errors import UnknownTopicOrPartition
from horolog.testing.broker import BrokerThread

from .sources import T0_MS, carried, parts, plain, read, rows, source, told

MakeTopic = Callable[..., str]


def fill(producer: blocking.Producer, topic: str, count: int, value: bytes = b"v") -> None:
    times = [T0_MS + number for number in range(count)]
    producer.send_batch(topic, [value] * count, timestamps_ms=times)


@pytest.mark.parametrize(
    "bounds",
    [{}, {"startingTimestamp": T0_MS}, {"timeRange": "offsets", "startingTimestamp": T0_MS}],
    ids=["all", "exact", "offsets"],
)
def test_every_action_reads_what_was_there_at_load(
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    bounds: dict[str, object],
) -> None:
    topic = make_topic()
    fill(producer, topic, 10)
    made = source(broker.address, subscribe=topic, **bounds)
    fill(producer, topic, 7)
    assert len(read(made)) == 10
    fill(producer, topic, 7)
    assert len(read(made)) == 10
    # A schema of one's own is not asked for.
    times_only = StructType(made.schema().fields[5:6])
    assert len(read(made, times_only)) == 10
    assert len(read(source(broker.address, subscribe=topic, **bounds))) == 24


@pytest.mark.parametrize("strict", [True, False])
def test_what_is_trimmed_between_load_and_the_first_action(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    strict: bool,
) -> None:
    topic = make_topic()
    fill(producer, topic, 10)
    made = source(broker.address, subscribe=topic, failOnDataLoss=strict)
    admin.delete_records(topic, 0, 4)
    if strict:
        with pytest.raises(DataLoss, match=f"{topic}-0 from offset 0 on .* offsets 4 to 10"):
            read(made)
    else:
        assert [row["offset"] for row in read(made)] == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("strict", [True, False])
def test_a_topic_that_is_made_again_between_load_and_the_first_action(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    strict: bool,
) -> None:
    topic = make_topic()
    fill(producer, topic, 10)
    made = source(broker.address, subscribe=topic, failOnDataLoss=strict)
    admin.delete_topic(topic)
    admin.create_topic(topic, settings={"retention.ms": "-1"})
    fill(producer, topic, 20, b"new")
    if strict:
        with pytest.raises(DataLoss, match=f"topic {topic} was deleted and made again"):
            read(made)
    else:
        assert read(made) == []


def test_a_topic_that_is_made_after_load_is_found_at_the_action(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
) -> None:
    topic = make_topic() + "-later"
    made = source(broker.address, subscribe=topic)
    with pytest.raises(UnknownTopicOrPartition, match=f"has no topic '{topic}'"):
        read(made)
    admin.create_topic(topic, settings={"retention.ms": "-1"})
    fill(producer, topic, 3)
    assert len(read(made)) == 3


def test_a_broker_that_is_away_at_load_is_asked_at_the_action(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = BrokerThread(tmp_path / "data", {"retention.ms": -1})
    with broker:
        with blocking.Producer(broker.address, check_units=False) as producer:
            fill(producer, "t", 10)
        broker.restart()  # at the same address from here on
        broker.stop()
        made = source(broker.address, subscribe="t")
        broker.start()
        with caplog.at_level(logging.WARNING):
            assert len(read(source(broker.address, subscribe="t"))) == 10
            assert told(caplog) == []
            assert len(read(made)) == 10
        assert any("could not be looked up by load()" in text for text in told(caplog))


def test_options_of_a_stream_or_a_write_are_none_of_a_batch(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    fill(producer, topic, 10)
    made = source(broker.address, subscribe=topic, startingOffsets="latest", idleWaitMs=0)
    fill(producer, topic, 5)
    reader = carried(made.streamReader(made.schema()))
    start = reader.initialOffset()
    assert plain(start) == {topic: {"0": 15}}
    fill(producer, topic, 5)
    assert plain(reader.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 20}}
    source(broker.address, topic=topic).writer(StructType([made.schema()["value"]]), False)


def test_a_read_from_before_what_is_complete_is_logged(
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = make_topic()
    fill(producer, topic, 5)
    starts = {"startingTimestamp": T0_MS}
    with caplog.at_level(logging.WARNING, "horolog.pipeline"):
        assert len(read(source(broker.address, subscribe=topic, **starts))) == 5
        assert not told(caplog)
        with blocking.Admin(broker.address) as admin:
            admin.delete_records(topic, 0, before=3)
        assert len(read(source(broker.address, subscribe=topic, **starts))) == 2
    (warning,) = set(told(caplog))
    assert warning.startswith(f"{topic}-0 is read from ")
    assert f"`horolog explain gone {topic}`" in warning


def test_closed_segments_are_listed_at_load(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(settings={"segment.bytes": "2048"})
    for _ in range(20):
        fill(producer, topic, 50)
    folder = tmp_path / "copy" / f"{topic}-0"
    folder.mkdir(parents=True)
    for log in (broker.data_dir / f"{topic}-0").glob("*.log"):
        shutil.copy(log, folder)
    made = source(None, segments_path=folder)
    closed = sorted(folder.glob("*.log"))[:-1]
    assert len(closed) > 2
    reader = made.reader(made.schema())
    listed = [str(log) for log in closed]
    assert [part.path for part in parts(reader.partitions())] == listed
    (folder / f"{10**6:020d}.log").touch()
    assert [part.path for part in parts(reader.partitions())] == listed
    closed[0].unlink()
    with pytest.raises(DataLoss, match="was there when the read was planned"):
        rows(reader, list(reader.partitions()), made.schema(), made)
