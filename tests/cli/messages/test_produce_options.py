"""`horolog produce`: what options give to messages, and what is said of those that retention
deletes soon."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program

Run = Callable[..., CommandResult]

TIME = "2016-11-14T14:05:00Z"
TIME_MS = 1_479_132_300_000


def consumed(ask: Run, topic: str) -> list[Any]:
    return ask("consume", topic, "--json").objects


def test_a_key_headers_and_a_time_for_plain_lines(horolog: Program, ask: Run, topic: str) -> None:
    ask("topic", "create", topic, "--set", "retention.ms=-1")
    options = ("-k", "k", "-H", "n=1", "-H", "n=a=b", "--at", TIME)
    (sent,) = horolog.ok("produce", topic, *options, stdin="a\n").objects
    assert sent["timestamp_ms"] == TIME_MS
    (read,) = consumed(ask, topic)
    assert (read["key"], read["value"], read["timestamp_ms"]) == ("k", "a", TIME_MS)
    assert read["headers"] == [{"name": "n", "value": "1"}, {"name": "n", "value": "a=b"}]


def test_a_line_of_json_wins_over_the_options(horolog: Program, ask: Run, topic: str) -> None:
    lines: list[dict[str, Any]] = [
        {"value": "a"},
        {"value": "b", "key": "own", "timestamp": "2016-11-14T14:05:01Z"},
        {"value": "c", "timestamp_ms": TIME_MS + 2000, "headers": [{"name": "h", "value": "2"}]},
        {"value": "d", "timestamp": None},
    ]
    ask("topic", "create", topic, "--set", "retention.ms=-1")
    options = ("-k", "k", "-H", "n=1", "--at", str(TIME_MS))
    horolog.ok("produce", topic, "--json", *options, stdin="\n".join(map(json.dumps, lines)))
    read = consumed(ask, topic)
    assert [one["key"] for one in read] == ["k", "own", "k", "k"]
    times = [None if one["timestamp_ms"] is None else one["timestamp_ms"] - TIME_MS for one in read]
    assert times == [0, 1000, 2000, None]
    assert [[header["name"] for header in one["headers"]] for one in read] == [
        *(["n"], ["n"], ["n", "h"], ["n"])
    ]


@pytest.mark.parametrize(
    ("separator", "text"), [(":", ":"), ("\\t", "\t"), ("=>", "=>")], ids=["colon", "tab", "arrow"]
)
def test_keys_before_a_separator(
    horolog: Program, ask: Run, topic: str, separator: str, text: str
) -> None:
    lines = f"k{text}a{text}b\n{text}\nnone\nk{text}c\n"
    result = horolog("produce", topic, "--key-separator", separator, stdin=lines)
    assert result.code == 1
    assert result.err.startswith(f"horolog: line 3 has no {text!r} between key and value")
    assert [(one["key"], one["value"]) for one in consumed(ask, topic)] == [
        ("k", f"a{text}b"),
        ("", ""),
    ]


def test_messages_on_the_command_line(horolog: Program, ask: Run, topic: str) -> None:
    ask("topic", "create", topic, "--set", "retention.ms=-1")
    values = ("a", "", "b\nc", "-d")
    assert len(horolog.ok("produce", topic, "--at", TIME, "--", *values).objects) == 4
    horolog.ok("produce", topic, "k:e", "k:f:g", "-qK:", stdin="left unread\n")
    horolog.ok("produce", topic, "--json", '{"value": "h", "key": "k"}')
    read = consumed(ask, topic)
    assert [one["value"] for one in read] == [*values, "e", "f:g", "h"]
    assert [one["key"] for one in read] == [None] * 4 + ["k"] * 3
    assert {one["timestamp_ms"] for one in read[:4]} == {TIME_MS}


def test_a_value_that_is_no_message_ends_the_command(
    horolog: Program, ask: Run, topic: str
) -> None:
    result = horolog("produce", topic, "k:a", "b", "k:c", "-K", ":")
    assert result.code == 1
    assert result.err.startswith("horolog: line 2 has no ':' between key and value")
    assert [one["value"] for one in consumed(ask, topic)] == ["a"]


def test_a_large_value_on_the_command_line_is_refused_alone(
    horolog: Program, ask: Run, topic: str
) -> None:
    ask("topic", "create", topic, "--set", "max.message.bytes=1000")
    result = horolog("produce", topic, "a", "b" * 2000, "c", "-q")
    assert result.code == 1
    assert [one["error"] for one in result.objects] == ["MESSAGE_TOO_LARGE"]
    assert [one["value"] for one in consumed(ask, topic)] == ["a", "c"]


def test_quiet_prints_refusals_alone(horolog: Program, ask: Run, topic: str) -> None:
    assert horolog.ok("produce", topic, "--quiet", stdin="a\nb\n") == CommandResult(0, "", "")
    lines = '{"value":"c"}\n{"value":"d","partition":9}\n'
    result = horolog("produce", topic, "--quiet", "--json", stdin=lines)
    assert result.code == 1
    assert [one["error"] for one in result.objects] == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert [one["value"] for one in consumed(ask, topic)] == ["a", "b", "c"]


def test_the_partition_of_lines_can_be_ignored(horolog: Program, ask: Run, topic: str) -> None:
    ask("topic", "create", topic, "--partitions", "3")
    ask("topic", "create", f"{topic}-copy")
    horolog.ok("produce", topic, stdin="a\nb\nc\n")
    printed = ask("consume", topic, "--json").out
    refused = horolog("produce", f"{topic}-copy", "--json", stdin=printed)
    assert refused.code == 1
    options = ("--json", "--ignore-partition", "--quiet")
    horolog.ok("produce", f"{topic}-copy", *options, stdin=printed)
    assert [one["value"] for one in consumed(ask, f"{topic}-copy")] == ["a", "a", "b", "c"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--at", "1479144272"], "--at: 1479144272 looks like seconds"),
        (["--at", "1479144272"], "or give --any-unit to take the number as it is"),
        (["--at", "2016-11-14"], "has no zone"),
        (["-H", "n"], "--header n: write NAME=VALUE"),
        (["--ignore-partition"], "is about lines of --json"),
        (["--key-separator", ":", "--json"], "is about plain lines"),
        (["--key-separator", ":", "-k", "k"], "every line has a key of its own"),
        (["--key-separator", ""], "at least one character"),
        (["--key-separator", "\\q"], "--key-separator: \\q is no escape"),
        (["--key-separator", "\\ud800"], "--key-separator: \\ud800 is half of a character"),
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(
    run: Run, options: list[str], text: str
) -> None:
    result = run("produce", "t", *options, "--server", "127.0.0.1:1", code=2)
    assert text in result.err
    assert result.err.count("\n") == 1


def test_any_unit_takes_a_time_as_it_is(horolog: Program, topic: str) -> None:
    (sent,) = horolog.ok("produce", topic, "--at", "1479144272", "--any-unit", stdin="a").objects
    assert sent["timestamp_ms"] == 1479144272


def test_what_retention_deletes_soon_is_told(
    horolog: Program, ask: Run, server: BrokerThread, topic: str
) -> None:
    ask("topic", "create", topic, "--set", "retention.ms=60000")
    lines = f'{{"value":"old","timestamp":"{TIME}"}}\n{{"value":"new"}}\n' * 2
    result = horolog.ok("produce", topic, "--json", stdin=lines)
    assert [one.get("past_retention") for one in result.objects] == [True, None, True, None]
    (told,) = result.err.splitlines()
    assert told.startswith(f"horolog: 2 messages of {topic} are past retention already")
    quiet = horolog.ok("produce", topic, "--quiet", "--at", TIME, stdin="a\n")
    assert quiet.err.startswith(f"horolog: 1 message of {topic} is past retention already")
    for setting in ("retention.ms=-1", "cleanup.policy=compact"):
        ask("topic", "alter", topic, "--set", setting)
        kept = horolog.ok("produce", topic, "-k", "k", "--at", TIME, stdin="a\n")
        assert kept.err == ""
        assert list(kept.objects[0]) == ["partition", "offset", "timestamp_ms"]
