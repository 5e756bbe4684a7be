"""What answers about times say of messages that are gone: exactly from when on nothing is missing,
and what went. Windows, counts and searches of the client, the commands, tables and the page."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import horolog
from horolog import blocking
from horolog.client.administer.searching import By
from horolog.client.results import FindResult
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult
from horolog.tests.in_process import run_in_process

T = TypeVar("T")
T0 = 1_479_144_272_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """One broker for all tests of a module; each test takes topics of its own."""
    data = tmp_path_factory.mktemp("server") / "data"
    ports = {"http.listen": "127.0.0.1:0", "kafka.listen": "127.0.0.1:0"}
    with BrokerThread(data, {**ports, "retention.ms": -1}) as running:
        yield running


def run(server: BrokerThread, *arguments: str, code: int = 0) -> CommandResult:
    result = run_in_process([*arguments], b"", {"HOROLOG_SERVER": server.address})
    assert result.code == code, result
    return result


def asked(server: BrokerThread) -> int:
    """How many requests of the kind describe-removals the broker has answered."""

    async def count(broker: Any) -> int:
        return sum(
            number
            for (api, _), number in broker.figures.requests.items()
            if api == "describe-removals"
        )

    return server.in_loop(count)


def with_admin(server: BrokerThread, do: Callable[[horolog.Admin], Awaitable[T]]) -> T:
    async def connected() -> T:
        async with horolog.Admin(server.address) as admin:
            return await do(admin)

    return asyncio.run(connected())


def store(
    server: BrokerThread, topic: str, times: Sequence[Sequence[int]], trims: Sequence[int]
) -> None:
    """Create a topic with a partition for each list of times, and trim each to an offset."""

    async def do() -> None:
        async with horolog.Admin(server.address) as admin:
            await admin.create_topic(topic, partitions=len(times))
            async with horolog.Producer(server.address) as producer:
                for partition, own in enumerate(times):
                    for time_ms in own:
                        await producer.send(topic, b"v", timestamp_ms=time_ms, partition=partition)
            for partition, before in enumerate(trims):
                if before:
                    await admin.delete_records(topic, partition, before)

    asyncio.run(do())


LOGS = st.lists(
    st.lists(st.integers(0, 9), min_size=1, max_size=5).flatmap(
        lambda times: st.tuples(st.just(times), st.integers(0, len(times)))
    ),
    min_size=1,
    max_size=3,
)


@given(LOGS, st.integers(0, 10))
@settings(max_examples=6, deadline=None)
def test_answers_say_what_a_plain_list_says(
    server: BrokerThread, logs: Sequence[tuple[Sequence[int], int]], start: int
) -> None:
    topic = f"plain-{server.in_loop(_topics)}"
    store(server, topic, [[T0 + time for time in times] for times, _ in logs], [n for _, n in logs])
    gone = [time for times, before in logs for time in times[:before]]
    complete_from_ms = T0 + max(gone) + 1 if gone else 0
    reaches = complete_from_ms > T0 + start
    missed = {
        partition
        for partition, (times, before) in enumerate(logs)
        if any(time >= start for time in times[:before])
    }
    before = asked(server)
    with blocking.Consumer(server.address) as consumer:
        window = consumer.window(topic, T0 + start, None)
        kept = [(record.timestamp_ms or 0) - T0 for record in window]
    assert sorted(kept) == sorted(time for times, n in logs for time in times[n:] if time >= start)
    assert window.complete_from_ms == complete_from_ms
    assert {each.partition for each in window.removed} == missed
    assert asked(server) - before == reaches

    counts = with_admin(server, lambda admin: admin.count_by_time(topic, T0 + start, T0 + 20))
    assert (counts.complete_from_ms, counts.removed) == (complete_from_ms, window.removed)
    assert asked(server) - before == 2 * reaches

    for partition, (times, n) in enumerate(logs):
        found = with_admin(
            server, partial(_find, topic=topic, partition=partition, at_ms=T0 + start)
        )
        own = T0 + max(times[:n]) + 1 if n else 0
        assert found.complete_from_ms == own
        assert {each.partition for each in found.removed} == missed & {partition}


async def _find(
    admin: horolog.Admin, *, topic: str, partition: int, at_ms: int, by: By = "timestamp"
) -> FindResult:
    return await admin.find_offset(topic, partition, timestamp_ms=at_ms, by=by)


async def _topics(broker: Any) -> int:
    return len(broker.directory.topics())


@pytest.fixture(scope="module")
def clicks(server: BrokerThread) -> str:
    """A topic of which the messages of the first two seconds are trimmed in partition 0."""
    seconds = (0, 1, 2, 3)
    store(server, "clicks", [[T0 + 1000 * each for each in seconds], [T0 + 2500]], [2, 0])
    return "clicks"


AT = "2016-11-14T17:24:32Z"
COMPLETE = "clicks is complete only from 2016-11-14T17:24:33.001Z on"
GONE = "clicks-0: offsets 0 to 1 (2 messages, first time 2016-11-14T17:24:32.000Z, largest time "


def notes(result: CommandResult) -> list[str]:
    """The lines of standard error without the last one, which has the costs."""
    return [line.removeprefix("horolog: ") for line in result.err.splitlines()][:-1]


def test_a_window_of_the_command_line_tells(server: BrokerThread, clicks: str) -> None:
    for more in ((), ("--json",), ("--last", "1"), ("--grep", "v"), ("-n", "1")):
        complete, gone = notes(run(server, "consume", clicks, "--from", AT, *more))
        assert complete == COMPLETE
        assert gone.startswith(GONE)
        assert " were trimmed by User:ANONYMOUS, at " in gone
    # From the moment on from which the log is complete, nothing is said.
    whole = run(server, "consume", clicks, "--from", "2016-11-14T17:24:33.001Z")
    assert notes(whole) == []
    assert run(server, "consume", clicks).err == ""
    assert notes(run(server, "consume", clicks, "--until", AT))[0] == COMPLETE


def test_the_stats_tell(server: BrokerThread, clicks: str) -> None:
    last = run(server, "consume", clicks, "--from", AT, "--stats").err.splitlines()[-1]
    found = json.loads(last)
    assert found["complete_from_ms"] == T0 + 1001
    (removal,) = found["removed"]
    assert (removal["topic"], removal["partition"], removal["cause"]) == ("clicks", 0, "trim")
    assert (removal["first_offset"], removal["end_offset"], removal["messages"]) == (0, 2, 2)
    assert removal["largest_timestamp_ms"] == T0 + 1000
    later = run(server, "consume", clicks, "--from", "2016-11-14T17:24:34Z", "--stats").err
    assert set(json.loads(later)) == {"messages", "read_bytes", "skipped_bytes", "log_bytes"}


def test_a_window_topic_tells(server: BrokerThread, clicks: str) -> None:
    complete, gone = notes(run(server, "consume", f"{clicks}..20161114T1724Z..1h"))
    assert (complete, gone.startswith(GONE)) == (COMPLETE, True)


def test_searches_tell(server: BrokerThread, clicks: str) -> None:
    for more in ((), ("--json",)):
        told = run(server, "offsets", clicks, "--at", AT, "--at", str(T0 + 1), *more).err
        complete, gone = [line.removeprefix("horolog: ") for line in told.splitlines()]
        assert (complete, gone.startswith(GONE)) == (COMPLETE, True)
    assert run(server, "offsets", clicks, "--at", "2016-11-14T17:24:34Z").err == ""
    assert run(server, "offsets", clicks).err == ""
    ranged = run(server, "consume", clicks, "--offsets-between", "--from", AT).err
    assert ranged.splitlines()[0] == f"horolog: {COMPLETE}"
    more_than_there_are = run(server, "consume", clicks, "--last", "100").err
    assert more_than_there_are.splitlines()[0] == f"horolog: {COMPLETE}"
    assert run(server, "consume", clicks, "--partition", "0", "--last", "2").err == ""


def test_searches_in_a_window_topic_tell(server: BrokerThread, clicks: str) -> None:
    """As searches in the topic, if what left it may have been in the window."""
    window = f"{clicks}..20161114T1724Z..1h"
    told = run(server, "offsets", window, "--at", AT).err
    complete, gone = [line.removeprefix("horolog: ") for line in told.splitlines()]
    assert complete == COMPLETE.replace(clicks, window, 1)
    assert gone.startswith(GONE.replace(clicks, window, 1))
    assert run(server, "offsets", window, "--at", "2016-11-14T17:24:34Z").err == ""
    assert run(server, "offsets", window).err == ""
    later = f"{clicks}..{T0 + 1001}..1h"
    assert run(server, "offsets", later, "--at", AT).err == ""


@given(LOGS, st.integers(0, 10), st.booleans())
@settings(max_examples=5, deadline=None)
def test_windows_say_what_a_plain_list_says(
    server: BrokerThread,
    logs: Sequence[tuple[Sequence[int], int]],
    start: int,
    open_end: bool,
) -> None:
    topic = f"windows-{server.in_loop(_topics)}"
    store(server, topic, [[T0 + time for time in times] for times, _ in logs], [n for _, n in logs])
    window = f"{topic}..{T0 + start}" + ("" if open_end else "..5ms")
    appended = f"{topic}..{T0}..1h..append"
    for partition, (times, before) in enumerate(logs):
        complete_from_ms = T0 + max(times[:before]) + 1 if before else 0
        if complete_from_ms <= T0 + start:
            complete_from_ms = 0
        latest, at = with_admin(
            server,
            partial(_list_offsets, topic=window, partition=partition, targets=[-1, T0]),
        )
        assert (latest.complete_from_ms, at.complete_from_ms) == (complete_from_ms,) * 2
        (at,) = with_admin(
            server, partial(_list_offsets, topic=appended, partition=partition, targets=[T0])
        )
        assert (at.complete_from_ms or 0) > T0 if before else at.complete_from_ms == 0


async def _list_offsets(
    admin: horolog.Admin, *, topic: str, partition: int, targets: Sequence[int]
) -> Any:
    return await admin.list_offsets(topic, partition, targets)


def test_counts_tell(server: BrokerThread, clicks: str) -> None:
    window = ("--from", AT, "--until", "2016-11-14T17:24:40Z", "--every", "3s")
    complete, gone = notes(run(server, "histogram", clicks, *window))
    assert (complete, gone.startswith(GONE)) == (COMPLETE, True)
    as_json = run(server, "histogram", clicks, *window, "--json")
    assert as_json.err.splitlines()[0] == f"horolog: {COMPLETE}"
    assert all(set(line) == {"from_ms", "until_ms", "count"} for line in as_json.objects)
    one = run(server, "histogram", clicks, *window, "--partition", "1")
    assert notes(one) == []


def test_append_times_are_those_of_the_first_message_left(server: BrokerThread) -> None:
    store(server, "appended", [[T0, T0, T0]], [2])
    with blocking.Consumer(server.address, append_times=True) as consumer:
        (left,) = consumer.window("appended", None, None, by="append")
        assert left.append_time_ms is not None
        for start, missing in ((left.append_time_ms, 1), (left.append_time_ms + 1, 0)):
            window = consumer.window("appended", start, None, by="append")
            list(window)
            assert window.complete_from_ms == left.append_time_ms + 1
            assert len(window.removed) == missing
    counts = with_admin(server, lambda admin: admin.count_by_time("appended", 0, T0, by="append"))
    assert counts.complete_from_ms == left.append_time_ms + 1


def test_what_left_another_partition_before_the_window_explains_nothing(
    server: BrokerThread,
) -> None:
    """A partition that is complete by append time is not named, though it was trimmed later."""
    store(server, "elsewhere", [[T0, T0], []], [])

    async def fill_and_trim(admin: horolog.Admin) -> None:
        async with horolog.Producer(server.address) as producer:
            for _ in range(2):
                await producer.send("elsewhere", b"v", timestamp_ms=T0, partition=1)
        for partition in (0, 1):
            await admin.delete_records("elsewhere", partition, 1)

    begin_ms = server.clock.now_ms() + 30_000
    server.clock.step(60)
    with_admin(server, fill_and_trim)
    with blocking.Consumer(server.address) as consumer:
        window = consumer.window("elsewhere", begin_ms, None, by="append")
        assert len(list(window)) == 1
    until_ms = begin_ms + 60_000
    counts = with_admin(
        server, lambda admin: admin.count_by_time("elsewhere", begin_ms, until_ms, by="append")
    )
    for found in (window, counts):
        assert (found.complete_from_ms or 0) > begin_ms
        assert [each.partition for each in found.removed] == [1]


def test_what_removed_no_message_explains_nothing(server: BrokerThread) -> None:
    """As bytes that a start cuts off behind the end of a clean stop."""
    store(server, "bytes", [[T0, T0 + 1000, T0 + 2000]], [2])

    async def cut_bytes(broker: Any) -> None:
        truncations = broker.directory.truncations
        trim = broker.services.metadata.removals("bytes")[0]
        truncations.load()
        truncations.add(
            trim._replace(
                cause="truncation",
                rule="a start found 7 B incomplete or damaged",
                first_offset=3,
                end_offset=3,
                messages=0,
                first_timestamp_ms=-1,
                largest_timestamp_ms=-1,
            )
        )

    server.in_loop(cut_bytes)
    found = with_admin(server, partial(_find, topic="bytes", partition=0, at_ms=T0))
    assert [each.cause for each in found.removed] == ["trim"]
    path = f"page/find?topic=bytes&partition=0&at={T0}"
    with urlopen(f"http://{server.http_address}/{path}") as answer:
        assert [each["cause"] for each in json.load(answer)["removed"]] == ["trim"]
    assert len(run(server, "explain", "gone", "bytes", "--json").objects) == 2
    at = run(server, "explain", "gone", "bytes", "--at", str(T0 + 1), "--json")
    assert [line["cause"] for line in at.objects] == ["trim"]


def test_kafka_says_nothing(server: BrokerThread, clicks: str) -> None:
    kafka = f"kafka://{server.kafka_address}"
    assert (
        len(run(server, "consume", clicks, "--from", AT, "--server", kafka).err.splitlines()) == 1
    )
    assert run(server, "offsets", clicks, "--at", AT, "--server", kafka).err == ""
    with blocking.Consumer(kafka) as consumer:
        window = consumer.window(clicks, T0, None)
        list(window)
        assert (window.complete_from_ms, window.removed) == (None, ())


def test_a_table_and_a_parquet_file_tell(server: BrokerThread, clicks: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    reader = horolog.read_window(server.address, clicks, T0, None)
    assert reader.schema.metadata[b"horolog.complete_from_ms"] == str(T0 + 1001).encode()
    (removal,) = json.loads(reader.schema.metadata[b"horolog.removed"])
    assert (removal["cause"], removal["end_offset"]) == ("trim", 2)
    assert reader.read_all().num_rows == 3
    later = horolog.read_window(server.address, clicks, T0 + 1001, None)
    assert set(later.schema.metadata) == {b"horolog.complete_from_ms"}
    later.read_all()
    kafka = horolog.read_window(f"kafka://{server.kafka_address}", clicks, T0, None)
    assert not kafka.schema.metadata
    kafka.read_all()
    path = tmp_path / "out.parquet"
    told = run(server, "export", clicks, "--from", AT, "--to", str(path)).err
    assert told.splitlines()[0] == f"horolog: {COMPLETE}"
    assert b"horolog.removed" in parquet.read_schema(path).metadata


def test_the_page_tells(server: BrokerThread, clicks: str) -> None:
    def get(path: str) -> Any:
        with urlopen(f"http://{server.http_address}/page/{path}") as answer:
            return json.load(answer)

    found = get(f"histogram?topic={clicks}&from={T0}&until={T0 + 9000}&bars=3")
    assert found["complete_from_ms"] == T0 + 1001
    (removal,) = found["removed"]
    assert (removal["cause"], removal["messages"], "rule" in removal) == ("trim", 2, False)
    later = get(f"histogram?topic={clicks}&from={T0 + 1001}&until={T0 + 9000}&bars=3")
    assert (later["complete_from_ms"], later["removed"]) == (T0 + 1001, [])
    for by in ("timestamp", "append"):
        found = get(f"find?topic={clicks}&partition=0&at={T0}&by={by}")
        own = with_admin(server, partial(_find, topic=clicks, partition=0, at_ms=T0, by=by))
        assert found["complete_from_ms"] == own.complete_from_ms
        (removal,) = found["removed"]
        assert (removal["cause"], removal["messages"], "rule" in removal) == ("trim", 2, False)
        late = get(f"find?topic={clicks}&partition=0&at={own.complete_from_ms}&by={by}")
        assert (late["complete_from_ms"], late["removed"]) == (own.complete_from_ms, [])
        other = get(f"find?topic={clicks}&partition=1&at={T0}&by={by}")
        assert (other["complete_from_ms"], other["removed"]) == (0, [])


def test_the_page_names_truncations(server: BrokerThread) -> None:
    store(server, "cut", [[T0, T0 + 1, T0 + 2]], [])

    async def cut(broker: Any) -> None:
        broker.directory.log("cut", 0).truncate(1)

    server.in_loop(cut)
    path = f"histogram?topic=cut&from={T0}&until={T0 + 9}&bars=3"
    with urlopen(f"http://{server.http_address}/page/{path}") as answer:
        found = json.load(answer)
    assert found["complete_from_ms"] == T0 + 3
    (removal,) = found["removed"]
    assert (removal["cause"], removal["messages"], "rule" in removal) == ("truncation", 2, False)


def test_what_is_not_known_is_said(server: BrokerThread) -> None:
    store(server, "adopted", [[T0, T0 + 1000]], [])

    async def forget(broker: Any) -> None:
        broker.directory.log("adopted", 0).expiry.trim(1)  # as a log that came from elsewhere

    server.in_loop(forget)
    with urlopen(f"http://{server.http_address}/page/find?topic=adopted&at={T0}") as answer:
        shown = json.load(answer)
    assert (shown["complete_from_ms"], shown["removed"]) == (None, [])
    before = asked(server)
    told = run(server, "consume", "adopted", "--from", AT)
    assert notes(told) == ["it is not known what left adopted: see `horolog explain gone adopted`"]
    last = run(server, "consume", "adopted", "--from", AT, "--stats").err.splitlines()[-1]
    assert json.loads(last)["complete_from_ms"] is None
    assert asked(server) == before


def test_the_largest_time_counts_not_the_last(server: BrokerThread) -> None:
    """Removals by different rules, so that they stay two entries; the first has the later times."""
    store(server, "disordered", [[T0 + 5000, T0, T0 + 9000]], [1])

    async def trim_as_somebody_else(broker: Any) -> None:
        first = broker.services.metadata.removals("disordered")[0]
        log = broker.directory.log("disordered", 0)
        other = first._replace(rule="User:b", first_offset=1, end_offset=2, largest_timestamp_ms=T0)
        await broker.services.metadata.record_removed([other])
        log.expiry.trim(2)

    server.in_loop(trim_as_somebody_else)
    found = with_admin(server, partial(_find, topic="disordered", partition=0, at_ms=T0 + 1))
    assert found.complete_from_ms == T0 + 5001
    assert [each.end_offset for each in found.removed] == [1]


def test_a_trim_says_which_earlier_messages_stay(server: BrokerThread) -> None:
    times = [T0 + 9000, T0, T0 + 1000, T0 + 9500]
    store(server, "late", [times, [T0, T0 + 9000]], [])
    trim = ("topic", "trim", "late", "--before", str(T0 + 5000), "--yes")
    told = run(server, *trim)
    assert [line.split()[:3] for line in told.out.splitlines()[1:]] == [
        ["0", "0", "0"],
        ["1", "1", "1"],
    ]
    (kept,) = told.err.splitlines()
    assert kept == (
        "horolog: late-0: 2 messages of earlier times stay behind offset 0: a log is trimmed from "
        "its start, and that message, of 2016-11-14T17:24:41.000Z, is to be kept"
    )
    again = run(server, *trim, "--json")
    assert again.err.splitlines() == [kept]
    assert all("kept" not in line for line in again.objects)
    in_order = run(server, *trim, "--partition", "1")
    assert in_order.err == ""
