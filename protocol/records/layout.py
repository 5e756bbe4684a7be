"""Byte layout of messages v0 and v1, of the entries that hold them, and of record batches (v2).

All integers are big-endian and signed unless noted. A message set is a run of entries, with no
count and no header of its own; in v2 an entry is a batch of records:

    entry:       offset int64, size int32, message or batch (`size` bytes)
    message v0:  crc uint32, magic int8 (0), attributes uint8, key, value
    message v1:  crc uint32, magic int8 (1), attributes uint8, timestamp int64 (ms), key, value
    key, value:  length int32, bytes
    batch v2:    leader epoch int32, magic int8 (2), crc uint32, attributes int16, last offset delta
                 int32, base timestamp int64, max timestamp int64, producer id int64, producer epoch
                 int16, base sequence int32, record count int32, records
    record:      length varint, attributes int8, timestamp delta varlong, offset delta varint, key
                 length varint, key, value length varint, value, header count varint, headers
    header:      key length varint, key, value length varint, value

The CRC-32 (zlib's polynomial) covers a message from its magic byte to its end: not the CRC itself,
and not the entry's offset and size. That of a batch is CRC-32C and covers it from its attributes
to its end. A negative length means null and has no bytes. A varint has seven bits a byte, the
lowest first, and all but its last byte have the high bit; it is folded, so that 0, -1, 1, -2 are
written as 0, 1, 2, 3.

The offset of an entry is that of its message, of the last message in a wrapper, and of the first
record of a batch. Records have offsets and times relative to their batch.

Attributes: bits 0-2 the codec, bit 3 (v1, v2) the timestamp type, bits 4-7 reserved, kept as sent.
In a batch the codec is that of all records together, bit 4 says that it belongs to a transaction,
and bit 5 that it is the broker's own mark at a transaction's end (a control batch).
"""

from enum import IntEnum, StrEnum
from typing import Final, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes in any of Python's holders; a memoryview must be flat, of single bytes."""

Slab = TypeVar("Slab", bytearray, memoryview)
"""What frames are parts of: copies of a bytearray, or views."""

NO_TIMESTAMP: Final = -1

ENTRY_OVERHEAD: Final = 12
"""Bytes of an entry in front of its message."""

MESSAGE_OVERHEAD: Final = {0: 14, 1: 22}
"""Bytes of a message with null key and null value, which is the smallest one, by magic."""

BATCH_OVERHEAD: Final = 61
"""Bytes of a batch in front of its records, those of the entry included."""

BATCH_MAGIC: Final = 2
"""The magic of a batch; messages have 0 and 1."""

SIZE_AT: Final = 8
CRC_AT: Final = 12
MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = 17
TIMESTAMP_AT: Final = 18
"""Places within an entry. All formats have their magic at 16; the rest is that of messages."""

LEADER_EPOCH_AT: Final = 12
BATCH_CRC_AT: Final = 17
BATCH_ATTRIBUTES_AT: Final = 21
LAST_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
RECORD_COUNT_AT: Final = 57
"""Places within a batch."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
RESERVED_MASK: Final = 0xF0
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
"""The last two in batches only."""

NO_PRODUCER_ID: Final = -1
SELF_CHOSEN: Final = 1 << 62
"""The bit of the producer ids that writers choose themselves. Brokers hand out none with it."""
NO_LEADER_EPOCH: Final = -1


class Codec(IntEnum):
    """How the value of a wrapper, or the records of a batch, are compressed."""

    NONE = 0
    """A plain message, or a batch that is not compressed."""
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
    """In batches only."""

    @property
    def label(self) -> str:
        """The name that settings and the command line use: `gzip`, `lz4`, ..."""
        return self.name.lower()


MESSAGE_CODECS: Final = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
"""Those that messages v0 and v1 can have."""


class TimestampType(StrEnum):
    """Who gave a message its time: the producer, or the broker that appended it."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"
