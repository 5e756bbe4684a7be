"""What a walk can be asked about offsets, and what can stop it."""

from enum import IntEnum


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
