"""A watermark that moved: it goes with messages, or a little later, and never gets lost."""

import pytest

from horolog.protocol.api.cluster.replicate import (
    Answers,
    EpochBegin,
    ReplicaPosition,
    ReplicatedPart,
    ReplicateRequest,
    ReplicateResponse,
    Says,
)
from horolog.replication.cluster_state import ClusterState
from horolog.replication.effects import Answer, Close, Effect, Outcome, Remind, Send
from horolog.replication.follower import Follower
from horolog.replication.in_sync import InSyncReplicas
from horolog.replication.leader import Leader
from horolog.replication.messages import hello_of
from horolog.replication.settings import Incarnation, Member, ReplicationSettings
from horolog.storage.log.epoch_history import EpochHistory, EpochStart
from horolog.storage.replica.copy_facts import Stored
from horolog.testing.simulation.by_hand import HandOracle
from horolog.testing.simulation.disk import (
    DATA,
    METADATA,
    TOPIC,
    SentStretch,
    SimulatedDirectory,
    SimulatedLog,
)

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


def said(says: Says, positions: list[ReplicaPosition]) -> ReplicateRequest:
    return ReplicateRequest(says=says, connection=0, epoch=1, positions=positions)


def response(answers: Answers, epoch: int) -> ReplicateResponse:
    return ReplicateResponse(answers=answers, epoch=epoch, broker_id=1)


class Led:
    """A leader of one partition with a follower in sync, and what it wants done."""

    def __init__(self) -> None:
        directory = SimulatedDirectory(1, HandOracle(), {})
        directory.add(DATA)
        self.log: SimulatedLog = directory.logs[DATA]
        self.effects: list[Effect] = []
        isr = InSyncReplicas(ClusterState(1, Incarnation(1, 1), frozenset({ME, OTHER})), 1)
        self.leader = Leader(ME, 1, isr, directory.logs, SETTINGS, 0.0, self.effects)
        self.leader.start()
        self.leader.greeted(CONNECTION, hello_of(OTHER, 1, 1, {}), {})
        self.fetch(0, -1)
        self.fetch()
        self.effects.clear()

    def append(self, token: str) -> None:
        first = self.log.log_end_offset
        self.leader.begin_append(DATA)
        self.log.append((1, "writer", first), 0)
        self.leader.appended(DATA, first, first + 1, token)

    def fetch(self, end: int | None = None, epoch: int = 1) -> None:
        """The follower asks for what follows `end`, or for what follows."""
        told = [] if end is None else [position(end, epoch)]
        self.leader.fetched(0.0, CONNECTION, said(Says.FETCH, told))

    def watermarks(self) -> list[int]:
        """Those that the follower was told since this was asked last."""
        sent = [one.message for one in self.effects if isinstance(one, Send)]
        self.effects.clear()
        return [
            part.high_watermark
            for one in sent
            if isinstance(one, ReplicateResponse) and one.answers == Answers.FETCHED
            for part in one.parts
        ]


def test_a_watermark_alone_answers_no_fetch() -> None:
    led = Led()
    led.append("first")
    assert led.watermarks() == [0]
    led.fetch(1)
    assert Answer("first", Outcome.DONE) in led.effects
    assert led.effects.count(Remind()) == 1
    assert led.watermarks() == []


def test_it_goes_with_the_next_messages() -> None:
    led = Led()
    led.append("first")
    led.fetch(1)
    led.watermarks()
    led.append("second")
    assert led.watermarks() == [1]


def test_without_messages_it_goes_with_the_reminder() -> None:
    led = Led()
    led.append("first")
    led.fetch(1)
    led.watermarks()
    led.leader.reminded()
    assert led.watermarks() == [1]
    led.fetch()
    assert led.effects == []
    led.leader.reminded()
    assert led.effects == []


def test_a_reminder_waits_once_more_where_messages_came() -> None:
    led = Led()
    led.append("first")
    led.fetch(1)
    led.append("second")
    led.fetch(2)
    led.watermarks()
    led.leader.reminded()
    assert led.effects == [Remind()]
    led.effects.clear()
    led.leader.reminded()
    assert led.watermarks() == [2]


def test_a_follower_that_did_not_wait_is_reminded_after_its_fetch() -> None:
    led = Led()
    led.append("first")
    led.watermarks()
    led.leader.confirmed(CONNECTION, said(Says.CONFIRM, [position(1, 1)]))
    assert led.effects.count(Remind()) == 1
    led.effects.clear()
    led.leader.reminded()
    assert led.effects == []
    led.fetch()
    assert led.effects == [Remind()]
    led.effects.clear()
    led.leader.reminded()
    assert led.watermarks() == [1]


def test_an_heir_is_asked_at_once() -> None:
    led = Led()
    led.leader.answer(1)
    assert led.effects == []
    led.leader.answer(2)
    assert led.effects == [Send(CONNECTION, response(Answers.FETCHED, 1))]


@pytest.mark.parametrize("was_cut", [True, False])
def test_a_topic_that_comes_back_after_a_cut_begins_a_new_connection(was_cut: bool) -> None:
    """What the leader knows of it is of a log that went with metadata that were cut."""
    directory = SimulatedDirectory(2, HandOracle(), {})
    for partition in (METADATA, DATA, TOPIC):
        directory.add(partition)
    directory.logs[METADATA].entries = [(1, "topic", 0)]
    directory.logs[METADATA].epochs = EpochHistory((EpochStart(1, 0),))
    directory.logs[TOPIC].entries = [(1, 2, 0)]
    effects: list[Effect] = []
    follower = Follower(directory, 1, 2, SETTINGS, effects, begins_anew=lambda: None)
    follower.connected(0.0, CONNECTION)
    follower.welcomed(0.0, response(Answers.WELCOME, 2))
    effects.clear()
    diverging = [EpochBegin(epoch=0, offset=0)] if was_cut else []
    stored = None if was_cut else Stored(SentStretch([(2, "position", 0)], [0], []), 2, 1)
    fetched = response(Answers.FETCHED, 2)
    fetched.parts = [
        ReplicatedPart(
            topic=METADATA[0],
            partition=METADATA[1],
            diverging=diverging,
            epochs=[EpochBegin(epoch=2, offset=1)],
            log_start_offset=0,
            first_visible_offset=0,
            high_watermark=0,
            sync_to=0,
        )
    ]
    fetched.parts[0].stored = stored
    follower.fetched(0.0, fetched)
    assert (TOPIC in directory.logs) is not was_cut
    directory.logs.pop(TOPIC, None)
    directory.add(TOPIC)
    follower.add_partition(TOPIC)
    assert (Close(CONNECTION) in effects) is was_cut
    assert (follower.connection is None) is was_cut
