"""The values of admission: the log end that a set goes to, the set as it is stored, and the result.

A set that cannot be stored as it was sent is rebuilt here (`rebuild`, `rebuild_batches`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from ...config.topic import TopicSettings
from ...protocol.errors import InvalidTimestamp, MessageTooLarge
from ...protocol.records.batch import CheckedBatch, finish_batch
from ...protocol.records.kernel import (
    RecordEncoder,
    Walk,
    gather,
    records_to_messages,
    time_spans,
    walk,
)
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.latency import LatencyCounts
from ...protocol.records.layout import BATCH_MAGIC, NO_PRODUCER_ID, NO_TIMESTAMP, Codec
from ...protocol.records.messages.conversion import convert_entries
from ...protocol.records.messages.message import Entry
from ...protocol.records.messages.sets import build_wrapper
from ...values import value_class
from ..files import Buffer
from ..index.time_map import CLOSE_MS, SetSpans, SetTimes
from ..names import MAX_OFFSET, RELATIVE_OFFSET_MAX
from ..producers.producer_states import KnownProducer, ProducerRun


@value_class
class Conversion:
    """Conversion of a set to another message format than it was sent in."""

    magic: int
    """The format that was stored."""
    up: bool
    """Whether it is a later one than that of any message that was sent."""
    messages: int
    """Messages that changed their format."""
    size_bytes: int
    """Of the whole set, as sent."""
    seconds: float
    headers: int = 0
    """Headers that had no place in the older format."""


class Appended(msgspec.Struct):
    """Result of appending one record set, or a run of sets stored unchanged."""

    first_offsets: Sequence[int]
    """Of each of the sets; -1 for one that held no complete message."""
    last_offset: int
    append_time_ms: int
    """-1 unless the broker stamped the messages."""
    count: int
    """Messages, those inside of wrappers counted one by one."""
    size_bytes: int
    """As stored."""
    latency: LatencyCounts | None
    rolled: str | None
    """Why a new segment was begun for it, if one was."""
    conversion: Conversion | None = None
    """Given when messages had to change their format."""
    repeated: bool = False
    """Whether it is a producer's retry of a set that was stored before: nothing was appended now,
    and offsets and append time are those of that one."""

    @property
    def first_offset(self) -> int:
        """Of the first set."""
        return self.first_offsets[0]


NOTHING_APPENDED: Final = Appended((-1,), -1, NO_TIMESTAMP, 0, 0, None, None)
"""The result for a set without a complete message."""


class Numbered(NamedTuple):
    """By what a retry of a batch is recognised."""

    producer_id: int
    epoch: int
    sequence: int


NOT_NUMBERED = Numbered(NO_PRODUCER_ID, -1, -1)


@value_class
class SentPart:
    """Checked plain entries of a sent set: a stretch of it, or what a wrapper in it held."""

    data: Buffer
    end: int
    """Where the entries end in `data`."""
    count: int
    largest_ms: int
    """-1 when no message has a time."""


@value_class
class StoredForm:
    """What a set is to become."""

    magic: int | None
    """The format of all messages; `None`, only without a codec, leaves each its own."""
    codec: Codec
    next_offset: int
    stamp_ms: int | None
    """The append time that all get, only in v1 and v2; `None` leaves their own."""
    numbered: Numbered = NOT_NUMBERED
    """What a batch (v2) is made with."""


def rebuild(parts: Sequence[SentPart], form: StoredForm) -> tuple[bytearray, int]:
    """The set with offsets from `form.next_offset` on, and how many messages changed their format.

    In v2 it is one batch. Else, with a codec, it is one wrapper, and an append time is on the
    wrapper alone.
    """
    if form.magic == BATCH_MAGIC:
        encoder = RecordEncoder()
        try:
            for part in parts:
                encoder.add_messages(part.data, 0, part.end)
        except ValueError as error:
            # The times of a batch are stored as distances from that of its first message.
            raise InvalidTimestamp(f"the messages do not fit into one batch: {error}") from error
        return _finished(encoder, form), sum(part.count for part in parts)
    if form.codec is Codec.NONE:
        return _joined(parts, form.magic, form.next_offset, form.stamp_ms)
    first_offset = 0 if form.magic else form.next_offset
    inner, converted = _joined(parts, form.magic, first_offset, None)
    timestamp_ms = NO_TIMESTAMP
    if form.stamp_ms is not None:
        timestamp_ms = form.stamp_ms
    elif form.magic:
        timestamp_ms = max(part.largest_ms for part in parts)
    wrapper = build_wrapper(
        inner,
        offset=form.next_offset + sum(part.count for part in parts) - 1,
        timestamp_ms=timestamp_ms,
        magic=form.magic or 0,
        codec=form.codec,
        append_time=form.stamp_ms is not None,
    )
    return wrapper, converted


def _joined(
    parts: Sequence[SentPart], magic: int | None, offset: int, stamp_ms: int | None
) -> tuple[bytearray, int]:
    """All entries in a row."""
    joined = bytearray()
    converted = 0
    for part in parts:
        converted += convert_entries(
            joined, part.data, 0, part.end, magic=magic, first_offset=offset, stamp_ms=stamp_ms
        )
        offset += part.count
    return joined, converted


def rebuild_batches(
    batches: Sequence[CheckedBatch], form: StoredForm
) -> tuple[bytearray, int, int]:
    """As `rebuild`, of batches. Also gives how many headers an older format had no place for."""
    if form.magic == BATCH_MAGIC:
        encoder = RecordEncoder()
        for batch in batches:
            encoder.add_records(batch.content, batch.header.base_timestamp_ms)
        return _finished(encoder, form), 0, 0
    parts, headers = [], 0
    for batch in batches:
        messages = bytearray()
        magic = form.magic or 0
        rewritten = records_to_messages(
            messages,
            batch.content,
            0,
            magic=magic,
            base_offset=0,
            base_timestamp_ms=batch.header.base_timestamp_ms,
        )
        headers += rewritten.headers
        largest_ms = batch.max_timestamp_ms if magic else NO_TIMESTAMP
        parts.append(SentPart(messages, len(messages), rewritten.messages, largest_ms))
    rebuilt, _ = rebuild(parts, form)
    return rebuilt, sum(part.count for part in parts), headers


def _finished(encoder: RecordEncoder, form: StoredForm) -> bytearray:
    return finish_batch(
        encoder,
        codec=form.codec,
        base_offset=form.next_offset,
        append_time_ms=form.stamp_ms,
        producer_id=form.numbered.producer_id,
        producer_epoch=form.numbered.epoch,
        base_sequence=form.numbered.sequence,
    )


LAST_FIRST_OFFSET = MAX_OFFSET - RELATIVE_OFFSET_MAX
"""From here on a set could have more messages than there are offsets left."""


class AppendTarget(NamedTuple):
    """What admission has to know of the log's end."""

    next_offset: int
    now_ms: int
    stamp_ms: int
    """The append time for LogAppendTime: the clock, or the last stamp if that is later."""
    stopwatch: Callable[[], float]
    """Seconds, to measure what conversion takes."""
    since_bytes: int = 0
    largest_ms: int = NO_TIMESTAMP
    magic: int = -1
    segment_offset: int = 0
    segment_position: int = 0
    """State of the active segment, for the places of index entries."""
    opened_max_bytes: int | None = None
    """More than so much is not opened, if that is less than `max.decompressed.bytes`."""

    def budget_bytes(self, settings: TopicSettings) -> int:
        """What all that is compressed in the set may decompress to."""
        limit = settings.max_decompressed_bytes
        return limit if self.opened_max_bytes is None else min(limit, self.opened_max_bytes)


