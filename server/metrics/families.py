"""Metric families: names, help texts and values for Prometheus.

`topic` is the only label whose number of values grows; its lines are removed with the topic. Only
the end offset and the lag of committed positions have a line per partition.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Final

from ...protocol.records.latency import LATENCY_BUCKETS_MS
from ...storage.log.log import Log
from ..groups.service import GroupFigures
from .exposition import Family, Labels, Sample, text_lines
from .figures import FSYNC_BUCKETS_SECONDS, Figures, TopicFigures
from .lags import FollowedPosition
from .replica_families import ReplicaFigures, replica_families

FETCHED_BYTES: Final = "horolog_fetched_bytes"

TOPIC_COUNTERS: tuple[tuple[str, str, Callable[[TopicFigures], int]], ...] = (
    (
        "horolog_appended_messages",
        "Messages that clients appended at this broker. Messages that a follower copies do not "
        "count.",
        lambda topic: topic.messages,
    ),
    (
        "horolog_appended_bytes",
        "Stored bytes of the messages that clients appended at this broker.",
        lambda topic: topic.bytes_in,
    ),
    (
        FETCHED_BYTES,
        'Bytes of message sets sent to clients. With window="yes": sent to readers of window '
        "topics (clicks..20161114T14Z..1h), counted under the topic itself.",
        lambda topic: topic.bytes_out,
    ),
    (
        "horolog_clock_skew",
        "Messages whose create time was later than their append time.",
        lambda topic: topic.latency.skewed,
    ),
    (
        "horolog_messages_without_create_time",
        "Appended messages without a create time.",
        lambda topic: topic.latency.untimed,
    ),
    (
        "horolog_clock_behind_log",
        "Appends that got the append time of the append before, because the clock was behind it.",
        lambda topic: topic.clock_behind,
    ),
    (
        "horolog_index_rebuilds",
        "Segments whose indexes were rebuilt from the log.",
        lambda topic: topic.index_rebuilds,
    ),
    (
        "horolog_torn_tails",
        "Logs with an incomplete last write, which recovery cut off.",
        lambda topic: topic.torn_tails,
    ),
    (
        "horolog_torn_bytes",
        "Bytes that recovery cut off and kept in .broken files.",
        lambda topic: topic.torn_bytes,
    ),
    (
        "horolog_segments_set_aside",
        "Segments after a torn write, which recovery renamed to .broken.",
        lambda topic: topic.segments_set_aside,
    ),
    (
        "horolog_damaged_segments",
        "Segments in which damaged bytes were found. horolog repair takes the damaged bytes out.",
        lambda topic: topic.damaged_segments,
    ),
    (
        "horolog_retention_deleted_segments",
        "Segments deleted by retention, or after a trim.",
        lambda topic: topic.deleted_segments,
    ),
    (
        "horolog_dropped_headers",
        "Headers lost by conversion to a message format older than v2, which has no headers.",
        lambda topic: topic.dropped_headers,
    ),
    (
        "horolog_repeated_messages",
        "Messages that an idempotent producer sent again although they were stored. They are not "
        "stored twice.",
        lambda topic: topic.repeated_messages,
    ),
    (
        "horolog_log_failures",
        "Partitions that refuse appends since a write or a sync failed.",
        lambda topic: topic.failures,
    ),
)
"""Name without `_total`, help text, value."""

TOPIC_COUNTERS_BY: tuple[
    tuple[str, str, str, Callable[[TopicFigures], Mapping[str, float]]], ...
] = (
    (
        "horolog_rejected_messages",
        "Messages in refused sets; a compressed set counts as one.",
        "reason",
        lambda topic: topic.rejected,
    ),
    (
        "horolog_segment_rolls",
        "Segments begun, by the reason of the roll.",
        "reason",
        lambda topic: topic.rolls,
    ),
    (
        "horolog_converted_messages",
        "Converted messages: on append to a newer format (append_up) or to an older one "
        "(append_down), or on fetch for a reader that knows only an older format (fetch_down).",
        "direction",
        lambda topic: topic.converted_messages,
    ),
    (
        "horolog_converted_bytes",
        "Bytes of the converted message sets before the conversion.",
        "direction",
        lambda topic: topic.converted_bytes,
    ),
    (
        "horolog_conversion_seconds",
        "Time spent on conversions, compression included.",
        "direction",
        lambda topic: topic.conversion_seconds,
    ),
)
"""Name without `_total`, help text, a second label, values by that label."""

_POSITION_TEXTS: Final = {
    "horolog_consumer_lag": "Messages from a named position to the end of its partition.",
    "horolog_consumer_lag_seconds": "How long ago the first message behind a named position was "
    "appended, or created where its append time is not known; 0 at the end, absent when no time is "
    "known.",
    "horolog_consumer_position_moved_seconds": "How long ago a named position last moved.",
    "horolog_consumer_position_assigned": "1 while a member of the consumer group of that name has "
    "the partition, else 0.",
}
"""Help texts of the metrics of positions."""

LATENCY_BUCKETS_SECONDS = tuple(bound / 1000 for bound in LATENCY_BUCKETS_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Values that are not counted but read when the metrics are requested. The defaults are those
    of a broker without logs and clients."""

    logs: Callable[[], Iterable[Log]] = tuple
    """Returns the open logs."""
    retention_now_ms: int = 0
    """Current time for retention."""
    clock_ahead_seconds: float = 0.0
    connections: int = 0
    held_bytes: int = 0
    unauthenticated: int = 0
    certificate_days: float | None = None
    """Days until the certificate expires; None without TLS."""
    parked: Mapping[str, int] = field(default_factory=dict)
    """Waiting requests by API."""
    positions: Mapping[tuple[str, str, int], FollowedPosition] = field(default_factory=dict)
    """The followed positions by name, topic and partition."""
    lags_left_out: int = 0
    groups: GroupFigures = field(default_factory=GroupFigures)
    positions_bytes: int = 0
    producer_states_bytes: int = 0
    replicas: ReplicaFigures | None = None
    """Figures of replication; None for a single broker."""


