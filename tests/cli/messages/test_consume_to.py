"""`horolog consume --to`: messages written to another topic, of this broker or another one."""

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Program, next_line

Run = Callable[..., CommandResult]

T0 = 1_479_132_300_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Another broker, with a port for Kafka's clients."""
    data = tmp_path_factory.mktemp("kafka") / "data"
    with BrokerThread(data, {"kafka.listen": "127.0.0.1:0", "log.retention.ms": -1}) as running:
        yield running


@pytest.fixture(scope="module")
def clicks(server: BrokerThread) -> str:
    program = Program(server.address)
    program.ok("topic", "create", "clicks", "--partitions", "3", "--set", "retention.ms=-1")
    lines: list[dict[str, Any]] = [
        {"value": str(n), "timestamp_ms": T0 + 1000 * (n % 4), "partition": n % 3, "key": f"k{n}"}
        for n in range(9)
    ]
    lines[3]["headers"] = [{"name": "h", "value": None}, {"name": "h", "value": "2"}]
    lines[4]["value"], lines[5]["key"] = None, None
    lines.append({"value": "no time", "timestamp_ms": None, "partition": 0})
    program.ok("produce", "clicks", "--json", stdin="\n".join(map(json.dumps, lines)))
    return "clicks"


def content(result: CommandResult) -> list[dict[str, Any]]:
    return [{**one, "offset": None, "timestamp_type": None} for one in result.objects]


def test_a_copy_has_everything_in_its_partition(ask: Run, clicks: str, topic: str) -> None:
    ask("topic", "create", topic, "--partitions", "3", "--set", "retention.ms=-1")
    done = ask("consume", clicks, "--to", topic)
    assert done.out == ""
    assert done.err == f"horolog: 10 messages written to {topic}\n"
    assert content(ask("consume", topic, "--json")) == content(ask("consume", clicks, "--json"))


def test_a_window_is_copied_exactly_and_a_selection_too(ask: Run, clicks: str, topic: str) -> None:
    ask("topic", "create", topic, "--partitions", "3", "--set", "retention.ms=-1")
    window = ("--from", str(T0 + 1000), "--until", str(T0 + 3000))
    ask("consume", clicks, *window, "--key", "k6", "--to", topic)
    ask("consume", clicks, *window, "--order", "time", "-n", "3", "--to", topic)
    found = ask("consume", topic, "--json").objects
    assert sorted(one["value"] or "" for one in found) == ["1", "5", "6", "6"]
    window_line = ask("consume", clicks, *window, "--to", topic).err.splitlines()
    assert window_line[0] == f"horolog: 4 messages written to {topic}"
    assert "4 messages in the window" in window_line[-1]


def test_fewer_partitions_are_chosen_by_key(ask: Run, clicks: str, topic: str) -> None:
    ask("topic", "create", topic, "--partitions", "2", "--set", "retention.ms=-1")
    ask("consume", clicks, "--to", topic)
    ask("consume", clicks, "--to", topic)
    found = ask("consume", topic, "--json").objects
    assert len(found) == 20
    for key in (f"k{n}" for n in range(9) if n != 5):
        assert len({one["partition"] for one in found if one["key"] == key}) == 1


@pytest.mark.parametrize("scheme", ["kafka://", ""])
def test_a_copy_to_another_broker_and_back(
    ask: Run, clicks: str, kafka: BrokerThread, topic: str, scheme: str
) -> None:
    topic = topic.strip("-")
    there = Program(kafka.address)
    there.ok("topic", "create", topic, "--partitions", "3")
    address = kafka.kafka_address if scheme else kafka.address
    ask("consume", clicks, "--to", f"{scheme}{address}/{topic}")
    copied = content(there.ok("consume", topic, "--json"))
    assert copied == content(ask("consume", clicks, "--json"))
    read = ("--server", f"{scheme}{address}", "--from", str(T0), "--order", "time")
    assert ask("consume", topic, *read, "--last", "2", "--format", "{value}").out == "3\n7\n"


def test_what_is_read_is_no_target(ask: Run, server: BrokerThread, clicks: str) -> None:
    for target in (clicks, f"{server.address}/{clicks}"):
        refused = ask("consume", "click*", "--to", target, code=2)
        assert f"--to {clicks}: that is a topic that is read" in refused.err


