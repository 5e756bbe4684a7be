"""Windows of time read from a broker, given by times or by name: the rows that a plain scan finds,
without all of the log."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from horolog import NewRecord, UnknownTopicOrPartition, blocking
from horolog.client.cluster.servers import parse_servers
from horolog.client.produce.producer import Compression
from horolog.pipeline import bounds, span_readers
from horolog.pipeline.options import BrokerOptions
from horolog.pipeline.planning import DataLoss, PlannedSpan, Window
from horolog.pipeline.source import StreamReader
from horolog.pipeline.span_readers import WindowReader, window_request
from horolog.protocol.api.log.fetch import FetchRequest
from horolog.protocol.window_topics import WindowName, window_name
from horolog.testing.broker import BrokerThread

from .sources import T0_MS, carried, plain, read, rows, sizes, source

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SET_MESSAGES, PARTITIONS = 50, 2
MESSAGES = 200 * SET_MESSAGES
SETTINGS = {"segment.bytes": 1_500_000, "retention.ms": -1, "kafka.listen": "127.0.0.1:0"}
TOPICS: dict[str, tuple[Compression, dict[str, str]]] = {
    "plain": ("none", {}),
    "wrapped": ("lz4", {}),
    "batches": ("zstd", {"message.format.version": "0.11.0"}),
}
WINDOWS = [
    (T0_MS - 300 * DAY_MS, T0_MS - DAY_MS),
    (T0_MS + 2 * DAY_MS, T0_MS + 9 * DAY_MS),
    (T0_MS + 30 * DAY_MS, T0_MS + 40 * DAY_MS),
    (T0_MS + HOUR_MS, T0_MS + HOUR_MS),
    (T0_MS, T0_MS + DAY_MS),
]

Filled = tuple[BrokerThread, list[list[int]]]


def out_of_order(random: Random) -> list[int]:
    """A day, up to ten minutes out of order, with messages far off, and some without a time."""
    times = [
        T0_MS + DAY_MS * number // MESSAGES + random.randrange(-600_000, 600_000)
        for number in range(MESSAGES)
    ]
    for number in random.sample(range(MESSAGES), 40):
        times[number] += random.randrange(-300, 3) * DAY_MS
    for first in random.sample(range(0, MESSAGES, SET_MESSAGES), 3):
        times[first : first + SET_MESSAGES] = [-1] * SET_MESSAGES
    return times


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A broker whose topics have the same times in other formats; and these, by partition."""
    random = Random(11)
    all_times = [out_of_order(random) for _ in range(PARTITIONS)]
    with BrokerThread(tmp_path_factory.mktemp("windows") / "data", SETTINGS) as broker:
        for topic, (compression, settings) in TOPICS.items():
            with blocking.Admin(broker.address) as admin:
                admin.create_topic(topic, partitions=PARTITIONS, settings=settings)
            with blocking.Producer(
                broker.address, compression=compression, stamp_missing=False
            ) as producer:
                for partition, times in enumerate(all_times):
                    for first in range(0, MESSAGES, SET_MESSAGES):
                        some = times[first : first + SET_MESSAGES]
                        records = [NewRecord(random.randbytes(300), None, ms) for ms in some]
                        producer.send_many(topic, records, partition=partition)
        yield broker, all_times


def expected(times: list[list[int]], start_ms: int, end_ms: int) -> list[tuple[int, int]]:
    return [
        (partition, offset)
        for partition, own in enumerate(times)
        for offset, time_ms in enumerate(own)
        if start_ms <= time_ms < end_ms
    ]


def found(address: str, **options: object) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in read(source(address, **options))]


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize(
    "cut", [{}, {"minPartitions": 7}, {"maxRecordsPerPartition": 700}], ids=["", "least", "most"]
)
def test_windows_are_exact(filled: Filled, topic: str, cut: dict[str, int]) -> None:
    broker, times = filled
    random = Random(f"{topic} {cut}")
    windows = list(WINDOWS)
    for _ in range(5):
        start_ms = T0_MS + random.randrange(DAY_MS)
        windows.append((start_ms, start_ms + random.randrange(3 * HOUR_MS)))
    # How partitions are cut does not depend on the window: half of them will do.
    for start_ms, end_ms in random.sample(windows, 5) if cut else windows:
        bounds = {"startingTimestamp": start_ms, "endingTimestamp": end_ms, **cut}
        assert found(broker.address, subscribe=topic, **bounds) == expected(times, start_ms, end_ms)


