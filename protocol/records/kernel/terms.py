"""Numbers in the arguments and results of the kernel, the same in both forms."""

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple


class Problem(IntEnum):
    """Why a walk stopped before `end`."""

    NONE = 0
    PARTIAL = 1
    """The entry is longer than the rest of the buffer, or fewer than 12 bytes are left."""
    SIZE = 2
    """The size field is below that of the smallest message of its magic."""
    CRC = 3
    LENGTHS = 4
    """The lengths of key and value do not add up to the size of the message."""
    MAGIC = 5
    """The magic is neither 0, 1 nor 2."""
    CODEC = 6
    """Bits 0-2 of the attributes are not the number of a codec."""
    OFFSET = 7
    """The offset breaks the requested rule, or exceeds 63 bits."""
    COUNT = 8
    """A batch has fewer offsets than records, or a negative number of them."""
    KEY = 9
    """A message has no key, and the topic requires one."""


class Offsets(IntEnum):
    """How a walk treats the offsets of entries."""

    ANY = 0
    ASSIGN = 1
    """Write base offset, base offset + 1, ... into the entries; the buffer must be writable. A
    batch uses up as many as its header says, and its leader epoch becomes -1, for none."""
    CONTIGUOUS = 2
    """A plain message has exactly the next offset, a wrapper that one or a larger one, and the
    first record of a batch exactly the next one."""
    RISING = 3
    """Each offset is larger than the one before; the first is at least the base offset."""


NOT_FOUND: Final = -1
"""A scan reached the end without a match."""
BAD_SIZE: Final = -2
"""A scan stopped at a size field below that of the smallest message."""
BAD_OFFSET: Final = -3
"""A scan stopped at an offset that is not above the one before it."""

RECORD: Final = 1
"""`RecordCursor.step` reached a record."""
NO_MORE: Final = 0
"""`RecordCursor.step` reached the end."""
BAD_LENGTH: Final = -1
"""The length of the record is negative, or exceeds the rest of the buffer."""
BAD_FIELD: Final = -2
"""A key, value, header or number exceeds the rest of the record."""
BAD_END: Final = -3
"""Bytes are left in the record after its last header."""
BAD_RECORD_OFFSET: Final = -4
"""The record's offset is not one more than that of the record before it."""
BAD_TIME: Final = -5
"""The record's timestamp does not fit into 64 bits."""
NO_KEY: Final = -6
"""The record has no key, and the topic requires one."""

SMALLEST_RECORD: Final = 6
"""Bytes after the length field of a record with null key, null value and no headers."""
MOST_OVERHEAD: Final = 36
"""Bytes of a record without its key, value and headers, with varints of maximal length."""

OWN: Final = -1
"""In place of a magic, first offset, append time or timestamp type: each message or record keeps
its own."""


class Rewritten(NamedTuple):
    """Result of converting a run of records to messages."""

    messages: int
    headers: int
    """Headers that were left out, because the target format has none."""
    following: int
    """Position of the first record that was not converted, or the end."""
    last_offset: int
    """Offset of the last message, -1 without messages."""


class KeptRows(NamedTuple):
    """The rows that were kept of a run of messages or records."""

    messages: int
    last_offset: int
    """Of the last one, as it is written there: of a record its offset delta; -1 without any."""
    max_timestamp_ms: int
    """-1 without any."""


class FieldKind(StrEnum):
    """How a field of Kafka's protocol is read and written."""

    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    FLOAT64 = "d"
    BOOLEAN = "?"
    TEXT = "s"
    """UTF-8 text, after its length in 16 bits."""
    BYTES = "p"
    """Bytes, after their length in 32 bits; copied."""
    VIEW = "v"
    """As `BYTES`, but read as a view of the frame and written as a part of its own."""
    MESSAGE = "m"
    ARRAY = "a"
    """The items of an array, after their count in 32 bits."""


NULL_LENGTH: Final = -1
"""The length, or count of items, of a null value."""
MOST_FIELDS: Final = 32
"""Maximal number of fields of a message class."""


class Unreadable(Exception):
    """The bytes are not a message of the given class and version."""


Headers = Sequence[tuple[str, bytes | None]]
"""Names and values of the headers of a record, as an argument."""
RecordHeaders = tuple[tuple[str, bytes | None], ...]
"""Names and values of the headers of a record, as a result."""
