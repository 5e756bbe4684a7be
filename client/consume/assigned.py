"""A partition that a consumer reads."""

from dataclasses import dataclass, field

from ...protocol.lag import Pace
from ..results import ConsumerRecord
from .fetching import TopicPartition


@dataclass(slots=True)
class Assigned:
    """A partition that is read, and the offset of the next message to give out."""

    topic: str
    partition: int
    position: int | None = None
    """None: the first one stored, whichever that is when reading begins."""
    timestamp_ms: int | None = None
    """Of the last message that was given out."""
    paused: bool = False
    pace: Pace = field(default_factory=Pace)

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    def move(self, offset: int) -> None:
        """Go on from another offset."""
        self.position = offset
        self.timestamp_ms = None
        self.pace = Pace()

    def given_out(self, record: ConsumerRecord) -> None:
        """The position is behind this message."""
        self.position = record.offset + 1
        self.timestamp_ms = record.timestamp_ms

    def note_end(self, now: float, end_offset: int) -> None:
        """The partition ends at `end_offset`; `now` is on a monotonic clock."""
        if self.position is not None:
            self.pace.note(now, self.position, max(end_offset, self.position))

    def catch_up_seconds(self, now: float, messages: int) -> float | None:
        """How long until the end is reached, which is `messages` behind the position."""
        if self.position is None:
            return None
        end_offset = self.position + messages
        self.pace.note(now, self.position, end_offset)
        return self.pace.catch_up_seconds(now, self.position, end_offset)
