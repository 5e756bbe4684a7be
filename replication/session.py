"""What a leader knows of a follower on one connection. It ends with the connection."""

from .effects import Connection
from .epochs import EpochEnd
from .messages import Position
from .partition_log import Partition
from .settings import Member


class Session:
    """A follower's confirmations on one connection, and what it is to be told."""

    __slots__ = (
        "behind",
        "changed",
        "connection",
        "diverging",
        "ends",
        "fetched_s",
        "goals",
        "member",
        "starts",
        "sync_goals",
        "synced",
        "unplaced",
        "unsynced",
        "waits",
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
        self.unplaced: dict[Partition, Position] = {}
        """Positions in partitions that the leader does not have yet."""
        self.behind = partitions
        """Partitions in which it is not at the leader's end."""
        self.goals: dict[Partition, int] = {}
        """The leader's ends at the last fetch, where it was behind."""
        self.unsynced: set[Partition] = set()
        """Partitions in which somebody waits for a sync that it has not confirmed."""
        self.sync_goals: dict[Partition, int] = {}
        """Up to where it was to sync at the last fetch, where it had not."""
        self.changed: set[Partition] = set()
        """Partitions of which there is something to tell."""
        self.waits = False
        """Whether a fetch waits for an answer."""
        self.fetched_s: float | None = None

    def forget(self, partition: Partition) -> None:
        """A partition was deleted."""
        for known in (self.ends, self.synced, self.diverging, self.starts, self.goals):
            known.pop(partition, None)
        self.unplaced.pop(partition, None)
        self.behind.discard(partition)
        self.unsynced.discard(partition)
        self.changed.discard(partition)

    def measure(
        self, now_s: float, leader_ends: dict[Partition, int], wanted_syncs: dict[Partition, int]
    ) -> float | None:
        """Note a fetch; the latest time of which it is known that it was at the end then.

        Kafka's measure: now, if it is at the end; the time of the fetch before, if it is now where
        the end was then. At the end is who has synced what somebody waits for, too: a disk that
        takes messages and never syncs them would hold up `acks=all` for ever.
        """
        before = self.fetched_s
        self.fetched_s = now_s
        goals, sync_goals = self.goals, self.sync_goals
        self.goals, self.sync_goals = leader_ends, wanted_syncs
        if not self.behind and not self.unsynced:
            return now_s
        reached = (
            before is not None
            and all(self.ends.get(it, -1) >= goals.get(it, -1) for it in self.behind)
            and all(self.synced.get(it, -1) >= sync_goals.get(it, -1) for it in self.unsynced)
        )
        return before if reached else None
