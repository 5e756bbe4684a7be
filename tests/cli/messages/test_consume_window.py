"""`horolog consume` with times: the messages of a window, and what it took."""

import asyncio
import json
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from horolog import Admin, ConsumerRecord, Producer, TimeWindow
from horolog.cli.consume.consuming import ConsumeOptions, Consumption
from horolog.cli.consume.formats import TextFormat
from horolog.cli.consume.reading import RecordReading, TopicNames, window_of
from horolog.cli.consume.selection import Selection
from horolog.cli.consume.sinks import MessagePrinter
from horolog.cli.options import AtOffset, AtTime, Position
from horolog.client.cluster.servers import parse_servers
from horolog.clock import SystemClock
from horolog.testing.broker import BrokerThread
from horolog.testing.clock import ManualClock
from horolog.testing.program import CommandResult, Process, Program, next_line

Run = Callable[..., CommandResult]

DAY = "2016-11-14"
CLICKS = ["14:05:00", "14:06:30", "14:04:10", None, "14:05:59.999", "14:06:00", "14:05:30"]
"""Times of seven clicks of partition 0, out of order, and one without."""

FIVE_MS = 1479132300000
"""14:05:00 of that day."""


def at(time: str) -> str:
    return f"{DAY}T{time}Z"


def receive(process: Process) -> dict[str, object]:
    found: dict[str, object] = json.loads(next_line(process))
    return found


def line(time: str | None, partition: int, value: str) -> str:
    after_ms = None
    if time is not None:
        hours, minutes, seconds = time.split(":")
        after_ms = round((int(hours) * 3600 + int(minutes) * 60 + float(seconds)) * 1000)
        after_ms += FIVE_MS - 14 * 3_600_000 - 5 * 60_000
    return json.dumps({"value": value, "timestamp_ms": after_ms, "partition": partition})


@pytest.fixture(scope="module")
def clicks(server: BrokerThread) -> str:
    """A topic with the messages 0 to 6 in partition 0, and two in partition 1."""
    lines = [line(time, 0, str(number)) for number, time in enumerate(CLICKS)]
    lines += [line(time, 1, f"p{time}") for time in ("14:05:10", "14:07:00")]
    program = Program(server.address)
    program.ok("topic", "create", "clicks", "--partitions", "2", "--set", "retention.ms=-1")
    program.ok("produce", "clicks", "--json", stdin="\n".join(lines))
    return "clicks"


def places(result: CommandResult) -> list[tuple[int, int]]:
    return [(one["partition"], one["offset"]) for one in result.objects]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            ["--from", at("14:05:00"), "--until", at("14:06:00")],
            [(0, 0), (0, 4), (0, 6), (1, 0)],
            id="minute",
        ),
        pytest.param(
            ["--from", f"@{at('14:05:00')}:1m"],
            [(0, 0), (0, 4), (0, 6), (1, 0)],
            id="range",
        ),
        pytest.param(["--from", at("14:06:00")], [(0, 1), (0, 5), (1, 1)], id="from-alone"),
        pytest.param(["--until", at("14:05:00")], [(0, 2)], id="until-alone"),
        pytest.param(["--from", f"@:{at('14:05:00')}"], [(0, 2)], id="range-without-beginning"),
        pytest.param(
            ["--partition", "1", "--from", at("14:00:00")], [(1, 0), (1, 1)], id="partition"
        ),
        pytest.param(["--from", at("14:05:00"), "--until", at("14:05:00")], [], id="empty"),
        pytest.param(["--from", "now"], [], id="nothing"),
    ],
)
def test_a_window_has_every_message_of_its_times_and_no_other(
    ask: Run, clicks: str, options: list[str], expected: list[tuple[int, int]]
) -> None:
    result = ask("consume", clicks, "--json", *options)
    assert places(result) == expected
    plural = "" if len(expected) == 1 else "s"
    last = result.err.splitlines()[-1]
    assert last.startswith(f"horolog: {len(expected)} message{plural} in the window; ")
    assert "of the log read" in last
    assert "passed over" in last
    assert len(result.err.splitlines()) == 1


def test_the_old_range_of_offsets_has_its_own_name(ask: Run, clicks: str) -> None:
    options = ("--partition", "0", "--from", at("14:05:00"), "--until", at("14:06:00"), "--json")
    assert places(ask("consume", clicks, "--offsets-between", *options)) == [(0, 0)]


