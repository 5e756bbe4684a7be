"""What waits for the broker, partition by partition.

A partition's sets go one at a time: the next one is sent when the one before it has been answered,
or given up. So a set that has to be sent again is never overtaken.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from ..protocol.errors import (
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
)
from ..protocol.records.layout import NO_TIMESTAMP
from .delivery import Appended
from .encoding import Headers
from .errors import ClientClosed
from .results import SentRecord
from .room import Room

REFUSALS: Final = (InvalidTimestamp, MessageTooLarge, RecordListTooLarge, InvalidRecord)
"""Errors that may be the fault of a single message. Nothing of the set was appended."""

_new_tuple: Final = tuple.__new__


class Batch:
    """Messages that go as one set, as columns."""

    __slots__ = (
        "born",
        "encoded",
        "group",
        "headers",
        "keys",
        "size_bytes",
        "times_ms",
        "values",
        "waiters",
    )

    def __init__(self, born: float, group: "Group | None" = None) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.times_ms: list[int] = []
        self.waiters: list[asyncio.Future[SentRecord]] = []
        """One for each message; none in a batch of a group, which has one result for all."""
        self.size_bytes = 0
        self.born = born
        """When its first message came, by the loop's clock."""
        self.group = group
        self.headers: dict[int, Headers] | None = None
        """Of the messages that have some, by row."""
        self.encoded: bytearray | None = None
        """The set, when it has been made before its turn came."""

    def halves(self) -> tuple["Batch", "Batch"]:
        """The same messages as two batches. Their sizes are shares of this one's."""
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

    def succeed(self, topic: str, partition: int, appended: Appended) -> None:
        """Tell everybody who waits where their message is."""
        if self.group is not None:
            self.group.part_sent(partition, len(self.values), appended)
            return
        offset, step = appended.base_offset, 0 if appended.base_offset < 0 else 1
        append_ms = appended.append_time_ms
        for waiter, time_ms in zip(self.waiters, self.times_ms, strict=True):
            if not waiter.done():
                own_ms = None if time_ms == NO_TIMESTAMP else time_ms
                told_ms = own_ms if append_ms is None else append_ms
                # As `SentRecord(...)` without its function around that, for speed.
                sent = _new_tuple(SentRecord, (topic, partition, offset, told_ms))
                waiter.set_result(sent)
            offset += step

    def fail(self, error: Exception) -> None:
        """Tell everybody who waits that it was not sent, or that this is not known."""
        if self.group is not None:
            self.group.part_failed(error)
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)


class Group:
    """Batches of one `send_batch` or `send_many`, which ends with one result.

    After the first failure those of its batches that have not been sent are not sent any more.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self.whole = whole
        """A batch of it that is refused is not sent in parts."""
        self.parts: list[tuple[int, int, Appended]] = []
        """(partition, number of messages, where they are), in the order of the answers."""
        self.error: Exception | None = None
        self.left = 0
        """Batches that are not answered yet."""
        self.changed = asyncio.Event()

    def part_sent(self, partition: int, count: int, appended: Appended) -> None:
        self.parts.append((partition, count, appended))
        self.left -= 1
        self.changed.set()

    def part_failed(self, error: Exception) -> None:
        self.error = self.error or error
        self.left -= 1
        self.changed.set()

    def stop(self, cause: BaseException) -> None:
        """Send nothing more of it."""
        if self.error is None:
            self.error = cause if isinstance(cause, Exception) else ClientClosed("it was cancelled")

    async def next_answer(self) -> None:
        """Wait until one more batch is answered."""
        self.changed.clear()
        await self.changed.wait()


Deliver = Callable[[str, int, Batch], Awaitable[Appended]]
"""Sends a batch to a partition of a topic, and tries again where that may help."""


class Outbox:
    """One partition's batches, the oldest first, and the task that sends them."""

    def __init__(
        self,
        topic: str,
        partition: int,
        room: Room,
        deliver: Deliver,
        *,
        batch_bytes: int,
        linger_s: float,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._room = room
        self._deliver = deliver
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Batch] = deque()
        self._open: Batch | None = None
        """The last one in the queue, when more messages may go into it."""
        self._hurry: asyncio.Future[None] | None = None
        """What a batch waits for that is not full, to be sent before its time."""
        self._sending: asyncio.Task[None] | None = None

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        time_ms: int,
        size_bytes: int,
        headers: Headers = (),
    ) -> "asyncio.Future[SentRecord]":
        """Append a message; its room is taken already."""
        batch = self._open
        if batch is None or batch.size_bytes + size_bytes > self._batch_bytes:
            batch = Batch(self._loop.time())
            self._put(batch)
            self._open = batch
        if headers:
            batch.headers = batch.headers or {}
            batch.headers[len(batch.keys)] = headers
        batch.keys.append(key)
        batch.values.append(value)
        batch.times_ms.append(time_ms)
        batch.size_bytes += size_bytes
        waiter: asyncio.Future[SentRecord] = self._loop.create_future()
        batch.waiters.append(waiter)
        return waiter

    def add_batch(self, batch: Batch) -> None:
        """Append a batch behind all messages; its room is taken already."""
        self._put(batch)

    def hurry(self) -> "asyncio.Task[None] | None":
        """Send what there is without lingering; the task ends when all of it is answered."""
        self._close_open()
        return self._sending

    def end(self, error: Exception) -> None:
        """Fail everything that has not been answered."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None  # a task that has not begun yet would not say so itself
        self._open = None
        while self._queue:
            self._finish(self._queue.popleft(), error)

    def _put(self, batch: Batch) -> None:
        self._close_open()
        self._queue.append(batch)
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_all())

    def _close_open(self) -> None:
        self._open = None
        if self._hurry is not None and not self._hurry.done():
            self._hurry.set_result(None)

    async def _send_all(self) -> None:
        try:
            while self._queue:
                batch = self._queue[0]
                if batch is self._open:
                    await self._linger(batch)
                    if batch is self._open:
                        self._open = None
                self._queue.popleft()
                await self._send(batch)
        finally:
            self._sending = None

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
        except REFUSALS as error:
            if len(batch.values) == 1 or (batch.group is not None and batch.group.whole):
                self._finish(batch, error)
                return
            # Whoever is to blame shall not spoil it for the others.
            first, second = batch.halves()
            if batch.group is not None:
                batch.group.left += 1
            self._queue.extendleft((second, first))
        except Exception as error:
            self._finish(batch, error)
        else:
            self._room.give(batch.size_bytes)
            batch.succeed(self.topic, self.partition, appended)

    def _finish(self, batch: Batch, error: Exception) -> None:
        self._room.give(batch.size_bytes)
        batch.fail(error)
