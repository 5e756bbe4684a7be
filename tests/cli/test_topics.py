"""`horolog topic`, and what every command that asks a server has in common."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.core import TyperCommand

from horolog.cli.app import ENTRIES, whole_program
from horolog.protocol.records.kernel import FORM
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program

Run = Callable[..., CommandResult]


@pytest.fixture(scope="module")
def taken(server: BrokerThread) -> str:
    Program(server.address).ok("topic", "create", "taken")
    return "taken"


def test_a_topic_from_creation_to_deletion(horolog: Program, ask: Run, topic: str) -> None:
    options = ("--partitions", "2", "--set", "retention.ms=-1", "--set", "segment.ms=5000")
    created = ask("topic", "create", topic, *options, "--json")
    assert created.objects == [{"topic": topic, "partitions": 2}]
    assert (topic, 2) in partitions_listed(ask)

    ask("topic", "alter", topic, "--set", "segment.bytes=4096", "--unset", "segment.ms")
    horolog.ok("produce", topic, "--partition", "1", stdin="a\nb\n")
    (found,) = ask("topic", "describe", topic, "--json").objects
    assert [(one["partition"], one["log_end_offset"]) for one in found["partitions"]] == [
        (0, 0),
        (1, 2),
    ]
    assert found["partitions"][1]["size_bytes"] == 2 * 35
    settings = {one["name"]: (one["value"], one["source"]) for one in found["settings"]}
    assert settings["retention.ms"] == ("-1", "topic")
    assert settings["segment.bytes"] == ("4096", "topic")
    assert settings["segment.ms"] == ("604800000", "default")

    ask("topic", "delete", topic)
    assert topic not in ask("topic", "list").out
    ask("topic", "create", topic)
    (again,) = ask("topic", "describe", topic, "--json").objects
    assert len(again["topic_id"]) == len(found["topic_id"]) == 22
    assert again["topic_id"] != found["topic_id"]


def test_a_topic_has_one_partition_when_nothing_is_said(
    horolog: Program, ask: Run, topic: str
) -> None:
    ask("topic", "create", topic)
    horolog.ok("produce", topic + "-by-itself", stdin="a\n")
    listed = partitions_listed(ask)
    assert (topic, 1) in listed
    assert (topic + "-by-itself", 1) in listed


def partitions_listed(ask: Run) -> list[tuple[str, int]]:
    listed = ask("topic", "list", "--json").objects
    return [(one["topic"], one["partitions"]) for one in listed]


def test_people_get_tables(ask: Run, topic: str) -> None:
    ask("topic", "create", topic, "--set", "retention.ms=77")
    lines = [line.split() for line in ask("topic", "describe", topic).out.splitlines()]
    assert ["0", "0", "0", "0", "0", "B", "1"] in lines
    assert ["retention.ms", "77ms", "topic"] in lines
    listed = ask("topic", "list").out.splitlines()
    assert [topic, "1", "0", "0", "B", "-", "-", "77ms"] in [line.split() for line in listed]


@pytest.mark.parametrize(
    ("arguments", "name", "text"),
    [
        (["topic", "create", "taken"], "TOPIC_ALREADY_EXISTS", "taken"),
        (["topic", "create", "a/b"], "INVALID_TOPIC_EXCEPTION", "a/b"),
        (["topic", "describe", "nowhere"], "UNKNOWN_TOPIC_OR_PARTITION", "nowhere"),
        (["topic", "delete", "nowhere"], "UNKNOWN_TOPIC_OR_PARTITION", "nowhere"),
        (["consume", "nowhere"], "UNKNOWN_TOPIC_OR_PARTITION", "nowhere"),
        (["consume", "taken", "--partition", "1"], "UNKNOWN_TOPIC_OR_PARTITION", "not 1"),
        (["offsets", "nowhere"], "UNKNOWN_TOPIC_OR_PARTITION", "nowhere"),
        (["offsets", "taken", "--partition", "1"], "UNKNOWN_TOPIC_OR_PARTITION", "not 1"),
    ],
)
def test_a_refusal_is_one_line_with_the_name_of_the_error(
    ask: Run, taken: str, arguments: list[str], name: str, text: str
) -> None:
    result = ask(*arguments, code=1)
    assert result.out == ""
    assert result.err.startswith(f"horolog: {name}: ")
    assert text in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["topic", "create", "t", "--set", "segment.bytes=1"], "from 14 to"),
        (["topic", "create", "t", "--set", "cleanup.policy=keep"], "delete, compact"),
        (["topic", "alter", "taken", "--set", "listen=x"], "of the broker"),
    ],
)
def test_a_setting_that_is_not_allowed_is_wrong_usage(
    ask: Run, taken: str, arguments: list[str], text: str
) -> None:
    result = ask(*arguments, code=2)
    assert result.out == ""
    assert result.err.startswith("horolog: INVALID_CONFIG: ")
    assert text in result.err
    assert result.err.count("\n") == 1


def test_asking_about_a_topic_does_not_create_it(ask: Run) -> None:
    for command in (["consume"], ["offsets"], ["topic", "describe"]):
        ask(*command, "only-asked-about", code=1)
    assert "only-asked-about" not in ask("topic", "list").out


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no-command"),
        pytest.param(["bogus"], id="unknown-command"),
        pytest.param(["consume"], id="no-topic"),
        pytest.param(["consume", "t", "--bogus"], id="unknown-option"),
        pytest.param(["consume", "t", "--partition", "x"], id="partition"),
        pytest.param(["produce", "t", "--compression", "zip"], id="compression"),
        pytest.param(["topic", "create", "t", "--partitions", "0"], id="no-partitions"),
        pytest.param(["topic", "create", "t", "--set", "retention.ms"], id="set-without-value"),
        pytest.param(["topic", "alter", "t"], id="nothing-to-alter"),
        pytest.param(["topic", "alter", "t", "--set", "a=1", "--unset", "a"], id="set-and-unset"),
        pytest.param(["topic", "list", "--server", "7070"], id="address"),
    ],
)
def test_wrong_usage_is_exit_code_2_whether_or_not_a_server_is_there(
    run: Run, arguments: list[str]
) -> None:
    result = run(*arguments, code=2)
    assert result.err + result.out
    assert "Traceback" not in result.err


def test_the_server_comes_from_the_option_else_from_the_environment(
    server: BrokerThread, topic: str
) -> None:
    Program(server.address).ok("topic", "create", topic)
    elsewhere = Program("127.0.0.1:1")
    assert topic in elsewhere.ok("topic", "list", "--server", server.address).out
    result = elsewhere("topic", "list")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("horolog: cannot connect to 127.0.0.1:1")
    assert "--server" in result.err
    assert result.err.count("\n") == 1


def test_a_port_that_speaks_something_else_is_named(run: Run, server: BrokerThread) -> None:
    result = run("topic", "list", "--server", server.http_address, code=1)
    assert result.out == ""
    assert result.err.startswith(f"horolog: {server.http_address}: ")
    assert result.err.count("\n") == 1


def test_version() -> None:
    result = Program().ok("--version")
    assert result.out.startswith("horolog 0.")
    assert result.out.endswith(f" ({FORM})\n")


def test_help_of_the_program_lists_every_command() -> None:
    text = Program().ok("--help").out
    commands = [line.split()[0] for line in text.partition("Commands:")[2].splitlines() if line]
    asking = ["produce", "consume", "record", "histogram", "offsets", "lag", "group"]
    live, files = ["top", "load"], ["dump", "verify", "repair"]
    groups = ["topic", "user", "acl", "quota", "cluster", "explain", "profile", "pipeline"]
    assert commands == ["serve", "demo", *asking, *live, *files, "doctor", *groups]


def test_the_summaries_in_the_help_of_the_program_are_those_of_the_commands() -> None:
    commands = whole_program().commands
    for entry in ENTRIES:
        shown = TyperCommand(entry.name, help=entry.summary).get_short_help_str(limit=200)
        assert shown == commands[entry.name].get_short_help_str(limit=200)


def test_help_and_wrong_usage_of_the_program_read_no_command() -> None:
    late = {
        "asyncio",
        "horolog.client.client",
        "horolog.config.broker",
        "horolog.cli.topics.commands",
    }
    code = (
        "import sys; from horolog.cli.main import run\n"
        "codes = run(['--help']), run(['nowhere']), run(['--nothing'])\n"
        f"print(*codes, {late} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 2 2 set()"


def test_more_partitions(horolog: Program, ask: Run, topic: str) -> None:
    ask("topic", "create", topic)
    altered = ask("topic", "alter", topic, "--partitions", "3", "--set", "segment.ms=9", "--json")
    assert altered.objects == [{"topic": topic, "partitions": 3, "settings": {"segment.ms": "9"}}]
    assert (topic, 3) in partitions_listed(ask)
    assert "4 partitions" in ask("topic", "alter", topic, "--partitions", "4").out
    fewer = horolog("topic", "alter", topic, "--partitions", "2")
    assert (fewer.code, "can only grow" in fewer.err) == (1, True)
    both = horolog("topic", "alter", topic, "--partitions", "5", "--set", "segment.ms=x")
    assert both.code == 2
    assert (topic, 4) in partitions_listed(ask)


def test_more_brokers_in_sync_than_there_are_is_warned_of(ask: Run, topic: str) -> None:
    """The topic is as it was asked to be, and what follows from that is said at once."""
    few = ("--set", "min.insync.replicas=3")
    said = (
        f"horolog: min.insync.replicas of {topic} is 3, and 1 broker is in sync: messages with "
        "acks=all are refused until there are 3\n"
    )
    assert ask("topic", "create", topic, *few).err == said
    assert ask("topic", "alter", topic, "--set", "min.insync.replicas=1").err == ""
    altered = ask("topic", "alter", topic, *few, "--json")
    assert (altered.err, altered.objects[0]["settings"]) == (said, {"min.insync.replicas": "3"})
    assert ask("topic", "alter", topic, "--unset", "min.insync.replicas").err == ""


def first_offsets(ask: Run, topic: str) -> list[int]:
    (described,) = ask("topic", "describe", topic, "--json").objects
    return [one["log_start_offset"] for one in described["partitions"]]


def test_trimming_by_offset_and_time(horolog: Program, ask: Run, topic: str) -> None:
    ask("topic", "create", topic, "--partitions", "2", "--set", "retention.ms=-1")
    lines = "".join(f'{{"value": "a", "timestamp_ms": {1479144272000 + n}}}\n' for n in range(5))
    horolog.ok("produce", topic, "--partition", "0", "--json", stdin=lines)
    trimmed = ask("topic", "trim", topic, "--before", "1479144272002", "--json")
    times = {"first_ms": 1479144272000, "last_ms": 1479144272001}
    none = {"messages": 0, "first_ms": None, "last_ms": None}
    assert trimmed.objects == [
        {"partition": 0, "log_start_offset": 2, "messages": 2, **times},
        {"partition": 1, "log_start_offset": 0, **none},
    ]
    ask("topic", "trim", topic, "--partition", "0", "--before", "offset:3")
    assert first_offsets(ask, topic) == [3, 0]
    ask("topic", "trim", topic, "--before", "now")
    assert first_offsets(ask, topic) == [5, 0]
    horolog.ok("produce", topic, "--partition", "1", stdin="a\n")
    ask("topic", "trim", topic, "--before", "earliest")
    assert first_offsets(ask, topic) == [5, 0]
    assert ["1", "1", "1"] in [
        line.split()[:3]
        for line in ask("topic", "trim", topic, "--before", "latest").out.splitlines()
    ]


def test_an_offset_behind_one_partition_trims_no_other(
    horolog: Program, ask: Run, topic: str
) -> None:
    ask("topic", "create", topic, "--partitions", "2")
    for partition, lines in (("0", "a\nb\nc\n"), ("1", "a\n")):
        horolog.ok("produce", topic, "--partition", partition, stdin=lines)
    refused = horolog("topic", "trim", topic, "--before", "offset:2", "--json")
    assert refused.code == 1
    assert json.loads(refused.err)["error"] == "OFFSET_OUT_OF_RANGE"
    assert first_offsets(ask, topic) == [0, 0]


def test_trims_that_are_refused_change_nothing(horolog: Program, ask: Run, topic: str) -> None:
    ask("topic", "create", topic, "--set", "message.format.version=0.9.0")
    horolog.ok("produce", topic, stdin="a\nb\n")
    beyond = horolog("topic", "trim", topic, "--before", "offset:3")
    assert (beyond.code, f"behind the end of {topic}-0 at offset 2" in beyond.err) == (1, True)
    timeless = horolog("topic", "trim", topic, "--before", "now")
    assert (timeless.code, timeless.err != "") == (1, True)
    for wrong in ("offset:x", "yesterday", "offset:-1"):
        assert horolog("topic", "trim", topic, "--before", wrong).code == 2
    assert horolog("topic", "trim", topic).code == 2
    assert first_offsets(ask, topic) == [0]
