"""Work that does not fit into a callback: long computations in turns, calls in threads, the time
maps that a search of a window needs, and work that is put off until the answers of a turn of the
event loop are on their way."""

import asyncio
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from inspect import CORO_SUSPENDED, getcoroutinestate
from typing import Any, TypeVar

from ..clock import SystemClock
from ..protocol.api.pieces import Pieces
from ..storage.log.log import Log
from ..storage.read import windows
from ..storage.read.search import Search
from ..storage.segment.segment import Segment

T = TypeVar("T")

TURN_SECONDS = 0.00025
"""How long one request may compute before the event loop serves other requests: about as long as a
small request takes, so that none waits much longer than it takes itself."""

MAX_TURN_SECONDS = 0.001
"""The longest turn, after other requests took at least as long: so a computation makes progress
however many requests there are."""

STORAGE_THREADS = 2
"""Threads that prepare logs: two, so that one large log does not delay small ones."""

READING_THREADS = 4
"""Threads that read messages from the disk for fetches: a disk serves several reads at a time."""


class Deferrals:
    """Deferred steps, run in the order in which they were added."""

    __slots__ = ("_call_soon", "_steps")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._steps: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def add(self, step: Callable[..., None], *arguments: Any) -> None:
        """Defer `step(*arguments)`."""
        if not self._steps:
            self._call_soon(self._run)
        self._steps.append((step, arguments))

    def _run(self) -> None:
        steps = self._steps
        try:
            while steps:
                step, arguments = steps.popleft()
                step(*arguments)
        finally:
            if steps:  # one of them failed
                self._call_soon(self._run)


class Work:
    """The tasks of requests, and the threads for calls that would block the event loop.

    One thread is for producer ids and one for changes of topics, because these must not overtake
    one another. Admissions and conversions have one thread each, so that they leave the
    processor's other cores free.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.time: Callable[[], float] = SystemClock.monotonic
        """The real monotonic clock in seconds, even if a test gives the broker another clock. It
        runs within a turn of the event loop, as uvloop's own clock does not."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._began_now = False
        """Whether `start_now` has run something in this turn of the event loop."""
        self._storage = ThreadPoolExecutor(STORAGE_THREADS, "storage")
        self._reading = ThreadPoolExecutor(READING_THREADS, "reading")
        self._producer_ids = ThreadPoolExecutor(1, "producer-ids")
        self._admissions = ThreadPoolExecutor(1, "admissions")
        self._conversions = ThreadPoolExecutor(1, "conversions")
        self._topics = ThreadPoolExecutor(1, "topics")

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `coroutine` as a task that `stop` cancels if it is not done by then."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def start_now(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """As `start`, but run `coroutine` at once up to where it first waits: if it does not wait,
        its result is there, without a turn of the event loop. Only one does so in each turn: many
        requests that came together would hold up others."""
        if self._began_now:
            return self.start(coroutine)
        self._began_now = True
        self._loop.call_soon(self._end_turn)
        try:
            awaited = coroutine.send(None)
        except StopIteration as stop:
            done = self._loop.create_future()
            done.set_result(stop.value)
            return done
        task = self.start(_going_on(coroutine, awaited))
        task.add_done_callback(lambda _: _cancel_begun(coroutine))
        return task

    def _end_turn(self) -> None:
        self._began_now = False

    @property
    def is_quiet(self) -> bool:
        """Whether no request has a task or waits for a turn."""
        return not (self._tasks or self._waiting)

    def in_storage_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call that reads or writes much, in a thread."""
        return self._loop.run_in_executor(self._storage, call)

    def in_reading_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call that waits for the disk, in a thread."""
        return self._loop.run_in_executor(self._reading, call)

    def in_producer_ids_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a reservation of producer ids, in a thread, after earlier ones."""
        return self._loop.run_in_executor(self._producer_ids, call)

    def in_topics_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run the disk's part of a change of topics, in a thread, after earlier changes."""
        return self._loop.run_in_executor(self._topics, call)

    def in_admission_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call that checks a producer's record set, in a thread."""
        return self._loop.run_in_executor(self._admissions, call)

    def in_conversion_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call that compresses or decompresses for a reader, in a thread."""
        return self._loop.run_in_executor(self._conversions, call)

    def nothing(self) -> asyncio.Future[None]:
        """Return a future that is done: for answers that wait only for their turn."""
        done = self._loop.create_future()
        done.set_result(None)
        return done

    def turns(self) -> "Turns":
        """Return the turns of a long computation that begins now."""
        return Turns(self.time, self.next_turn)

    def start_pieces(self, pieces: Pieces[T], turns: "Turns") -> asyncio.Task[T]:
        """Run a computation in pieces, as a task, in turns with other requests."""
        return self.start(self.finish(pieces, turns))

    async def finish(self, pieces: Pieces[T], turns: "Turns") -> T:
        """As `start_pieces`, within the present task. Returns the result."""
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                turns.end()
                found: T = end.value
                return found
            await turns.give_way()

    def next_turn(self) -> asyncio.Future[None]:
        """Return a future that is done once the event loop has served the present requests, and
        earlier callers have had their turn.

        One computation has a turn in each pass of the event loop: two hundred together would delay
        other requests two hundred times as long as one.
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
            *(self._storage, self._reading, self._producer_ids),
            *(self._admissions, self._conversions, self._topics),
        )
        for executor in threads:
            executor.shutdown(wait=False, cancel_futures=True)
            await self._loop.run_in_executor(None, executor.shutdown)


