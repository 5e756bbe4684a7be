"""Writes the epoch of the leader that stores them into record batches."""

from struct import Struct
from typing import Final

from ...protocol.records.layout import (
    BATCH_MAGIC,
    ENTRY_OVERHEAD,
    LEADER_EPOCH_AT,
    MAGIC_AT,
    SIZE_AT,
)

_INT32: Final = Struct(">i")


def stamp_epoch(data: bytearray | memoryview, epoch: int) -> None:
    """Write `epoch` into the batches among whole entries, in place; no CRC covers it.

    Messages of older formats have no room for it.
    """
    position, end = 0, len(data)
    while position < end:
        if data[position + MAGIC_AT] == BATCH_MAGIC:
            _INT32.pack_into(data, position + LEADER_EPOCH_AT, epoch)
        position += ENTRY_OVERHEAD + _INT32.unpack_from(data, position + SIZE_AT)[0]
