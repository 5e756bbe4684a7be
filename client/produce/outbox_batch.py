"""Messages of one partition that go as one set."""

import asyncio

from ...protocol.records.kernel import Collected
from ...protocol.records.layout import NO_TIMESTAMP
from ..errors import ClientClosed
from ..results import SentRecord
from .delivery import AppendedSet
from .encoding import Headers


class Batch(Collected):
    """Messages that go as one set, as columns.

    `waiters` has a future for each, or none in a batch of a group, which has one result for all.
    """

    __slots__ = ("born", "encoded", "group", "headers")

    def __init__(self, born: float, group: "BatchGroup | None" = None) -> None:
        super().__init__()
        self.born = born
        """When its first message came, by the loop's clock."""
        self.group = group
        self.headers: dict[int, Headers] | None = None
        """Of the messages that have some, by row."""
        self.encoded: bytearray | None = None
        """The set, when it has been made before its turn came."""

    @property
    def divisible(self) -> bool:
        """Whether its messages may go as several sets."""
        return len(self.values) > 1 and not (self.group is not None and self.group.whole)

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

    def succeed(
        self, topic: str, partition: int, appended: AppendedSet, begin: int, end: int
    ) -> None:
        """Give the tasks that wait for rows from `begin` to `end` the place of their message; in a
        group, the group."""
        if self.group is not None:
            self.group.part_sent(partition, len(self.values), appended)
            return
        append_ms = NO_TIMESTAMP if appended.append_time_ms is None else appended.append_time_ms
        target = (topic, partition)
        self.place(begin, end, SentRecord, target, appended.base_offset, append_ms)

    def fail(self, error: Exception) -> None:
        """Fail all who wait: it was not sent, or that is not known."""
        if self.group is not None:
            self.group.part_failed(error)
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)


class BatchGroup:
    """Batches of one `send_batch` or `send_many`, which ends with one result.

    After the first failure those of its batches that have not been sent are not sent any more.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self.whole = whole
        """A batch of it that is refused is not sent in parts."""
        self.parts: list[tuple[int, int, AppendedSet]] = []
        """(partition, number of messages, where they are), in the order of the answers."""
        self.error: Exception | None = None
        self.left = 0
        """Batches that are not answered yet."""
        self.changed = asyncio.Event()

    def part_sent(self, partition: int, count: int, appended: AppendedSet) -> None:
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
