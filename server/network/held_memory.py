"""The bytes that all clients together make the broker hold.

One connection is bounded by its own limits, but a thousand that each stay just below them would
take all the memory there is. So what they hold is added up: answers that are not read, and large
requests that are not complete. Above the limit a client is closed, and that is the one whose bytes
have been lying for the longest time: a client that reads and sends as
expected holds nothing for long.
"""

from collections.abc import Callable
from typing import Protocol

from ...protocol.limits import SLAB_BYTES

FREE_BYTES = SLAB_BYTES
"""Bytes of one connection that do not count: as many as its receive buffer takes anyway."""


class Holder(Protocol):
    """A connection, as far as it holds bytes."""

    held_since: float
    """When it last held nothing, in the loop's time."""

    def held_bytes(self) -> int: ...

    def give_up(self, total_bytes: int) -> None:
        """Close and let go of all bytes; all holders together have `total_bytes`."""
        ...


class HeldMemory:
    """Who holds how much.

    What was given up is only free once its connection is lost, in a later turn of the loop.
    A request that would make the broker hold more waits for that, or one turn could make as
    many answers as there are clients.
    """

    def __init__(self, limit_bytes: int, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._limit_bytes = limit_bytes
        self._call_soon = call_soon
        self._held: dict[Holder, int] = {}
        self._given_up: dict[Holder, int] = {}
        self._waiting: dict[Callable[[], None], None] = {}
        self.is_short = False
        """Whether a connection was asked to let go of bytes, and has not yet."""
        self.total_bytes = 0
        """As it was noted: what was sent to clients since then is still in it."""

    def ask_for_room(self, work: Callable[[], None]) -> bool:
        """Say whether more may be held. If not, `work` is called when that may have changed."""
        if not self.is_short:
            return True
        if self.total_bytes + sum(self._given_up.values()) <= self._limit_bytes:
            return True
        self._waiting[work] = None
        return False

    def note(self, holder: Holder) -> None:
        """Take note of what `holder` holds, and close the laziest when all of it is too much."""
        held_bytes = holder.held_bytes()
        if held_bytes > FREE_BYTES or holder in self._held:
            self._set(holder, held_bytes)
        if self.total_bytes > self._limit_bytes:
            for each in list(self._held):
                self._set(each, each.held_bytes())
            self._make_room()

    def forget(self, holder: Holder) -> None:
        """`holder` is gone."""
        self._set(holder, 0)
        if self._given_up.pop(holder, 0):
            self.is_short = bool(self._given_up)
            waiting, self._waiting = self._waiting, {}
            for work in waiting:
                self._call_soon(work)

    def _set(self, holder: Holder, held_bytes: int) -> None:
        self.total_bytes -= self._held.pop(holder, 0)
        if held_bytes > FREE_BYTES:
            self._held[holder] = held_bytes
            self.total_bytes += held_bytes

    def _make_room(self) -> None:
        # The last one is within the limits of one connection, whatever this limit is.
        while self.total_bytes > self._limit_bytes and len(self._held) > 1:
            laziest = min(self._held, key=lambda holder: holder.held_since)
            total_bytes = self.total_bytes
            self._given_up[laziest] = self._held[laziest]
            self.is_short = True
            self._set(laziest, 0)
            laziest.give_up(total_bytes)
