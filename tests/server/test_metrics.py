"""The names, labels and values that Prometheus sees."""

import math
from bisect import bisect_left
from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from horolog.config.topic import TopicSettings, topic_settings
from horolog.protocol.records.latency import LATENCY_BUCKETS_MS, LatencyCounts
from horolog.server.groups.service import GroupFigures
from horolog.server.groups.states import State
from horolog.server.metrics.families import Gauges, metrics_lines
from horolog.server.metrics.figures import Figures, count
from horolog.testing.clock import ManualClock

WINDOW_MS = 60_000


@dataclass
class SomeLog:
    topic: str
    partition: int
    log_end_offset: int
    size_bytes: int
    segment_count: int
    unflushed_messages: int = 0
    cleanup_policy: str = "delete"

    @property
    def settings(self) -> TopicSettings:
        return topic_settings({}, {"cleanup.policy": self.cleanup_policy})

    @property
    def expiry(self) -> "SomeLog":
        return self

    def pinned_segments(self, now_ms: int) -> int:
        return self.segment_count - 1


class Scrape:
    """Metrics as a scrape reads them: (name, labels) -> value."""

    def __init__(self, text: bytes) -> None:
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples
                self.samples[key] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def labels(self, name: str, label: str) -> set[str]:
        return {dict(key[1])[label] for key in self.samples if key[0] == name}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def figures(clock: ManualClock) -> Figures:
    return Figures(clock, WINDOW_MS)


@pytest.fixture
def logs() -> list[SomeLog]:
    return []


@pytest.fixture
def gauges(logs: list[SomeLog]) -> Gauges:
    return Gauges(
        logs=lambda: logs,  # type: ignore[arg-type,return-value]
        clock_ahead_seconds=0.25,
        unauthenticated=3,
        certificate_days=30.5,
        connections=3,
        held_bytes=4,
        parked={"fetch": 2, "produce": 0},
        positions_bytes=700,
        producer_states_bytes=800,
        groups=GroupFigures(
            states={State.STABLE: 2, State.EMPTY: 1},
            members=5,
            size_bytes=6000,
            rebalances=7,
            members_gone={"left": 3},
        ),
    )


def text(figures: Figures, gauges: Gauges) -> bytes:
    return "".join(metrics_lines(figures, gauges)).encode()


def scrape(figures: Figures, gauges: Gauges) -> Scrape:
    return Scrape(text(figures, gauges))


def latencies(*values_ms: int, skewed: int = 0, untimed: int = 0) -> LatencyCounts:
    counts = LatencyCounts(skewed=skewed, untimed=untimed)
    for value in values_ms:
        counts.counts[bisect_left(LATENCY_BUCKETS_MS, value)] += 1
    counts.sum_ms = sum(values_ms)
    counts.max_ms = max(values_ms, default=0)
    return counts


def test_latency_is_a_histogram_in_seconds_by_topic(figures: Figures, gauges: Gauges) -> None:
    figures.topic("a").appended(3, 300, latencies(1, 700, 700))
    figures.topic("a").appended(1, 100, latencies(10**9))
    found = scrape(figures, gauges)
    name = "horolog_latency_seconds"
    assert found(f"{name}_bucket", topic="a", le="0.001") == 1
    assert found(f"{name}_bucket", topic="a", le="0.5") == 1
    assert found(f"{name}_bucket", topic="a", le="1.0") == 3
    assert found(f"{name}_bucket", topic="a", le="86400.0") == 3
    assert found(f"{name}_bucket", topic="a", le="+Inf") == 4
    assert found(f"{name}_count", topic="a") == 4
    assert found(f"{name}_sum", topic="a") == pytest.approx((1 + 700 + 700 + 10**9) / 1000)
    assert len(found.labels(f"{name}_bucket", "le")) == len(LATENCY_BUCKETS_MS) + 1


def test_skewed_and_untimed_messages_are_counted_apart(figures: Figures, gauges: Gauges) -> None:
    figures.topic("a").appended(5, 500, latencies(0, 0, skewed=2, untimed=3))
    found = scrape(figures, gauges)
    assert found("horolog_clock_skew_total", topic="a") == 2
    assert found("horolog_messages_without_create_time_total", topic="a") == 3
    assert found("horolog_appended_messages_total", topic="a") == 5
    assert found("horolog_latency_seconds_count", topic="a") == 2


def test_the_largest_latency_leaves_with_its_window(
    clock: ManualClock, figures: Figures, gauges: Gauges
) -> None:
    figures.topic("a").appended(2, 200, latencies(40, 2500))
    assert scrape(figures, gauges)("horolog_max_latency_seconds", topic="a") == 2.5
    clock.advance(2 * WINDOW_MS)
    assert math.isnan(scrape(figures, gauges)("horolog_max_latency_seconds", topic="a"))


def test_a_set_without_create_times_gives_no_latency(figures: Figures, gauges: Gauges) -> None:
    figures.topic("a").appended(2, 200, latencies(untimed=2))
    assert math.isnan(scrape(figures, gauges)("horolog_max_latency_seconds", topic="a"))


