"""Windows and counts over random messages, beside a plain list of all of them."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog import ConsumerRecord, NewRecord, blocking
from horolog.testing.broker import BrokerThread
from horolog.tests.properties.examples import examples

Codec = Literal["none", "gzip", "lz4", "zstd"]
By = Literal["create", "append"]

T0 = 1_479_144_272_000
PARTITIONS = 3
NUMBERS = count()

times = st.one_of(
    st.integers(T0, T0 + 30),
    st.integers(T0, T0 + 30),
    st.integers(T0 - 86_400_000, T0 + 86_400_000),
    st.just(-1),
    st.just(0),
)


@dataclass(frozen=True)
class Sent:
    """A set of messages."""

    partition: int
    codec: Codec
    batches: bool
    times_ms: list[int]
    step_ms: int
    """How much time passes behind it."""


sets = st.builds(
    Sent,
    st.integers(0, PARTITIONS - 1),
    st.sampled_from(get_args(Codec)),
    st.booleans(),
    st.lists(times, min_size=1, max_size=40),
    st.sampled_from((0, 0, 1, 7)),
)
settings = st.fixed_dictionaries(
    {
        "message.timestamp.type": st.sampled_from(("CreateTime", "CreateTime", "LogAppendTime")),
        "message.format.version": st.sampled_from(("producer", "0.9.0", "0.10.2", "0.11.0")),
        "segment.bytes": st.sampled_from(("1500", "6000", "1073741824")),
        "retention.ms": st.just("-1"),
    }
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(
        tmp_path_factory.mktemp("windows"), {"kafka.listen": "127.0.0.1:0"}
    ) as running:
        running.clock.freeze()
        yield running


def fill(broker: BrokerThread, made: dict[str, str], sent: list[Sent]) -> str:
    """A topic of these messages."""
    topic = f"t{next(NUMBERS)}"
    plain = blocking.Producer(broker.address, stamp_missing=False)
    in_batches = blocking.Producer(broker.address, stamp_missing=False, idempotent=True)
    takes_batches = made["message.format.version"] in ("producer", "0.11.0")
    with blocking.Admin(broker.address) as admin, plain, in_batches:
        admin.create_topic(topic, partitions=PARTITIONS, settings=made)
        for one in sent:
            records = [NewRecord(b"%d" % time_ms, b"k", time_ms) for time_ms in one.times_ms]
            producer = in_batches if one.batches and takes_batches else plain
            producer.send_many(topic, records, partition=one.partition, compression=one.codec)
            if one.step_ms:
                broker.clock.step(one.step_ms / 1000)
    return topic


def everything(address: str, topic: str, messages: int) -> list[ConsumerRecord]:
    """All messages, by partition in the order of their offsets."""
    found: list[ConsumerRecord] = []
    with blocking.Consumer(address, append_times=True) as consumer:
        consumer.assign(topic)
        while len(found) < messages:
            found += consumer.fetch()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def time_of(record: ConsumerRecord, by: By) -> int | None:
    return record.append_time_ms if by == "append" else record.timestamp_ms


def inside(
    records: list[ConsumerRecord], start: int | None, end: int | None, by: By
) -> list[ConsumerRecord]:
    """The oracle: those of a window."""
    return [
        record
        for record in records
        if (time := time_of(record, by)) is not None
        and (start is None or time >= start)
        and (end is None or time < end)
    ]


def count_between(times: list[int], start: int, end: int) -> int:
    """Of sorted times. There may be 90,000 intervals, so the list is not gone through for each."""
    return bisect_left(times, end) - bisect_left(times, start)


def place(record: ConsumerRecord) -> tuple[int, int, bytes | None, int | None]:
    return record.partition, record.offset, record.value, record.timestamp_ms


def column_places(window: blocking.TimeWindow) -> list[tuple[int, int, bytes | None, int | None]]:
    return [
        (batch.partition, offset, value, None if time_ms < 0 else time_ms)
        for batch in window.columns()
        for offset, value, time_ms in zip(
            batch.offsets.tolist(),
            batch.values.contents(),
            batch.timestamps_ms.tolist(),
            strict=True,
        )
    ]


@examples(80)
@given(
    made=settings,
    sent=st.lists(sets, min_size=1, max_size=12),
    by=st.sampled_from(get_args(By)),
    data=st.data(),
)
def test_a_window_is_what_a_plain_list_says(
    broker: BrokerThread, made: dict[str, str], sent: list[Sent], by: By, data: st.DataObject
) -> None:
    """decision 36."""
    topic = fill(broker, made, sent)
    records = everything(broker.address, topic, sum(len(one.times_ms) for one in sent))
    known = [time for record in records if (time := time_of(record, by)) is not None]
    # Ends that are the times of messages show which of the two is in the window.
    near = st.builds(int.__add__, st.sampled_from(known or [T0]), st.sampled_from((0, 0, 0, 1, 40)))
    bound = st.one_of(near, near, near, st.none())
    start, end = data.draw(bound), data.draw(bound)
    if start is not None and end is not None and end < start:
        start, end = end, start
    expected = [place(record) for record in inside(records, start, end, by)]
    addresses = [broker.address]
    if by == "create":
        addresses.append(f"kafka://{broker.kafka_address}")
    for address in addresses:
        with blocking.Consumer(address, partition_max_bytes=2_000, check_units=False) as consumer:
            window = consumer.window(topic, start, end, by=by)
            assert [place(record) for record in window] == expected
            assert window.messages == len(expected)
            assert window.read_bytes <= window.log_bytes
            assert column_places(consumer.window(topic, start, end, by=by)) == expected
            some = consumer.window(topic, start, end, by=by, partitions=[2, 0, 2])
            assert [place(record) for record in some] == [
                one for one in expected if one[0] in (0, 2)
            ]


@examples(80)
@given(
    made=settings,
    sent=st.lists(sets, min_size=1, max_size=12),
    by=st.sampled_from(get_args(By)),
    every_ms=st.sampled_from((1, 7, 30, 1000, 86_400_000)),
    data=st.data(),
)
def test_counts_are_what_a_plain_list_says(
    broker: BrokerThread,
    made: dict[str, str],
    sent: list[Sent],
    by: By,
    every_ms: int,
    data: st.DataObject,
) -> None:
    topic = fill(broker, made, sent)
    records = everything(broker.address, topic, sum(len(one.times_ms) for one in sent))
    known = [time for record in records if (time := time_of(record, by)) is not None]
    start = max(data.draw(st.sampled_from([T0, *known])) + data.draw(st.integers(-40, 1)), 0)
    end = data.draw(st.sampled_from([start + 3000, start, *known]).filter(lambda ms: ms >= start))
    end = min(end, start + 90_000 * every_ms)
    found = inside(records, start, end, by)
    addresses = [broker.address]
    if by == "create":
        addresses.append(f"kafka://{broker.kafka_address}")
    for address in addresses:
        with blocking.Admin(address, check_units=False) as admin:
            counted = admin.count_by_time(
                topic, start, end, timedelta(milliseconds=every_ms), by=by
            )
        inner = sorted(time for record in found if (time := time_of(record, by)) is not None)
        assert [(one.from_ms, one.until_ms, one.count) for one in counted.intervals] == [
            (begin, until := min(begin + every_ms, end), count_between(inner, begin, until))
            for begin in range(start, end, every_ms)
        ]
        assert counted.messages == len(inner)
        assert counted.first_ms == min(inner, default=None)
        assert counted.last_ms == max(inner, default=None)
        if address == broker.address:
            assert counted.untimed == len(records) - len(known)