class Admitted(msgspec.Struct):
    """A set as it will be stored, or several, one behind the other."""

    data: memoryview | bytearray
    walk: Walk
    """The walk over `data`, with index marks."""
    first_offsets: Sequence[int]
    """Of each set."""
    last_offset: int
    append_time_ms: int
    """-1 on CreateTime topics."""
    latency: LatencyCounts
    conversion: Conversion | None = None
    numbered: Numbered | None = None
    """By what a retry of it is recognised, where it is stored with that."""
    runs: Sequence[ProducerRun] = ()
    """What is known already to be no retry, by its producers."""
    fits: bool = False
    """Whether it is known that no new segment is due for it."""
    times: SetTimes | None = None
    """Those that its messages had when it was sent, as far as they are known."""
    rolled: str | None = None
    """Why a new segment was begun for it before it is appended (`Appender.write_ahead`)."""
    spans: bytes | SetSpans = b""
    """The same as rows of a time map: of compressed sets whose times are not close together
    (`time_spans`), and of sets of the fast path, whose times the kernel noted."""

    @property
    def count(self) -> int:
        """Messages, those inside of wrappers counted one by one."""
        return self.last_offset - self.first_offsets[0] + 1


def check_entry_size(entry_bytes: int, settings: TopicSettings) -> None:
    """Raise `MessageTooLarge` for an entry (header included) above the topic's limit."""
    if entry_bytes > settings.max_message_bytes:
        raise MessageTooLarge(
            f"a message takes {entry_bytes} bytes with its 12-byte header; the limit is "
            f"{settings.max_message_bytes} (max.message.bytes)"
        )


