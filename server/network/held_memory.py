"""Limits on memory: how much the process may take, and how much all clients together may make the
broker hold.

Each connection is bounded by its own limits, but a thousand connections just below them would take
all memory. So the bytes of all connections are added up, in two parts.

    left        unread answers, incomplete large requests, waiting requests
    at work     requests in progress with their answers, counted before any of it is made

Above the limit, the client whose bytes have been held longest is closed: a client that reads and
sends as expected leaves nothing for long. Work closes no client as long as it finds room otherwise:
a request without room waits, and so does its connection. Work gets at most half of the limit, so
that slow readers keep the other half.

Python does not survive running out of memory completely: even reporting the failure fails then. So
if the system allows little memory (`ulimit -v`, a container), the limits of clients are lowered to
what fits, and a request that is too large is refused by its size.
"""

import resource
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from ...config.broker import BrokerSettings
from ...protocol.limits import SLAB_BYTES
from ...storage.events import Observer

BUFFERED_SHARE: Final = 4
"""All clients together may make the broker hold 1/4 of the memory that is left."""

REQUEST_SHARE: Final = 8
"""The largest request, and the largest answer, may take 1/8 of the memory that is left: up to four
copies of each exist while it is handled."""

OWN_BYTES: Final = 128 << 20
"""Address space that the process itself takes after its start: for the stacks of threads, the
allocator's arenas, and libraries that are loaded late."""

SMALLEST_BYTES: Final = 1 << 20
"""No limit is lowered below this: the largest message that is allowed by default has to fit."""

_CGROUP: Final = Path("/sys/fs/cgroup")

FREE_BYTES = SLAB_BYTES
"""Bytes of one connection that are not counted, as many as its receive buffer takes anyway."""


class Holder(Protocol):
    """Connection, as a holder of memory."""

    held_since: float
    """Time at which the connection last held nothing, on the event loop's clock."""

    @property
    def address(self) -> str:
        """Address of the client."""
        ...

    def held_bytes(self) -> int:
        """Return the bytes that the client has left."""
        ...

    def give_up(self, total_bytes: int) -> None:
        """Close and release all bytes; all holders together have `total_bytes`."""
        ...

    def room_came(self) -> None:
        """Continue with the request that waited for room."""
        ...


