"""A stretch of a log: read for a follower where it lies, and checked by the follower."""

from dataclasses import replace
from struct import Struct
from typing import Final, NamedTuple

from ...protocol.errors import CorruptMessage, InvalidRequest, OffsetOutOfRange
from ...protocol.records.kernel import Walk, walk
from ...protocol.records.kernel.terms import Offsets, Problem
from ...protocol.records.layout import BATCH_MAGIC, CODEC_MASK, NO_TIMESTAMP
from ...protocol.records.problems import problem_error
from ...values import value_class
from ..entries.entry_check import EntryCheck
from ..files import Buffer
from ..index.append_time_lookup import known_times
from ..index.append_times import Span
from ..log.epoch_history import EpochStart
from ..log.log import Log
from ..log.trimmed import may_be_untimed
from ..names import MAX_OFFSET
from ..read.reader import offset_behind
from ..read.slices import Slice, read_slice
from ..segment.segment import FarAway, Segment
from .copy_facts import EPOCHS_MAX, NEVER, SPANS_MAX, CopyFacts

NOT_KNOWN: Final = -1

_HEAD: Final = Struct(">q8xBB")
"""Offset, magic and attributes of an entry. A batch has its attributes elsewhere."""


@value_class
class Copied:
    """A part of a leader's log for a follower."""

    found: Slice
    """Bytes of one segment and one format. The last entry may be cut off; may be empty."""
    facts: CopyFacts
    next_offset: int
    """First offset after these bytes, if they end with an entry and the offset is
    known; else -1."""


class Reached(NamedTuple):
    """The log end when a copy had everything."""

    offset: int
    segment: Segment
    position: int
    cuts: int
    """Value of the segment's `cuts` then: bytes that were truncated may have been replaced."""

    def behind(self, log: Log, max_bytes: int) -> Slice | None:
        """Return the bytes appended since then, if they have one format and are in this segment."""
        segment, position = self.segment, self.position
        size = segment.size_bytes - position
        goes_on = (
            segment is log.segment_list.active
            and segment.cuts == self.cuts
            and segment.damaged is None
            and segment.next_offset == log.log_end_offset
        )
        if not goes_on or not 0 < size <= max_bytes:
            return None
        magic, span_end = segment.magic_span(position)
        if span_end < position + size:
            return None
        return Slice(segment, position, size, magic, log.high_watermark)


def read_copy(
    log: Log,
    offset: int,
    max_bytes: int,
    *,
    whole_first: bool,
    far: bool,
    reached: Reached | None = None,
) -> Copied:
    """Return the messages of `log` from `offset` on, committed or not; see `ReplicaLog.read`.
    `reached` is where an earlier call ended: a follower that keeps up continues there, and no
    search is needed."""
    if not log.prepared:
        if not far:
            raise FarAway
        log.prepare()
    first = log.segment_list.first
    if not first.base_offset <= offset <= log.log_end_offset:
        raise OffsetOutOfRange(
            f"a copy of {log.topic}-{log.partition} cannot go on at offset {offset}; the log has "
            f"{first.base_offset} (oldest segment) to {log.log_end_offset} (log end)"
        )
    at_end = reached is not None and reached.offset == offset
    found = reached.behind(log, max_bytes) if reached is not None and at_end else None
    if found is None:
        found = read_slice(
            log.segment_list,
            offset,
            max_bytes,
            end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            whole_first=whole_first,
            far=far,
        )
    segment = found.segment or log.segment_list.active
    if not (far or segment.append_times.loaded):
        raise FarAway
    if found.size:
        found = _without_cut_entry(log, found, segment)
    found, epochs, spans, times_end = _facts(log, found, offset)
    facts = CopyFacts(
        offset,
        segment.base_offset,
        first.base_offset,
        log.log_start_offset,
        log.gaps,
        epochs,
        spans,
        times_end,
        _created_ms(segment),
        _modified_ms(log, segment),
        _modified_before_ms(log, segment, offset),
    )
    return Copied(found, facts, _offset_at_end(log, found, segment) if found.size else offset)


def reached_by(log: Log, copied: Copied) -> Reached | None:
    """Return the log end of a copy that has everything; `None` for other copies."""
    found, segment = copied.found, copied.found.segment
    if segment is None or copied.next_offset != log.log_end_offset:
        return None
    return Reached(copied.next_offset, segment, found.position + found.size, segment.cuts)


def _without_cut_entry(log: Log, found: Slice, segment: Segment) -> Slice:
    """Return the slice without a cut-off entry at its end, if the index knows the end of an entry
    shortly before."""
    end = found.position + found.size
    if end >= segment.size_bytes:
        return found
    number = segment.offset_index.count_before(end + 1)
    if not number:
        return found
    _, position = segment.offset_index.entry(number - 1)
    return replace(found, size=position - found.position) if position > found.position else found


