"""How much memory the producers of all logs may take together, and what they take."""

from collections.abc import Iterator

import pytest

from horolog.protocol.errors import PolicyViolation
from horolog.protocol.records.batch import finish_batch
from horolog.protocol.records.kernel import RecordEncoder
from horolog.protocol.records.layout import SELF_CHOSEN
from horolog.storage.producers.producer_states import (
    BATCH_BYTES,
    PRODUCER_BYTES,
    REMEMBERED_BATCHES,
    ProducerBatch,
    ProducerStates,
)
from horolog.storage.seams import LOOK_SECONDS, QUIET_MS, ProducerBudget
from horolog.testing.clock import ManualClock
from horolog.testing.logs import LogFolder, by_set
from horolog.tests.weights import memory_of

ONE_BYTES = PRODUCER_BYTES + BATCH_BYTES


def batch(producer_id: int, sequence: int = 0) -> bytearray:
    encoder = RecordEncoder()
    encoder.add(b"v", None, 1_479_144_272_509, ())
    return finish_batch(encoder, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def room_for(folder: LogFolder, count: int) -> ProducerBudget:
    """Room for so many producers with a batch each."""
    folder.producer_room = ProducerBudget(folder.clock, count * ONE_BYTES)
    return folder.producer_room


@pytest.fixture
def other(folder: LogFolder) -> Iterator[LogFolder]:
    """A second log of the same broker."""
    other = LogFolder(folder.path.parent / "t-1")
    other.clock = folder.clock
    yield other
    other.let_go()


@pytest.mark.usefixtures("fast_path")
def test_one_producer_too_many_is_refused_in_whichever_log(
    folder: LogFolder, other: LogFolder
) -> None:
    room = other.producer_room = room_for(folder, 3)
    folder.open()
    other.open()
    folder.log.appender.append(batch(1))
    folder.log.appender.append(batch(2 | SELF_CHOSEN))
    other.log.appender.append(batch(1))
    assert room.used_bytes == 3 * ONE_BYTES
    for each in (folder, other):
        log, before = each.log, each.log.log_end_offset
        assert each.usual([batch(9)]) == 0
        assert each.usual([batch(1, 1), batch(9)]) == 1
        assert each.usual([batch(8), batch(9)]) == 0
        with pytest.raises(PolicyViolation) as refused:
            log.appender.append(batch(9))
        assert f"max.producer.states.bytes={3 * ONE_BYTES}" in refused.value.message
        assert f"take {3 * ONE_BYTES} bytes" in refused.value.message
        assert log.log_end_offset == before
    for sequence in range(1, 10):
        assert folder.log.appender.append(batch(1, sequence)).count == 1, "who is known goes on"
    assert folder.log.appender.append(batch(1, 9)).repeated
    assert room.used_bytes == 3 * ONE_BYTES, "a full room takes no more batches either"


@pytest.mark.usefixtures("fast_path")
def test_several_new_producers_together_take_no_more_than_there_is(folder: LogFolder) -> None:
    room = room_for(folder, 3)
    log = folder.open()
    log.appender.append(batch(1))
    assert folder.usual([batch(2), batch(3), batch(4)]) == 2
    outcomes = by_set(log.appender.append_sets([batch(2), batch(3), batch(4)]))
    assert [isinstance(outcome, PolicyViolation) for outcome in outcomes] == [False, False, True]
    assert room.used_bytes == 3 * ONE_BYTES


def test_silent_producers_make_room_in_every_log(folder: LogFolder, other: LogFolder) -> None:
    room = other.producer_room = room_for(folder, 3)
    folder.open()
    other.open()
    other.log.appender.append(batch(1))
    folder.log.appender.append(batch(2))
    folder.clock.advance(QUIET_MS)
    folder.log.appender.append(batch(3))
    with pytest.raises(PolicyViolation):
        folder.log.appender.append(batch(4))
    folder.clock.advance(1)
    with pytest.raises(PolicyViolation):
        folder.log.appender.append(batch(4))  # the logs were looked at a moment ago
    folder.clock.advance(int(LOOK_SECONDS * 1000))
    folder.log.appender.append(batch(4))
    assert room.used_bytes == 2 * ONE_BYTES
    assert [one for one, _ in folder.log.producers.states.items()] == [3, 4]
    assert len(other.log.producers.states) == 0


def test_a_log_that_goes_makes_room(folder: LogFolder, other: LogFolder) -> None:
    room = other.producer_room = room_for(folder, 2)
    folder.open()
    other.open()
    folder.log.appender.append(batch(1))
    other.log.appender.append(batch(1))
    folder.log.truncate_fully(7)
    assert room.used_bytes == ONE_BYTES
    folder.log.appender.append(batch(2))
    other.log.abandon()
    assert room.used_bytes == ONE_BYTES
    folder.log.close()
    assert room.used_bytes == 0


def test_more_producers_than_there_is_room_for_are_known_after_a_restart(
    folder: LogFolder,
) -> None:
    folder.open()
    for producer_id in range(5):
        folder.log.appender.append(batch(producer_id))
    folder.log.close()
    room = room_for(folder, 3)
    log = folder.open()
    assert room.used_bytes == 5 * ONE_BYTES
    assert log.appender.append(batch(4)).repeated
    assert log.appender.append(batch(4, 1)).count == 1
    with pytest.raises(PolicyViolation):
        log.appender.append(batch(9))


def test_a_failed_write_takes_no_room(folder: LogFolder) -> None:
    room = room_for(folder, 100)
    log = folder.open()
    log.appender.append(batch(1))
    folder.files.fail("pwrite", 28, name=".log")
    log.appender.append_sets([batch(1, 1), batch(2)])
    assert room.used_bytes == ONE_BYTES


@pytest.mark.parametrize("batches", [1, 3, REMEMBERED_BATCHES, REMEMBERED_BATCHES + 3])
@pytest.mark.parametrize("producers", [500, 5000])
def test_what_is_counted_covers_the_memory(batches: int, producers: int) -> None:
    room = ProducerBudget(ManualClock())

    def made() -> ProducerStates:
        nonlocal room
        room = ProducerBudget(ManualClock())
        states = ProducerStates()
        states.enter(room)
        for number in range(batches):
            for producer in range(producers):
                # Each number anew, as from a decoder.
                sent = ProducerBatch(
                    1_000 * number, 1_000, 10**12 + producer + number, 10**12 + number
                )
                states.add(10**15 + producer, 300, sent, 10**12 + producer)
        return states

    taken, _ = memory_of(made, lambda _: room.used_bytes * 1.1)
    kept = min(batches, REMEMBERED_BATCHES)
    assert room.used_bytes == producers * (PRODUCER_BYTES + BATCH_BYTES * kept)
    assert room.used_bytes / 2 < taken < room.used_bytes * 1.1
