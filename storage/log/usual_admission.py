"""Admission of the usual sets, as many at a time as there are: those that are stored as they came,
but for offsets and append times."""

from collections.abc import Sequence

from ...config.topic import TopicSettings
from ...protocol.records.kernel import producer_numbers, take_usual
from ...protocol.records.layout import NO_TIMESTAMP
from ..files import Buffer
from ..index.time_map import BLOCK_BYTES, CLOSE_MS
from ..producers.producer_runs import producer_runs, sets_in_turn
from ..producers.producer_states import ProducerStates
from ..segment.segment import Segment
from .admitted import LAST_FIRST_OFFSET, Admitted
from .set_times import set_times_of
from .timestamp_range import accepted_range


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
    formats = settings.kept_formats
    if not (formats and active.size_bytes and active.next_offset <= LAST_FIRST_OFFSET):
        return None
    stamp_ms = now_ms if settings.stamps_append_time else NO_TIMESTAMP
    latest_ms = active.latest_time_ms(settings.segment_ms, now_ms)
    if stamp_ms > latest_ms:
        return None
    lowest_ms = 0
    if settings.limits_times:
        earliest_ms, limit_ms = accepted_range(settings, now_ms)
        lowest_ms = max(earliest_ms or 0, 0)
        latest_ms = latest_ms if limit_ms is None else min(limit_ms, latest_ms)
    sets = list(record_sets)
    formats_before = active.magic_changes
    numbered = producer_numbers(sets)
    if numbered:
        due = sets_in_turn(numbered, states)
        if due < len(numbered):
            del sets[numbered[due][0] :]
    found = take_usual(
        sets,
        base_offset=active.next_offset,
        now_ms=now_ms,
        magics=formats,
        append_time_ms=stamp_ms,
        lowest_ms=lowest_ms,
        highest_ms=latest_ms,
        entry_max_bytes=settings.max_message_bytes,
        room_bytes=settings.segment_bytes - active.size_bytes,
        marks_max=min(active.offset_index.room, active.time_index.room),
        interval_bytes=settings.index_interval_bytes,
        since_bytes=active.since_bytes,
        largest_ms=active.largest[0],
        magic=formats_before[-1][1] if formats_before else -1,
        segment_offset=active.base_offset,
        segment_position=active.size_bytes,
        close_ms=CLOSE_MS,
        block_bytes=BLOCK_BYTES if active.time_map.makes else 0,
        block_since_bytes=active.time_map.since_bytes,
        keyed=settings.compacts,
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
        spans=found.spans or b"",
        times=None if found.spans else set_times_of(found),
    )
