"""Background tasks: a pass that fails is counted and tried again, and never the last one."""

import asyncio

import pytest

from horolog.server.maintenance import FIRST_RETRY_MS, PeriodicTask

HOUR_MS = 3_600_000
YEAR_S = 31_536_000
TEST_S = 600
"""Longer than a test takes: time passes by itself, too."""


class Passes:
    """A pass that fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.count = 0
        self.running = 0
        self.began = asyncio.Event()

    async def __call__(self) -> None:
        self.count += 1
        self.running += 1
        assert self.running == 1
        self.began.set()
        await asyncio.sleep(0)
        self.running -= 1
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the disk is on fire")


class Events:
    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, object]]] = []

    def __call__(self, event: str, /, **fields: object) -> None:
        self.seen.append((event, fields))


@pytest.fixture
def events() -> Events:
    return Events()


def make(passes: Passes, events: Events, interval_ms: int = HOUR_MS) -> PeriodicTask:
    return PeriodicTask("sweep", passes, interval_ms=interval_ms, observe=events)


@pytest.mark.both_loops
async def test_the_first_pass_comes_after_its_delay(events: Events) -> None:
    passed = asyncio.Event()

    async def run() -> None:
        passed.set()

    task = PeriodicTask("sweep", run, interval_ms=HOUR_MS, observe=events)
    task.first_after(1)
    task.start()
    await passed.wait()
    await task.stop()
    assert events.seen == []


async def test_passes_come_again_and_again(events: Events) -> None:
    third = asyncio.Event()
    passes = 0

    async def run() -> None:
        nonlocal passes
        passes += 1
        if passes == 3:
            third.set()

    task = PeriodicTask("sweep", run, interval_ms=1, observe=events)
    task.start()
    await third.wait()
    await task.stop()


async def test_a_failing_pass_is_reported_and_the_next_one_runs(events: Events) -> None:
    passes = Passes(failures=2)
    task = make(passes, events)
    task.start()
    for _ in range(3):
        await task.run_now()
    await task.stop()
    assert passes.count == 3
    assert [(event, fields["failures"]) for event, fields in events.seen] == [
        ("task_failed", 1),
        ("task_failed", 2),
    ]
    assert all(fields["task"] == "sweep" for _, fields in events.seen)


async def test_the_wait_after_a_failure_doubles_up_to_the_interval(events: Events) -> None:
    task = make(Passes(failures=30), events, interval_ms=FIRST_RETRY_MS * 5)
    task.start()
    for _ in range(30):
        await task.run_now()
    await task.stop()
    waits = [fields["retry_ms"] for _, fields in events.seen]
    assert waits[:4] == [FIRST_RETRY_MS, FIRST_RETRY_MS * 2, FIRST_RETRY_MS * 4, FIRST_RETRY_MS * 5]
    assert set(waits[4:]) == {FIRST_RETRY_MS * 5}


async def test_a_good_pass_ends_the_series_of_failures(events: Events) -> None:
    passes = Passes(failures=1)
    task = make(passes, events)
    task.start()
    await task.run_now()
    await task.run_now()
    passes.failures = 1
    await task.run_now()
    await task.stop()
    assert [fields["failures"] for _, fields in events.seen] == [1, 1]


async def test_a_pass_asked_for_during_a_pass_is_one_of_its_own(events: Events) -> None:
    passes = Passes()
    task = make(passes, events)
    task.start()
    first = asyncio.ensure_future(task.run_now())
    await passes.began.wait()
    await task.run_now()
    await first
    await task.stop()
    assert passes.count == 2


@pytest.mark.both_loops
async def test_stopping_cancels_a_pass_that_hangs(events: Events) -> None:
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    task = PeriodicTask("sweep", hang, interval_ms=HOUR_MS, observe=events)
    task.start()
    task.soon()
    await started.wait()
    before = len(asyncio.all_tasks())
    await task.stop()
    assert len(asyncio.all_tasks()) == before - 1
    assert events.seen == []


async def test_stopping_a_task_that_never_started(events: Events) -> None:
    await make(Passes(), events).stop()


async def test_time_that_a_test_lets_pass_makes_a_task_due(events: Events) -> None:
    passes = Passes()
    task = make(passes, events, YEAR_S * 1000)
    task.start()
    await asyncio.sleep(0)
    assert not task.time_passed(YEAR_S - 5000)
    assert not task.time_passed(5000 - TEST_S)
    assert task.time_passed(TEST_S)
    await task.run_now()
    assert passes.count == 1
    assert not task.time_passed(YEAR_S - TEST_S)
    await task.stop()


async def test_time_that_passes_during_a_pass_counts_for_the_next_one(events: Events) -> None:
    due: list[bool] = []

    async def run() -> None:
        due.append(task.time_passed(3599))
        due.append(task.time_passed(3600))

    task = PeriodicTask("sweep", run, interval_ms=HOUR_MS, observe=events)
    task.start()
    await task.run_now()
    assert due == [False, True]
    await task.stop()
