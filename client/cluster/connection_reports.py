"""What a client reports about its connections, to the logger `horolog.client`."""

import logging
from typing import Final

SLOW_S: Final = 5.0
"""Seconds without an answer after which a broker is reported as slow. Time that a request lets the
broker wait does not count, except that for durable appends."""

QUIET_S: Final = 10.0
"""Shortest time between two reports of a kind; the next report has the number of those left out."""

IDLE_S: Final = 60.0
"""Idle seconds after which the end of a connection is not reported: brokers close idle ones."""

_log: Final = logging.getLogger("horolog.client")


class ConnectionReports:
    """Reports on the successive connections of one link. Times are those of the event loop's
    clock."""

    def __init__(self) -> None:
        self._losses = _Limit()
        self._waits = _Limit()
        self._lost_at: float | None = None
        self._silent_since: float | None = None

    def lost(self, address: str, reason: str, now: float) -> None:
        """Report that a connection was lost."""
        self._silent_since = None
        left_out = self._losses.admit(now)
        if left_out is not None:
            self._lost_at = now
            _log.warning("lost the connection to %s: %s%s", address, reason, _more(left_out))

    def connected(self, address: str, now: float) -> None:
        """Report the connection after one whose loss was reported."""
        if self._lost_at is not None:
            _log.info("connected to %s again after %.1f s", address, now - self._lost_at)
            self._lost_at = None

    def waits(self, address: str, request: str, since: float, now: float) -> None:
        """Report that a request has waited since `since` for its answer; once until `answered`."""
        if self._silent_since is None:
            self._silent_since = since
            left_out = self._waits.admit(now)
            if left_out is not None:
                text = "%s has not answered %s for %.1f s%s"
                _log.warning(text, address, request, now - since, _more(left_out))

    def answered(self, address: str, now: float) -> None:
        """Report the first answer after `waits`."""
        if self._silent_since is not None:
            waited_s, self._silent_since = now - self._silent_since, None
            _log.info("%s answers again after %.1f s", address, waited_s)


class _Limit:
    """Admits one report in `QUIET_S`."""

    def __init__(self) -> None:
        self._not_before = 0.0
        self._left_out = 0

    def admit(self, now: float) -> int | None:
        """Return the number of reports that were left out before this one; None to leave out this
        one too."""
        if now < self._not_before:
            self._left_out += 1
            return None
        self._not_before = now + QUIET_S
        left_out, self._left_out = self._left_out, 0
        return left_out


def _more(left_out: int) -> str:
    return f" (and {left_out} more since the last report)" if left_out else ""
