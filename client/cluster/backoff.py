"""How long to wait before trying again."""

import random
from typing import Final

FIRST_MS: Final = 50
"""Short enough that a restart of the broker costs little more than the restart itself."""
LONGEST_MS: Final = 2_000
"""Long enough that a thousand waiting clients do not keep a broker from starting."""


_chance: Final = random.Random()
"""Shared: to make one takes longer than the request that may need it."""


class Backoff:
    """Waits that double from `first_ms` to `longest_ms`, each shortened at random by up to half.

    The chance keeps clients that lost the same broker at the same moment from coming back at the
    same moment.
    """

    def __init__(
        self,
        first_ms: int = FIRST_MS,
        longest_ms: int = LONGEST_MS,
        *,
        chance: random.Random | None = None,
    ) -> None:
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._chance = chance or _chance
        self._failures = 0

    def next_s(self) -> float:
        """Seconds to wait after one more failure."""
        whole_ms: float = min(self._first_ms * 2 ** min(self._failures, 30), self._longest_ms)
        self._failures += 1
        return whole_ms * self._chance.uniform(0.5, 1) / 1000

    def reset(self) -> None:
        """It worked: the next failure is a first one again."""
        self._failures = 0
