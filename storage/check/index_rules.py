"""What is wrong with the entries of an index by themselves, in words, whatever their log has."""

from collections.abc import Sequence
from typing import Final

from ...protocol.records.kernel.reference.spans import TimeSpan
from ...protocol.records.kernel.reference.times import MapBlock
from ...protocol.records.layout import NO_TIMESTAMP

NAMES_OF_OFFSETS: Final = ("offsets", "positions")
"""The numbers of an entry of an offset index."""

NAMES_OF_TIMES: Final = ("timestamps", "offsets")
"""The numbers of an entry of a time index."""

NO_BYTES: Final = "it says of a block that it has no bytes"


def rise_rule(
    names: tuple[str, str], before: tuple[int, int], entry: tuple[int, int]
) -> str | None:
    """The rule that an entry breaks behind the one before it; `None` when both numbers rise."""
    if entry[0] > before[0] and entry[1] > before[1]:
        return None
    return (
        f"{' and '.join(names)} must rise from 0 on: {entry[0]} and {entry[1]} come after "
        f"{before[0]} and {before[1]}"
    )


def append_time_rule(
    relative: int, append_time_ms: int, last_relative: int, base_offset: int
) -> str | None:
    """The rule that an entry of append times breaks behind the one before it."""
    if relative <= last_relative:
        return (
            f"offsets must rise: {base_offset + relative} comes after {base_offset + last_relative}"
        )
    if append_time_ms < NO_TIMESTAMP:
        return f"{append_time_ms} is no time"
    return None


def block_rule(block: MapBlock) -> str | None:
    """The rule that a block of a time map breaks; `None` when it keeps all."""
    return NO_BYTES if block.end == block.position else spans_rule(block.spans)


def spans_rule(spans: Sequence[TimeSpan]) -> str | None:
    """The rule that the spans of a block break; `None` when they are apart."""
    before_ms = NO_TIMESTAMP
    for span in spans:
        if span.low <= before_ms:
            return f"spans must be apart: one from {span.low} on comes after {before_ms}"
        before_ms = span.high
    return None