def metrics_lines(figures: Figures, gauges: Gauges) -> Iterator[str]:
    """Yield all metrics in Prometheus' text format, piece by piece. Values that change meanwhile
    may be in later pieces. The metrics of the process come last."""
    yield from text_lines(families(figures, gauges))
    # The import takes a tenth of a second, which would delay the start of a broker.
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    yield generate_latest(registry).decode()


def families(figures: Figures, gauges: Gauges) -> Iterator[Family]:
    """Yield all metric families except those of the process."""
    yield from _requests(figures, gauges)
    yield from _connections(figures, gauges)
    yield from security_families(figures, gauges.unauthenticated, gauges.certificate_days)
    yield from replica_families(gauges.replicas)
    yield from _topics(figures)
    yield from _latency(figures)
    yield from _logs(gauges)
    yield from _positions(gauges)
    yield from _groups(gauges.groups)
    yield from _remembered(gauges)
    yield from _background(figures, gauges)


def _requests(figures: Figures, gauges: Gauges) -> Iterator[Family]:
    yield Family(
        "horolog_requests_total",
        "counter",
        "Requests, by API and by the first error in the answer.",
        ("api", "error"),
        [
            Sample((("api", api), ("error", error)), number)
            for (api, error), number in figures.requests.items()
        ],
    )
    yield Family(
        "horolog_request_seconds",
        "histogram",
        "Time from the arrival of a request until its answer is ready. It includes the wait of a "
        "produce request for its sync and for followers, and the wait of a fetch for messages.",
        ("api",),
        [
            sample
            for api, times in figures.request_times.items()
            for sample in _histogram((("api", api),), times.bounds, times.counts, times.sum_seconds)
        ],
    )
    yield _counter("horolog_received_bytes", "Bytes received from clients.", figures.received_bytes)
    yield _counter("horolog_sent_bytes", "Bytes sent to clients.", figures.sent_bytes)
    yield Family(
        "horolog_parked_requests",
        "gauge",
        "Requests that wait for data, for a sync or for followers.",
        ("api",),
        [Sample((("api", api),), number) for api, number in gauges.parked.items()],
    )
    yield _counter(
        "horolog_parked_refused",
        "Requests answered early because too many were waiting.",
        figures.parked_refused,
    )


