"""`horolog histogram`: messages by time."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.cli.histogram import next_whole
from horolog.clock import SystemClock
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program
from horolog.times import EPOCH

Run = Callable[..., CommandResult]

BASE_MS = 1479132000000
"""2016-11-14T14:00:00Z."""

AFTER_S = [0, 125, 60, None, 59.999, 130, 240]
"""Times of the messages of partition 0 after that, in seconds; one has none."""


@pytest.fixture(scope="module")
def clicks(server: BrokerThread) -> str:
    """Seven messages in partition 0, and one in partition 1."""
    objects = [
        {
            "value": "",
            "partition": 0,
            "timestamp_ms": None if after_s is None else BASE_MS + round(after_s * 1000),
        }
        for after_s in AFTER_S
    ]
    objects.append({"value": "", "partition": 1, "timestamp_ms": BASE_MS + 61_000})
    program = Program(server.address)
    program.ok("topic", "create", "clicks", "--partitions", "2", "--set", "retention.ms=-1")
    program.ok("produce", "clicks", "--json", stdin="\n".join(map(json.dumps, objects)))
    return "clicks"


def minutes(result: CommandResult) -> list[tuple[float, float, int]]:
    """The lines, with times in minutes after the first."""
    return [
        ((one["from_ms"] - BASE_MS) / 60_000, (one["until_ms"] - BASE_MS) / 60_000, one["count"])
        for one in result.objects
    ]


def test_each_interval_has_a_line(ask: Run, clicks: str) -> None:
    times = ("--from", "2016-11-14T14:00:00Z", "--until", "2016-11-14T14:04:30Z", "--every", "1m")
    result = ask("histogram", clicks, *times, "--json")
    assert minutes(result) == [(0, 1, 2), (1, 2, 2), (2, 3, 2), (3, 4, 0), (4, 4.5, 1)]
    assert list(result.objects[0]) == ["from_ms", "until_ms", "count"]
    assert result.err == ""
    one = ask("histogram", clicks, "--partition", "1", *times, "--json")
    assert [count for _, _, count in minutes(one)] == [0, 1, 0, 0, 0]


def test_the_first_interval_begins_where_from_says_and_others_at_whole_units(
    ask: Run, clicks: str
) -> None:
    span = "@2016-11-14T14:00:30Z:2016-11-14T14:02:30Z"
    result = ask("histogram", clicks, "--from", span, "--every", "1m", "--json")
    assert minutes(result) == [(0.5, 1, 1), (1, 2, 2), (2, 2.5, 2)]
    cut = "@2016-11-14T14:00:30Z:2016-11-14T14:02:05Z"
    result = ask("histogram", clicks, "--from", cut, "--every", "1h", "--json")
    assert [count for _, _, count in minutes(result)] == [3]


def test_without_until_it_ends_now(ask: Run, horolog: Program, topic: str) -> None:
    before_ms = SystemClock().now_ms()
    horolog.ok("produce", topic, stdin="a\nb\n")
    found = ask("histogram", topic, "--from", "@-1d", "--every", "1h", "--json").objects
    assert len(found) in (24, 25)
    assert sum(one["count"] for one in found) == 2
    assert all(one["from_ms"] % 3_600_000 == 0 for one in found[1:])
    assert found[-1]["until_ms"] >= before_ms
    appended = ask(
        "histogram", topic, "--from", "@-1d", "--every", "1h", "--by", "append", "--json"
    ).objects
    assert sum(one["count"] for one in appended) == 2


def test_people_get_bars_and_a_summary(ask: Run, clicks: str) -> None:
    times = ("--from", "2016-11-14T14:00:00Z", "--until", "2016-11-14T14:05:00Z", "--every", "2m")
    result = ask("histogram", clicks, *times)
    header, *rows = result.out.splitlines()
    assert header.split() == ["from", "messages"]
    assert [row.split()[:2] for row in rows] == [
        ["2016-11-14T14:00:00.000Z", "4"],
        ["2016-11-14T14:02:00.000Z", "2"],
        ["2016-11-14T14:04:00.000Z", "1"],
    ]
    assert [row.count("█") for row in rows] == [40, 20, 10]
    assert "7 messages from 2016-11-14T14:00:00.000Z to 2016-11-14T14:04:00.000Z" in result.err
    assert "1 more without a time" in result.err


def test_it_says_what_it_read(ask: Run, clicks: str) -> None:
    """A short first interval has a count of its own, which reads the same block."""
    until = "2016-11-14T14:04:30Z"
    once, twice = (
        ask("histogram", clicks, "--from", start, "--until", until, "--every", "1m")
        .err.splitlines()[-1]
        .rpartition("; ")[2]
        for start in ("2016-11-14T14:00:00Z", "2016-11-14T14:00:30Z")
    )
    sizes = once.removesuffix(" read").split(" of ")
    assert len(sizes) == 2
    assert sizes[0] == sizes[1]
    assert twice == f"{2 * int(sizes[0].removesuffix(' B'))} B read in 2 counts of {sizes[1]}"


def test_it_has_not_read_more_than_there_is_of_a_trimmed_topic(ask: Run, horolog: Program) -> None:
    """The bytes before the log start are in the same block."""
    lines = "\n".join(json.dumps({"value": "v", "timestamp_ms": BASE_MS + 1}) for _ in range(9))
    horolog.ok("topic", "create", "trimmed", "--set", "retention.ms=-1")
    horolog.ok("produce", "trimmed", "--json", stdin=lines)
    horolog.ok("topic", "trim", "trimmed", "--before", "offset:8", "--yes")
    window = ("--from", f"@{BASE_MS}:{BASE_MS + 2}", "--every", "1ms")
    told = ask("histogram", "trimmed", *window).err.splitlines()[-1].rpartition("; ")[2]
    read, stored = told.removesuffix(" read").split(" of ")
    assert int(read.removesuffix(" B")) <= int(stored.removesuffix(" B"))


def test_nothing_to_count_has_no_bars(ask: Run, clicks: str) -> None:
    result = ask("histogram", clicks, "--from", "@-2m", "--every", "1m")
    assert "█" not in result.out
    assert {row.split()[1] for row in result.out.splitlines()[1:]} == {"0"}
    assert len(result.out.splitlines()) in (3, 4)
    assert "0 messages; " in result.err


HOUR = ["--from", "2016-11-14T14:00:00Z", "--until", "2016-11-14T15:00:00Z"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([*HOUR], "--every"),
        (["--every", "1m"], "--from"),
        ([*HOUR, "--every", "0s"], "'0s' is no length: write 1ms or more"),
        ([*HOUR, "--every", "5"], "not a length of time"),
        ([*HOUR, "--every", "999999999999w"], "longer than all of time"),
        ([*HOUR, "--every", "35ms"], "at most 100,000"),
        (["--from", "offset:1", "--every", "1m"], "offset:1 is no time"),
        (["--from", "@:now", "--every", "1m"], "has no beginning"),
        (["--from", "now", "--until", "@-1h", "--every", "1m"], "before it starts"),
        ([*HOUR, "--every", "1m", "--by", "size"], "append"),
    ],
)
def test_what_cannot_be_counted_is_wrong_usage(run: Run, options: list[str], text: str) -> None:
    result = run("histogram", "clicks", *options, "--server", "127.0.0.1:1", code=2)
    assert result.out == ""
    assert text in result.err


def test_so_many_intervals_can_be_counted(ask: Run, clicks: str) -> None:
    found = ask("histogram", clicks, *HOUR, "--every", "36ms", "--json").objects
    assert len(found) == 100_000
    assert sum(one["count"] for one in found) == 7


@given(
    from_ms=st.integers(0, 10**13),
    every_ms=st.sampled_from([1, 1000, 60_000, 3_600_000, 86_400_000, 604_800_000]),
    name=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]),
)
def test_intervals_begin_at_whole_units_of_the_clock(
    from_ms: int, every_ms: int, name: str
) -> None:
    zone = ZoneInfo(name)
    found = next_whole(from_ms, timedelta(milliseconds=every_ms), zone)
    assert 0 <= found - from_ms < every_ms
    offset = (EPOCH + timedelta(milliseconds=from_ms)).astimezone(zone).utcoffset()
    assert offset is not None
    shown = EPOCH + timedelta(milliseconds=found) + offset
    monday = datetime(1970, 1, 5, tzinfo=UTC)
    assert (shown - monday) % timedelta(milliseconds=every_ms) == timedelta(0)


def test_days_begin_at_midnight_of_the_time_zone(ask: Run, clicks: str) -> None:
    span = ("--from", "2016-11-14 12:00", "--until", "2016-11-16", "--every", "1d", "--json")
    found = ask("histogram", clicks, *span, "--tz", "Europe/Berlin").objects
    assert [(one["from_ms"] - BASE_MS) / 3_600_000 for one in found] == [-3, 9]
    assert [one["count"] for one in found] == [7, 0]


def test_from_the_first_message_to_the_last(ask: Run, clicks: str) -> None:
    ends = ("--from", "earliest", "--until", "latest", "--every", "1m", "--json")
    result = ask("histogram", clicks, *ends)
    assert [count for _, _, count in minutes(result)] == [2, 2, 2, 0, 1]
    assert result.objects[-1]["until_ms"] == BASE_MS + 240_001


def test_a_topic_without_times_has_no_first_message(ask: Run, topic: str) -> None:
    ask("topic", "create", topic)
    refused = ask("histogram", topic, "--from", "earliest", "--every", "1m", code=1)
    assert "no message with a time: give --from and --until a time" in refused.err
    for ends in (("--from", "latest"), ("--from", "now", "--until", "earliest")):
        assert ask("histogram", topic, *ends, "--every", "1m", code=2).out == ""
