"""The broker of the fixture `horolog_broker`, and the clock that a test moves."""

import asyncio
import socket
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import horolog
from horolog.protocol.errors import InvalidConfig
from horolog.server.broker import Broker
from horolog.server.maintenance import PeriodicTask
from horolog.server.network.listener import CannotListen
from horolog.testing.broker import BrokerThread
from horolog.testing.waiting import until

HOUR = 3600


@pytest.fixture
def horolog_settings() -> Mapping[str, object]:
    return {"retention.ms": HOUR * 1000, "file.delete.delay.ms": 60_000}


def send(broker: BrokerThread, *timestamps_ms: int) -> list[int]:
    """Send a message for each time to topic `a`; their offsets."""

    async def run() -> list[int]:
        async with horolog.Producer(broker.address) as producer:
            return [
                (await producer.send("a", b"value", timestamp_ms=time_ms)).offset
                for time_ms in timestamps_ms
            ]

    return asyncio.run(run())


def log_start(broker: BrokerThread) -> int:
    async def run() -> int:
        async with horolog.Admin(broker.address) as admin:
            return (await admin.describe_log("a")).log_start_offset

    return asyncio.run(run())


def test_when_a_step_returns_what_became_due_is_done(horolog_broker: BrokerThread) -> None:
    send(horolog_broker, horolog_broker.clock.now_ms())
    horolog_broker.clock.step(HOUR / 2)
    assert log_start(horolog_broker) == 0
    horolog_broker.clock.step(HOUR)
    assert log_start(horolog_broker) == 1
    folder = horolog_broker.data_dir / "a-0"
    assert len(list(folder.glob("*.log.deleted"))) == 1
    horolog_broker.clock.step(61)
    assert not list(folder.glob("*.deleted"))


async def put_tasks_off(broker: Broker) -> None:
    """Leave no task that falls due by the machine's time within the next hour."""
    for task in broker.maintenance.tasks.values():
        await until(partial(waits, task))
        assert task._wait is not None
        due_at = task._wait.when()
        assert due_at is not None
        task._wait.reschedule(due_at + HOUR)


def waits(task: PeriodicTask) -> bool:
    """Whether no pass of a task is running or begins."""
    return task._wait is not None and not task._wait.expired()


def test_each_task_that_is_due_runs_once_in_a_step(horolog_broker: BrokerThread) -> None:
    passes: dict[str, int] = {}
    horolog_broker.in_loop(put_tasks_off)
    for name, task in horolog_broker._broker.maintenance.tasks.items():

        async def run(name: str = name) -> None:
            passes[name] = passes.get(name, 0) + 1

        task._run = run
    horolog_broker.clock.step(HOUR + 20)
    often = {"clock", "deletion", "flush", "garbage", "recovery_points", "reserve"}
    often |= {"retention", "offset_retention"}  # These run at every step.
    assert passes == dict.fromkeys(often, 1)
    horolog_broker.in_loop(put_tasks_off)
    passes.clear()
    horolog_broker.clock.step(25 * HOUR)
    assert set(passes.values()) == {1}
    assert passes.keys() == horolog_broker._broker.maintenance.tasks.keys()


async def test_a_step_in_a_test_with_a_loop(horolog_broker: BrokerThread) -> None:
    async with (
        horolog.Admin(horolog_broker.address) as admin,
        horolog.Producer(horolog_broker.address) as producer,
    ):
        await producer.send("a", b"value", timestamp_ms=horolog_broker.clock.now_ms())
        horolog_broker.clock.step(2 * HOUR)
        assert (await admin.describe_log("a")).log_start_offset == 1


def test_a_clock_set_forward_is_not_time_that_passed(horolog_broker: BrokerThread) -> None:
    send(horolog_broker, horolog_broker.clock.now_ms())
    horolog_broker.clock.jump(24 * HOUR)
    horolog_broker.clock.step(301)  # the retention pass is due
    assert log_start(horolog_broker) == 0


