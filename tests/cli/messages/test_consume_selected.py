"""`horolog consume`: which messages, in which order, of which topics; and how they are printed."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog import NewRecord, blocking
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program
from horolog.tests.in_process import run_in_process
from horolog.tests.properties.examples import examples

Run = Callable[..., CommandResult]

T0 = 1_479_132_300_000
NUMBERS = count()


def produce(server: BrokerThread, topic: str, *lines: dict[str, Any]) -> None:
    Program(server.address).ok("produce", topic, "--json", stdin="\n".join(map(json.dumps, lines)))


def values(result: CommandResult) -> list[str]:
    return [one["value"] for one in result.objects]


@pytest.fixture(scope="module")
def clicks(server: BrokerThread) -> str:
    """Two partitions with four messages each, out of order."""
    program = Program(server.address)
    program.ok("topic", "create", "clicks", "--partitions", "2", "--set", "retention.ms=-1")
    lines: list[dict[str, Any]] = [
        {"value": json.dumps({"user": {"id": n}, "tags": ["a", f"t{n}"]}), "key": f"k{n % 2}"}
        for n in range(8)
    ]
    for n, (line, after_ms) in enumerate(zip(lines, (5, 1, 7, 3, 2, 8, 4, 6), strict=True)):
        line |= {"partition": n // 4, "timestamp_ms": T0 + after_ms}
        if n in (2, 5):
            line["headers"] = [{"name": "trace", "value": "a=b"}, {"name": "n", "value": str(n)}]
    produce(server, "clicks", *lines)
    return "clicks"


def numbers(result: CommandResult) -> list[int]:
    return [json.loads(one["value"])["user"]["id"] for one in result.objects]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-n", "3"], [0, 1, 2]),
        (["-n", "100"], range(8)),
        (["--last", "3"], [5, 6, 7]),
        (["--last", "3", "--partition", "0"], [1, 2, 3]),
        (["--last", "100"], range(8)),
        (["--last", "3", "-n", "1"], [5]),
        (["--key", "k1"], [1, 3, 5, 7]),
        (["--key", "k1", "--last", "1"], [7]),
        (["--key", "k1", "-n", "2"], [1, 3]),
        (["--key", "nobody"], []),
        (["--grep", '"t6"'], [6]),
        (["--header", "trace=a=b"], [2, 5]),
        (["--header", "trace=a=b", "--header", "n=5"], [5]),
        (["--header", "trace=a"], []),
        (["--order", "time"], [1, 4, 3, 6, 0, 7, 2, 5]),
        (["--order", "time", "--last", "2"], [2, 5]),
        (["--order", "time", "-n", "2", "--key", "k0"], [4, 6]),
        (["--from", str(T0 + 3), "--until", str(T0 + 7)], [0, 3, 6, 7]),
        (["--from", str(T0 + 3), "--until", str(T0 + 7), "--order", "time"], [3, 6, 0, 7]),
        (["--from", str(T0 + 3), "--until", str(T0 + 7), "--last", "1"], [7]),
        (["--from", str(T0 + 3), "--last", "2", "--key", "k0"], [0, 2]),
        (["--from", "offset:2", "--last", "3"], [3, 6, 7]),
        (["--speed", "1000"], [1, 4, 3, 6, 0, 7, 2, 5]),
        (["--speed", "max"], range(8)),
    ],
)
def test_which_messages_in_which_order(
    ask: Run, clicks: str, options: list[str], expected: Sequence[int]
) -> None:
    assert numbers(ask("consume", clicks, "--json", *options)) == list(expected)


def test_the_last_line_tells_selected_from_all(ask: Run, clicks: str) -> None:
    window = ("--from", str(T0), "--until", str(T0 + 7))
    found = ask("consume", clicks, *window, "--key", "k1", "--json")
    assert numbers(found) == [1, 3, 7]
    assert "3 of 6 messages in the window; " in found.err
    found = ask("consume", clicks, *window, "-n", "1", "--json")
    assert "1, as many as -n asks for, of at least " in found.err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["-n", "0"], "-n 0: nothing would be read"),
        (["--last", "0"], "--last 0: nothing would be read"),
        (["--last", "5", "-f"], "--last with --follow"),
        (["--last", "1000000"], "up to 100000 messages"),
        (["--grep", ""], "at least one character"),
        (["--header", "trace"], "--header trace: write NAME=VALUE"),
        (["--settle", "1s"], "goes with --follow and --order time"),
        (["--settle", "x", "-f", "--order", "time"], "--settle: 'x' is not a length of time"),
        (["--speed", "0"], "--speed 0: write a number from 0.001"),
        (["--speed", "fast"], "--speed fast"),
        (["--format", "{nothing}"], "there is no field {nothing}"),
        (["--format", "{value."], "a { at character 1 stands alone"),
        (["--format", "{value.}"], "there is no field {value.}"),
        (["--format", "\\q"], "\\q is no escape"),
        (["--format", "{value}", "--json"], "the template says what a line has"),
        (["--to", "copy", "--json"], "--json is about printing"),
        (["--to", "kafka://127.0.0.1:1/"], "write TOPIC, or ADDRESS/TOPIC"),
        (["--to", "kafka://127.0.0.1/copy"], "--to: "),
        (["^("], "is no regular expression"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(run: Run, options: list[str], text: str) -> None:
    result = run("consume", "clicks", *options, "--server", "127.0.0.1:1", code=2)
    assert result.out == ""
    assert text in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{time} {key} {value.user.id}", "2016-11-14T14:05:00.007Z k0 2"),
        ("{topic}-{partition}:{offset}\\t{timestamp_ms}", f"clicks-0:2\t{T0 + 7}"),
        ("{value.tags.1} {value.tags.9} {value.user}", 't2 - {"id": 2}'),
        ("{headers.trace} {headers.none} {{{timestamp_type}}}", "a=b - {CreateTime}"),
        ("{key.user} \\x41\\u00e9\\\\", "- A\u00e9\\"),
        ("{headers}", "trace=a=b  n=2"),
    ],
)
def test_a_template_says_what_a_line_has(ask: Run, clicks: str, template: str, line: str) -> None:
    options = ("--partition", "0", "--from", "offset:2", "--until", "offset:3")
    assert ask("consume", clicks, *options, "--format", template).out == f"{line}\n"


def test_a_template_escapes_what_messages_bring(ask: Run, server: BrokerThread, topic: str) -> None:
    produce(server, topic, {"value": '{"a": "x\\u001b[2J"}', "key": "a\nb"})
    out = ask("consume", topic, "--format", "{key}|{value.a}|{append_time_ms}").out
    key, value, append_time_ms = out.strip().split("|")
    assert (key, value) == ("a\\nb", "x\\x1b[2J")
    assert int(append_time_ms) > T0


def test_several_topics_and_patterns(ask: Run, server: BrokerThread, topic: str) -> None:
    for name, after_ms in ((f"{topic}-b", 1), (f"{topic}-a", 2), (f"x-{topic}", 3)):
        ask("topic", "create", name, "--set", "retention.ms=-1")
        produce(server, name, {"value": name[-2:], "timestamp_ms": T0 + after_ms})

    def read(*arguments: str) -> list[str]:
        return [one["topic"] for one in ask("consume", *arguments, "--json").objects]

    assert read(f"{topic}-b", f"{topic}-a") == [f"{topic}-b", f"{topic}-a"]
    assert read(f"{topic}-*") == [f"{topic}-a", f"{topic}-b"]
    assert read(f"{topic}-*", "--order", "time") == [f"{topic}-b", f"{topic}-a"]
    assert read(f"^{topic}-[a]") == [f"{topic}-a"]
    assert read(f"x-{topic}", f"{topic}-?", "--last", "2") == [f"x-{topic}", f"{topic}-a"]
    window = ("--from", str(T0 + 2))
    assert read(f"{topic}-*", f"x-{topic}", *window) == [f"{topic}-a", f"x-{topic}"]
    text = ask("consume", f"{topic}-*").out.splitlines()[0]
    assert text.split()[1:] == [f"{topic}-a-0:0", "-", "-a"]
    assert list(ask("consume", f"{topic}-?", "--json").objects[0])[:2] == ["topic", "partition"]
    nothing = ask("consume", f"{topic}-none*", code=1)
    assert "no topic matches" in nothing.err


@dataclass(frozen=True)
class Sent:
    """A message, with its place in the oracle's list."""

    partition: int
    time_ms: int
    key: bytes
    value: bytes
    header: bytes


