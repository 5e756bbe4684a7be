"""`horolog top` and `horolog load`."""

import asyncio
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog import Admin, blocking
from horolog.cli.load import Load, LoadLatencies, _in_topic, _Run, create_if_missing
from horolog.cli.top import new_messages
from horolog.client.cluster.servers import parse_servers
from horolog.clock import SystemClock
from horolog.protocol.errors import TopicAuthorizationFailed, UnknownTopicOrPartition
from horolog.testing.broker import BrokerThread
from horolog.testing.program import CommandResult
from horolog.testing.waiting import wait_until

from .terminal import on_terminal

Run = Callable[..., CommandResult]


@pytest.fixture
def busy(server: BrokerThread, topic: str) -> str:
    """A topic with three messages, of which a reader has read one."""
    with blocking.Admin(server.address) as admin, blocking.Producer(server.address) as producer:
        admin.create_topic(topic, partitions=2)
        for partition in (0, 0, 1):
            producer.send(topic, b"v", partition=partition)
        admin.commit_position("team", topic, 0, 1)
    return topic


def test_top_shows_lag_by_topic(ask: Run, busy: str) -> None:
    found = ask("top", busy, "-n", "2", "--every", "100ms", "--json").objects
    assert len(found) == 2
    for interval in found:
        assert interval["interval_s"] > 0.05
        (one,) = interval["topics"]
        assert one.pop("lag_s") >= 0
        assert one == {
            "topic": busy,
            "messages": 0,
            "messages_per_s": 0.0,
            "lateness_s": None,
            "lag": 1,
            "reader": "team",
        }


def test_top_counts_new_messages_and_their_lateness(
    server: BrokerThread, ask: Run, busy: str
) -> None:
    sent, ended = threading.Event(), threading.Event()

    def send() -> None:
        with blocking.Producer(server.address) as producer:
            while not ended.wait(0.02):
                producer.send(busy, b"late", timestamp_ms=server.clock.now_ms() - 5000)
                sent.set()

    with ThreadPoolExecutor(1) as others:
        sending = others.submit(send)
        try:
            assert sent.wait(60)
            found = ask("top", busy, "-n", "3", "--every", "300ms", "--json").objects
        finally:
            ended.set()
            sending.result()
    rates = [one for interval in found for one in interval["topics"] if one["messages"]]
    assert rates
    assert all(one["messages_per_s"] > 0 for one in rates)
    assert all(one["lateness_s"] >= 5 for one in rates)


def test_top_prints_tables_to_a_file(ask: Run, busy: str) -> None:
    lines = ask("top", "-n", "1", "--every", "100ms").out.splitlines()
    columns = "topic messages/s messages lateness lag behind reader"
    assert lines[1].split() == columns.split()
    assert any(line.split()[0] == busy for line in lines[2:] if line)


def test_top_is_drawn_anew_on_a_terminal(
    server: BrokerThread, busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROLOG_SERVER", server.address)
    shown = on_terminal("top", busy, "-n", "2", "--every", "100ms", columns=120, all_of_it=True)
    assert shown.code == 0
    assert shown.err.count("\x1b[2J") == 2
    assert busy in shown.err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--every", "0s"], "from 100 ms"),
        (["--every", "x"], "not a length of time"),
        (["-n", "0"], "-n"),
    ],
)
def test_what_top_refuses(ask: Run, options: list[str], text: str) -> None:
    assert text in ask("top", *options, code=2).err


def test_top_of_a_topic_that_is_missing(ask: Run) -> None:
    assert "UNKNOWN_TOPIC_OR_PARTITION" in ask("top", "nowhere", "-n", "1", code=1).err


def test_an_end_that_was_not_known_is_no_burst_of_messages() -> None:
    before = {("t", 0): 5, ("t", 1): None, ("t", 3): 9, ("t", 4): 9}
    ends = {("t", 0): 7, ("t", 1): 1_000, ("t", 2): 3, ("t", 3): None, ("t", 4): 2}
    assert new_messages(before, ends) == {("t", 0): 2, ("t", 1): 0, ("t", 2): 3, ("t", 4): 0}


class NoCreation:
    """Admin of a user who may not create topics."""

    async def partition_count(self, name: str) -> int:
        if name != "there":
            raise UnknownTopicOrPartition(name)
        return 1

    async def create_topic(self, name: str, **options: object) -> None:
        raise TopicAuthorizationFailed(name)


