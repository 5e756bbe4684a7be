"""The names under which Prometheus sees the broker's figures.

A registry of the broker's own, never the library's global one, with one collector that reads the
figures when it is asked. Topic is the only label that grows, and it goes when the topic does;
only the end offset has a line for each partition.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from ..protocol.lag import Lag
from ..protocol.records.latency import LATENCY_BUCKETS_MS
from .figures import FSYNC_BUCKETS_SECONDS, Figures, TopicFigures

if TYPE_CHECKING:
    from ..storage.log import Log

LATENCY_BUCKETS_SECONDS = tuple(bound / 1000 for bound in LATENCY_BUCKETS_MS)


class Gauges(Protocol):
    """What is not counted but looked up when the metrics are asked for."""

    def logs(self) -> Iterable["Log"]:
        """The open logs."""
        ...

    def clock_ahead_seconds(self) -> float: ...

    def connections(self) -> int: ...

    def held_bytes(self) -> int: ...

    def parked(self) -> Mapping[str, int]:
        """Waiting requests by api."""
        ...

    def lags(self) -> Mapping[tuple[str, str, int], Lag]:
        """By name, topic and partition of the positions that are followed."""
        ...

    def lags_left_out(self) -> int: ...


def metrics_text(registry: CollectorRegistry) -> bytes:
    """Every metric in Prometheus' text format."""
    return generate_latest(registry)


