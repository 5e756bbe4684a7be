"""`horolog produce`."""

import json
import logging
import signal
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import pytest

from horolog.cli.produce import SET_BYTES, is_no_lost_write
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult, Process, Program, serving

Run = Callable[..., CommandResult]


def send(process: Process, *lines: str) -> None:
    assert process.stdin is not None
    process.stdin.write("".join(f"{line}\n" for line in lines))
    process.stdin.flush()


def receive(process: Process) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def consumed(ask: Run, topic: str) -> list[Any]:
    return ask("consume", topic, "--json").objects


def test_a_line_is_a_value_with_the_time_it_was_read(
    horolog: Program, ask: Run, topic: str
) -> None:
    sent = horolog.ok("produce", topic, stdin=b"one\n\n\xff\xfe\r\nlast without an end").objects
    assert [(one["partition"], one["offset"]) for one in sent] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    read = consumed(ask, topic)
    values = ["one", "", {"base64": "//4N"}, "last without an end"]
    assert [one["value"] for one in read] == values
    assert [one["timestamp_ms"] for one in read] == [one["timestamp_ms"] for one in sent]
    assert sent[0]["timestamp_ms"] > 1_700_000_000_000
    assert all(one["key"] is None for one in read)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
def test_json_objects_come_out_as_they_went_in(
    horolog: Program, ask: Run, topic: str, compression: str
) -> None:
    given: list[dict[str, Any]] = [
        {"value": "a", "key": "k", "timestamp_ms": 1479144272509},
        {"value": {"base64": "/w=="}, "key": {"base64": "gA=="}, "timestamp_ms": 0},
        {"value": None, "timestamp_ms": 1479144272508},
        {"value": "no time", "timestamp_ms": None},
        {"value": "\u2028 \x85 \n", "timestamp_ms": 1479144272510, "partition": 0},
    ]
    lines = "\n".join(json.dumps(one) for one in given)
    sent = horolog.ok("produce", topic, "--json", "--compression", compression, stdin=lines)
    times = [one["timestamp_ms"] for one in given]
    assert [one["timestamp_ms"] for one in sent.objects] == times
    read = consumed(ask, topic)
    assert [one["value"] for one in read] == [one["value"] for one in given]
    assert [one["key"] for one in read] == [one.get("key") for one in given]
    assert [one["timestamp_ms"] for one in read] == times


def test_an_append_time_topic_answers_with_the_brokers_time(
    horolog: Program, ask: Run, topic: str
) -> None:
    ask("topic", "create", topic, "--set", "message.timestamp.type=LogAppendTime")
    line = json.dumps({"value": "a", "timestamp_ms": 1479144272509})
    (sent,) = horolog.ok("produce", topic, "--json", stdin=line).objects
    (read,) = consumed(ask, topic)
    assert sent["timestamp_ms"] == read["timestamp_ms"] > 1_700_000_000_000
    assert read["timestamp_type"] == "LogAppendTime"


def test_a_topic_can_be_piped_into_another(horolog: Program, ask: Run, topic: str) -> None:
    ask("topic", "create", topic, "--partitions", "2")
    ask("topic", "create", topic + "-copy", "--partitions", "2")
    horolog.ok("produce", topic, stdin="a\nb\nc\n")
    printed = ask("consume", topic, "--json").out
    horolog.ok("produce", topic + "-copy", "--json", stdin=printed)
    assert ask("consume", topic + "-copy", "--json").out == printed


def test_headers_come_out_as_they_went_in(horolog: Program, ask: Run, topic: str) -> None:
    headers = [
        {"name": "n", "value": "1"},
        {"name": "n", "value": None},
        {"name": "\u00fc", "value": {"base64": "/w=="}},
    ]
    lines = [{"value": "a", "headers": headers}, {"value": "b"}]
    horolog.ok("produce", topic, "--json", stdin="\n".join(map(json.dumps, lines)))
    read = ask("consume", topic, "--append-time", "--json")
    assert [one.get("headers") for one in read.objects] == [headers, None]
    horolog.ok("produce", topic + "-copy", "--json", stdin=read.out)
    assert ask("consume", topic + "-copy", "--json").out == ask("consume", topic, "--json").out
    assert ask("consume", topic).out.splitlines()[0].endswith("  a  n=1  n=-  \u00fc=\\xff")


def test_partitions_by_option_by_line_by_key_and_in_turns(
    horolog: Program, ask: Run, topic: str
) -> None:
    ask("topic", "create", topic, "--partitions", "3")
    lines = '{"value":"a"}\n{"value":"b","partition":0}\n'
    sent = horolog.ok("produce", topic, "--json", "--partition", "2", stdin=lines).objects
    assert [one["partition"] for one in sent] == [2, 0]
    sent = horolog.ok("produce", topic, stdin="a\nb\nc\nd\n").objects
    assert [one["partition"] for one in sent] == [0, 1, 2, 0]
    lines = '{"value":"a","key":"k"}\n{"value":"b"}\n{"value":"c","key":"k"}\n'
    sent = horolog.ok("produce", topic, "--json", stdin=lines).objects
    assert sent[0]["partition"] == sent[2]["partition"]