def _connections(figures: Figures, gauges: Gauges) -> Iterator[Family]:
    yield _gauge("horolog_connections", "Open connections.", gauges.connections)
    yield _gauge(
        "horolog_buffered_bytes",
        "Memory of all connections for unread answers, waiting requests, incomplete large "
        "requests, and requests in progress with their answers. Up to 64 KiB of each connection "
        "do not count.",
        gauges.held_bytes,
    )
    yield _counter(
        "horolog_connections_opened", "Accepted connections.", figures.connections_opened
    )
    yield _by_label(
        "horolog_connections_refused",
        "Connections closed at once or not accepted, and logins refused by "
        "max.connections.per.user.",
        "reason",
        figures.connections_refused,
    )
    yield _by_label(
        "horolog_connections_dropped",
        "Connections that the broker closed: because of the client (idle and http_idle: it sent "
        "nothing for too long), for lack of memory, or because an answer could not be sent (file, "
        "failed).",
        "reason",
        figures.connections_dropped,
    )
    yield _gauge(
        "horolog_http_connections", "Open connections of the HTTP port.", figures.http_connections
    )
    yield _by_label(
        "horolog_http_requests_refused",
        "Requests to the HTTP port that were refused: malformed, without a login, or with a Host "
        "or Expect header that the broker does not accept.",
        "reason",
        figures.http_requests_refused,
    )


def _topics(figures: Figures) -> Iterator[Family]:
    for name, text, value in TOPIC_COUNTERS:
        samples = _by_topic(figures, value)
        labels: tuple[str, ...] = ("topic",)
        if name == FETCHED_BYTES:
            samples, labels = chain(samples, _of_windows(figures)), (*labels, "window")
        yield Family(f"{name}_total", "counter", text, labels, samples)
    for name, text, label, values in TOPIC_COUNTERS_BY:
        split = _by_topic_and(label, figures, values)
        yield Family(f"{name}_total", "counter", text, ("topic", label), split)


def _by_topic(figures: Figures, value: Callable[[TopicFigures], float]) -> Iterator[Sample]:
    # A copy, because topics come and go while the text is made.
    for topic, counted in list(figures.topics.items()):
        yield Sample(_of(topic), value(counted))


def _of_windows(figures: Figures) -> Iterator[Sample]:
    """What readers of windows got, under the name of the topic whose messages these are."""
    for topic, counted in list(figures.topics.items()):
        if counted.window_bytes_out:
            yield Sample((*_of(topic), ("window", "yes")), counted.window_bytes_out)


def _by_topic_and(
    label: str, figures: Figures, values: Callable[[TopicFigures], Mapping[str, float]]
) -> Iterator[Sample]:
    for topic, counted in list(figures.topics.items()):
        for key, number in list(values(counted).items()):
            yield Sample((*_of(topic), (label, key)), number)


def _latency(figures: Figures) -> Iterator[Family]:
    yield Family(
        "horolog_latency_seconds",
        "histogram",
        "Append time minus create time of messages that clients appended at this broker. Negative "
        "values count as 0.",
        ("topic",),
        (
            sample
            for topic, counted in list(figures.topics.items())
            for sample in _histogram(
                _of(topic),
                LATENCY_BUCKETS_SECONDS,
                counted.latency.counts,
                counted.latency.sum_ms / 1000,
            )
        ),
    )
    window_seconds = figures.latency_window_ms / 1000
    yield Family(
        "horolog_max_latency_seconds",
        "gauge",
        f"Largest latency of the last {window_seconds:g} s; NaN when no message with a "
        "create time was appended.",
        ("topic",),
        _by_topic(figures, lambda counted: _seconds(counted.largest_latency.largest())),
    )


