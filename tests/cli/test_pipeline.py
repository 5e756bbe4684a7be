"""`horolog pipeline`: what needs no Spark."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from horolog import blocking
from horolog.cli.errors import WrongUsage
from horolog.cli.pipeline.spark import one_line, seen_by_spark, spark_session
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult
from horolog.tests.pipeline.brokers import commit, create, send

Run = Callable[..., CommandResult]

T = 1_479_132_000_000


@pytest.fixture
def broker(horolog_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> BrokerThread:
    """The broker that commands ask; topic `m` has messages of seconds 0 to 2."""
    monkeypatch.setenv("HOROLOG_SERVER", horolog_broker.address)
    horolog_broker.clock.freeze()
    create(horolog_broker, "m")
    send(horolog_broker, "m", [T, T + 1000, T + 2000])
    return horolog_broker


def test_the_program_does_not_import_spark() -> None:
    code = (
        "import sys, horolog.cli.app as app; app.whole_program()\n"
        "assert not {'pyspark', 'pyarrow', 'pandas'} & sys.modules.keys(), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_lag(broker: BrokerThread, run: Run) -> None:
    assert run("pipeline", "lag").out == "no positions are stored\n"
    commit(broker, "job", "m", 0, 1)
    broker.clock.step(100)
    (row,) = run("pipeline", "lag", "job", "--json").objects
    assert row.pop("lag_s") == 100
    assert row == {
        "name": "job",
        "topic": "m",
        "partition": 0,
        "offset": 1,
        "end": 3,
        "lag": 2,
        "estimated": False,
        "catch_up_s": None,
        "read_until_ms": T,
        "newest_ms": T + 2000,
    }
    shown = run("pipeline", "lag").out.splitlines()[1].split()
    assert shown[:6] == ["job", "m", "0", "1", "3", "2"]
    assert shown[-2:] == ["2016-11-14T14:00:00.000Z", "2016-11-14T14:00:02.000Z"]
    run("pipeline", "lag", "--at-most", "1h")
    late = run("pipeline", "lag", "--at-most", "1m", code=1)
    assert "job is behind in m-0: 1 min " in late.err
    nobody = run("pipeline", "lag", "nobody", code=1)
    assert "no position is stored under nobody" in nobody.err
    assert nobody.out == ""
    assert "--at-most: '5'" in run("pipeline", "lag", "--at-most", "5", code=2).err


def test_failover(broker: BrokerThread, run: Run) -> None:
    commit(broker, "job", "m", 0, 2)
    latency = ("failover", "m", "--max-latency", "1s")
    old = ("--name", "job", "--from-server", broker.address)
    (plan,) = run("pipeline", *latency, *old, "--json").objects
    assert plan == {
        "topic": "m",
        "max_latency_ms": 1000,
        "consumed": [{"partition": 0, "offset": 2, "last_read_ms": T + 1000}],
        "resume": [{"partition": 0, "from_ms": T, "offset": 0, "timestamp_ms": T, "end": 3}],
        "starting_offsets": '{"m":{"0":0}}',
    }
    shown = run("pipeline", *latency, *old).out.splitlines()
    assert shown[-1] == 'startingOffsets: {"m":{"0":0}}'
    assert "1 s before the last message read:" in shown[-4]
    (plan,) = run("pipeline", *latency, "--last-read", "2016-11-14T14:00:02Z", "--json").objects
    assert plan["resume"][0]["offset"] == 1
    for wrong in ((), ("--name", "job"), (*old, "--last-read", "now")):
        assert "--last-read alone" in run("pipeline", *latency, *wrong, code=2).err
    by_time = ("--last-read", "2016-11-14T14:00:02Z")
    for idle, text in (
        (("--check",), "--check compares with the old cluster"),
        (("--same-partitions",), "are about the old cluster"),
        (("--from-profile", "none"), "are about the old cluster"),
        (("--since", "now"), "are for --check"),
        (("--identity", "key"), "are for --check"),
    ):
        refused = run("pipeline", *latency, *by_time, *idle, code=2)
        assert text in refused.err
        assert refused.out == ""
    unknown = run("pipeline", *latency, "--name", "x", "--from-server", broker.address, code=1)
    assert "nothing is committed under 'x'" in unknown.err


def test_replay_prints_its_plan_first(broker: BrokerThread, run: Run, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out", "--plan")
    hours = ("--from", "2016-11-14T14:00:00Z", "--to", "2016-11-14T15:00:00Z")
    (plan,) = run("pipeline", "replay", "m", *hours, *out, "--json").objects
    assert plan == {
        "plan": "m",
        "partition": 0,
        "start": 0,
        "end": 3,
        "rows": 3,
        "from_ms": T,
        "to_ms": T + 3_600_000,
    }
    shown = run("pipeline", "replay", "m", *hours, *out).out.splitlines()
    assert shown[0] == "reading m, 2016-11-14T14:00:00.000Z to 2016-11-14T15:00:00.000Z:"
    assert shown[2].split() == ["0", "0", "3", "3"]


def test_replay_refuses_what_would_lose_messages(
    broker: BrokerThread, run: Run, tmp_path: Path
) -> None:
    out = ("--out", tmp_path)
    with blocking.Admin(broker.address) as admin:
        admin.delete_records("m", 0, 1)
    hours = ("--from", "2016-11-14T14:00:00Z", "--to", "2016-11-14T15:00:00Z")
    refused = run("pipeline", "replay", "m", *hours, *out, code=1)
    assert "m-0 begins at offset 1 by now" in refused.err
    run("pipeline", "replay", "m", *hours, *out, "--plan", "--what-is-left")
    (tmp_path / "run=open_open").mkdir()
    mixed = run("pipeline", "replay", "m", *hours, *out, code=1)
    assert "has replays of times that are no whole hours" in mixed.err
    backwards = ("--from", "2016-11-14T15:00:00Z", "--to", "2016-11-14T14:00:00Z")
    assert (
        "is not later than --from" in run("pipeline", "replay", "m", *backwards, *out, code=2).err
    )
    assert "--from: 'x'" in run("pipeline", "replay", "m", "--from", "x", *out, code=2).err


def test_a_replay_of_nothing_needs_no_spark(broker: BrokerThread, run: Run, tmp_path: Path) -> None:
    later = ("--from", "2016-11-15T00:00:00Z", "--out", tmp_path)
    assert "0 of 0 messages" in run("pipeline", "replay", "m", *later).out


def test_what_latency_refuses(broker: BrokerThread, run: Run, tmp_path: Path) -> None:
    def refused(*arguments: object, code: int) -> str:
        return run("pipeline", "latency", *map(str, arguments), code=code).err

    future = ("--from", "2100-01-01T00:00:00Z")
    assert "no message was appended in these times" in refused("m", *future, code=1)
    assert "not a .html, .svg or .png" in refused("m", "--out", tmp_path / "x.gif", code=2)
    for name in ("x.svg", "x.png"):
        assert "one topic" in refused("m", "n", "--out", tmp_path / name, code=2)
    assert "--by: '5'" in refused("m", "--by", "5", code=2)


def test_a_png_without_matplotlib(
    broker: BrokerThread, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    told = run("pipeline", "latency", "m", "--out", str(tmp_path / "x.png"), code=1).err
    assert '[plot]"' in told
    assert 'pip install "horolog[' not in told  # there is none on an index


def test_what_bootstrap_refuses(broker: BrokerThread, run: Run) -> None:
    def refused(*arguments: str) -> str:
        return run("pipeline", "bootstrap", "--topic", "m", *arguments, code=2).err

    assert "--format xml: it is one of" in refused("rows", "--format", "xml")
    assert "jdbc takes no PATH" in refused("rows", "--format", "jdbc")
    assert "every other format takes one" in refused()
    assert "--option header: write NAME=VALUE" in refused("rows", "--option", "header")
    assert "--conf spark.ui: write NAME=VALUE" in refused("rows", "--conf", "spark.ui")


@pytest.mark.parametrize("option", ["--late", "--window"])
def test_watch_refuses_lengths_of_nothing(broker: BrokerThread, run: Run, option: str) -> None:
    told = run("pipeline", "watch", "m", option, "0s", code=2).err
    assert f"{option} 0s: it is at least 1 ms" in told


def test_doctor_and_env(
    broker: BrokerThread, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.8\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    found = {one["name"]: one for one in run("pipeline", "doctor", "--json").objects}
    assert set(found) == {"java", "python", "pyspark", "pyarrow", "workers", "broker"}
    assert {one["level"] for one in found.values()} == {"good"}
    assert f"export JAVA_HOME={tmp_path}\n" in run("pipeline", "env").out
    broker.stop()
    failed = run("pipeline", "doctor", code=1).out.splitlines()
    assert failed[-1].startswith("To do: start a broker with `horolog serve`")


def test_paths_are_those_of_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert seen_by_spark("files", "local[*]") == str(tmp_path / "files")
    for path, master in (
        ("/files", "local"),
        ("s3a://bucket/files", "local[*]"),
        ("files", "spark://host:7077"),
    ):
        assert seen_by_spark(path, master) == path


def test_a_master_that_cannot_be_one_is_refused_before_spark_starts() -> None:
    refused = pytest.raises(WrongUsage, match=r"--master: 'nonsense' is no place")
    with refused, spark_session("nonsense", None):
        pass


def test_what_spark_reports_is_one_line() -> None:
    raised = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to create: Traceback (most recent call last):\n"
        '  File "worker.py", line 3, in main\n    partitions = reader.partitions()\n'
        "horolog.pipeline.planning.DataLoss: m-0 has lost messages\n SQLSTATE: 38000\n"
    )
    assert one_line(raised) == "m-0 has lost messages"
    assert one_line("[PATH_NOT_FOUND] Path does not exist: x.\nat java") == (
        "[PATH_NOT_FOUND] Path does not exist: x."
    )
    assert one_line("") == "Spark failed"
