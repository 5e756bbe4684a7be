"""Charging of requests to client quotas, and the throttle time that follows.

As in Kafka, a request is answered first, and its connection is not read from afterwards (KIP-219).
A fetch over quota in Kafka's protocol is answered without messages, as in Kafka, and its bytes are
not counted. Clients of the native protocol expect an answer for each partition that they asked for,
so they get the messages and are throttled afterwards.

Rates are measured as Kafka measures them, over windows or by a bucket of tokens: one rate for each
client of a quota, up to a limit. They get the time with each call, in seconds of a clock that does
not go back.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol, TypeVar

from ...protocol.api.log.fetch import FETCH, FetchRequest, FetchResponse
from ...protocol.api.log.produce import PRODUCE, ProduceRequest
from ...protocol.api.schema import Api, replaced
from ...protocol.api.topics.create_partitions import CREATE_PARTITIONS, CreatePartitionsRequest
from ...protocol.api.topics.create_topics import CREATE_TOPICS, CreateTopicsRequest
from ...protocol.api.topics.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from ...values import value_class
from ..handlers.base import Services
from ..metrics.figures import count
from ..network.endpoint import Caller
from ..work import Turns
from .rules import Bound, Quota, QuotaTable

MAX_SENSORS: Final = 10_000
"""Largest number of rates of one quota: some 10 MB if all are in use."""

_LOOKED_AT: Final = 2
"""Number of idle rates examined when a new one is created, so that they are removed faster than new
ones come."""

_SHORTEST_SECONDS: Final = 0.001

MAX_WAIT_SECONDS: Final = 60.0
"""Longest throttle time in seconds. The rest is waived for a client whose request used up the quota
of minutes; else a quota that was far too low would be felt for days after it was raised."""

MAX_CLIENTS: Final = 10_000
"""Number of (user, client id) pairs whose quotas are cached."""

_LEAST_FETCH_SECONDS: Final = 0.1
"""A fetch may always ask for what the quota gives in this time, although the client is then
throttled; otherwise fetches would become as small as possible."""

_USER: Final = "User:"

Bounds = dict[Quota, Bound]


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


class Mutation:
    """Partitions that a request would create or delete, counted before the request is handled."""

    def __init__(self, by_topic: Mapping[str, int], answers: str) -> None:
        """`by_topic` is the number of partitions that each topic gains or loses; `answers` is the
        response field with the result of each topic."""
        self._by_topic = by_topic
        self._answers = answers

    def partitions(self, response: Any) -> int:
        """Return the number of partitions of the topics that succeeded."""
        return sum(
            self._by_topic.get(each.name, 0)
            for each in getattr(response, self._answers)
            if not each.error_code
        )


def _created(services: Services, request: CreateTopicsRequest) -> Mutation:
    partitions = {
        topic.name: len(topic.assignments)
        or (topic.num_partitions if topic.num_partitions > 0 else services.settings.num_partitions)
        for topic in request.topics
    }
    return Mutation({} if request.validate_only else partitions, "topics")


def _deleted(services: Services, request: DeleteTopicsRequest) -> Mutation:
    return Mutation({name: _present(services, name) for name in request.topic_names}, "responses")


def _added(services: Services, request: CreatePartitionsRequest) -> Mutation:
    partitions = {
        topic.name: max(topic.count - _present(services, topic.name), 0) for topic in request.topics
    }
    return Mutation({} if request.validate_only else partitions, "results")


def _present(services: Services, name: str) -> int:
    entry = services.directory.topics().get(name)
    return 0 if entry is None else entry.partitions


MUTATIONS: Final[Mapping[int, Callable[[Services, Any], Mutation]]] = MappingProxyType(
    {CREATE_TOPICS.key: _created, DELETE_TOPICS.key: _deleted, CREATE_PARTITIONS.key: _added}
)
"""Counting functions by API key."""


class Meter:
    """Quotas of a broker, and their usage."""

    def __init__(self, services: Services) -> None:
        settings = services.settings
        self.services = services
        self.windows = Windows(settings.quota_window_num, float(settings.quota_window_size_seconds))
        self.now: Callable[[], float] = services.clock.monotonic
        self.time: Callable[[], float] = services.work.time
        """Real time for measuring requests, whatever clock the broker uses."""
        self.rates = {
            quota: Sensors(Rate, self.windows)
            for quota in (
                Quota.PRODUCER_BYTE_RATE,
                Quota.CONSUMER_BYTE_RATE,
                Quota.REQUEST_PERCENTAGE,
            )
        }
        self.buckets = Sensors(TokenBucket, self.windows)
        self._table = QuotaTable()
        self._clients: dict[tuple[str, str], Bounds] = {}

    def use(self, table: QuotaTable) -> None:
        """Apply these quotas. Recorded usage is kept, unless there are no quotas at all."""
        self._table = table
        self._clients.clear()
        if not table:
            self.buckets.clear()
            for rates in self.rates.values():
                rates.clear()

    def open(
        self, api: Api, caller: Caller, client_id: str | None, *, native: bool
    ) -> "Charge | None":
        """Return the charge of one request; None if no quota applies to it."""
        if not api.metered:
            return None
        key = caller.principal, client_id or ""
        bounds = self._clients.get(key)
        if bounds is None:
            bounds = self._remember(key)
        if not bounds:
            return None
        own = _OWN.get(api.key)
        if Quota.REQUEST_PERCENTAGE not in bounds and own not in bounds:
            return None
        return Charge(self, api.key, bounds, caller, native=native)

    def _remember(self, key: tuple[str, str]) -> Bounds:
        principal, client_id = key
        user = principal.removeprefix(_USER)
        found = {
            quota: bound
            for quota in Quota
            if (bound := self._table.bound(quota, user, client_id)) is not None
        }
        if len(self._clients) >= MAX_CLIENTS:
            self._clients.clear()
        self._clients[key] = found
        return found

    def rate(self, quota: Quota, bound: Bound) -> Rate:
        """Return the measured rate of a quota."""
        return self.rates[quota].of(bound.taken_by, self.now())


_OWN: Final = {
    PRODUCE.key: Quota.PRODUCER_BYTE_RATE,
    FETCH.key: Quota.CONSUMER_BYTE_RATE,
    **dict.fromkeys(MUTATIONS, Quota.CONTROLLER_MUTATION_RATE),
}
"""Quota charged for what a request does, by API key. Request time is charged in addition."""


class Charge:
    """Charge of one request, until it is answered."""

    __slots__ = (
        "_api_key",
        "_bounds",
        "_caller",
        "_meter",
        "_mutation",
        "_native",
        "_seconds",
        "_sent_bytes",
        "_since",
    )

    def __init__(
        self, meter: Meter, api_key: int, bounds: Bounds, caller: Caller, *, native: bool
    ) -> None:
        self._meter = meter
        self._native = native
        self._api_key = api_key
        self._bounds = bounds
        self._caller = caller
        self._sent_bytes = 0
        self._mutation: Mutation | None = None
        self._seconds = 0.0
        """Seconds of the event loop used by this request until `_since`."""
        self._since = meter.time()

    def see(self, request: Any) -> None:
        """Record the size of a request before it is handled, and limit a fetch to the remaining
        quota."""
        if _OWN.get(self._api_key) not in self._bounds:
            return
        if isinstance(request, ProduceRequest):
            self._sent_bytes = sum(
                len(each.records or b"") for topic in request.topics for each in topic.partitions
            )
        elif isinstance(request, FetchRequest):
            bound = self._bounds[Quota.CONSUMER_BYTE_RATE]
            rate = self._meter.rate(Quota.CONSUMER_BYTE_RATE, bound)
            room = rate.room(bound.limit, self._meter.now(), self._meter.windows)
            least = bound.limit * _LEAST_FETCH_SECONDS
            request.max_bytes = min(request.max_bytes, int(max(room, least, 1)))
        else:
            self._mutation = MUTATIONS[self._api_key](self._meter.services, request)

    def add_seconds(self, seconds: float) -> None:
        """Set the event loop's seconds used by this request until now, its share of a joint run."""
        self._seconds = seconds
        self._since = self._meter.time()

    def timed(self, make: Callable[[], Any], turns: Turns | None = None) -> Callable[[], Any]:
        """Wrap `make` so that the wait before it is not charged. Work done in `turns` meanwhile is
        charged."""
        self._seconds += self._meter.time() - self._since
        before = 0.0 if turns is None else turns.used_seconds

        def timed_make() -> Any:
            self._since = self._meter.time()
            if turns is not None:
                self._seconds += turns.used_seconds - before
            return make()

        return timed_make

    def close(self, response: Any) -> Any:
        """Charge the request, and return the response to send; the client may be throttled from now
        on. None stands for an error or for no answer."""
        self._seconds += self._meter.time() - self._since
        waits = dict(self._waits(response))
        if not waits:
            return response
        quota = max(waits, key=waits.__getitem__)
        longest = self._meter.windows.seconds
        if quota is not Quota.REQUEST_PERCENTAGE:
            longest = MAX_WAIT_SECONDS
        throttle_ms = round(min(waits[quota], longest) * 1000)
        if throttle_ms <= 0:
            return response
        if isinstance(response, FetchResponse) and not (self._native or response.error_code):
            self._take(Quota.CONSUMER_BYTE_RATE, -_fetched_bytes(response))
            response = FetchResponse(throttle_time_ms=throttle_ms, topics=[])
        elif hasattr(response, "throttle_time_ms"):
            response = replaced(response, throttle_time_ms=throttle_ms)
        figures = self._meter.services.figures
        count(figures.throttled, quota.value)
        before = figures.throttled_seconds.get(quota.value, 0.0)
        figures.throttled_seconds[quota.value] = before + throttle_ms / 1000
        if self._caller.mute is not None:
            self._caller.mute(throttle_ms / 1000)
        return response

    def _waits(self, response: Any) -> Iterator[tuple[Quota, float]]:
        """Yield the throttle time in seconds for each quota that is exceeded."""
        taken = [(Quota.REQUEST_PERCENTAGE, self._seconds * 100)]
        if self._sent_bytes:
            taken.append((Quota.PRODUCER_BYTE_RATE, self._sent_bytes))
        fetched = _fetched_bytes(response) if isinstance(response, FetchResponse) else 0
        if fetched:
            taken.append((Quota.CONSUMER_BYTE_RATE, fetched))
        for quota, amount in taken:
            wait = self._take(quota, amount)
            if wait > 0:
                yield quota, wait
        bound = self._bounds.get(Quota.CONTROLLER_MUTATION_RATE)
        if bound is not None and self._mutation is not None and response is not None:
            now, windows = self._meter.now(), self._meter.windows
            bucket = self._meter.buckets.of(bound.taken_by, now)
            bucket.take(self._mutation.partitions(response), bound.limit, now, windows)
            wait = bucket.wait_seconds(bound.limit, now, windows)
            if wait > 0:
                yield Quota.CONTROLLER_MUTATION_RATE, wait

    def _take(self, quota: Quota, amount: float) -> float:
        """Record usage of a quota, and return the throttle time in seconds. The first counted
        fetch is never throttled, because one record set may be larger than the quota gives in
        that time."""
        bound = self._bounds.get(quota)
        if bound is None:
            return 0.0
        meter = self._meter
        now, rate = meter.now(), meter.rate(quota, bound)
        first = quota is Quota.CONSUMER_BYTE_RATE and rate.is_empty(now, meter.windows)
        rate.take(amount, now, meter.windows)
        return 0.0 if first else rate.wait_seconds(bound.limit, now, meter.windows)


def _fetched_bytes(response: FetchResponse) -> int:
    return sum(len(each.records or b"") for topic in response.topics for each in topic.partitions)