def _logs(gauges: Gauges) -> Iterator[Family]:
    sizes: dict[str, int] = {}
    segments: dict[str, int] = {}
    unflushed: dict[str, int] = {}
    pinned: dict[str, int] = {}
    not_cleaned: dict[str, int] = {}

    def ends() -> Iterator[Sample]:
        now_ms = gauges.retention_now_ms
        for log in list(gauges.logs()):
            topic = log.topic
            for values, number in (
                (sizes, log.size_bytes),
                (segments, log.segment_count),
                (unflushed, log.unflushed_messages),
                (pinned, log.expiry.pinned_segments(now_ms)),
            ):
                values[topic] = values.get(topic, 0) + number
            if log.settings.compacts:
                not_cleaned[topic] = not_cleaned.get(topic, 0) + log.size_bytes
            yield Sample((*_of(topic), ("partition", str(log.partition))), log.log_end_offset)

    yield Family(
        "horolog_log_end_offset",
        "gauge",
        "Offset of the next message of the partition.",
        ("topic", "partition"),
        ends(),
    )
    for name, text, values in (
        ("horolog_log_size_bytes", "Bytes of messages on disk.", sizes),
        ("horolog_log_segments", "Number of segments.", segments),
        ("horolog_log_unflushed_messages", "Messages not known to be synced.", unflushed),
        (
            "horolog_pinned_segments",
            "Segments that retention.ms cannot delete yet because a message in them, or in an "
            "older one, has a time more than a minute in the future.",
            pinned,
        ),
        (
            "horolog_not_cleaned_bytes",
            "Bytes of compacted topics (cleanup.policy) that were not cleaned yet.",
            not_cleaned,
        ),
    ):
        yield Family(name, "gauge", text, ("topic",), _values(values))


def _values(values: Mapping[str, int]) -> Iterator[Sample]:
    """Yield one sample per topic. `values` is filled while the samples before them are yielded."""
    for topic, number in values.items():
        yield Sample(_of(topic), number)


def _positions(gauges: Gauges) -> Iterator[Family]:
    followed = [
        ((("name", name), ("topic", topic), ("partition", str(partition))), position)
        for (name, topic, partition), position in gauges.positions.items()
    ]
    values: Mapping[str, Callable[[FollowedPosition], float | None]] = {
        "horolog_consumer_lag": lambda position: position.lag.messages,
        "horolog_consumer_lag_seconds": lambda position: position.lag.seconds,
        "horolog_consumer_position_moved_seconds": lambda position: position.moved_seconds,
        "horolog_consumer_position_assigned": lambda position: int(position.assigned),
    }
    for name, value in values.items():
        yield Family(
            name,
            "gauge",
            _POSITION_TEXTS[name],
            ("name", "topic", "partition"),
            [
                Sample(labels, number)
                for labels, position in followed
                if (number := value(position)) is not None
            ],
        )
    yield _gauge(
        "horolog_consumer_lag_left_out",
        "Named positions without these metrics: more than can be followed, or, where the broker "
        "does not lead, committed since it first looked.",
        gauges.lags_left_out,
    )


def _groups(groups: GroupFigures) -> Iterator[Family]:
    yield Family(
        "horolog_groups",
        "gauge",
        "Consumer groups that had members since the broker became their coordinator, by state.",
        ("state",),
        [Sample((("state", state),), number) for state, number in groups.states.items()],
    )
    yield _gauge("horolog_group_members", "Members of all groups.", groups.members)
    yield _gauge(
        "horolog_group_bytes", "Memory used by the members of all groups.", groups.size_bytes
    )
    yield _counter(
        "horolog_group_rebalances", "Rebalances begun, of all groups.", groups.rebalances
    )
    yield _by_label(
        "horolog_group_members_removed",
        "Members that left or were removed from a group.",
        "reason",
        groups.members_gone,
    )


def _remembered(gauges: Gauges) -> Iterator[Family]:
    yield _gauge(
        "horolog_positions_bytes",
        "Memory used by named positions; max.positions.bytes limits it.",
        gauges.positions_bytes,
    )
    yield _gauge(
        "horolog_producer_states_bytes",
        "Memory used by the states of idempotent producers; max.producer.states.bytes limits it.",
        gauges.producer_states_bytes,
    )


def _background(figures: Figures, gauges: Gauges) -> Iterator[Family]:
    fsync, lag = figures.fsync, figures.loop_lag
    yield Family(
        "horolog_fsync_seconds",
        "histogram",
        "Time of one sync of a log's files.",
        (),
        list(_histogram((), FSYNC_BUCKETS_SECONDS, fsync.counts, fsync.sum_seconds)),
    )
    yield Family(
        "horolog_loop_lag_seconds",
        "histogram",
        "Delay of the event loop, measured twice a second. Every client waits that long.",
        (),
        list(_histogram((), FSYNC_BUCKETS_SECONDS, lag.counts, lag.sum_seconds)),
    )
    yield from _scrubbing(figures)
    yield _by_label(
        "horolog_clock_steps",
        "Steps of the wall clock against the monotonic clock by more than clock.step.max.ms. "
        "forward_while_stopped can also be the time for which the broker was stopped.",
        "direction",
        figures.clock_steps,
    )
    yield _gauge(
        "horolog_clock_ahead_seconds",
        "How far the wall clock is ahead of the time that retention trusts.",
        gauges.clock_ahead_seconds,
    )
    yield _by_label(
        "horolog_failed_task_passes",
        "Failed passes of background tasks; each is tried again.",
        "task",
        figures.failed_passes,
    )
    yield _by_label(
        "horolog_suppressed_log_lines",
        "Log lines that were not written because there were too many of the same event.",
        "event",
        figures.suppressed_lines,
    )


