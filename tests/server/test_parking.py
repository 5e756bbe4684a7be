"""Requests that wait are woken by the partition they wait for, and by nothing else."""

import asyncio
import itertools
from functools import partial

import pytest

from horolog.server import parking
from horolog.server.parking import (
    CHECKED_AT_ONCE,
    WOKEN_AT_ONCE,
    ParkingLot,
    Partition,
    SharedWait,
    Wait,
)

FOREVER_MS = 3_600_000
A, B = ("a", 0), ("b", 1)


class Condition:
    """Says what it is told to say, and notes who it was asked about."""

    def __init__(self, answer: bool = False) -> None:
        self.answer = answer
        self.asked: list[Partition] = []

    def __call__(self, partition: Partition) -> bool:
        self.asked.append(partition)
        return self.answer


@pytest.fixture
async def lot() -> ParkingLot:
    return ParkingLot(asyncio.get_running_loop(), 3)


async def turn() -> None:
    for _ in range(2):
        await asyncio.sleep(0)


async def test_an_advance_that_satisfies_wakes(lot: ParkingLot) -> None:
    condition = Condition()
    ready = lot.park([A, B], condition, FOREVER_MS)
    lot.advanced(A)
    await turn()
    assert not ready.done()
    condition.answer = True
    lot.advanced(B)
    await ready
    assert condition.asked == [A, B]
    assert len(lot) == 0


async def test_an_append_that_all_pass_over_is_not_checked() -> None:
    lot = ParkingLot(asyncio.get_running_loop())
    condition = Condition()
    over = [False] * (CHECKED_AT_ONCE + 1)
    asked: list[tuple[object, object]] = []

    def passes_over(number: int, *of: object) -> bool:
        asked.append((of[0], of[1]))
        return over[number]

    def park(number: int) -> Wait:
        return lot.park([A], condition, FOREVER_MS, passes_over=partial(passes_over, number))

    waits = [park(0), park(1)]
    over[0] = True
    lot.appended(A, "log")
    await turn()
    assert (asked, condition.asked) == ([(A, "log")] * 2, [A, A])
    over[1] = True
    lot.appended(A, "log")
    lot.appended(B, "log")
    await turn()
    assert condition.asked == [A, A]
    other = lot.park([A], condition, FOREVER_MS)
    lot.appended(A, "log")
    await turn()
    assert condition.asked == [A] * 5
    other.cancel()
    waits += map(park, range(2, CHECKED_AT_ONCE + 1))
    over[:] = [True] * len(over)
    asked.clear()
    lot.appended(A, "log")
    await turn()
    assert (asked, len(condition.asked)) == ([], 5 + len(waits))
    for wait in waits:
        wait.cancel()


async def test_a_look_wakes_at_once(lot: ParkingLot) -> None:
    """Who is not in the middle of an append has those that are ready go on in this pass."""
    condition = Condition()
    ready, other = lot.park([A], condition, FOREVER_MS), lot.park([B], condition, FOREVER_MS)
    lot.look_at([A])
    assert not ready.done()
    condition.answer = True
    lot.look_at([A])
    assert (ready.done(), other.done()) == (True, False)
    assert condition.asked == [A, A]


async def test_other_partitions_are_not_asked_about(lot: ParkingLot) -> None:
    condition = Condition(answer=True)
    ready = lot.park([A], condition, FOREVER_MS)
    lot.advanced(B)
    await turn()
    assert condition.asked == []
    assert not ready.done()


async def test_many_advances_in_one_turn_are_one_look(lot: ParkingLot) -> None:
    condition = Condition()
    lot.park([A], condition, FOREVER_MS)
    for _ in range(100):
        lot.advanced(A)
    await turn()
    assert condition.asked == [A]


async def test_nothing_is_looked_at_from_within_an_append(lot: ParkingLot) -> None:
    condition = Condition(answer=True)
    ready = lot.park([A], condition, FOREVER_MS)
    lot.advanced(A)
    assert condition.asked == []
    await ready


@pytest.mark.both_loops
@pytest.mark.parametrize("wait_ms", [-5, 0, 20])
async def test_the_timer_wakes(lot: ParkingLot, wait_ms: int) -> None:
    condition = Condition()
    await lot.park([A], condition, wait_ms)
    assert condition.asked == []
    assert len(lot) == 0


async def test_a_cancelled_request_leaves(lot: ParkingLot) -> None:
    condition = Condition(answer=True)
    ready = lot.park([A, B], condition, FOREVER_MS)
    ready.cancel()
    await turn()
    assert len(lot) == 0
    lot.advanced(A)
    await turn()
    assert condition.asked == []


async def test_a_partition_named_twice_is_one(lot: ParkingLot) -> None:
    ready = lot.park([A, A], Condition(answer=True), FOREVER_MS)
    lot.advanced(A)
    await ready
    assert len(lot) == 0


async def test_full_at_its_capacity(lot: ParkingLot) -> None:
    waiting = [lot.park([A], Condition(), FOREVER_MS) for _ in range(2)]
    assert lot.has_room(1)
    waiting.append(lot.park([B], Condition(), FOREVER_MS))
    assert not lot.has_room(1)
    waiting[0].cancel()
    await turn()
    assert lot.has_room(1)


