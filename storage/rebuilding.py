"""Build a message set anew, where the one that was sent cannot be stored as it is."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..protocol.records.conversion import convert_entries
from ..protocol.records.layout import NO_TIMESTAMP, Codec
from ..protocol.records.sets import build_wrapper
from .files import Buffer


@dataclass(frozen=True, slots=True)
class Part:
    """Checked plain entries of a sent set: a stretch of it, or what a wrapper in it held."""

    data: Buffer
    end: int
    """Where the entries end in `data`."""
    count: int
    largest_ms: int
    """-1 when no message has a time."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a set is to become."""

    magic: int | None
    """The format of all messages; `None`, only without a codec, leaves each its own."""
    codec: Codec
    next_offset: int
    stamp_ms: int | None
    """The append time that all get, only in v1; `None` leaves their own."""


def rebuild(parts: Sequence[Part], form: Form) -> tuple[bytearray, int]:
    """The set with offsets from `form.next_offset` on, and how many messages changed their format.

    With a codec it is one wrapper, and an append time is on the wrapper alone.
    """
    if form.codec is Codec.NONE:
        return _joined(parts, form.magic, form.next_offset, form.stamp_ms)
    first_offset = 0 if form.magic else form.next_offset
    inner, converted = _joined(parts, form.magic, first_offset, None)
    timestamp_ms = NO_TIMESTAMP
    if form.stamp_ms is not None:
        timestamp_ms = form.stamp_ms
    elif form.magic:
        timestamp_ms = max(part.largest_ms for part in parts)
    wrapper = build_wrapper(
        inner,
        offset=form.next_offset + sum(part.count for part in parts) - 1,
        timestamp_ms=timestamp_ms,
        magic=form.magic or 0,
        codec=form.codec,
        append_time=form.stamp_ms is not None,
    )
    return wrapper, converted


def _joined(
    parts: Sequence[Part], magic: int | None, offset: int, stamp_ms: int | None
) -> tuple[bytearray, int]:
    """All entries in a row."""
    joined = bytearray()
    converted = 0
    for part in parts:
        converted += convert_entries(
            joined, part.data, 0, part.end, magic=magic, first_offset=offset, stamp_ms=stamp_ms
        )
        offset += part.count
    return joined, converted
