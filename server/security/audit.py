"""Audit log of refusals and changes: log entries with `logger` = `audit`.

They contain no secrets and no messages. Each successful change has an entry. Clients can cause
refusals and failed changes at any rate, so the entries per principal and time window are limited;
the others are counted in one entry.
"""

import asyncio
from typing import Final

from ...storage.events import Observer

LOGGER: Final = "audit"
REFUSALS: Final = 20
FAILURES: Final = 20
"""Failed changes of one principal that have entries in a window."""
DONE: Final = "done"
"""Outcome of a successful change."""
WINDOW_SECONDS: Final = 10.0
MAX_PRINCIPALS: Final = 1000
"""Principals that are counted separately; all others are counted together."""
_OTHERS: Final = "others"
_TEXT: Final = 300
"""Largest length of a name in an entry, because clients may make names up."""


class _Counts:
    """Number of events in the current window, by principal."""

    def __init__(self, most: int, summary: str) -> None:
        """The first `most` events of each principal have entries. `summary` is the event with the
        number of the others."""
        self._most = most
        self._summary = summary
        self.by_principal: dict[str, int] = {}

    def add(self, by: str) -> bool:
        """Count an event. Returns whether it has an entry."""
        counts = self.by_principal
        who = by if by in counts or len(counts) < MAX_PRINCIPALS else _OTHERS
        counts[who] = counts.get(who, 0) + 1
        return counts[who] <= self._most

    def tell(self, observe: Observer) -> None:
        """Report the numbers of events without entries, and start a new window."""
        counts, self.by_principal = self.by_principal, {}
        for who, count in counts.items():
            if count > self._most:
                observe(
                    self._summary,
                    logger=LOGGER,
                    by=who[:_TEXT],
                    count=count - self._most,
                    seconds=WINDOW_SECONDS,
                )


class Audit:
    """Writes the entries of the audit log, limited per principal and window."""

    def __init__(self, observe: Observer) -> None:
        self._observe = observe
        self._refusals = _Counts(REFUSALS, "refusals_not_shown")
        self._failures = _Counts(FAILURES, "failures_not_shown")
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, by: str, peer: str, request: str, operation: str, resource: str) -> None:
        """Record a request without the right to it."""
        self._begin_window()
        if self._refusals.add(by):
            self._observe(
                "action_refused",
                logger=LOGGER,
                by=by[:_TEXT],
                peer=peer,
                request=request,
                operation=operation,
                resource=resource[:_TEXT],
                outcome="refused",
            )

    def changed(self, event: str, what: str, by: str, peer: str, outcome: str, **more: str) -> None:
        """Record a change, or one that failed."""
        if outcome != DONE:
            self._begin_window()
            if not self._failures.add(by):
                return
        self._observe(
            event,
            logger=LOGGER,
            what=what[:_TEXT],
            by=by[:_TEXT],
            peer=peer,
            outcome=outcome,
            **more,
        )

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._window_ends()

    def _begin_window(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WINDOW_SECONDS, self._window_ends)

    def _window_ends(self) -> None:
        self._timer = None
        self._refusals.tell(self._observe)
        self._failures.tell(self._observe)