def test_another_address_of_the_broker_that_is_read_is_no_other_broker(
    kafka: BrokerThread, topic: str
) -> None:
    there = Program(kafka.address)
    there.ok("produce", topic, stdin="a\n")
    assert kafka.kafka_address is not None
    native, kafka_port = (
        one.replace("127.0.0.1", "localhost") for one in (kafka.address, kafka.kafka_address)
    )
    assert "localhost" in native
    addresses = [native, f"kafka://{kafka.kafka_address}", f"kafka://{kafka_port}"]
    for read in (kafka.address, *addresses):
        for target in (kafka.address, *addresses):
            options = ("--server", read, "--to", f"{target}/{topic}")
            refused = there("consume", topic, *options)
            assert refused.code == 2
            assert f"--to {topic}: that is a topic that is read" in refused.err
    window = f"{topic}..20161114T14Z..1h"
    refused = there("consume", window, "--to", f"{native}/{topic}")
    assert f"--to {topic}: that is a topic that is read" in refused.err
    assert len(there.ok("consume", topic).out.splitlines()) == 1


def test_a_followed_pattern_that_matches_the_target_is_refused(
    ask: Run, server: BrokerThread, topic: str
) -> None:
    ask("topic", "create", topic)
    refused = ask("consume", f"{topic}*", "-f", "--to", f"{topic}-copy", code=2)
    assert f"--to {topic}-copy: that is a topic that is read" in refused.err
    assert f"{topic}-copy" not in ask("topic", "list").out


def test_a_refused_message_ends_it(server: BrokerThread, ask: Run, clicks: str, topic: str) -> None:
    options = ("--partitions", "3", "--set", "message.timestamp.before.max.ms=1000")
    ask("topic", "create", topic, *options)
    result = Program(server.address, own_process=True)("consume", clicks, "--to", topic)
    assert result.code == 1
    counted, refused = result.err.splitlines()
    assert counted.startswith("horolog: ")
    assert "INVALID_TIMESTAMP" in refused
    assert f"was not written to {topic}" in refused
    gone = ask("consume", clicks, "--to", "127.0.0.1:1/copy", code=1)
    assert "127.0.0.1:1" in gone.err


def test_messages_past_retention_are_told(ask: Run, clicks: str, topic: str) -> None:
    ask("topic", "create", topic, "--set", "retention.ms=86400000")
    result = ask("consume", clicks, "--to", topic)
    assert f"9 messages of {topic} are past retention already" in result.err


@pytest.mark.parametrize(
    "options",
    [
        ("--key", "k4"),
        ("--grep", "no", "-n", "1"),
        ("--header", "h=2"),
        ("--last", "4"),
        ("--last", "2", "--key", "k7", "--from", str(T0)),
        ("--order", "time", "--last", "5"),
        ("--order", "time", "--from", str(T0), "--until", str(T0 + 2000)),
    ],
)
def test_kafkas_protocol_gives_the_same(
    ask: Run, clicks: str, kafka: BrokerThread, options: tuple[str, ...]
) -> None:
    there = Program(kafka.address)
    if there("topic", "describe", clicks).code != 0:
        there.ok("topic", "create", clicks, "--partitions", "3")
        ask("consume", clicks, "--to", f"{kafka.address}/{clicks}")
    read = ("--server", f"kafka://{kafka.kafka_address}")
    assert ask("consume", clicks, "--json", *options, *read).out == (
        ask("consume", clicks, "--json", *options).out
    )


def test_ctrl_c_ends_a_followed_copy_when_everything_is_written(
    server: BrokerThread, ask: Run, topic: str
) -> None:
    ask("topic", "create", topic)
    ask("topic", "create", f"{topic}-copy")
    program = Program(server.address)
    options = ("--from", "offset:0", "-f", "--to", f"{topic}-copy")
    with program.running("consume", topic, *options) as process:
        program.ok("produce", topic, stdin="a\nb\n")
        with program.running("consume", f"{topic}-copy", "--from", "offset:0", "-f") as copied:
            assert next_line(copied).endswith("a\n")
            assert next_line(copied).endswith("b\n")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert err == f"horolog: 2 messages written to {topic}-copy\n"
