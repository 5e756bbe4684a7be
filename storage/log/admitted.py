"""The values of admission: the log end that a set is appended to, the set as stored, and the
result.

A set that cannot be stored as sent is rebuilt here (`rebuild`, `rebuild_batches`).
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
from ...protocol.records.messages.downconversion import convert_entries
from ...protocol.records.messages.sets import Entry, build_wrapper
from ...values import value_class
from ..files import Buffer
from ..index.time_map import CLOSE_MS, SetSpans, SetTimes
from ..names import MAX_OFFSET, RELATIVE_OFFSET_MAX
from ..producers.producer_states import KnownProducer, ProducerRun


@value_class
class Conversion:
    """Conversion of a set to another message format."""

    magic: int
    """The stored format."""
    up: bool
    """Whether it is later than the format of every message sent."""
    messages: int
    """Number of messages whose format changed."""
    size_bytes: int
    """Size of the whole set as sent."""
    seconds: float
    headers: int = 0
    """Number of headers dropped because the older format has no headers."""


class Appended(msgspec.Struct):
    """Result of appending one record set, or a run of sets stored unchanged."""

    first_offsets: Sequence[int]
    """First offset of each set; -1 for a set without a complete message."""
    last_offset: int
    append_time_ms: int
    """Append time in ms, -1 unless the broker stamped the messages."""
    count: int
    """Number of messages; those inside wrapper messages are counted one by one."""
    size_bytes: int
    """Stored size."""
    latency: LatencyCounts | None
    rolled: str | None
    """Why a new segment was begun for the set, if one was."""
    conversion: Conversion | None = None
    """Set if messages had to change their format."""
    repeated: bool = False
    """Whether this is a producer's retry of a set that is stored already. Nothing was appended
    then; offsets and append time are those of the stored set."""

    @property
    def first_offset(self) -> int:
        """First offset of the first set."""
        return self.first_offsets[0]


NOTHING_APPENDED: Final = Appended((-1,), -1, NO_TIMESTAMP, 0, 0, None, None)
"""The result for a set without a complete message."""


class Numbered(NamedTuple):
    """Producer id, epoch and first sequence number of a batch, by which a retry is recognised."""

    producer_id: int
    epoch: int
    sequence: int


NOT_NUMBERED = Numbered(NO_PRODUCER_ID, -1, -1)


@value_class
class SentPart:
    """Checked uncompressed entries: a part of a sent set, or the content of a wrapper message."""

    data: Buffer
    end: int
    """End of the entries in `data`."""
    count: int
    largest_ms: int
    """Largest timestamp, -1 if no message has one."""

    @property
    def timestamps(self) -> bytearray:
        """Times of the messages (int64)."""
        found = gather(self.data, 0, self.end, self.count, with_keys=False, with_values=False)
        return found.timestamps


@value_class
class StoredForm:
    """The form that a set is rebuilt in."""

    magic: int | None
    """Format of all messages. `None` keeps the format of each message; only allowed without a
    codec."""
    codec: Codec
    next_offset: int
    stamp_ms: int | None
    """Append time for all messages, in v1 and v2 only. `None` keeps the messages' own times."""
    numbered: Numbered = NOT_NUMBERED
    """Producer fields of the batch (v2)."""


def rebuild(parts: Sequence[SentPart], form: StoredForm) -> tuple[bytearray, int]:
    """Rebuild the set with offsets from `form.next_offset` on. Return its bytes, and the number of
    messages whose format changed.

    In v2 the result is one batch. In v0 and v1 with a codec it is one wrapper message, and only the
    wrapper gets the append time.
    """
    if form.magic == BATCH_MAGIC:
        encoder = RecordEncoder()
        try:
            for part in parts:
                encoder.add_messages(part.data, 0, part.end)
        except ValueError as error:
            # A batch stores its times as distances from the time of its first message.
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
    """Convert all entries and join them."""
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
    """Like `rebuild`, for batches. Also return the number of headers that the older format could
    not store."""
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
"""A set that begins above this offset could have more messages than there are offsets left."""


