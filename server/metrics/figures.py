"""What the broker counts: plain numbers, cheap enough for every request, and how late its event
loop is.

`metrics` gives them names and help texts when they are asked for.
"""

import asyncio
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from ...clock import Clock
from ...protocol.records.latency import LatencyCounts

INTERVAL_SECONDS: Final = 0.5
"""Seconds between two measurements. A longer stall is always noticed, and the cost of measuring
stays negligible."""

SLOTS = 60


class MaxWindow:
    """Largest value recorded in the last `window_ms` milliseconds."""

    __slots__ = ("_clock", "_largest", "_numbers", "_place", "_slot_seconds", "_until")

    def __init__(self, clock: Clock, window_ms: int) -> None:
        self._clock = clock
        self._slot_seconds = max(window_ms, 1) / 1000 / SLOTS
        # One slot more than the window holds, because the current slot is only partly over.
        self._numbers = [-1] * (SLOTS + 1)
        self._largest = [0] * (SLOTS + 1)
        self._place = 0
        """Index of the current slot, which ends at `_until`."""
        self._until = 0.0

    def record(self, value: int) -> None:
        now = self._clock.monotonic()
        if now >= self._until:
            number = int(now / self._slot_seconds)
            self._until = (number + 1) * self._slot_seconds
            self._place = number % (SLOTS + 1)
            if self._numbers[self._place] != number:
                self._numbers[self._place], self._largest[self._place] = number, value
        if value > self._largest[self._place]:
            self._largest[self._place] = value

    def largest(self) -> int | None:
        """Return the largest value in the window; None if nothing was recorded."""
        oldest = int(self._clock.monotonic() / self._slot_seconds) - SLOTS
        return max(
            (
                value
                for number, value in zip(self._numbers, self._largest, strict=True)
                if number >= oldest and number >= 0
            ),
            default=None,
        )


FSYNC_BUCKETS_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
REQUEST_BUCKETS_SECONDS = (0.0001, 0.00025, *FSYNC_BUCKETS_SECONDS, 30.0)

_ADDED_TOGETHER: Final = 16
"""Number of counts that are added up together, which takes less time than one by one."""


