"""Late appends: record sets that take long to decompress are appended after their request was read.

Decompressing a large set at once would delay all clients. It is done in a thread, and later sets
for the same partition wait. Only one set is handled at a time, so that decompressed sets take no
more memory than one set may. Senders take turns of one set each, so that a client that sends a
thousand sets does not delay the sets of others by all of these.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import thread_time
from typing import Final

from .parking import Partition
from .work import Work

PASS_SECONDS: Final = 0.01
"""Processor time for checking record sets in one turn of the event loop; further sets become late
appends. The usual sets of all clients take less."""


class Sender:
    """The owner of late sets that share turns: a connection, or a few of its requests."""

    __slots__ = ("has_turn", "ready")

    def __init__(self) -> None:
        self.ready: deque[LateAppend] = deque()
        """Late sets that are the first of their partition, and so can be appended."""
        self.has_turn = False


class LateAppend:
    """An append that waits."""

    __slots__ = ("append", "partition", "sender")

    def __init__(
        self, sender: Sender, partition: Partition, append: Callable[[], Awaitable[None]]
    ) -> None:
        self.sender = sender
        self.partition = partition
        self.append = append


class LateAppends:
    """The appends that wait, in order within each partition."""

    def __init__(self, work: Work, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._work = work
        self._call_soon = call_soon
        self._by_partition: dict[Partition, deque[LateAppend]] = {}
        self._turns: deque[Sender] = deque()
        self.is_running = False
        """Whether any append waits."""
        self.is_timing = False
        """Whether `goes_on` was called, so that `end` has to be called."""
        self._began = 0.0
        self._left_seconds = PASS_SECONDS
        self._is_counting = False
        """Whether `_next_pass` is scheduled, which resets the time for the next turn."""

    def holds(self, partition: Partition) -> bool:
        """Whether new sets for a partition have to wait."""
        return partition in self._by_partition

    def goes_on(self) -> bool:
        """Whether one more set may be checked in this turn of the event loop. `end` has to be
        called next."""
        now = thread_time()
        if not self.is_timing:
            self.is_timing = True
            self._began = now
        return now - self._began < self._left_seconds

    def end(self) -> None:
        """Count the time since the first `goes_on`."""
        self._left_seconds -= thread_time() - self._began
        self.is_timing = False
        # A pass with a few small sets in it is not worth a callback.
        if self._left_seconds < 0.9 * PASS_SECONDS and not self._is_counting:
            self._is_counting = True
            self._call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._is_counting = False
        self._left_seconds = PASS_SECONDS

    def add(
        self, sender: Sender, partition: Partition, append: Callable[[], Awaitable[None]]
    ) -> None:
        """Queue `append`, after all earlier appends of the partition. It must not raise."""
        late = LateAppend(sender, partition, append)
        of_partition = self._by_partition.setdefault(partition, deque())
        of_partition.append(late)
        if len(of_partition) == 1:
            self._give_turn(late)
        if not self.is_running:
            self.is_running = True
            self._work.start(self._run())

    def _give_turn(self, late: LateAppend) -> None:
        sender = late.sender
        sender.ready.append(late)
        if not sender.has_turn:
            sender.has_turn = True
            self._turns.append(sender)

    async def _run(self) -> None:
        turns = self._work.turns()
        while self._turns:
            sender = self._turns.popleft()
            late = sender.ready.popleft()
            sender.has_turn = bool(sender.ready)
            if sender.has_turn:
                self._turns.append(sender)
            with suppress(Exception):  # It may still raise `MemoryError`; the others go on.
                await late.append()
            of_partition = self._by_partition[late.partition]
            of_partition.popleft()
            if of_partition:
                self._give_turn(of_partition[0])
            else:
                del self._by_partition[late.partition]
            await turns.give_way()
        self.is_running = False