class AppendTarget(NamedTuple):
    """What admission needs to know of the log end."""

    next_offset: int
    now_ms: int
    stamp_ms: int
    """Append time for LogAppendTime: the clock, or the last append time if that is later."""
    stopwatch: Callable[[], float]
    """Returns seconds; measures how long a conversion takes."""
    since_bytes: int = 0
    largest_ms: int = NO_TIMESTAMP
    magic: int = -1
    segment_offset: int = 0
    segment_position: int = 0
    """State of the active segment, from which the positions of index entries follow."""
    opened_max_bytes: int | None = None
    """Maximum to decompress in bytes, if that is less than `max.decompressed.bytes`."""

    def budget_bytes(self, settings: TopicSettings) -> int:
        """Return how many bytes the compressed parts of the set may decompress to."""
        limit = settings.max_decompressed_bytes
        return limit if self.opened_max_bytes is None else min(limit, self.opened_max_bytes)


class Admitted(msgspec.Struct):
    """A set in its stored form, or several sets one after the other."""

    data: memoryview | bytearray
    walk: Walk
    """Walk over `data`, with index marks."""
    first_offsets: Sequence[int]
    """First offset of each set."""
    last_offset: int
    append_time_ms: int
    """Append time in ms on LogAppendTime topics; -1 on CreateTime topics."""
    latency: LatencyCounts
    conversion: Conversion | None = None
    numbered: Numbered | None = None
    """Identity by which a retry is recognised, if it is stored with the batch."""
    runs: Sequence[ProducerRun] = ()
    """Batches already known not to be retries, by producer."""
    fits: bool = False
    """Whether it is known that the set needs no new segment."""
    times: SetTimes | None = None
    """Message times of the set as sent, as far as known."""
    rolled: str | None = None
    """Why `Appender.write_ahead` began a new segment for the set."""
    spans: bytes | SetSpans = b""
    """Message times as rows of a time map: for compressed sets whose times are far apart
    (`time_spans`), and for sets of the fast path, from the kernel."""

    @property
    def count(self) -> int:
        """Number of messages; those inside wrapper messages are counted one by one."""
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
    """Walk over the set as stored, to check size limits and get the index marks."""
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
    """Return the times of the messages of a walk. `None` if only some messages have a time."""
    if wrapper is not None and not wrapper.magic:
        return NO_TIMESTAMP, NO_TIMESTAMP, found.count
    return _times(found.min_timestamp_ms, found.max_timestamp_ms, found.count, found.untimed)


def batch_times(batches: Iterable[CheckedBatch]) -> SetTimes | None:
    """Return the times of checked batches. `None` if only some messages have a time."""
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
    """Whether a time map needs more than the smallest and the largest of these times."""
    return times is None or times[1] - times[0] > CLOSE_MS


def needs_spans(admitted: Admitted) -> bool:
    """Whether a time map would have to decompress a rebuilt set: its times are far apart."""
    found = admitted.walk
    is_plain = found.codecs == 1 << Codec.NONE
    return not (is_plain or found.magics & 1) and is_spread(admitted.times)


def joined_spans(admitted: Admitted, timestamps: Iterable[Buffer]) -> bytes:
    """Return the time spans of the messages of a compressed set, which keep their own times
    (int64)."""
    times = b"".join(timestamps)
    return time_spans(times, log_bytes=len(admitted.data), offsets=admitted.count)


def joined_times(parts: Iterable[SetTimes | None]) -> SetTimes | None:
    """Join the times of several parts of a set. `None` if only some messages have a time."""
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
    """Number of final outcomes. The others hold only if what is staged can be written."""
    first_offset: int | None = None
    """First offset of what is staged; `None` if nothing is."""
    last_stamp_ms: int = NO_TIMESTAMP
    producers_before: list[tuple[int, KnownProducer | None]] = []
    """Producer states before the staged sets, by producer id, oldest first."""

    def complete(self, failure: Exception | None = None) -> None:
        """Mark the outcomes of the staged sets as final, or replace them by `failure`."""
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
