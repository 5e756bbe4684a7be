"""Messages of one partition that go as one set."""

import asyncio
from typing import Final

from ...protocol.records.layout import NO_TIMESTAMP
from ..errors import ClientClosed
from ..results import SentRecord
from .delivery import Appended
from .encoding import Headers

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

    def succeed(self, topic: str, partition: int, appended: Appended, rows: slice) -> None:
        """Tell those who wait for some rows where their message is; in a group, the group."""
        if self.group is not None:
            self.group.part_sent(partition, len(self.values), appended)
            return
        step = 0 if appended.base_offset < 0 else 1
        offset = appended.base_offset + step * rows.start
        append_ms = appended.append_time_ms
        for waiter, time_ms in zip(self.waiters[rows], self.times_ms[rows], strict=True):
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
