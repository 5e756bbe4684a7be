"""The state of one partition's log: its segments, its offsets, and its failures."""

from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from ...config.topic import TopicSettings
from ...protocol.errors import StorageError
from ...values import value_class
from ..files import Buffer
from ..index.time_map import SetSpans, SetTimes
from ..open_files import LogDeletion
from ..producers.log_producers import LogProducers
from ..seams import Seams
from ..segment.segment import Segment
from .leader_epochs import LeaderEpochs
from .recent_appends import RecentAppends
from .retention import RemovedRange
from .segment_list import SegmentList

REFUSED: Final = "appends to this partition are refused until the broker has been restarted"


@value_class
class RefusedWrites:
    """First and last failed write that may succeed later, in seconds of the monotonic clock."""

    first: float
    last: float


Runs = list[tuple[int, int, int, int]]
"""Parts of a log that a time map names: first byte, end byte, first offset, end offset."""

Largest = tuple[int, int]
"""Largest timestamp and its offset, as in `Segment.largest`."""


@value_class
class Counted:
    """The largest timestamp in a segment, counted from the log start on."""

    segment: Segment
    cuts: int
    """Value of the segment's `cuts` when it was read."""
    log_start_offset: int
    end_bytes: int
    """Position up to which the segment was read."""
    largest: Largest


class Watermark:
    """The high watermark. It follows the log end, but stops at sets whose producer waits for a
    sync."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """High watermark: the first offset that consumers cannot read."""
        self._waiting: deque[int] | None = None
        """First offsets of sets that wait for a sync. Created on first use: an empty deque takes
        600 bytes, and few logs ever need one."""
        self._held_at: int | None = None

    def wait_for_sync(self, first_offset: int) -> None:
        """Do not pass `first_offset`, the start of a set, before it is synced."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(first_offset)

    def synced(self, offset: int) -> None:
        """Record that everything below `offset` is on stable storage."""
        while self._waiting and self._waiting[0] < offset:
            self._waiting.popleft()

    @property
    def held(self) -> bool:
        """Whether the high watermark is held back by `hold`."""
        return self._held_at is not None

    def hold(self, offset: int | None) -> None:
        """Do not pass `offset`; move back if it is passed already. `None` removes the hold."""
        self._held_at = offset
        if offset is not None:
            self.offset = min(self.offset, offset)

    def cut(self, offset: int) -> None:
        """Record that the log was truncated at `offset`. A hold stays in force for the messages
        that follow."""
        self.offset = min(self.offset, offset)
        if self._held_at is not None:
            self._held_at = min(self._held_at, offset)
        if self._waiting:
            self._waiting = deque(first for first in self._waiting if first < offset)

    def advance(self, log_end_offset: int) -> bool:
        """Move forward as far as allowed. Return whether the watermark moved."""
        target = self._waiting[0] if self._waiting else log_end_offset
        if self._held_at is not None:
            target = min(target, self._held_at)
        if target <= self.offset:
            return False
        self.offset = target
        return True


@value_class
class LogParts:
    """The parts and offsets of a log that has just been opened."""

    topic: str
    partition: int
    settings: TopicSettings
    segments: SegmentList
    producers: LogProducers
    seams: Seams
    """Those of the log itself: `Seams.of_log`."""
    deletion: LogDeletion
    log_start_offset: int
    recovery_point: int
    last_stamp_ms: int
    """Append time of the last message if a broker stamped it, else -1."""
    has_epochs: bool = False
    """Whether a leader epoch file exists."""
    high_watermark: int | None = None
    """High watermark, held at this offset. `None` lets it follow the log end."""
    follows: bool = False
    """Whether another broker leads the partition."""


