"""What clients give back."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..protocol.errors import HorologError
from ..protocol.lag import Lag
from ..protocol.records.binary import BinaryColumn
from ..protocol.records.kernel.terms import RecordHeaders
from ..protocol.records.layout import TimestampType
from ..values import frozen_class


class SentRecord(NamedTuple):
    """Where a message went.

    A tuple, because one is made for every message sent, and a dataclass takes twice as long.
    """

    topic: str
    partition: int
    offset: int
    """-1 with `acks=0`, where the broker does not say."""
    timestamp_ms: int | None
    """The message's time as stored: the append time on a LogAppendTime topic, else its own; None
    when it has none."""


@frozen_class
class SentRange:
    """Messages of a batch that are in a partition one behind the other."""

    partition: int
    base_offset: int
    """Offset of the first; -1 with `acks=0`."""
    count: int
    append_time_ms: int | None
    """The time of all of them on a LogAppendTime topic; None where each has its own."""


@frozen_class
class SentBatch:
    """Where the messages of a batch went."""

    topic: str
    ranges: tuple[SentRange, ...]
    """Those of one partition in the order of the batch. More than one when the batch was large,
    or its keys chose several partitions."""

    @property
    def count(self) -> int:
        """How many messages were appended."""
        return sum(part.count for part in self.ranges)


class ConsumerRecord(NamedTuple):
    """A message as read. A tuple, as `SentRecord` is."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    """None when the message has no time."""
    timestamp_type: TimestampType | None
    """None for messages in format v0, which knows no time."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    append_time_ms: int | None = None
    """When the broker appended it; None when that is not known, or was not asked for."""


@frozen_class
class ColumnBatch:
    """Messages of one partition in columns, in the order of their offsets.

    The buffers are laid out as Apache Arrow lays out such columns, in this machine's byte order,
    and belong to the caller: they may be kept and written to.
    """

    topic: str
    partition: int
    count: int
    """How many messages; at least one."""
    offsets: memoryview
    """int64."""
    timestamps_ms: memoryview
    """int64; -1 for a message without a time."""
    timestamp_types: memoryview
    """int8: 0 create time, 1 append time, -1 for messages in format v0, which knows no time."""
    keys: BinaryColumn
    values: BinaryColumn
    append_times_ms: memoryview | None
    """int64: when each was appended, -1 where that is not known; None unless it was asked for."""
    headers: Sequence[RecordHeaders] | None = None
    """Those of each message, as `ConsumerRecord.headers`; None when no message has any."""

    @property
    def next_offset(self) -> int:
        """The offset behind the last message."""
        return int(self.offsets[-1]) + 1


@frozen_class
class Found:
    """The first message, in offset order, whose time is at or after the time asked for."""

    offset: int
    timestamp_ms: int
    """Its timestamp; in a search by append time, that."""


@frozen_class
class AfterEnd:
    """Every message below `end_offset` is older than the time asked for, or has no time."""

    end_offset: int


@frozen_class
class NoTimestamps:
    """The partition has no message with a timestamp (it is empty, or in message format v0), or in a
    search by append time none of which that is known."""


FindResult = Found | AfterEnd | NoTimestamps


@frozen_class
class OffsetAt:
    """Answer to one target; None where there is none."""

    offset: int | None
    timestamp_ms: int | None


class TimeCount(NamedTuple):
    """How many messages there are in an interval. A tuple, as `SentRecord` is."""

    from_ms: int
    until_ms: int
    """The end, which is not in it."""
    count: int  # type: ignore[assignment]  # hides the method of tuples, which is not missed here


@frozen_class
class TimeCounts:
    """How many messages of a topic there are in each interval of a window, and what it took."""

    intervals: tuple[TimeCount, ...]
    """All of them, in order; also those without a message."""
    first_ms: int | None
    """The smallest time that was counted; None when there is none."""
    last_ms: int | None
    """The largest time that was counted."""
    untimed: int
    """Messages without a time, which are in no interval; at a Kafka cluster of those read."""
    read_bytes: int
    """Bytes of the log that were read for it."""
    log_bytes: int
    """Bytes of the log that it is about."""

    @property
    def messages(self) -> int:
        """How many messages are in the window."""
        return sum(interval.count for interval in self.intervals)


@frozen_class
class TopicSetting:
    """A setting in force on a topic."""

    name: str
    value: str | None
    source: str
    """`topic`, `broker` or `default`."""


@frozen_class
class TopicDescription:
    """A topic with its settings in force."""

    name: str
    partitions: int
    settings: tuple[TopicSetting, ...]
    topic_id: str | None = None
    """Another one when the topic is deleted and made again; None where that is not known, as by a
    Kafka cluster."""


@frozen_class
class TopicSummary:
    """A topic in a list of all."""

    partitions: int
    topic_id: str | None = None
    """As in `TopicDescription`."""
    in_sync: int | None = None
    """Replicas in sync, of the partition with the fewest; None where that is not known."""


@frozen_class
class ClusterDescription:
    """A broker's data directory, or a Kafka cluster, with its topics."""

    cluster_id: str | None
    """The same for as long as it exists; None where that is not known."""
    topics: Mapping[str, TopicSummary]
    """In order of name, without a cluster's internal ones."""


@frozen_class
class PartitionSize:
    """What the log of a partition takes on disk."""

    topic: str
    partition: int
    size_bytes: int


@frozen_class
class LogDir:
    """A directory of a broker, with the partitions in it. One that cannot be opened is left out."""

    path: str
    partitions: tuple[PartitionSize, ...]


@frozen_class
class CommittedPosition:
    """A named position."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    """Timestamp of the last message read before the commit, when it was given."""
    commit_time_ms: int | None
    """None at a Kafka cluster, which does not answer it."""
    metadata: str


@frozen_class
class PositionLag:
    """A position in one partition, and how far behind it is."""

    topic: str
    partition: int
    offset: int
    """The next offset to read."""
    lag: Lag | None
    """None where the broker does not know; `error` says why."""
    error: HorologError | None = None
    group: str | None = None
    """State of the consumer group of this name, such as `Stable`; None when it is no group's."""
    members: int = 0
    """How many members the group has."""
