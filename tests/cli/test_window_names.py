"""A window's name in place of a topic: `horolog explain topic`, `horolog consume`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.client.cluster.servers import parse_servers
from horolog.testing.broker import BrokerThread
from horolog.testing.ports import free_port
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


def test_explain_topic(ask: Run, clicks: str) -> None:
    told = ask("explain", "topic", f"{clicks}..{HOUR}").out
    assert f"a window of {clicks}" in told
    assert "is at or after 2016-11-14T14:00:00.000Z and before 2016-11-14T15:00:00.000Z" in told
    assert f"{clicks}..20161114T140000Z..20161114T150000Z is the same window" in told
    assert ask("explain", "topic", clicks).out == f"{clicks} is a topic.\n"
    assert "no such topic" in ask("explain", "topic", f"{clicks}..yesterday").out
    assert "no time is in a window" in ask("explain", "topic", f"{clicks}..20161114T14Z..0h").out
    assert "no topic nowhere" in ask("explain", "topic", f"nowhere..{HOUR}").out


NO_WINDOW = {"base": None, "from_ms": None, "until_ms": None, "by": None}


@pytest.mark.parametrize(
    ("name", "expected", "why"),
    [
        ("clicks", {"is": "topic", **NO_WINDOW}, "a topic of this name exists"),
        (
            f"clicks..{HOUR}",
            {
                "is": "window",
                "base": "clicks",
                "from_ms": at_ms("14:00:00"),
                "until_ms": at_ms("15:00:00"),
                "by": "create",
            },
            "the name ends with the times of a window, and clicks exists",
        ),
        (
            "clicks..20161114T14Z..append",
            {
                "is": "window",
                "base": "clicks",
                "from_ms": at_ms("14:00:00"),
                "until_ms": None,
                "by": "append",
            },
            "the name ends with the times of a window, and clicks exists",
        ),
        (
            f"nowhere..{HOUR}",
            {
                "is": "none",
                "base": "nowhere",
                "from_ms": at_ms("14:00:00"),
                "until_ms": at_ms("15:00:00"),
                "by": "create",
            },
            "it reads as a window of nowhere, and there is no topic nowhere",
        ),
        (
            "clicks..20161114T14Z..0h",
            {
                "is": "none",
                "base": "clicks",
                "from_ms": at_ms("14:00:00"),
                "until_ms": at_ms("14:00:00"),
                "by": "create",
            },
            "no time is in a window that ends at or before its start",
        ),
        ("nosuch", {"is": "none", **NO_WINDOW}, "it is an ordinary name, and there is no such "),
        (
            "clicks..yesterday",
            {"is": "none", **NO_WINDOW},
            "it is an ordinary name (what follows the dots is no time, so it is no window), and ",
        ),
        ("a/b", {"is": "none", **NO_WINDOW}, "it is an ordinary name, and there is no such topic"),
    ],
)
def test_explain_topic_as_json(
    ask: Run, clicks: str, name: str, expected: dict[str, object], why: str
) -> None:
    """The keys and words are those that checks from outside rely on."""
    (found,) = ask("explain", "topic", name, "--json").objects
    assert found.pop("why").startswith(why)
    assert list(found) == ["name", "is", "base", "from_ms", "until_ms", "by"]
    assert found == {"name": name, **expected}
    (again,) = ask("topic", "list", "--json").objects
    assert again["topic"] == clicks, "asking creates no topic"


def test_explain_topic_reads_the_name_alone_if_no_broker_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = f"127.0.0.1:{free_port()}"
    monkeypatch.setattr("horolog.cli.explain.DEFAULT_SERVER", parse_servers(silent))
    monkeypatch.setenv("HOROLOG_SERVER", silent)
    (found,) = run("explain", "topic", f"clicks..{HOUR}", "--json").objects
    assert (found["is"], found["base"], found["by"]) == ("window", "clicks", "create")
    assert "whether clicks exists is not known" in found["why"]
    assert silent in found["why"]
    (found,) = run("explain", "topic", "clicks", "--json").objects
    assert found == {"name": "clicks", "is": "none", **NO_WINDOW, "why": found["why"]}
    assert "whether there is such a topic is not known" in found["why"]
    (found,) = run("explain", "topic", "clicks..20161114T14Z..0h", "--json").objects
    assert (found["is"], found["why"]) == (
        "none",
        "no time is in a window that ends at or before its start",
    )


@pytest.mark.parametrize("name", ["clicks", f"clicks..{HOUR}", "clicks..yesterday", "nosuch"])
def test_explain_topic_says_the_same_at_the_port_for_kafka(
    ask: Run, server: BrokerThread, clicks: str, name: str
) -> None:
    at_kafka = ask(
        "explain", "topic", name, "--json", "--server", f"kafka://{server.kafka_address}"
    )
    assert at_kafka.objects == ask("explain", "topic", name, "--json").objects


HOURLY = ("--from", "@-1h", "--every", "1h")


@pytest.mark.parametrize(
    "command",
    [
        ["topic", "describe"],
        ["topic", "alter", "--set", "retention.ms=5"],
        ["topic", "delete", "--yes"],
        ["topic", "trim", "--before", "latest"],
        ["histogram", *HOURLY],
        ["explain", "offset", "--at", "now"],
        ["explain", "retention"],
    ],
)
def test_a_command_that_takes_no_window_names_its_topic(
    ask: Run, clicks: str, command: list[str]
) -> None:
    window = f"{clicks}..{HOUR}"
    words = [*command[:2], window, *command[2:]]
    if command[0] == "histogram":
        words = ["histogram", window, *HOURLY]
    refused = ask(*words, code=1)
    assert refused.err == (
        f"horolog: INVALID_TOPIC_EXCEPTION: {window} is a window of clicks: read only, by fetches "
        "and searches for offsets. Name clicks for everything else\n"
    )
    assert '"cure": "Name clicks for everything else"' in ask(*words, "--json", code=1).err


@pytest.mark.parametrize("command", [["delete", "--yes"], ["trim", "--before", "latest", "--yes"]])
def test_a_window_is_not_changed_at_the_port_for_kafka(
    ask: Run, server: BrokerThread, clicks: str, command: list[str]
) -> None:
    """Kafka's answers to these requests have no place for a reason."""
    window = f"{clicks}..{HOUR}"
    at_kafka = ("--server", f"kafka://{server.kafka_address}")
    refused = ask("topic", command[0], window, *command[1:], *at_kafka, code=1)
    assert refused.err.splitlines()[-1] == (
        f"horolog: INVALID_TOPIC_EXCEPTION: {window} is a window of clicks: read only, by fetches "
        "and searches for offsets. Name clicks for everything else"
    )
    refused = ask("topic", command[0], window, *command[1:], *at_kafka, "--json", code=1)
    assert '"cure": "Name clicks for everything else"' in refused.err