class LogState:
    """The state of a log, read and changed by its parts: appender, expiry and flusher.

    A base class of `Log`, because `Log` makes the parts, and the parts know only the state.
    """

    def __init__(self, parts: LogParts) -> None:
        self.topic, self.partition, self.settings = parts.topic, parts.partition, parts.settings
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.segments.active.next_offset
        self.recovery_point = parts.recovery_point
        """Offset below which everything is on stable storage."""
        self.segment_list = parts.segments
        self.producers = parts.producers
        """State of the idempotent producers."""
        self.seams = parts.seams
        self.deletion = parts.deletion
        self.watermark = Watermark(self.log_end_offset)
        if parts.high_watermark is not None:
            self.watermark.hold(parts.high_watermark)
        self.has_epochs = parts.has_epochs
        """Whether the log has leader epochs: a file of them exists, or `epochs` was used."""
        self._opened_end_offset = self.log_end_offset
        self._epochs: LeaderEpochs | None = None
        self.stamp_batches: Callable[[bytearray | memoryview], None] | None = None
        """Called with data about to be appended if it contains batches, to write the leader epoch.
        `None` without replication."""
        self.expires = not parts.follows
        """Whether retention and idle rolls apply. On a follower they do not: the leader decides."""
        self.last_stamp_ms = parts.last_stamp_ms
        """Append time of the last message if a broker stamped it, else -1."""
        self.failure: StorageError | None = None
        """Why appends are refused until the broker is restarted, if they are."""
        self.refused_writes: RefusedWrites | None = None
        """Writes since the last successful one that failed for a reason that may pass, such as a
        full disk."""
        self.trimmed: Counted | None = None
        """What `trimmed` knows of the segment in which the log begins."""
        self.window_runs: OrderedDict[tuple[tuple[int, int], tuple[int, int]], Runs] | None = None
        """Recent answers of time maps, by version of the map and window; see `read.windows`."""
        self.window_knowledge: WeakValueDictionary[tuple[int, int, bool, bool], Any] | None = None
        """Findings about the windows that connections read, until the log is truncated; see
        `read.window_sets`."""
        self.recent_appends: RecentAppends | None = None
        """Times of the newest appends, while readers of windows wait for others."""
        self.appended_at: float | None = None
        """Time of the last append, in seconds of the monotonic clock; `None` before that is known.
        """
        self.unflushed_since: float | None = None
        """Time of the oldest append that is not synced, in seconds of the monotonic clock."""
        self.on_advance: Callable[[Any], None] | None = None
        """Called with the log when the high watermark moves, and when `failure` is set."""
        self.on_synced: Callable[[Any], None] | None = None
        """Called with the log when a sync of its messages is done."""
        self.on_gaps: Callable[[Any], None] | None = None
        """Called with the log when offsets jump for the first time, so that the topic remembers it.
        """
        self.on_cut: Callable[[Any], None] | None = None
        """Called with the log before it is truncated, because the recovery point has to be stored
        first."""
        self.on_truncate: Callable[[str, int, RemovedRange], None] | None = None
        """Called with topic, partition and the messages that are about to be cut off."""

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the log. Raises `OSError` if the file cannot be read at all."""
        if self._epochs is None:
            name = {"topic": self.topic, "partition": self.partition}
            epochs = LeaderEpochs(self.path, self.seams, name)
            if self.has_epochs:
                first_offset = self.segment_list.first.base_offset
                epochs.load(first_offset, self._opened_end_offset)
            self._epochs, self.has_epochs = epochs, True
        return self._epochs

    @property
    def follows(self) -> bool:
        """Whether another broker leads the partition."""
        return not self.expires

    @property
    def path(self) -> Path:
        return self.segment_list.path

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, oldest first. The last one takes appends."""
        return self.segment_list.segments

    @property
    def segment_count(self) -> int:
        return len(self.segment_list.segments)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segment_list.segments)

    @property
    def gaps(self) -> bool:
        """Whether offsets may jump, as in a log that another broker wrote."""
        return self.segment_list.gaps

    @property
    def high_watermark(self) -> int:
        """High watermark: the first offset that consumers cannot read."""
        return self.watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """First offset that `read_committed` consumers cannot read: the first offset of the oldest
        open transaction, or the high watermark if no transaction is open."""
        high_watermark = self.watermark.offset
        if not self.producers.states.open_count:
            return high_watermark
        open_offset = self.producers.states.open_offset
        return high_watermark if open_offset is None else min(open_offset, high_watermark)

    @property
    def prepared(self) -> bool:
        """Whether the indexes of all segments are loaded. If not, call `prepare` before reading."""
        return self.segment_list.prepared

    def prepare(self) -> None:
        """Load the indexes of all segments. Rebuild those that do not match their checksums.

        May take long, and may run in another thread. Raises `OSError`, and
        `UnsupportedForMessageFormat` if messages are stored in a format that this version cannot
        read.
        """
        self.segment_list.prepare()

    def set_settings(self, settings: TopicSettings) -> None:
        """Use `settings` from the next append or maintenance pass on."""
        self.settings = settings

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def hold_high_watermark(self, offset: int | None) -> None:
        """Keep the high watermark from passing `offset`. `None` removes the hold."""
        self.watermark.hold(offset)
        self.advance()

    def advance(self) -> None:
        if self.watermark.advance(self.log_end_offset) and self.on_advance is not None:
            self.on_advance(self)

    def note_append(
        self,
        data: Buffer,
        largest_ms: int,
        times: SetTimes | SetSpans | bytes | None,
        append_bounds_ms: tuple[int, int],
    ) -> None:
        """Note the times of what is staged, as `RecentAppends.note`, if readers wait for some."""
        recent = self.recent_appends
        if recent is None:
            return
        try:
            next_offset = self.segment_list.active.next_offset
            if not recent.note(data, next_offset, largest_ms, times, append_bounds_ms):
                self.recent_appends = None
        except MemoryError:  # The append goes on, and its readers look at the log.
            self.recent_appends = None

    def fail(self, failure: StorageError) -> None:
        """Refuse appends from now on. Reads continue."""
        self.failure = failure
        self.observe("log_failed", error=failure.message)
        if self.on_advance is not None:
            self.on_advance(self)

    def record_gaps(self) -> None:
        if not self.segment_list.gaps:
            if self.on_gaps is not None:
                self.on_gaps(self)
            self.segment_list.allow_gaps()

    def observe(self, event: str, **fields: object) -> None:
        self.seams.observe(event, topic=self.topic, partition=self.partition, **fields)
