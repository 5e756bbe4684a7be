"""Requests that wait for a partition to advance: fetches for data, produces for durability.

Nothing polls. When a log reports that its high watermark moved, the requests parked on that
partition are checked once before the event loop goes back to its sockets, however many appends came
meanwhile. A request is ready when its condition holds, or when its timer fires.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable
from time import thread_time
from typing import Any, Final

PASS_SECONDS: Final = 0.005
"""Processor time for checking and answering parked requests in one turn of the event loop."""

WOKEN_AT_ONCE: Final = 64
"""Maximum number of waiting requests that are checked before the satisfied ones are woken."""

CHECKED_AT_ONCE: Final = 8
"""Requests that are checked between two readings of the clock: a check of a fetch that waits for
thousands of windows takes up to half a millisecond."""

Partition = tuple[str, int]

Awaited = Hashable
"""What a request can wait for: a partition, or the commit of appended sets."""


class Wait:
    """The wait of an answer or a task. Its callbacks run within the call that ends the wait.

    A future of asyncio would run them only in the next turn of the event loop.
    """

    __slots__ = ("_callbacks", "_cancelled", "_over")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Wait], None]] = []
        self._over = False
        self._cancelled = False

    def add_done_callback(self, callback: Callable[["Wait"], None]) -> None:
        """Call `callback` when the wait is over. It must not be over yet."""
        self._callbacks.append(callback)

    def done(self) -> bool:
        return self._over

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """End the wait because its owner does not need it any more."""
        if not self._over:
            self._cancelled = True
            self.set_result(None)

    def set_result(self, result: None, /) -> None:
        """End the wait, if it is not over, and call the callbacks."""
        if not self._over:
            self.end()
            self.wake()

    def end(self) -> None:
        """Mark the wait as over. `wake` has to be called next."""
        self._over = True

    def wake(self) -> None:
        """Call the callbacks."""
        callbacks, self._callbacks = self._callbacks, []  # They may refer to this wait.
        for callback in callbacks:
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
    """A wait that several answers share. An answer that is cancelled does not cancel the others."""

    __slots__ = ()

    def __init__(self, ready: asyncio.Future[None] | Wait) -> None:
        """The wait is over when `ready` is done."""
        super().__init__()
        ready.add_done_callback(lambda _: self.set_result(None))

    def cancel(self) -> None:
        """Do nothing: the other answers still wait."""


class _Parked(Wait):
    """A parked request, or several with the same wait."""

    __slots__ = (
        *("_lot", "awaited", "named_partitions", "passes_over", "requests", "satisfied", "timer"),
    )

    def __init__(
        self,
        lot: "ParkingLot",
        awaited: Iterable[Awaited],
        satisfied: Callable[[Any], bool],
        named_partitions: int,
        requests: int,
        passes_over: Callable[[Any, Any], bool] | None,
    ) -> None:
        super().__init__()
        self._lot = lot
        self.awaited = tuple(dict.fromkeys(awaited))
        self.satisfied = satisfied
        self.named_partitions = named_partitions
        self.requests = requests
        self.passes_over = passes_over
        self.timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        super().end()
        self._lot.leave(self)


class ParkingLot:
    """Waiting requests by what they wait for. Callers of `park` have to check `has_room`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        capacity: int | None = None,
        partitions_max: int | None = None,
    ) -> None:
        """`capacity` is the most requests that may wait, `partitions_max` the most partitions that
        they may name together; `None` is no limit."""
        self._loop = loop
        self._capacity = capacity
        self._partitions_max = partitions_max
        self._named_partitions = 0
        self._requests = 0
        self.by_awaited: dict[Awaited, dict[_Parked, None]] = {}
        """The waiting requests, by what they wait for; read by other modules."""
        self.minds_moves = True
        """Whether a high watermark that moved can end a wait."""
        self._advanced: dict[Awaited, None] = {}
        self._unseen: deque[tuple[Awaited, list[_Parked]]] = deque()
        """Lists of requests that are still to be checked, each with the partition or event that
        advanced."""

    def __len__(self) -> int:
        return self._requests

    def has_room(self, named_partitions: int) -> bool:
        """Whether one more request, which names `named_partitions`, may wait."""
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
        passes_over: Callable[[Any, Any], bool] | None = None,
    ) -> Wait:
        """Return a wait that is over after `wait_ms`, or when one of `awaited` advances and
        `satisfied` returns true for it. Cancelling the wait removes the request from the lot.

        `named_partitions` is how many partitions the request names, repeats included; `requests` is
        how many requests share the wait. `passes_over` says within `appended`, of a partition and
        what was appended to, that it need not be checked.
        """
        parked = _Parked(self, awaited, satisfied, named_partitions, requests, passes_over)
        self._named_partitions += named_partitions
        self._requests += requests
        for each in parked.awaited:
            self.by_awaited.setdefault(each, {})[parked] = None
        parked.timer = self._loop.call_later(max(wait_ms, 0) / 1000, parked.set_result, None)
        return parked

    def advanced(self, awaited: Awaited) -> None:
        """Have the requests of a partition checked soon, because it moved, failed or was deleted.

        Appends call this from the middle of their own work, so nothing is read or answered here.
        """
        if awaited in self.by_awaited:
            if not self._advanced:
                self._loop.call_soon(self._look)
            self._advanced[awaited] = None

    def appended(self, awaited: Awaited, log: Any) -> None:
        """As `advanced`, after an append to the partition's log. Nothing is checked if few requests
        wait, and all of them pass over the append."""
        waiting = self.by_awaited.get(awaited, ())
        if len(waiting) <= CHECKED_AT_ONCE:
            for parked in waiting:
                if parked.passes_over is None or not parked.passes_over(awaited, log):
                    break
            else:
                return
        self.advanced(awaited)

    def leave(self, parked: _Parked) -> None:
        """Remove a request that does not wait any more."""
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
        if len(advanced) == 1 and not self._unseen:
            (awaited,) = advanced
            waiting = self.by_awaited.get(awaited, ())
            if len(waiting) == 1:
                (parked,) = waiting
                if parked.satisfied(awaited):
                    parked.set_result(None)
                return
        self.look_at(advanced)

    def look_at(self, advanced: Iterable[Awaited]) -> None:
        """As `advanced`, but check the waiting requests now: for callers that are not in the middle
        of an append.

        Requests of one connection are answered with one write. After `PASS_SECONDS` the event loop
        does other work, before the next requests are checked.
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
                self._wake_some(until)
                if thread_time() >= until:
                    break
        finally:
            if self._unseen:
                self._loop.call_soon(self._look_on)

    def _wake_some(self, until: float) -> None:
        """Check the next requests, and wake those whose condition holds."""
        satisfied: list[_Parked] = []
        left = WOKEN_AT_ONCE
        try:
            while self._unseen and left:
                awaited, waiting = self._unseen.popleft()
                some, others = waiting[:left], waiting[left:]
                if others:
                    self._unseen.appendleft((awaited, others))
                left -= len(some)
                for number, parked in enumerate(some, start=1):
                    if not parked.done() and parked.satisfied(awaited):
                        parked.end()
                        satisfied.append(parked)
                    if number % CHECKED_AT_ONCE == 0 and thread_time() >= until:
                        self._unseen.appendleft((awaited, some[number:]))
                        return
        finally:
            for parked in satisfied:
                parked.wake()