def test_load_into_a_topic_that_exists_needs_no_right_to_create() -> None:
    admin = cast(Admin, NoCreation())
    asyncio.run(create_if_missing(admin, "there", 1))
    with pytest.raises(TopicAuthorizationFailed):
        asyncio.run(create_if_missing(admin, "missing", 1))


@pytest.mark.parametrize("protocol", ["native", "kafka"])
def test_load_measures_and_leaves_nothing(ask: Run, server: BrokerThread, protocol: str) -> None:
    address = server.address if protocol == "native" else f"kafka://{server.kafka_address}"
    options = ("-n", "200", "--size", "1KiB", "--partitions", "2", "--json")
    (found,) = ask("load", *options, "--server", address).objects
    assert (found["sent"], found["read"], found["failed"]) == (200, 200, 0)
    assert (found["size_bytes"], found["messages_per_s"] > 0) == (1024, True)
    for latency in (found["ack_ms"], found["end_to_end_ms"]):
        assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    assert "horolog-load-" not in ask("topic", "list").out


def test_load_at_a_rate_into_a_topic_that_stays(ask: Run, topic: str) -> None:
    said = ask("load", topic, "--rate", "100", "--for", "200ms").out
    assert said.splitlines()[0].endswith("/s")
    assert stored(ask, topic) <= 21


def stored(ask: Run, topic: str) -> int:
    (found,) = (one for one in ask("topic", "list", "--json").objects if one["topic"] == topic)
    return int(found["messages"])


def test_load_at_a_rate_up_to_a_number(ask: Run, topic: str) -> None:
    (found,) = ask("load", topic, "--rate", "100", "-n", "20", "--for", "1h", "--json").objects
    assert (found["sent"], stored(ask, topic)) == (20, 20)
    assert found["seconds"] >= 0.18, "the last one is due after 190 ms"


def test_what_is_due_at_a_rate() -> None:
    load = Load(100, 100, 60, None, "none")
    run = _Run(parse_servers("127.0.0.1:1"), "t", 1, load, SystemClock())
    assert [run._due(0, 0), run._due(0, 0.2), run._due(5, 0.2), run._due(21, 0.2)] == [1, 21, 16, 0]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--size", "5"], "from 24 to"),
        (["--size", "1GiB"], "from 24 to"),
        (["--size", "10M"], "M could be MiB or MB"),
        (["--for", "2d"], "from 1ms to 24h"),
        (["--rate", "0"], "--rate"),
    ],
)
def test_what_load_refuses(ask: Run, options: list[str], text: str) -> None:
    assert text in ask("load", *options, code=2).err


def test_messages_that_are_refused_fail_the_load(ask: Run, topic: str) -> None:
    ask("topic", "create", topic, "--set", "max.message.bytes=1000")
    said = ask("load", topic, "-n", "2", "--size", "2000", "--json", code=1)
    assert said.objects[0]["failed"] == 2
    assert "messages were refused: MESSAGE_TOO_LARGE" in said.err


async def test_a_load_that_is_ended_reports_no_lost_messages(
    server: BrokerThread, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Admin(server.address) as admin:
        await admin.create_topic(topic)
    server.faults.delay("Produce", 0.2, times=None)
    try:
        servers, load = parse_servers(server.address), Load(100, 1_000, 60, None, "none")
        running = asyncio.create_task(_in_topic(servers, topic, 1, load, SystemClock()))
        await asyncio.to_thread(wait_until, lambda: bool(server.faults.injected))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    finally:
        server.faults.clear()
    assert "unanswered" not in caplog.text


@given(st.lists(st.floats(1e-5, 100), min_size=1, max_size=200))
def test_percentiles_are_at_most_two_percent_too_high(durations: list[float]) -> None:
    counted = LoadLatencies()
    for seconds in durations:
        counted.add(seconds)
    found = counted.milliseconds()
    durations.sort()
    for name, percent in (("p50", 50.0), ("p90", 90.0), ("p99", 99.0)):
        exact = durations[max(math.ceil(len(durations) * percent / 100) - 1, 0)] * 1000
        shown = found[name]
        assert shown is not None
        assert exact * 0.999 - 0.001 <= shown <= exact * 1.021 + 0.001


def test_without_durations_there_are_no_percentiles() -> None:
    assert set(LoadLatencies().milliseconds().values()) == {None}
