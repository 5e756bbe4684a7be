"""Admission of the usual sets, many at a time: what `admission` would make of each, in one go.

Most producers send plain sets, or plain batches, of the format that is stored. Of those the bytes
are joined, which the write needs anyway, and walked once, however many there are. Whatever is
unusual about one of them is left to `admission`, which takes them one by one.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from ...config.topic import TopicSettings
from ...protocol.errors import InvalidTimestamp
from ...protocol.records.kernel import Walk, check_usual, first_offsets, stamp, stamp_batches, walk
from ...protocol.records.kernel.terms import Offsets, Problem
from ...protocol.records.latency import LatencyCounts
from ...protocol.records.layout import (
    ATTRIBUTES_AT,
    BATCH_ATTRIBUTES_AT,
    CODEC_MASK,
    MAGIC_AT,
    NO_TIMESTAMP,
    Codec,
)
from ..check.entry_rules import BATCH_MAGIC
from ..files import Buffer
from ..producers.producer_runs import ProducerRun, producer_runs
from ..producers.producer_states import ProducerStates
from .admission import LAST_FIRST_OFFSET
from .rolling import roll_reason
from .segment import Segment
from .timestamp_range import check_timestamps, in_range

_PLAIN: Final = 1 << Codec.NONE
_KEPT_AS_SENT: Final = ("producer", "uncompressed")


class Together(NamedTuple):
    """Sets as they will be stored, one behind the other."""

    data: Buffer
    walk: Walk
    """The walk over `data`, with index marks."""
    first_offsets: list[int]
    stamp_ms: int
    """-1 on CreateTime topics."""
    latency: LatencyCounts
    runs: Sequence[ProducerRun] = ()
    """Of the producers that number their batches."""


def admit_together(  # noqa: C901 - the conditions of the usual set, in order
    record_sets: Sequence[Buffer],
    settings: TopicSettings,
    active: Segment,
    states: ProducerStates,
    now_ms: int,
) -> Together | None:
    """The sets in the form in which `active` stores them; `None` where that is not so simple.

    `states` are what is known of producers. `now_ms` is the append time. A single set that is
    writable is changed in place, the bytes of several are copied.
    """
    if settings.compression_type not in _KEPT_AS_SENT or not active.size_bytes:
        return None
    if active.next_offset > LAST_FIRST_OFFSET:
        return None
    data = _joined(record_sets)
    if not _begins_plain(data):
        return None
    found = walk(
        data,
        0,
        len(data),
        offsets=Offsets.ASSIGN,
        base_offset=active.next_offset,
        now_ms=now_ms,
        interval_bytes=settings.index_interval_bytes,
        since_bytes=active.since_bytes,
        largest_ms=active.largest[0],
        magic=active.last_magic,
        segment_offset=active.base_offset,
        segment_position=active.size_bytes,
    )
    if found.problem is not Problem.NONE or found.codecs != _PLAIN:
        return None
    if found.largest_entry_bytes > settings.max_message_bytes:
        return None
    stamps = settings.stamps_append_time
    newest_ms = now_ms if stamps else found.max_timestamp_ms
    if len(found.marks) > active.index_room or roll_reason(
        active, settings, len(data), found.last_offset, newest_ms, now_ms
    ):
        return None
    if found.batches:
        return _batches_together(data, found, record_sets, settings, active, states, now_ms)
    if not _stored_as_sent(data, found, settings, now_ms):
        return None
    offsets = _first_offsets(data, found, record_sets)
    if offsets is None:
        return None
    assert found.latency is not None
    if not stamps:
        return Together(data, found, offsets, NO_TIMESTAMP, found.latency)
    assert not isinstance(data, bytes)
    stamp(data, 0, len(data), now_ms)
    return Together(data, _walk_again(data, settings, active), offsets, now_ms, found.latency)


def _batches_together(
    data: Buffer,
    found: Walk,
    record_sets: Sequence[Buffer],
    settings: TopicSettings,
    active: Segment,
    states: ProducerStates,
    now_ms: int,
) -> Together | None:
    """As `admit_together`, for sets of which the walk says that there are batches in them."""
    if found.magics != 1 << BATCH_MAGIC or settings.format_magic not in (None, BATCH_MAGIC):
        return None
    sent = check_usual(data, list(accumulate(map(len, record_sets))), now_ms)
    if sent is None:
        return None
    if not in_range(sent.min_timestamp_ms, sent.max_timestamp_ms, settings, now_ms):
        return None
    stamps = settings.stamps_append_time
    if not (stamps or sent.true_times):
        return None
    stamp_ms = now_ms if stamps else NO_TIMESTAMP
    runs = producer_runs(sent.numbered, sent.first_offsets, stamp_ms, states)
    if runs is None:
        return None
    if stamps:
        assert not isinstance(data, bytes)
        stamp_batches(data, len(data), now_ms)
        found = _walk_again(data, settings, active)
    assert sent.latency is not None
    return Together(data, found, sent.first_offsets, stamp_ms, sent.latency, runs)


def _begins_plain(data: Buffer) -> bool:
    """Whether the first entry is neither compressed nor of a format that nobody knows."""
    if len(data) <= BATCH_ATTRIBUTES_AT + 1 or data[MAGIC_AT] > BATCH_MAGIC:
        return False
    at = BATCH_ATTRIBUTES_AT + 1 if data[MAGIC_AT] == BATCH_MAGIC else ATTRIBUTES_AT
    return not data[at] & CODEC_MASK


def _joined(record_sets: Sequence[Buffer]) -> Buffer:
    """The bytes of all sets, writable."""
    if len(record_sets) == 1:
        data = record_sets[0]
        return bytearray(data) if isinstance(data, bytes) or memoryview(data).readonly else data
    return bytearray().join(record_sets)


def _first_offsets(data: Buffer, found: Walk, record_sets: Sequence[Buffer]) -> list[int] | None:
    """The first offset of each set; `None` when one does not end with a message of its own."""
    if len(record_sets) == 1:
        return [found.first_offset]
    return first_offsets(data, list(accumulate(map(len, record_sets))))


def _stored_as_sent(data: Buffer, found: Walk, settings: TopicSettings, now_ms: int) -> bool:
    """Whether good messages need no more than offsets and append times."""
    magic = settings.format_magic
    if settings.stamps_append_time and magic is None:
        magic = 1
    if magic is not None and found.magics != 1 << magic:
        return False
    try:
        check_timestamps(data, found, settings, now_ms)
    except InvalidTimestamp:
        return False
    return True


def _walk_again(data: Buffer, settings: TopicSettings, active: Segment) -> Walk:
    """The walk over entries that have been stamped."""
    return walk(
        data,
        0,
        len(data),
        check_crc=False,
        interval_bytes=settings.index_interval_bytes,
        since_bytes=active.since_bytes,
        largest_ms=active.largest[0],
        magic=active.last_magic,
        segment_offset=active.base_offset,
        segment_position=active.size_bytes,
    )