def test_no_topic_is_created_with_the_name_of_a_window(ask: Run, clicks: str) -> None:
    window = f"{clicks}..{HOUR}"
    refused = ask("topic", "create", window, code=1)
    assert refused.err == (
        f"horolog: TOPIC_ALREADY_EXISTS: {window} is a window of clicks: read only. Choose a name "
        "that is no window's\n"
    )
    refused = ask("topic", "create", window, "--json", code=1)
    assert '"cure": "Choose a name that is no window\'s"' in refused.err
    refused = ask("topic", "create", clicks, code=1)
    assert "`horolog topic describe` shows it" in refused.err


def test_consume_reads_the_window_that_a_name_means(ask: Run, clicks: str) -> None:
    read = ask("consume", f"{clicks}..{HOUR}", "--json")
    assert [one["value"] for one in read.objects] == ["0", "2", "4"]
    assert "3 messages in the window" in read.err
    read = ask("consume", f"{clicks}..20161114T1459Z", "--json")
    assert [one["value"] for one in read.objects] == ["1", "2"]
    read = ask("consume", f"{clicks}..20161114T14Z..append", "--json")
    assert [one["offset"] for one in read.objects] == [0, 1, 2, 3, 4]


def test_messages_of_a_topic_beside_a_window_do_not_count_in_the_window(
    ask: Run, clicks: str
) -> None:
    read = ask("consume", f"{clicks}..{HOUR}", clicks)
    assert read.err.startswith("horolog: 8 messages in all; 3 messages in the window; ")
    read = ask("consume", f"{clicks}..{HOUR}", clicks, "--grep", "0")
    assert read.err.startswith("horolog: 2 messages in all; 3 messages in the window; ")
    read = ask("consume", f"{clicks}..{HOUR}", clicks, "-n", "4")
    assert read.err.startswith(
        "horolog: 4 messages in all, as many as -n asks for; at least 3 messages in the window; "
    )
    read = ask("consume", f"{clicks}..{HOUR}", "--grep", "0")
    assert read.err.startswith("horolog: 1 of 3 messages in the window; ")


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
        (found,) = run("explain", "topic", folder.name[:-2], "--json").objects
    assert found["is"] == "topic"
    assert found["base"] is None
    assert found["why"] == "a topic of this name exists, so the name means no window of clicks"
    assert [one["value"] for one in read.objects] == ["mine"]
