"""Learning producer states from stored batches: only their heads are read."""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

from ...protocol.errors import HorologError
from ...protocol.records.batches.batch import BatchHeader, read_header
from ...protocol.records.kernel import RecordCursor
from ...protocol.records.kernel.terms import RECORD
from ...protocol.records.layout import (
    BATCH_MAGIC,
    BATCH_OVERHEAD,
    ENTRY_OVERHEAD,
    MESSAGE_OVERHEAD,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    SIZE_AT,
)
from ..files import Buffer
from .producer_states import ProducerBatch, ProducerStates

_READ_BYTES: Final = 256 << 10
_HEAD: Final = Struct(">i4xB26xq")
"""Size, magic and producer id of a batch, from `SIZE_AT` on."""
_MARK: Final = Struct(">hh")
ABORT: Final = 0
COMMIT: Final = 1
"""What control batches say."""


Read = Callable[[int, int], Buffer]
"""Gives so many bytes from a position on, as `File.pread`."""


def numbered_batches(read: Read, start: int, end: int) -> Iterator[tuple[BatchHeader, int] | None]:
    """The headers of the batches with a producer id from `start` to `end` of a log file, and where
    they begin; `None` first of all, when there is any batch.

    `start` is where an entry begins. All else is passed over. Ends at bytes that are no entry: what
    they are is for others to judge. Raises `OSError`.
    """
    met = False
    position = start
    base = start
    data: Buffer = b""
    while position + BATCH_OVERHEAD <= end:
        at = position - base
        if at + BATCH_OVERHEAD > len(data):
            base, data = position, read(min(_READ_BYTES, end - position), position)
            if len(data) < BATCH_OVERHEAD:
                return
            at = 0
        size, magic, producer_id = _HEAD.unpack_from(data, at + SIZE_AT)
        if size < MESSAGE_OVERHEAD[0] or magic > BATCH_MAGIC:
            return
        if magic == BATCH_MAGIC:
            if not met:
                met = True
                yield None
            if producer_id != NO_PRODUCER_ID:
                try:
                    yield read_header(data, at), position
                except HorologError:
                    return
        position += ENTRY_OVERHEAD + size


def take_batch(
    states: ProducerStates, header: BatchHeader, read: Read, position: int, seen_ms: int
) -> None:
    """Take a batch that is stored at `position` into `states`. Raises `OSError`."""
    if header.is_control:
        mark = control_mark(read(header.size_bytes, position), header)
        if mark in (ABORT, COMMIT):
            states.end_transaction(
                header.producer_id,
                header.producer_epoch,
                header.base_offset,
                seen_ms,
                aborted=mark == ABORT,
            )
        return
    states.add(
        header.producer_id,
        header.producer_epoch,
        sent_batch(header),
        seen_ms,
        opens=header.is_transactional,
    )


def sent_batch(header: BatchHeader) -> ProducerBatch:
    """What is remembered of a batch that is stored."""
    return ProducerBatch(
        header.base_sequence,
        header.last_offset_delta + 1,
        header.base_offset,
        header.max_timestamp_ms if header.is_append_time else NO_TIMESTAMP,
    )


def control_mark(batch: Buffer, header: BatchHeader) -> int | None:
    """What a control batch says: 0 a transaction was aborted, 1 it was committed; `None` when it
    does not make sense."""
    if len(batch) < header.size_bytes:
        return None
    cursor = RecordCursor(memoryview(batch), BATCH_OVERHEAD, header.size_bytes)
    if cursor.step() != RECORD:
        return None
    key = cursor.key()
    if key is None or len(key) < _MARK.size:
        return None
    mark: int = _MARK.unpack_from(key)[1]
    return mark
