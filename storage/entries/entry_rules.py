"""Descriptions of what is wrong with stored entries, and rules that a walk alone cannot check."""

from itertools import pairwise
from typing import Final

from ...protocol.records.batch import BatchHeader, batch_content
from ...protocol.records.kernel import RecordCursor, Walk, walk
from ...protocol.records.kernel.terms import NO_MORE, RECORD, Offsets, Problem
from ...protocol.records.layout import BATCH_MAGIC, MAGIC_AT, NO_TIMESTAMP, SIZE_AT, Buffer
from ...protocol.records.messages.sets import Entry
from ...values import value_class
from ..names import MAX_OFFSET, RELATIVE_OFFSET_MAX

RULES: Final = {
    Problem.PARTIAL: "an entry goes on past the end of the file",
    Problem.SIZE: "an entry says that it is smaller than any message",
    Problem.CRC: "a message's CRC does not fit its content",
    Problem.LENGTHS: "a message's key and value do not add up to its size",
    Problem.MAGIC: "a message has a format (magic byte) that this version cannot read",
    Problem.CODEC: "a message is compressed in a way (codec) that this version does not know",
    Problem.OFFSET: "an entry's offset does not go on from the one before it",
    Problem.COUNT: "a batch says that it has more records than offsets, or fewer than none",
}
HOLES_RULE: Final = "offsets are missing inside a batch"
ZEROS_RULE: Final = "the rest of the file is zeros"

MAX_DECOMPRESSED_BYTES: Final = 256 << 20
"""Limit for decompression, so that a damaged or hostile file does not use all memory. Stored data
already passed a broker's own limit. Larger content is accepted without being opened."""

_BATCHES = 1 << BATCH_MAGIC


def walk_row(data: bytes, start: int, end: int, offset: int) -> Walk | None:
    """Walk over these entries, if they are valid and their offsets are contiguous, beginning with
    the entry that contains `offset`. Works for plain messages or batches, which nearly all entries
    are; else `None`."""
    if len(data) < end:
        return None
    first = offset
    if data[start + MAGIC_AT] == BATCH_MAGIC:
        # An index has the last offset of a batch.
        first = int.from_bytes(data[start : start + SIZE_AT], "big", signed=True)
    found = walk(data, start, end, offsets=Offsets.CONTIGUOUS, base_offset=first)
    if found.problem is not Problem.NONE or found.last_offset - first + 1 != found.count:
        return None
    if found.magics & ~_BATCHES:
        good = first == offset and not found.last_codec
    else:
        good = first <= offset <= found.last_offset
    return found if good else None


def falls_rule(offset: int, expected: int) -> str:
    """Return the description of an entry below the expected offset."""
    return f"offset {offset} comes where {expected} is due: offsets must rise"


def jumps_rule(offset: int, expected: int) -> str:
    """Return the description of an entry above the expected offset in a log without gaps."""
    return f"offset {offset} comes where {expected} is due, and this log has no gaps"


def wrong_jump_rule(offset: int, expected: int) -> str:
    """Return the description of an entry whose offset jumps beyond that of the next entry."""
    return f"offset {offset} comes where {expected} is due, and the next entry is below it"


def beyond_rule(offset: int, limit_offset: int) -> str:
    """Return the description of an entry whose offset is outside its segment, or too
    large for any."""
    if limit_offset == MAX_OFFSET:
        return f"offset {offset} comes here, but offsets end at {MAX_OFFSET - 1}"
    return f"offset {offset} comes here, but this segment ends before {limit_offset}"


@value_class
class OffsetLimit:
    """Range of the offsets in the last segment of a log."""

    limit_offset: int
    """Upper limit: the offsets of the segment are below it."""
    exact: bool
    """Whether the limit is strict. If not, offsets of a log with gaps may be at or above it, as
    long as no valid entry below it follows."""


ANY_REACH: Final = OffsetLimit(MAX_OFFSET, True)


def last_reach(base_offset: int, end_offset: int | None) -> OffsetLimit:
    """Return the range of offsets in the last segment of a log. `end_offset` is the log end, if
    known.

    No CRC covers an offset. An offset that is too far for an index entry, and not below the log
    end, is damaged. If the log end is not known, as after a kill, Kafka's cleaner may have left a
    message there.
    """
    near_offset = base_offset + RELATIVE_OFFSET_MAX
    if end_offset is None:
        return OffsetLimit(near_offset, False)
    return OffsetLimit(max(near_offset, end_offset), True)


def inner_offsets_rule(entry: Entry, inner: list[Entry], *, gaps: bool) -> str | None:
    """Return what is wrong with the offsets in a wrapper message; `None` if nothing is."""
    offsets = [message.offset for message in inner]
    if any(after <= before for before, after in pairwise(offsets)):
        return "the offsets inside a compressed message do not rise"
    if not gaps and offsets[-1] - offsets[0] != len(offsets) - 1:
        return "offsets are missing inside a compressed message"
    if not entry.magic and offsets[-1] != entry.offset:
        return "a compressed message does not have the offset of its last message"
    return None


def first_offset_inside(entry: Entry, inner: list[Entry]) -> int:
    """Return the offset of the first message in a wrapper message."""
    base_offset = entry.offset - inner[-1].offset if entry.magic else 0
    return base_offset + inner[0].offset


def wrapper_times_rule(entry: Entry, largest_ms: int) -> str | None:
    """Return what is wrong with the timestamp of a wrapper message whose messages have timestamps
    up to `largest_ms`; `None` if nothing is."""
    if not entry.magic or entry.is_append_time or entry.timestamp_ms == largest_ms:
        return None
    return (
        f"a compressed message has the timestamp {entry.timestamp_ms}, its messages have "
        f"up to {largest_ms}"
    )


def batch_rule(
    data: Buffer, position: int, header: BatchHeader, *, max_decompressed_bytes: int
) -> str | None:
    """Return what is wrong with the records of the batch at `position`; `None` if nothing is.

    Raises what `batch_content` raises.
    """
    content = batch_content(data, position, header, max_decompressed_bytes=max_decompressed_bytes)
    cursor = RecordCursor(content, 0, len(content))
    count, last_delta, largest_ms = 0, -1, NO_TIMESTAMP
    while (step := cursor.step()) == RECORD:
        if cursor.offset_delta <= last_delta:
            return "the offsets inside a batch do not rise"
        count, last_delta = count + 1, cursor.offset_delta
        largest_ms = max(largest_ms, header.base_timestamp_ms + cursor.timestamp_delta_ms)
    if step != NO_MORE:
        return f"record {count} of a batch is not good"
    if count != header.record_count:
        return f"a batch says that it holds {header.record_count} records, and holds {count}"
    if last_delta > header.last_offset_delta:
        return "a batch holds a record behind its last offset"
    if not header.is_append_time and largest_ms > header.max_timestamp_ms:
        return (
            f"a batch has the timestamp {header.max_timestamp_ms}, its records have up to "
            f"{largest_ms}"
        )
    return None
