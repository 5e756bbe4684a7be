"""What an append answers."""

from collections.abc import Sequence
from typing import Final

import msgspec

from ...protocol.records.latency import LatencyCounts
from ...protocol.records.layout import NO_TIMESTAMP
from ...values import value_class


@value_class
class Conversion:
    """What it took to store a set in another format than it was sent in."""

    magic: int
    """The format that was stored."""
    up: bool
    """Whether it is a later one than that of any message that was sent."""
    messages: int
    """Messages that changed their format."""
    size_bytes: int
    """Of the whole set, as sent."""
    seconds: float
    headers: int = 0
    """Headers that had no place in the older format."""


class Appended(msgspec.Struct):
    """What became of an appended set, or of several that were stored as they came."""

    first_offsets: Sequence[int]
    """Of each of the sets; -1 for one that held no complete message."""
    last_offset: int
    append_time_ms: int
    """-1 unless the broker stamped the messages."""
    count: int
    """Messages, those inside of wrappers counted one by one."""
    size_bytes: int
    """As stored."""
    latency: LatencyCounts | None
    rolled: str | None
    """Why a new segment was begun for it, if one was."""
    conversion: Conversion | None = None
    """Given when messages had to change their format."""
    repeated: bool = False
    """Whether it is a producer's retry of a set that was stored before: nothing was appended now,
    and offsets and append time are those of that one."""

    @property
    def first_offset(self) -> int:
        """Of the first set."""
        return self.first_offsets[0]


NOTHING_APPENDED: Final = Appended((-1,), -1, NO_TIMESTAMP, 0, 0, None, None)
"""The answer to a set without a complete message."""