def _scrubbing(figures: Figures) -> Iterator[Family]:
    yield _counter(
        "horolog_scrubbed_bytes",
        "Bytes of logs that scrubbing has read to find damage.",
        figures.scrubbed_bytes,
    )
    yield _counter(
        "horolog_scrub_rounds",
        "How often scrubbing has read all logs.",
        figures.scrub_rounds,
    )
    total = figures.scrub_total_bytes
    yield _gauge(
        "horolog_scrub_progress_ratio",
        "Share of the logs that the present round of scrubbing has read, or the last round if "
        "none is running. 0 before the first round.",
        min(figures.scrub_done_bytes / total, 1.0) if total else 0.0,
    )


def _of(topic: str) -> Labels:
    return (("topic", topic),)


def _seconds(ms: int | None) -> float:
    return float("nan") if ms is None else ms / 1000


def _counter(name: str, text: str, value: int) -> Family:
    return Family(f"{name}_total", "counter", text, (), [Sample((), value)])


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(name, "gauge", text, (), [Sample((), value)])


def _by_label(name: str, text: str, label: str, counts: Mapping[str, int]) -> Family:
    samples = [Sample(((label, key),), number) for key, number in counts.items()]
    return Family(f"{name}_total", "counter", text, (label,), samples)


def _histogram(
    labels: Labels, bounds: Sequence[float], counts: Sequence[int], total: float
) -> Iterator[Sample]:
    """Yield Prometheus' histogram buckets; each counts all values up to its bound."""
    running = list(accumulate(counts))
    for bound, number in zip(bounds, running, strict=False):
        yield Sample((*labels, ("le", str(float(bound)))), number, "_bucket")
    yield Sample((*labels, ("le", "+Inf")), running[-1], "_bucket")
    yield Sample(labels, running[-1], "_count")
    yield Sample(labels, total, "_sum")


def security_families(
    figures: Figures, unauthenticated: int, certificate_days: float | None
) -> Iterator[Family]:
    """Yield the families. `certificate_days` is None without TLS."""
    yield Family(
        "horolog_unauthenticated_connections",
        "gauge",
        "Connections that have not finished their TLS handshake, or a required login.",
        (),
        [Sample((), unauthenticated)],
    )
    yield Family(
        "horolog_logins_total",
        "counter",
        "Logins, by their result: done or failed.",
        ("mechanism", "result"),
        [
            Sample((("mechanism", mechanism), ("result", result)), number)
            for (mechanism, result), number in figures.logins.items()
        ],
    )
    yield Family(
        "horolog_tls_failures_total",
        "counter",
        "Failed TLS handshakes, and connections that sent something else than a handshake.",
        ("reason",),
        [Sample((("reason", reason),), count) for reason, count in figures.tls_failures.items()],
    )
    yield Family(
        "horolog_quota_throttled_total",
        "counter",
        "Throttled answers, by quota: after the answer the broker reads nothing from the client "
        "for a while.",
        ("quota",),
        [Sample((("quota", quota),), number) for quota, number in figures.throttled.items()],
    )
    yield Family(
        "horolog_quota_throttled_seconds_total",
        "counter",
        "Total time for which clients were throttled, by quota.",
        ("quota",),
        [Sample((("quota", quota),), sec) for quota, sec in figures.throttled_seconds.items()],
    )
    yield Family(
        "horolog_tls_certificate_days",
        "gauge",
        "Days until the broker's certificate expires; negative after it has expired. Absent "
        "without TLS.",
        (),
        [] if certificate_days is None else [Sample((), certificate_days)],
    )
