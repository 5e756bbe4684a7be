"""Result classes of the clients."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import NamedTuple

from ..protocol.api.log.describe_removals import DescribedRemoval
from ..protocol.errors import HorologError
from ..protocol.lag import Lag
from ..protocol.records.binary import BinaryColumn
from ..protocol.records.kernel.terms import RecordHeaders
from ..protocol.records.layout import TimestampType
from ..times import EPOCH, TimeError
from ..values import frozen_class


class SentRecord(NamedTuple):
    """Position of an appended message.

    A tuple, because one is made for each message sent, and a dataclass takes twice as long.
    """

    topic: str
    partition: int
    offset: int
    """Offset of the message; -1 with `acks=0`, because the broker does not answer."""
    timestamp_ms: int | None
    """Timestamp of the message as stored: the append time on a LogAppendTime topic, else its own;
    None for a message without a time."""
    past_retention: bool = False
    """Whether the message was past the topic's `retention.ms` when it was appended, so that it is
    deleted soon. A Kafka cluster does not tell."""


@frozen_class
class SentRange:
    """Messages of a batch that have consecutive offsets in one partition."""

    partition: int
    base_offset: int
    """Offset of the first message; -1 with `acks=0`."""
    count: int
    append_time_ms: int | None
    """Append time of all messages on a LogAppendTime topic; None where each message keeps its own
    time."""
    past_retention: int = 0
    """Number of messages that were past retention when they were appended, as in `SentRecord`."""


@frozen_class
class SentBatch:
    """Positions of the messages of a batch."""

    topic: str
    ranges: tuple[SentRange, ...]
    """Ranges of consecutive offsets; those of one partition stand in the order of the batch. There
    is more than one range when the batch was large, or its keys chose several partitions."""

    @property
    def count(self) -> int:
        """Number of appended messages."""
        return sum(part.count for part in self.ranges)


class ConsumerRecord(NamedTuple):
    """A message as read. A tuple for the reason given at `SentRecord`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    """Timestamp of the message; None when it has none."""
    timestamp_type: TimestampType | None
    """None for a message in format v0, which has no timestamps."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    append_time_ms: int | None = None
    """Time at which the broker appended the message; None when unknown or not requested."""

    @property
    def time(self) -> datetime | None:
        """Timestamp of the message as a datetime in UTC; None when it has none. Raises TimeError
        for a time after the year 9999, which a datetime cannot hold."""
        if self.timestamp_ms is None:
            return None
        try:
            return EPOCH + timedelta(milliseconds=self.timestamp_ms)
        except OverflowError:
            raise TimeError(
                f"timestamp_ms={self.timestamp_ms} of {self.topic}-{self.partition} at offset "
                f"{self.offset} is after the year 9999, which a datetime cannot hold: its producer "
                "wrote another unit"
            ) from None


@frozen_class
class ColumnBatch:
    """Messages of one partition in columns, in the order of their offsets.

    The buffers have the layout of Apache Arrow columns, in this machine's byte order. They belong
    to the caller, who may keep them and write to them.
    """

    topic: str
    partition: int
    count: int
    """Number of messages; at least one."""
    offsets: memoryview
    """Offsets as int64."""
    timestamps_ms: memoryview
    """Timestamps as int64; -1 for a message without a time."""
    timestamp_types: memoryview
    """Types of the timestamps as int8: 0 create time, 1 append time, -1 for messages in format v0,
    which has no timestamps."""
    keys: BinaryColumn
    values: BinaryColumn
    append_times_ms: memoryview | None
    """Append times as int64, -1 where unknown; None unless they were requested."""
    headers: Sequence[RecordHeaders] | None = None
    """Headers of each message, as in `ConsumerRecord.headers`; None when no message has any."""

    @property
    def next_offset(self) -> int:
        """Offset after the last message."""
        return int(self.offsets[-1]) + 1


@frozen_class
class Found:
    """The first message, in offset order, with a time at or after the requested time."""

    offset: int
    timestamp_ms: int
    """Timestamp of the message; its append time in a search by append time."""
    complete_from_ms: int | None = field(default=None, compare=False)
    """Time from which on no message has left the partition; 0 if none has left it, None where
    unknown, as at a Kafka cluster. If it is later than the requested time, an earlier message of
    that time or later may be gone."""
    removed: tuple[DescribedRemoval, ...] = field(default=(), compare=False)
    """What left the partition and may have been of the requested time or later."""


@frozen_class
class AfterEnd:
    """Every message below `end_offset` is older than the requested time, or has no time."""

    end_offset: int
    complete_from_ms: int | None = field(default=None, compare=False)
    """See `Found.complete_from_ms`."""
    removed: tuple[DescribedRemoval, ...] = field(default=(), compare=False)
    """See `Found.removed`."""


@frozen_class
class NoTimestamps:
    """No message in the partition has a timestamp: the partition is empty, or in message format v0.
    In a search by append time: no message has a known append time."""

    complete_from_ms: int | None = field(default=None, compare=False)
    """See `Found.complete_from_ms`."""
    removed: tuple[DescribedRemoval, ...] = field(default=(), compare=False)
    """See `Found.removed`."""


FindResult = Found | AfterEnd | NoTimestamps


@frozen_class
class OffsetAt:
    """Answer to one target of an offset request; a field is None where it has no value."""

    offset: int | None
    timestamp_ms: int | None
    complete_from_ms: int | None = field(default=None, compare=False)
    """See `Found.complete_from_ms`; None for `EARLIEST` and `LARGEST`."""


class TimeCount(NamedTuple):
    """Number of messages in an interval. A tuple for the reason given at `SentRecord`."""

    from_ms: int
    until_ms: int
    """End of the interval, exclusive."""
    count: int  # type: ignore[assignment]  # hides `tuple.count`, which is not needed here


@frozen_class
class TimeCounts:
    """Number of messages of a topic in each interval of a window, and the cost of counting them."""

    intervals: tuple[TimeCount, ...]
    """All intervals in order, including those without messages."""
    first_ms: int | None
    """Smallest time that was counted; None if no message was counted."""
    last_ms: int | None
    """Largest time that was counted; None if no message was counted."""
    untimed: int
    """Number of messages without a time, which are in no interval. At a Kafka cluster, only
    messages that were read are included."""
    read_bytes: int
    """Bytes of the log that were read to count the messages."""
    log_bytes: int
    """Bytes of the log that the count covers."""
    complete_from_ms: int | None = None
    """Time from which on no message has left the partitions; 0 if none has left them, None where
    unknown, as at a Kafka cluster."""
    removed: tuple[DescribedRemoval, ...] = ()
    """What left the partitions and may have been in the window, if `complete_from_ms` is later than
    its start."""

    @property
    def messages(self) -> int:
        """Number of messages in the window."""
        return sum(interval.count for interval in self.intervals)


@frozen_class
class TopicSetting:
    """A setting of a topic: the value in force and where it is set."""

    name: str
    value: str | None
    source: str
    """Where the value is set: `topic`, `broker` or `default`."""


@frozen_class
class TopicDescription:
    """A topic with its settings in force."""

    name: str
    partitions: int
    settings: tuple[TopicSetting, ...]
    topic_id: str | None = None
    """Id that changes when the topic is deleted and created again; None where unknown, as at a
    Kafka cluster."""


@frozen_class
class TopicSummary:
    """A topic in the list of all topics."""

    partitions: int
    topic_id: str | None = None
    """See `TopicDescription.topic_id`."""
    in_sync: int | None = None
    """Number of in-sync replicas of the partition that has the fewest; None where unknown."""


@frozen_class
class ClusterDescription:
    """A cluster, or a single broker's data directory, with its topics."""

    cluster_id: str | None
    """Id that never changes during the life of the cluster; None where unknown."""
    topics: Mapping[str, TopicSummary]
    """Topics ordered by name, without the internal topics of a Kafka cluster."""


