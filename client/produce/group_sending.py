"""Messages that come together: one `send_batch`, whose parts go into the outboxes a few at a time
and come back as one result; one `send_many`, whose messages are appended together, or not at
all."""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from ...protocol.records.layout import NO_TIMESTAMP, Codec
from ...protocol.records.messages.sets import NewRecord
from ..arguments import epoch_ms
from ..errors import PartlySent
from ..results import SentBatch, SentRange, SentRecord
from .batching import MessageColumns, pieces
from .delivery import AppendedSet
from .encoding import checked_headers, encode, wrong_type
from .outbox import Batch, BatchGroup, ByteBudget, Outbox

T = TypeVar("T")

_AHEAD: Final = 3
"""Batches of one partition that are encoded and not answered yet: enough for the next one to be
ready when an answer arrives."""


async def send_parts(
    topic: str,
    parts: Sequence[tuple[Outbox, MessageColumns]],
    *,
    budget: ByteBudget,
    batch_bytes: int,
    codec: Codec,
    batches: bool = False,
) -> SentBatch:
    """Send each outbox its rows, with `batches` as record batches. Raises the errors of
    `Producer.send_batch`."""
    groups = [BatchGroup() for _ in parts]
    feeding = [
        _feed(
            outbox,
            columns,
            group,
            budget=budget,
            batch_bytes=batch_bytes,
            codec=codec,
            batches=batches,
        )
        for group, (outbox, columns) in zip(groups, parts, strict=True)
    ]
    if len(feeding) == 1:
        await feeding[0]
    else:
        await asyncio.gather(*feeding)  # each raises only if the call is cancelled
    return _result(topic, groups)


async def _feed(
    outbox: Outbox,
    columns: MessageColumns,
    group: BatchGroup,
    *,
    budget: ByteBudget,
    batch_bytes: int,
    codec: Codec,
    batches: bool,
) -> None:
    """Send an outbox its rows, and wait until all its sets are answered. The group gets the
    error."""
    try:
        try:
            for piece, size_bytes in pieces(columns, batch_bytes):
                if not await _has_room(group, budget, size_bytes):
                    break
                try:
                    batch = _encoded(piece, size_bytes, group, codec, batches=batches)
                except BaseException:
                    budget.give(size_bytes)
                    raise
                group.left += 1
                outbox.add_batch(batch)
                await asyncio.sleep(0)  # lets this set be sent while the next one is encoded
        except Exception as error:
            group.stop(error)  # a set that is on its way may still be appended
        while group.left:
            await group.next_answer()
    except BaseException as error:
        # Remaining batches must not be sent: no caller waits for them any more.
        group.stop(error)
        raise


async def _has_room(group: BatchGroup, budget: ByteBudget, size_bytes: int) -> bool:
    """Wait until the group's next set may be encoded, and acquire its bytes; False if the group
    has failed."""
    while group.left >= _AHEAD and group.error is None:
        await group.next_answer()
    if not budget.take(size_bytes):
        await budget.wait(size_bytes)
    if group.error is not None:
        budget.give(size_bytes)
        return False
    return True


def _encoded(
    piece: MessageColumns, size_bytes: int, group: BatchGroup, codec: Codec, *, batches: bool
) -> Batch:
    batch = Batch(asyncio.get_running_loop().time(), group)
    batch.keys = _listed(piece.keys) if piece.keys is not None else [None] * len(piece)
    batch.values = _listed(piece.values)
    batch.times_ms = _listed(piece.times_ms)
    batch.size_bytes = size_bytes
    batch.headers = piece.headers_by_row()
    batch.encoded = encode(
        piece.keys, piece.values, piece.times_ms, codec, headers=batch.headers, batches=batches
    )
    return batch


def _listed(column: Sequence[T]) -> list[T]:
    return column if isinstance(column, list) else list(column)


def _result(topic: str, groups: Sequence[BatchGroup]) -> SentBatch:
    ranges: list[SentRange] = []
    for group in groups:
        for partition, count, appended, expired in group.parts:
            last = ranges[-1] if ranges else None
            if (
                last is not None
                and last.partition == partition
                and last.append_time_ms == appended.append_time_ms
                and (
                    last.base_offset + last.count == appended.base_offset
                    or last.base_offset == appended.base_offset == -1
                )
            ):
                ranges[-1] = SentRange(
                    partition,
                    last.base_offset,
                    last.count + count,
                    last.append_time_ms,
                    last.past_retention + expired,
                )
            else:
                base_offset, append_ms = appended.base_offset, appended.append_time_ms
                ranges.append(SentRange(partition, base_offset, count, append_ms, expired))
    sent = SentBatch(topic, tuple(ranges))
    error = next((group.error for group in groups if group.error is not None), None)
    if error is None:
        return sent
    if not ranges:
        raise error
    raise PartlySent(f"{sent.count} messages of the batch were appended: {error}", sent) from error


def set_of(records: Sequence[NewRecord], *, missing_ms: int, check_units: bool) -> Batch:
    """Return the records as a batch, with `missing_ms` where a record has no time. Raises TypeError
    for fields of a wrong type, and `TimeError`."""
    batch = Batch(0)
    for row, record in enumerate(records):
        for name, content in (("value", record.value), ("key", record.key)):
            if content is not None and not isinstance(content, bytes):
                raise wrong_type(name, content)
        time_ms = record.timestamp_ms
        if time_ms == NO_TIMESTAMP:
            time_ms = missing_ms
        else:
            epoch_ms(None, time_ms, check_units=check_units)
        batch.keys.append(record.key)
        batch.values.append(record.value)
        batch.times_ms.append(time_ms)
        if record.headers:
            batch.headers = batch.headers or {}
            batch.headers[row] = checked_headers(record.headers)
    return batch


async def send_in_turn(outbox: Outbox, batch: Batch, born: float) -> AppendedSet:
    """Send an encoded set after all earlier sets of its partition have been answered.

    Raises the error of the set. If the wait is cancelled before the set was sent, the set is not
    sent.
    """
    group = batch.group = BatchGroup(whole=True)
    group.left = 1
    batch.born = born
    outbox.add_batch(batch)
    try:
        while group.left:
            await group.next_answer()
    except BaseException as error:
        group.stop(error)
        raise
    if group.error is not None:
        raise group.error
    ((_, _, appended, _),) = group.parts
    return appended


def sent_records(
    topic: str, partition: int, times_ms: Sequence[int], appended: AppendedSet
) -> list[SentRecord]:
    """Return the position of each message of a set, with its timestamp as stored."""
    base, step = appended.base_offset, 0 if appended.base_offset < 0 else 1
    append_ms = appended.append_time_ms
    return [
        SentRecord(
            topic,
            partition,
            base + step * row,
            append_ms if append_ms is not None else None if own_ms == NO_TIMESTAMP else own_ms,
            NO_TIMESTAMP < own_ms < appended.expired_before_ms,
        )
        for row, own_ms in enumerate(times_ms)
    ]
