"""All connections of the broker: their limits, and how they end."""

import asyncio
from collections import deque

from ...protocol.limits import SHARED_SLAB_BYTES, SPARE_FRAMES
from ...storage.events import Observer
from ..metrics.figures import Figures, count
from .connection import Connection
from .connection_slots import (
    TOO_MANY_PER_USER,
    UNAUTHENTICATED,
    ConnectionSlots,
    LoginSlots,
    UserSlots,
)
from .endpoint import Endpoint
from .file_sending import InThread
from .held_memory import HeldMemory
from .host import ConnectionLimits
from .ready_connections import ReadyConnections


class Connections:
    """Open connections, bounded by `places`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        places: ConnectionSlots,
        limits: ConnectionLimits,
        max_buffered_bytes: int,
        figures: Figures,
        observe: Observer,
        in_thread: InThread,
        max_unauthenticated: int = 1000,
        users: UserSlots | None = None,
    ) -> None:
        """`max_unauthenticated` bounds the connections in a TLS handshake or in a required
        login."""
        self._loop = loop
        self._places = places
        self._users = users or UserSlots()
        self._observe = observe
        self._ready: dict[Endpoint, ReadyConnections] = {}
        self._open: dict[Connection, str] = {}
        """Address from which each connection comes."""
        self._outside: LoginSlots[asyncio.BaseProtocol] = LoginSlots(max_unauthenticated)
        """Slots of connections that have not logged in."""
        self._empty = asyncio.Event()
        self._empty.set()
        self.limits = limits
        self.figures = figures
        self.in_thread = in_thread
        self.slab = bytearray(SHARED_SLAB_BYTES)
        self.spares: deque[bytearray] = deque(maxlen=SPARE_FRAMES)
        self.held_memory = HeldMemory(max_buffered_bytes, loop.call_soon)

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, endpoint: Endpoint, address: str) -> Connection | None:
        """Return a protocol for a new connection to `endpoint`; None above the limit of all
        connections, or of those from this address."""
        reason = self._places.refusal(address)
        if reason is None and endpoint.makes_wait and not self._make_room_outside(address):
            reason = UNAUTHENTICATED
        if reason is not None:
            self.refused(reason, address=address)
            return None
        ready = self._ready.get(endpoint)
        if ready is None:
            ready = ReadyConnections(self._loop.call_soon, endpoint.answerer.answer_in_bulk)
            self._ready[endpoint] = ready
        connection = Connection(self, endpoint, ready, self._loop)
        self._open[connection] = address
        if endpoint.makes_wait:
            self._outside.take(connection, address)
        self._places.take(address)
        self._empty.clear()
        return connection

    def _make_room_outside(self, address: str) -> bool:
        """Whether there is a slot for another connection before its login. A connection of an
        address that has more of them may be closed for it."""
        if not self._outside.are_taken:
            return True
        surplus = self._outside.surplus(address)
        if surplus is None:
            return False
        self._outside.give_back(surplus)
        assert isinstance(surplus, Connection)
        surplus.give_way(self._open[surplus])
        return True

    def refused(self, reason: str, **fields: object) -> None:
        """Record a connection that was closed at once."""
        count(self.figures.connections_refused, reason)
        self._observe(
            "connection_refused",
            reason=reason,
            connections=len(self._open),
            max_connections=self._places.capacity,
            max_connections_per_ip=self._places.most_from(fields.get("address")),
            **fields,
        )

    def observe(self, event: str, /, **fields: object) -> None:
        self._observe(event, **fields)

    @property
    def outside(self) -> int:
        """Number of connections that have not logged in."""
        return len(self._outside)

    def let_in(self, connection: asyncio.BaseProtocol) -> None:
        """Record that a connection has logged in, or needs no login."""
        self._outside.give_back(connection)

    def enter(self, principal: str, address: str) -> int | None:
        """Take a slot of a user until `leave`. Returns None, or the limit if all slots are
        taken."""
        if self._users.take(principal):
            return None
        most = self._users.most_of(principal)
        self.refused(
            TOO_MANY_PER_USER, address=address, user=principal, max_connections_per_user=most
        )
        return most

    def leave(self, principal: str) -> None:
        """Release a user's slot when the connection is gone."""
        self._users.give_back(principal)

    def closed(self, connection: asyncio.BaseProtocol) -> None:
        """Remove a connection that is gone, or that was never established."""
        self._outside.give_back(connection)
        address = self._open.pop(connection, None)  # type: ignore[call-overload]
        if address is not None:
            self._places.give_back(address)
        if not self._open:
            self._empty.set()

    async def finish(self, seconds: float) -> None:
        """Answer what was received and close all connections, by force after `seconds`."""
        for connection in list(self._open):
            connection.finish()
        if not await self._all_gone(seconds):
            for connection in list(self._open):
                connection.abort()
            # Transports call their protocols in the next pass of the event loop.
            await self._all_gone(seconds)

    async def _all_gone(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