def test_one_bound_filters_too_and_none_does_not(filled: Filled) -> None:
    broker, times = filled
    noon_ms = T0_MS + DAY_MS // 2
    before = found(broker.address, subscribe="plain", endingTimestamp=noon_ms)
    assert before == expected(times, 0, noon_ms)
    after = found(broker.address, subscribe="plain", startingTimestamp=noon_ms)
    assert after == expected(times, noon_ms, 2**63)
    untimed = expected(times, -1, 0)
    assert sorted(before + after + untimed) == found(broker.address, subscribe="plain")
    assert len(untimed) == 6 * SET_MESSAGES


def test_a_cluster_of_kafka_is_read_through(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, times = filled
    start_ms, end_ms = T0_MS + HOUR_MS, T0_MS + 3 * HOUR_MS
    options = {"startingTimestamp": start_ms, "endingTimestamp": end_ms, "minPartitions": 4}
    for module in (bounds, span_readers):
        monkeypatch.delattr(module, "window_request")
    address = f"kafka://{broker.kafka_address}"
    assert found(address, subscribe="plain", **options) == expected(times, start_ms, end_ms)


def test_a_broker_that_passes_nothing_over_is_read_through(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_window(topic: str, places: Any, window: Window, most: int) -> FetchRequest:
        return window_request(topic, places, Window(-1), most)

    broker, times = filled
    for module in (bounds, span_readers):
        monkeypatch.setattr(module, "window_request", without_window)
    start_ms, end_ms = T0_MS + HOUR_MS, T0_MS + 3 * HOUR_MS
    options = {"startingTimestamp": start_ms, "endingTimestamp": end_ms, "minPartitions": 4}
    made = source(broker.address, subscribe="plain", **options)
    first = expected(times, start_ms, 2**63)[0][1]
    planned: list[Any] = list(made.reader(made.schema()).partitions())
    assert planned[0].span.start == first
    assert sum(sizes(planned)) > MESSAGES
    assert found(broker.address, subscribe="plain", **options) == expected(times, start_ms, end_ms)


def test_tasks_have_equal_work(filled: Filled) -> None:
    broker, times = filled
    start_ms, end_ms = T0_MS + 6 * HOUR_MS, T0_MS + 18 * HOUR_MS
    made = source(
        broker.address,
        subscribe="plain",
        startingTimestamp=start_ms,
        endingTimestamp=end_ms,
        minPartitions=8,
    )
    reader = made.reader(made.schema())
    planned = list(reader.partitions())
    assert len(planned) == 8
    counts = [len(rows(reader, [task], made.schema(), made)) for task in planned]
    assert sum(counts) == len(expected(times, start_ms, end_ms))
    # The end of the log has no time map yet, and counts as work.
    assert max(counts) < 1.4 * sum(counts) / len(counts)
    assert min(counts) > 0


def test_a_window_without_messages_has_no_tasks(filled: Filled) -> None:
    broker, _ = filled
    for start_ms, end_ms in (WINDOWS[2], WINDOWS[3]):
        made = source(
            broker.address,
            subscribe="plain",
            startingTimestamp=start_ms,
            endingTimestamp=end_ms,
        )
        assert list(made.reader(made.schema()).partitions()) == []


def fetched(reader: WindowReader, span: PlannedSpan) -> Iterator[int]:
    """The offsets of all that comes."""
    position = span.start
    while position < span.end:
        batches, position = reader.fetch(position)
        for batch in batches:
            yield from batch.offsets


def test_what_is_outside_of_the_window_does_not_come(filled: Filled) -> None:
    broker, times = filled
    start_ms, end_ms = T0_MS + 10 * HOUR_MS, T0_MS + 11 * HOUR_MS
    reader = WindowReader(BrokerOptions(parse_servers(broker.address)), append_times=False)
    try:
        span = PlannedSpan("plain", 1, 0, MESSAGES)
        reader.begin(span, (), Window(start_ms, end_ms))
        offsets = list(fetched(reader, span))
        reader.end()
    finally:
        reader.close()
    assert len(set(offsets)) == len(offsets) < MESSAGES / 5
    wanted = {offset for partition, offset in expected(times, start_ms, end_ms) if partition == 1}
    assert wanted <= set(offsets)


def test_a_restart_of_the_broker_is_not_noticed(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data", {"retention.ms": -1}) as broker:
        with blocking.Producer(broker.address) as producer:
            for number in range(20):
                producer.send_batch(
                    "t", [bytes(50_000)] * 10, timestamps_ms=[T0_MS + number % 2 * DAY_MS] * 10
                )
        broker.restart()  # at the same address from here on
        reader = WindowReader(BrokerOptions(parse_servers(broker.address)), append_times=False)
        try:
            span = PlannedSpan("t", 0, 0, 200)
            reader.begin(span, (), Window(T0_MS, T0_MS + 1))
            offsets = []
            for number, offset in zip(count(), fetched(reader, span), strict=False):
                offsets.append(offset)
                if number == 0:
                    broker.restart()
        finally:
            reader.close()
    of_the_window = [offset for offset in range(200) if offset // 10 % 2 == 0]
    assert set(of_the_window) <= set(offsets)
    assert offsets == sorted(set(offsets))


@pytest.mark.parametrize("strict", [True, False])
def test_messages_that_are_gone_since_the_plan(tmp_path: Path, strict: bool) -> None:
    with BrokerThread(tmp_path / "data", {"retention.ms": -1}) as broker:
        with blocking.Producer(broker.address) as producer:
            times = [T0_MS + number for number in range(100)]
            producer.send_batch("t", [b"v"] * 100, timestamps_ms=times)
        bounds = {"startingTimestamp": T0_MS + 10, "endingTimestamp": T0_MS + 50}
        made = source(broker.address, subscribe="t", failOnDataLoss=strict, **bounds)
        with blocking.Admin(broker.address) as admin:
            admin.delete_records("t", 0, 30)
        if strict:
            with pytest.raises(DataLoss, match=r"t-0 from offset 10 on .* offsets 30 to 100"):
                read(made)
        else:
            assert [row["offset"] for row in read(made)] == list(range(30, 50))


def test_append_times_come_with_a_window(filled: Filled) -> None:
    broker, times = filled
    start_ms, end_ms = T0_MS + HOUR_MS, T0_MS + 2 * HOUR_MS
    made = source(
        broker.address,
        subscribe="plain",
        startingTimestamp=start_ms,
        endingTimestamp=end_ms,
        includeAppendTime=True,
    )
    found_rows = read(made)
    assert len(found_rows) == len(expected(times, start_ms, end_ms))
    assert all(row["appendTime"] > row["timestamp"] for row in found_rows)


def named(topic: str, from_ms: int, until_ms: int | None, *, by_append: bool = False) -> str:
    return window_name(WindowName(topic, from_ms, until_ms, by_append))


@pytest.mark.parametrize(
    ("port", "cut"),
    [
        ("native", {}),
        ("native", {"minPartitions": 5}),
        ("native", {"maxRecordsPerPartition": 700}),
        ("kafka", {}),
    ],
)
def test_the_name_of_a_window_is_read_as_a_topic(
    filled: Filled, port: str, cut: dict[str, int]
) -> None:
    broker, times = filled
    address = broker.address if port == "native" else f"kafka://{broker.kafka_address}"
    for topic, window in zip(
        TOPICS, (WINDOWS[0], (T0_MS + HOUR_MS, None), WINDOWS[4]), strict=True
    ):
        name = named(topic, *window)
        for subscription in ({"subscribe": name}, {"assign": f'{{"{name}": [0, 1]}}'}):
            got = read(source(address, **subscription, **cut))
            offsets = [(row["partition"], row["offset"]) for row in got]
            assert offsets == expected(times, window[0], window[1] or 2**63)
            assert {row["topic"] for row in got} == {name}


def test_tasks_divide_what_is_in_a_named_window(filled: Filled) -> None:
    broker, times = filled
    start_ms, end_ms = T0_MS + 20 * HOUR_MS, T0_MS + 21 * HOUR_MS
    wanted = [offset for one, offset in expected(times, start_ms, end_ms) if one == 1]
    made = source(
        broker.address, assign=f'{{"{named("plain", start_ms, end_ms)}": [1]}}', minPartitions=4
    )
    planned: list[Any] = list(made.reader(made.schema()).partitions())
    assert len(planned) == 4
    assert (planned[0].span.start, planned[-1].span.end) == (wanted[0], wanted[-1] + 1)
    nothing = source(broker.address, subscribe=named("plain", *WINDOWS[2]))
    assert list(nothing.reader(nothing.schema()).partitions()) == []


def test_times_beside_a_named_window_hold_too(filled: Filled) -> None:
    broker, times = filled
    name = named("plain", T0_MS, T0_MS + 6 * HOUR_MS)
    both = {"startingTimestamp": T0_MS + 5 * HOUR_MS, "endingTimestamp": T0_MS + DAY_MS}
    both_hold = expected(times, T0_MS + 5 * HOUR_MS, T0_MS + 6 * HOUR_MS)
    assert found(broker.address, subscribe=name, **both) == both_hold
    by_offsets = found(broker.address, subscribe=name, timeRange="offsets", **both)
    assert set(both_hold) < set(by_offsets) < set(expected(times, T0_MS, T0_MS + 6 * HOUR_MS))


def test_a_named_window_by_append_time(filled: Filled) -> None:
    broker, _ = filled
    got = read(source(broker.address, subscribe="wrapped", includeAppendTime=True))
    moments = sorted({row["appendTime"] for row in got})
    start_ms, end_ms = (round(moments[at].timestamp() * 1000) for at in (10, 20))
    name = named("wrapped", start_ms, end_ms, by_append=True)
    assert found(broker.address, subscribe=name) == [
        (row["partition"], row["offset"])
        for row in got
        if moments[10] <= row["appendTime"] < moments[20]
    ]


def test_a_stream_of_a_named_window_gets_late_messages(filled: Filled) -> None:
    """Also into a partition that is empty at first; messages of other times are no batch."""
    broker, _ = filled
    with blocking.Admin(broker.address) as admin:
        admin.create_topic("late", partitions=2)

    def send(partition: int, *times_ms: int) -> None:
        with blocking.Producer(broker.address) as producer:
            producer.send_batch(
                "late", [b"v"] * len(times_ms), timestamps_ms=times_ms, partition=partition
            )

    name = named("late", T0_MS, T0_MS + HOUR_MS)
    made = source(broker.address, subscribe=name, startingOffsets="earliest", idleWaitMs=0)

    def begun() -> StreamReader:
        reader: StreamReader = carried(made.streamReader(made.schema()))
        return reader

    send(1, T0_MS - 1, T0_MS + HOUR_MS)
    first = begun().initialOffset()
    assert plain(first) == {name: {"0": 0, "1": 0}}
    assert begun().latestOffset(first, ReadAllAvailable()) == first
    send(1, T0_MS + 5, T0_MS - 5, T0_MS + 6)
    reader = begun()
    reader.prepareForTriggerAvailableNow()
    send(0, T0_MS, T0_MS - 1)
    end = reader.latestOffset(first, ReadAllAvailable())
    assert plain(end) == {name: {"0": 0, "1": 5}}
    got = rows(reader, reader.partitions(first, end), made.schema(), made)
    assert [(row["partition"], row["offset"]) for row in got] == [(1, 2), (1, 4)]
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    grown = begun().latestOffset(end, ReadAllAvailable())
    assert plain(grown) == {name: {"0": 1, "1": 5}}
    got = rows(reader, reader.partitions(end, grown), made.schema(), made)
    assert [(row["partition"], row["offset"]) for row in got] == [(0, 0)]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (f"plain..{T0_MS}..0h", "no time is in a window that ends at or before its start"),
        (f"plane..{T0_MS}..1h", f"no topic 'plane', of which plane..{T0_MS}..1h is a window: did"),
        ("plain..yesterday", "it is not the name of a window of plain, such as plain..2016"),
    ],
)
def test_names_of_no_window_are_told(filled: Filled, name: str, told: str) -> None:
    broker, _ = filled
    made = source(broker.address, subscribe=name)
    with pytest.raises(UnknownTopicOrPartition) as refused:
        made.reader(made.schema()).partitions()
    assert told in str(refused.value)
    beside = source(broker.address, assign=f'{{"plain..{T0_MS}..1h": [2]}}')
    with pytest.raises(UnknownTopicOrPartition, match=r"partition 2 of .* partitions 0 to 1"):
        beside.reader(beside.schema()).partitions()