@dataclass(slots=True)
class Spread:
    """Histogram of durations in seconds: counts by upper bound. The last count has no bound."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    sum_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.sum_seconds += seconds * times


class LoopLag:
    """Schedules itself at regular times, and records how late it was called."""

    def __init__(self, loop: asyncio.AbstractEventLoop, spread: Spread) -> None:
        self._loop = loop
        self._spread = spread
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._measure_at(self._loop.time() + INTERVAL_SECONDS)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _measure_at(self, due: float) -> None:
        self._timer = self._loop.call_at(due, self._measure, due)

    def _measure(self, due: float) -> None:
        now = self._loop.time()
        self._spread.add(max(now - due, 0.0))
        self._measure_at(now + INTERVAL_SECONDS)


@dataclass(slots=True)
class TopicFigures:
    """Counters of one topic since the broker started."""

    largest_latency: MaxWindow
    messages: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    window_bytes_out: int = 0
    """Bytes of message sets sent to readers of windows of the topic, by their names."""
    clock_behind: int = 0
    """Appends that got the same append time as the one before, because the clock was behind it."""
    rejected: dict[str, int] = field(default_factory=dict)
    rolls: dict[str, int] = field(default_factory=dict)
    deleted_segments: int = 0
    index_rebuilds: int = 0
    torn_tails: int = 0
    torn_bytes: int = 0
    segments_set_aside: int = 0
    damaged_segments: int = 0
    failures: int = 0
    """Partitions that refuse appends since a write or a sync failed."""
    converted_messages: dict[str, int] = field(default_factory=dict)
    converted_bytes: dict[str, int] = field(default_factory=dict)
    conversion_seconds: dict[str, float] = field(default_factory=dict)
    """Figures by direction: `append_up` (to a later format), `append_down`, `fetch_down`."""
    dropped_headers: int = 0
    """Headers dropped by a conversion to a format without headers."""
    repeated_messages: int = 0
    """Messages that a producer sent again although they were stored."""
    _latency: LatencyCounts = field(default_factory=LatencyCounts)
    _to_add: list[LatencyCounts] = field(default_factory=list)

    @property
    def latency(self) -> LatencyCounts:
        """Latency of all messages."""
        self._add_up()
        return self._latency

    def _add_up(self) -> None:
        self._latency.add(*self._to_add)
        self._to_add.clear()

    def appended(self, messages: int, size_bytes: int, latency: LatencyCounts | None) -> None:
        """Count one appended record set."""
        self.messages += messages
        self.bytes_in += size_bytes
        if latency is None:
            return
        self._to_add.append(latency)
        if len(self._to_add) >= _ADDED_TOGETHER:
            self._add_up()
        if messages > latency.untimed:
            self.largest_latency.record(latency.max_ms)

    def converted(self, direction: str, messages: int, size_bytes: int, seconds: float) -> None:
        """Count converted messages, and the cost of their conversion."""
        count(self.converted_messages, direction, messages)
        count(self.converted_bytes, direction, size_bytes)
        took = self.conversion_seconds.get(direction, 0.0)
        self.conversion_seconds[direction] = took + seconds


class Figures:
    """Counters of the whole broker, and of each topic."""

    def __init__(self, clock: Clock, latency_window_ms: int) -> None:
        self._clock = clock
        self.latency_window_ms = latency_window_ms
        self.topics: dict[str, TopicFigures] = {}
        self.requests: dict[tuple[str, str], int] = {}
        self.request_times: dict[str, Spread] = {}
        """Durations by API, from taking a request to making its answer."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.connections_opened = 0
        self.connections_refused: dict[str, int] = {}
        self.connections_dropped: dict[str, int] = {}
        self.tls_failures: dict[str, int] = {}
        """Failed TLS handshakes by reason."""
        self.throttled: dict[str, int] = {}
        """Answers after which the client was throttled, by quota."""
        self.throttled_seconds: dict[str, float] = {}
        self.logins: dict[tuple[str, str], int] = {}
        """Logins by mechanism and result."""
        self.http_connections = 0
        """Number of open HTTP connections."""
        self.http_requests_refused: dict[str, int] = {}
        self.clock_steps: dict[str, int] = {}
        """Steps of the wall clock by direction: `forward`, `back`, and each with
        `_while_stopped`."""
        self.failed_passes: dict[str, int] = {}
        self.parked_refused = 0
        self.suppressed_lines: dict[str, int] = {}
        """Log entries that were suppressed because there were too many like them."""
        self.damaged_partitions: dict[tuple[str, int], None] = {}
        """Partitions in which damage was found, and perhaps still is."""
        self.scrubbed_bytes = 0
        self.scrub_rounds = 0
        self.scrub_total_bytes = 0
        """Bytes of all logs when the last round of scrubbing began."""
        self.scrub_done_bytes = 0
        """Bytes of these that the round has read."""
        self.fsync = Spread(FSYNC_BUCKETS_SECONDS)
        self.loop_lag = Spread(FSYNC_BUCKETS_SECONDS)
        """Delays of event loop timers."""

    def request_time(self, api: str) -> Spread:
        """Return the durations of one kind of request."""
        spread = self.request_times.get(api)
        if spread is None:
            spread = self.request_times[api] = Spread(REQUEST_BUCKETS_SECONDS)
        return spread

    def topic(self, name: str) -> TopicFigures:
        """Return the figures of an existing topic. Callers must not pass names that a client made
        up."""
        figures = self.topics.get(name)
        if figures is None:
            window = MaxWindow(self._clock, self.latency_window_ms)
            figures = self.topics[name] = TopicFigures(window)
        return figures

    def answered(self, api: str, result: str, seconds: float, requests: int = 1) -> None:
        """Count `requests` of one kind with the same result; each took `seconds`."""
        counts, key = self.requests, (api, result)
        counts[key] = counts.get(key, 0) + requests
        (self.request_times.get(api) or self.request_time(api)).add(seconds, requests)

    def forget(self, name: str) -> None:
        """Drop the figures of a deleted topic."""
        self.topics.pop(name, None)


def count(counts: dict[str, int], key: str, amount: int = 1) -> None:
    """Add `amount` to `counts[key]`; a missing key counts as 0."""
    counts[key] = counts.get(key, 0) + amount