async def test_full_when_requests_name_too_many_partitions() -> None:
    lot = ParkingLot(asyncio.get_running_loop(), 100, 1000)
    waiting = lot.park([A], Condition(), FOREVER_MS, named_partitions=900)
    assert lot.has_room(100)
    assert not lot.has_room(101)
    waiting.cancel()
    await turn()
    assert lot.has_room(1000)


async def test_somebody_else_may_end_a_wait(lot: ParkingLot) -> None:
    ready = lot.park([A], Condition(), FOREVER_MS)
    ready.set_result(None)
    await turn()
    assert len(lot) == 0


async def test_who_waits_goes_on_within_the_call_that_ends_it(lot: ParkingLot) -> None:
    """And finds all over that were satisfied with it: their answers are one write."""
    condition = Condition(answer=True)
    waits = [lot.park([one], condition, FOREVER_MS) for one in (A, B, A)]
    other = lot.park([A], Condition(), FOREVER_MS) if lot.has_room(1) else None
    assert other is None
    found = []
    for wait in waits:
        wait.add_done_callback(lambda _: found.append([one.done() for one in waits]))
    lot.look_at([A, B])
    assert found == [[True] * 3] * 3
    assert condition.asked == [A, A, B]
    assert len(lot) == 0


async def test_who_waits_for_several_is_asked_about_until_it_is_satisfied(lot: ParkingLot) -> None:
    condition = Condition(answer=True)
    called: list[Wait] = []
    lot.park([A, B], condition, FOREVER_MS).add_done_callback(called.append)
    lot.look_at([A, B])
    assert condition.asked == [A]
    assert len(called) == 1


async def test_what_is_over_stays_so(lot: ParkingLot) -> None:
    called: list[Wait] = []
    wait = lot.park([A], Condition(answer=True), FOREVER_MS)
    wait.add_done_callback(called.append)
    wait.set_result(None)
    wait.cancel()
    wait.set_result(None)
    lot.look_at([A])
    assert (wait.done(), wait.cancelled()) == (True, False)
    assert called == [wait]
    await wait  # ends at once


@pytest.mark.parametrize("first", ["wait", "task"])
async def test_a_wait_and_the_task_that_awaits_it_are_cancelled_together(
    lot: ParkingLot, first: str
) -> None:
    wait = lot.park([A], Condition(), FOREVER_MS)
    task = asyncio.ensure_future(wait)
    await turn()
    (wait if first == "wait" else task).cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wait.cancelled()
    assert len(lot) == 0
    with pytest.raises(asyncio.CancelledError):
        await wait


async def test_one_of_several_that_share_a_wait_does_not_end_it(lot: ParkingLot) -> None:
    wait = lot.park([A], Condition(answer=True), FOREVER_MS)
    shared = SharedWait(wait)
    shared.cancel()
    assert (shared.done(), wait.done(), len(lot)) == (False, False, 1)
    lot.look_at([A])
    assert (shared.done(), shared.cancelled()) == (True, False)


async def test_those_that_are_satisfied_go_on_where_another_one_fails(lot: ParkingLot) -> None:
    def fails(partition: Partition) -> bool:
        raise ValueError(partition)

    first = lot.park([A], Condition(answer=True), FOREVER_MS)
    lot.park([A], fails, FOREVER_MS)
    called: list[Wait] = []
    first.add_done_callback(called.append)
    with pytest.raises(ValueError, match="a"):
        lot.look_at([A])
    assert called == [first]


async def test_many_are_woken_in_several_passes_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them is asked once, those that are not satisfied too."""
    clock = itertools.count()
    monkeypatch.setattr(parking, "thread_time", lambda: next(clock))
    monkeypatch.setattr(parking, "PASS_SECONDS", WOKEN_AT_ONCE // CHECKED_AT_ONCE)
    lot = ParkingLot(asyncio.get_running_loop())
    many = 3 * WOKEN_AT_ONCE
    unsatisfied = Condition()
    others = [lot.park([A], unsatisfied, FOREVER_MS) for _ in range(many)]
    waits = [lot.park([A, B], Condition(answer=True), FOREVER_MS) for _ in range(many)]
    lot.look_at([A, B])
    assert len(unsatisfied.asked) == WOKEN_AT_ONCE
    waits[-1].cancel()
    passes = 0
    while not all(wait.done() for wait in waits):
        await asyncio.sleep(0)
        passes += 1
    assert 5 <= passes <= 8
    assert len(unsatisfied.asked) == many
    assert not any(other.done() for other in others)


async def test_a_look_that_fails_keeps_none_of_the_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parking, "WOKEN_AT_ONCE", 1)
    lot = ParkingLot(asyncio.get_running_loop())

    def fail(_: Partition) -> bool:
        raise RuntimeError("no")

    lot.park([A], fail, FOREVER_MS)
    waiting = lot.park([A], Condition(answer=True), FOREVER_MS)
    with pytest.raises(RuntimeError, match="no"):
        lot.look_at([A])
    await waiting
