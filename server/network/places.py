"""How many connections there are, in all and from each address."""

from typing import Final

TOO_MANY: Final = "max_connections"
TOO_MANY_PER_IP: Final = "max_connections_per_ip"
"""Reasons to refuse a connection, as the metrics and the log have them."""


class Places:
    """At most `capacity` are taken at one time, and at most `per_address` from one address.

    With a `per_address` of 0 that is half of them.
    """

    def __init__(self, capacity: int, per_address: int = 0) -> None:
        self.capacity = capacity
        self.per_address = per_address or max(capacity // 2, 1)
        self._taken = 0
        self._by_address: dict[str, int] = {}

    def refusal(self, address: str) -> str | None:
        """Why there is no place for one more from `address`, if there is none."""
        if self._taken >= self.capacity:
            return TOO_MANY
        if self._by_address.get(address, 0) >= self.per_address:
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
