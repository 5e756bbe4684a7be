"""Windows of time as Arrow tables."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog import NewRecord, TimeError, UnknownTopicOrPartition, blocking, read_window
from horolog.client.consume import tables
from horolog.client.consume.time_bounds import WindowBy
from horolog.testing.broker import BrokerThread
from horolog.testing.waiting import wait_until
from horolog.tests.client.test_window_properties import (
    By,
    Sent,
    everything,
    fill,
    inside,
    sets,
    settings,
)
from horolog.tests.properties.examples import examples

T0 = 1_479_144_272_000


def wait_until_closed() -> None:
    """Wait until no reader has connections. Unreferenced readers, also of earlier tests, close
    theirs when they are collected, perhaps in another thread."""

    def closed() -> bool:
        gc.collect()
        return tables._LOOP._users == 0

    wait_until(closed, state=lambda: f"{tables._LOOP._users} readers are open")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    data = tmp_path_factory.mktemp("tables")
    with BrokerThread(data, {"kafka.listen": "127.0.0.1:0", "retention.ms": "-1"}) as running:
        running.clock.freeze()
        yield running


@pytest.fixture(scope="module")
def filled(broker: BrokerThread) -> str:
    """200,000 messages of a topic, a millisecond after each other."""
    with blocking.Producer(broker.address) as producer:
        for first in range(0, 200_000, 50_000):
            times_ms = list(range(T0 + first, T0 + first + 50_000))
            producer.send_batch("filled", [b"v" * 100] * 50_000, timestamps_ms=times_ms)
    return "filled"


@examples(40)
@given(
    made=settings,
    sent=st.lists(sets, min_size=1, max_size=8),
    by=st.sampled_from(get_args(By)),
    data=st.data(),
)
def test_a_table_is_what_a_plain_list_says(
    broker: BrokerThread, made: dict[str, str], sent: list[Sent], by: WindowBy, data: st.DataObject
) -> None:
    topic = fill(broker, made, sent)
    records = everything(broker.address, topic, sum(len(one.times_ms) for one in sent))
    times = [record.timestamp_ms for record in records if record.timestamp_ms is not None]
    times += [record.append_time_ms for record in records if record.append_time_ms is not None]
    bound = st.one_of(st.sampled_from(times or [T0]), st.none())
    start, end = data.draw(bound), data.draw(bound)
    if start is not None and end is not None and end < start:
        start, end = end, start
    names = ["append_time", "key", "offset", "partition", "timestamp", "topic", "value"]
    addresses = [broker.address]
    if by == "create":
        addresses.append(f"kafka://{broker.kafka_address}")
    for address in addresses:
        columns = names if address == broker.address else names[1:]
        reader = read_window(address, topic, start, end, by=by, columns=columns, check_units=False)
        rows = inside(records, start, end, by)
        expected: dict[str, list[object]] = {
            "append_time": [record.append_time_ms for record in rows],
            "key": [record.key for record in rows],
            "offset": [record.offset for record in rows],
            "partition": [record.partition for record in rows],
            "timestamp": [record.timestamp_ms for record in rows],
            "topic": [record.topic for record in rows],
            "value": [record.value for record in rows],
        }
        found = reader.read_all()
        assert found.schema.names == columns
        for name in columns:
            column = found[name]
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.int64())
            assert column.to_pylist() == expected[name]


def test_times_and_headers_have_arrows_types(broker: BrokerThread) -> None:
    with blocking.Producer(broker.address) as producer:
        headers = (("trace", b"1"), ("trace", None))
        producer.send_many("typed", [NewRecord(b"a", None, T0, headers), NewRecord(None, b"k", T0)])
    row, other = read_window(broker.address, "typed").read_all().to_pylist()
    assert list(row) == list(tables.TABLE_COLUMNS)
    assert row["timestamp"] == datetime.fromtimestamp(T0 / 1000, UTC)
    assert row["headers"] == [{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}]
    assert (row["key"], row["value"]) == (None, b"a")
    assert (other["key"], other["value"], other["headers"]) == (b"k", None, None)


def test_batches_stream_and_pandas_takes_them(broker: BrokerThread, filled: str) -> None:
    reader = read_window(broker.address, filled, T0 + 10, T0 + 150_000, columns=["timestamp"])
    sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 149_990
    assert 1 < len(sizes) <= 10
    frame = read_window(broker.address, filled, T0, T0 + 5).read_pandas()
    assert list(frame["value"]) == [b"v" * 100] * 5


def test_a_reader_that_is_dropped_closes_its_connections(broker: BrokerThread, filled: str) -> None:
    wait_until_closed()
    reader = read_window(broker.address, filled)
    assert reader.read_next_batch().num_rows
    assert tables._LOOP._users == 1
    del reader
    wait_until_closed()
    assert read_window(broker.address, filled, T0 - 5, T0).read_all().num_rows == 0
    wait_until_closed()


def test_an_unread_reader_does_not_hold_up_the_end_of_the_program(
    broker: BrokerThread, filled: str
) -> None:
    program = f"import horolog; kept = horolog.read_window({broker.address!r}, {filled!r})"
    done = subprocess.run([sys.executable, "-c", program], timeout=120, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "text"),
    [
        (("missing",), {}, UnknownTopicOrPartition, "missing"),
        (("filled", 5), {}, TimeError, "looks like seconds"),
        (("filled", T0, T0 - 1), {}, ValueError, "end has to be start or later"),
        (
            ("filled",),
            {"columns": ["values"]},
            ValueError,
            "'values' is no column; there are topic",
        ),
        (("filled",), {"columns": "value"}, TypeError, "sequence of names"),
        (("filled",), {"columns": []}, ValueError, "at least one"),
        ((7,), {}, TypeError, "topic is a str"),
    ],
)
def test_what_cannot_be_read_is_refused_by_the_call(
    broker: BrokerThread,
    filled: str,
    arguments: tuple[object, ...],
    options: dict[str, object],
    kind: type[Exception],
    text: str,
) -> None:
    with pytest.raises(kind, match=text):
        read_window(broker.address, *arguments, **options)  # type: ignore[arg-type]
    wait_until_closed()


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'horolog\[arrow\]'"):
        read_window("127.0.0.1:7070", "clicks")


def test_the_package_is_imported_without_pyarrow() -> None:
    program = "import horolog, sys; horolog.read_window; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parent)
