"""Queue of one connection's answers, which are sent in the order of the requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ...protocol.api.writing import InMemory, Part
from ..parking import Wait
from ..requests import PendingAnswer
from .held_memory import FREE_BYTES


class AnswerInParts:
    """An answer that is partly in files. Its length is that of all parts."""

    __slots__ = ("_size_bytes", "memory_bytes", "parts")

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.memory_bytes = sum(len(part) for part in parts if isinstance(part, InMemory))
        self._size_bytes = sum(map(len, parts))

    def __len__(self) -> int:
        return self._size_bytes


Made = bytes | AnswerInParts
"""An answer that can be sent."""

Answer = Made | PendingAnswer | None
"""Outcome of a request: an answer, a pending answer, or None for no answer."""

MOST_LARGE: Final = 5
"""Largest number of large unanswered requests of one connection: as many as Kafka's producers have
in flight. The next one stays unhandled, as far as possible in the socket."""

MAX_IN_PARTS = 4
"""Answers of one connection with parts in files; each holds its own file handles."""


class AnswerQueue:
    """Collects the answers of a connection and returns them in order.

    `turn_came` is called when the first answer, for which others wait, can be made, and when much
    finished work waits behind it. `add` never calls it: the connection handles all frames of a
    read, then takes all answers at once.
    """

    __slots__ = (
        "_turn_came",
        "alone",
        "finished_bytes",
        "held_bytes",
        "in_files_bytes",
        "in_parts",
        "large",
        "made",
        "unanswered",
        "unmade",
        "work_bytes",
    )

    def __init__(self, turn_came: Callable[[], None]) -> None:
        self._turn_came = turn_came
        self.made: list[Made] = []
        """Answers that can be written before all others."""
        self.unmade: deque[Answer] = deque()
        """Pending answers and the answers behind them. Other classes may read this."""
        self.unanswered = 0
        """Number of requests to which `unmade` holds the answers."""
        self.held_bytes = 0
        """Bytes of finished answers in the queue, and of requests with pending answers."""
        self.in_files_bytes = 0
        """Bytes of `held_bytes` that are in files."""
        self.in_parts = 0
        """Number of finished answers with parts in files."""
        self.alone = 0
        """Number of pending answers that must be made before another request is handled."""
        self.large = 0
        """Number of pending answers that hold much memory."""
        self.work_bytes = 0
        """Memory of requests in progress, with their answers."""
        self.finished_bytes = 0
        """Memory of finished work whose answer waits for earlier answers or for the client."""

    def __bool__(self) -> bool:
        return bool(self.made or self.unmade)

    @property
    def has_come(self) -> bool:
        """Whether the first answer can be written."""
        if self.made or not self.unmade:
            return bool(self.made)
        head = self.unmade[0]
        return not isinstance(head, PendingAnswer) or head.ready.done()

    def add(self, answer: Answer) -> None:
        """Queue the answer of the next request."""
        if isinstance(answer, PendingAnswer):
            self.unmade.append(answer)
            self.unanswered += answer.requests
            self._waits(answer)
            return
        if answer is not None:
            self.held_bytes += len(answer)
            if isinstance(answer, AnswerInParts):
                self.in_parts += 1
                self.in_files_bytes += len(answer) - answer.memory_bytes
        if self.unmade:
            self.unmade.append(answer)
            self.unanswered += 1
        elif answer is not None:
            self.made.append(answer)

    def take(self, limit_bytes: int) -> list[Made]:
        """Remove and return the answers that can be written now, in order.

        Pending answers are made until there are `limit_bytes`, so one answer may exceed them, or
        until there are `MAX_IN_PARTS` answers in parts. A pending answer may turn into another
        pending one.
        """
        waiting = self.unmade
        taken = self.made
        self.made = []
        if not waiting:
            self.held_bytes = self.in_files_bytes = self.in_parts = 0
            return taken
        taken_bytes = sum(map(len, taken))
        taken_in_parts = 0
        for each in taken:
            self._leaves(each)
        while waiting:
            answer = waiting[0]
            if isinstance(answer, PendingAnswer):
                if taken_bytes >= limit_bytes or taken_in_parts >= MAX_IN_PARTS:
                    break
                if not answer.ready.done():
                    break
                made = None if answer.ready.cancelled() else answer.make()
                self._waits_no_more(answer)
                if isinstance(made, PendingAnswer):
                    waiting[0] = made
                    self.unanswered += made.requests - answer.requests
                    self._waits(made)
                    continue
            else:
                made = answer
                if made is not None:
                    self._leaves(made)
            waiting.popleft()
            self.unanswered -= answer.requests if isinstance(answer, PendingAnswer) else 1
            if made is not None:
                taken.append(made)
                taken_bytes += len(made)
                taken_in_parts += isinstance(made, AnswerInParts)
        return taken

    def _waits(self, answer: PendingAnswer) -> None:
        self.alone += answer.alone
        self.held_bytes += answer.held_bytes
        self.large += answer.is_large
        if answer.work_bytes:
            if not answer.is_waiting:
                self.work_bytes += answer.work_bytes
            answer.ready.add_done_callback(partial(self._finish, answer))
        answer.ready.add_done_callback(self._done)

    def _waits_no_more(self, answer: PendingAnswer) -> None:
        self.alone -= answer.alone
        self.held_bytes -= answer.held_bytes
        self.large -= answer.is_large
        if answer.is_finished:
            self.finished_bytes -= answer.work_bytes
        elif not answer.is_waiting:
            self.work_bytes -= answer.work_bytes
        answer.work_bytes = 0

    def _finish(self, answer: PendingAnswer, _: asyncio.Future[Any] | Wait) -> None:
        """Record that the work on a request is done; its answer may still wait for earlier ones."""
        if answer.work_bytes:
            answer.is_finished = True
            if not answer.is_waiting:
                self.work_bytes -= answer.work_bytes
            self.finished_bytes += answer.work_bytes
            if self.finished_bytes > FREE_BYTES and answer is not self.unmade[0]:
                self._turn_came()

    def _leaves(self, made: Made) -> None:
        self.held_bytes -= len(made)
        if isinstance(made, AnswerInParts):
            self.in_parts -= 1
            self.in_files_bytes -= len(made) - made.memory_bytes

    def hurry(self) -> bool:
        """End the waits of pending answers that allow it. Returns whether there were any."""
        waiting = [
            answer.ready
            for answer in self.unmade
            if isinstance(answer, PendingAnswer) and answer.may_hurry and not answer.ready.done()
        ]
        for ready in waiting:
            ready.set_result(None)
        return bool(waiting)

    def cancel(self) -> None:
        """Drop all answers, and cancel the work for them."""
        waiting = list(self.unmade)
        self.unmade.clear()
        self.made.clear()
        self.held_bytes = self.in_files_bytes = self.in_parts = self.alone = self.unanswered = 0
        self.work_bytes = self.finished_bytes = self.large = 0
        for answer in waiting:
            if isinstance(answer, PendingAnswer):
                answer.work_bytes = 0
                answer.ready.cancel()

    def _done(self, ready: asyncio.Future[Any] | Wait) -> None:
        if not isinstance(ready, Wait) and not ready.cancelled():
            ready.exception()  # marks the error as retrieved, even if the client is gone
        head = self.unmade[0] if self.unmade else None
        if isinstance(head, PendingAnswer) and head.ready.done():
            self._turn_came()
        elif self.alone:
            self._make_last()

    def _make_last(self) -> None:
        """Make the last answer although earlier ones cannot be sent yet, if later requests wait for
        it."""
        last = self.unmade[-1]
        if not (isinstance(last, PendingAnswer) and last.alone and last.ready.done()):
            return
        self.unmade.pop()
        self.unanswered -= last.requests
        try:
            made = None if last.ready.cancelled() else last.make()
        except Exception as error:
            made = _failed(error)
        self._waits_no_more(last)
        self.add(made)
        self._turn_came()


def _failed(error: Exception) -> PendingAnswer:
    """Return an answer that raises `error` when its turn comes."""
    ready = Wait()
    ready.set_result(None)

    def make() -> Answer:
        raise error

    return PendingAnswer(ready, make)
