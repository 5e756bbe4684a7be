"""Deadlines of a running broker's groups, and a loop that was held up."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from horolog.config.broker import broker_settings
from horolog.protocol.errors import NotCoordinator
from horolog.server.groups.desk import LATE_SECONDS, GroupDesk
from horolog.server.groups.member import Joined, Refused
from horolog.storage.events import ignore_events
from horolog.testing.clock import ManualClock

from .conftest import joining


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def desk(clock: ManualClock) -> AsyncIterator[GroupDesk]:
    emptied: list[str] = []
    loop = asyncio.get_running_loop()
    made = GroupDesk(loop, broker_settings(), clock, ignore_events, emptied.append)
    yield made
    made.stop()


async def enter(desk: GroupDesk) -> str:
    joined = await desk.join("g", "", joining())
    assert isinstance(joined, Joined)
    await desk.sync("g", joined.member_id, 1, {})
    return joined.member_id


async def test_a_loop_that_is_late_reads_before_it_ends_sessions(
    desk: GroupDesk, clock: ManualClock
) -> None:
    member_id = await enter(desk)
    clock.advance(10_000)
    desk._fires(asyncio.get_running_loop().time() - 2 * LATE_SECONDS)
    desk.heartbeat("g", member_id, 1)
    desk.look()
    desk.heartbeat("g", member_id, 1)
    clock.advance(10_000)
    desk._fires(asyncio.get_running_loop().time())
    assert desk.figures().members == 0
    assert desk.members_gone == {"session timed out": 1}


async def test_a_stop_answers_who_waits(desk: GroupDesk) -> None:
    await enter(desk)
    waiting = desk.join("g", "", joining())
    desk.stop()
    refused = await waiting
    assert isinstance(refused, Refused)
    assert refused.error is NotCoordinator
    with pytest.raises(NotCoordinator):
        desk.join("g", "", joining())


async def test_figures(desk: GroupDesk) -> None:
    member_id = await enter(desk)
    figures = desk.figures()
    assert (figures.members, figures.rebalances) == (1, 1)
    assert {state: number for state, number in figures.states.items() if number} == {"Stable": 1}
    desk.leave("g", member_id)
    figures = desk.figures()
    assert (figures.members, figures.size_bytes) == (0, 0)
    assert figures.members_gone == {"left": 1}
