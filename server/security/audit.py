"""Who was refused what, and who changed what: lines of the log with `logger` = `audit`.

There is no secret and no message in them. Refusals are what clients cause as fast as they like: of
one principal there are so many lines in so many seconds, and then one with the number of the
others.
"""

import asyncio
from typing import Final

from ...storage.events import Observer

LOGGER: Final = "audit"
REFUSALS: Final = 20
WINDOW_SECONDS: Final = 10.0
MAX_PRINCIPALS: Final = 1000
"""Those that are counted apart; the others are counted as one."""
_OTHERS: Final = "others"
_TEXT: Final = 300
"""Characters of a name, which a client may have made up."""


class Audit:
    """Writes the lines."""

    def __init__(self, observe: Observer) -> None:
        self._observe = observe
        self._counts: dict[str, int] = {}
        """Refusals of this window, by principal."""
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, by: str, peer: str, request: str, operation: str, resource: str) -> None:
        """Take note of a request without the right to it."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WINDOW_SECONDS, self._window_ends)
        who = by if by in self._counts or len(self._counts) < MAX_PRINCIPALS else _OTHERS
        count = self._counts[who] = self._counts.get(who, 0) + 1
        if count <= REFUSALS:
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

    def _window_ends(self) -> None:
        self._timer = None
        counts, self._counts = self._counts, {}
        for who, count in counts.items():
            if count > REFUSALS:
                self._observe(
                    "refusals_not_shown",
                    logger=LOGGER,
                    by=who[:_TEXT],
                    count=count - REFUSALS,
                    seconds=WINDOW_SECONDS,
                )
