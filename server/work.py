"""Work that does not fit into a callback: long computations in turns, and calls in threads."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ..clock import SystemClock
from ..protocol.api.pieces import Pieces
from ..storage.read.search import Search

T = TypeVar("T")

TURN_SECONDS = 0.00025
"""How long one request may compute before the loop serves the others: what a small request takes,
about, so that none waits for much longer than it takes itself."""

MAX_TURN_SECONDS = 0.001
"""The same after a pass of the loop in which the others took as long: however many they are, a
computation gets on."""

STORAGE_THREADS = 2
"""Threads that prepare logs: two, so that one large log does not hold up the small ones."""

READING_THREADS = 4
"""Threads that read for fetches what is not in memory: a disk serves several at a time."""


class Work:
    """Tasks started for requests, and the threads for what would block the loop.

    There is one thread for positions, because their commits must not overtake each other, one for
    changes of topics, for the same reason, and one each for admissions and for conversions, so that
    they leave the processor's other cores to the rest.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.time: Callable[[], float] = SystemClock.monotonic
        """Seconds on a monotonic clock that runs within a turn of the loop, as uvloop's does not;
        real ones whatever clock the broker is given."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._storage = ThreadPoolExecutor(STORAGE_THREADS, "storage")
        self._reading = ThreadPoolExecutor(READING_THREADS, "reading")
        self._positions = ThreadPoolExecutor(1, "positions")
        self._admissions = ThreadPoolExecutor(1, "admissions")
        self._conversions = ThreadPoolExecutor(1, "conversions")
        self._topics = ThreadPoolExecutor(1, "topics")

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `coroutine` as a task that `stop` cancels if it is not done by then."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def is_quiet(self) -> bool:
        """Whether no request is worked on that takes turns."""
        return not (self._tasks or self._waiting)

    def in_storage_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call that reads or writes a lot, in a thread."""
        return self._loop.run_in_executor(self._storage, call)

    def in_reading_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call that waits for the disk, in a thread."""
        return self._loop.run_in_executor(self._reading, call)

    def in_positions_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a commit of positions, after those before it."""
        return self._loop.run_in_executor(self._positions, call)

    def in_topics_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run what a change of topics does on the disk, after those before it."""
        return self._loop.run_in_executor(self._topics, call)

    def in_admission_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call that looks at what a producer sent."""
        return self._loop.run_in_executor(self._admissions, call)

    def in_conversion_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call that compresses or decompresses for a reader."""
        return self._loop.run_in_executor(self._conversions, call)

    def nothing(self) -> asyncio.Future[None]:
        """Work that is done already: for answers that need none, only their turn."""
        done = self._loop.create_future()
        done.set_result(None)
        return done

    def turns(self) -> "Turns":
        """For a long computation that begins now."""
        return Turns(self.time, self.next_turn)

    def start_pieces(self, pieces: Pieces[T], turns: "Turns") -> asyncio.Task[T]:
        """Do work that is in pieces, in turns with the requests; what comes of it."""
        return self.start(self.finish(pieces, turns))

    async def finish(self, pieces: Pieces[T], turns: "Turns") -> T:
        """As `start_pieces`, within a task."""
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                turns.end()
                found: T = end.value
                return found
            await turns.give_way()

    def next_turn(self) -> asyncio.Future[None]:
        """Done once the loop has served what there was, and earlier callers got a turn.

        One computation has a turn in each pass of the loop: of two hundred that are under way, all
        together would hold up the others two hundred times as long as one.
        """
        turn = self._loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._give_turn)
        return turn

    def _give_turn(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._loop.call_soon(self._give_turn)

    async def stop(self) -> None:
        """Cancel the tasks and wait for the threads."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        threads = (
            *(self._storage, self._reading, self._positions),
            *(self._admissions, self._conversions, self._topics),
        )
        for executor in threads:
            executor.shutdown(wait=False, cancel_futures=True)
            await self._loop.run_in_executor(None, executor.shutdown)


class Turns:
    """Lets a long computation give way: `await turns.give_way()` between its pieces.

    It gives way once `TURN_SECONDS` of the loop's time are used up, so a short computation never
    does. Its next turn is as long as the others took, within bounds.
    """

    __slots__ = ("_clock", "_next", "_since", "_until", "used_seconds")

    def __init__(
        self, monotonic: Callable[[], float], next_turn: Callable[[], asyncio.Future[None]]
    ) -> None:
        self._clock = monotonic
        self._next = next_turn
        self._since = monotonic()
        self._until = self._since + TURN_SECONDS
        self.used_seconds = 0.0
        """What the turns that are over took of the loop."""

    @property
    def over(self) -> bool:
        return self._clock() >= self._until

    async def give_way(self) -> None:
        began = self._clock()
        if began >= self._until:
            self.used_seconds += began - self._since
            await self._next()
            now = self._since = self._clock()
            self._until = now + min(max(now - began, TURN_SECONDS), MAX_TURN_SECONDS)

    def begin(self) -> None:
        """Go on behind a wait that was no work; `end` stood in front of it."""
        self._since = self._clock()
        self._until = self._since + TURN_SECONDS

    def end(self) -> None:
        """The computation is done."""
        now = self._clock()
        self.used_seconds += now - self._since
        self._since = now


async def searched(work: Work, turns: Turns, search: Search[T]) -> T:
    """What a search finds. Large sets are opened in a thread. Raises what its steps raise."""
    while not search.step():
        if search.opens:
            await work.in_conversion_thread(search.open)
        await turns.give_way()
    return search.result
