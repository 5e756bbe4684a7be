"""What is known of one partition's log: its segments, how far it reaches, and what goes wrong."""

from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ...config.topic import TopicSettings
from ...protocol.errors import StorageError
from ...values import value_class
from ..producers.log_producers import LogProducers
from ..seams import Seams
from ..segment.segment import Segment
from .leader_epochs import LeaderEpochs
from .segment_list import SegmentList

REFUSED: Final = "appends to this partition are refused until the broker has been restarted"


@value_class
class RefusedWrites:
    """Writes that failed and may succeed later, on the monotonic clock."""

    first: float
    last: float


Runs = list[tuple[int, int, int, int]]
"""Stretches of a log that a time map names: first byte, end byte, first offset, end offset."""

Largest = tuple[int, int]
"""As `Segment.largest`."""


@value_class
class Counted:
    """The largest time in a segment from the log start on."""

    segment: Segment
    cuts: int
    """Of the segment then."""
    log_start_offset: int
    end_bytes: int
    """Up to where the segment was read."""
    largest: Largest


class Watermark:
    """Follows the log end, except past sets whose producer waits for a sync."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """First offset that consumers do not see."""
        self._waiting: deque[int] | None = None
        """Made when it is needed: an empty one takes 600 bytes, and few logs ever have another."""
        self._held_at: int | None = None

    def wait_for_sync(self, first_offset: int) -> None:
        """Do not pass `first_offset`, where a set begins, until it is synced."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(first_offset)

    def synced(self, offset: int) -> None:
        """Everything below `offset` is on stable storage."""
        while self._waiting and self._waiting[0] < offset:
            self._waiting.popleft()

    @property
    def held(self) -> bool:
        """Whether it is held back."""
        return self._held_at is not None

    def hold(self, offset: int | None) -> None:
        """Do not pass `offset`, and go back to it if it is passed; `None` lets it go."""
        self._held_at = offset
        if offset is not None:
            self.offset = min(self.offset, offset)

    def cut(self, offset: int) -> None:
        """The log ends at `offset` now. What comes instead is held back if that was."""
        self.offset = min(self.offset, offset)
        if self._held_at is not None:
            self._held_at = min(self._held_at, offset)
        if self._waiting:
            self._waiting = deque(first for first in self._waiting if first < offset)

    def advance(self, log_end_offset: int) -> bool:
        """Move as far as may be; say whether it moved."""
        target = self._waiting[0] if self._waiting else log_end_offset
        if self._held_at is not None:
            target = min(target, self._held_at)
        if target <= self.offset:
            return False
        self.offset = target
        return True


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
    has_epochs: bool = False
    """Whether there is a file of leader epochs."""
    high_watermark: int | None = None
    """Where it is, to be kept there; `None` lets it follow the log end."""
    follows: bool = False
    """Whether another broker leads."""


class LogState:
    """The state of a log, which its parts read and change: appender, expiry and flusher.

    A base of `Log` and not the same class, because the parts know the state and `Log` makes them.
    """

    def __init__(self, parts: LogParts) -> None:
        self.topic = parts.topic
        self.partition = parts.partition
        self.settings = parts.settings
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.segments.active.next_offset
        self.recovery_point = parts.recovery_point
        """Everything below it is on stable storage."""
        self.segment_list = parts.segments
        self.producers = parts.producers
        """The producers that number their batches."""
        self.seams = parts.seams
        self.watermark = Watermark(self.log_end_offset)
        if parts.high_watermark is not None:
            self.watermark.hold(parts.high_watermark)
        self.has_epochs = parts.has_epochs
        """Whether it is known which leaders wrote what, or was to be."""
        self._opened_end_offset = self.log_end_offset
        self._epochs: LeaderEpochs | None = None
        self.stamp_batches: Callable[[bytearray | memoryview], None] | None = None
        """Told what is to be appended where there are batches in it; without replication none."""
        self.expires = not parts.follows
        """Whether anything goes, or is closed, because of its age or size: a follower leaves that
        to its leader."""
        self.last_stamp_ms = parts.last_stamp_ms
        """Append time of the last message if a broker stamped it, else -1."""
        self.failure: StorageError | None = None
        """Why appends are refused until the broker has been restarted, if they are."""
        self.refused_writes: RefusedWrites | None = None
        """Writes that failed for want of room or the like, since the last one that succeeded."""
        self.trimmed: Counted | None = None
        """What `trimmed` knows of the segment in which the log begins."""
        self.window_runs: OrderedDict[tuple[tuple[int, int], tuple[int, int]], Runs] | None = None
        """What time maps answered lately, by version of the map and window; see `read.windows`."""
        self.window_knowledge: OrderedDict[tuple[int, int, bool, bool], Any] | None = None
        """What was found out lately about window topics, until the log is cut off; see
        `read.window_sets`."""
        self.appended_at: float | None = None
        """When something was appended last, on the monotonic clock; `None` before that is known."""
        self.unflushed_since: float | None = None
        """When the oldest message that is not synced was appended, on the monotonic clock."""
        self.on_advance: Callable[[Any], None] | None = None
        """Called with the log when the high watermark moves, and when `failure` is set."""
        self.on_synced: Callable[[Any], None] | None = None
        """Called with the log when a sync of its messages is done."""
        self.on_gaps: Callable[[Any], None] | None = None
        """Called with the log when offsets jump for the first time; to be remembered with the
        topic."""
        self.on_cut: Callable[[Any], None] | None = None
        """Called with the log before its end is cut off; the recovery point has to be
        remembered."""

    @property
    def epochs(self) -> LeaderEpochs:
        """Which leaders wrote what. Raises `OSError` where the file cannot be read at all."""
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
        """Whether another broker leads."""
        return not self.expires

    @property
    def path(self) -> Path:
        return self.segment_list.path

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, oldest first; the last one takes appends."""
        return self.segment_list.segments

    @property
    def segment_count(self) -> int:
        return len(self.segment_list.segments)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segment_list.segments)

    @property
    def gaps(self) -> bool:
        """Whether offsets may jump, as in bytes that another broker wrote."""
        return self.segment_list.gaps

    @property
    def high_watermark(self) -> int:
        """First offset that consumers do not see."""
        return self.watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """First offset that committed readers do not see: that of a transaction that has not ended
        yet, if there is one, else the high watermark."""
        high_watermark = self.watermark.offset
        if not self.producers.states.open_count:
            return high_watermark
        open_offset = self.producers.states.open_offset
        return high_watermark if open_offset is None else min(open_offset, high_watermark)

    @property
    def prepared(self) -> bool:
        """Whether every segment's indexes are loaded; if not, `prepare` before reading."""
        return self.segment_list.prepared

    def prepare(self) -> None:
        """Load the indexes of all segments, rebuilding those that do not fit their checksums.

        May take long, and may run in a thread of its own. Raises `OSError`, and
        `UnsupportedForMessageFormat` when messages of a format that this version cannot read are
        stored.
        """
        self.segment_list.prepare()

    def set_settings(self, settings: TopicSettings) -> None:
        """Go by `settings` from the next append or maintenance pass on."""
        self.settings = settings

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def hold_high_watermark(self, offset: int | None) -> None:
        """Keep the high watermark from passing `offset`; `None` lets it go."""
        self.watermark.hold(offset)
        self.advance()

    def advance(self) -> None:
        if self.watermark.advance(self.log_end_offset) and self.on_advance is not None:
            self.on_advance(self)

    def fail(self, failure: StorageError) -> None:
        """Refuse appends from now on; reads go on."""
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
