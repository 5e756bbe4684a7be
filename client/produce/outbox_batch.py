"""Messages of one partition that go as one set."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count as counting
from itertools import repeat
from typing import Final

from ...protocol.records.layout import NO_TIMESTAMP
from ..errors import ClientClosed
from ..results import SentRecord
from .delivery import Appended
from .encoding import Headers

_sent_record: Final[Callable[[tuple[str, int, int, int | None]], SentRecord]] = partial(
    tuple.__new__, SentRecord
)
"""`SentRecord(...)` of its fields, without a function of Python."""


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
        """Give those who wait for some rows the place of their message; in a group, the group."""
        if self.group is not None:
            self.group.part_sent(partition, len(self.values), appended)
            return
        base_offset, append_ms = appended.base_offset, appended.append_time_ms
        offsets = repeat(-1) if base_offset < 0 else counting(base_offset + rows.start)
        times_ms: Iterable[int | None]
        if append_ms is not None:
            times_ms = repeat(append_ms)
        else:
            times_ms = own_ms = self.times_ms[rows]
            if NO_TIMESTAMP in own_ms:
                times_ms = [None if time_ms == NO_TIMESTAMP else time_ms for time_ms in own_ms]
        # The loop makes nothing itself: it is what the answer of a message costs.
        places = zip(repeat(topic), repeat(partition), offsets, times_ms, strict=False)
        for waiter, sent in zip(self.waiters[rows], map(_sent_record, places), strict=False):
            try:  # noqa: SIM105 - once for each message
                waiter.set_result(sent)
            except asyncio.InvalidStateError:
                pass  # cancelled

    def fail(self, error: Exception) -> None:
        """Fail all who wait: it was not sent, or that is not known."""
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
