"""One `send_batch`: its parts go into the outboxes a few at a time, and come back as one result."""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from ...protocol.records.layout import Codec
from ..errors import PartlySent
from ..results import SentBatch, SentRange
from .batching import MessageColumns, pieces
from .byte_budget import ByteBudget
from .encoding import encode
from .outbox import Outbox
from .outbox_batch import Batch, BatchGroup

T = TypeVar("T")

_AHEAD: Final = 3
"""Batches of one partition that are encoded and not answered yet: enough for the next one to be
ready when the answer comes."""


async def send_parts(
    topic: str,
    parts: Sequence[tuple[Outbox, MessageColumns]],
    *,
    budget: ByteBudget,
    batch_bytes: int,
    codec: Codec,
    batches: bool = False,
) -> SentBatch:
    """Send each outbox its rows, with `batches` as record batches. Raises as
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
        await asyncio.gather(*feeding)
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
    loop = asyncio.get_running_loop()
    try:
        for piece, size_bytes in pieces(columns, batch_bytes):
            while group.left >= _AHEAD and group.error is None:
                await group.next_answer()
            if not budget.take(size_bytes):
                await budget.wait(size_bytes)
            if group.error is not None:
                budget.give(size_bytes)
                break
            batch = Batch(loop.time(), group)
            batch.keys = _listed(piece.keys) if piece.keys is not None else [None] * len(piece)
            batch.values = _listed(piece.values)
            batch.times_ms = _listed(piece.times_ms)
            batch.size_bytes = size_bytes
            batch.headers = piece.headers_by_row()
            batch.encoded = encode(
                piece.keys,
                piece.values,
                piece.times_ms,
                codec,
                headers=batch.headers,
                batches=batches,
            )
            group.left += 1
            outbox.add_batch(batch)
            await asyncio.sleep(0)  # so that it goes while the next one is encoded
    except BaseException as error:
        # What is not sent yet shall not be sent: no caller waits for it any more.
        group.stop(error)
        raise
    while group.left:
        await group.next_answer()


def _listed(column: Sequence[T]) -> list[T]:
    return column if isinstance(column, list) else list(column)


def _result(topic: str, groups: Sequence[BatchGroup]) -> SentBatch:
    ranges: list[SentRange] = []
    for group in groups:
        for partition, count, appended in group.parts:
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
                    partition, last.base_offset, last.count + count, last.append_time_ms
                )
            else:
                ranges.append(
                    SentRange(partition, appended.base_offset, count, appended.append_time_ms)
                )
    sent = SentBatch(topic, tuple(ranges))
    error = next((group.error for group in groups if group.error is not None), None)
    if error is None:
        return sent
    if not ranges:
        raise error
    raise PartlySent(f"{sent.count} messages of the batch were appended: {error}", sent) from error
