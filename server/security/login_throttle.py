"""How long an address waits that guesses passwords."""

from collections.abc import Callable
from typing import Final

FREE_FAILURES: Final = 3
"""So many logins of an address may fail before the next ones wait: people mistype."""
FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 4.0
"""Short of what a login may take in all, so that the right password still gets in."""
FORGOTTEN_SECONDS: Final = 300.0
MAX_ADDRESSES: Final = 10_000
"""Those whose failures are remembered; beyond, the oldest are forgotten."""


class LoginThrottle:
    """Counts failed logins by address."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._failures: dict[str, tuple[int, float]] = {}
        """How many, and when the last one was; the address that failed last comes last."""

    def failed(self, address: str) -> None:
        count = self._count(address) + 1
        self._failures.pop(address, None)
        self._failures[address] = count, self._time()
        if len(self._failures) > MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]

    def seconds(self, address: str) -> float:
        """How long the next login from there is kept waiting, right or wrong."""
        over = self._count(address) - FREE_FAILURES
        if over < 0:
            return 0.0
        return min(FIRST_SECONDS * 2.0 ** min(over, 10), LONGEST_SECONDS)

    def _count(self, address: str) -> int:
        count, last = self._failures.get(address, (0, 0.0))
        return count if self._time() - last < FORGOTTEN_SECONDS else 0