def test_a_clock_that_goes_back(horolog_broker: BrokerThread) -> None:
    clock = horolog_broker.clock
    clock.freeze()
    before_ms, passed = clock.now_ms(), clock.monotonic()
    clock.step(-10)
    assert (clock.now_ms(), clock.monotonic()) == (before_ms - 10_000, passed)
    assert send(horolog_broker, clock.now_ms()) == [0]


def test_a_frozen_clock_stands_still_until_it_is_moved(horolog_broker: BrokerThread) -> None:
    clock = horolog_broker.clock
    clock.freeze()
    now_ms, passed = clock.now_ms(), clock.monotonic()
    assert (clock.now_ms(), clock.monotonic()) == (now_ms, passed)
    clock.step(1.5)
    assert clock.now_ms() == now_ms + 1500
    assert clock.monotonic() == pytest.approx(passed + 1.5)
    clock.unfreeze()
    while clock.now_ms() == now_ms + 1500:
        pass
    assert clock.monotonic() > passed + 1.5


def test_a_restart_keeps_address_and_messages(horolog_broker: BrokerThread) -> None:
    address = horolog_broker.address
    send(horolog_broker, horolog_broker.clock.now_ms())
    horolog_broker.restart()
    assert horolog_broker.address == address
    assert send(horolog_broker, horolog_broker.clock.now_ms()) == [1]


def test_no_other_socket_gets_the_ports_of_a_broker_that_may_start_again(tmp_path: Path) -> None:
    broker = BrokerThread(tmp_path / "data", {"kafka.listen": "127.0.0.1:0"})
    with broker:
        addresses = broker.address, broker.kafka_address
        for stop in (broker.stop, broker.faults.stop_leader):
            stop()
            for address in addresses:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(place_of(address))
                with socket.socket() as other, pytest.raises(OSError, match="in use"):
                    other.bind(place_of(address))
            broker.start()
            assert (broker.address, broker.kafka_address) == addresses
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(place_of(addresses[0]))


def place_of(address: str | None) -> tuple[str, int]:
    host, _, port = str(address).partition(":")
    return host, int(port)


def test_settings_that_a_broker_refuses_do_not_cost_it_its_ports(
    horolog_broker: BrokerThread,
) -> None:
    address = horolog_broker.address
    with pytest.raises(InvalidConfig), horolog_broker.borrowed({"retention.ms": "soon"}):
        pass
    assert horolog_broker.is_running
    assert horolog_broker.address == address


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"data.dir": "/elsewhere"}, ValueError, "data.dir '/elsewhere'.*leave this setting out"),
        ({"data_dir": "/elsewhere"}, ValueError, "data.dir"),
        ({3: 4}, TypeError, "name 3: it must be a str"),
        ([("retention.ms", 5)], TypeError, "a mapping of names to values"),
        ("retention.ms=5", TypeError, "a mapping of names to values"),
    ],
)
def test_settings_that_are_none_are_refused(
    tmp_path: Path, horolog_broker: BrokerThread, settings: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        BrokerThread(tmp_path, settings)
    with pytest.raises(error, match=says), horolog_broker.borrowed(settings):
        pass
    with pytest.raises(error, match=says):
        horolog_broker.restart(settings)
    horolog_broker.topic("a")
    assert horolog_broker.is_running


def test_settings_may_be_lengths_of_time(horolog_broker: BrokerThread) -> None:
    week = timedelta(days=7)
    with horolog_broker.borrowed({"retention_ms": week, "segment.ms": "1h"}):
        send(horolog_broker, horolog_broker.clock.now_ms())
        horolog_broker.clock.step((week - timedelta(hours=1)).total_seconds())
        assert log_start(horolog_broker) == 0
        horolog_broker.clock.step(2 * HOUR)
        assert log_start(horolog_broker) == 1
    with (
        pytest.raises(TypeError, match=r"segment\.bytes is not in milliseconds"),
        horolog_broker.borrowed({"segment.bytes": week}),
    ):
        pass
    assert horolog_broker.is_running


def test_what_keeps_a_broker_from_starting_is_raised(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        broker = BrokerThread(tmp_path, {"listen": address})
        with pytest.raises(CannotListen):
            broker.start()
        broker.stop()
        with pytest.raises(RuntimeError, match="not started"):
            assert broker.address