class TimeMaps:
    """Makes time maps in threads, each once however many requests wait for it."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._under_way: dict[Segment, asyncio.Task[None]] = {}

    async def make(self, log: Log, segment: Segment) -> None:
        """Make the missing part of a segment's time map. Raises the errors of damaged messages, and
        of the disk."""
        making = self._under_way.get(segment)
        if making is None:
            making = self._work.start(self._make(log, segment))
            self._under_way[segment] = making
            making.add_done_callback(lambda _: self._under_way.pop(segment))
        await asyncio.shield(making)

    async def _make(self, log: Log, segment: Segment) -> None:
        mapping, cuts = windows.mapping(log, segment), segment.cuts
        await self._work.in_storage_thread(mapping.run)
        windows.apply_mapping(log, segment, mapping, cuts)


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
        """The event loop's time that past turns took."""

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
        """Begin to count again after a wait that was no work; `end` was called before it."""
        self._since = self._clock()
        self._until = self._since + TURN_SECONDS

    def end(self) -> None:
        """Count the time of the present turn, and stop counting."""
        now = self._clock()
        self.used_seconds += now - self._since
        self._since = now


def _cancel_begun(begun: Coroutine[Any, Any, Any]) -> None:
    """Cancel a coroutine whose task was cancelled before it went on."""
    if getcoroutinestate(begun) == CORO_SUSPENDED:
        with suppress(asyncio.CancelledError, StopIteration):
            begun.throw(asyncio.CancelledError())
        begun.close()


async def _going_on(begun: Coroutine[Any, Any, T], awaited: Any) -> T:
    return await _resumed(begun, awaited)


@types.coroutine
def _resumed(begun: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """Go on with a coroutine that waits for what it yielded."""
    while True:
        try:
            sent = yield awaited
        except BaseException as error:
            step = partial(begun.throw, error)
        else:
            step = partial(begun.send, sent)
        try:
            awaited = step()
        except StopIteration as stop:
            found: T = stop.value
            return found
        finally:
            # What it threw refers to this frame, which would stay until garbage is collected.
            del step


async def searched(work: Work, turns: Turns, search: Search[T]) -> T:
    """Run a search in turns, and return its result. Large record sets are decompressed in a thread.
    Raises the errors of the search."""
    while not search.step():
        if search.opens:
            await work.in_conversion_thread(search.open)
        await turns.give_way()
    return search.result