sent_messages = st.builds(
    Sent,
    st.integers(0, 2),
    st.one_of(st.integers(T0, T0 + 20), st.just(-1)),
    st.sampled_from((b"a", b"b")),
    st.sampled_from((b"red", b"green", b"dark red")),
    st.sampled_from((b"1", b"2")),
)


@dataclass(frozen=True)
class Asked:
    """Options of a command."""

    key: str | None
    text: str | None
    header: str | None
    first: int | None
    last: int | None
    in_time_order: bool
    window: tuple[int, int] | None

    def options(self) -> list[str]:
        given = {
            "--key": self.key,
            "--grep": self.text,
            "--header": None if self.header is None else f"h={self.header}",
            "-n": self.first,
            "--last": self.last,
            "--order": "time" if self.in_time_order else None,
            "--from": None if self.window is None else T0 + self.window[0],
            "--until": None if self.window is None else T0 + sum(self.window),
        }
        return [str(part) for flag, one in given.items() if one is not None for part in (flag, one)]

    def holds(self, one: Sent) -> bool:
        if self.window is not None and not (
            T0 + self.window[0] <= one.time_ms < T0 + sum(self.window)
        ):
            return False
        return (
            (self.key is None or one.key == self.key.encode())
            and (self.text is None or self.text.encode() in one.value)
            and (self.header is None or one.header == self.header.encode())
        )


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


