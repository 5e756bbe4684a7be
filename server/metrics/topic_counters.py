"""What is counted for each topic, under the names that Prometheus sees."""

from collections.abc import Callable, Mapping
from typing import Final

from .figures import TopicFigures

FETCHED_BYTES: Final = "horolog_fetched_bytes"

TOPIC_COUNTERS: tuple[tuple[str, str, Callable[[TopicFigures], int]], ...] = (
    (
        "horolog_appended_messages",
        "Messages that clients appended here; not those that a follower copies.",
        lambda topic: topic.messages,
    ),
    ("horolog_appended_bytes", "Bytes of them, as stored.", lambda topic: topic.bytes_in),
    (
        FETCHED_BYTES,
        'Bytes of message sets sent; with window="yes" to readers of windows by their names '
        "(clicks..20161114T14Z..1h), under the name of the topic.",
        lambda topic: topic.bytes_out,
    ),
    (
        "horolog_clock_skew",
        "Messages whose create time was later than their append time.",
        lambda topic: topic.latency.skewed,
    ),
    (
        "horolog_messages_without_create_time",
        "Messages appended that carried no create time.",
        lambda topic: topic.latency.untimed,
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
        "Segments deleted by retention, or behind a trim.",
        lambda topic: topic.deleted_segments,
    ),
    (
        "horolog_dropped_headers",
        "Headers of messages that were converted to a format older than v2, which has none.",
        lambda topic: topic.dropped_headers,
    ),
    (
        "horolog_repeated_messages",
        "Messages that an idempotent producer sent again; they had been stored.",
        lambda topic: topic.repeated_messages,
    ),
    (
        "horolog_log_failures",
        "Partitions that stopped taking appends because a write or a sync failed.",
        lambda topic: topic.failures,
    ),
)
"""Name without `_total`, meaning, value."""

TOPIC_COUNTERS_BY: tuple[
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
        "Messages that changed their format: as they were appended to a later one (append_up) or "
        "an older one (append_down), or for a reader that knows only an older one (fetch_down).",
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
"""Name without `_total`, meaning, a second label, values by that label."""
