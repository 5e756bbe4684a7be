"""Which sets are admitted in passing, and which take so long that others would wait for it."""

from typing import Final

from ...config.topic import TopicSettings
from ...protocol.records.kernel import walk
from ...protocol.records.layout import BATCH_MAGIC, MAGIC_AT, Codec
from ..files import Buffer

OPENED_BYTES: Final = 256 * 1024
"""What is compressed in a light set decompresses to no more: a quarter of a millisecond's work."""

LARGE_SET_BYTES: Final = 8 * 1024 * 1024
"""To look at all of a larger set takes milliseconds, whatever is in it."""

_SMALL_BYTES: Final = 8 * 1024
_PLAIN_BYTES: Final = 256 * 1024
_COMPRESSED_BYTES: Final = 128 * 1024
_BATCHES_MAX: Final = 128
"""Each takes some microseconds where it is not one of the usual."""

_PLAIN: Final = 1 << Codec.NONE
_KEPT: Final = ("producer", "uncompressed")


def is_light(record_set: Buffer, settings: TopicSettings) -> bool:
    """Whether a set is light, should it hold no more than `OPENED_BYTES` when it is opened."""
    size = len(record_set)
    if size <= _SMALL_BYTES:
        return True
    if size > _PLAIN_BYTES:
        return False
    if size <= _COMPRESSED_BYTES and record_set[MAGIC_AT] != BATCH_MAGIC:
        return True  # Batches behind a message are refused, not opened.
    found = walk(record_set, 0, size, check_crc=False)
    is_plain = not found.codecs & ~_PLAIN and settings.compression_type in _KEPT
    return found.batches <= _BATCHES_MAX and (is_plain or size <= _COMPRESSED_BYTES)