def _offset_at_end(log: Log, found: Slice, segment: Segment) -> int:
    """Return the first offset after a slice; -1 if it would have to be searched for."""
    end = found.position + found.size
    if end >= segment.size_bytes:
        return min(segment.next_offset, log.log_end_offset)
    number = 0 if log.gaps else segment.offset_index.count_before(end + 1)
    if not number or segment.offset_index.entry(number - 1)[1] != end:
        return NOT_KNOWN
    head = segment.file.pread_now(_HEAD.size, end)
    if head is None:
        return NOT_KNOWN
    offset, magic, attributes = _HEAD.unpack_from(head)
    # A wrapper message has the offset of its last message.
    known = magic == BATCH_MAGIC or not attributes & CODEC_MASK
    return int(offset) if known else NOT_KNOWN


def _facts(
    log: Log, found: Slice, offset: int
) -> tuple[Slice, tuple[EpochStart, ...], tuple[Span, ...], int]:
    """Return epochs and append times of a slice. The slice may be shortened, because both are
    limited."""
    history = log.epochs.history
    segment = found.segment
    if segment is None or not found.size:
        return found, history.between(offset, offset + 1), (), offset
    end = min(offset_behind(segment, found.position + found.size), log.log_end_offset)
    only_ms = segment.append_times.only_since(offset) if offset >= segment.base_offset else None
    if only_ms is not None and end <= segment.append_times.end_offset:
        return found, history.between(offset, end), ((offset, only_ms),), end
    times = known_times(segment.append_times, max(offset, segment.base_offset), end, SPANS_MAX)
    epochs = history.between(offset, times.end_offset)
    times_end = times.end_offset
    if len(epochs) > EPOCHS_MAX:
        times_end = epochs[EPOCHS_MAX].start_offset
        epochs = epochs[:EPOCHS_MAX]
    if times_end < end:
        size = min(found.size, segment.locate(times_end) - found.position)
        found = replace(found, size=size)
    spans = [span for span in times.spans if offset < span[0] < times_end]
    before = [ms for at, ms in times.spans if at <= offset]
    return found, epochs, ((offset, before[-1] if before else NEVER), *spans), times_end


def _created_ms(segment: Segment) -> int:
    return NEVER if segment.first_timestamp_ms >= 0 else segment.created_ms


def _modified_ms(log: Log, segment: Segment) -> int:
    """Return the modification time of a file with messages, if possibly none of them from the log
    start on has a timestamp; else -1."""
    untimed = segment.size_bytes and may_be_untimed(log, segment)
    return max(segment.modified_ms, 0) if untimed else NEVER


def _modified_before_ms(log: Log, segment: Segment, offset: int) -> int:
    """Return the modification time of the previous segment's file at the start of a segment; else
    -1. After a trim, that segment may hold only messages without a timestamp."""
    if offset > segment.base_offset:
        return NEVER
    segments = log.segment_list.segments
    number = log.segment_list.number_of(segment)
    if number <= 0 or not segments[number - 1].size_bytes:
        return NEVER
    try:
        return max(segments[number - 1].modified_ms, 0)
    except OSError:
        return NEVER  # A file that somebody removed does not block the messages behind it.


def check_copied(
    data: Buffer, log_end_offset: int, active: Segment, interval_bytes: int, *, gaps: bool
) -> Walk:
    """Check entries stored by another log, which continue at the log end. Return the walk over the
    complete ones, with positions for index entries in `active`. `gaps` lets offsets jump.

    Raises `CorruptMessage`, `UnsupportedForMessageFormat`, and `InvalidRequest` for offsets that do
    not continue at the log end.
    """
    rule = Offsets.RISING if gaps else Offsets.CONTIGUOUS
    found = walk(
        data,
        0,
        len(data),
        offsets=rule,
        base_offset=log_end_offset,
        interval_bytes=interval_bytes,
        since_bytes=active.since_bytes,
        largest_ms=active.largest[0],
        magic=active.last_magic,
        segment_offset=active.base_offset,
        segment_position=active.size_bytes,
    )
    if found.problem not in (Problem.NONE, Problem.PARTIAL, Problem.OFFSET):
        raise problem_error(data, found, len(data))
    check = EntryCheck(log_end_offset, gaps=gaps, limit_offset=MAX_OFFSET)
    breach = check.check(data, found, 0)
    if breach is not None:
        if breach.problem is Problem.OFFSET:
            raise InvalidRequest(f"byte {breach.position} of a stretch: {breach.rule}")
        raise CorruptMessage(f"byte {breach.position} of a stretch: {breach.rule}")
    return found


def spans_within(facts: CopyFacts, segment: Segment, end_offset: int) -> list[Span]:
    """Return the append times of the messages that go into a segment, up to `end_offset`; -1 is
    unknown."""
    begin = max(segment.next_offset, segment.base_offset)
    spans = [span for span in facts.append_times if begin < span[0] < end_offset]
    before = [ms for offset, ms in facts.append_times if offset <= begin < facts.times_end]
    spans = [(begin, before[-1] if before else NO_TIMESTAMP), *spans]
    if facts.times_end < end_offset and spans[-1][0] < facts.times_end:
        spans.append((facts.times_end, NO_TIMESTAMP))
    return spans
