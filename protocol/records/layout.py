"""Byte layout of messages v0 and v1 and of the entries that hold them.

All integers are big-endian and signed unless noted. A message set is a run of entries, with no
count and no header of its own:

    entry:       offset int64, size int32, message (`size` bytes)
    message v0:  crc uint32, magic int8 (0), attributes uint8, key, value
    message v1:  crc uint32, magic int8 (1), attributes uint8, timestamp int64 (ms), key, value
    key, value:  length int32, bytes

The CRC-32 (zlib's polynomial) covers the message from its magic byte to its end: not the CRC
itself, and not the entry's offset and size. A negative length means null and has no bytes.

Attributes: bits 0-2 the codec, bit 3 (v1 only) the timestamp type, bits 4-7 reserved, kept as sent.
"""

from enum import IntEnum, StrEnum
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes in any of Python's holders; a memoryview must be flat, of single bytes."""

NO_TIMESTAMP: Final = -1

ENTRY_OVERHEAD: Final = 12
"""Bytes of an entry in front of its message."""

MESSAGE_OVERHEAD: Final = {0: 14, 1: 22}
"""Bytes of a message with null key and null value, which is the smallest one, by magic."""

SIZE_AT: Final = 8
CRC_AT: Final = 12
MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = 17
TIMESTAMP_AT: Final = 18
"""Places within an entry. Every format, record batches (magic 2) too, has its magic at 16."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
RESERVED_MASK: Final = 0xF0


class Codec(IntEnum):
    """How the value of a wrapper is compressed; `NONE` marks a plain message."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3

    @property
    def label(self) -> str:
        """The name that settings and the command line use: `gzip`, `lz4`, ..."""
        return self.name.lower()


class TimestampType(StrEnum):
    """Who gave a message its time: the producer, or the broker that appended it."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"