@frozen_class
class PartitionSize:
    """Size of a partition's log on disk."""

    topic: str
    partition: int
    size_bytes: int


@frozen_class
class LogDir:
    """A data directory of a broker with its partitions. A directory that cannot be opened is left
    out."""

    path: str
    partitions: tuple[PartitionSize, ...]


@frozen_class
class CommittedPosition:
    """A committed position, stored under a name."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    """Timestamp of the last message read before the commit; None if the client gave none."""
    commit_time_ms: int | None
    """Time of the commit; None at a Kafka cluster, whose protocol does not answer it."""
    metadata: str


@frozen_class
class PositionLag:
    """A position in one partition, and how far the position is behind the end."""

    topic: str
    partition: int
    offset: int
    """Offset of the next message to read."""
    lag: Lag | None
    """None where the broker cannot tell; `error` says why."""
    error: HorologError | None = None
    group: str | None = None
    """State of the consumer group with this name, such as `Stable`; None if no such group exists.
    """
    members: int = 0
    """Number of members of the group."""
    end_offset: int | None = None
    """Offset after the last message that consumers can read; None where the broker cannot tell."""
    moved_at_ms: int | None = None
    """Time of the last commit that changed the offset; None over Kafka's protocol, which does not
    answer it."""


@frozen_class
class GroupSummary:
    """A consumer group, or a name with positions, in the list of all."""

    name: str
    state: str | None
    """State of the group, such as `Stable`; None for a name that only stores positions."""
    protocol_type: str
    """Type of the members, `consumer` for consumers; empty if the group has had none."""
    members: int
    positions: int | None = None
    """Number of positions; None over Kafka's protocol."""
    moved_at_ms: int | None = None
    """When one of the positions last moved; None without positions, and over Kafka's protocol."""
    used_at_ms: int | None = None
    """Time of the last commit, or when the group last had members; None as `moved_at_ms`."""


@frozen_class
class MemberDescription:
    """A member of a consumer group."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    """`group.instance.id` of a static member; None for a dynamic one."""
    partitions: tuple[tuple[str, int], ...]
    """Topic and partition of each partition that the member has; empty if the group's members are
    not consumers."""


@frozen_class
class GroupPosition:
    """A partition in which a group has a position, or which one of its members has."""

    topic: str
    partition: int
    offset: int | None = None
    """Offset of the next message to read; None if nothing is committed."""
    end_offset: int | None = None
    """Offset after the last message that consumers can read; None where the broker cannot tell."""
    lag: Lag | None = None
    """None without a position, and where the broker cannot tell."""
    moved_at_ms: int | None = None
    """Time of the last commit that changed the offset; None without a position, and over Kafka's
    protocol."""
    member: MemberDescription | None = None
    """Member that has the partition."""
    error: HorologError | None = None
    """Why the broker cannot tell."""


@frozen_class
class GroupDescription:
    """A consumer group with its members and positions, or the positions of one name."""

    name: str
    state: str | None
    """State of the group; None for a name that only stores positions."""
    protocol_type: str
    protocol: str
    """Protocol by which the members assign partitions; empty unless the group is `Stable`."""
    members: tuple[MemberDescription, ...]
    positions: tuple[GroupPosition, ...]
    """By topic and partition."""


@frozen_class
class PositionMove:
    """A change of one position."""

    topic: str
    partition: int
    old: int | None
    """None for a position that is created."""
    new: int | None
    """None for a position that is deleted."""
