"""Requests that wait for a partition to advance: fetches for data, produces for durability.

Nothing polls. A log reports that its high watermark moved, the requests parked on that partition
are looked at once before the loop goes back to its sockets, however many appends came meanwhile,
and each is ready when it has what it asked for or when its own timer fires.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable
from time import thread_time
from typing import Any, Final

PASS_SECONDS: Final = 0.005
"""Processor time for which requests are looked at, and answered, in one pass of the loop."""

WOKEN_AT_ONCE: Final = 64
"""Requests that are looked at without a look at the time."""

Partition = tuple[str, int]

Awaited = Hashable
"""What something can be heard of: a partition, or what was appended to one."""


class Wait:
    """What an answer or a task waits for. What was added to be called is called within the call
    that ends the wait.

    A future of asyncio would call it in the next pass of the loop, behind the rest of this one.
    """

    __slots__ = ("_callbacks", "_cancelled", "_over")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Wait], None]] = []
        self._over = False
        self._cancelled = False

    def add_done_callback(self, callback: Callable[["Wait"], None]) -> None:
        """Have `callback` called when this is over, which it is not yet."""
        self._callbacks.append(callback)

    def done(self) -> bool:
        return self._over

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """Whoever waits does not want it any more."""
        if not self._over:
            self._cancelled = True
            self.set_result(None)

    def set_result(self, result: None, /) -> None:
        """It is over, if it was not."""
        if not self._over:
            self.end()
            self.wake()

    def end(self) -> None:
        """It is over from now on. `wake` has to follow."""
        self._over = True

    def wake(self) -> None:
        """Have whoever waited go on."""
        for callback in self._callbacks:
            callback(self)

    def __await__(self) -> Generator[Any, None, None]:
        if not self._over:
            woken = asyncio.Event()
            self.add_done_callback(lambda _: woken.set())
            try:
                yield from woken.wait().__await__()
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self._cancelled:
            raise asyncio.CancelledError


class SharedWait(Wait):
    """What several answers wait for. One that is not waited for any more cancels no other."""

    __slots__ = ()

    def __init__(self, ready: asyncio.Future[None] | Wait) -> None:
        """A wait that is over when `ready` is done."""
        super().__init__()
        ready.add_done_callback(lambda _: self.set_result(None))

    def cancel(self) -> None:
        """The others go on to wait."""


class _Parked(Wait):
    """One waiting request, or several that wait for the same."""

    __slots__ = ("_lot", "awaited", "named_partitions", "requests", "satisfied", "timer")

    def __init__(
        self,
        lot: "ParkingLot",
        awaited: Iterable[Awaited],
        satisfied: Callable[[Any], bool],
        named_partitions: int,
        requests: int,
    ) -> None:
        super().__init__()
        self._lot = lot
        self.awaited = tuple(dict.fromkeys(awaited))
        self.satisfied = satisfied
        self.named_partitions = named_partitions
        self.requests = requests
        self.timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        super().end()
        self._lot.leave(self)


class ParkingLot:
    """Waiting requests by what they wait for. `has_room` is for callers to respect."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        capacity: int | None = None,
        partitions_max: int | None = None,
    ) -> None:
        """`capacity` is how many requests there may be, `partitions_max` how many partitions they
        may name; `None` is no limit."""
        self._loop = loop
        self._capacity = capacity
        self._partitions_max = partitions_max
        self._named_partitions = 0
        self._requests = 0
        self.by_awaited: dict[Awaited, dict[_Parked, None]] = {}
        """Who waits; for others to look at."""
        self.minds_moves = True
        """Whether it means anything to waiting requests that a watermark moved."""
        self._advanced: dict[Awaited, None] = {}
        self._unseen: deque[tuple[Awaited, list[_Parked]]] = deque()
        """Who is to be looked at because of something that advanced."""

    def __len__(self) -> int:
        return self._requests

    def has_room(self, named_partitions: int) -> bool:
        """Whether one more request may wait, one that names so many partitions."""
        if self._capacity is not None and self._requests >= self._capacity:
            return False
        after = self._named_partitions + named_partitions
        return self._partitions_max is None or after <= self._partitions_max

    def park(
        self,
        awaited: Iterable[Awaited],
        satisfied: Callable[[Any], bool],
        wait_ms: int,
        *,
        named_partitions: int = 0,
        requests: int = 1,
    ) -> Wait:
        """A wait that is over when `satisfied` says so of one of `awaited` that advanced, or after
        `wait_ms`. Cancelling it takes the request out of the lot.

        `named_partitions` is how many the request names, the same one again included; `requests`
        is how many requests this is for.
        """
        parked = _Parked(self, awaited, satisfied, named_partitions, requests)
        self._named_partitions += named_partitions
        self._requests += requests
        for each in parked.awaited:
            self.by_awaited.setdefault(each, {})[parked] = None
        parked.timer = self._loop.call_later(max(wait_ms, 0) / 1000, parked.set_result, None)
        return parked

    def advanced(self, awaited: Awaited) -> None:
        """A partition moved, failed or went away: look at its requests soon.

        Appends call this from the middle of their own work, so nothing is read or answered here.
        """
        if awaited in self.by_awaited:
            if not self._advanced:
                self._loop.call_soon(self._look)
            self._advanced[awaited] = None

    def leave(self, parked: _Parked) -> None:
        """A request waits no more."""
        self._named_partitions -= parked.named_partitions
        self._requests -= parked.requests
        for each in parked.awaited:
            waiting = self.by_awaited[each]
            del waiting[parked]
            if not waiting:
                del self.by_awaited[each]
        if parked.timer is not None:
            parked.timer.cancel()

    def _look(self) -> None:
        advanced = self._advanced
        self._advanced = {}
        self.look_at(advanced)

    def look_at(self, advanced: Iterable[Awaited]) -> None:
        """As `advanced`, by who is not in the middle of an append: who waits is looked at now.

        Those of one connection are answered with one write. However many there are, the loop does
        what else there is after `PASS_SECONDS`.
        """
        for awaited in advanced:
            waiting = self.by_awaited.get(awaited)
            if waiting:
                self._unseen.append((awaited, list(waiting)))
        self._look_on()

    def _look_on(self) -> None:
        until = thread_time() + PASS_SECONDS
        try:
            while self._unseen:
                self._wake_some()
                if thread_time() >= until:
                    break
        finally:
            if self._unseen:
                self._loop.call_soon(self._look_on)

    def _wake_some(self) -> None:
        """Look at the next ones, and wake those of them that have what they asked for."""
        satisfied: list[_Parked] = []
        left = WOKEN_AT_ONCE
        try:
            while self._unseen and left:
                awaited, waiting = self._unseen.popleft()
                some, others = waiting[:left], waiting[left:]
                if others:
                    self._unseen.appendleft((awaited, others))
                left -= len(some)
                for parked in some:
                    if not parked.done() and parked.satisfied(awaited):
                        parked.end()
                        satisfied.append(parked)
        finally:
            for parked in satisfied:
                parked.wake()
