"""Byte layout of messages v0 and v1, of the entries that hold them, and of record batches (v2).

All integers are big-endian and signed unless noted. A record set is a sequence of entries, without
a count or a header of its own; in v2 an entry is a batch of records:

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

The CRC of a message is CRC-32 (zlib's polynomial) and covers its bytes from the magic to the end:
not the CRC itself, and not the entry's offset and size. The CRC of a batch is CRC-32C and covers
its bytes from the attributes to the end. A negative length means null, and no bytes follow. A
varint has seven bits per byte, the lowest first, and all its bytes but the last have the high bit
set; it is zigzag-encoded, so that 0, -1, 1, -2 are written as 0, 1, 2, 3.

The offset of an entry is that of its message, of the last message in a wrapper, or of the first
record of a batch. Records have offsets and times relative to their batch.

Attributes: bits 0-2 the codec, bit 3 (v1, v2) the timestamp type, bits 4-7 reserved, kept as sent.
In a batch the codec applies to all records together, bit 4 says that the batch belongs to a
transaction, and bit 5 that it is a control batch, written by the broker at a transaction's end.
"""

from enum import IntEnum, StrEnum
from typing import Final, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes in any of Python's buffer types; a memoryview must be flat, of single bytes."""

Slab = TypeVar("Slab", bytearray, memoryview)
"""The slab that frames are cut from: a bytearray gives copies, a memoryview gives views."""

NO_TIMESTAMP: Final = -1

ENTRY_OVERHEAD: Final = 12
"""Bytes of an entry before its message."""

MESSAGE_OVERHEAD: Final = {0: 14, 1: 22}
"""By magic, the bytes of the smallest message, which has a null key and a null value."""

BATCH_OVERHEAD: Final = 61
"""Bytes of a batch before its records, including those of the entry."""

BATCH_MAGIC: Final = 2
"""The magic of a batch; messages have 0 and 1."""

SIZE_AT: Final = 8
CRC_AT: Final = 12
MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = 17
TIMESTAMP_AT: Final = 18
"""Positions within an entry. All formats have the magic at 16; the others are those of messages."""

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
"""Positions within a batch."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
RESERVED_MASK: Final = 0xF0
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
"""Bits of the attributes. The last two exist only in batches."""

NO_PRODUCER_ID: Final = -1
SELF_CHOSEN: Final = 1 << 62
"""Bit of the producer ids that writers choose themselves. Brokers assign no id with this bit."""
NO_LEADER_EPOCH: Final = -1


class Codec(IntEnum):
    """The compression of a wrapper's value or of a batch's records."""

    NONE = 0
    """A plain message, or an uncompressed batch."""
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
    """Used in batches only."""

    @property
    def label(self) -> str:
        """Name in settings and on the command line: `gzip`, `lz4`, ..."""
        return self.name.lower()


MESSAGE_CODECS: Final = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
"""The codecs of messages v0 and v1."""


class TimestampType(StrEnum):
    """Which side set a message's time: the producer, or the broker at append."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"
