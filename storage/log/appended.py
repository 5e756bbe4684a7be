"""What an append answers."""

from dataclasses import dataclass

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


@dataclass(slots=True)
class Appended:
    """What became of an appended set."""

    first_offset: int
    """-1 when the set held no complete message."""
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


NOTHING_APPENDED = Appended(-1, -1, NO_TIMESTAMP, 0, 0, None, None)
"""The answer to a set without a complete message."""


@dataclass(slots=True)
class AppendedTogether:
    """What became of sets of plain messages or batches that were appended as if they were one."""

    first_offsets: list[int]
    """Of each set."""
    end_offset: int
    """Behind the last message of the last set."""
    log_start_offset: int
    """Of the log."""
    append_time_ms: int
    """-1 unless the broker stamped the messages."""
    size_bytes: int
    latency: LatencyCounts
    """Of all of them."""

    @property
    def count(self) -> int:
        """Messages."""
        return self.end_offset - self.first_offsets[0]
