"""`horolog consume --order time`, `--settle`, `--speed` and `--follow`: messages by their times,
from runs on disk and as they come."""

import asyncio
import json
import select
import signal
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import IO, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog import ConsumerRecord, blocking
from horolog.cli.consume import ordering
from horolog.cli.consume.consuming import Consumption
from horolog.cli.consume.ordering import SettledMessages, SortedMessages
from horolog.cli.consume.reading import SourceChain
from horolog.cli.consume.sinks import ReplayPace
from horolog.cli.errors import CommandFailed
from horolog.protocol.records.layout import TimestampType
from horolog.testing.broker import BrokerThread
from horolog.testing.clock import MovingClock
from horolog.testing.program import CommandResult, Process, Program, next_line
from horolog.tests.properties.examples import examples

Run = Callable[..., CommandResult]

T0 = 1_479_132_300_000
WITHIN_S = 30.0

records = st.builds(
    ConsumerRecord,
    st.sampled_from(("a", "b", "b.c")),
    st.integers(0, 2),
    st.integers(0, 2**62),
    st.one_of(st.none(), st.integers(0, 2**62), st.integers(T0, T0 + 5)),
    st.sampled_from((None, *TimestampType)),
    st.one_of(st.none(), st.binary(max_size=9)),
    st.one_of(st.none(), st.binary(max_size=300)),
    st.sampled_from(((), (("h", None), ("\u00fc", b"\xff")))),
    st.one_of(st.none(), st.integers(0, 9)),
)


def by_time(record: ConsumerRecord) -> tuple[int, str, int, int]:
    time_ms = -1 if record.timestamp_ms is None else record.timestamp_ms
    return time_ms, record.topic, record.partition, record.offset


@examples(100)
@given(
    messages=st.lists(records, max_size=60, unique_by=by_time),
    last=st.one_of(st.none(), st.integers(1, 70)),
    run_bytes=st.sampled_from((1, 700, 5_000, 1_000_000)),
)
def test_runs_give_what_a_list_gives(
    messages: list[ConsumerRecord], last: int | None, run_bytes: int
) -> None:
    messages = list({by_time(one)[1:]: one for one in messages}.values())
    stored = SortedMessages("create", last=last, run_bytes=run_bytes)
    for one in messages:
        if stored.add([one]):
            stored.spill()
    expected = sorted(messages, key=by_time)
    found = [one for batch in stored.batches() for one in batch]
    assert found == (expected if last is None else expected[-last:])
    assert all(type(one) is ConsumerRecord for one in found)


def test_more_entries_than_are_sorted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "_SORTED_AT_ONCE", 7)
    for count in (0, 1, 6, 7, 8, 14, 50):
        stored = SortedMessages("create")
        messages = [message(n, T0 + n * 31 % 17) for n in range(count)]
        stored.add(messages)
        found = [one for batch in stored.batches() for one in batch]
        assert found == sorted(messages, key=by_time)


