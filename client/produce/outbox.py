"""What waits for the broker, partition by partition: messages that go as one set, in bounded
memory."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ...protocol.errors import HorologError, InvalidRecord, InvalidTimestamp
from ...protocol.records.kernel import ByteRoom, Collected
from ...protocol.records.layout import NO_TIMESTAMP
from ..errors import ClientClosed
from ..results import SentRecord
from .delivery import AppendedSet
from .encoding import Headers
from .failed_sends import FailedSends
from .set_limits import TOO_LARGE

_RESULTS_AT_ONCE: Final = 128


class Batch(Collected):
    """Messages that are sent as one set, held as columns.

    `waiters` has a future for each message. It is empty in a batch of a group, which has one result
    for all messages.
    """

    __slots__ = ("born", "encoded", "group", "headers")

    def __init__(self, born: float, group: "BatchGroup | None" = None) -> None:
        super().__init__()
        self.born = born
        """Time at which the first message was added, on the event loop's clock."""
        self.group = group
        self.headers: dict[int, Headers] | None = None
        """Headers by row, for messages that have some."""
        self.encoded: bytearray | None = None
        """Encoded set, if it was encoded before its turn came."""

    @property
    def divisible(self) -> bool:
        """Whether the messages may be sent as several sets."""
        return len(self.values) > 1 and not (self.group is not None and self.group.whole)

    def halves(self) -> tuple["Batch", "Batch"]:
        """Return the messages as two batches. Their sizes are shares of this batch's size."""
        middle = len(self.values) // 2
        first, second = Batch(self.born, self.group), Batch(self.born, self.group)
        for half, part in ((first, slice(0, middle)), (second, slice(middle, None))):
            half.keys = self.keys[part]
            half.values = self.values[part]
            half.times_ms = self.times_ms[part]
            half.waiters = self.waiters[part]
        for row, headers in (self.headers or {}).items():
            half, start = (first, 0) if row < middle else (second, middle)
            half.headers = half.headers or {}
            half.headers[row - start] = headers
        first.size_bytes = self.size_bytes // 2
        second.size_bytes = self.size_bytes - first.size_bytes
        return first, second

    def succeed(
        self, topic: str, partition: int, appended: AppendedSet, begin: int, end: int
    ) -> None:
        """Give the waiters of rows `begin` to `end` (exclusive) the positions of their messages. In
        a group, report the result to the group."""
        if self.group is not None:
            expired = count_expired(self.times_ms, appended)
            self.group.part_sent(partition, len(self.values), appended, expired)
            return
        append_ms = NO_TIMESTAMP if appended.append_time_ms is None else appended.append_time_ms
        target = (topic, partition)
        self.place(
            *(begin, end, SentRecord, target, appended.base_offset, append_ms),
            appended.expired_before_ms,
        )

    def fail(self, error: Exception) -> "list[asyncio.Future[SentRecord]]":
        """Fail all waiters: the batch was not sent, or its result is unknown. Return them, with
        those that were cancelled."""
        if self.group is not None:
            self.group.part_failed(error)
        failed = []
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)
            elif not waiter.cancelled():
                continue
            failed.append(waiter)
        return failed


def count_expired(times_ms: Sequence[int], appended: AppendedSet) -> int:
    """Return how many messages with these times were past retention when they were appended."""
    before_ms = appended.expired_before_ms
    if before_ms == NO_TIMESTAMP:
        return 0
    return sum(NO_TIMESTAMP < time_ms < before_ms for time_ms in times_ms)


