"""What a leader knows of a follower on one connection. It ends with the connection."""

from typing import NamedTuple

from ..protocol.api.cluster.replicate import ReplicaPosition
from ..storage.log.epoch_history import EpochEnd
from .effects import Connection
from .partition_log import Partition
from .settings import Member


class Mark(NamedTuple):
    """A fetch, and what the follower did not have then."""

    fetched_s: float
    ends: dict[Partition, int]
    """The leader's ends."""
    syncs: dict[Partition, int]
    """Up to where a producer waited for a sync."""


class Session:
    """A follower's confirmations on one connection, and what its next answer is to have."""

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
        """Confirmed here: everything below is equal to the leader's log. Absent: nothing is."""
        self.synced: dict[Partition, int] = {}
        self.diverging: dict[Partition, EpochEnd] = {}
        self.starts: dict[Partition, int] = {}
        """Its log starts."""
        self.unplaced: dict[Partition, ReplicaPosition] = {}
        """Positions in partitions that the leader does not have yet."""
        self.behind = partitions
        """Partitions in which it is not at the leader's end."""
        self.marks: list[Mark] = []
        """The last fetches, newest first: two, because what is sent for a fetch that was ahead is
        confirmed after the next one."""
        self.unsynced: set[Partition] = set()
        """Partitions in which a producer waits for a sync that it has not confirmed."""
        self.unsynced_bytes = 0
        """What it was sent since a sync was wanted last, while it is not in sync."""
        self.sent: dict[Partition, int] = {}
        """Where what it was sent ends, since it last fetched without being ahead."""
        self.unsure: dict[Partition, int] = {}
        """The same, where that is not known exactly: where it begins. Nothing more is sent until it
        is confirmed."""
        self.more: set[Partition] = set()
        """Partitions of which there was perhaps more than was sent last."""
        self.changed: set[Partition] = set()
        """Partitions of which there is news that is sent at once."""
        self.moved: set[Partition] = set()
        """Partitions whose watermark moved. It goes with the next answer, or a little later."""
        self.was_answered = False
        """Whether it got an answer since a reminder was wanted last."""
        self.waits = False
        """Whether a fetch waits for an answer."""
        self.fetched_s: float | None = None
        self.leaving = False
        """Whether the follower stops: it is to go out of the ISR."""

    def forget(self, partition: Partition) -> None:
        """A partition was deleted."""
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
        """Note a fetch; the latest time of which it is known that it was at the end then.

        Kafka's measure: now, if it is at the end; the time of a fetch before, if it is now where
        the end was then. At the end is who has synced what a producer waits for, too: a disk that
        takes messages and never syncs them would hold up `acks=all` for ever.
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
        """Where it is to be sent more from; `None` where it is not known to agree."""
        end = self.ends.get(partition)
        return None if end is None else max(end, self.sent.get(partition, end))
