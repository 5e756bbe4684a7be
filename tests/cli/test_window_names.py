"""A window's name in place of a topic: `horolog explain topic`, `horolog consume`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program

Run = Callable[..., CommandResult]

HOUR = "20161114T14Z..1h"
TIMES = ["14:05:00", "15:00:00", "14:59:59.999", "13:59:59", "14:00:00"]


@pytest.fixture(scope="module")
def clicks(server: BrokerThread) -> str:
    program = Program(server.address)
    program.ok("topic", "create", "clicks", "--set", "retention.ms=-1")
    lines = [
        f'{{"value": "{number}", "timestamp_ms": {at_ms(time)}}}'
        for number, time in enumerate(TIMES)
    ]
    program.ok("produce", "clicks", "--json", stdin="\n".join(lines))
    return "clicks"


def at_ms(time: str) -> int:
    hours, minutes, seconds = time.split(":")
    return 1_479_081_600_000 + round(
        (int(hours) * 3600 + int(minutes) * 60 + float(seconds)) * 1000
    )


def test_explain_topic(run: Run) -> None:
    told = run("explain", "topic", f"clicks..{HOUR}").out
    assert "a window of clicks" in told
    assert "2016-11-14T14:00:00.000Z up to, without, 2016-11-14T15:00:00.000Z" in told
    assert "clicks..20161114T140000Z..20161114T150000Z is the same window" in told
    assert "ordinary" in run("explain", "topic", "clicks..yesterday").out
    assert "no such topic" in run("explain", "topic", "clicks..20161114T14Z..0h").out
    (found,) = run("explain", "topic", "clicks..20161114T14Z..append", "--json").objects
    assert found == {
        "topic": "clicks..20161114T14Z..append",
        "window": True,
        "base": "clicks",
        "from_ms": at_ms("14:00:00"),
        "until_ms": None,
        "by": "append",
        "empty": False,
    }
    (found,) = run("explain", "topic", "clicks", "--json").objects
    assert found == {"topic": "clicks", "window": False}


def test_consume_reads_the_window_that_a_name_means(ask: Run, clicks: str) -> None:
    read = ask("consume", f"{clicks}..{HOUR}", "--json")
    assert [one["value"] for one in read.objects] == ["0", "2", "4"]
    assert "3 messages in the window" in read.err
    read = ask("consume", f"{clicks}..20161114T1459Z", "--json")
    assert [one["value"] for one in read.objects] == ["1", "2"]
    read = ask("consume", f"{clicks}..20161114T14Z..append", "--json")
    assert [one["offset"] for one in read.objects] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "options", [("--from", "2016-11-14T14:00:00Z"), ("--by", "append"), ("--offsets-between",)]
)
def test_a_named_window_takes_no_times_beside_it(
    ask: Run, clicks: str, options: tuple[str, ...]
) -> None:
    refused = ask("consume", f"{clicks}..{HOUR}", *options, code=2)
    assert f"names a window of {clicks} already" in refused.err


def test_there_is_no_empty_window_and_none_of_a_topic_that_does_not_exist(
    ask: Run, clicks: str
) -> None:
    for name in (f"{clicks}..20161114T14Z..0h", f"nowhere..{HOUR}"):
        assert "UNKNOWN_TOPIC_OR_PARTITION" in ask("consume", name, code=1).err


def test_a_topic_of_such_a_name_keeps_its_meaning(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data" / "clicks..20161114T13Z..1h-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").touch()
    with BrokerThread(tmp_path / "data", {}) as broker:
        monkeypatch.setenv("HOROLOG_SERVER", broker.address)
        Program(broker.address).ok("produce", folder.name[:-2], stdin="mine\n")
        Program(broker.address).ok("produce", "clicks", stdin="other\n")
        read = run("consume", folder.name[:-2], "--json")
    assert [one["value"] for one in read.objects] == ["mine"]
