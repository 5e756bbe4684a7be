"""How many connections there are: in all, from each address, of each user, before a login."""

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
"""Reasons to refuse a connection, as the metrics and the log have them."""


class ConnectionSlots:
    """At most `capacity` are taken at one time, and at most `per_address` from one address.

    With a `per_address` of 0 that is half of them. `overrides` are other numbers, by address.
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
        """How many there may be from an address."""
        return self._overrides.get(str(address), self.per_address)

    def refusal(self, address: str) -> str | None:
        """Why there is no place for one more from `address`, if there is none."""
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
    """At most `most` connections that have not been let in.

    Once all of these places are taken, the address that has most of them makes room for others: its
    oldest connection gives way. It gets no further place itself.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers = itertools.count()
        self._by_address: dict[str, dict[T, int]] = {}
        """The connections of each address, the oldest first, with numbers in their order."""
        self._address_of: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._address_of)

    @property
    def are_taken(self) -> bool:
        return len(self._address_of) >= self._most

    def surplus(self, address: str) -> T | None:
        """The connection that gives way to one more from `address`; `None` where that is the
        address that has most."""
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
        """It was let in, or is gone; perhaps it has no place any more."""
        address = self._address_of.pop(connection, None)
        if address is not None:
            of_address = self._by_address[address]
            del of_address[connection]
            if not of_address:
                del self._by_address[address]


class UserSlots:
    """At most `most` connections of each principal, those in `overrides` apart; 0 is no limit."""

    def __init__(self, most: int = 0, overrides: Mapping[str, int] | None = None) -> None:
        self._most = most
        self._overrides = overrides or {}
        self._taken: dict[str, int] = {}

    def most_of(self, principal: str) -> int | None:
        """How many there may be of a principal; `None` without a limit."""
        return self._overrides.get(principal, self._most or None)

    def take(self, principal: str) -> bool:
        """Take a place, until `give_back`; False when there is none."""
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
    """As the settings say."""
    overrides = counts(settings.max_connections_per_user_overrides)
    by_principal = {principal_of(name): most for name, most in overrides.items()}
    return UserSlots(settings.max_connections_per_user, by_principal)


def address_counts(text: str) -> Mapping[str, int]:
    """`max.connections.per.ip.overrides` by address; names of hosts are looked up.

    Raises `InvalidConfig` for a name that has no address.
    """
    found: dict[str, int] = {}
    for name, number in counts(text).items():
        for address in _addresses(name):
            found[address] = number
    return found


def _addresses(name: str) -> set[str]:
    import ipaddress  # most brokers start without
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
