"""Fault 39 on a broker: steps, a frozen clock, 1970, a leap between stop and start.

What has to hold each time: append times never fall within a partition, nothing is deleted early,
what should go goes in the end, and every step is logged and counted.
"""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.api.log.describe_log import DescribeLogRequest, DescribeLogTopic
from horolog.server.broker import Broker
from horolog.testing.broker import running_broker
from horolog.testing.clock import ManualClock
from horolog.testing.directories import copy_as_killed
from horolog.testing.requests import create_topic, message_set, produce, result
from horolog.testing.wire import Wire, wire

NOW = ManualClock().now_ms()
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
RETENTION_MS = 7 * DAY_MS
SETTLE_MS = HOUR_MS
LOOK_MS = 10_000


class Life:
    """A broker from start to stop, with two topics that keep a week."""

    def __init__(self, broker: Broker, client: Wire, clock: ManualClock, log: io.StringIO) -> None:
        self.broker = broker
        self.clock = clock
        self._client = client
        self._log = log

    async def create(self) -> None:
        for name, kind in (("created", "CreateTime"), ("stamped", "LogAppendTime")):
            await self._client.call(
                create_topic(name, message_timestamp_type=kind, retention_ms=RETENTION_MS)
            )
            await self.append(name)

    async def append(self, topic: str) -> int:
        """Append a message of now; its append time, -1 on a CreateTime topic."""
        sent = produce(topic, message_set(self.clock.now_ms()), acks=-1)
        got = result(await self._client.call(sent))
        assert got.error_code == 0
        append_time_ms: int = got.log_append_time_ms
        return append_time_ms

    async def run(self, *tasks: str) -> None:
        for task in tasks:
            await self.broker.maintenance.tasks[task].run_now()

    async def pass_time(self, ms: int) -> None:
        """Let time pass, the clocks looked at and retention judged in between."""
        for number in range(ms // LOOK_MS):
            self.clock.advance(LOOK_MS)
            await self.run("clock")
            if number % 30 == 0:
                await self.run("retention")
        await self.run("retention")

    @property
    def log_starts(self) -> dict[str, int]:
        return {
            name: self.broker.directory.log(name, 0).log_start_offset
            for name in self.broker.directory.topics()
        }

    @property
    def nothing_deleted(self) -> bool:
        return not any(self.log_starts.values())

    @property
    def steps(self) -> dict[str, int]:
        """The counted steps; every one of them is in the log too."""
        lines = [json.loads(line) for line in self._log.getvalue().splitlines()]
        logged = [line["direction"] for line in lines if "direction" in line]
        counted = self.broker.figures.clock_steps
        assert {name: logged.count(name) for name in logged} == counted
        return counted

    async def reasons(self, topic: str) -> list[str]:
        request = DescribeLogRequest(topics=[DescribeLogTopic(name=topic, partitions=[0])])
        described = result(await self._client.call(request))
        return [segment.reason for segment in described.segments]


@asynccontextmanager
async def life(data_dir: Path, clock: ManualClock, **settings: Any) -> AsyncIterator[Life]:
    log = io.StringIO()
    async with (
        running_broker(
            data_dir,
            clock,
            log_stream=log,
            log_format="json",
            http_listen="off",
            clock_settle_ms=SETTLE_MS,
            **settings,
        ) as broker,
        wire(broker.addresses.native) as client,
    ):
        yield Life(broker, client, clock, log)


async def test_a_wrong_step_forward_that_is_taken_back_costs_nothing(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with life(tmp_path, clock) as now:
        await now.create()
        clock.step(YEAR_MS)
        await now.pass_time(SETTLE_MS - MINUTE_MS)
        assert now.nothing_deleted
        assert now.steps == {"forward": 1}
        metrics = now.broker.metrics_text().decode()
        assert 'horolog_clock_steps_total{direction="forward"} 1.0' in metrics
        assert "horolog_clock_ahead_seconds 31536000.0" in metrics
        clock.step(-YEAR_MS)
        await now.pass_time(2 * SETTLE_MS)
        assert now.nothing_deleted
        assert now.steps == {"forward": 1, "back": 1}
        assert "horolog_clock_ahead_seconds 0.0" in now.broker.metrics_text().decode()


async def test_a_right_step_forward_delays_retention_and_says_so(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with life(tmp_path, clock) as now:
        await now.create()
        clock.step(YEAR_MS)
        await now.pass_time(SETTLE_MS - MINUTE_MS)
        (reason,) = await now.reasons("created")
        assert "keeps it" in reason
        assert "365 days, 0:00:00 ahead" in reason
        assert "clock.settle.ms" in reason
        await now.pass_time(2 * MINUTE_MS)
        assert now.log_starts == {"created": 1, "stamped": 1}
        assert await now.reasons("created") == ["it is the empty active segment"]


async def test_what_expires_by_both_clocks_goes_while_they_disagree(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with life(tmp_path, clock, log_retention_check_interval_ms=HOUR_MS) as now:
        await now.create()
        clock.advance(RETENTION_MS - 10 * MINUTE_MS)
        await now.append("created")
        clock.step(YEAR_MS)
        await now.pass_time(5 * MINUTE_MS)
        assert now.nothing_deleted
        now.broker.directory.log("created", 0).appender.roll()
        clock.advance(DAY_MS)
        clock.step(-3 * HOUR_MS)
        await now.run("retention")
        assert now.log_starts == {"created": 0, "stamped": 1}


async def test_retention_right_after_a_roll_is_as_careful(
    tmp_path: Path, clock: ManualClock
) -> None:
    """A message stamped by the wrong clock rolls the segment, which looks expired at once."""
    async with life(tmp_path, clock) as now:
        await now.create()
        clock.step(YEAR_MS)
        stamp_ms = await now.append("stamped")
        assert stamp_ms == NOW + YEAR_MS
        await now.append("created")
        assert now.broker.figures.topic("stamped").rolls == {"time": 1}
        await now.run("rolled")
        assert now.nothing_deleted
        clock.step(-YEAR_MS)
        await now.run("rolled", "retention")
        assert now.nothing_deleted
        assert await now.append("stamped") == stamp_ms, "append times never fall"


async def test_a_frozen_clock(tmp_path: Path, clock: ManualClock) -> None:
    async with life(tmp_path, clock) as now:
        await now.create()
        for _ in range(60):
            clock.advance(MINUTE_MS)
            clock.step(-MINUTE_MS)
            await now.run("clock")
            assert await now.append("stamped") == NOW
        await now.run("retention")
        assert now.nothing_deleted
        assert set(now.steps) == {"back"}
        clock.step(HOUR_MS)
        clock.advance(RETENTION_MS - HOUR_MS)
        await now.run("retention")
        assert now.nothing_deleted
        clock.advance(2 * HOUR_MS)
        await now.run("retention")
        assert now.log_starts == {"created": 1, "stamped": 61}


async def test_an_hour_of_drift_a_day(tmp_path: Path, clock: ManualClock) -> None:
    """The clock gains seven hours in a week: what is young by the true time stays, but for the
    minute of `clock.step.max.ms`."""
    async with life(tmp_path, clock) as now:
        await now.create()
        for hour in range(1, 7 * 24):
            clock.advance(HOUR_MS)
            clock.step(HOUR_MS // 24)
            await now.run("clock", "retention")
            assert now.nothing_deleted, f"after {hour} hours"
        assert now.steps["forward"] > 100
        clock.advance(HOUR_MS - MINUTE_MS)
        await now.run("retention")
        assert now.nothing_deleted
        clock.advance(2 * MINUTE_MS)
        await now.run("retention")
        assert now.log_starts == {"created": 1, "stamped": 1}


async def kill(data_dir: Path, now: Life) -> Path:
    """What `kill -9` would leave of the data directory now."""
    copy = data_dir.with_name(data_dir.name + "-killed")
    copy_as_killed(now.broker.settings.data_dir, copy)
    return copy


@pytest.mark.parametrize("again", ["clean", "killed"])
@pytest.mark.parametrize(
    ("leap_ms", "direction"),
    [
        pytest.param(YEAR_MS, "forward_while_stopped", id="forward"),
        pytest.param(-YEAR_MS, "back_while_stopped", id="back"),
        pytest.param(-NOW, "back_while_stopped", id="1970"),
    ],
)
async def test_a_leap_between_stop_and_start(
    tmp_path: Path, clock: ManualClock, leap_ms: int, direction: str, again: str
) -> None:
    data_dir = tmp_path / "data"
    async with life(data_dir, clock) as now:
        await now.create()
        await now.pass_time(MINUTE_MS)
        stamp_ms = await now.append("stamped")
        if again == "killed":
            data_dir = await kill(data_dir, now)
    clock.step(leap_ms)
    async with life(data_dir, clock) as now:
        assert now.steps == {direction: 1}
        await now.run("clock", "retention")
        assert now.nothing_deleted
        assert await now.append("stamped") == max(stamp_ms, clock.now_ms())
        clock.step(-leap_ms)
        await now.pass_time(2 * SETTLE_MS)
        assert now.nothing_deleted
        assert await now.append("stamped") >= stamp_ms
        assert len(now.steps) == 2


@pytest.mark.parametrize("again", ["clean", "killed"])
async def test_a_wrong_clock_is_not_believed_because_of_a_restart(
    tmp_path: Path, clock: ManualClock, again: str
) -> None:
    """What a start goes on from is trusted time, not what the wrong clock showed at the stop."""
    data_dir = tmp_path / "data"
    async with life(data_dir, clock) as now:
        await now.create()
    for _ in range(3):
        clock.step(YEAR_MS)
        async with life(data_dir, clock) as now:
            await now.pass_time(SETTLE_MS - MINUTE_MS)
            assert now.nothing_deleted
            if again == "killed":
                data_dir = await kill(data_dir, now)
        clock.step(-YEAR_MS)
        clock.advance(MINUTE_MS)


async def test_a_broker_that_was_stopped_for_long_deletes_after_the_wait(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with life(tmp_path, clock) as now:
        await now.create()
    clock.step(RETENTION_MS + MINUTE_MS)
    async with life(tmp_path, clock) as now:
        await now.run("retention")
        assert now.nothing_deleted
        await now.pass_time(SETTLE_MS + MINUTE_MS)
        assert now.log_starts == {"created": 1, "stamped": 1}
    async with life(tmp_path, clock) as now:
        assert now.steps == {}


async def test_a_short_stop_is_no_leap(tmp_path: Path, clock: ManualClock) -> None:
    async with life(tmp_path, clock) as now:
        await now.create()
    clock.advance(MINUTE_MS)
    async with life(tmp_path, clock) as now:
        assert now.steps == {}
        clock.advance(RETENTION_MS)
        await now.run("retention")
        assert now.log_starts == {"created": 1, "stamped": 1}


async def test_flush_ms_and_delete_delays_do_not_mind_steps(
    tmp_path: Path, clock: ManualClock
) -> None:
    settings = {"flush_ms": 1000, "retention_bytes": 0, "file_delete_delay_ms": 5000}
    async with life(tmp_path, clock, **settings) as now:
        await now.create()
        log = now.broker.directory.log("created", 0)
        log.appender.append(message_set(NOW))
        clock.step(-YEAR_MS)
        clock.advance(1000)
        await now.run("flush")
        while log.recovery_point < log.log_end_offset:
            await now.run("flush")
        await now.run("retention")
        folder = now.broker.settings.data_dir / "created-0"
        assert list(folder.glob("*.deleted"))
        clock.step(2 * YEAR_MS)
        await now.run("deletion")
        assert list(folder.glob("*.deleted"))
        clock.step(-2 * YEAR_MS)
        clock.advance(5000)
        await now.run("deletion")
        assert not list(folder.glob("*.deleted"))