class BatchGroup:
    """Batches of one `send_batch` or `send_many`, which has one result.

    After the first failure the remaining batches of the group are not sent.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self.whole = whole
        """Batches of the group are never divided."""
        self.parts: list[tuple[int, int, AppendedSet, int]] = []
        """(partition, number of messages, position in the log, number of messages past retention),
        in the order of the answers."""
        self.error: Exception | None = None
        self.left = 0
        """Number of batches that are not answered yet."""
        self.abandoned = False
        """Whether the call was cancelled, so that nothing reads the error."""
        self.changed = asyncio.Event()

    def part_sent(self, partition: int, count: int, appended: AppendedSet, expired: int) -> None:
        self.parts.append((partition, count, appended, expired))
        self.left -= 1
        self.changed.set()

    def part_failed(self, error: Exception) -> None:
        self.error = self.error or error
        self.left -= 1
        self.changed.set()

    def stop(self, cause: BaseException) -> None:
        """Send no further batches of the group."""
        self.abandoned = not isinstance(cause, Exception)
        if self.error is None:
            self.error = cause if isinstance(cause, Exception) else ClientClosed("it was cancelled")

    async def next_answer(self) -> None:
        """Wait until the next batch is answered."""
        self.changed.clear()
        await self.changed.wait()


class ByteBudget(ByteRoom):
    """A byte budget: requests for bytes are granted in order of arrival."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        """Waiting requests with their sizes. While there are any, the budget is `held`."""

    def check(self, size_bytes: int) -> None:
        """Raise ValueError for a message of more bytes than the whole budget."""
        if size_bytes > self.limit_bytes:
            raise ValueError(
                f"a message of {size_bytes} bytes does not fit into the producer's buffer: "
                f"buffer_bytes is {self.limit_bytes}"
            )

    async def wait(self, size_bytes: int) -> None:
        """Wait until `size_bytes` can be acquired, and acquire them. Raises ValueError for more
        than the whole budget."""
        self.check(size_bytes)
        if self.take(size_bytes):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        self.held = True
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._let_in()  # the next request may need fewer bytes
            else:
                self.give(size_bytes)  # acquired, but the caller was cancelled
            raise

    def give(self, size_bytes: int) -> None:
        """Return acquired bytes to the budget."""
        self.taken_bytes -= size_bytes
        self._let_in()

    def end(self, error: Exception) -> None:
        """Fail all waiting requests with this error."""
        while self._waiting:
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(error)
        self.held = False

    def _let_in(self) -> None:
        while self._waiting:
            size_bytes, turn = self._waiting[0]
            if not turn.done():
                if self.taken_bytes + size_bytes > self.limit_bytes:
                    return
                self.taken_bytes += size_bytes
                turn.set_result(None)
            self._waiting.popleft()
        self.held = False


class Completions:
    """Hands the results of one partition's batches to the callers, in the order of the answers."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._answered: deque[tuple[Batch, AppendedSet]] = deque()
        self._given = 0
        """Number of waiters of the first batch that already have their result."""
        self._left = 0
        """Number of results still to be handed out."""
        self.task: asyncio.Task[None] | None = None
        """Runs while a caller waits for a result."""

    def give(self, batch: Batch, appended: AppendedSet) -> None:
        """Hand results to all waiters of `batch`, the first ones now and the rest in later turns of
        the loop."""
        self._answered.append((batch, appended))
        self._left += len(batch.waiters)
        if self.task is None:
            self._give_some()
            if self._answered:
                self.task = asyncio.get_running_loop().create_task(self._give_others())

    def give_more_than(self, count: int) -> bool:
        """Whether more than `count` results remain for later turns of the loop."""
        return self.task is not None and self._left > count

    def finish(self) -> None:
        """Hand out all remaining results now."""
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
"""Errors that a single message may have caused. Nothing of the set was appended."""

Deliver = Callable[[str, int, Batch], Awaitable[AppendedSet]]
"""Sends a batch to a partition of a topic, and repeats this where a repetition may succeed."""


def _forget_frames(error: BaseException | None) -> None:
    """Drop the tracebacks of a reported error and of what it follows from: their frames hold the
    messages, and the program may keep the error."""
    while isinstance(error, HorologError) and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _let_go(batch: Batch) -> None:
    """Do nothing: the argument keeps the batch alive until the event loop calls this function."""


class TooManyMessages(Exception):
    """A batch was not sent because it is too large; a batch of fewer messages may fit."""