def build_registry(figures: Figures, gauges: Gauges) -> CollectorRegistry:
    """A registry with the broker's metrics and those of its process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(figures, gauges))
    ProcessCollector(registry=registry)
    return registry


class BrokerCollector(Collector):
    """Turns figures into metric families."""

    def __init__(self, figures: Figures, gauges: Gauges) -> None:
        self._figures = figures
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._connections()
        yield from self._topics()
        yield from self._latency()
        yield from self._logs()
        yield from self._lags()
        yield from self._background()

    def _requests(self) -> Iterator[Metric]:
        figures = self._figures
        requests = CounterMetricFamily(
            "horolog_requests",
            "Requests by api and by the first error in the answer.",
            labels=("api", "error"),
        )
        for (api, error), number in figures.requests.items():
            requests.add_metric((api, error), number)
        yield requests
        yield _counter("horolog_received_bytes", "Bytes from clients.", figures.received_bytes)
        yield _counter("horolog_sent_bytes", "Bytes to clients.", figures.sent_bytes)
        parked = GaugeMetricFamily(
            "horolog_parked_requests", "Requests that wait for data or a sync.", labels=("api",)
        )
        for api, number in self._gauges.parked().items():
            parked.add_metric((api,), number)
        yield parked
        yield _counter(
            "horolog_parked_refused",
            "Requests answered early because too many were waiting.",
            figures.parked_refused,
        )

    def _connections(self) -> Iterator[Metric]:
        figures = self._figures
        yield GaugeMetricFamily(
            "horolog_connections", "Open connections.", self._gauges.connections()
        )
        yield GaugeMetricFamily(
            "horolog_buffered_bytes",
            "Unread answers and large unfinished requests of all connections, as last looked at.",
            self._gauges.held_bytes(),
        )
        yield _counter(
            "horolog_connections_opened", "Connections taken.", figures.connections_opened
        )
        yield _by_label(
            "horolog_connections_refused",
            "Connections closed at once.",
            "reason",
            figures.connections_refused,
        )
        yield _by_label(
            "horolog_connections_dropped",
            "Connections closed by the broker because of what the client did.",
            "reason",
            figures.connections_dropped,
        )

    def _topics(self) -> Iterator[Metric]:
        topics = self._figures.topics
        for name, text, value in _TOPIC_COUNTERS:
            family = CounterMetricFamily(name, text, labels=("topic",))
            for topic, figures in topics.items():
                family.add_metric((topic,), value(figures))
            yield family
        for name, text, label, values in _TOPIC_COUNTERS_BY:
            family = CounterMetricFamily(name, text, labels=("topic", label))
            for topic, figures in topics.items():
                for key, number in values(figures).items():
                    family.add_metric((topic, key), number)
            yield family

    def _latency(self) -> Iterator[Metric]:
        latency = HistogramMetricFamily(
            "horolog_latency_seconds",
            "Append time minus create time of appended messages; below 0 counts as 0.",
            labels=("topic",),
        )
        window_seconds = self._figures.latency_window_ms / 1000
        largest = GaugeMetricFamily(
            "horolog_max_latency_seconds",
            f"Largest latency of the last {window_seconds:g} s; NaN when nothing was appended.",
            labels=("topic",),
        )
        for topic, figures in self._figures.topics.items():
            latency.add_metric(
                (topic,),
                _cumulative(LATENCY_BUCKETS_SECONDS, figures.latency_counts),
                figures.latency_sum_ms / 1000,
            )
            largest_ms = figures.largest_latency.largest()
            largest.add_metric((topic,), float("nan") if largest_ms is None else largest_ms / 1000)
        yield latency
        yield largest

    def _logs(self) -> Iterator[Metric]:
        end = GaugeMetricFamily(
            "horolog_log_end_offset",
            "Offset that the next message of the partition gets.",
            labels=("topic", "partition"),
        )
        sizes: dict[str, int] = {}
        segments: dict[str, int] = {}
        unflushed: dict[str, int] = {}
        for log in self._gauges.logs():
            topic = log.topic
            end.add_metric((topic, str(log.partition)), log.log_end_offset)
            sizes[topic] = sizes.get(topic, 0) + log.size_bytes
            segments[topic] = segments.get(topic, 0) + log.segment_count
            unflushed[topic] = unflushed.get(topic, 0) + log.unflushed_messages
        yield end
        for name, text, values in (
            ("horolog_log_size_bytes", "Bytes of messages on disk.", sizes),
            ("horolog_log_segments", "Segments.", segments),
            ("horolog_log_unflushed_messages", "Messages not known to be synced.", unflushed),
        ):
            family = GaugeMetricFamily(name, text, labels=("topic",))
            for topic, number in values.items():
                family.add_metric((topic,), number)
            yield family

    def _lags(self) -> Iterator[Metric]:
        labels = ("name", "topic", "partition")
        messages = GaugeMetricFamily(
            "horolog_consumer_lag",
            "Messages from a named position to the end of its partition.",
            labels=labels,
        )
        seconds = GaugeMetricFamily(
            "horolog_consumer_lag_seconds",
            "How long ago the first message behind a named position was appended, or created where "
            "its append time is not known; 0 at the end, absent when no time is known.",
            labels=labels,
        )
        for (name, topic, partition), lag in self._gauges.lags().items():
            values = (name, topic, str(partition))
            messages.add_metric(values, lag.messages)
            if lag.seconds is not None:
                seconds.add_metric(values, lag.seconds)
        yield messages
        yield seconds
        yield GaugeMetricFamily(
            "horolog_consumer_lag_left_out",
            "Named positions without these two: there are more than can be followed, and others "
            "were committed later.",
            self._gauges.lags_left_out(),
        )

    def _background(self) -> Iterator[Metric]:
        figures = self._figures
        fsync = HistogramMetricFamily(
            "horolog_fsync_seconds", "Time of one sync of a log's files.", labels=()
        )
        fsync.add_metric(
            (), _cumulative(FSYNC_BUCKETS_SECONDS, figures.fsync.counts), figures.fsync.sum_seconds
        )
        yield fsync
        yield _by_label(
            "horolog_clock_steps",
            "Times the wall clock moved otherwise than the monotonic one by more than "
            "clock.step.max.ms; forward_while_stopped may be the time that the broker was stopped.",
            "direction",
            figures.clock_steps,
        )
        yield GaugeMetricFamily(
            "horolog_clock_ahead_seconds",
            "How far the wall clock is ahead of the time that retention trusts.",
            self._gauges.clock_ahead_seconds(),
        )
        yield _by_label(
            "horolog_failed_task_passes",
            "Passes of background tasks that failed and are tried again.",
            "task",
            figures.failed_passes,
        )
        yield _by_label(
            "horolog_suppressed_log_lines",
            "Log lines not written because there were too many like them.",
            "event",
            figures.suppressed_lines,
        )


_TOPIC_COUNTERS: tuple[tuple[str, str, Callable[[TopicFigures], int]], ...] = (
    ("horolog_appended_messages", "Messages appended.", lambda topic: topic.messages),
    ("horolog_appended_bytes", "Bytes appended, as stored.", lambda topic: topic.bytes_in),
    ("horolog_fetched_bytes", "Bytes of message sets sent.", lambda topic: topic.bytes_out),
    (
        "horolog_clock_skew",
        "Messages whose create time was later than their append time.",
        lambda topic: topic.skewed,
    ),
    (
        "horolog_messages_without_create_time",
        "Messages appended that carried no create time.",
        lambda topic: topic.untimed,
    ),
    (
        "horolog_clock_behind_log",
        "Appends stamped with the last append time again, because the clock was behind it.",
        lambda topic: topic.clock_behind,
    ),
    (
        "horolog_index_rebuilds",
        "Segments whose indexes were rebuilt from the log.",
        lambda topic: topic.index_rebuilds,
    ),
    (
        "horolog_torn_tails",
        "Logs whose end recovery cut off where a write was torn.",
        lambda topic: topic.torn_tails,
    ),
    (
        "horolog_torn_bytes",
        "Bytes that recovery cut off and kept as .broken.",
        lambda topic: topic.torn_bytes,
    ),
    (
        "horolog_segments_set_aside",
        "Segments behind a torn write that recovery kept as .broken.",
        lambda topic: topic.segments_set_aside,
    ),
    (
        "horolog_damaged_segments",
        "Segments in which damaged bytes were found, to be put right by horolog repair.",
        lambda topic: topic.damaged_segments,
    ),
    (
        "horolog_retention_deleted_segments",
        "Segments deleted by retention.",
        lambda topic: topic.deleted_segments,
    ),
    (
        "horolog_log_failures",
        "Partitions that stopped taking appends because a write or a sync failed.",
        lambda topic: topic.failures,
    ),
)

_TOPIC_COUNTERS_BY: tuple[
    tuple[str, str, str, Callable[[TopicFigures], Mapping[str, float]]], ...
] = (
    (
        "horolog_rejected_messages",
        "Messages in refused sets; a compressed set counts as one.",
        "reason",
        lambda topic: topic.rejected,
    ),
    ("horolog_segment_rolls", "Segments begun.", "reason", lambda topic: topic.rolls),
    (
        "horolog_converted_messages",
        "Messages that changed their format: as they were appended to v1 (append_up) or to v0 "
        "(append_down), or for a reader that knows only v0 (fetch_down).",
        "direction",
        lambda topic: topic.converted_messages,
    ),
    (
        "horolog_converted_bytes",
        "Bytes of the message sets that were converted, as they were before.",
        "direction",
        lambda topic: topic.converted_bytes,
    ),
    (
        "horolog_conversion_seconds",
        "Time that converting message sets took, compression included.",
        "direction",
        lambda topic: topic.conversion_seconds,
    ),
)


def _counter(name: str, text: str, value: int) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def _by_label(name: str, text: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=(label,))
    for key, number in counts.items():
        family.add_metric((key,), number)
    return family


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Prometheus' buckets: each counts everything at or below its bound."""
    names = [str(float(bound)) for bound in bounds] + ["+Inf"]
    return list(zip(names, accumulate(counts), strict=True))