def test_a_refused_set_is_an_error_in_its_place_and_the_next_ones_are_sent(
    horolog: Program, ask: Run, topic: str
) -> None:
    ask("topic", "create", topic, "--partitions", "2")
    ask("topic", "alter", topic, "--set", "max.message.time.difference.ms=60000")
    lines = (
        '{"value":"now","partition":0}\n'
        '{"value":"old","timestamp_ms":1479144272509,"partition":1}\n'
        '{"value":"with it","partition":1}\n'
        '{"value":"nowhere","partition":7}\n'
        '{"value":"now too","partition":0}\n'
    )
    result = horolog("produce", topic, "--json", stdin=lines)
    first, refused, unknown, last = result.objects
    assert result.code == 1
    assert (first["offset"], last["offset"]) == (0, 1)
    assert refused["error"] == "INVALID_TIMESTAMP"
    assert "1479144272509" in refused["message"]
    assert "max.message.time.difference.ms" in refused["message"]
    assert unknown["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert [one["value"] for one in consumed(ask, topic)] == ["now", "now too"]


def test_a_line_that_is_no_message_ends_it_after_those_before_it(
    horolog: Program, ask: Run, topic: str
) -> None:
    lines = '{"value":"before"}\nnot json\n{"value":"after"}\n'
    result = horolog("produce", topic, "--json", stdin=lines)
    assert result.code == 1
    assert [one["offset"] for one in result.objects] == [0]
    said = json.loads(result.err)["message"]
    assert said.startswith("line 2 is not JSON")
    assert said.endswith("; the rest was not sent")
    assert result.err.count("\n") == 1
    assert [one["value"] for one in consumed(ask, topic)] == ["before"]


def test_empty_lines_are_no_objects(horolog: Program, topic: str) -> None:
    lines = '{"value":"a"}\n\n \t\r\n{"value":"b"}\nnot json\n'
    result = horolog("produce", topic, "--json", stdin=lines)
    assert [one["offset"] for one in result.objects] == [0, 1]
    assert json.loads(result.err)["message"].startswith("line 5 is not JSON")


def test_asyncio_does_not_log_the_writes_to_a_broker_that_died(run: Run) -> None:
    logger = logging.getLogger("asyncio")
    for text, logged in (("socket.send() raised exception.", False), ("else", True)):
        record = logger.makeRecord("asyncio", logging.WARNING, "", 0, text, (), None)
        assert is_no_lost_write(record) == logged
    run("produce", "t", "--server", "127.0.0.1:1", code=1)
    assert is_no_lost_write not in logger.filters  # What runs in this process goes on logging.


@pytest.mark.parametrize(
    ("number", "guess"),
    [(1, "seconds"), (1795745286, "seconds"), (1795745286000000, "microseconds")],
)
def test_a_time_that_looks_like_another_unit_is_refused_after_the_lines_before_it(
    horolog: Program, ask: Run, topic: str, number: int, guess: str
) -> None:
    lines = f'{{"value":"before"}}\n{{"value":"x","timestamp_ms":{number}}}\n{{"value":"after"}}\n'
    result = horolog("produce", topic, "--json", stdin=lines)
    assert result.code == 1
    assert [one["offset"] for one in result.objects] == [0]
    said = json.loads(result.err)["message"]
    assert said.startswith(f"line 2: timestamp_ms {number} looks like {guess}")
    assert "--any-unit" in said
    assert said.endswith("; the rest was not sent")
    assert [one["value"] for one in consumed(ask, topic)] == ["before"]


def test_any_unit_sends_a_time_as_it_is(horolog: Program, topic: str) -> None:
    horolog.ok("topic", "create", topic, "--set", "retention.ms=-1")
    times = [1, 1479144272, 1479144272509000, 2**63 - 1]
    lines = "".join(f'{{"value":"a","timestamp_ms":{time}}}\n' for time in times)
    result = horolog.ok("produce", topic, "--json", "--any-unit", stdin=lines)
    assert [one["timestamp_ms"] for one in result.objects] == times
    assert result.err == ""


def test_any_unit_without_json_has_no_times_to_take(ask: Run) -> None:
    said = ask("produce", "t", "--any-unit", code=2).err
    assert "--any-unit is about the times of --json" in said


def test_each_answer_is_printed_when_it_arrives(horolog: Program, topic: str) -> None:
    with horolog.running("produce", topic) as process:
        for offset in range(3):
            send(process, "a line, and the input stays open")
            assert receive(process)["offset"] == offset
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0


def test_ctrl_c_ends_the_input_without_a_word(horolog: Program, topic: str) -> None:
    with horolog.running("produce", topic) as process:
        send(process, "a")
        assert receive(process)["offset"] == 0
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_no_set_of_several_messages_is_larger_than_16_kib(tmp_path: Path) -> None:
    sizes = [1, 100, 5_000, 16_000, 20_000, 300, 16_340, 10, 16_341, 16_400, 2] * 4
    lines = "".join("x" * size + "\n" for size in sizes)
    with BrokerThread(tmp_path / "data") as broker:
        program = Program(broker.address)
        sent = program.ok("produce", "t", "--compression", "gzip", stdin=lines).objects
        assert [one["offset"] for one in sent] == list(range(len(sizes)))
    log = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    # A compressed set is stored as one entry, so the sets can be told apart.
    messages = Program().ok("dump", log, "--json").objects
    assert [len(one["value"]) for one in messages] == sizes
    sets = [list(group) for _, group in groupby(messages, key=lambda one: one["position"])]
    assert any(len(one) > 1 for one in sets)
    for one in sets:
        uncompressed = sum(34 + len(message["value"]) for message in one)
        assert len(one) == 1 or uncompressed <= SET_BYTES


def test_a_server_that_dies_leaves_its_answers_and_one_line_of_error(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server, server.program.running("produce", "t") as process:
        send(process, "a")
        assert receive(process)["offset"] == 0
        server.stop(signal.SIGKILL)
        send(process, *["b"] * 1000)
        out, err = process.communicate()
    assert process.returncode == 1
    assert out == ""
    assert err.startswith("horolog: ")
    assert server.native in err
    assert err.count("\n") == 1


def test_a_server_that_dies_before_the_first_line_is_an_error(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server, server.program.running("produce", "t") as process:
        server.program.ok("topic", "list")  # by now the other one is connected, too
        server.stop(signal.SIGKILL)
        out, err = process.communicate("a\n")
    assert (process.returncode, out) == (1, "")
    assert err.startswith("horolog: ")
    assert err.count("\n") == 1


def test_a_great_many_lines_keep_their_order(horolog: Program, ask: Run, topic: str) -> None:
    ask("topic", "create", topic, "--partitions", "2")
    values = [f"message {number}" for number in range(20_000)]
    sent = horolog.ok("produce", topic, stdin="\n".join(values)).objects
    # Without a key they take turns.
    assert [(one["partition"], one["offset"]) for one in sent] == [
        (number % 2, number // 2) for number in range(20_000)
    ]
    read = consumed(ask, topic)
    assert [one["value"] for one in read] == values[::2] + values[1::2]


def test_output_that_nobody_reads_ends_it(horolog: Program, topic: str) -> None:
    with horolog.running("produce", topic) as process:
        assert process.stdout is not None
        process.stdout.close()
        send(process, "a")
        assert process.wait() == 1
        assert process.stderr is not None
        assert process.stderr.read().count("\n") == 1


@pytest.mark.parametrize("settings", ["segment.bytes=3000", "max.message.bytes=3000"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_no_set_is_larger_than_the_topic_allows(
    horolog: Program, ask: Run, topic: str, settings: str, compression: str
) -> None:
    ask("topic", "create", topic, "--set", settings)
    sizes = [100] * 200 + [4_000] + [10, 2_000] * 20
    random = Random(1)
    lines = "".join(f"{random.randbytes(size // 2).hex()}\n" for size in sizes)
    result = horolog("produce", topic, "--compression", compression, stdin=lines)
    offsets = [one.get("offset") for one in result.objects]
    if compression == "none":
        assert offsets == [*range(200), None, *range(200, 240)]
        assert result.objects[200]["error"] in {"MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"}
        assert result.code == 1
    else:  # what is too large may be small when compressed
        assert offsets == list(range(241))


def test_limits_that_are_lowered_while_it_runs(horolog: Program, ask: Run, topic: str) -> None:
    ask("topic", "create", topic)
    lines = [f"{number:04d}" * 50 for number in range(400)]
    with horolog.running("produce", topic) as process:
        send(process, lines[0])
        assert receive(process)["offset"] == 0
        ask("topic", "alter", topic, "--set", "max.message.bytes=290", "--set", "segment.bytes=999")
        for line in lines[1:200]:
            send(process, line)
        # A set that was on its way already may come before one that has to be divided.
        got = [receive(process) for _ in lines[1:200]]
        assert sorted(one["offset"] for one in got) == list(range(1, 200))
        for line in lines[200:]:
            send(process, line)
        got = [receive(process) for _ in lines[200:]]
        assert [one.get("offset") for one in got] == list(range(200, 400))
        # A set of several is divided, and only the message fails that is too large by itself.
        for line in ("a", "b" * 300, "c"):
            send(process, line)
        first, refused, last = (receive(process) for _ in range(3))
        assert (first["offset"], refused["error"], last["offset"]) == (
            400,
            "MESSAGE_TOO_LARGE",
            401,
        )
    assert [one["value"] for one in consumed(ask, topic)] == [*lines, "a", "c"]