def test_append_times_make_a_window_of_their_own(ask: Run, clicks: str) -> None:
    appended = ask("consume", clicks, "--append-time", "--json").objects
    first_ms = min(one["append_time_ms"] for one in appended)
    options = ("--by", "append", "--json", "--from", str(first_ms))
    whole = ask("consume", clicks, *options)
    assert places(whole) == [(one["partition"], one["offset"]) for one in appended]
    assert "append_time_ms" not in whole.objects[0]
    assert places(ask("consume", clicks, *options, "--until", str(first_ms))) == []
    by_create = ask("consume", clicks, "--by", "create", "--json", "--from", str(first_ms))
    assert places(by_create) == []


def test_stats_are_the_last_line_of_standard_error(ask: Run, clicks: str) -> None:
    times = ("--from", at("14:05:00"), "--until", at("14:06:00"))
    result = ask("consume", clicks, *times, "--stats", "--json")
    (stats,) = map(json.loads, result.err.splitlines())
    assert list(stats) == ["messages", "read_bytes", "skipped_bytes", "log_bytes"]
    assert stats["messages"] == len(result.objects) == 4
    assert stats["read_bytes"] + stats["skipped_bytes"] == stats["log_bytes"] > 0
    far = ask("consume", clicks, "--from", "@-1h", "--stats")
    assert far.out == ""
    passed = json.loads(far.err)
    assert passed["read_bytes"] == 0
    assert passed["skipped_bytes"] == passed["log_bytes"] > 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--from", at("14:06:00"), "--until", at("14:05:00")], "--until: 2016-11-14T14:05:00"),
        (["--stats"], "--stats is about a window"),
        (["--stats", "--offsets-between", "--from", "now"], "--stats is about a window"),
        (["--by", "append", "--from", "offset:0"], "--by append is about a window"),
        (["--by", "time", "--from", "now"], "append"),
    ],
)
def test_what_is_no_window_is_wrong_usage(run: Run, options: list[str], text: str) -> None:
    result = run("consume", "clicks", *options, "--server", "127.0.0.1:1", code=2)
    assert result.out == ""
    assert text in result.err


def test_following_keeps_to_the_window_until_ctrl_c(horolog: Program, ask: Run, topic: str) -> None:
    def send(*times: str) -> None:
        horolog.ok("produce", topic, "--json", stdin="\n".join(line(t, 0, t) for t in times))

    ask("topic", "create", topic, "--set", "retention.ms=-1")
    send("14:07:00", "14:05:01")
    times = ("--from", at("14:05:00"), "--until", at("14:06:00"))
    with horolog.running("consume", topic, "--follow", *times, "--json", "--stats") as process:
        assert receive(process)["value"] == "14:05:01"
        send("14:06:00", "14:04:00", "14:05:02")
        assert receive(process)["value"] == "14:05:02"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out == ""
    assert json.loads(err)["messages"] == 2


def test_a_topic_that_is_not_there_is_refused(ask: Run) -> None:
    result = ask("consume", "nowhere", "--from", "@-1h", code=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in result.err


class Lines(TextFormat):
    """Values of messages, as they are printed."""

    printed: "asyncio.Queue[str]"

    def line(self, record: ConsumerRecord) -> str:
        value = (record.value or b"").decode()
        self.printed.put_nowait(value)
        return value


@pytest.mark.parametrize("in_time_order", [False, True], ids=["as-they-come", "in-time-order"])
@pytest.mark.parametrize("start", [None, AtTime(1), AtOffset(0)], ids=["new", "window", "range"])
async def test_following_ends_when_the_time_of_until_has_passed_at_the_broker(
    horolog_broker: BrokerThread, start: Position | None, in_time_order: bool
) -> None:
    clock, lines = ManualClock(), Lines(needs_append_time=False, with_topic=False)
    lines.printed = asyncio.Queue()
    until_ms = SystemClock.now_ms() + 60_000
    bounds = (start, AtTime(until_ms))
    options = ConsumeOptions(
        names=TopicNames(["t"]),
        bounds=bounds,
        window=window_of(bounds, "create"),
        only_named=False,
        by="create",
        selection=Selection(),
        first=None,
        last=None,
        in_time_order=in_time_order,
        settle_s=0.0,
        speed=None,
        target=None,
        line_format=lines,
        stats=False,
    )
    reading = RecordReading(parse_servers(horolog_broker.address), "leader", 0, True, False, False)
    async with Producer(horolog_broker.address) as producer:
        await producer.send("t", b"stored")
        run = asyncio.create_task(Consumption(reading, options, clock).run())
        number = 0
        while lines.printed.empty():  # until it has begun
            await producer.send("t", f"{number}".encode())
            await asyncio.sleep(0.05)
            number += 1
        assert not run.done()
        clock.advance(59_000)
        await producer.send("t", b"before")
        while (value := await lines.printed.get()) != "before":
            assert (value == "stored") <= (start is not None)
        assert not run.done()
        clock.advance(2_000)
        await producer.send("t", b"after the time, with an earlier one", timestamp_ms=until_ms - 1)
        await producer.send("t", b"later", timestamp_ms=until_ms)
        await asyncio.wait_for(run, 30)
    rest = [lines.printed.get_nowait() for _ in range(lines.printed.qsize())]
    assert rest == ["after the time, with an earlier one"]


def test_until_a_time_that_has_passed_follows_nothing(ask: Run, clicks: str) -> None:
    result = ask("consume", clicks, "-f", "--until", "@-1h")
    assert result.out == ""
    assert "has passed, so nothing is followed" in result.err


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["consume"], "the window"),
        (["consume", "--by", "append"], "the window"),
        (["consume", "--offsets-between"], "the range of offsets"),
        (["record", "--to", "-"], "the window"),
        (["histogram", "--every", "1h", "--until", "4000003600000"], "the window"),
    ],
    ids=" ".join,
)
def test_a_window_in_the_future_is_announced(
    ask: Run, clicks: str, command: list[str], name: str
) -> None:
    first, *options = command
    result = ask(first, clicks, *options, "--from", "4000000000000")
    text = f"horolog: {name} begins at 2096-10-02T07:06:40.000Z, "
    (found,) = [one for one in result.err.splitlines() if one.startswith(text)]
    assert " from now: nothing can be in it yet" in found
    assert ("except messages with times in the future" in found) == ("append" not in command)


