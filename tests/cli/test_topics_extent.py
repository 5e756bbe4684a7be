"""What `topic list`, `trim` and `delete` say of a topic's messages; and settings with units."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from horolog import blocking
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program

from .terminal import on_terminal

Run = Callable[..., CommandResult]

BASE_MS = 1479132000000
"""2016-11-14T14:00:00Z."""
FIRST, LAST = "2016-11-14T14:00:05.000Z", "2016-11-14T14:00:09.000Z"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """One broker for all tests of the module, with a port for Kafka's protocol."""
    settings = {"kafka.listen": "127.0.0.1:0", "log.initial.task.delay.ms": 3_600_000}
    with BrokerThread(tmp_path_factory.mktemp("server") / "data", settings) as running:
        yield running


@pytest.fixture
def clicks(horolog: Program, topic: str) -> str:
    """Three messages in two partitions, the first of which is not the earliest."""
    lines = [
        json.dumps({"value": "v", "partition": partition, "timestamp_ms": BASE_MS + after_ms})
        for partition, after_ms in ((0, 5000), (0, 9000), (1, 7000))
    ]
    settings = ("--set", "retention.ms=-1", "--set", "retention.bytes=1GiB")
    horolog.ok("topic", "create", topic, "--partitions", "2", *settings)
    horolog.ok("produce", topic, "--json", stdin="\n".join(lines))
    return topic


def test_the_list_has_messages_bytes_times_and_retention(ask: Run, clicks: str) -> None:
    (found,) = (one for one in ask("topic", "ls", "--json").objects if one["topic"] == clicks)
    size = found.pop("size_bytes")
    assert size > 0
    assert found == {
        "topic": clicks,
        "partitions": 2,
        "messages": 3,
        "first_ms": BASE_MS + 5000,
        "last_ms": BASE_MS + 9000,
        "retention_ms": -1,
        "retention_bytes": 2**30,
        "cleanup_policy": "delete",
    }
    heading, *rows = [line.split() for line in ask("topic", "list").out.splitlines()]
    columns = ["topic", "partitions", "messages", "size", "first", "last", "retention"]
    assert heading == columns
    assert [clicks, "2", "3", str(size), "B", FIRST, LAST, "1GiB"] in rows


def test_first_and_last_are_the_smallest_and_largest_times(
    ask: Run, horolog: Program, topic: str
) -> None:
    ask("topic", "create", topic, "--partitions", "2", "--set", "retention.ms=-1")
    times = ((0, 5000), (0, 2000), (0, 9000), (0, 7000), (1, 3000), (1, None), (1, 2500))
    lines = [
        json.dumps(
            {"value": "v", "partition": n, "timestamp_ms": None if t is None else BASE_MS + t}
        )
        for n, t in times
    ]
    horolog.ok("produce", topic, "--json", stdin="\n".join(lines))
    (found,) = (one for one in ask("topic", "ls", "--json").objects if one["topic"] == topic)
    assert (found["first_ms"], found["last_ms"]) == (BASE_MS + 2000, BASE_MS + 9000)
    said = ask("topic", "delete", topic, "--json").objects
    assert (said[0]["first_ms"], said[0]["last_ms"]) == (BASE_MS + 2000, BASE_MS + 9000)


def test_the_list_over_kafkas_protocol(ask: Run, server: BrokerThread, clicks: str) -> None:
    kafka = ("--server", f"kafka://{server.kafka_address}")
    (found,) = (
        one for one in ask("topic", "ls", "--json", *kafka).objects if one["topic"] == clicks
    )
    assert (found["messages"], found["size_bytes"] > 0) == (3, True)
    assert (found["first_ms"], found["last_ms"]) == (BASE_MS + 5000, None)
    assert found["retention_bytes"] == 2**30
    ask("topic", "alter", clicks, "--set", "retention.ms=12h", *kafka)
    assert ["retention.ms", "12h", "topic"] in [
        line.split() for line in ask("topic", "describe", clicks, *kafka).out.splitlines()
    ]
    trimmed = ask("topic", "trim", clicks, "--before", "latest", "--json", *kafka).objects
    assert [(one["messages"], one["last_ms"]) for one in trimmed] == [
        (2, BASE_MS + 9000),
        (1, BASE_MS + 7000),
    ]


def test_units_in_settings(ask: Run, topic: str) -> None:
    ask("topic", "create", topic, "--set", "retention.ms=7d", "--set", "segment.bytes=1GiB")
    said = ask("topic", "alter", topic, "--set", "segment.ms=90s", "--json").objects
    assert said == [{"topic": topic, "settings": {"segment.ms": "90000"}}]
    (described,) = ask("topic", "describe", topic, "--json").objects
    values = {one["name"]: one["value"] for one in described["settings"]}
    assert values["retention.ms"] == "604800000"
    assert (values["segment.ms"], values["segment.bytes"]) == ("90000", str(2**30))
    lines = [line.split() for line in ask("topic", "describe", topic).out.splitlines()]
    for line in (["retention.ms", "7d"], ["segment.ms", "1m30s"], ["segment.bytes", "1GiB"]):
        assert [*line, "topic"] in lines
    refused = ask("topic", "alter", topic, "--set", "log.roll.hours=90s", code=2)
    assert "90s is not a whole number of hours" in refused.err
    refused = ask("topic", "alter", topic, "--set", "segment.bytes=10M", code=2)
    assert "M could be MiB or MB" in refused.err


