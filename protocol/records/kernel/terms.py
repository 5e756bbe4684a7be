"""What the kernel is asked, and what it answers, in numbers; both of its forms have them alike."""

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple


class Problem(IntEnum):
    """Why a walk stopped before `end`."""

    NONE = 0
    PARTIAL = 1
    """Fewer bytes are left than the entry says it has, or fewer than 12."""
    SIZE = 2
    """The size field is below that of the smallest message of its magic."""
    CRC = 3
    LENGTHS = 4
    """Key and value of a message do not add up to the size."""
    MAGIC = 5
    """Neither 0, 1 nor 2."""
    CODEC = 6
    """Bits 0-2 of the attributes name no codec."""
    OFFSET = 7
    """The offset breaks the rule that was asked for, or goes beyond 63 bits."""
    COUNT = 8
    """A batch has fewer offsets than records, or a negative number of them."""
    KEY = 9
    """A message has no key where each one needs a key."""


class Offsets(IntEnum):
    """What a walk does about the entries' offsets."""

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
"""A scan went over all entries, and none is the one."""
BAD_SIZE: Final = -2
"""The size field at the position where a scan stopped is below any message's."""
BAD_OFFSET: Final = -3
"""The offset at the position where a scan stopped is not above the one before it."""

RECORD: Final = 1
"""`RecordCursor.step` came to a record."""
NO_MORE: Final = 0
"""It is at the end."""
BAD_LENGTH: Final = -1
"""The record's length is none, or goes behind the end."""
BAD_FIELD: Final = -2
"""A key, value, header or number in the record goes behind the record's end."""
BAD_END: Final = -3
"""The record is longer than what is in it."""
BAD_RECORD_OFFSET: Final = -4
"""The record's offset is not one more than that of the record before it."""
BAD_TIME: Final = -5
"""The record's timestamp does not fit into 64 bits."""
NO_KEY: Final = -6
"""The record has no key where each one needs a key."""

SMALLEST_RECORD: Final = 6
"""Bytes behind the length of a record with null key, null value and no headers."""
MOST_OVERHEAD: Final = 36
"""Bytes of a record without key, value and headers: the varints as long as can be."""

OWN: Final = -1
"""Instead of a magic, a first offset, a time to stamp or a timestamp type: each message, or record,
keeps its own."""


class Rewritten(NamedTuple):
    """Result of converting a run of records to messages."""

    messages: int
    headers: int
    """How many headers were left out."""
    following: int
    """Where the first record begins that was not taken; the end of all of them, if none is left."""
    last_offset: int
    """Of the last message, -1 without any."""


class FieldKind(StrEnum):
    """How a field of Kafka's protocol is read and written."""

    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    FLOAT64 = "d"
    BOOLEAN = "?"
    TEXT = "s"
    """Behind its length of 16 bits."""
    BYTES = "p"
    """Behind their length of 32 bits; copied."""
    VIEW = "v"
    """The same; read as a view of the frame, written as a part of its own."""
    MESSAGE = "m"
    ARRAY = "a"
    """Items behind their number of 32 bits."""


NULL_LENGTH: Final = -1
"""The length, or number of items, of what is null."""
MOST_FIELDS: Final = 32
"""Of a message."""


class Unreadable(Exception):
    """Bytes are no message of the class and version that they are read as."""


Headers = Sequence[tuple[str, bytes | None]]
"""Names and values of a record's headers, as they are given."""
RecordHeaders = tuple[tuple[str, bytes | None], ...]
"""The same, as they are read."""
