"""What must be true of a segment's indexes, checked against the bytes of its log."""

from itertools import pairwise
from struct import iter_unpack

from horolog.protocol.records.messages.sets import entries, records
from horolog.storage.segment.segment import Segment

from .filling import MAX_DECOMPRESSED_BYTES


def offset_entries(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """`(offset, position)` of each entry of an offset index."""
    return [(base_offset + relative, position) for relative, position in iter_unpack(">ii", data)]


def time_entries(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """`(timestamp, offset)` of each entry of a time index."""
    return [(at_ms, base_offset + relative) for at_ms, relative in iter_unpack(">qi", data)]


def times_by_offset(log: bytes) -> dict[int, int]:
    """The effective timestamp of every message in a log file."""
    found = records(log, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
    return {record.offset: record.timestamp_ms for record in found}


def assert_rising(pairs: list[tuple[int, int]]) -> None:
    """Both numbers of each pair are above those of the pair before it."""
    assert all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(pairs)), pairs


def assert_offset_index_true(log: bytes, index: list[tuple[int, int]]) -> None:
    """V-4: entries rise, name entries of the log, and lead no lookup past its entry."""
    assert_rising(index)
    stored = {entry.position: entry.offset for entry in entries(log)}
    for offset, position in index:
        assert stored[position] == offset
    for position, offset in stored.items():
        floor = max((at for named, at in index if named <= offset), default=0)
        assert floor <= position


def assert_time_index_true(log: bytes, index: list[tuple[int, int]]) -> None:
    """V-3 and the meaning of an entry: its time is the largest of all messages below its offset."""
    assert_rising(index)
    times = times_by_offset(log)
    for timestamp_ms, next_offset in index:
        assert timestamp_ms == max(at for offset, at in times.items() if offset < next_offset)


def assert_closing_entry(log: bytes, index: list[tuple[int, int]], end_offset: int) -> None:
    """V-2: a closed time index ends with the largest timestamp and the segment's end."""
    largest_ms = max(times_by_offset(log).values(), default=-1)
    assert index[-1:] == ([(largest_ms, end_offset)] if largest_ms >= 0 else [])


def assert_known_of_log(segment: Segment, log: bytes) -> None:
    """What a segment keeps in memory beside its indexes fits the bytes of its log."""
    formats = [(entry.position, entry.magic) for entry in entries(log)]
    before = [-1, *(magic for _, magic in formats)]
    assert segment.magic_changes == [
        (position, magic)
        for (position, magic), previous in zip(formats, before, strict=False)
        if magic != previous
    ]
    if segment.index_room > 0:
        last = offset_entries(segment.offset_index.encoded(), 0)[-1:]
        assert segment.since_bytes == len(log) - (last[0][1] if last else 0)


def state_of(segment: Segment) -> dict[str, object]:
    """All that a segment knows of its log, as it is in memory."""
    state: dict[str, object] = {
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "size_bytes": segment.size_bytes,
        "largest": segment.largest,
        "first_timestamp_ms": segment.first_timestamp_ms,
        "magic_changes": segment.magic_changes,
        "offset_index": offset_entries(segment.offset_index.encoded(), segment.base_offset),
        "time_index": time_entries(segment.time_index.encoded(), segment.base_offset),
    }
    if segment.index_room > 0:
        state["since_bytes"] = segment.since_bytes
    if segment.first_timestamp_ms < 0:
        state["created_ms"] = segment.created_ms
    return state
