"""Long computations take turns on the loop, one turn in each of its passes."""

import asyncio

import pytest

from horolog.server.work import MAX_TURN_SECONDS, TURN_SECONDS, Turns, Work


def _ends_at_once(work: Work) -> Turns:
    """Turns on a clock on which each look takes longer than a turn."""
    now = iter(number * TURN_SECONDS * 2 for number in range(1_000_000))
    return Turns(lambda: next(now), work.next_turn)


def test_each_pass_of_the_loop_gives_one_turn_however_many_compute() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        work = Work(loop)
        passes = 0
        turns_in: list[int] = []
        done = False

        def count_passes() -> None:
            nonlocal passes
            passes += 1
            if not done:
                loop.call_soon(count_passes)

        async def compute() -> None:
            turns = _ends_at_once(work)
            for _ in range(5):
                await turns.give_way()
                turns_in.append(passes)

        count_passes()
        await asyncio.gather(*(work.start(compute()) for _ in range(20)))
        done = True
        await work.stop()
        assert len(turns_in) == 100
        assert len(set(turns_in)) == 100

    asyncio.run(scenario())


def test_turns_go_round() -> None:
    async def scenario() -> None:
        work = Work(asyncio.get_running_loop())
        order: list[int] = []

        async def compute(number: int) -> None:
            turns = _ends_at_once(work)
            for _ in range(3):
                await turns.give_way()
                order.append(number)

        await asyncio.gather(*(work.start(compute(number)) for number in range(4)))
        await work.stop()
        assert order == [0, 1, 2, 3] * 3

    asyncio.run(scenario())


def test_who_is_cancelled_while_waiting_takes_no_turn_from_the_others() -> None:
    async def scenario() -> None:
        work = Work(asyncio.get_running_loop())

        async def compute() -> str:
            await _ends_at_once(work).give_way()
            return "done"

        first, second, third = (work.start(compute()) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        assert await third == "done"
        assert await work.start(compute()) == "done"
        await work.stop()

    asyncio.run(scenario())


def test_a_short_computation_never_gives_way() -> None:
    async def scenario() -> None:
        work = Work(asyncio.get_running_loop())
        turns = Turns(lambda: 0.0, work.next_turn)
        others: list[None] = []
        asyncio.get_running_loop().call_soon(others.append, None)
        for _ in range(100):
            await turns.give_way()
        assert not others
        await work.stop()

    asyncio.run(scenario())


def test_a_turn_is_as_long_as_the_others_took_within_bounds() -> None:
    async def turn_after(others_took: float) -> float:
        """Seconds of the turn that follows a pass of the loop in which others took so long."""
        work = Work(asyncio.get_running_loop())
        now = 0.0
        turns = Turns(lambda: now, work.next_turn)
        now = TURN_SECONDS
        waiting = work.start(turns.give_way())
        await asyncio.sleep(0)
        now = began = now + others_took
        await waiting
        while not turns.over:
            now += TURN_SECONDS / 100
        await work.stop()
        return now - began

    async def scenario() -> None:
        assert await turn_after(0.0) == pytest.approx(TURN_SECONDS, rel=0.05)
        assert await turn_after(TURN_SECONDS * 2) == pytest.approx(TURN_SECONDS * 2, rel=0.05)
        assert await turn_after(60.0) == pytest.approx(MAX_TURN_SECONDS, rel=0.05)

    asyncio.run(scenario())


def test_what_is_begun_at_once_is_done_without_a_pass_of_the_loop() -> None:
    """One in each pass; the others wait for the next."""

    async def scenario() -> None:
        work = Work(asyncio.get_running_loop())
        begun: list[int] = []

        async def compute(number: int) -> int:
            begun.append(number)
            return number

        first, second = (work.start_now(compute(number)) for number in range(2))
        assert first.done()
        assert begun == [0]
        assert (await first, await second) == (0, 1)
        await asyncio.sleep(0)
        assert work.start_now(compute(2)).done()
        assert work.is_quiet
        await work.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [None, KeyError("lost")], ids=["result", "error"])
def test_what_is_begun_at_once_goes_on_as_a_task(error: Exception | None) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        work = Work(loop)
        awaited: asyncio.Future[int] = loop.create_future()

        async def compute() -> int:
            found = await awaited
            await asyncio.sleep(0)
            return found + await asyncio.wait_for(asyncio.sleep(0, 1), 10)

        begun = work.start_now(compute())
        assert not begun.done()
        assert not work.is_quiet
        if error is None:
            awaited.set_result(41)
            assert await begun == 42
        else:
            awaited.set_exception(error)
            with pytest.raises(KeyError, match="lost"):
                await begun
        await work.stop()

    asyncio.run(scenario())


def test_what_is_begun_at_once_can_be_cancelled() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        work, cleaned_up = Work(loop), list[str]()

        async def compute() -> None:
            try:
                await loop.create_future()
            finally:
                cleaned_up.append("yes")

        begun = work.start_now(compute())
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun
        await asyncio.sleep(0)
        last = work.start_now(compute())
        await work.stop()
        assert last.cancelled()
        assert cleaned_up == ["yes", "yes"]

    asyncio.run(scenario())


def test_an_error_before_the_first_wait_is_raised() -> None:
    async def scenario() -> None:
        work = Work(asyncio.get_running_loop())

        async def compute() -> None:
            raise KeyError("at once")

        with pytest.raises(KeyError, match="at once"):
            await work.start_now(compute())
        await work.stop()

    asyncio.run(scenario())