def test_times_of_the_future_are_told_by_the_clock_of_the_broker(
    horolog_broker: BrokerThread,
) -> None:
    program = Program(horolog_broker.address)
    program.ok("topic", "create", "t")
    hour_ms = SystemClock.now_ms() + 3_600_000
    window = ("consume", "t", "--from", str(hour_ms), "--until", str(hour_ms + 1))
    assert "from now: nothing can be in it yet" in program.ok(*window).err
    horolog_broker.clock.step(7200)
    assert "from now" not in program.ok(*window).err


@pytest.mark.parametrize("options", [[], ["--order", "time"], ["--to", "copy"], ["--last", "9"]])
def test_messages_deleted_while_a_window_is_read_are_an_error(
    server: BrokerThread, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """Those of a partition, and of a topic, whose turn is still to come."""
    program = Program(server.address)
    fill = TimeWindow.fill
    filled: list[TimeWindow] = []

    async def fill_and_trim(window: TimeWindow, **more: Any) -> bool:
        found = await fill(window, **more)
        if not filled:
            filled.append(window)
            async with Admin(server.address) as admin:
                await admin.delete_records(topic, partition, 1)
        return found

    monkeypatch.setattr(TimeWindow, "fill", fill_and_trim)
    for topic, partition in (("gone-a", 1), ("gone-b", 0)):
        for name in ("gone-a", "gone-b", "copy"):
            program("topic", "delete", name, "--yes")
            program.ok("topic", "create", name, "--partitions", "2", "--set", "retention.ms=-1")
            lines = [line("14:05:00", number % 2, f"{name}{number}") for number in range(4)]
            if name != "copy":
                program.ok("produce", name, "--json", stdin="\n".join(lines))
        filled.clear()
        result = program("consume", "gone-a", "gone-b", "--from", at("14:00:00"), *options)
        assert result.code == 1, result
        assert f"OFFSET_OUT_OF_RANGE: messages of {topic}-{partition} were deleted" in result.err
        assert f"{topic}{3 if partition else 2}" not in result.out


def test_messages_deleted_while_ranges_are_read_are_an_error(
    server: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(server.address)
    for name in ("range-a", "range-b"):
        program.ok("topic", "create", name, "--set", "retention.ms=-1")
        program.ok("produce", name, stdin="1\n2\n")
    write = MessagePrinter.write

    async def write_and_trim(printer: MessagePrinter, records: Sequence[ConsumerRecord]) -> None:
        await write(printer, records)
        async with Admin(server.address) as admin:
            await admin.delete_records("range-b", 0, 1)

    monkeypatch.setattr(MessagePrinter, "write", write_and_trim)
    result = program("consume", "range-a", "range-b")
    assert result.code == 1, result
    assert "OFFSET_OUT_OF_RANGE" in result.err
