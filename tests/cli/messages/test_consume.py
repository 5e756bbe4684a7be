"""`horolog consume` and `horolog offsets`: what is read from where, and which offset it was."""

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from horolog import blocking
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Process, Program, next_line

Run = Callable[..., CommandResult]

BASE_MS = 1479144272000
TIMES = [100, 300, 200, None, 300, 500, 400]
"""Of the messages of `clicks`, after BASE_MS; out of order, and one without."""

WITHIN_S = 30.0
"""A command that should have ended is not waited for any longer."""

BETWEEN = ["--offsets-between"]


def at(after_ms: int) -> str:
    return str(BASE_MS + after_ms)


def receive(process: Process) -> Any:
    return json.loads(next_line(process))


@pytest.fixture(scope="module")
def clicks(server: BrokerThread) -> str:
    """A topic with the messages 0 to 6 in partition 0, and two in partition 1."""
    objects = [
        {"value": str(i), "timestamp_ms": None if t is None else BASE_MS + t, "partition": 0}
        for i, t in enumerate(TIMES)
    ]
    objects += [{"value": "p1", "timestamp_ms": BASE_MS + t, "partition": 1} for t in (250, 350)]
    lines = "\n".join(json.dumps(one) for one in objects)
    program = Program(server.address)
    program.ok("topic", "create", "clicks", "--partitions", "2", "--set", "retention.ms=-1")
    program.ok("produce", "clicks", "--json", stdin=lines)
    return "clicks"


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        pytest.param([], range(7), id="everything"),
        pytest.param(["--from", "offset:2"], range(2, 7), id="offset"),
        pytest.param(["--from", "offset:7"], [], id="offset-of-the-end"),
        pytest.param(["--until", "offset:2"], range(2), id="until-is-exclusive"),
        pytest.param(["--until", "offset:99"], range(7), id="until-behind-the-end"),
        pytest.param([*BETWEEN, "--from", at(0)], range(7), id="time-before-all"),
        pytest.param([*BETWEEN, "--from", at(300)], range(1, 7), id="time-of-a-message"),
        pytest.param([*BETWEEN, "--from", at(301)], range(5, 7), id="time-between"),
        pytest.param([*BETWEEN, "--from", at(501)], [], id="time-after-all"),
        pytest.param([*BETWEEN, "--until", at(500)], range(5), id="until-time-is-exclusive"),
        pytest.param([*BETWEEN, "--until", at(501)], range(7), id="until-time-after-all"),
        pytest.param([*BETWEEN, "--from", f"@{at(200)}:{at(400)}"], range(1, 5), id="range"),
        pytest.param([*BETWEEN, "--from", f"@:{at(300)}"], range(1), id="range-no-beginning"),
        pytest.param([*BETWEEN, "--from", f"@{at(300)}:"], range(1, 7), id="range-no-end"),
        pytest.param([*BETWEEN, "--from", f"@{at(300)}:200ms"], range(1, 5), id="range-length"),
        pytest.param(["--from", at(500), "--until", "offset:6"], range(5, 6), id="time-and-offset"),
        pytest.param(["--from", "offset:2", "--until", at(500)], range(2, 5), id="offset-and-time"),
        pytest.param([*BETWEEN, "--from", "now"], [], id="now"),
        pytest.param(["--read-committed"], range(7), id="read-committed"),
    ],
)
def test_where_a_range_of_offsets_begins_and_ends(
    ask: Run, clicks: str, options: list[str], offsets: range
) -> None:
    result = ask("consume", clicks, "--partition", "0", "--json", *options)
    assert [one["offset"] for one in result.objects] == list(offsets)
    assert [one["value"] for one in result.objects] == [str(offset) for offset in offsets]
    assert result.err == ""


def test_a_message_has_these_fields(ask: Run, clicks: str) -> None:
    options = ("--partition", "0", "--from", "offset:2", "--until", "offset:4", "--json")
    with_time, without = ask("consume", clicks, *options).objects
    assert list(with_time.items()) == [
        ("partition", 0),
        ("offset", 2),
        ("timestamp_ms", BASE_MS + 200),
        ("timestamp_type", "CreateTime"),
        ("key", None),
        ("value", "2"),
    ]
    assert without["timestamp_ms"] is None


def test_partitions_come_one_after_the_other(ask: Run, clicks: str) -> None:
    read = ask("consume", clicks, *BETWEEN, "--from", at(300), "--json").objects
    expected = [(0, offset) for offset in range(1, 7)] + [(1, 1)]
    assert [(one["partition"], one["offset"]) for one in read] == expected


