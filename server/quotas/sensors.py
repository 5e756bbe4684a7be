"""What clients took: one rate for each who takes of a quota, and not more of them than fit."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar

from .rates import Windows

MAX_SENSORS: Final = 10_000
"""Rates of one quota: some 10 MB where all are in use."""

_LOOKED_AT: Final = 2
"""Of the idle ones, when another is made: so they go faster than new ones come."""


class Sensor(Protocol):
    """A rate, or a bucket."""

    def is_idle(self, now: float, windows: Windows) -> bool:
        """Whether a new one would say the same."""
        ...


S = TypeVar("S", bound=Sensor)


class Sensors(Generic[S]):
    """Rates by client; those that are zero again are forgotten, and where there are too many, that
    of the client that was active the longest time ago."""

    def __init__(self, make: Callable[[], S], windows: Windows, most: int = MAX_SENSORS) -> None:
        self._make = make
        self._windows = windows
        self._most = most
        self._by_key: OrderedDict[Hashable, S] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, key: Hashable, now: float) -> S:
        """The rate of a client, which counts as active now."""
        found = self._by_key.get(key)
        if found is not None:
            self._by_key.move_to_end(key)
            return found
        for _ in range(_LOOKED_AT):
            if not self._by_key:
                break
            oldest = next(iter(self._by_key))
            full = len(self._by_key) >= self._most
            if not full and not self._by_key[oldest].is_idle(now, self._windows):
                break
            del self._by_key[oldest]
        made = self._by_key[key] = self._make()
        return made

    def clear(self) -> None:
        """Forget all of them."""
        self._by_key.clear()
