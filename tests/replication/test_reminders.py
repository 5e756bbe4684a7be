"""A watermark that moved: it goes with messages, or a little later, and never gets lost."""

import pytest

from horolog.protocol.api.cluster.replicate import Answers, EpochBegin, ReplicatedPart
from horolog.replication.effects import Answer, Close, Effect, Outcome, Remind, Send
from horolog.replication.follower import Follower
from horolog.storage.log.epoch_history import EpochHistory, EpochStart
from horolog.storage.replica.copy_facts import Stored
from horolog.testing.simulation.by_hand import HandOracle
from horolog.testing.simulation.disk import DATA, METADATA, TOPIC, SentStretch, SimulatedDirectory

from .led import CONNECTION, SETTINGS, Led, response


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
    led.confirm(1, 1)
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