class Outbox:
    """Batches of one partition, oldest first, and the task that sends them."""

    def __init__(
        self,
        topic: str,
        partition: int,
        budget: ByteBudget,
        deliver: Deliver,
        *,
        cut_bytes: Callable[[], int],
        linger_s: float,
        failed: FailedSends,
    ) -> None:
        """`cut_bytes` returns the largest batch size in bytes, as far as it is known. `failed`
        gets the results of failed sends."""
        self.topic = topic
        self.partition = partition
        self._budget = budget
        self._deliver = deliver
        self._cut_bytes = cut_bytes
        self.batch_bytes = cut_bytes()
        """Largest batch size in bytes, as far as it is known."""
        self._linger_s = linger_s
        self._loop = asyncio.get_running_loop()
        self.new_waiter: Callable[[], asyncio.Future[SentRecord]] = self._loop.create_future
        self._queue: deque[Batch] = deque()
        self.open: Batch | None = None
        """Last batch of the queue while more messages may be added to it."""
        self._hurry: asyncio.Future[None] | None = None
        """Completed to send a lingering batch before its time."""
        self._sending: asyncio.Task[None] | None = None
        self._completions = Completions(topic, partition)
        self._failed = failed
        self._sent: Batch | None = None
        """Batch that is being delivered."""
        self._given_up = 0
        """Number of messages that are no longer sent, and whose result is unknown."""

    @property
    def unanswered(self) -> int:
        """Number of messages that the broker has not answered."""
        batches = self._queue if self._sent is None else (self._sent, *self._queue)
        return self._given_up + sum(len(batch.values) for batch in batches)

    def add(
        self,
        value: bytes | None,
        key: bytes | None,
        time_ms: int,
        headers: Headers,
        size_bytes: int,
    ) -> asyncio.Future[SentRecord]:
        """Append a message whose bytes are already acquired. The future gets the message's
        position."""
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
        """Append a batch whose bytes are already acquired."""
        self._close_open()
        self._queue.append(batch)
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_all())

    def hurry(self) -> "asyncio.Task[None] | None":
        """Send the queued batches without lingering. Returns a task that is still running; None
        when everything is answered and all waiters have their results."""
        self._close_open()
        return self._sending or self._completions.task

    def end(self, error: ClientClosed) -> None:
        """Fail all unanswered messages."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None  # a task that has not started yet would not reset this
        self.open = None
        self._completions.finish()
        while self._queue:
            self._give_up(self._queue.popleft(), error)

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
                    await asyncio.sleep(0)  # a caller that just got its result may send more
        finally:
            self._sending = None

    async def _gather(self, batch: Batch) -> None:
        """Wait for callers that are just getting results of earlier sets and may send more
        messages.

        A set costs as much as many messages. The batch is sent when half of those callers have
        added to it; the others get their results while it is in flight.
        """
        give_more_than = self._completions.give_more_than
        while batch is self.open and give_more_than(len(batch.waiters)):  # noqa: ASYNC110
            await asyncio.sleep(0)  # each turn of the loop hands out some results

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
        group = batch.group
        if group is not None and group.error is not None:
            self._budget.give(batch.size_bytes)
            group.part_failed(group.error)
            return
        self._sent = batch
        try:
            appended = await self._deliver(self.topic, self.partition, batch)
        except asyncio.CancelledError:
            closed = ClientClosed("the producer was closed before this was answered")
            self._give_up(batch, closed)
            raise
        except TooManyMessages:
            self._divide(batch)
        except REFUSALS as error:
            if batch.divisible and not (group is not None and group.abandoned):
                self._divide(batch)  # so that one bad message does not fail the others
            else:
                self._finish(batch, error)
        except Exception as error:
            self._finish(batch, error)
        else:
            self._budget.give(batch.size_bytes)
            self._completions.give(batch, appended)
            # Freeing the sent messages takes long, so it happens after the next set was sent.
            self._loop.call_soon(_let_go, batch)
        finally:
            self._sent = None
        self.batch_bytes = self._cut_bytes()

    def _divide(self, batch: Batch) -> None:
        """Replace a batch by two halves at the head of the queue."""
        first, second = batch.halves()
        if batch.group is not None:
            batch.group.left += 1
        self._queue.extendleft((second, first))

    def _finish(self, batch: Batch, error: Exception) -> None:
        self._budget.give(batch.size_bytes)
        group = batch.group
        if group is None or group.abandoned:
            _forget_frames(error)  # before a future gets the error, because it keeps the traceback
        failed = batch.fail(error)
        if failed:
            self._failed.add(failed, error)
        elif group is not None and group.abandoned:
            self._failed.add_unreadable(error)

    def _give_up(self, batch: Batch, error: ClientClosed) -> None:
        self._given_up += len(batch.values)
        self._budget.give(batch.size_bytes)
        for waiter in batch.fail(error):
            if not waiter.cancelled():
                waiter.exception()  # asyncio would report each of them; the producer does at once
