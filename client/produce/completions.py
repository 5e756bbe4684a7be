"""Telling those who wait that their messages are in the log, some at a time.

A set can have thousands of messages, each with a task that waits for it. Were all of these woken at
once, nothing else would be done until all have run: the answer to the next set would lie unread,
and what they send next would lie unsent.
"""

import asyncio
from collections import deque
from typing import Final

from .delivery import Appended
from .outbox_batch import Batch

_TOLD_AT_ONCE: Final = 128


class Completions:
    """Of one partition. What is told stays in the order of the answers."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._answered: deque[tuple[Batch, Appended]] = deque()
        self._told = 0
        """How many of the first of these know."""
        self.task: asyncio.Task[None] | None = None
        """Runs as long as somebody is still to be told."""

    def tell(self, batch: Batch, appended: Appended) -> None:
        """Tell all who wait for `batch` where it is, the first of them now."""
        self._answered.append((batch, appended))
        if self.task is None:
            self._tell_some()
            if self._answered:
                self.task = asyncio.get_running_loop().create_task(self._tell_others())

    def finish(self) -> None:
        """Tell all the others now."""
        while self._answered:
            self._tell_some()

    async def _tell_others(self) -> None:
        try:
            while self._answered:
                await asyncio.sleep(0)
                if self._answered:
                    self._tell_some()
        finally:
            self.task = None

    def _tell_some(self) -> None:
        batch, appended = self._answered[0]
        begin, self._told = self._told, self._told + _TOLD_AT_ONCE
        if self._told >= len(batch.waiters):
            self._answered.popleft()
            self._told = 0
        batch.succeed(self._topic, self._partition, appended, slice(begin, begin + _TOLD_AT_ONCE))
