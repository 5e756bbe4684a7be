"""Answers of one connection, sent in the order of its requests though some have to wait."""

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
    """An answer of which a part is in files. Its length is that of all parts."""

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
"""What a request gets: an answer at once, one later, or none ever (`None`)."""

MOST_LARGE: Final = 5
"""Requests of one connection that hold much and are not answered yet: as many as producers of Kafka
have in flight. The next one stays where it is, in the socket as far as it was not received."""

MAX_IN_PARTS = 4
"""Answers of which parts are in files, of one connection: each has file handles of its own."""


class AnswerQueue:
    """Collects the answers of a connection and hands them over in order.

    `turn_came` is called when the answer at the head, which others wait for, can be made, and when
    there is much that waits behind it though the work on it is done. `add` never calls it: the
    connection handles every frame of a read, then takes all answers at once.
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
        """Those that can be written before all others."""
        self.unmade: deque[Answer] = deque()
        """Those that are not made, and what stands behind them; for others to look at."""
        self.unanswered = 0
        """How many requests those are the answers of."""
        self.held_bytes = 0
        """Bytes of the answers that are made and not taken yet, and what requests hold whose
        answers are not made."""
        self.in_files_bytes = 0
        """How many of these are in files."""
        self.in_parts = 0
        """How many of these answers are in parts."""
        self.alone = 0
        """How many of those that are not made have to be before another request is handled."""
        self.large = 0
        """How many of those that are not made hold much."""
        self.work_bytes = 0
        """What those take that are worked on."""
        self.finished_bytes = 0
        """What those take whose work is done, and that others or the client keep waiting."""

    def __bool__(self) -> bool:
        return bool(self.made or self.unmade)

    @property
    def has_come(self) -> bool:
        """Whether the first answer may be written."""
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
        """The answers that may be written now, in order; they leave the queue.

        Pending answers are made only until there are `limit_bytes`, so one answer more than fits,
        or enough answers in parts. One may give another pending answer.
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
            self.work_bytes += answer.work_bytes
            answer.ready.add_done_callback(partial(self._finish, answer))
        answer.ready.add_done_callback(self._done)

    def _waits_no_more(self, answer: PendingAnswer) -> None:
        self.alone -= answer.alone
        self.held_bytes -= answer.held_bytes
        self.large -= answer.is_large
        if answer.is_finished:
            self.finished_bytes -= answer.work_bytes
        else:
            self.work_bytes -= answer.work_bytes
        answer.work_bytes = 0

    def _finish(self, answer: PendingAnswer, _: asyncio.Future[Any] | Wait) -> None:
        """The work on a request is done; its answer may have to wait for those before it."""
        if answer.work_bytes:
            answer.is_finished = True
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
        """End the waits of the answers that could still wait; whether there were some."""
        waiting = [
            answer.ready
            for answer in self.unmade
            if isinstance(answer, PendingAnswer) and answer.may_hurry and not answer.ready.done()
        ]
        for ready in waiting:
            ready.set_result(None)
        return bool(waiting)

    def cancel(self) -> None:
        """Forget everything and cancel what is being waited for."""
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
            ready.exception()  # marks it as seen, should the client be gone before it is made
        head = self.unmade[0] if self.unmade else None
        if isinstance(head, PendingAnswer) and head.ready.done():
            self._turn_came()
        elif self.alone:
            self._make_last()

    def _make_last(self) -> None:
        """Make the last answer, if requests behind it wait for that and it can be made, although
        the answers in front of it cannot be sent yet."""
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
    """An answer that raises `error` when its turn has come."""
    ready = Wait()
    ready.set_result(None)

    def make() -> Answer:
        raise error

    return PendingAnswer(ready, make)
