"""A leader with a follower in sync, and what they say to each other."""

from horolog.protocol.api.cluster.replicate import (
    Answers,
    ReplicaPosition,
    ReplicatedPart,
    ReplicateRequest,
    ReplicateResponse,
    Says,
)
from horolog.replication.cluster_state import ClusterState
from horolog.replication.effects import Effect, Send
from horolog.replication.in_sync import InSyncReplicas
from horolog.replication.leader import Leader
from horolog.replication.messages import hello_of
from horolog.replication.settings import Incarnation, Member, ReplicationSettings
from horolog.testing.simulation.by_hand import HandOracle
from horolog.testing.simulation.disk import DATA, SimulatedDirectory, SimulatedLog

ME, OTHER = Member(1, 11), Member(2, 22)
SETTINGS = ReplicationSettings(sync_for_acks_all=False)
CONNECTION = "a connection"


def position(end: int, epoch: int) -> ReplicaPosition:
    return ReplicaPosition(
        topic=DATA[0],
        partition=DATA[1],
        end_offset=end,
        last_epoch=epoch,
        synced_offset=0,
        log_start_offset=0,
    )


def said(
    says: Says, positions: list[ReplicaPosition], *, epoch: int = 1, ahead: bool = False
) -> ReplicateRequest:
    return ReplicateRequest(says=says, connection=0, epoch=epoch, positions=positions, ahead=ahead)


def response(answers: Answers, epoch: int) -> ReplicateResponse:
    return ReplicateResponse(answers=answers, epoch=epoch, broker_id=1)


class Led:
    """A leader of one partition with a follower in sync, and what it wants done."""

    def __init__(self, epoch: int = 1, count: int = 0) -> None:
        """The log begins with `count` messages of the epoch before."""
        directory = SimulatedDirectory(1, HandOracle(), {})
        directory.add(DATA)
        self.epoch = epoch
        self.log: SimulatedLog = directory.logs[DATA]
        if count:
            self.log.begin_epoch(epoch - 1, 0)
        for number in range(count):
            self.log.append((epoch - 1, "writer", number), 0)
        self.effects: list[Effect] = []
        isr = InSyncReplicas(ClusterState(epoch, Incarnation(1, 1), frozenset({ME, OTHER})), 1)
        self.leader = Leader(ME, epoch, isr, directory.logs, SETTINGS, 0.0, self.effects)
        self.leader.start()
        self.connect()
        self.fetch(count, epoch - 1 if count else -1)
        self.fetch()
        self.effects.clear()

    def connect(self) -> None:
        """The follower says hello on a new connection."""
        self.leader.greeted(CONNECTION, hello_of(OTHER, self.epoch, self.epoch, {}), {})
        self.effects.clear()

    def append(self, token: str) -> None:
        first = self.log.log_end_offset
        self.leader.begin_append(DATA)
        self.log.append((self.epoch, "writer", first), 0)
        self.leader.appended(DATA, first, first + 1, token)

    def fetch(self, end: int | None = None, epoch: int = 1, *, ahead: bool = False) -> None:
        """The follower asks for what follows `end`, or for what follows."""
        told = [] if end is None else [position(end, epoch)]
        self.leader.fetched(0.0, CONNECTION, said(Says.FETCH, told, epoch=self.epoch, ahead=ahead))

    def confirm(self, end: int, epoch: int) -> None:
        told = [position(end, epoch)]
        self.leader.confirmed(CONNECTION, said(Says.CONFIRM, told, epoch=self.epoch))

    def parts(self) -> list[ReplicatedPart]:
        """Those that were sent to the follower since this was asked last."""
        sent = [one.message for one in self.effects if isinstance(one, Send)]
        self.effects.clear()
        return [
            part
            for one in sent
            if isinstance(one, ReplicateResponse) and one.answers == Answers.FETCHED
            for part in one.parts
        ]

    def watermarks(self) -> list[int]:
        """Those that the follower was told since this was asked last."""
        return [part.high_watermark for part in self.parts()]
