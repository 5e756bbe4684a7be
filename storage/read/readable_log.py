"""What can be asked of one partition's log: messages by offset and by time, and what it is like."""

from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final

from ...config.topic import TopicSettings
from ...protocol.errors import OffsetOutOfRange
from ...protocol.records.layout import NO_TIMESTAMP
from ...values import value_class
from ..index.append_time_search import append_times_of, find_append_time, offset_behind
from ..index.append_times import Told
from ..log.description import LogDescription, SegmentDescription, describe_segment
from ..log.light_sets import OPENED_BYTES
from ..log.retention import RetentionPlan, judge, plan_retention
from ..log.segment import Segment
from ..log.segment_list import SegmentList
from ..log.watermark import Watermark
from ..producers.log_producers import LogProducers
from ..producers.producer_states import AbortedTransaction
from ..seams import Seams
from . import search
from .readable_segment import FarAway
from .reading import Slice, read_slice, readable_bytes
from .search import Found, Search, SearchView
from .search_trail import SearchTrail, trail_of
from .time_lookup import look_for_time

FUTURE_MS: Final = 60_000
"""Clocks of machines differ; only a time further ahead than this is one from the future."""


@value_class
class LogParts:
    """What a log is when it has just been opened."""

    topic: str
    partition: int
    settings: TopicSettings
    segments: SegmentList
    producers: LogProducers
    seams: Seams
    log_start_offset: int
    recovery_point: int
    last_stamp_ms: int
    """Append time of the last message if a broker stamped it, else -1."""


