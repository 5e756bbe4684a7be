"""One look for a time in one segment: what nearly every search by time comes down to.

It reads once from the last index entry on that is in front of what is searched. Whatever is not as
usual there (bytes that are not good, compressed messages, an entry that is larger than the read) is
left to `search`, which takes more than one step and finds out what is wrong.
"""

from typing import Final, NamedTuple

from ...protocol.errors import HorologError
from ...protocol.records.batches.batch import find_in_batch
from ...protocol.records.kernel import find_first_time
from ...protocol.records.layout import ENTRY_OVERHEAD
from ..log.admission import OPENED_BYTES
from ..segment.segment import Segment

_READ_BYTES: Final = 8 << 10
_READ_BYTES_MAX: Final = 64 << 10
FAR_BYTES: Final = 256 << 10
"""Index entries that are further apart than this do not bring one near to anything."""


class FoundMessage(NamedTuple):
    """A message that a search by time found."""

    offset: int
    timestamp_ms: int


def find_time_at_once(
    segment: Segment, target_ms: int, log_start_offset: int, max_decompressed_bytes: int
) -> FoundMessage | None:
    """The first message at or behind the log start with a timestamp >= `target_ms`, if all from
    the index entry in front of it on are good, as they nearly always are; `None` tells nothing.

    Batches that open to more than `max_decompressed_bytes`, or that are not light, are not opened.
    Raises `OSError`.
    """
    # Nothing below `start` is as late.
    start = max(segment.time_index.start_for(target_ms), log_start_offset)
    offset, position, after = segment.offset_index.around(start)
    stop = segment.readable_bytes
    if segment.gaps or position >= stop or min(after, stop) - position > FAR_BYTES:
        return None
    # What an index entry tells of is in front of the next one, or right behind it.
    wanted = min(max(2 * (after - position), _READ_BYTES), _READ_BYTES_MAX, stop - position)
    data = segment.file.pread(wanted, position)
    looked = find_first_time(data, offset, position > 0, target_ms)
    if looked is None:
        return None
    at, found_offset, timestamp = looked
    if found_offset < 0:
        limit_bytes = min(max_decompressed_bytes, OPENED_BYTES)
        try:
            opened = find_in_batch(data, at, target_ms, max_decompressed_bytes=limit_bytes)
        except HorologError:
            return None
        if opened is None:
            return None
        found_offset, timestamp = opened
    if not start <= found_offset < segment.next_offset:
        return None
    return FoundMessage(found_offset, timestamp)


def entry_bytes(data: bytes, position: int) -> int:
    """The size that the entry at `position` says it has, with the 12 bytes in front of it."""
    return ENTRY_OVERHEAD + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
