"""State shared by the connections of the HTTP port: limits, host names and counters."""

import logging
from collections.abc import Collection, Mapping
from typing import Final

from ...storage.events import Observer
from ...values import value_class
from ..events import LibraryLog
from ..metrics.figures import Figures, count
from ..network.connections import ConnectionSlots
from ..network.listener import HTTP_CONNECTIONS

LONGEST_SHOWN: Final = 200


@value_class
class HttpLimits:
    """Limits of all connections together, and of each."""

    connections: int = HTTP_CONNECTIONS
    connections_per_ip: int = 0
    """Connections per address, at most half of `connections`; 0 means half."""
    head_seconds: float = 10.0
    """Time from the first byte of a request to the end of its head; for the first request, from the
    start of the connection."""
    idle_seconds: float = 60.0
    """Time from an answer to the next request, and for the client to take each part of an
    answer."""
    overrides: Mapping[str, int] | None = None
    """Other limits of connections, by address."""


class HttpPort:
    """Limits the connections of the HTTP port, and counts connections and refusals."""

    def __init__(
        self,
        figures: Figures,
        observe: Observer,
        *,
        names: Collection[str] = (),
        limits: HttpLimits | None = None,
    ) -> None:
        """`names` are the host names under which requests are answered."""
        self.limits = limits or HttpLimits()
        self.names = frozenset(names)
        self.logger = logging.Logger("aiohttp")
        """Receives the log entries of aiohttp."""
        self.logger.addHandler(LibraryLog(observe))
        self._figures = figures
        self._observe = observe
        most = max(self.limits.connections // 2, 1)
        per_ip = self.limits.connections_per_ip
        overrides = {address: min(n, most) for address, n in (self.limits.overrides or {}).items()}
        self._places = ConnectionSlots(
            self.limits.connections, min(per_ip or most, most), overrides
        )

    def admit(self, address: str) -> bool:
        """Take a slot for another connection until `gone`. Returns False if there is none."""
        reason = self._places.refusal(address)
        if reason is None:
            self._places.take(address)
            self._figures.http_connections += 1
            return True
        self.refused(f"http_{reason}", address=address)
        return False

    def gone(self, address: str) -> None:
        """Release the slot of a connection that is gone, or was never established."""
        self._places.give_back(address)
        self._figures.http_connections -= 1

    def refused(self, reason: str, **fields: object) -> None:
        """Record a connection that was closed at once."""
        count(self._figures.connections_refused, reason)
        self._observe(
            "connection_refused",
            reason=reason,
            http_connections=self._figures.http_connections,
            max_http_connections=self._places.capacity,
            max_http_connections_per_ip=self._places.most_from(fields.get("address")),
            **fields,
        )

    def dropped(self, address: str, reason: str, cause: str) -> None:
        """Record a connection that is closed because of what the client did or did not do."""
        count(self._figures.connections_dropped, reason)
        self._observe("connection_dropped", peer=address, reason=reason, cause=cause)

    def count_idle(self, address: str) -> None:
        """Record a connection that is closed because it was idle."""
        count(self._figures.connections_dropped, "http_idle")
        idle_seconds = self.limits.idle_seconds
        self._observe("connection_idle", peer=address, idle_seconds=idle_seconds)

    def request_refused(self, address: str | None, reason: str, cause: str) -> None:
        """Record a request that is malformed or refused."""
        count(self._figures.http_requests_refused, reason)
        self._observe("http_request_refused", peer=address, reason=reason, cause=shown(cause))

    def request_failed(self, error: BaseException | None) -> None:
        """Record a bug that a request ran into."""
        self._observe("http_request_failed", kind=type(error).__name__, error=error)


def shown(text: str) -> str:
    """Return a client's text in a form that is safe in a log or an answer: short, one line,
    ASCII."""
    safe = text.encode("ascii", "backslashreplace").decode("ascii")
    line = "".join(char if char.isprintable() else " " for char in safe)
    return line if len(line) <= LONGEST_SHOWN else f"{line[:LONGEST_SHOWN]}... (cut)"