def finished(
    stored: bytearray | memoryview,
    count: int,
    latency: LatencyCounts,
    settings: TopicSettings,
    target: AppendTarget,
) -> Admitted:
    """Walk what will be stored, for its size limits and its index marks."""
    found = walk(
        stored,
        0,
        len(stored),
        check_crc=False,
        interval_bytes=settings.index_interval_bytes,
        since_bytes=target.since_bytes,
        largest_ms=target.largest_ms,
        magic=target.magic,
        segment_offset=target.segment_offset,
        segment_position=target.segment_position,
    )
    assert found.problem is Problem.NONE
    check_entry_size(found.largest_entry_bytes, settings)
    return Admitted(
        stored,
        found,
        (target.next_offset,),
        target.next_offset + count - 1,
        target.stamp_ms if settings.stamps_append_time else NO_TIMESTAMP,
        latency,
    )


def set_times_of(found: Walk, wrapper: Entry | None = None) -> SetTimes | None:
    """Those of messages that `found` is the walk over; `None` where some have one and some not."""
    if wrapper is not None and not wrapper.magic:
        return NO_TIMESTAMP, NO_TIMESTAMP, found.count
    return _times(found.min_timestamp_ms, found.max_timestamp_ms, found.count, found.untimed)


def batch_times(batches: Iterable[CheckedBatch]) -> SetTimes | None:
    """Those of batches that were checked."""
    return joined_times(
        _times(
            checked.min_timestamp_ms,
            checked.max_timestamp_ms,
            checked.header.record_count,
            checked.untimed,
        )
        for checked in batches
    )


def is_spread(times: SetTimes | None) -> bool:
    """Whether a time map wants more than the smallest and the largest of these."""
    return times is None or times[1] - times[0] > CLOSE_MS


def wrapper_spans(inner: Buffer, count: int, log_bytes: int) -> bytes:
    """The spans of the messages that one wrapper has inside, whose times are their own."""
    found = gather(inner, 0, len(inner), count, with_keys=False, with_values=False)
    return time_spans(found.timestamps, log_bytes=log_bytes, offsets=count)


def joined_times(parts: Iterable[SetTimes | None]) -> SetTimes | None:
    """Those of several parts of a set."""
    joined: SetTimes | None = None
    for part in parts:
        if part is None:
            return None
        if joined is None:
            joined = part
            continue
        if (joined[1] < 0) != (part[1] < 0):
            return None
        joined = min(joined[0], part[0]), max(joined[1], part[1]), joined[2] + part[2]
    return joined


def _times(first_ms: int, last_ms: int, messages: int, untimed: int) -> SetTimes | None:
    if untimed == messages:
        return NO_TIMESTAMP, NO_TIMESTAMP, messages
    return None if untimed or first_ms < 0 else (first_ms, last_ms, messages)


class AppendRun(msgspec.Struct):
    """Sets that are appended together, and the result of each."""

    now_ms: int
    wait_for_sync: bool
    outcomes: list[Appended | Exception] = []
    completed: int = 0
    """How many outcomes are final; the others hold if what is staged can be written."""
    first_offset: int | None = None
    """Where what is staged begins; `None` when nothing is."""
    last_stamp_ms: int = NO_TIMESTAMP
    producers_before: list[tuple[int, KnownProducer | None]] = []
    """What was known of the producers of what is staged, by id, oldest first."""

    def complete(self, failure: Exception | None = None) -> None:
        """What was staged is written, or could not be."""
        self.first_offset = None
        self.producers_before.clear()
        if failure is not None:
            open_outcomes = self.outcomes[self.completed :]
            del self.outcomes[self.completed :]
            for outcome in open_outcomes:
                if isinstance(outcome, Appended) and outcome.count:
                    self.outcomes += [failure] * len(outcome.first_offsets)
                else:
                    self.outcomes.append(outcome)
        self.completed = len(self.outcomes)
