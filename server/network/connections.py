"""All connections of the broker: their limits in total, per address, per user and before a login,
and how connections end."""

import asyncio
import itertools
from collections import deque
from collections.abc import Hashable, Mapping
from operator import itemgetter
from typing import Final, Generic, TypeVar

from ...config.broker import BrokerSettings
from ...config.setting import counts
from ...protocol.errors import InvalidConfig
from ...protocol.limits import SHARED_SLAB_BYTES, SPARE_FRAMES
from ...storage.events import Observer
from ..metrics.figures import Figures, count
from ..security.session import principal_of
from .connection import Connection
from .endpoint import ConnectionLimits, Endpoint
from .file_sending import InThread
from .held_memory import HeldMemory
from .ready_connections import ReadyConnections

T = TypeVar("T", bound=Hashable)

TOO_MANY: Final = "max_connections"
TOO_MANY_PER_IP: Final = "max_connections_per_ip"
TOO_MANY_PER_USER: Final = "max_connections_per_user"
UNAUTHENTICATED: Final = "unauthenticated"
"""Reasons to refuse a connection, as used in metrics and the log."""


class ConnectionSlots:
    """At most `capacity` connections, of which at most `per_address` from one address.

    A `per_address` of 0 means half of the capacity. `overrides` has other limits by address.
    """

    def __init__(
        self, capacity: int, per_address: int = 0, overrides: Mapping[str, int] | None = None
    ) -> None:
        self.capacity = capacity
        self.per_address = per_address or max(capacity // 2, 1)
        self._overrides = overrides or {}
        self._taken = 0
        self._by_address: dict[str, int] = {}

    def most_from(self, address: object) -> int:
        """Return the limit of connections from an address."""
        return self._overrides.get(str(address), self.per_address)

    def refusal(self, address: str) -> str | None:
        """Return why there is no room for another connection from `address`; None if there is
        room."""
        if self._taken >= self.capacity:
            return TOO_MANY
        if self._by_address.get(address, 0) >= self._overrides.get(address, self.per_address):
            return TOO_MANY_PER_IP
        return None

    def take(self, address: str) -> None:
        self._taken += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1

    def give_back(self, address: str) -> None:
        self._taken -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]


class LoginSlots(Generic[T]):
    """At most `most` connections that have not logged in.

    When all slots are taken, the address with most of them makes room for others: its oldest
    connection is closed. That address itself gets no further slot.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers = itertools.count()
        self._by_address: dict[str, dict[T, int]] = {}
        """Connections of each address, oldest first, numbered in the order of arrival."""
        self._address_of: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._address_of)

    @property
    def are_taken(self) -> bool:
        return len(self._address_of) >= self._most

    def surplus(self, address: str) -> T | None:
        """Return the connection to be closed for another one from `address`; None if that address
        has most."""
        most = max(map(len, self._by_address.values()), default=0)
        if len(self._by_address.get(address, ())) >= most:
            return None
        oldest = [
            next(iter(of_address.items()))
            for of_address in self._by_address.values()
            if len(of_address) == most
        ]
        return min(oldest, key=itemgetter(1))[0]

    def take(self, connection: T, address: str) -> None:
        self._by_address.setdefault(address, {})[connection] = next(self._numbers)
        self._address_of[connection] = address

    def give_back(self, connection: T) -> None:
        """Release the slot of a connection that logged in or is gone. It may have no slot any
        more."""
        address = self._address_of.pop(connection, None)
        if address is not None:
            of_address = self._by_address[address]
            del of_address[connection]
            if not of_address:
                del self._by_address[address]


class UserSlots:
    """At most `most` connections per principal (0: no limit), or the number in `overrides`."""

    def __init__(self, most: int = 0, overrides: Mapping[str, int] | None = None) -> None:
        self._most = most
        self._overrides = overrides or {}
        self._taken: dict[str, int] = {}

    def most_of(self, principal: str) -> int | None:
        """Return the limit of connections of a principal; None without a limit."""
        return self._overrides.get(principal, self._most or None)

    def take(self, principal: str) -> bool:
        """Take a slot until `give_back`. Returns False when there is none."""
        most = self.most_of(principal)
        taken = self._taken.get(principal, 0)
        if most is not None and taken >= most:
            return False
        self._taken[principal] = taken + 1
        return True

    def give_back(self, principal: str) -> None:
        left = self._taken[principal] - 1
        if left:
            self._taken[principal] = left
        else:
            del self._taken[principal]


def user_places(settings: BrokerSettings) -> UserSlots:
    """Return the slots per user from the settings."""
    overrides = counts(settings.max_connections_per_user_overrides)
    by_principal = {principal_of(name): most for name, most in overrides.items()}
    return UserSlots(settings.max_connections_per_user, by_principal)


def address_counts(text: str) -> Mapping[str, int]:
    """Return `max.connections.per.ip.overrides` by address; host names are resolved.

    Raises `InvalidConfig` for a name without an address.
    """
    found: dict[str, int] = {}
    for name, number in counts(text).items():
        for address in _addresses(name):
            found[address] = number
    return found


def _addresses(name: str) -> set[str]:
    import ipaddress  # Most brokers start without it.
    import socket

    try:
        found = ipaddress.ip_address(name)
        return {str(getattr(found, "ipv4_mapped", None) or found)}
    except ValueError:
        pass
    try:
        known = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidConfig(
            f"max.connections.per.ip.overrides: {name!r} is no address, and no host of that name "
            f"is known: {error}"
        ) from None
    return {str(each[4][0]) for each in known}


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
