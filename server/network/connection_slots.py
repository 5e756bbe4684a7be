"""Limits of connections: in total, per address, per user, and before a login."""

import itertools
from collections.abc import Hashable, Mapping
from operator import itemgetter
from typing import Final, Generic, TypeVar

from ...config.broker import BrokerSettings
from ...config.setting import counts
from ...protocol.errors import InvalidConfig
from ..security.session import principal_of

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
