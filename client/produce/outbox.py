"""What waits for the broker, partition by partition.

A partition's sets go one at a time: the next one is sent when the one before it has been answered,
or given up. So a set that has to be sent again is never overtaken.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from ...protocol.errors import InvalidRecord, InvalidTimestamp
from ..errors import ClientClosed
from ..results import SentRecord
from .byte_budget import ByteBudget
from .delivery import AppendedSet
from .encoding import Headers
from .outbox_batch import Batch
from .set_limits import TOO_LARGE

_RESULTS_AT_ONCE: Final = 128


class Completions:
    """Of one partition. Results stay in the order of the answers."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._answered: deque[tuple[Batch, AppendedSet]] = deque()
        self._given = 0
        """How many results of the first of these were given."""
        self._left = 0
        """How many results are still to be given."""
        self.task: asyncio.Task[None] | None = None
        """Runs as long as a caller waits for a result."""

    def give(self, batch: Batch, appended: AppendedSet) -> None:
        """Give all who wait for `batch` their results, the first of them now."""
        self._answered.append((batch, appended))
        self._left += len(batch.waiters)
        if self.task is None:
            self._give_some()
            if self._answered:
                self.task = asyncio.get_running_loop().create_task(self._give_others())

    def give_more_than(self, count: int) -> bool:
        """Whether more than so many results are given in the next turns of the loop."""
        return self.task is not None and self._left > count

    def finish(self) -> None:
        """Give all other results now."""
        while self._answered:
            self._give_some()

    async def _give_others(self) -> None:
        try:
            while self._answered:
                await asyncio.sleep(0)
                if self._answered:
                    self._give_some()
        finally:
            self.task = None

    def _give_some(self) -> None:
        batch, appended = self._answered[0]
        begin, self._given = self._given, self._given + _RESULTS_AT_ONCE
        end = min(self._given, len(batch.waiters))
        if end == len(batch.waiters):
            self._answered.popleft()
            self._given = 0
        self._left -= end - begin
        batch.succeed(self._topic, self._partition, appended, begin, end)


REFUSALS: Final = (InvalidTimestamp, InvalidRecord, *TOO_LARGE)
"""Errors that may be the fault of a single message. Nothing of the set was appended."""

Deliver = Callable[[str, int, Batch], Awaitable[AppendedSet]]
"""Sends a batch to a partition of a topic, and tries again where that may help."""


def _let_go(batch: Batch) -> None:
    """Hold a batch until this is called."""


class TooManyMessages(Exception):
    """A batch was not sent: fewer messages may make a set that is not too large."""


class Outbox:
    """One partition's batches, the oldest first, and the task that sends them."""

    def __init__(
        self,
        topic: str,
        partition: int,
        budget: ByteBudget,
        deliver: Deliver,
        *,
        cut_bytes: Callable[[], int],
        linger_s: float,
    ) -> None:
        """`cut_bytes` says how large a batch may be, as far as is known."""
        self.topic = topic
        self.partition = partition
        self._budget = budget
        self._deliver = deliver
        self._cut_bytes = cut_bytes
        self.batch_bytes = cut_bytes()
        """How large a batch may be, as far as is known."""
        self._linger_s = linger_s
        self._loop = asyncio.get_running_loop()
        self.new_waiter: Callable[[], asyncio.Future[SentRecord]] = self._loop.create_future
        self._queue: deque[Batch] = deque()
        self.open: Batch | None = None
        """The last one in the queue, when more messages may go into it."""
        self._hurry: asyncio.Future[None] | None = None
        """What a batch waits for that is not full, to be sent before its time."""
        self._sending: asyncio.Task[None] | None = None
        self._completions = Completions(topic, partition)

    def add(
        self,
        value: bytes | None,
        key: bytes | None,
        time_ms: int,
        headers: Headers,
        size_bytes: int,
    ) -> asyncio.Future[SentRecord]:
        """Put a message behind all others; its room is taken already. The future gets its place."""
        batch = self.open
        if batch is None or batch.size_bytes + size_bytes > self.batch_bytes:
            batch = Batch(self._loop.time())
            self.add_batch(batch)
            self.open = batch
        if headers:
            batch.headers = batch.headers or {}
            batch.headers[len(batch.keys)] = headers
        return batch.append(value, key, time_ms, size_bytes, self.new_waiter())

    def add_batch(self, batch: Batch) -> None:
        """Append a batch behind all messages; its room is taken already."""
        self._close_open()
        self._queue.append(batch)
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_all())

    def hurry(self) -> "asyncio.Task[None] | None":
        """Send what there is without lingering. The task is one that still has to end; None once
        all is answered, and all waiters have their results."""
        self._close_open()
        return self._sending or self._completions.task

    def end(self, error: Exception) -> None:
        """Fail everything that has not been answered."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None  # a task that has not begun yet would not say so itself
        self.open = None
        self._completions.finish()
        while self._queue:
            self._finish(self._queue.popleft(), error)

    def _close_open(self) -> None:
        self.open = None
        if self._hurry is not None and not self._hurry.done():
            self._hurry.set_result(None)

    async def _send_all(self) -> None:
        try:
            while self._queue:
                batch = self._queue[0]
                if batch is self.open:
                    await self._gather(batch)
                if batch is self.open:
                    await self._linger(batch)
                    if batch is self.open:
                        self.open = None
                self._queue.popleft()
                await self._send(batch)
                if self.open is not None:
                    await asyncio.sleep(0)  # a caller that has its answer may have more for it
        finally:
            self._sending = None

    async def _gather(self, batch: Batch) -> None:
        """Wait for tasks that get results of earlier sets just now, and may send more for this one:
        a set costs as much as many messages. With half of them in it, it goes, and the others get
        theirs while it is on its way."""
        give_more_than = self._completions.give_more_than
        while batch is self.open and give_more_than(len(batch.waiters)):  # noqa: ASYNC110
            await asyncio.sleep(0)  # each turn of the loop gives some

    async def _linger(self, batch: Batch) -> None:
        wait_s = batch.born + self._linger_s - self._loop.time()
        if wait_s <= 0:
            return
        self._hurry = self._loop.create_future()
        try:
            await asyncio.wait((self._hurry,), timeout=wait_s)
        finally:
            self._hurry = None

    async def _send(self, batch: Batch) -> None:
        if batch.group is not None and batch.group.error is not None:
            self._finish(batch, batch.group.error)
            return
        try:
            appended = await self._deliver(self.topic, self.partition, batch)
        except asyncio.CancelledError:
            self._finish(batch, ClientClosed("the producer was closed before this was answered"))
            raise
        except TooManyMessages:
            self._divide(batch)
        except REFUSALS as error:
            if batch.divisible:
                self._divide(batch)  # so that one bad message does not fail the others
            else:
                self._finish(batch, error)
        except Exception as error:
            self._finish(batch, error)
        else:
            self._budget.give(batch.size_bytes)
            self._completions.give(batch, appended)
            # To free what was sent takes long. The next set is on its way by then.
            self._loop.call_soon(_let_go, batch)
        self.batch_bytes = self._cut_bytes()

    def _divide(self, batch: Batch) -> None:
        """Put two batches in its place."""
        first, second = batch.halves()
        if batch.group is not None:
            batch.group.left += 1
        self._queue.extendleft((second, first))

    def _finish(self, batch: Batch, error: Exception) -> None:
        self._budget.give(batch.size_bytes)
        batch.fail(error)
