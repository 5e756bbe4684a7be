"""Deadlines of a running broker's groups, and a loop that was held up."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from horolog.config.broker import broker_settings
from horolog.protocol.errors import NotCoordinator
from horolog.server.groups.member import Joined, Refused
from horolog.server.groups.service import LATE_SECONDS, GroupService
from horolog.storage.events import ignore_events
from horolog.testing.clock import ManualClock

from .conftest import joining


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def service(clock: ManualClock) -> AsyncIterator[GroupService]:
    emptied: list[str] = []
    loop = asyncio.get_running_loop()
    made = GroupService(loop, broker_settings(), clock, ignore_events, emptied.append)
    yield made
    made.stop()


async def enter(service: GroupService) -> str:
    joined = await service.join("g", "", joining())
    assert isinstance(joined, Joined)
    await service.sync("g", joined.member_id, 1, {})
    return joined.member_id


async def test_a_loop_that_is_late_reads_before_it_ends_sessions(
    service: GroupService, clock: ManualClock
) -> None:
    member_id = await enter(service)
    clock.advance(10_000)
    service._fire(asyncio.get_running_loop().time() - 2 * LATE_SECONDS)
    service.heartbeat("g", member_id, 1)
    service.look()
    service.heartbeat("g", member_id, 1)
    clock.advance(10_000)
    service._fire(asyncio.get_running_loop().time())
    assert service.figures().members == 0
    assert service.members_gone == {"session timed out": 1}


async def test_a_stop_answers_who_waits(service: GroupService) -> None:
    await enter(service)
    waiting = service.join("g", "", joining())
    service.stop()
    refused = await waiting
    assert isinstance(refused, Refused)
    assert refused.error is NotCoordinator
    with pytest.raises(NotCoordinator):
        service.join("g", "", joining())


async def test_figures(service: GroupService) -> None:
    member_id = await enter(service)
    figures = service.figures()
    assert (figures.members, figures.rebalances) == (1, 1)
    assert {state: number for state, number in figures.states.items() if number} == {"Stable": 1}
    service.leave("g", member_id)
    figures = service.figures()
    assert (figures.members, figures.size_bytes) == (0, 0)
    assert figures.members_gone == {"left": 1}
