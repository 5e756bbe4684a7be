"""`horolog record`, and its files in a test: a window of production as a fixture."""

import itertools
import json
import os
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horolog import blocking
from horolog.client.recordings import NoRecording
from horolog.client.results import ConsumerRecord
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program

HOUR_MS = 3_600_000
T = 1_479_142_800_000
"""2016-11-14T17:00:00Z."""

Headers = tuple[tuple[str, bytes | None], ...]
Sent = tuple[int, bytes | None, bytes | None, Headers]
"""Partition, key, value and headers of a message; it is a minute later than the one before."""

Run = Callable[..., CommandResult]


@pytest.fixture
def run(horolog_broker: BrokerThread) -> Program:
    return Program(horolog_broker.address)


@pytest.fixture
def horolog_settings() -> dict[str, object]:
    return {"retention.ms": -1}


def fill(broker: BrokerThread, sent: Sequence[Sent], topic: str = "clicks") -> None:
    with blocking.Admin(broker.address) as admin, blocking.Producer(broker.address) as producer:
        admin.create_topic(topic, partitions=3)
        for minute, (partition, key, value, headers) in enumerate(sent):
            producer.send(
                topic,
                value,
                key=key,
                timestamp_ms=T + minute * 60_000,
                partition=partition,
                headers=headers,
            )


def parts(messages: Sequence[ConsumerRecord], shifted_ms: int = 0) -> list[object]:
    return [
        (each.partition, each.key, each.value, each.headers, (each.timestamp_ms or 0) - shifted_ms)
        for each in messages
    ]


SENT: list[Sent] = [
    (0, b"k", b"first", (("h", b"1"), ("h", None))),
    (2, None, b"\xff\xfe", ()),
    (0, b"\x80", None, ()),
    (2, b"", "ü\n".encode(), (("ü", b"\xff"),)),
]


def test_a_window_is_recorded_and_loaded_at_another_time(
    horolog_broker: BrokerThread, run: Run, tmp_path: Path
) -> None:
    fill(horolog_broker, SENT)
    path = tmp_path / "clicks.jsonl"
    told = run("record", "clicks", "--from", str(T), "--until", str(T + HOUR_MS), "--to", path)
    assert (told.code, told.out) == (0, "")
    assert "4 messages in the window" in told.err
    assert f"written to {path}" in told.err
    head, *lines = map(json.loads, path.read_text().splitlines())
    assert head == {
        "recording": 1,
        "topic": "clicks",
        "partitions": 3,
        "from_ms": T,
        "until_ms": T + HOUR_MS,
    }
    assert lines[0]["headers"] == [{"name": "h", "value": "1"}, {"name": "h", "value": None}]
    assert list(tmp_path.iterdir()) == [path]
    recorded = parts(horolog_broker.topic("clicks").messages())

    horolog_broker.clock.freeze()
    loaded = horolog_broker.load(path, shift_to="@-1h", topic="later")
    assert (loaded.topic, loaded.messages) == ("later", 4)
    assert loaded.shifted_ms == horolog_broker.clock.now_ms() - HOUR_MS - T
    later = horolog_broker.topic("later").messages()
    assert parts(later, loaded.shifted_ms) == recorded

    assert horolog_broker.load(path, topic="same").shifted_ms == 0
    assert parts(horolog_broker.topic("same").messages()) == recorded
    when = datetime(2020, 1, 1, tzinfo=UTC)
    horolog_broker.load(str(path), shift_to=when, topic="year")
    first = horolog_broker.topic("year").messages()[0]
    assert first.timestamp_ms == when.timestamp() * 1000


def test_a_kafka_cluster_is_recorded(
    horolog_broker: BrokerThread, kafka_bootstrap: str, tmp_path: Path
) -> None:
    fill(horolog_broker, SENT)
    run, path = Program(f"kafka://{kafka_bootstrap}"), tmp_path / "clicks.jsonl"
    run.ok("record", "clicks", "--from", str(T), "--until", str(T + 120_000), "--to", path)
    assert horolog_broker.load(path, topic="again").messages == 2
    recorded = horolog_broker.topic("clicks").messages()
    kept = [each for each in recorded if (each.timestamp_ms or 0) < T + 120_000]
    assert parts(horolog_broker.topic("again").messages()) == parts(kept)


def test_the_lines_are_those_that_produce_takes(
    horolog_broker: BrokerThread, run: Run, tmp_path: Path
) -> None:
    fill(horolog_broker, SENT)
    fill(horolog_broker, [], "again")
    run("record", "clicks", "--to", path := tmp_path / "clicks.jsonl")
    lines = path.read_text().split("\n", 1)[1]
    assert Program(horolog_broker.address)("produce", "again", "--json", stdin=lines).code == 0
    recorded = parts(horolog_broker.topic("clicks").messages())
    assert parts(horolog_broker.topic("again").messages()) == recorded


