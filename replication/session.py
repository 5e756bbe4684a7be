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
        "marks",
        "member",
        "more",
        "sent",
        "starts",
        "synced",
        "unplaced",
        "unsynced_bytes",
        "unsure",
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
        self.marks: list[tuple[float, dict[Partition, int]]] = []
        """The last fetches, newest first: when, and the leader's ends where it was behind. Two,
        because of what is fetched ahead the last answer is confirmed after the next fetch."""
        self.sent: dict[Partition, int] = {}
        """Where what it was sent ends, since it last fetched without being ahead."""
        self.unsure: dict[Partition, int] = {}
        """The same, where that is not known exactly: where it begins. Nothing more is sent until it
        is confirmed."""
        self.more: set[Partition] = set()
        """Partitions of which there was more than was sent last."""
        self.unsynced_bytes = 0
        """What it was sent since it was told to sync."""
        self.changed: set[Partition] = set()
        """Partitions of which there is something to tell."""
        self.waits = False
        """Whether a fetch waits for an answer."""
        self.fetched_s: float | None = None

    def forget(self, partition: Partition) -> None:
        """A partition was deleted."""
        for known in (self.ends, self.synced, self.diverging, self.starts, self.sent, self.unsure):
            known.pop(partition, None)
        for _, goals in self.marks:
            goals.pop(partition, None)
        self.more.discard(partition)
        self.unplaced.pop(partition, None)
        self.behind.discard(partition)
        self.changed.discard(partition)

    def measure(self, now_s: float, leader_ends: dict[Partition, int]) -> float | None:
        """Note a fetch; the latest time of which it is known that it was at the end then.

        Kafka's measure: now, if it is at the end; the time of a fetch before, if it is now where
        the end was then.
        """
        self.fetched_s = now_s
        if not self.behind:
            self.marks = [(now_s, {})]
            return now_s
        ends, reached_s = self.ends, None
        for before_s, goals in self.marks:
            if all(ends.get(one, -1) >= goals.get(one, -1) for one in self.behind):
                reached_s = before_s
                break
        self.marks = [(now_s, leader_ends), *self.marks[:1]]
        return reached_s

    def goes_on_at(self, partition: Partition) -> int | None:
        """Where it is to be sent more from; `None` where it is not known to agree."""
        end = self.ends.get(partition)
        return None if end is None else max(end, self.sent.get(partition, end))