class ReadableLog:
    """The half of `Log` that changes nothing but what is in memory."""

    def __init__(self, parts: LogParts) -> None:
        self.topic = parts.topic
        self.partition = parts.partition
        self.settings = parts.settings
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.segments.active.next_offset
        self.recovery_point = parts.recovery_point
        """Everything below it is on stable storage."""
        self._list = parts.segments
        self.producers = parts.producers
        """What is known of those who number their batches."""
        self._seams = parts.seams
        self._watermark = Watermark(self.log_end_offset)

    @property
    def path(self) -> Path:
        return self._list.path

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, oldest first; the last one takes appends."""
        return self._list.segments

    @property
    def segment_count(self) -> int:
        return len(self._list.segments)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._list.segments)

    @property
    def gaps(self) -> bool:
        """Whether offsets may jump, as in bytes that another broker wrote."""
        return self._list.gaps

    @property
    def high_watermark(self) -> int:
        """First offset that consumers do not see."""
        return self._watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """First offset that committed readers do not see: that of a transaction that has not ended
        yet, if there is one, else the high watermark."""
        high_watermark = self._watermark.offset
        if not self.producers.states.open_count:
            return high_watermark
        open_offset = self.producers.states.open_offset
        return high_watermark if open_offset is None else min(open_offset, high_watermark)

    def aborted_transactions(self, found: Slice, offset: int) -> list[AbortedTransaction]:
        """Those that have something in the slice that `read` found for `offset`, by their first."""
        if found.segment is None or not self.producers.states.aborted:
            return []
        end_offset = offset_behind(found.segment, found.position + found.size)
        return self.producers.states.aborted_between(offset, end_offset)

    @property
    def prepared(self) -> bool:
        """Whether every segment's indexes are loaded; if not, `prepare` before reading."""
        return self._list.prepared

    def prepare(self) -> None:
        """Load the indexes of all segments, rebuilding those that do not fit their checksums.

        May take long, and may run in a thread of its own. Raises `OSError`, and
        `UnsupportedForMessageFormat` when messages of a format that this version cannot read are
        stored.
        """
        self._list.prepare()

    def set_settings(self, settings: TopicSettings) -> None:
        """Go by `settings` from the next append or maintenance pass on."""
        self.settings = settings

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        whole_first: bool = False,
        committed: bool = False,
        far: bool = True,
    ) -> Slice:
        """What is stored from the entry that holds `offset` on, up to the high watermark, or with
        `committed` to the last stable offset.

        At most `max_bytes` of one segment and one message format, cut without regard to entries;
        `whole_first` gives the first entry whole even if it is larger. Raises
        `OffsetOutOfRange`, `StorageError`; without `far` `FarAway` where there is something to be
        `prepared` or `located` first.
        """
        if not (far or self._list.prepared):
            raise FarAway
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is outside of {self.topic}-{self.partition}, which has "
                f"{self.log_start_offset} (log start) to {self.log_end_offset} (log end)"
            )
        high_watermark = self._watermark.offset
        return read_slice(
            self._list,
            offset,
            max_bytes,
            end_offset=self.last_stable_offset if committed else high_watermark,
            high_watermark=high_watermark,
            whole_first=whole_first,
            far=far,
        )

    def located(self, offset: int) -> bool:
        """Look for where `offset` and the high watermark are, if the indexes do not say it: a
        bounded piece of work; `True` when `read` and `readable_bytes` have not far to look.

        Raises `OSError`.
        """
        high_watermark = self.high_watermark
        if offset >= high_watermark:
            return True
        if not self._list.holding(offset).located(offset):
            return False
        if high_watermark == self.log_end_offset:
            return True
        return self._list.holding(high_watermark).located(high_watermark)

    def readable_bytes(self, offset: int, *, committed: bool = False) -> int:
        """How many stored bytes there are from `offset` to where `read` ends."""
        end_offset = self.last_stable_offset if committed else self.high_watermark
        return readable_bytes(self._list, offset, end_offset)

    def _view(self, *, by_time: bool = True, to_log_end: bool = False) -> SearchView:
        if by_time and not self.prepared:
            # Else segments whose times are not known would be passed over without a word.
            self.prepare()
        return SearchView(
            self._list.segments,
            self._list.closed_max_ms if by_time else (),
            self.log_start_offset,
            self.log_end_offset if to_log_end else self.high_watermark,
            self.settings.max_decompressed_bytes,
        )

    def find_time(self, target_ms: int, *, to_log_end: bool = False) -> Search[Found | None]:
        """Search the first message, in offset order, with a timestamp >= `target_ms`.

        Below the high watermark, or with `to_log_end`, which is not for consumers, anywhere. Raises
        as `prepare`, which should have been done before.
        """
        if not self.prepared:
            # Else segments whose times are not known would be passed over without a word.
            self.prepare()
        segment = self._list.segments[bisect_left(self._list.closed_max_ms, target_ms)]
        looked_at = None
        if segment.largest_possible_ms >= target_ms:
            looked_at = segment
            start = max(segment.time_index.start_for(target_ms), self.log_start_offset)
            opened_bytes = min(self.settings.max_decompressed_bytes, OPENED_BYTES)
            found = look_for_time(segment, start, target_ms, opened_bytes)
            if found is not None:
                end_offset = self.log_end_offset if to_log_end else self.high_watermark
                return Search(None, found if found.offset < end_offset else None)
        view = self._view(to_log_end=to_log_end)
        return Search(search.find_time(view, target_ms, looked_at))

    def search_trail(self, target_ms: int, found: Found | None) -> SearchTrail:
        """How `find_time` came from `target_ms` to `found`. Raises `StorageError`."""
        return trail_of(self._list.segments, self._list.closed_max_ms, target_ms, found)

    def append_times(self, found: Slice, offset: int, sets_max: int) -> tuple[Slice, Told]:
        """When the messages were appended that `read` found for `offset`.

        What cannot be read is unknown, and reported. The slice may come back shorter: with
        `sets_max` sets. Raises `StorageError`.
        """
        try:
            return append_times_of(found, offset, sets_max)
        except OSError as error:
            self._seams.observe(
                "append_times_unreadable", topic=self.topic, partition=self.partition, error=error
            )
            return found, Told([(self.log_start_offset, NO_TIMESTAMP)], offset, 0)

    def append_times_loaded(self, offset: int) -> bool:
        """Look at more of the append times of the segment that holds `offset`: a bounded piece of
        work; `True` when all has been looked at. Raises `OSError`."""
        return self._list.holding(offset).append_times.load()

    def append_time_ms(self, offset: int) -> int:
        """When the message at `offset` was appended, -1 if that is unknown. Raises `OSError`."""
        return self._list.holding(offset).append_times.covering(offset, offset + 1).spans[-1][1]

    def find_append_time(self, target_ms: int, *, to_log_end: bool = False) -> Search[Found | None]:
        """Search the first message, in offset order, appended at or after `target_ms`.

        The time in the result is the append time. Bounded and raising as `find_time`.
        """
        if not self.prepared:
            self.prepare()
        view = self._view(by_time=False, to_log_end=to_log_end)
        return Search(find_append_time(view, self._list.closed_append_max_ms, target_ms))

    def find_largest(self, *, to_log_end: bool = False) -> Search[Found | None]:
        """Search the first message that has the largest timestamp of the log.

        Bounded and raising as `find_time`.
        """
        return Search(search.find_largest(self._view(to_log_end=to_log_end)))

    def offsets_before(
        self, target_ms: int, count_max: int, *, to_log_end: bool = False
    ) -> Search[list[int]]:
        """Search offsets to start from for `target_ms`, falling; at most `count_max`.

        Bounded and raising as `find_time`; a sentinel needs no preparation.
        """
        now_ms = self._seams.clock.now_ms()
        by_time = target_ms not in (search.EARLIEST, search.LATEST)
        view = self._view(by_time=by_time, to_log_end=to_log_end)
        return Search(search.offsets_before(view, target_ms, count_max, now_ms))

    def plan_retention(self, now_ms: int, *, explain: bool = True) -> RetentionPlan:
        """Judge which segments may go at `now_ms`. Needs the log to be prepared.

        Without `explain` those that stay are not spoken of, however many there are.
        """
        return plan_retention(
            self._list.segments,
            self.settings,
            now_ms=now_ms,
            high_watermark=self.high_watermark,
            explain=explain,
        )

    def describe_some(self, now_ms: int, numbers: range) -> list[SegmentDescription]:
        """As `describe`, of some segments: by their numbers, from 0 for the oldest on.

        Numbers that no segment has are left out. For logs with so many that all take too long.
        """
        segments = self._list.segments
        some = range(len(segments))[numbers.start : numbers.stop]
        verdicts = judge(
            self.plan_retention(now_ms, explain=False),
            segments,
            self.settings,
            some,
            now_ms=now_ms,
            high_watermark=self.high_watermark,
        )
        return [
            describe_segment(segments[number], verdict, active=number == len(segments) - 1)
            for number, verdict in zip(some, verdicts, strict=True)
        ]

    def pinned_segments(self, now_ms: int) -> int:
        """How many segments `retention.ms` cannot delete yet because of a message in them, or in an
        older one, whose time is more than a minute after `now_ms`; 0 when nothing is known."""
        if self.settings.retention_ms < 0 or not self.prepared:
            return 0
        closed, limit_ms = self._list.closed_max_ms, now_ms + FUTURE_MS
        first = bisect_right(closed, limit_ms)
        if first < len(closed):
            return self.segment_count - first
        return int(self._list.active.largest_possible_ms > limit_ms)

    def describe(self, now_ms: int) -> LogDescription:
        """Everything there is to tell about the log. Needs it to be prepared. Raises `OSError`."""
        verdicts = self.plan_retention(now_ms).verdicts
        return LogDescription(
            self.log_start_offset,
            self.log_end_offset,
            self.high_watermark,
            self.recovery_point,
            self.size_bytes,
            tuple(
                describe_segment(segment, verdict, active=segment is self._list.active)
                for segment, verdict in zip(self.segments, verdicts, strict=True)
            ),
        )
