"""A set as it will be stored, and what is known of the log's end that it goes to."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from ...config.topic import TopicSettings
from ...protocol.errors import MessageTooLarge
from ...protocol.records.kernel import Walk, walk
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.latency import LatencyCounts
from ...protocol.records.layout import NO_TIMESTAMP
from ..index.time_map import SetSpans, SetTimes
from ..names import MAX_OFFSET, RELATIVE_OFFSET_MAX
from ..producers.producer_runs import ProducerRun
from .appended import Conversion
from .rebuilding import Numbered

LAST_FIRST_OFFSET = MAX_OFFSET - RELATIVE_OFFSET_MAX
"""From here on a set could have more messages than there are offsets left."""


class LogEnd(NamedTuple):
    """What admission has to know of the log's end."""

    next_offset: int
    now_ms: int
    stamp_ms: int
    """The append time for LogAppendTime: the clock, or the last stamp if that is later."""
    stopwatch: Callable[[], float]
    """Seconds, to measure what conversion takes."""
    since_bytes: int = 0
    largest_ms: int = NO_TIMESTAMP
    magic: int = -1
    segment_offset: int = 0
    segment_position: int = 0
    """State of the active segment, for the places of index entries."""
    opened_max_bytes: int | None = None
    """More than so much is not opened, if that is less than `max.decompressed.bytes`."""

    def budget_bytes(self, settings: TopicSettings) -> int:
        """What all that is compressed in the set may decompress to."""
        limit = settings.max_decompressed_bytes
        return limit if self.opened_max_bytes is None else min(limit, self.opened_max_bytes)


class Admitted(msgspec.Struct):
    """A set as it will be stored, or several, one behind the other."""

    data: memoryview | bytearray
    walk: Walk
    """The walk over `data`, with index marks."""
    first_offsets: Sequence[int]
    """Of each set."""
    last_offset: int
    append_time_ms: int
    """-1 on CreateTime topics."""
    latency: LatencyCounts
    conversion: Conversion | None = None
    numbered: Numbered | None = None
    """By what a retry of it is recognised, where it is stored with that."""
    runs: Sequence[ProducerRun] = ()
    """What is known already to be no retry, by its producers."""
    fits: bool = False
    """Whether it is known that no new segment is due for it."""
    times: SetTimes | None = None
    """Those that its messages had when it was sent, as far as they are known."""
    spans: bytes | SetSpans = b""
    """The same as rows of a time map: of compressed sets whose times are not close together
    (`time_spans`), and of usual sets, whose times the walk noted (`take_usual`)."""

    @property
    def count(self) -> int:
        """Messages, those inside of wrappers counted one by one."""
        return self.last_offset - self.first_offsets[0] + 1


def check_entry_size(entry_bytes: int, settings: TopicSettings) -> None:
    """Raise `MessageTooLarge` for an entry (header included) above the topic's limit."""
    if entry_bytes > settings.max_message_bytes:
        raise MessageTooLarge(
            f"a message takes {entry_bytes} bytes with its 12-byte header; the limit is "
            f"{settings.max_message_bytes} (max.message.bytes)"
        )


def finished(
    stored: bytearray | memoryview,
    count: int,
    latency: LatencyCounts,
    settings: TopicSettings,
    target: LogEnd,
) -> Admitted:
    """Walk what will be stored, for its size limits and its index marks."""
    found = walk(
        stored,
        0,
        len(stored),
        check_crc=False,
        interval_bytes=settings.index_interval_bytes,
        since_bytes=target.since_bytes,
        largest_ms=target.largest_ms,
        magic=target.magic,
        segment_offset=target.segment_offset,
        segment_position=target.segment_position,
    )
    assert found.problem is Problem.NONE
    check_entry_size(found.largest_entry_bytes, settings)
    return Admitted(
        stored,
        found,
        (target.next_offset,),
        target.next_offset + count - 1,
        target.stamp_ms if settings.stamps_append_time else NO_TIMESTAMP,
        latency,
    )
