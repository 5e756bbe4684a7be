"""What a connection remembers of the windows that it reads."""

from collections import OrderedDict
from typing import Final

import msgspec

from ..storage.log.log import Log
from ..storage.read.window_sets import LogWindow, WindowKnowledge, knowledge_of

WINDOWS_KEPT: Final = 64
"""Partitions of windows that are remembered for a connection."""

_STALE_USES: Final = 1_024
"""A window that was not read while so many reads of windows were begun is given up first."""


class _KnownWindow(msgspec.Struct):
    """What a connection knows of a partition of a window."""

    offset: int = 0
    end_offset: int = 0
    """There is nothing of the window from `offset` up to here."""
    used: int = 0
    """Number of the last read of it."""
    stored: tuple[int, int] = (0, 0)
    """Between these offsets all messages are in the window, so that the sets go as stored."""


class WindowMemory:
    """Where the windows that a connection reads have no messages, so that the next fetch at an
    offset goes on where the last one ended.

    Each connection has its own: no client can push out what others need. If a client reads more
    windows at a time than are kept, those stay of which most was searched: a reader would otherwise
    begin anew with each fetch, and never come to the message at the end of a long log. It also
    holds what all readers of a window share (`WindowKnowledge`).
    """

    __slots__ = ("_known", "_uses")

    def __init__(self) -> None:
        self._known: OrderedDict[WindowKnowledge, _KnownWindow] | None = None
        """The window that was not read for longest comes first."""
        self._uses = 0

    def __len__(self) -> int:
        return len(self._known or ())

    def hold(self, log: Log, window: LogWindow, *, committed: bool) -> WindowKnowledge:
        """Return what is known of a window of a log, and remember the window."""
        shared = knowledge_of(log, window, committed=committed)
        if self._known is None:
            self._known = OrderedDict()
        self._uses += 1
        self._known.setdefault(shared, _KnownWindow()).used = self._uses
        self._known.move_to_end(shared)
        if len(self._known) > WINDOWS_KEPT:
            self._give_up_one(self._known)
        return shared

    def behind_empty(self, window: WindowKnowledge, offset: int) -> int:
        """How far it is known that there is nothing from `offset` on."""
        known = self._find(window)
        return known.end_offset if known is not None and known.offset == offset else offset

    def note_empty(self, window: WindowKnowledge, offset: int, end_offset: int) -> None:
        """There is nothing from `offset` to `end_offset`."""
        known = self._find(window)
        if known is not None and (offset != known.offset or end_offset > known.end_offset):
            known.offset, known.end_offset = offset, end_offset

    def stored_until(self, window: WindowKnowledge, offset: int) -> int:
        """Up to which offset, from `offset` on, the sets are known to go as stored."""
        known = self._find(window)
        if known is None or not known.stored[0] <= offset < known.stored[1]:
            return offset
        return known.stored[1]

    def note_stored(self, window: WindowKnowledge, offset: int, end_offset: int) -> None:
        """The sets from `offset` to `end_offset` go as stored."""
        known = self._find(window)
        if known is not None:
            known.stored = offset, end_offset

    def _find(self, window: WindowKnowledge) -> _KnownWindow | None:
        return None if self._known is None else self._known.get(window)

    def _give_up_one(self, known: "OrderedDict[WindowKnowledge, _KnownWindow]") -> None:
        oldest = next(iter(known))
        if self._uses - known[oldest].used <= _STALE_USES:
            oldest = min(known, key=lambda one: known[one].end_offset - known[one].offset)
        del known[oldest]
