"""`horolog export`: windows of time in Parquet files."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from horolog import NewRecord, blocking, read_window
from horolog.cli import export
from horolog.client.client import Client
from horolog.protocol.api.log.list_offsets import EARLIEST
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult
from horolog.tests.cli.conftest import ask, run, server

__all__ = ["ask", "run", "server"]

Run = Callable[..., CommandResult]

T0 = 1_479_142_800_000
"""2016-11-14T17:00:00Z."""

MINUTE_MS = 60_000
MINUTES = [0, 125, 30, 61, 59, 0]


@pytest.fixture(scope="module")
def clicks(server: BrokerThread) -> str:
    """Six messages in two partitions, not in the order of their times; minutes after T0."""
    with blocking.Admin(server.address) as admin, blocking.Producer(server.address) as producer:
        admin.create_topic("clicks", partitions=2, settings={"retention.ms": "-1"})
        for number, minute in enumerate(MINUTES):
            record = NewRecord(b"%d" % minute, b"k", T0 + minute * MINUTE_MS)
            producer.send_many("clicks", [record], partition=number % 2)
    return "clicks"


def values(path: Path) -> list[int]:
    return [int(value) for value in parquet.read_table(path)["value"].to_pylist()]


def test_a_file_has_exactly_the_window(ask: Run, clicks: str, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    times = ("--from", "2016-11-14T17:00:00Z", "--until", "2016-11-14T18:00:00Z")
    result = ask("export", clicks, *times, "--to", path, "--json")
    assert result.objects == [
        {
            "file": str(path),
            "messages": 4,
            "bytes": path.stat().st_size,
            "from_ms": T0,
            "until_ms": T0 + 60 * MINUTE_MS,
        }
    ]
    assert values(path) == [0, 30, 59, 0]
    assert list(tmp_path.iterdir()) == [path]
    whole = tmp_path / "whole.parquet"
    assert "6 messages" in ask("export", clicks, "--to", whole).out
    one = tmp_path / "one.parquet"
    ask("export", clicks, "--partition", "1", "--to", one)
    assert values(whole) == [0, 30, 59, 125, 61, 0]
    assert values(one) == [125, 61, 0]


def test_a_file_holds_what_the_library_returns(
    ask: Run,
    server: BrokerThread,
    clicks: str,
    tmp_path: Path,
) -> None:
    path = tmp_path / "out.parquet"
    ask("export", clicks, "--to", path)
    assert parquet.read_table(path).equals(read_window(server.address, clicks).read_all())


def test_each_interval_with_messages_gets_a_file(
    ask: Run,
    clicks: str,
    tmp_path: Path,
) -> None:
    times = ("--from", "2016-11-14T17:00:00Z", "--until", "2016-11-14T19:05:30Z")
    to = tmp_path / "hourly.parquet"
    result = ask("export", clicks, *times, "--every", "30m", "--to", to)
    assert {path.name: values(path) for path in tmp_path.iterdir()} == {
        "hourly-2016-11-14T17-00-00Z.parquet": [0, 0],
        "hourly-2016-11-14T17-30-00Z.parquet": [30, 59],
        "hourly-2016-11-14T18-00-00Z.parquet": [61],
        "hourly-2016-11-14T19-00-00Z.parquet": [125],
    }
    assert result.out.count("\n") == 4
    assert "6 messages in 4 files" in result.err


def test_files_that_exist_stay_unless_they_are_to_be_replaced(
    ask: Run,
    clicks: str,
    tmp_path: Path,
) -> None:
    path = tmp_path / "out.parquet"
    path.write_bytes(b"precious")
    refused = ask("export", clicks, "--to", path, code=2)
    assert f"{path} exists; --overwrite replaces it" in refused.err
    hourly = tmp_path / "out-2016-11-14T18-00-00Z.parquet"
    hourly.touch()
    span = ("--from", "@2016-11-14T17:00:00Z:2016-11-14T19:00:00Z", "--every", "1h")
    ask("export", clicks, *span, "--to", path, code=2)
    assert sorted(tmp_path.iterdir()) == [hourly, path]
    assert path.read_bytes() == b"precious"
    ask("export", clicks, "--to", path, "--overwrite")
    assert len(values(path)) == 6


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("clicks", "--to", "out.csv"), 2, "ends in .parquet"),
        (("clicks", "--to", "missing/out.parquet"), 2, "missing is no folder"),
        (("clicks", "--to", "o.parquet", "--every", "1h"), 2, "--every needs --from"),
        (("clicks", "--to", "o.parquet", "--from", "@-1h", "--every", "x"), 2, "write 250ms"),
        (("clicks", "--to", "o.parquet", "--from", "@-1h", "--every", "0s"), 2, "is no length"),
        (("clicks", "--to", "o.parquet", "--from", "@-1d", "--every", "1ms"), 2, "every has to be"),
        (("clicks", "--to", "o.parquet", "--from", "offset:3"), 2, "--from offset:3 is no time"),
        (("clicks", "--to", "o.parquet", "--from", "latest"), 2, "--from latest is no time"),
        (("clicks", "--to", "o.parquet", "--until", "earliest"), 2, "--until earliest is no time"),
        (("none", "--to", "o.parquet"), 1, "none"),
    ],
)
def test_wrong_usage_is_explained_and_writes_nothing(
    ask: Run,
    clicks: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert text in ask("export", *arguments, code=code).err
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_one_sentence_names_the_extra(
    ask: Run,
    clicks: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = ask("export", clicks, "--to", tmp_path / "out.parquet", code=1)
    assert "pip install 'horolog[arrow]'" in result.err
    assert result.err.count("\n") == 1


def test_messages_without_a_time_are_counted(
    ask: Run, server: BrokerThread, tmp_path: Path
) -> None:
    with blocking.Admin(server.address) as admin:
        admin.create_topic("untimed", settings={"retention.ms": "-1"})
    with blocking.Producer(server.address, stamp_missing=False) as producer:
        for _ in range(5):
            producer.send("untimed", b"u")
        producer.send("untimed", b"1", timestamp_ms=T0)
    path = tmp_path / "out.parquet"
    said = "horolog: 5 messages have no time, and are in no window"
    assert said in ask("export", "untimed", "--to", path).err.splitlines()
    assert values(path) == [1]
    assert said in ask("export", "untimed", "--from", "earliest", "--to", path, "--overwrite").err
    assert said in ask("record", "untimed", "--to", tmp_path / "out.rec").err.splitlines()
    for start in ("0", "2016-11-14T14:00:00Z", "now"):
        assert ask("consume", "untimed", "--from", start).err.endswith(f"; {said[9:]}\n")
    reader = read_window(server.address, "untimed", T0 + 1, None)
    assert reader.schema.metadata[b"horolog.untimed"] == b"5"
    assert reader.read_all().num_rows == 0


@pytest.fixture(scope="module")
def both_ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    data = tmp_path_factory.mktemp("both") / "data"
    with BrokerThread(data, {"kafka.listen": "127.0.0.1:0"}) as broker:
        yield broker


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (1, []),
        (
            4,
            [
                "horolog: {}-0: offsets 2 to 3 were deleted before they were reached; from "
                "2016-11-14T18:00:00.000Z on, messages may be missing"
            ],
        ),
    ],
)
@pytest.mark.parametrize("kafka", [True, False])
def test_what_is_deleted_between_two_files_is_said(
    both_ports: BrokerThread,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: int,
    told: list[str],
    kafka: bool,
) -> None:
    """A Kafka cluster says only where its logs begin: what was not reached may be missing. A file
    that is written already lacks nothing."""
    server = both_ports
    topic = f"passed-{before}-{kafka}"
    with blocking.Admin(server.address) as admin, blocking.Producer(server.address) as producer:
        admin.create_topic(topic, partitions=2, settings={"retention.ms": "-1"})
        for minute in (0, 59, 61, 125, 130, 185):
            record = NewRecord(b"%d" % minute, b"k", T0 + minute * MINUTE_MS)
            producer.send_many(topic, [record], partition=0)
    write = export._export

    def delete_behind(file: export.ExportedFile, *rest: Any, **options: Any) -> int | None:
        count = write(file, *rest, **options)
        with blocking.Admin(server.address) as admin:
            if admin.list_offsets(topic, 0, [EARLIEST])[0].offset == 0:
                admin.delete_records(topic, 0, before)
        return count

    made: list[str] = []
    make = Client.__init__

    def counted(self: Client, address: Any, **options: Any) -> None:
        if getattr(address, "kafka", False):
            made.append(type(self).__name__)
        make(self, address, **options)

    monkeypatch.setattr(export, "_export", delete_behind)
    monkeypatch.setattr(Client, "__init__", counted)
    span = ("--from", "@2016-11-14T17:00:00Z:2016-11-14T21:00:00Z", "--every", "1h")
    to = ("--to", tmp_path / "o.parquet", "--json")
    address = f"kafka://{server.kafka_address}" if kafka else server.address
    result = run("export", topic, *span, *to, "--server", address)
    counts = [2, 1, 2, 1] if before == 1 else [2, 1, 1]
    assert [each["messages"] for each in result.objects] == counts
    *lines, count = result.err.splitlines()
    assert made.count("Admin") == kafka  # one client for all files
    if kafka:
        assert lines == [line.format(topic) for line in told]
    else:
        assert bool(lines) is bool(told)
    assert "messages in" in count
