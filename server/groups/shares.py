"""How much of what all groups may take one client has: a user who logged in, and an address.

Each may have at most a multiple of what stays free: one alone nearly all, several about as much
each, and whoever comes next finds something left, however many came before.
"""

from collections import Counter
from typing import Final

from ...protocol.errors import PolicyViolation
from .member import Joining

_OF_USER: Final = 4
"""A user may have at most so many times what stays free: one alone four fifths of all."""

_OF_ADDRESS: Final = 8
"""An address may have more than a user: others may log in from there."""


class GroupShares:
    """Who has how much of a number of `unit`, which `setting` bounds."""

    def __init__(self, limit: int, unit: str, setting: str) -> None:
        self._limit = limit
        self._unit = unit
        self._setting = setting
        self._taken: Counter[str] = Counter()

    def add(self, client: Joining, amount: int) -> None:
        """Have a client take so much more; or less, for an amount below 0."""
        for name in _multiples(client):
            self._taken[name] += amount
            if not self._taken[name]:
                del self._taken[name]

    def check(self, client: Joining, amount: int, free: int) -> None:
        """Raise `PolicyViolation` where a client may not take so much more, when so much would stay
        free then."""
        for name, multiple in _multiples(client).items():
            taken = self._taken[name]
            if taken + amount > multiple * free:
                raise PolicyViolation(
                    f"groups of {name} take {taken} {self._unit}, and {amount} more would leave "
                    f"{max(free, 0)} of {self._limit} ({self._setting}) to others; {name} may take "
                    f"at most {multiple} times what is left"
                )

    def clear(self) -> None:
        """No group is known any more."""
        self._taken.clear()


def _multiples(client: Joining) -> dict[str, int]:
    """What a client is known by, and how many times what stays free that may have."""
    known = {}
    if client.user:
        known[client.user] = _OF_USER
    if client.client_host:
        known[f"address {client.client_host}"] = _OF_ADDRESS
    return known
