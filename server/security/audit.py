"""Who was refused what, and who changed what: lines of the log with `logger` = `audit`.

There is no secret and no message in them. A change has its line always. Refusals, and changes that
failed, are what clients cause as fast as they like: of one principal there are so many lines in so
many seconds, and then one with the number of the others.
"""

import asyncio
from typing import Final

from ...storage.events import Observer

LOGGER: Final = "audit"
REFUSALS: Final = 20
FAILURES: Final = 20
"""Changes that failed, and have a line, of one principal in a window."""
DONE: Final = "done"
"""The outcome of a change that was made."""
WINDOW_SECONDS: Final = 10.0
MAX_PRINCIPALS: Final = 1000
"""Those that are counted apart; the others are counted as one."""
_OTHERS: Final = "others"
_TEXT: Final = 300
"""Characters of a name, which a client may have made up."""


class _Counts:
    """How often something happened in this window, by principal."""

    def __init__(self, most: int, summary: str) -> None:
        """Of each principal the first `most` have a line. `summary` is the event that says how many
        others there were."""
        self._most = most
        self._summary = summary
        self.by_principal: dict[str, int] = {}

    def add(self, by: str) -> bool:
        """Count one more; whether it has a line."""
        counts = self.by_principal
        who = by if by in counts or len(counts) < MAX_PRINCIPALS else _OTHERS
        counts[who] = counts.get(who, 0) + 1
        return counts[who] <= self._most

    def tell(self, observe: Observer) -> None:
        """Say how many had no line, and begin again."""
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
    """Writes the lines."""

    def __init__(self, observe: Observer) -> None:
        self._observe = observe
        self._refusals = _Counts(REFUSALS, "refusals_not_shown")
        self._failures = _Counts(FAILURES, "failures_not_shown")
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, by: str, peer: str, request: str, operation: str, resource: str) -> None:
        """Take note of a request without the right to it."""
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
        """Take note of a change, or of one that failed."""
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
