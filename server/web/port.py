"""What the connections of the HTTP port share: how many there may be, how long each may take, the
names that are answered, and what is counted."""

import logging
from collections.abc import Collection, Mapping
from typing import Final

from ...storage.events import Observer
from ...values import value_class
from ..library_log import LibraryLog
from ..metrics.figures import Figures, count
from ..network.connection_slots import ConnectionSlots
from ..network.listener import HTTP_CONNECTIONS

LONGEST_SHOWN: Final = 200


@value_class
class HttpLimits:
    """What connections may cost, all together and each."""

    connections: int = HTTP_CONNECTIONS
    connections_per_ip: int = 0
    """Half of the above, if that is less, or this is 0."""
    head_seconds: float = 10.0
    """From the first byte of a request to the end of its head; of the first one, from the start of
    the connection."""
    idle_seconds: float = 60.0
    """From an answer to the next request, and for each part of an answer to be taken."""
    overrides: Mapping[str, int] | None = None
    """Other numbers of connections, by address."""


class HttpPort:
    """Counts connections, and what is refused of them."""

    def __init__(
        self,
        figures: Figures,
        observe: Observer,
        *,
        names: Collection[str] = (),
        limits: HttpLimits | None = None,
    ) -> None:
        """Requests are answered under `names`."""
        self.limits = limits or HttpLimits()
        self.names = frozenset(names)
        self.logger = logging.Logger("aiohttp")
        """For what aiohttp logs."""
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
        """Take a place for one more connection, until `gone`; False where there is none."""
        reason = self._places.refusal(address)
        if reason is None:
            self._places.take(address)
            self._figures.http_connections += 1
            return True
        self.refused(f"http_{reason}", address=address)
        return False

    def gone(self, address: str) -> None:
        """A connection from `address` is gone, or never came to be."""
        self._places.give_back(address)
        self._figures.http_connections -= 1

    def refused(self, reason: str, **fields: object) -> None:
        """Take note of a connection that was closed at once."""
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
        """Take note of a connection that is closed for what the client does, or does not."""
        count(self._figures.connections_dropped, reason)
        self._observe("connection_dropped", peer=address, reason=reason, cause=cause)

    def count_idle(self, address: str) -> None:
        """Take note of a connection that is closed for silence."""
        count(self._figures.connections_dropped, "http_idle")
        idle_seconds = self.limits.idle_seconds
        self._observe("connection_idle", peer=address, idle_seconds=idle_seconds)

    def request_refused(self, address: str | None, reason: str, cause: str) -> None:
        """Take note of a request that is none, or that is not answered."""
        count(self._figures.http_requests_refused, reason)
        self._observe("http_request_refused", peer=address, reason=reason, cause=shown(cause))

    def request_failed(self, error: BaseException | None) -> None:
        """Take note of a bug that a request has met."""
        self._observe("http_request_failed", kind=type(error).__name__, error=error)


def shown(text: str) -> str:
    """What a client sent, as it may stand in a log or an answer: short, one line, ASCII."""
    safe = text.encode("ascii", "backslashreplace").decode("ascii")
    line = "".join(char if char.isprintable() else " " for char in safe)
    return line if len(line) <= LONGEST_SHOWN else f"{line[:LONGEST_SHOWN]}... (cut)"
