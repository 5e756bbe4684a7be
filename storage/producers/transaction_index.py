"""Kafka's index of aborted transactions, `<base offset>.txnindex`: read in folders it wrote.

One entry of 34 bytes for each transaction whose end is in the segment, all integers big-endian:
version int16 (0), producer id, first offset, last offset, last stable offset, all int64. We write
none: what is aborted is in our own snapshots.
"""

from pathlib import Path
from struct import Struct
from typing import Final

from ..files import Files
from ..names import TRANSACTION_INDEX, parse_segment_file
from .producer_states import AbortedTransaction

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


def aborted_below(files: Files, folder: Path, offset: int) -> list[AbortedTransaction]:
    """The transactions that were aborted below `offset`, in the order in which they ended.

    Entries that make no sense are left out. Raises `OSError`.
    """
    found: list[AbortedTransaction] = []
    for name in files.names(folder):
        parsed = parse_segment_file(name)
        if parsed is not None and parsed.kind == TRANSACTION_INDEX and not parsed.suffix:
            data = files.read_bytes(folder / name)
            whole = len(data) - len(data) % _ENTRY.size
            for version, producer_id, first, last, _ in _ENTRY.iter_unpack(data[:whole]):
                if version == _VERSION and 0 <= first <= last < offset:
                    found.append(AbortedTransaction(producer_id, first, last))
    return sorted(found, key=lambda transaction: transaction.last_offset)
