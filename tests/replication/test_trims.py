"""A trim deletes messages while positions of a follower are on their way."""

import pytest

from horolog.storage.log.epoch_history import NO_EPOCH
from horolog.testing.simulation.disk import DATA, SimulatedLog

from .led import CONNECTION, Led

ends = pytest.mark.parametrize("end", [1, 2, 3])


def trimmed_led(end: int) -> Led:
    """A leader of epoch 2 whose log began with three messages of epoch 1, and that sent all after
    `end` to a follower. Only the fourth message is left."""
    led = Led(epoch=2, count=3)
    led.connect()
    led.fetch(end, 1)
    led.fetch(ahead=True)
    led.append("fourth")
    led.log.raise_log_start(3)
    led.leader.trimmed(DATA, None)
    led.effects.clear()
    return led


@ends
def test_a_follower_that_agreed_is_not_emptied(end: int) -> None:
    """Its last epoch is gone with the messages below the log start."""
    led = trimmed_led(end)
    assert led.leader.sessions[CONNECTION].goes_on_at(DATA) == 4
    for position in ((end, 1), (3, 1), (4, 2)):
        led.confirm(*position)
        led.fetch(ahead=True)
        assert not any(part.diverging or part.stored for part in led.parts())
    assert led.leader.sessions[CONNECTION].ends[DATA] == 4


@pytest.mark.parametrize("end", [1, 2])
def test_a_follower_that_was_sent_messages_whose_end_is_not_known_is_not_emptied(
    end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SimulatedLog.read_stored
    with monkeypatch.context() as patch:
        patch.setattr(
            SimulatedLog, "read_stored", lambda *given: read(*given)._replace(exact=False)
        )
        led = trimmed_led(end)
    assert led.leader.sessions[CONNECTION].goes_on_at(DATA) == end
    led.confirm(3, 1)
    led.fetch()
    assert not any(part.diverging for part in led.parts())
    assert led.leader.sessions[CONNECTION].ends[DATA] == 3
    assert led.leader.sessions[CONNECTION].goes_on_at(DATA) == 4


def test_a_position_above_the_log_start_has_the_epoch_of_the_leader() -> None:
    led = trimmed_led(3)
    led.confirm(4, 1)
    led.fetch(ahead=True)
    assert any(part.diverging for part in led.parts())


@ends
def test_a_follower_that_could_not_append_what_was_sent_goes_on_at_the_log_start(end: int) -> None:
    led = trimmed_led(end)
    led.fetch(end, 1)
    if end < 3:
        (part,) = led.parts()
        assert (part.log_start_offset, part.diverging, part.stored) == (3, [], None)
        assert part.producer_state is not None
        led.fetch(3, NO_EPOCH)
    (part,) = led.parts()
    assert part.stored is not None
    assert part.stored.next_offset == 4


def test_a_follower_of_another_connection_is_asked_to_begin_anew() -> None:
    led = trimmed_led(3)
    led.connect()
    led.fetch(3, 1)
    (part,) = led.parts()
    assert [(one.epoch, one.offset) for one in part.diverging] == [(NO_EPOCH, 3)]