def test_requests_and_rejections(figures: Figures, gauges: Gauges) -> None:
    count(figures.topic("a").rejected, "timestamp", 7)
    figures.requests["produce", "NONE"] = 5
    figures.requests["produce", "INVALID_TIMESTAMP"] = 1
    found = scrape(figures, gauges)
    assert found("horolog_rejected_messages_total", topic="a", reason="timestamp") == 7
    assert found("horolog_requests_total", api="produce", error="NONE") == 5
    assert found("horolog_requests_total", api="produce", error="INVALID_TIMESTAMP") == 1


def test_logs_by_topic_and_end_offsets_by_partition(
    logs: list[SomeLog], figures: Figures, gauges: Gauges
) -> None:
    logs += [SomeLog("a", 0, 10, 1000, 1), SomeLog("a", 1, 5, 500, 2)]
    found = scrape(figures, gauges)
    assert found("horolog_log_end_offset", topic="a", partition="0") == 10
    assert found("horolog_log_end_offset", topic="a", partition="1") == 5
    assert found("horolog_log_size_bytes", topic="a") == 1500
    assert found("horolog_log_segments", topic="a") == 3
    assert found("horolog_pinned_segments", topic="a") == 1


def test_the_bytes_of_compacted_topics_are_not_cleaned_yet(
    logs: list[SomeLog], figures: Figures, gauges: Gauges
) -> None:
    logs += [SomeLog("a", 0, 10, 1000, 1), SomeLog("b", 0, 10, 700, 1, cleanup_policy="compact")]
    logs.append(SomeLog("b", 1, 10, 30, 1, cleanup_policy="compact"))
    found = scrape(figures, gauges)
    assert found("horolog_not_cleaned_bytes", topic="b") == 730
    assert found.labels("horolog_not_cleaned_bytes", "topic") == {"b"}


def test_a_deleted_topic_vanishes(figures: Figures, gauges: Gauges) -> None:
    figures.topic("gone").appended(1, 100, latencies(5))
    figures.topic("kept").appended(1, 100, latencies(5))
    figures.forget("gone")
    found = scrape(figures, gauges)
    assert found.labels("horolog_max_latency_seconds", "topic") == {"kept"}
    assert b'"gone"' not in text(figures, gauges)


def test_fsync_seconds(figures: Figures, gauges: Gauges) -> None:
    for seconds in (0.0004, 0.002, 9.0):
        figures.fsync.add(seconds)
    found = scrape(figures, gauges)
    assert found("horolog_fsync_seconds_bucket", le="0.0005") == 1
    assert found("horolog_fsync_seconds_bucket", le="0.0025") == 2
    assert found("horolog_fsync_seconds_bucket", le="5.0") == 2
    assert found("horolog_fsync_seconds_count") == 3


def test_request_seconds_by_api(figures: Figures, gauges: Gauges) -> None:
    for seconds in (0.0001, 0.0002, 3.0, 60.0):
        figures.request_time("fetch").add(seconds)
    found = scrape(figures, gauges)
    name = "horolog_request_seconds"
    assert found(f"{name}_bucket", api="fetch", le="0.0001") == 1
    assert found(f"{name}_bucket", api="fetch", le="0.00025") == 2
    assert found(f"{name}_bucket", api="fetch", le="30.0") == 3
    assert found(f"{name}_count", api="fetch") == 4
    assert found(f"{name}_sum", api="fetch") == pytest.approx(63.0003)


def test_the_process_is_there_but_nothing_of_the_global_registry(
    figures: Figures, gauges: Gauges
) -> None:
    names = {name for name, _ in scrape(figures, gauges).samples}
    assert "process_open_fds" in names
    assert all(name.startswith(("horolog_", "process_")) for name in names)


def test_labels_are_escaped(figures: Figures, gauges: Gauges) -> None:
    awkward = 'a "quoted" \\ name\nof two lines'
    count(figures.clock_steps, awkward)
    assert scrape(figures, gauges)("horolog_clock_steps_total", direction=awkward) == 1


def test_topics_may_come_and_go_while_the_text_is_made(figures: Figures, gauges: Gauges) -> None:
    for number in range(10):
        figures.topic(f"t{number}").appended(1, 100, latencies(5))
    lines = metrics_lines(figures, gauges)
    for step, _ in enumerate(lines):
        figures.topic(f"new{step}").appended(1, 100, latencies(5))
        figures.forget(f"t{step % 10}")
        count(figures.topic("t0").rolls, f"reason {step}")
        if step > 300:
            break


def test_the_text_is_made_piece_by_piece(figures: Figures, gauges: Gauges) -> None:
    """So that a scrape with many topics can let requests through."""
    for number in range(100):
        figures.topic(f"t{number}").appended(1, 100, latencies(5))
    pieces = [piece.count("\n") for piece in metrics_lines(figures, gauges)]
    assert max(pieces[:-1]) <= 2
    assert len(pieces) > 100 * len(LATENCY_BUCKETS_MS)
