"""Steps behind the answers of a turn."""

from collections.abc import Callable
from pathlib import Path

import pytest

from horolog.server.outcomes import NO_ERROR_NAME
from horolog.server.work import Deferrals
from horolog.testing.broker import running_broker
from horolog.testing.requests import create_topic, message_set, produce
from horolog.testing.wire import wire


def test_steps_are_done_in_their_order_and_once() -> None:
    asked: list[Callable[[], None]] = []
    done: list[int] = []
    deferrals = Deferrals(asked.append)

    def step(number: int) -> None:
        done.append(number)
        if number == 1:
            deferrals.add(step, 3)

    deferrals.add(step, 1)
    deferrals.add(step, 2)
    assert (len(asked), done) == (1, [])
    asked.pop()()
    assert done == [1, 2, 3]
    deferrals.add(step, 4)
    while asked:
        asked.pop(0)()
    assert done == [1, 2, 3, 4]


def test_a_step_that_fails_keeps_no_other_from_being_done() -> None:
    asked: list[Callable[[], None]] = []
    done: list[str] = []
    deferrals = Deferrals(asked.append)

    def fail() -> None:
        raise ValueError("no number")

    deferrals.add(done.append, "before")
    deferrals.add(fail)
    deferrals.add(done.append, "behind")
    with pytest.raises(ValueError, match="no number"):
        asked.pop()()
    asked.pop()()
    assert (done, asked) == (["before", "behind"], [])


async def test_requests_that_came_together_are_counted_when_their_answers_are_read(
    tmp_path: Path,
) -> None:
    together = 7
    async with running_broker(tmp_path) as broker, wire(broker.addresses.native) as client:
        await client.call(create_topic("a"))
        client.send_together(*[produce("a", message_set(1), acks=1)] * together)
        for _ in range(together):
            await client.receive()
        topic = broker.figures.topic("a")
        assert broker.figures.requests["produce", NO_ERROR_NAME] == together
        assert sum(broker.figures.request_time("produce").counts) == together
        assert (topic.messages, topic.latency.timed) == (together, together)