def test_only_the_window_is_recorded(
    horolog_broker: BrokerThread, run: Run, tmp_path: Path
) -> None:
    fill(horolog_broker, SENT)
    path = tmp_path / "clicks.jsonl"
    path.write_text("old")
    window = ("--from", str(T + 60_000), "--until", str(T + 180_000))
    assert run("record", "clicks", *window, "--to", path).code == 0
    assert horolog_broker.load(path, topic="some").messages == 2
    assert run("record", "clicks", *window, "--partition", "2", "--to", path).code == 0
    assert horolog_broker.load(path, topic="fewer").messages == 1
    named = run("record", "clicks..20161114T170100Z..2m", "--to", path)
    assert named.code == 0, named.err
    assert horolog_broker.load(path).topic == "clicks"
    assert len(horolog_broker.topic("clicks").messages()) == 6
    shown = run("record", "clicks", *window, "--to", "-")
    assert len(shown.out.splitlines()) == 5


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("clicks", "--from", "offset:1", "--to", "x"), 2, "--from offset:1 is no time"),
        (("clicks", "--from", "latest", "--to", "x"), 2, "--from latest is no time"),
        (("clicks", "--to", "missing/x"), 2, "--to: missing/x cannot be written: No such file"),
        (("clicks", "--to", "."), 2, "--to: . is a directory"),
        (("clicks",), 2, "--to"),
        (("nothing", "--to", "x"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("clicks..20161114T17Z..1h", "--from", "now", "--to", "x"), 2, "a window of clicks"),
    ],
)
def test_what_is_not_recorded(
    horolog_broker: BrokerThread,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    fill(horolog_broker, SENT)
    told = Program(horolog_broker.address, cwd=tmp_path)("record", *arguments)
    assert told.code == code
    assert says in told.err
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        told = Program(address, cwd=tmp_path)("record", "clicks", "--to", "x")
    assert told.code == 1
    assert address in told.err
    assert "x cannot be written" not in told.err


def test_a_pipe_and_a_link_stay(horolog_broker: BrokerThread, run: Program, tmp_path: Path) -> None:
    fill(horolog_broker, SENT)
    pipe, link, path = (tmp_path / name for name in ("pipe", "link", "clicks.jsonl"))
    os.mkfifo(pipe)
    link.symlink_to(path)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        run.ok("record", "clicks", "--to", pipe)
        piped = os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)
    run.ok("record", "clicks", "--to", link)
    assert (pipe.is_fifo(), link.is_symlink()) == (True, True)
    assert path.read_bytes() == piped
    assert len(piped.splitlines()) == 5
    assert sorted(tmp_path.iterdir()) == sorted((pipe, link, path))


HEAD = '{"recording": 1, "topic": "clicks", "partitions": 2, "from_ms": null, "until_ms": null}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no recording"),
        ("{}", "is no recording"),
        ('{"value": "x"}\n', "is no recording"),
        ('{"recording": 2}', "version 2"),
        ('{"recording": 1, "topic": "", "partitions": 1}', "must be a name"),
        ('{"recording": 1, "topic": "a", "partitions": 0}', "from 1 to"),
        (f'{HEAD}\n{{"value": "x", "partition": 0}}\n{{"value": "x"}}\n', "line 3: the partition"),
        (f'{HEAD}\n{{"value": "x", "partition": 2}}\n', "must be 0 to 1"),
        (f"{HEAD}\n{{\n", "line 2 is not JSON"),
    ],
)
def test_a_file_that_is_no_recording_loads_nothing(
    horolog_broker: BrokerThread, tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "clicks.jsonl"
    path.write_text(text)
    with pytest.raises(NoRecording, match=says):
        horolog_broker.load(path)
    with blocking.Admin(horolog_broker.address) as admin:
        assert admin.list_topics() == {}


def test_what_cannot_be_loaded(horolog_broker: BrokerThread, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        horolog_broker.load(tmp_path / "missing")
    path = tmp_path / "clicks.jsonl"
    line = '{"value": "x", "partition": 1, "timestamp_ms": 1479142800000}'
    path.write_text(f"{HEAD.replace('null', str(T + HOUR_MS), 1)}\n{line}\n")
    with pytest.raises(NoRecording, match="would not be from 0"):
        horolog_broker.load(path, shift_to=0)
    with blocking.Producer(horolog_broker.address) as producer:
        producer.send("clicks", b"value")
    with pytest.raises(ValueError, match="create it with as many"):
        horolog_broker.load(path)
    horolog_broker.load(path, topic="other")


CONTENT = st.none() | st.binary(max_size=8)
NAMED = st.tuples(st.text(max_size=4), CONTENT)


NUMBERS = itertools.count()


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 2), CONTENT, CONTENT, st.lists(NAMED, max_size=2).map(tuple)),
        max_size=6,
    )
)
def test_any_messages_come_back(
    horolog_broker: BrokerThread, tmp_path: Path, sent: list[Sent]
) -> None:
    path, name = tmp_path / "clicks.jsonl", f"topic{next(NUMBERS)}"
    fill(horolog_broker, sent, name)
    assert Program(horolog_broker.address)("record", name, "--to", path).code == 0
    assert horolog_broker.load(path, topic=f"again-{name}").messages == len(sent)
    recorded = parts(horolog_broker.topic(name).messages())
    assert parts(horolog_broker.topic(f"again-{name}").messages()) == recorded
