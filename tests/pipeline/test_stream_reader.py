"""The offsets of streams, asked for as Spark asks, without Spark."""

import json
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import IntegerType, StructField, StructType

from horolog import blocking
from horolog.client.cluster.servers import parse_servers
from horolog.pipeline.option_values import OptionError
from horolog.pipeline.options import BrokerOptions
from horolog.pipeline.planning import DataLoss
from horolog.pipeline.questions import Questions, questions
from horolog.pipeline.source import StreamReader
from horolog.protocol.errors import UnknownTopicOrPartition
from horolog.testing.broker import BrokerThread

from .sources import T0_MS, carried, plain, sizes, source

MakeTopic = Callable[..., str]


def stream(broker: BrokerThread, **options: object) -> StreamReader:
    made = source(broker.address, **options)
    reader: StreamReader = carried(made.streamReader(made.schema()))
    return reader


def fill(producer: blocking.Producer, topic: str, *sizes: int) -> None:
    for partition, size in enumerate(sizes):
        producer.send_batch(topic, [b"v"] * size, partition=partition)


def test_the_first_offset_does_not_move(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    fill(producer, topic, 3, 5)
    reader = stream(broker, subscribe=topic, startingOffsets="latest")
    first = reader.initialOffset()
    assert plain(first) == {topic: {"0": 3, "1": 5}}
    fill(producer, topic, 4, 4)
    assert reader.initialOffset() == first
    assert plain(reader.latestOffset(first, ReadAllAvailable())) == {topic: {"0": 7, "1": 9}}
    assert plain(reader.reportLatestOffset() or {}) == {topic: {"0": 7, "1": 9}}


def test_offsets_are_the_same_text_every_time(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(12)
    fill(producer, topic, *[2] * 12)
    reader = stream(broker, subscribe=topic, idleWaitMs=0)
    end = reader.latestOffset({topic: {"11": 0, "2": 0}}, ReadAllAvailable())
    assert list(end[topic]) == [str(number) for number in range(12)]
    again = json.loads(json.dumps(end))
    assert json.dumps(reader.latestOffset(again, ReadAllAvailable())) == json.dumps(end)


def test_limits_of_a_batch(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    fill(producer, topic, 90, 10)
    reader = stream(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    end = reader.latestOffset(start, limit)
    assert plain(end) == {topic: {"0": 18, "1": 2}}
    assert plain(reader.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 90, "1": 10}}
    assert sizes(reader.partitions(start, end)) == [18, 2]
    assert list(reader.partitions(end, end)) == []


def test_too_little_waits_for_more(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    fill(producer, topic, 5)
    waiting = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 10}
    reader = stream(broker, **waiting)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    fill(producer, topic, 5)
    assert plain(reader.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 10}}
    patient = stream(broker, **waiting | {"minOffsetsPerTrigger": 99, "maxTriggerDelay": "1 ms"})
    answers = {str(plain(patient.latestOffset(start, ReadAllAvailable()))) for _ in range(100)}
    assert str({topic: {"0": 10}}) in answers


def test_what_is_available_now(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    fill(producer, topic, 25)
    reader = stream(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    reader.prepareForTriggerAvailableNow()
    fill(producer, topic, 25)
    reached: list[Any] = [reader.initialOffset()]
    while (end := reader.latestOffset(reached[-1], reader.getDefaultReadLimit())) != reached[-1]:
        reached.append(end)
    assert [offsets[topic]["0"] for offsets in reached] == [0, 10, 20, 25]


def test_what_is_available_now_from_the_end_of_a_topic_that_grows(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    fill(producer, topic, 5)
    reader = stream(broker, subscribe=topic)
    reader.prepareForTriggerAvailableNow()
    fill(producer, topic, 3)
    start = reader.initialOffset()
    fill(producer, topic, 3)
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert plain(start) == {topic: {"0": 8}}


def test_batches_of_the_same_stretch_of_time(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    dense = [T0_MS + ms for ms in range(0, 100_000, 100)]
    sparse = [T0_MS + ms for ms in (0, 55_000, 99_000)]
    for partition, times in enumerate((dense, sparse)):
        producer.send_batch(topic, [b"v"] * len(times), timestamps_ms=times, partition=partition)
    reader = stream(
        broker, subscribe=topic, startingOffsets="earliest", maxTimePerTrigger="1 minute"
    )
    reached: list[Any] = [reader.initialOffset()]
    while (end := reader.latestOffset(reached[-1], reader.getDefaultReadLimit())) != reached[-1]:
        reached.append(end)
    cuts = [(T0_MS // 60_000 + number) * 60_000 for number in range(1, 4)]
    assert [offsets[topic] for offsets in reached[1:]] == [
        {"0": sum(ms < cut for ms in dense), "1": sum(ms < cut for ms in sparse)}
        for cut in cuts
        if cut - 60_000 < T0_MS + 100_000
    ]


@pytest.mark.parametrize("place", [0, 1, 30, 60])
def test_messages_of_the_future_hold_nobody_up(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic, place: int
) -> None:
    topic = make_topic(2)
    minutes = [T0_MS // 600_000 * 600_000 + minute * 60_000 for minute in range(60)]
    future = [T0_MS + 100 * 365 * 86_400_000] * 3
    early = [*minutes[:place], *future, *minutes[place:]]
    for partition, times in enumerate((early, minutes)):
        producer.send_batch(topic, [b"v"] * len(times), timestamps_ms=times, partition=partition)
    options = {"subscribe": topic, "maxTimePerTrigger": "10 minutes"}
    start: Any = {topic: {"0": 0, "1": 0}}
    for end in range(10, 70, 10):
        # Offsets that one process left are where the next one goes on.
        reader = stream(broker, **options)
        reader.prepareForTriggerAvailableNow()
        reached = reader.latestOffset(start, reader.getDefaultReadLimit())
        passed = 3 if place <= end else 0
        assert plain(reached) == {topic: {"0": end + passed, "1": end}}
        start = reached


def test_a_message_that_is_ahead_of_others_does_not_hold_up_those_behind_it(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    minutes = [T0_MS // 600_000 * 600_000 + minute * 60_000 for minute in range(60)]
    ahead = [minutes[-1] + 600_000, *minutes]
    for partition, times in enumerate((ahead, minutes)):
        producer.send_batch(topic, [b"v"] * len(times), timestamps_ms=times, partition=partition)
    reader = stream(broker, subscribe=topic, maxTimePerTrigger="10 minutes")
    reached = reader.latestOffset({topic: {"0": 1, "1": 0}}, reader.getDefaultReadLimit())
    assert plain(reached) == {topic: {"0": 11, "1": 10}}


def test_a_stretch_of_time_of_which_some_was_deleted(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
) -> None:
    topic = make_topic()
    times = [T0_MS // 60_000 * 60_000 + second * 1000 for second in range(120)]
    producer.send_batch(topic, [b"v"] * 120, timestamps_ms=times)
    admin.delete_records(topic, 0, 20)
    reader = stream(broker, subscribe=topic, maxTimePerTrigger="1 minute", failOnDataLoss=False)
    reached = reader.latestOffset({topic: {"0": 5}}, reader.getDefaultReadLimit())
    assert plain(reached) == {topic: {"0": 60}}


def test_a_bounded_stream(
    broker: BrokerThread, producer: blocking.Producer, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    times = [T0_MS + number for number in range(10)]
    producer.send_batch(topic, [b"v"] * 10, timestamps_ms=times)
    reader = stream(
        broker,
        subscribe=topic,
        startingTimestamp=T0_MS + 2,
        endingTimestamp=T0_MS + 7,
        idleWaitMs=0,
    )
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert (plain(start), plain(end)) == ({topic: {"0": 2}}, {topic: {"0": 7}})
    assert reader.latestOffset(end, ReadAllAvailable()) == end


@pytest.mark.parametrize(
    "options",
    [{"endingTimestamp": T0_MS + 7}, {"minOffsetsPerTrigger": 100}],
    ids=["at its end", "too little"],
)
def test_a_stream_with_nothing_to_do_waits(
    broker: BrokerThread,
    producer: blocking.Producer,
    make_topic: MakeTopic,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[tuple[dict[Any, int], int]] = []

    def wait(_: Questions, ends: dict[Any, int], wait_ms: int) -> None:
        waits.append((ends, wait_ms))

    monkeypatch.setattr(Questions, "wait_beyond", wait)
    topic = make_topic()
    producer.send_batch(topic, [b"v"] * 10, timestamps_ms=[T0_MS + number for number in range(10)])
    start = {topic: {"0": 7}}
    reader = stream(broker, subscribe=topic, idleWaitMs=200, **options)
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    at_its_end = "endingTimestamp" in options
    assert waits == [({} if at_its_end else {(topic, 0): 10}, 200)]


def test_what_has_nothing_to_wait_for_waits_all_the_same(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark asks again at once: a stream at its bound would keep the broker busy."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    asked = questions(BrokerOptions(parse_servers(broker.address)))
    # Brokers of this process sleep too: they keep what they have.
    monkeypatch.setattr("horolog.pipeline.questions.asyncio", SimpleNamespace(sleep=sleep))
    asked.wait_beyond({}, 200)
    monkeypatch.undo()
    assert waits == [0.2]


@pytest.mark.parametrize("bounded", [{}, {"endingTimestamp": T0_MS + 10**12}], ids=["", "bounded"])
@pytest.mark.parametrize("made_again", [False, True], ids=["gone", "made again"])
def test_a_topic_that_is_not_what_it_was(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    made_again: bool,
    bounded: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = make_topic()
    fill(producer, topic, 10)
    options = {"subscribePattern": f"{topic}|other", "startingOffsets": "earliest", "idleWaitMs": 0}
    options |= bounded
    reader = stream(broker, **options)
    # As a checkpoint has them that knows no ids.
    start = plain(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
    admin.delete_topic(topic)
    if made_again:
        admin.create_topic(topic)
        fill(producer, topic, 3)
    with pytest.raises(DataLoss, match=f"{topic}-0 was to be read from offset 10 on"):
        reader.latestOffset(start, ReadAllAvailable())
    lenient = stream(broker, **options, failOnDataLoss=False)
    for _ in range(2):
        assert lenient.latestOffset(start, ReadAllAvailable()) == start
    told = [record for record in caplog.records if "from offset 10 on" in record.getMessage()]
    assert len(told) == 1


@pytest.mark.parametrize("name", ["subscribe", "assign"])
def test_a_topic_that_was_named_and_is_gone(
    broker: BrokerThread,
    producer: blocking.Producer,
    admin: blocking.Admin,
    make_topic: MakeTopic,
    name: str,
) -> None:
    gone, kept = make_topic(), make_topic()
    fill(producer, gone, 3)
    fill(producer, kept, 3)
    admin.delete_topic(gone)
    topics = f"{gone},{kept}" if name == "subscribe" else json.dumps({gone: [0], kept: [0]})
    start: Any = {gone: {"0": 3}, kept: {"0": 1}}
    with pytest.raises(UnknownTopicOrPartition):
        stream(broker, **{name: topics}).latestOffset(start, ReadAllAvailable())
    lenient = stream(broker, **{name: topics}, failOnDataLoss=False)
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert plain(end) == {gone: {"0": 3}, kept: {"0": 3}}


def test_a_start_names_every_partition_of_a_stream(
    broker: BrokerThread, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    start = {topic: {"0": 0, "1": 0}}
    with pytest.raises(OptionError, match=f"for {topic}-2: name all"):
        stream(broker, subscribe=topic, startingOffsets=json.dumps(start)).initialOffset()
    start[topic]["2"] = -2
    named = stream(broker, subscribe=topic, startingOffsets=json.dumps(start)).initialOffset()
    assert plain(named) == {topic: {"0": 0, "1": 0, "2": 0}}


WRONG = {"startingTimestamps": "@-1h"}, {"startingOffsets": "first"}, {"segments.path": "t-0"}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: next(iter(wrong)))
def test_a_wrong_option_is_raised_by_whatever_spark_calls_first(wrong: dict[str, str]) -> None:
    """What `streamReader` raises is hidden by an UnboundLocalError of Spark."""
    made = source("127.0.0.1:1", subscribe="t", **wrong)
    reader: Any = carried(made.streamReader(made.schema()))
    assert issubclass(type(reader), SupportsTriggerAvailableNow)
    (name,) = wrong
    offset: dict[str, Any] = {"t": {"0": 0}}
    for call in (
        reader.initialOffset,
        reader.prepareForTriggerAvailableNow,
        partial(reader.latestOffset, offset, reader.getDefaultReadLimit()),
        partial(reader.partitions, offset, offset),
        partial(reader.read, None),
    ):
        with pytest.raises(OptionError, match=f"(?i){name}"):
            call()
    assert reader.reportLatestOffset() is None
    reader.stop()


def test_a_wrong_column_of_a_stream_is_raised_by_its_first_call(broker: BrokerThread) -> None:
    made = source(broker.address, subscribe="t")
    schema = StructType([StructField("offset", IntegerType())])
    with pytest.raises(OptionError, match="the column 'offset' of"):
        made.streamReader(schema).initialOffset()