class HeldMemory:
    """Bytes held by each connection.

    The bytes of a closed connection are free only when its transport reports the loss, in a later
    pass of the event loop. A request that would make the broker hold more waits for that; otherwise
    one pass could make as many answers as there are clients.
    """

    def __init__(self, limit_bytes: int, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._limit_bytes = limit_bytes
        self._call_soon = call_soon
        self._left: dict[Holder, int] = {}
        self._left_bytes = 0
        self._at_work: dict[Holder, int] = {}
        self._work_bytes = 0
        self._given_up: dict[Holder, int] = {}
        self._waiting: dict[Callable[[], None], None] = {}
        self._queue = _WaitingForRoom()
        self._serves_soon = False
        self._turn_is_taken = False
        """Whether work on a large request began in this pass of the event loop."""
        self._served: tuple[Holder, int] | None = None
        """Connection whose turn it is, and the bytes for which there is room."""
        self.is_short = False
        """Whether a connection was told to release its bytes, and has not yet."""

    @property
    def total_bytes(self) -> int:
        """Recorded bytes, including those that were sent to clients since they were recorded."""
        return self._left_bytes + self._work_bytes

    def count_again(self) -> int:
        """Return the held bytes, without those that were sent to clients meanwhile."""
        for each in list(self._left):
            self._set_left(each, each.held_bytes())
        return self.total_bytes

    def ask_for_room(self, work: Callable[[], None]) -> bool:
        """Whether more may be held. If not, `work` is called when that may have changed."""
        if not self.is_short:
            return True
        if self.total_bytes + sum(self._given_up.values()) <= self._limit_bytes:
            return True
        self._waiting[work] = None
        return False

    def take_room(self, holder: Holder, size_bytes: int) -> bool:
        """Whether `holder` may work on a request of this size.

        If so, the caller must call `note_work` in the same pass of the event loop. If not, `holder`
        waits and is called when its turn has come: client addresses take turns, one request each.
        Only one large request begins per pass, because reading it may take a while.
        """
        if self._served is not None and self._served[0] is holder:
            if size_bytes <= self._served[1]:
                return True
        elif not (self._queue or self._turn_is_taken) and self.has_room(size_bytes):
            if size_bytes > FREE_BYTES:
                self._turn_is_taken = True
                self._serve_soon()
            return True
        self._queue.add(holder, size_bytes)
        if not self._at_work:
            self._serve_soon()
        return False

    def note(self, holder: Holder) -> None:
        """Record what the client of `holder` has left. If all clients hold too much, close those
        that have held bytes longest."""
        held_bytes = holder.held_bytes()
        if held_bytes > FREE_BYTES or holder in self._left:
            self._set_left(holder, held_bytes)
        if self._left_bytes + self._work_bytes > self._limit_bytes:
            self.count_again()
            self._close_laziest(0)

    def note_work(self, holder: Holder, work_bytes: int) -> None:
        """Record the bytes of requests in progress for `holder`."""
        before = self._at_work.pop(holder, 0)
        if work_bytes > FREE_BYTES:
            self._at_work[holder] = work_bytes
        else:
            work_bytes = 0
        self._work_bytes += work_bytes - before
        if work_bytes < before and self._queue:
            self._serve_soon()

    def forget(self, holder: Holder) -> None:
        """Remove a connection that is gone."""
        self._set_left(holder, 0)
        self._queue.discard(holder)
        self.note_work(holder, 0)
        if self._given_up.pop(holder, 0):
            self.is_short = bool(self._given_up)
            waiting, self._waiting = self._waiting, {}
            for work in waiting:
                self._call_soon(work)
            if self._queue:
                self._serve_soon()

    def _set_left(self, holder: Holder, held_bytes: int) -> None:
        self._left_bytes -= self._left.pop(holder, 0)
        if held_bytes > FREE_BYTES:
            self._left[holder] = held_bytes
            self._left_bytes += held_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Whether there is room for work of this size; clients that have held bytes for long are
        closed for it. While there is no other work, there is room for any size."""
        if not self._at_work:
            return True
        if self._work_bytes + size_bytes > self._limit_bytes // 2:
            return False
        if self._would_be(size_bytes) > self._limit_bytes:
            self.count_again()
            self._close_laziest(size_bytes)
        return self._would_be(size_bytes) <= self._limit_bytes

    def _would_be(self, more_bytes: int) -> int:
        return self.total_bytes + sum(self._given_up.values()) + more_bytes

    def _close_laziest(self, more_bytes: int) -> None:
        """Close connections until there is room for `more_bytes`.

        Clients may always leave half of the limit. The last connection stays, because its own
        limits bound it.
        """
        most_bytes = self._limit_bytes - self._work_bytes - more_bytes
        most_bytes = max(most_bytes, self._limit_bytes // 2)
        while self._left_bytes > most_bytes and len(self._left) > 1:
            laziest = min(self._left, key=lambda holder: holder.held_since)
            total_bytes = self.total_bytes
            self._given_up[laziest] = self._left[laziest]
            self.is_short = True
            self._set_left(laziest, 0)
            laziest.give_up(total_bytes)

    def _serve_soon(self) -> None:
        if not self._serves_soon:
            self._serves_soon = True
            self._call_soon(self._serve)

    def _serve(self) -> None:
        """Let the next waiting connection continue, if there is room for its request."""
        self._serves_soon = self._turn_is_taken = False
        found = self._queue.first()
        if found is None or not self.has_room(found[1]):
            return
        self._queue.served(found[0])
        self._served = found
        self._turn_is_taken = found[1] > FREE_BYTES
        try:
            found[0].room_came()
        finally:
            self._served = None
        if self._queue or self._turn_is_taken:
            self._serve_soon()


class _WaitingForRoom:
    """Connections that wait for room. Client addresses take turns."""

    __slots__ = ("_by_address",)

    def __init__(self) -> None:
        self._by_address: dict[str, dict[Holder, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_address)

    def add(self, holder: Holder, size_bytes: int) -> None:
        """Add `holder` with the size it needs. A holder that already waits keeps its place."""
        self._by_address.setdefault(holder.address, {})[holder] = size_bytes

    def first(self) -> tuple[Holder, int] | None:
        """Return the connection whose turn it is, and the size it needs; None if none waits."""
        for of_address in self._by_address.values():
            return next(iter(of_address.items()))
        return None

    def served(self, holder: Holder) -> None:
        """Remove `holder`. The next turn belongs to another address."""
        of_address = self._by_address.pop(holder.address)
        del of_address[holder]
        if of_address:
            self._by_address[holder.address] = of_address

    def discard(self, holder: Holder) -> None:
        """Remove a connection that is gone."""
        of_address = self._by_address.get(holder.address)
        if of_address is not None and of_address.pop(holder, None) is not None and not of_address:
            del self._by_address[holder.address]


def memory_left() -> int | None:
    """Return how many bytes this process may still take; `None` if there is no limit."""
    left = []
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    with suppress(OSError, ValueError, IndexError):
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            left.append(limit - pages * resource.getpagesize() - OWN_BYTES)
    with suppress(OSError, ValueError, KeyError):
        left.append(_left_in_container(_CGROUP))
    return max(min(left), 0) if left else None


def _left_in_container(cgroup: Path) -> int:
    """Return how many bytes are left in the container. Raises `ValueError` if there is no limit:
    the file then says "max", which is no number.

    Cached files count as used, but are given up when the memory is needed.
    """
    limit = int((cgroup / "memory.max").read_text())
    used = int((cgroup / "memory.current").read_text())
    statistics = dict(line.split(" ") for line in (cgroup / "memory.stat").read_text().splitlines())
    return limit - used + int(statistics["file"])


def fitting_limits(settings: BrokerSettings, left_bytes: int | None) -> dict[str, int]:
    """Return the values of `max_buffered_bytes`, `max_frame_bytes` and `max_response_bytes` that
    fit into the memory that is left."""
    shares = {
        "max_buffered_bytes": BUFFERED_SHARE,
        "max_frame_bytes": REQUEST_SHARE,
        "max_response_bytes": REQUEST_SHARE,
    }
    limits = {name: int(getattr(settings, name)) for name in shares}
    if left_bytes is None:
        return limits
    return {
        name: min(limit, max(left_bytes // shares[name], SMALLEST_BYTES))
        for name, limit in limits.items()
    }


def within_memory(settings: BrokerSettings, observe: Observer) -> BrokerSettings:
    """Return the settings with limits of clients that fit into the memory of the process."""
    fitting = fitting_limits(settings, memory_left())
    lowered = {name: limit for name, limit in fitting.items() if limit != getattr(settings, name)}
    if not lowered:
        return settings
    reason = "the process may not take enough memory (ulimit -v, or its container's limit)"
    observe("limits_lowered", reason=reason, **lowered)
    return replace(settings, **fitting)  # type: ignore[arg-type]
