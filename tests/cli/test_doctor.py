"""`horolog doctor`: each finding with what to do about it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from horolog import __version__, blocking
from horolog.cli.doctor import CheckFinding, Probe, Severity, judge
from horolog.protocol.api.broker.describe_broker import DescribeBrokerResponse
from horolog.protocol.api.schema import replaced
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult

Run = Callable[..., CommandResult]

BROKER = DescribeBrokerResponse(
    broker_version=__version__,
    kernel="compiled",
    now_ms=0,
    data_dir="/data",
    disk_bytes=1000,
    disk_free_bytes=500,
    files_limit=10_000,
    files_wanted=5_000,
    damaged_segments=0,
    failed_partitions=0,
)


@pytest.fixture
def ask(
    run: Run, horolog_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CommandResult]:
    """As `run`, asking a broker of the test's own."""
    monkeypatch.setenv("HOROLOG_SERVER", horolog_broker.address)
    return run


def found(
    broker: DescribeBrokerResponse, apart: float = 0.0, unsure: float = 0.001
) -> list[CheckFinding]:
    return [one for one in judge(Probe(broker, apart, unsure)) if one.verdict is not Severity.GOOD]


def test_a_broker_with_its_files(horolog_broker: BrokerThread, ask: Run, tmp_path: Path) -> None:
    findings = ask("doctor", "--data-dir", horolog_broker.data_dir, "--json").objects
    checks = [one["check"] for one in findings]
    assert checks == ["server", "version", "kernel", "clock", "disk", "limits", "kafka", "files"]
    assert {
        one["verdict"] for one in findings if one["check"] not in ("kernel", "disk", "limits")
    } == {"good"}


def test_a_folder_that_is_no_data_directory(run: Run, ask: Run, tmp_path: Path) -> None:
    verified = run("verify", tmp_path, code=2).err
    told = ask("doctor", "--data-dir", tmp_path, code=2)
    assert (told.out, told.err) == ("", verified.replace("horolog: ", "horolog: --data-dir: ", 1))


def test_a_clock_that_is_wrong_is_a_problem(horolog_broker: BrokerThread, ask: Run) -> None:
    horolog_broker.clock.jump(-3600)
    told = ask("doctor", code=1).out
    assert "behind this one" in told
    assert "NTP" in told


def test_no_server(run: Run) -> None:
    told = run("doctor", "--server", "127.0.0.1:1", code=1).out
    assert "horolog serve" in told


def test_damaged_files(horolog_broker: BrokerThread, ask: Run, tmp_path: Path) -> None:
    folder = tmp_path / "copy" / "a-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(b"\x01" * 100)
    findings = ask("doctor", "--data-dir", folder.parent, "--json", code=1).objects
    assert [one["verdict"] for one in findings if one["check"] == "files"] == ["problem"]


def test_a_directory_that_is_none(run: Run, tmp_path: Path) -> None:
    assert "not a directory" in run("doctor", "--data-dir", tmp_path / "none", code=2).err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "no port for Kafka's clients"),
        (
            {"kafka_listen": "0.0.0.0:9092", "kafka_open": True},
            "Kafka's clients connect to 0.0.0.0:9092",
        ),
        (
            {"kafka_listen": ":9092", "kafka_open": True, "kafka_advertised": "here:1"},
            "Kafka's clients connect to :9092 and get its address as here:1 (advertised.listeners)",
        ),
    ],
)
def test_where_kafkas_clients_connect(changes: dict[str, object], said: str) -> None:
    broker = replaced(BROKER, **changes)
    (one,) = [each for each in judge(Probe(broker, 0.0, 0.001)) if each.check == "kafka"]
    assert (one.verdict, one.finding) == (Severity.GOOD, said)


def test_nothing_is_wrong() -> None:
    assert found(BROKER, apart=0.9) == []


@pytest.mark.parametrize(
    ("changes", "check", "verdict", "fix"),
    [
        ({"broker_version": "9.9"}, "version", "warning", "same version"),
        ({"kernel": "reference"}, "kernel", "warning", "C compiler"),
        ({"disk_free_bytes": 99}, "disk", "warning", "retention.bytes"),
        ({"disk_free_bytes": 19}, "disk", "problem", "retention.bytes"),
        ({"disk_bytes": -1}, "disk", "warning", ""),
        ({"files_limit": 4_999}, "limits", "warning", "ulimit -n 10000"),
        ({"damaged_segments": 2}, "damage", "problem", "horolog repair /data"),
        ({"failed_partitions": 1}, "appends", "problem", "restart"),
        ({"kafka_listen": "127.0.0.1:9092"}, "kafka", "warning", "another address"),
        (
            {"in_sync_most": 1, "min_insync_replicas": 3},
            *("acks", "problem", "set min.insync.replicas=1 at the broker"),
        ),
        (
            {"in_sync_most": 1, "unmet_topics": 2, "unmet_topic": "a"},
            *("acks", "problem", "`horolog topic alter a --set min.insync.replicas=1`"),
        ),
        ({"clock_caution": "The clock is ahead."}, "retention", "warning", "put the broker's"),
    ],
)
def test_each_finding_says_what_to_do(
    changes: dict[str, object], check: str, verdict: str, fix: str
) -> None:
    (one,) = found(replaced(BROKER, **changes))
    assert (one.check, one.verdict) == (check, verdict)
    assert fix in one.fix


def test_as_many_in_sync_as_there_can_be_are_right() -> None:
    assert found(replaced(BROKER, in_sync_most=2, min_insync_replicas=2)) == []


def test_a_topic_that_waits_for_brokers_there_are_not(
    horolog_broker: BrokerThread, ask: Run
) -> None:
    with blocking.Admin(horolog_broker.address) as admin:
        for name, least in (("a", "1"), ("b", "2"), ("c", "3"), ("d", "2")):
            admin.create_topic(name, settings={"min.insync.replicas": least})
        told = ask("doctor", "--json", code=1).objects
        (one,) = [each for each in told if each["check"] == "acks"]
        assert one["finding"] == (
            "messages with acks=all are refused by 3 topics, such as b: their min.insync.replicas "
            "is more than the 1 broker that can be in sync"
        )
        for name in ("b", "c", "d"):
            admin.alter_topic(name, {"min.insync.replicas": "1"})
    assert all(each["check"] != "acks" for each in ask("doctor", "--json").objects)


@pytest.mark.parametrize(("apart", "unsure", "wrong"), [(1.1, 0.0, 1), (1.1, 0.2, 0), (-2, 0.1, 1)])
def test_clocks_apart_by_more_than_can_be_measured(apart: float, unsure: float, wrong: int) -> None:
    assert len(found(BROKER, apart, unsure)) == wrong