def test_units_over_the_wire_become_numbers(tmp_path: Path) -> None:
    """As a program of Kafka's sends and reads them, also after a restart."""
    with BrokerThread(tmp_path / "data", {"kafka.listen": "127.0.0.1:0"}) as broker:
        for number, address in enumerate((broker.address, f"kafka://{broker.kafka_address}")):
            with blocking.Admin(address) as admin:
                admin.create_topic(f"t{number}", settings={"retention.ms": "7d"})
                admin.alter_topic(f"t{number}", {"segment.bytes": "1GiB"})
        broker.restart()
        for number, address in enumerate((broker.address, f"kafka://{broker.kafka_address}")):
            with blocking.Admin(address) as admin:
                settings = admin.describe_topic(f"t{number}").settings
            values = {one.name: one.value for one in settings}
            assert values["retention.ms"] == "604800000"
            assert values["segment.bytes"] == str(2**30)


def test_a_deletion_says_what_went(ask: Run, clicks: str) -> None:
    said = ask("topic", "rm", clicks)
    assert said.err == ""
    assert said.out.startswith(f"deleted topic {clicks}: 3 messages of {FIRST} to {LAST}, ")


def test_a_deletion_as_json(ask: Run, clicks: str) -> None:
    (said,) = ask("topic", "delete", clicks, "--json").objects
    times = {"first_ms": BASE_MS + 5000, "last_ms": BASE_MS + 9000}
    assert said == {"topic": clicks, "messages": 3, "size_bytes": said["size_bytes"], **times}


@pytest.fixture
def address(server: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOROLOG_SERVER", server.address)
    return server.address


@pytest.mark.usefixtures("address")
def test_a_terminal_is_asked_before_a_topic_is_deleted(ask: Run, clicks: str) -> None:
    kept = on_terminal("topic", "delete", clicks, all_of_it=True, typed="n\n")
    assert kept.code == 1
    assert f"this deletes topic {clicks}: 3 messages of {FIRST} to {LAST}" in kept.err
    assert "nothing was deleted" in kept.err
    assert on_terminal("topic", "delete", clicks, all_of_it=True, typed="y\n").code == 0
    assert clicks not in ask("topic", "list").out


@pytest.mark.usefixtures("address")
def test_a_terminal_is_asked_before_messages_are_trimmed(ask: Run, clicks: str) -> None:
    trim = ("topic", "trim", clicks, "--before", "2016-11-14T14:00:07Z")
    kept = on_terminal(*trim, all_of_it=True, typed="n\n")
    assert kept.code == 1
    assert f"this deletes 1 message (first time {FIRST}, last time {FIRST}) of {clicks}" in kept.err
    assert on_terminal(*trim, "--yes", all_of_it=True, typed="").code == 0
    (described,) = ask("topic", "describe", clicks, "--json").objects
    assert [one["log_start_offset"] for one in described["partitions"]] == [1, 0]


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize(
    ("command", "unchanged"),
    [
        (["topic", "delete"], "nothing was deleted"),
        (["topic", "trim", "--before", "latest"], "nothing was deleted"),
        (["group", "delete"], "nothing was deleted"),
        (["group", "seek", "--to", "earliest"], "nothing was moved"),
    ],
    ids=" ".join,
)
def test_ctrl_d_answers_no_question(
    server: BrokerThread, clicks: str, command: list[str], unchanged: str
) -> None:
    with blocking.Admin(server.address) as admin:
        admin.commit_position(clicks, clicks, 0, 1)
    said = on_terminal(*command, clicks, all_of_it=True, typed="\x04")
    assert said.code == 1
    last = said.err.splitlines()[-1]
    expected = f"{unchanged}: the question was not answered"
    assert last == f"horolog: {expected}. Give --yes to do it without the question"
    as_json = on_terminal(*command, clicks, "--json", all_of_it=True, typed="maybe\n\x04")
    assert as_json.code == 1
    assert json.loads(as_json.err.splitlines()[-1]) == {
        "error": "FAILED",
        "message": expected,
        "cure": "Give --yes to do it without the question",
    }


@pytest.mark.usefixtures("address")
def test_a_topic_that_is_missing_is_not_asked_about() -> None:
    said = on_terminal("topic", "delete", "nowhere", all_of_it=True, typed="")
    assert said.code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in said.err
