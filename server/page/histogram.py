"""Number of messages of a topic in each bar of a time range, over all partitions."""

from operator import add
from typing import Final

from ...protocol.api.log.count_by_time import CountByTimeRequest, CountByTimeResponse
from ...values import value_class
from ..handlers.base import Services
from ..handlers.counting import counted
from .access import PARTITION_MAX, PageRefusal, Query
from .removed import REMOVALS, removed_since, show_removal

MAX_BARS: Final = 200
PARTITIONS_AT_ONCE: Final = 200
"""Largest number of partitions per answer."""
READ_BYTES: Final = 64 << 20
"""Bytes read after which an answer ends, with the partition in progress."""
SECONDS: Final = 2.0
"""Time after which an answer ends, with the segment in progress."""


@value_class
class HistogramCell:
    """Position at which counting continues."""

    partition: int
    offset: int = -1
    """Offset; -1 at the start of the partition."""
    end_offset: int = -1
    """Offset at which counting of this partition ends; -1 if not set yet."""

    def shown(self) -> dict[str, int]:
        """Return the fields of the next request."""
        shown = {"partition": self.partition}
        return (
            shown if self.offset < 0 else {**shown, "offset": self.offset, "end": self.end_offset}
        )


class _Sum:
    """Sum of the counts so far."""

    def __init__(self, bars: int) -> None:
        self.counts = [0] * bars
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.untimed = self.read_bytes = self.log_bytes = 0
        self.complete_from_ms: int | None = 0

    def add(self, answer: CountByTimeResponse) -> None:
        self.counts = list(map(add, self.counts, answer.counts))
        self.untimed += answer.untimed
        self.read_bytes += answer.read_bytes
        self.log_bytes += answer.log_bytes
        if self.complete_from_ms is not None:
            known_ms = answer.complete_from_ms
            self.complete_from_ms = max(self.complete_from_ms, known_ms) if known_ms >= 0 else None
        if answer.first_ms >= 0:
            first_ms, last_ms = answer.first_ms, answer.last_ms
            self.first_ms = first_ms if self.first_ms is None else min(self.first_ms, first_ms)
            self.last_ms = last_ms if self.last_ms is None else max(self.last_ms, last_ms)


async def histogram(services: Services, query: Query) -> dict[str, object]:
    """Return counts per bar from `from` until `until`, exclusive; by default over all times.

    All bars have one length; only the last may be shorter. If `next` is not None, the answer covers
    only a part of the messages: the page sends another request with these fields, and adds up the
    counts.

    `complete_from_ms` is the time from which on no message has left the counted partitions; None if
    it is not known of one. If it is later than `from`, `removed` has the last removals from the
    topic that may have had messages of the window.
    """
    topic = query.text("topic")
    from_ms, until_ms = query.window()
    every_ms = _length_of_bars(query, until_ms - from_ms)
    partitions = services.logs.topic(topic).partitions
    spot = _first_spot(query, partitions)
    going_on: HistogramCell | None = None
    total = _Sum(-(-(until_ms - from_ms) // every_ms))
    stop = services.work.time() + SECONDS
    for _ in range(PARTITIONS_AT_ONCE):
        request = CountByTimeRequest(
            topic=topic,
            partition=spot.partition,
            from_ms=from_ms,
            until_ms=until_ms,
            every_ms=every_ms,
            from_offset=spot.offset,
            end_offset=spot.end_offset,
        )
        answer = await counted(services, request, stop - services.work.time(), no_end=query.no_end)
        total.add(answer)
        going_on = _spot_behind(spot, answer, partitions)
        late = services.work.time() >= stop
        if going_on is None or late or total.read_bytes >= READ_BYTES:
            break
        spot = going_on
    removed = removed_since(services, topic, from_ms, total.complete_from_ms)
    return {
        "now_ms": services.clock.now_ms(),
        "retention_start_ms": (
            _retention_start_ms(services, topic) if query.access.settings(topic) else None
        ),
        "from_ms": from_ms,
        "until_ms": until_ms,
        "every_ms": every_ms,
        "counts": total.counts,
        "first_ms": total.first_ms,
        "last_ms": total.last_ms,
        "untimed": total.untimed,
        "read_bytes": total.read_bytes,
        "log_bytes": total.log_bytes,
        "complete_from_ms": total.complete_from_ms,
        "removed": [show_removal(each) for each in removed[-REMOVALS:]],
        "next": None if going_on is None else going_on.shown(),
    }


def _length_of_bars(query: Query, length_ms: int) -> int:
    bars = query.integer("bars", 1, minimum=1, maximum=MAX_BARS)
    return max(-(-length_ms // bars), 1)


def _first_spot(query: Query, partitions: int) -> HistogramCell:
    partition = query.integer("partition", 0, maximum=PARTITION_MAX)
    if partition >= partitions:
        raise PageRefusal(404, f"partition is {partition}; the topic has 0 to {partitions - 1}")
    return HistogramCell(partition, query.integer("offset", -1), query.integer("end", -1))


def _spot_behind(
    spot: HistogramCell, answer: CountByTimeResponse, partitions: int
) -> HistogramCell | None:
    if answer.next_offset >= 0:
        return HistogramCell(spot.partition, answer.next_offset, answer.end_offset)
    if spot.partition + 1 < partitions:
        return HistogramCell(spot.partition + 1)
    return None


def _retention_start_ms(services: Services, topic: str) -> int | None:
    """Return the start of the retention time; None if all messages are kept. Older messages exist
    only because their segment does. The value reveals the setting `retention.ms`."""
    retention_ms = services.directory.topic_settings(topic).retention_ms
    start_ms = services.trusted_time.now_ms() - retention_ms
    return start_ms if retention_ms >= 0 and start_ms > 0 else None
