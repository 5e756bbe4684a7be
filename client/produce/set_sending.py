"""One `send_many`: messages that are appended to their partition together, or not at all."""

from collections.abc import Sequence

from ...protocol.records.layout import NO_TIMESTAMP
from ...protocol.records.messages.sets import NewRecord
from ..instants import epoch_ms
from ..results import SentRecord
from .delivery import AppendedSet
from .encoding import checked_headers, wrong_type
from .outbox import Outbox
from .outbox_batch import Batch, BatchGroup


def set_of(records: Sequence[NewRecord], *, missing_ms: int, check_units: bool) -> Batch:
    """The records, with `missing_ms` where they have no time. Raises TypeError for fields of a
    wrong type, and `TimeError`."""
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
    """Send an encoded set when everything before it in its partition has been answered.

    Raises the error of the set. When the wait is cancelled, it is not sent any more if it has not
    been sent yet.
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
    ((_, _, appended),) = group.parts
    return appended


def sent_records(
    topic: str, partition: int, times_ms: Sequence[int], appended: AppendedSet
) -> list[SentRecord]:
    """Where each message of a set is, and its time as stored."""
    base, step = appended.base_offset, 0 if appended.base_offset < 0 else 1
    append_ms = appended.append_time_ms
    return [
        SentRecord(
            topic,
            partition,
            base + step * row,
            append_ms if append_ms is not None else None if own_ms == NO_TIMESTAMP else own_ms,
        )
        for row, own_ms in enumerate(times_ms)
    ]