def test_people_get_a_line_with_time_place_key_and_value(
    horolog: Program, ask: Run, topic: str
) -> None:
    line = json.dumps({"value": "a\nb", "key": "k", "timestamp_ms": BASE_MS + 509})
    horolog.ok("produce", topic, "--json", stdin=line)
    out = ask("consume", topic).out
    assert out.split() == ["2016-11-14T17:24:32.509Z", "0:0", "k", "a\\nb"]


@pytest.mark.parametrize(
    "positions",
    [(at(400), at(200)), (at(400), at(300))],
    ids=["end-before-start", "start-found-behind-end"],
)
def test_a_range_whose_end_is_found_first_is_empty_and_says_why(
    ask: Run, clicks: str, positions: tuple[str, str]
) -> None:
    start, until = positions
    options = ("--partition", "0", *BETWEEN, "--from", start, "--until", until)
    result = ask("consume", clicks, *options)
    assert result.out == ""
    assert "--from is offset 5 and --until offset 1" in result.err


def test_an_offset_that_is_not_there_is_refused_with_those_that_are(ask: Run, clicks: str) -> None:
    result = ask("consume", clicks, "--partition", "0", "--from", "offset:8", code=1)
    assert result.out == ""
    assert "OFFSET_OUT_OF_RANGE" in result.err
    assert "the next one is 7" in result.err


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["consume", "clicks", "--from", "1479144272"], "looks like seconds"),
        (["consume", "clicks", "--until", "2016-11-14"], "has no zone"),
        (["offsets", "clicks", "--at", "1479144272509000"], "looks like microseconds"),
        (["offsets", "clicks", "--at", "offset:1"], "earliest, latest, largest"),
    ],
)
def test_a_time_that_would_be_a_guess_is_wrong_usage(
    run: Run, command: list[str], text: str
) -> None:
    result = run(*command, "--server", "127.0.0.1:1", code=2)
    assert result.out == ""
    assert text in result.err
    assert result.err.count("\n") == 1


def test_follow_brings_what_comes_until_ctrl_c(horolog: Program, ask: Run, topic: str) -> None:
    ask("topic", "create", topic, "--partitions", "2")
    horolog.ok("produce", topic, "--partition", "1", stdin="before\n")
    options = ("--from", "offset:0", "-f", "--json")
    with horolog.running("consume", topic, *options) as process:
        assert receive(process)["value"] == "before"
        for partition in ("0", "1"):
            horolog.ok("produce", topic, "--partition", partition, stdin="new\n")
            assert receive(process)["partition"] == int(partition)
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    "bounds",
    [
        ("--from", "2000-01-01T00:00:00Z"),
        pytest.param(("--from", "offset:0"), marks=pytest.mark.soak),
        pytest.param(("--from", "offset:1"), marks=pytest.mark.soak),
    ],
)
def test_follow_reads_partitions_that_are_added(
    horolog: Program, ask: Run, topic: str, bounds: tuple[str, ...]
) -> None:
    ask("topic", "create", topic)
    horolog.ok("produce", topic, stdin="a\nb\n")
    with horolog.running("consume", topic, "--follow", "--json", *bounds) as process:
        while receive(process)["value"] != "b":
            pass
        ask("topic", "alter", topic, "--partitions", "2")
        horolog.ok("produce", topic, "--partition", "1", stdin="new\n")
        found = receive(process)
        assert (found["partition"], found["offset"], found["value"]) == (1, 0, "new")
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0


def test_follow_says_when_the_broker_is_gone_and_when_it_is_back(
    horolog_broker: BrokerThread,
) -> None:
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("t", b"before")
    program = Program(horolog_broker.address)
    options = ("--from", "offset:0", "--follow", "--json")
    with program.running("consume", "t", *options) as process:
        assert receive(process)["value"] == "before"
        horolog_broker.restart()
        assert process.stderr is not None
        assert "Trying again for up to 120 s" in process.stderr.readline()
        assert "connected again" in process.stderr.readline()
        with blocking.Producer(horolog_broker.address) as producer:
            producer.send("t", b"after")
        assert receive(process)["value"] == "after"


