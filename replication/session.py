"""What a leader knows of a follower on one connection. A session ends with its connection."""

from typing import NamedTuple

from ..protocol.api.cluster.replicate import ReplicaPosition
from ..storage.log.epoch_history import EpochEnd
from .effects import Connection
from .partition_log import Partition
from .settings import Member


class Mark(NamedTuple):
    """A fetch, and what the follower lacked at that time."""

    fetched_s: float
    ends: dict[Partition, int]
    """Log end offsets of the leader, by partition."""
    syncs: dict[Partition, int]
    """By partition, the offset up to which a producer waited for a sync."""


class Session:
    """A follower's confirmations on one connection, and what its next answer has to contain."""

    __slots__ = (
        "behind",
        "changed",
        "connection",
        "diverging",
        "ends",
        "fetched_s",
        "leaving",
        "marks",
        "member",
        "more",
        "moved",
        "sent",
        "starts",
        "synced",
        "unplaced",
        "unsure",
        "unsynced",
        "unsynced_bytes",
        "waits",
        "was_answered",
    )

    def __init__(self, connection: Connection, member: Member, partitions: set[Partition]) -> None:
        self.connection = connection
        self.member = member
        self.ends: dict[Partition, int] = {}
        """Confirmed ends: everything below is equal to the leader's log. A partition without an
        entry is unconfirmed."""
        self.synced: dict[Partition, int] = {}
        self.diverging: dict[Partition, EpochEnd] = {}
        self.starts: dict[Partition, int] = {}
        """Log start offsets of the follower."""
        self.unplaced: dict[Partition, ReplicaPosition] = {}
        """Positions in partitions that the leader does not have yet."""
        self.behind = partitions
        """Partitions in which the follower is not at the leader's log end."""
        self.marks: list[Mark] = []
        """The last two fetches, newest first. Two, because messages sent for a fetch that was
        `ahead` are confirmed only after the next fetch."""
        self.unsynced: set[Partition] = set()
        """Partitions in which a producer waits for a sync that the follower has not confirmed."""
        self.unsynced_bytes = 0
        """Bytes sent to the follower, while it is outside the ISR, since it was last told to
        sync."""
        self.sent: dict[Partition, int] = {}
        """End of the messages sent since the last fetch that was not `ahead`."""
        self.unsure: dict[Partition, int] = {}
        """Like `sent`, for messages whose end is not known exactly; the value is where they start.
        Nothing more is sent until the follower confirms them."""
        self.more: set[Partition] = set()
        """Partitions that may have had more messages than were sent last."""
        self.changed: set[Partition] = set()
        """Partitions with news to send at once."""
        self.moved: set[Partition] = set()
        """Partitions whose watermark moved. The watermark goes with the next answer, or with a
        reminder."""
        self.was_answered = False
        """Whether the follower was answered since the last reminder was requested."""
        self.waits = False
        """Whether a fetch waits for an answer."""
        self.fetched_s: float | None = None
        self.leaving = False
        """Whether the follower stops and is to leave the ISR."""

    def forget(self, partition: Partition) -> None:
        """Drop all state of a deleted partition."""
        for known in (self.ends, self.synced, self.diverging, self.starts, self.sent, self.unsure):
            known.pop(partition, None)
        for mark in self.marks:
            mark.ends.pop(partition, None)
            mark.syncs.pop(partition, None)
        self.more.discard(partition)
        self.unplaced.pop(partition, None)
        self.behind.discard(partition)
        self.unsynced.discard(partition)
        self.changed.discard(partition)
        self.moved.discard(partition)

    def measure(
        self, now_s: float, leader_ends: dict[Partition, int], wanted_syncs: dict[Partition, int]
    ) -> float | None:
        """Record a fetch. Returns the latest time at which the follower is known to have been at
        the log end.

        As in Kafka that is now, if the follower is at the end, or else the time of an earlier fetch
        if the follower has reached the end of that time. Unlike Kafka, a follower is at the end
        only if it has also synced what a producer waits for: a disk that accepts messages and never
        syncs them would block `acks=all` for ever.
        """
        self.fetched_s = now_s
        marks = self.marks
        self.marks = [Mark(now_s, leader_ends, wanted_syncs), *marks[:1]]
        if not self.behind and not self.unsynced:
            return now_s
        return next((mark.fetched_s for mark in marks if self._has_reached(mark)), None)

    def _has_reached(self, mark: Mark) -> bool:
        ends, syncs = self.ends, self.synced
        return all(ends.get(it, -1) >= mark.ends.get(it, -1) for it in self.behind) and all(
            syncs.get(it, -1) >= mark.syncs.get(it, -1) for it in self.unsynced
        )

    def goes_on_at(self, partition: Partition) -> int | None:
        """Return the offset to send from next; `None` if the follower's log is not known to
        agree."""
        end = self.ends.get(partition)
        return None if end is None else max(end, self.sent.get(partition, end))

    def gets_to(self, partition: Partition, offset: int) -> bool:
        """Whether the follower's log agrees, and may end at `offset` or behind it by what was sent
        since."""
        end = self.goes_on_at(partition)
        return end is not None and (offset <= end or partition in self.unsure)
