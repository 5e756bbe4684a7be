"""Admission of the usual sets, as many at a time as there are: those that are stored as they came,
but for offsets and append times."""

from collections.abc import Sequence
from typing import Final

from ...config.topic import TopicSettings
from ...protocol.records.kernel import take_usual
from ...protocol.records.layout import NO_TIMESTAMP
from ...times import INT64_MAX, later
from ..check.entry_rules import BATCH_MAGIC
from ..files import Buffer
from ..producers.producer_runs import NumberedSet, producer_runs, sets_in_turn
from ..producers.producer_states import ProducerStates
from .admission import LAST_FIRST_OFFSET, Admitted
from .segment import Segment
from .timestamp_range import accepted_range

_KEPT_AS_SENT: Final = ("producer", "uncompressed")
_EVERY_FORMAT: Final = 0b111


def admit_usual(
    record_sets: Sequence[Buffer],
    settings: TopicSettings,
    active: Segment,
    states: ProducerStates,
    now_ms: int,
) -> Admitted | None:
    """The first sets as `active` stores them, up to one that is not usual or for which a new
    segment may be due; `None` if that is the first.

    `states` are what is known of producers. `now_ms` is the append time. A single set that is
    writable is changed in place, the bytes of several are copied.
    """
    if settings.compression_type not in _KEPT_AS_SENT or not active.size_bytes:
        return None
    if active.next_offset > LAST_FIRST_OFFSET:
        return None
    stamp_ms = now_ms if settings.stamps_append_time else NO_TIMESTAMP
    latest_ms = _latest_of_segment(active, settings, now_ms)
    if latest_ms < max(stamp_ms, 0):
        return None
    earliest_ms, limit_ms = accepted_range(settings, now_ms)
    magics = _formats(settings)
    numbered: Sequence[NumberedSet] = ()
    if magics >> BATCH_MAGIC:
        count, numbered = sets_in_turn(record_sets, states)
        record_sets = record_sets[:count]
    found = take_usual(
        list(record_sets),
        base_offset=active.next_offset,
        now_ms=now_ms,
        magics=magics,
        append_time_ms=stamp_ms,
        lowest_ms=max(earliest_ms or 0, 0),
        highest_ms=latest_ms if limit_ms is None else min(limit_ms, latest_ms),
        entry_max_bytes=settings.max_message_bytes,
        room_bytes=settings.segment_bytes - active.size_bytes,
        marks_max=active.index_room,
        interval_bytes=settings.index_interval_bytes,
        since_bytes=active.since_bytes,
        largest_ms=active.largest[0],
        magic=active.last_magic,
        segment_offset=active.base_offset,
        segment_position=active.size_bytes,
    )
    if found is None:
        return None
    offsets = found.first_offsets
    assert found.latency is not None
    return Admitted(
        found.data,
        found,
        offsets,
        found.last_offset,
        stamp_ms,
        found.latency,
        runs=producer_runs(numbered, offsets, stamp_ms) if numbered else (),
        fits=True,
    )


def _latest_of_segment(active: Segment, settings: TopicSettings, now_ms: int) -> int:
    """The largest time of a message that `active` takes, as `roll_reason` has it; -1 if none."""
    limit_ms = settings.segment_ms - active.jitter_ms
    first_ms = active.first_timestamp_ms
    if first_ms >= 0:
        return later(first_ms, limit_ms)
    return INT64_MAX if now_ms - active.created_ms <= limit_ms else NO_TIMESTAMP


def _formats(settings: TopicSettings) -> int:
    """A bit for each format in which a set is stored as it came."""
    magic = settings.format_magic
    if magic is not None:
        return 1 << magic
    return _EVERY_FORMAT - settings.stamps_append_time