def test_a_followed_range_ends_before_the_first_message_that_is_as_late(
    horolog: Program, topic: str
) -> None:
    def send(*after_ms: int) -> None:
        lines = (json.dumps({"value": "", "timestamp_ms": BASE_MS + t}) for t in after_ms)
        horolog.ok("produce", topic, "--json", stdin="\n".join(lines))

    horolog.ok("topic", "create", topic, "--set", "retention.ms=-1")
    send(100)
    options = ("--follow", *BETWEEN, "--from", "offset:0", "--until", at(300), "--json")
    with horolog.running("consume", topic, *options) as process:
        assert receive(process)["offset"] == 0
        send(200, 299, 300, 250)
        out, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    assert err == ""
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [1, 2]


def test_follow_until_an_offset_waits_for_it(horolog: Program, topic: str) -> None:
    horolog.ok("produce", topic, stdin="a\n")
    options = ("--follow", "--from", "offset:0", "--until", "offset:2", "--json")
    with horolog.running("consume", topic, *options) as process:
        assert receive(process)["offset"] == 0
        horolog.ok("produce", topic, stdin="b\nc\n")
        out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [1]


def test_output_cut_off_by_a_pipe_is_no_error(horolog: Program, topic: str) -> None:
    horolog.ok("produce", topic, stdin="a line of some length\n" * 5000)
    with horolog.running("consume", topic, "--json") as process:
        assert receive(process)["offset"] == 0
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_ctrl_c_without_follow_says_nothing(horolog: Program, topic: str) -> None:
    horolog.ok("produce", topic, stdin="a line of some length\n" * 5000)
    with horolog.running("consume", topic, "--json") as process:
        # Standard output is a full pipe now: it waits in the middle of its work.
        assert receive(process)["offset"] == 0
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert err == ""


@pytest.mark.parametrize(
    ("position", "offset", "after_ms"),
    [
        pytest.param(at(0), 0, 100, id="before-all"),
        pytest.param(at(100), 0, 100, id="equal"),
        pytest.param(at(101), 1, 300, id="between"),
        pytest.param(at(250), 1, 300, id="a-later-message-would-be-nearer"),
        pytest.param(at(301), 5, 500, id="past-equal-times"),
        pytest.param(at(501), None, None, id="after-all"),
        pytest.param("earliest", 0, None, id="earliest"),
        pytest.param("latest", 7, None, id="latest"),
        pytest.param("largest", 5, 500, id="largest"),
    ],
)
def test_which_offset_it_was(
    ask: Run, clicks: str, position: str, offset: int | None, after_ms: int | None
) -> None:
    options = ("--partition", "0", "--at", position, "--json")
    (found,) = ask("offsets", clicks, *options).objects
    assert list(found.items()) == [
        ("partition", 0),
        ("at", position),
        ("offset", offset),
        ("timestamp_ms", None if after_ms is None else BASE_MS + after_ms),
    ]


def test_offsets_has_a_line_for_each_partition_and_each_at(ask: Run, clicks: str) -> None:
    positions = ("latest", at(300), "earliest")
    options = [option for one in positions for option in ("--at", one)]
    found = ask("offsets", clicks, *options, "--json").objects
    assert [(one["partition"], one["at"], one["offset"]) for one in found] == [
        (0, "latest", 7),
        (0, at(300), 1),
        (0, "earliest", 0),
        (1, "latest", 2),
        (1, at(300), 1),
        (1, "earliest", 0),
    ]


def test_offsets_tells_people_why_there_is_none(
    horolog: Program, ask: Run, clicks: str, topic: str
) -> None:
    late = ask("offsets", clicks, "--partition", "0", "--at", at(501)).out
    assert "no message is as late as that (the next offset is 7)" in late
    horolog.ok("produce", topic, "--json", stdin='{"value":"a","timestamp_ms":null}\n')
    without = ask("offsets", topic, "--at", at(0), "--at", "largest").out
    assert without.count("no message has a time") == 2
    result = ask("consume", topic, *BETWEEN, "--from", at(0))
    assert result.out == ""
    assert "no message with a time" in result.err


def test_numbers_in_another_unit_are_taken_when_asked_to(
    horolog: Program, ask: Run, topic: str
) -> None:
    line = '{"value":"a","timestamp_ms":1479144272}\n'
    horolog.ok("produce", topic, "--json", "--any-unit", stdin=line)
    options = ("--at", "1479144272", "--any-unit", "--json")
    (found,) = ask("offsets", topic, *options).objects
    assert (found["offset"], found["timestamp_ms"]) == (0, 1479144272)
    assert len(ask("consume", topic, "--from", "5", "--any-unit", "--json").objects) == 1
