"""Fault 24: a disk that takes its time for every sync, and a loop that is kept busy."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from horolog.protocol.api.groups.heartbeat import HeartbeatRequest
from horolog.protocol.api.groups.join_group import JoinGroupProtocol, JoinGroupRequest
from horolog.protocol.api.groups.sync_group import SyncGroupAssignment, SyncGroupRequest
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.log.produce import PRODUCE
from horolog.protocol.api.topics.metadata import MetadataRequest
from horolog.server.metrics.figures import FSYNC_BUCKETS_SECONDS, INTERVAL_SECONDS, LoopLag, Spread
from horolog.storage.files import SystemFiles
from horolog.testing.broker import running_broker
from horolog.testing.files import FaultyFiles
from horolog.testing.requests import fetch, message_set, produce, result
from horolog.testing.waiting import until
from horolog.testing.wire import Wire, wire


async def joined(client: Wire) -> HeartbeatRequest:
    """The heartbeat of a group's only member."""
    protocols = [JoinGroupProtocol(name="range", metadata=b"")]
    answer = await client.call(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        ),
        3,
    )
    assert answer.error_code == 0
    shares = [SyncGroupAssignment(member_id=answer.member_id, assignment=b"all")]
    member: dict[str, Any] = {
        "group_id": "g",
        "generation_id": answer.generation_id,
        "member_id": answer.member_id,
    }
    assert (await client.call(SyncGroupRequest(**member, assignments=shares))).error_code == 0
    return HeartbeatRequest(**member)


@pytest.mark.both_loops
async def test_24_members_of_groups_are_heard_while_the_disk_syncs(tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    async with running_broker(
        tmp_path, files=files, http_listen="off", kafka_listen="127.0.0.1:0"
    ) as broker:
        assert broker.addresses.kafka is not None
        async with (
            wire(broker.addresses.kafka, kafka) as durable,
            wire(broker.addresses.kafka, kafka) as other,
        ):
            await durable.call(produce("t", message_set(-1), acks=-1), 2)
            heartbeat = await joined(other)
            slow = files.hold("sync", ".log")
            durable.send(PRODUCE, 2, produce("t", message_set(-1), acks=-1))
            await until(slow.reached.is_set)
            for _ in range(10):
                assert (await other.call(heartbeat)).error_code == 0
                (topic,) = (await other.call(MetadataRequest(topics=None))).topics
                assert topic.name == "t"
                assert result(await other.call(fetch("t", (0, 0)), 3)).high_watermark == 1
            slow.let_go()
            _, response = await durable.receive()
            assert (result(response).error_code, result(response).base_offset) == (0, 1)


class SlowLoop:
    """A loop whose time is told by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[..., None], Any]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., None], argument: float) -> "SlowLoop":
        self.timers.append((when, callback, argument))
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def turn(self, late: float) -> None:
        """Call what is due, so much later than that."""
        when, callback, argument = self.timers.pop()
        self.now = when + late
        callback(argument)


def test_24_the_lag_of_the_loop_is_counted() -> None:
    loop = SlowLoop()
    spread = Spread(FSYNC_BUCKETS_SECONDS)
    lag = LoopLag(cast(asyncio.AbstractEventLoop, loop), spread)
    lag.start()
    for late in (0.0, 2.0, 0.0, 7.0):
        assert loop.timers[0][0] == loop.now + INTERVAL_SECONDS
        loop.turn(late)
    assert spread.sum_seconds == pytest.approx(9.0)
    assert spread.counts[0] == 2
    assert spread.counts[-2:] == [1, 1]  # up to 5 s, and more
    lag.stop()
    assert not loop.timers


async def test_24_a_broker_shows_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path, http_listen="off") as broker:
        await until(lambda: sum(broker.figures.loop_lag.counts))
        count = sum(broker.figures.loop_lag.counts)
        assert b"horolog_loop_lag_seconds_count %d.0\n" % count in broker.metrics_text()