def test_messages_are_sorted_beside_the_event_loop(
    horolog: Program, server: BrokerThread, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connections would wait for 64 MiB to be sorted."""
    threads: dict[str, set[int]] = {"add": set(), "_sort": set(), "_deliver": set()}

    def watched(kind: type[Any], name: str) -> None:
        plain = getattr(kind, name)

        def call(*args: Any, **options: Any) -> Any:
            threads[name].add(threading.get_ident())
            return plain(*args, **options)

        monkeypatch.setattr(kind, name, call)

    with blocking.Producer(server.address) as producer:
        producer.send_batch(topic, [b"b", b"a"], timestamps_ms=[T0 + 1, T0])
    watched(SortedMessages, "add")
    watched(SortedMessages, "_sort")
    watched(Consumption, "_deliver")
    order = ("--order", "time", "--format", "{value} ")
    found = horolog.ok("consume", topic, "--from", "earliest", *order)
    assert found.out.split() == ["a", "b"]
    assert all(threads.values())
    assert threads["_deliver"].isdisjoint(threads["add"] | threads["_sort"])


def message(offset: int, time_ms: int | None, topic: str = "t") -> ConsumerRecord:
    return ConsumerRecord(topic, 0, offset, time_ms, TimestampType.CREATE_TIME, None, b"x" * 100)


def test_many_runs_are_merged_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ordering, "_RUNS_MERGED", 5)
    offsets = list(range(300))
    Random(7).shuffle(offsets)
    stored = SortedMessages("create", run_bytes=600)
    most = 0
    for offset in offsets:
        if stored.add([message(offset, T0 + offset)]):
            stored.spill()
        most = max(most, len(stored._runs))
        assert list(tmp_path.iterdir()) == []  # however the program ends, nothing is left
    assert 0 < most < 5
    found = [one.offset for batch in stored.batches() for one in batch]
    assert found == list(range(300))
    assert stored._runs == []


def test_without_room_it_refuses_and_names_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def filled(room_bytes: int) -> SortedMessages:
        def free(folder: Path) -> int:
            assert folder == tmp_path
            return room_bytes - sum(run.tell() for run in stored._runs)

        stored = SortedMessages("create", run_bytes=1000, free=free)
        for offset in range(200):
            if stored.add([message(offset, T0)]):
                stored.spill()
        return stored

    short = filled(5_000)
    assert short._runs == []
    with pytest.raises(CommandFailed, match="nothing was printed") as refused:
        list(short.batches())
    assert f"in {tmp_path}, which has 4.9 KiB left: set TMPDIR" in str(refused.value)
    assert capsys.readouterr().err.count("has no room") == 1
    needed_bytes = int(str(refused.value).split("(")[1].split(" bytes")[0])
    assert 200 * 100 < needed_bytes < 2 * 200 * 100
    assert sum(map(len, filled(needed_bytes).batches())) == 200
    assert capsys.readouterr().err == ""


def test_a_full_disk_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(**options: object) -> IO[bytes]:
        return open("/dev/full", "w+b")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    stored = SortedMessages("create", run_bytes=1000)
    for offset in range(50):
        if stored.add([message(offset, T0)]):
            stored.spill()
    with pytest.raises(CommandFailed, match="nothing was printed"):
        list(stored.batches())
    assert capsys.readouterr().err.count("has no room") == 1


arriving = st.lists(
    st.tuples(
        st.integers(0, 5),  # tenths of a second that pass before
        st.lists(st.one_of(st.integers(T0, T0 + 30), st.none()), max_size=4),
    ),
    max_size=20,
)


@examples(100)
@given(arriving=arriving)
def test_each_is_held_until_it_has_settled(arriving: list[tuple[int, list[int | None]]]) -> None:
    now = 0.0
    settled = SettledMessages(0.7, "create", lambda: now)
    offset = late = 0
    came: dict[int, float] = {}
    given_out: list[ConsumerRecord] = []
    passed: tuple[int, str, int, int] | None = None
    for tenths, times_ms in arriving:
        now = round(now + tenths / 10, 1)
        due = settled.take_due()
        given_out += due
        assert [by_time(one) for one in due] == sorted(map(by_time, due))
        if due:
            assert passed is None or by_time(due[0]) > passed
            passed = by_time(due[-1])
        batch = [message(offset + number, time_ms) for number, time_ms in enumerate(times_ms)]
        offset += len(batch)
        came |= {one.offset: now for one in batch}
        at_once = settled.add(batch)
        given_out += at_once
        expected = [
            one
            for one in batch
            if one.timestamp_ms is None or (passed is not None and by_time(one) < passed)
        ]
        assert at_once == expected
        late += sum(one.timestamp_ms is not None for one in at_once)
        held = set(came) - {one.offset for one in given_out}
        assert all(now - came[one] < 0.75 for one in held)
        assert settled.wait_s is None or 0 <= settled.wait_s < 0.75
    rest = settled.take_all()
    assert [by_time(one) for one in rest] == sorted(map(by_time, rest))
    assert sorted(one.offset for one in given_out + rest) == list(range(offset))
    assert settled.late == late


def test_what_is_held_is_bounded() -> None:
    settled = SettledMessages(60, "create", lambda: 0.0, held_max_bytes=2_000)
    found = settled.add([message(n, T0 + n) for n in range(10)])
    assert [one.offset for one in found] == list(range(7))
    assert [one.offset for one in settled.take_all()] == [7, 8, 9]


def test_the_pace_is_that_of_the_times(capsys: pytest.CaptureFixture[str]) -> None:
    clock = MovingClock()
    clock.freeze()
    pace = ReplayPace(10, clock)
    assert pace.wait_s(None) == 0
    assert pace.wait_s(T0) == 0
    assert pace.wait_s(T0 + 5_000) == pytest.approx(0.5)
    assert pace.wait_s(T0 - 5_000) == 0
    clock.step(0.4)
    assert pace.wait_s(T0 + 5_000) == pytest.approx(0.1)
    assert pace.wait_s(T0 + 6_000) == pytest.approx(0.2)
    assert capsys.readouterr().err == ""
    assert pace.wait_s(T0 + 36_000_000) == pytest.approx(3_599.6)
    assert "the next message comes in 1 h" in capsys.readouterr().err


def receive(process: Process) -> str:
    found: str = json.loads(next_line(process))["value"]
    return found


def produce(horolog: Program, topic: str, *lines: tuple[str, int]) -> None:
    given = (json.dumps({"value": value, "timestamp_ms": T0 + after}) for value, after in lines)
    horolog.ok("produce", topic, "--json", stdin="\n".join(given))


def ended(process: Process) -> tuple[str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, err
    return out, err


def test_following_without_a_start_shows_what_arrives_whatever_its_time(
    horolog: Program, ask: Run, topic: str
) -> None:
    ask("topic", "create", topic, "--set", "retention.ms=-1")
    produce(horolog, topic, ("before", 0))
    with horolog.running("consume", topic, "-f", "--json") as process:
        shown, number = "", 0
        while not shown:  # until it has begun
            produce(horolog, topic, (f"n{number}", -1000 * number))
            number += 1
            shown = waiting_line(process)
        first = json.loads(shown)["value"]
        assert first.startswith("n")
        for after in range(int(first[1:]) + 1, number):
            assert receive(process) == f"n{after}"
        produce(horolog, topic, ("old", -(10**9)), ("new", 10**9))
        assert [receive(process), receive(process)] == ["old", "new"]
        assert ended(process) == ("", "")


def waiting_line(process: Process) -> str:
    """Return a line if one comes soon."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 0.3)
    return next_line(process) if ready else ""


def test_from_now_says_that_it_leaves_out_earlier_times(horolog: Program, topic: str) -> None:
    horolog.ok("topic", "create", topic)
    with horolog.running("consume", topic, "-f", "--from", "now", "--json") as process:
        assert process.stderr is not None
        assert "--from now leaves out messages with earlier times" in process.stderr.readline()


def test_followed_messages_settle_and_late_ones_are_counted(
    horolog: Program, ask: Run, topic: str
) -> None:
    ask("topic", "create", topic, "--partitions", "2", "--set", "retention.ms=-1")
    produce(horolog, topic, ("stored 2", 2), ("stored 1", 1))
    # Longer than a machine stands still between the arrivals from two partitions.
    options = ("--from", str(T0), "--order", "time", "--settle", "2s", "--json")
    with horolog.running("consume", topic, "-f", *options) as process:
        assert [receive(process), receive(process)] == ["stored 1", "stored 2"]
        produce(horolog, topic, ("six", 6), ("four", 4), ("five", 5))
        assert [receive(process) for _ in range(3)] == ["four", "five", "six"]
        produce(horolog, topic, ("late", 3))
        assert receive(process) == "late"
        produce(horolog, topic, ("eight", 8), ("seven", 7))
        assert [receive(process) for _ in range(2)] == ["seven", "eight"]
        out, err = ended(process)
    assert out == ""
    assert "8 messages in the window" in err.splitlines()[-1]
    assert "1 message came later than --settle allows" in err.splitlines()[-1]


def test_a_pattern_follows_topics_that_are_made_later(
    horolog: Program, ask: Run, server: BrokerThread, topic: str
) -> None:
    ask("topic", "create", f"{topic}-1")
    options = ("--from", "offset:0", "-f", "-n", "2", "--json")
    with horolog.running("consume", f"{topic}-*", *options) as process:
        horolog.ok("produce", f"{topic}-1", stdin="one\n")
        assert receive(process) == "one"
        ask("topic", "create", f"{topic}-2")
        horolog.ok("produce", f"{topic}-2", stdin="two\n")
        found = json.loads(next_line(process))
        assert (found["topic"], found["value"]) == (f"{topic}-2", "two")
        assert process.wait(WITHIN_S) == 0


def test_following_windows_of_several_topics(horolog: Program, ask: Run, topic: str) -> None:
    names = (f"{topic}-1", f"{topic}-2")
    for name in names:
        ask("topic", "create", name, "--set", "retention.ms=-1")
        produce(horolog, name, (name, 5), ("outside", 50))
    options = ("--from", str(T0), "--until", str(T0 + 10), "-f", "--json", "--stats")
    with horolog.running("consume", *names, *options) as process:
        assert {receive(process), receive(process)} == set(names)
        for name in names:
            produce(horolog, name, ("outside", 50), (f"new {name}", 7))
            assert receive(process) == f"new {name}"
        _, err = ended(process)
    assert json.loads(err)["messages"] == 4


class StoredBatches:
    """A source that is far ahead of its reader: stored messages, and then the end."""

    def __init__(self, topic: str, count: int) -> None:
        self.is_live = False
        self._stored = [
            [ConsumerRecord(topic, 0, n, T0 + n, None, None, b"", (), None)] for n in range(count)
        ]

    async def batches(self) -> AsyncIterator[list[ConsumerRecord]]:
        for number, batch in enumerate(self._stored, 1):
            self.is_live = number == len(self._stored)
            yield batch
        await asyncio.Event().wait()


def test_followed_sources_are_live_when_their_stored_messages_were_given_out() -> None:
    async def run() -> list[tuple[str, int]]:
        chain = SourceChain([StoredBatches("a", 2), StoredBatches("b", 2)], follow=True)
        found: list[tuple[str, int]] = []
        batches = chain.batches()
        async for batch in batches:
            found += [(record.topic, record.offset) for record in batch]
            await asyncio.sleep(0)  # the sources read on
            if chain.is_live:
                break
        await cast(AsyncGenerator[object], batches).aclose()
        return found

    assert sorted(asyncio.run(run())) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
