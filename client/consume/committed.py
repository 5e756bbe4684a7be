"""What a reader of committed messages gets out of what a broker gave it."""

from collections.abc import Sequence
from typing import Final

from ...protocol.api.log.fetch import AbortedTransaction
from ...protocol.records.batches.batch import read_header
from ...protocol.records.layout import BATCH_OVERHEAD, ENTRY_OVERHEAD, MAGIC_AT, SIZE_AT, Buffer

_BATCH_MAGIC: Final = 2
_SIZE_BYTES: Final = 4


def without_aborted(records: Buffer, aborted: Sequence[AbortedTransaction] | None) -> Buffer:
    """The set without the batches of these transactions. A part of an entry at its end is dropped.

    A transaction begins at its first offset, which may be before the set, and ends with the next
    mark of its producer.
    """
    if not aborted:
        return records
    waiting = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    producers: set[int] = set()
    kept = bytearray()
    view, position = memoryview(records), 0
    while len(view) - position >= ENTRY_OVERHEAD + MAGIC_AT:
        size_at = position + SIZE_AT
        size = int.from_bytes(view[size_at : size_at + _SIZE_BYTES], "big", signed=True)
        end = position + ENTRY_OVERHEAD + size
        if size < 0 or end > len(view):
            break
        wanted = True
        if view[position + MAGIC_AT] == _BATCH_MAGIC and end - position >= BATCH_OVERHEAD:
            header = read_header(view, position)
            while waiting and waiting[-1].first_offset <= header.last_offset:
                producers.add(waiting.pop().producer_id)
            if header.is_control:
                producers.discard(header.producer_id)
            elif header.is_transactional:
                wanted = header.producer_id not in producers
        if wanted:
            kept += view[position:end]
        position = end
    return kept
