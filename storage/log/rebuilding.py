"""Build a message set anew, where the one that was sent cannot be stored as it is."""

from collections.abc import Sequence
from typing import NamedTuple

from ...protocol.errors import InvalidTimestamp
from ...protocol.records.batches.batch import CheckedBatch, finish_batch
from ...protocol.records.kernel import RecordEncoder, records_to_messages
from ...protocol.records.layout import BATCH_MAGIC, NO_PRODUCER_ID, NO_TIMESTAMP, Codec
from ...protocol.records.messages.conversion import convert_entries
from ...protocol.records.messages.sets import build_wrapper
from ...values import value_class
from ..files import Buffer


class Numbered(NamedTuple):
    """By what a retry of a batch is recognised."""

    producer_id: int
    epoch: int
    sequence: int


NOT_NUMBERED = Numbered(NO_PRODUCER_ID, -1, -1)


@value_class
class Part:
    """Checked plain entries of a sent set: a stretch of it, or what a wrapper in it held."""

    data: Buffer
    end: int
    """Where the entries end in `data`."""
    count: int
    largest_ms: int
    """-1 when no message has a time."""


@value_class
class Form:
    """What a set is to become."""

    magic: int | None
    """The format of all messages; `None`, only without a codec, leaves each its own."""
    codec: Codec
    next_offset: int
    stamp_ms: int | None
    """The append time that all get, only in v1 and v2; `None` leaves their own."""
    numbered: Numbered = NOT_NUMBERED
    """What a batch (v2) is made with."""


def rebuild(parts: Sequence[Part], form: Form) -> tuple[bytearray, int]:
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
    parts: Sequence[Part], magic: int | None, offset: int, stamp_ms: int | None
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


def rebuild_batches(batches: Sequence[CheckedBatch], form: Form) -> tuple[bytearray, int, int]:
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
        parts.append(Part(messages, len(messages), rewritten.messages, largest_ms))
    rebuilt, _ = rebuild(parts, form)
    return rebuilt, sum(part.count for part in parts), headers


def _finished(encoder: RecordEncoder, form: Form) -> bytearray:
    return finish_batch(
        encoder,
        codec=form.codec,
        base_offset=form.next_offset,
        append_time_ms=form.stamp_ms,
        producer_id=form.numbered.producer_id,
        producer_epoch=form.numbered.epoch,
        base_sequence=form.numbered.sequence,
    )
