"""How fast something was taken, as Kafka measures it: over windows, or by a bucket of tokens; one
rate for each client of a quota, and not more of them than fit.

Both get the time with each call, in seconds of a clock that does not go back.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar

from ...values import value_class

MAX_SENSORS: Final = 10_000
"""Largest number of rates of one quota: some 10 MB if all are in use."""

_LOOKED_AT: Final = 2
"""Number of idle rates examined when a new one is created, so that they are removed faster than new
ones come."""

_SHORTEST_SECONDS: Final = 0.001


@value_class
class Windows:
    """Number and length of the windows: `quota.window.num` and `quota.window.size.seconds`."""

    number: int
    seconds: float

    @property
    def span_seconds(self) -> float:
        """Seconds for which usage counts."""
        return self.number * self.seconds


class Sensor(Protocol):
    """A rate or a token bucket."""

    def is_idle(self, now: float, windows: Windows) -> bool:
        """Whether a new object would answer the same."""
        ...


S = TypeVar("S", bound=Sensor)


class Sensors(Generic[S]):
    """Rates by client. Idle rates are removed. At the limit, the rate of the client that was
    inactive longest is removed."""

    def __init__(self, make: Callable[[], S], windows: Windows, most: int = MAX_SENSORS) -> None:
        self._make = make
        self._windows = windows
        self._most = most
        self._by_key: OrderedDict[Hashable, S] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, key: Hashable, now: float) -> S:
        """Return the rate of a client, which counts as active now."""
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
        """Remove all rates."""
        self._by_key.clear()


class Rate:
    """Usage in the windows that count, divided by their time.

    A window starts with the first usage after the end of the previous window. While the windows are
    younger than all but one of them would last, they count as that old. This is the burst that an
    idle client may use.
    """

    __slots__ = ("_starts", "_totals")

    def __init__(self) -> None:
        self._starts: deque[float] = deque()
        self._totals: deque[float] = deque()

    def take(self, amount: float, now: float, windows: Windows) -> None:
        """Record usage; a negative amount takes back recorded usage."""
        self._forget(now, windows)
        if not self._starts or now - self._starts[-1] >= windows.seconds:
            self._starts.append(now)
            self._totals.append(0.0)
        self._totals[-1] += amount

    def taken(self, now: float, windows: Windows) -> tuple[float, float]:
        """Return the usage, and the seconds over which it is measured."""
        self._forget(now, windows)
        elapsed = now - self._starts[0] if self._starts else 0.0
        missing = windows.number - 1 - int(elapsed / windows.seconds)
        if missing > 0:
            elapsed += missing * windows.seconds
        return sum(self._totals), max(elapsed, _SHORTEST_SECONDS)

    def wait_seconds(self, limit: float, now: float, windows: Windows) -> float:
        """Return the seconds without usage until the rate is at most `limit` per second."""
        total, seconds = self.taken(now, windows)
        return max(total / limit - seconds, 0.0)

    def room(self, limit: float, now: float, windows: Windows) -> float:
        """Return how much may be used without throttling."""
        total, seconds = self.taken(now, windows)
        return max(limit * seconds - total, 0.0)

    def is_empty(self, now: float, windows: Windows) -> bool:
        """Whether there is no usage in the windows that count."""
        self._forget(now, windows)
        return not any(self._totals)

    def is_idle(self, now: float, windows: Windows) -> bool:
        """Whether a new object would answer the same."""
        self._forget(now, windows)
        return not self._starts

    def _forget(self, now: float, windows: Windows) -> None:
        starts = self._starts
        while starts and now - starts[0] >= windows.span_seconds:
            starts.popleft()
            self._totals.popleft()


class TokenBucket:
    """Token bucket of KIP-599. It is refilled at the quota's rate, up to the amount of all windows
    together. Usage is never refused: the number of tokens may become negative."""

    __slots__ = ("_at", "_limit", "_tokens")

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._limit = 0.0
        self._at = 0.0

    def take(self, amount: float, limit: float, now: float, windows: Windows) -> None:
        self._tokens = self._filled(limit, now, windows) - amount
        self._limit, self._at = limit, now

    def wait_seconds(self, limit: float, now: float, windows: Windows) -> float:
        """Return the seconds without usage until the bucket is no longer negative."""
        return max(-self._filled(limit, now, windows) / limit, 0.0)

    def is_idle(self, now: float, windows: Windows) -> bool:
        """Whether a new object would answer the same."""
        limit = self._limit
        return self._tokens is None or self._filled(limit, now, windows) >= (
            limit * windows.span_seconds
        )

    def _filled(self, limit: float, now: float, windows: Windows) -> float:
        most = limit * windows.span_seconds
        if self._tokens is None:
            return most
        return min(self._tokens + max(now - self._at, 0.0) * limit, most)