asked = st.builds(
    Asked,
    maybe(st.sampled_from(("a", "c"))),
    maybe(st.sampled_from(("red", "k r"))),
    maybe(st.sampled_from(("1", "2"))),
    maybe(st.integers(1, 8)),
    maybe(st.integers(1, 12)),
    st.booleans(),
    maybe(st.tuples(st.integers(0, 20), st.integers(0, 15))),
)

Place = tuple[int, int]


def expected(messages: list[Sent], asked_for: Asked) -> list[Place]:
    """The oracle: the places of the messages, by partition and offset."""
    by_partition: list[list[tuple[Place, int]]] = [[], [], []]
    ends = [0, 0, 0]
    for one in messages:
        if asked_for.holds(one):
            place = one.partition, ends[one.partition]
            by_partition[one.partition].append((place, one.time_ms))
        ends[one.partition] += 1
    if asked_for.in_time_order:
        ordered = sorted((time_ms, place) for part in by_partition for place, time_ms in part)
        found = [place for _, place in ordered]
        found = found if asked_for.last is None else found[-asked_for.last :]
    elif asked_for.last is None:
        found = [place for part in by_partition for place, _ in part]
    else:
        found = sorted(last_of([list(part) for part in by_partition], asked_for.last))
    return found[: asked_for.first]


def last_of(parts: list[list[tuple[Place, int]]], number: int) -> list[Place]:
    """Take the latest one of the ends, again and again."""
    found: list[Place] = []
    while any(parts) and len(found) < number:
        latest = max((part for part in parts if part), key=lambda part: (part[-1][1], part[-1][0]))
        found.append(latest.pop()[0])
    return found


@examples(25)
@given(
    messages=st.lists(sent_messages, max_size=25),
    asked_for=st.lists(asked, min_size=4, max_size=4),
)
def test_filters_counts_and_order_together(
    server: BrokerThread, messages: list[Sent], asked_for: list[Asked]
) -> None:
    topic = f"random{next(NUMBERS)}"
    with (
        blocking.Admin(server.address) as admin,
        blocking.Producer(server.address, stamp_missing=False) as producer,
    ):
        admin.create_topic(topic, partitions=3, settings={"retention.ms": "-1"})
        for number in range(3):
            records = [
                NewRecord(one.value, one.key, one.time_ms, (("h", one.header),))
                for one in messages
                if one.partition == number
            ]
            producer.send_many(topic, records, partition=number)
    for one in asked_for:
        arguments = ["consume", topic, "--json", "--server", server.address, *one.options()]
        result = run_in_process(arguments, b"", {})
        assert result.code == 0, result.err
        found = [(line["partition"], line["offset"]) for line in result.objects]
        assert found == expected(messages, one), one
