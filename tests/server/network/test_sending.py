"""Answers leave in the order of the requests, and are made only when there is room for them."""

import asyncio

import pytest

from horolog.server.network.held_memory import FREE_BYTES
from horolog.server.network.sending import AnswerQueue
from horolog.server.requests import PendingAnswer

NO_LIMIT = 1 << 30


def come(answer: PendingAnswer) -> None:
    """What an answer waits for is there."""
    assert isinstance(answer.ready, asyncio.Future)
    answer.ready.set_result(None)


class Turns:
    """Counts how often the queue said that an answer's turn has come."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def deferred(data: bytes | None, made: list[bytes | None] | None = None) -> PendingAnswer:
    def make() -> bytes | None:
        if made is not None:
            made.append(data)
        return data

    return PendingAnswer(asyncio.get_running_loop().create_future(), make)


async def settle() -> None:
    """Let the callbacks of done futures run."""
    for _ in range(2):
        await asyncio.sleep(0)


async def test_answers_at_once_are_taken_together() -> None:
    queue = AnswerQueue(Turns())
    for answer in (b"a", None, b"b"):
        queue.add(answer)
    assert len(queue.unmade) == 0
    assert queue.held_bytes == 2
    assert queue.take(NO_LIMIT) == [b"a", b"b"]
    assert not queue
    assert queue.held_bytes == 0


async def test_an_answer_to_several_requests_counts_as_so_many() -> None:
    queue = AnswerQueue(Turns())
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    several = PendingAnswer(ready, lambda: b"12345", requests=5)
    for answer in (b"0", several, b"6", deferred(b"7")):
        queue.add(answer)
    assert queue.unanswered == 7
    come(several)
    await settle()
    assert queue.take(NO_LIMIT) == [b"0", b"12345", b"6"]
    assert queue.unanswered == 1
    queue.cancel()
    assert queue.unanswered == 0


async def test_what_stands_behind_a_waiting_answer_waits_too() -> None:
    turns = Turns()
    queue = AnswerQueue(turns)
    first, second = deferred(b"1"), deferred(b"3")
    for answer in (b"0", first, b"2", None, second, b"4"):
        queue.add(answer)
    assert len(queue.unmade) == 5
    assert queue.take(NO_LIMIT) == [b"0"]

    come(second)
    await settle()
    assert turns.count == 0
    assert queue.take(NO_LIMIT) == []

    come(first)
    await settle()
    assert turns.count > 0
    assert queue.take(NO_LIMIT) == [b"1", b"2", b"3", b"4"]
    assert len(queue.unmade) == 0
    assert queue.held_bytes == 0


async def test_deferred_answers_are_made_only_up_to_the_limit() -> None:
    made: list[bytes | None] = []
    queue = AnswerQueue(Turns())
    answers = [deferred(bytes([number]) * 10, made) for number in range(5)]
    for answer in answers:
        come(answer)
        queue.add(answer)
    await settle()
    assert len(queue.take(15)) == 2
    assert len(made) == 2
    assert len(queue.take(1)) == 1
    assert len(queue.take(NO_LIMIT)) == 2
    assert made == [bytes([number]) * 10 for number in range(5)]


async def test_a_deferred_answer_may_turn_out_to_be_none() -> None:
    queue = AnswerQueue(Turns())
    nothing = deferred(None)
    queue.add(nothing)
    queue.add(b"after")
    come(nothing)
    await settle()
    assert queue.take(NO_LIMIT) == [b"after"]


async def test_cancelling_cancels_what_is_waited_for_and_forgets_the_rest() -> None:
    turns = Turns()
    queue = AnswerQueue(turns)
    waiting = deferred(b"never")
    queue.add(waiting)
    queue.add(b"behind")
    queue.cancel()
    await settle()
    assert waiting.ready.cancelled()
    assert turns.count == 0
    assert not queue
    assert queue.take(NO_LIMIT) == []


async def test_an_answer_cancelled_by_others_does_not_block_those_behind_it() -> None:
    queue = AnswerQueue(Turns())
    gone = deferred(b"gone")
    queue.add(gone)
    queue.add(b"behind")
    gone.ready.cancel()
    await settle()
    assert queue.take(NO_LIMIT) == [b"behind"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_the_order_in_which_answers_get_ready_does_not_matter(
    order: tuple[int, ...],
) -> None:
    queue = AnswerQueue(Turns())
    answers = [deferred(bytes([number])) for number in range(3)]
    for answer in answers:
        queue.add(answer)
    taken = []
    for number in order:
        come(answers[number])
        await settle()
        taken += queue.take(NO_LIMIT)
    assert taken == [b"\0", b"\1", b"\2"]


async def test_a_deferred_answer_may_be_deferred_again() -> None:
    turns = Turns()
    queue = AnswerQueue(turns)
    second = deferred(b"at last")
    first = PendingAnswer(asyncio.get_running_loop().create_future(), lambda: second)
    queue.add(first)
    queue.add(b"behind")
    come(first)
    await settle()
    assert queue.take(NO_LIMIT) == []
    assert len(queue.unmade) == 2
    before = turns.count
    come(second)
    await settle()
    assert turns.count > before
    assert queue.take(NO_LIMIT) == [b"at last", b"behind"]


async def test_hurrying_ends_only_the_waits_that_may_be_ended() -> None:
    queue = AnswerQueue(Turns())
    patient = deferred(b"needs its sync")
    hasty = PendingAnswer(
        asyncio.get_running_loop().create_future(), lambda: b"what there is", may_hurry=True
    )
    queue.add(patient)
    queue.add(hasty)
    queue.hurry()
    queue.hurry()
    assert hasty.ready.done()
    assert not patient.ready.done()


async def test_what_is_worked_on_counts_as_work_until_it_is_done_and_as_left_until_it_is_sent() -> (
    None
):
    turns = Turns()
    queue = AnswerQueue(turns)
    head, behind = deferred(b"1"), deferred(b"2")
    behind.work_bytes, behind.is_large = FREE_BYTES + 1, True
    queue.add(head)
    queue.add(behind)
    assert (queue.work_bytes, queue.finished_bytes, queue.large) == (FREE_BYTES + 1, 0, 1)
    come(behind)
    await settle()
    assert (queue.work_bytes, queue.finished_bytes, queue.large) == (0, FREE_BYTES + 1, 1)
    assert turns.count == 1, "what waits behind others has to be noted"
    come(head)
    await settle()
    assert queue.take(NO_LIMIT) == [b"1", b"2"]
    assert (queue.work_bytes, queue.finished_bytes, queue.large) == (0, 0, 0)


async def test_what_waits_counts_elsewhere_and_as_left_once_its_wait_is_over() -> None:
    queue = AnswerQueue(Turns())
    first, second = deferred(b"1"), deferred(b"2")
    for each in first, second:
        each.work_bytes, each.is_large, each.is_waiting = 7, True, True
        queue.add(each)
    assert (queue.work_bytes, queue.finished_bytes, queue.large) == (0, 0, 2)
    come(second)
    await settle()
    assert (queue.work_bytes, queue.finished_bytes, queue.large) == (0, 7, 2)
    come(first)
    assert queue.take(NO_LIMIT) == [b"1", b"2"]
    assert (queue.work_bytes, queue.finished_bytes, queue.large) == (0, 0, 0)
    queue.add(waiting := deferred(b"3"))
    waiting.work_bytes, waiting.is_waiting = 7, True
    queue.cancel()
    await settle()
    assert (queue.work_bytes, queue.finished_bytes, queue.large) == (0, 0, 0)


async def test_an_answer_that_is_deferred_again_counts_again() -> None:
    queue = AnswerQueue(Turns())
    second = deferred(b"2")
    second.work_bytes, second.is_large = 7, True
    first = PendingAnswer(
        asyncio.get_running_loop().create_future(), lambda: second, work_bytes=5, is_large=True
    )
    queue.add(first)
    come(first)
    assert queue.take(NO_LIMIT) == []
    assert (queue.work_bytes, queue.finished_bytes, queue.large) == (7, 0, 1)
    await settle()
    assert (queue.work_bytes, queue.finished_bytes, queue.large) == (7, 0, 1)
    queue.cancel()
    await settle()
    assert (queue.work_bytes, queue.finished_bytes, queue.large) == (0, 0, 0)
