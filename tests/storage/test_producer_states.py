"""What a log knows of producers that number their batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.errors import (
    DuplicateSequenceNumber,
    HorologError,
    InvalidProducerEpoch,
    OutOfOrderSequenceNumber,
)
from horolog.protocol.records.layout import SELF_CHOSEN
from horolog.storage.producers.producer_states import (
    REMEMBERED_BATCHES,
    SEQUENCES,
    AbortedSpan,
    ProducerBatch,
    ProducerStates,
)

ID = 7


class Sender:
    """One producer and the log it sends to."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.next_offset = 100

    def send(self, sequence: int, count: int = 1, *, epoch: int = 0) -> ProducerBatch | None:
        """Store a batch unless it is a retry, which is returned then."""
        found = self.states.check(ID, epoch, sequence, count)
        if found is None:
            batch = ProducerBatch(sequence, count, self.next_offset, -1)
            self.states.add(ID, epoch, batch, seen_ms=0)
            self.next_offset += count
        return found

    def refusal(self, sequence: int, count: int = 1, *, epoch: int = 0) -> type[HorologError]:
        with pytest.raises(HorologError) as refused:
            self.send(sequence, count, epoch=epoch)
        assert str(ID) in refused.value.message
        return type(refused.value)


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_batches_that_follow_each_other_are_stored(sender: Sender) -> None:
    assert [sender.send(0, 3), sender.send(3, 1), sender.send(4, 10)] == [None] * 3


def test_a_retry_is_answered_with_the_offset_it_got(sender: Sender) -> None:
    for number in range(REMEMBERED_BATCHES):
        sender.send(2 * number, 2)
    for number in range(REMEMBERED_BATCHES):
        assert sender.send(2 * number, 2) == ProducerBatch(2 * number, 2, 100 + 2 * number, -1)
    assert sender.send(2 * REMEMBERED_BATCHES) is None


def test_an_older_retry_is_known_to_be_stored_but_not_where(sender: Sender) -> None:
    for number in range(REMEMBERED_BATCHES + 1):
        sender.send(2 * number, 2)
    assert sender.refusal(0, 2) is DuplicateSequenceNumber
    assert DuplicateSequenceNumber.code == 46


def test_a_missing_batch_is_told(sender: Sender) -> None:
    sender.send(0, 2)
    assert sender.refusal(3) is OutOfOrderSequenceNumber
    assert OutOfOrderSequenceNumber.code == 45
    assert sender.send(2) is None


def test_a_batch_with_old_and_new_messages_is_refused(sender: Sender) -> None:
    sender.send(0, 2)
    assert sender.refusal(1, 2) is OutOfOrderSequenceNumber
    assert sender.refusal(1, 1) is DuplicateSequenceNumber


def test_an_older_epoch_is_refused(sender: Sender) -> None:
    sender.send(0, epoch=3)
    assert sender.refusal(1, epoch=2) is InvalidProducerEpoch
    assert InvalidProducerEpoch.code == 47


def test_a_new_epoch_begins_at_0(sender: Sender) -> None:
    sender.send(0, 5)
    assert sender.refusal(5, epoch=1) is OutOfOrderSequenceNumber
    assert sender.send(0, epoch=1) is None
    assert sender.send(0, epoch=1) == ProducerBatch(0, 1, 105, -1)
    assert sender.refusal(0, 5) is InvalidProducerEpoch


def test_an_unknown_producer_may_begin_anywhere(sender: Sender) -> None:
    assert sender.send(17, 2) is None
    assert sender.send(19) is None


def test_sequence_numbers_begin_anew_after_the_largest(sender: Sender) -> None:
    sender.send(SEQUENCES - 2, 1)
    assert sender.send(SEQUENCES - 1, 3) is None
    assert sender.send(2, 2) is None
    assert sender.send(SEQUENCES - 1, 3) == ProducerBatch(SEQUENCES - 1, 3, 101, -1)
    assert sender.refusal(SEQUENCES - 3) is DuplicateSequenceNumber
    assert sender.refusal(5) is OutOfOrderSequenceNumber


@given(
    first=st.sampled_from([0, 1, 50, SEQUENCES - 5, SEQUENCES - 1]),
    steps=st.lists(st.tuples(st.integers(-12, 6), st.integers(1, 3)), max_size=40),
)
def test_every_message_is_stored_once_and_in_its_place(
    first: int, steps: list[tuple[int, int]]
) -> None:
    """Whatever a producer sends again or leaves out, against a plain list."""
    sender = Sender()
    stored: list[tuple[int, int]] = []
    sender.send(first, 2)
    stored.append((0, 2))
    for distance, count in steps:
        due = stored[-1][0] + stored[-1][1]
        at = max(due + distance, 0)
        sequence = (first + at) % SEQUENCES
        if at == due:
            assert sender.send(sequence, count) is None
            stored.append((at, count))
        elif (at, count) in stored[-REMEMBERED_BATCHES:]:
            found = sender.send(sequence, count)
            assert found == ProducerBatch(sequence, count, 100 + at, -1)
        elif at + count <= due:
            assert sender.refusal(sequence, count) is DuplicateSequenceNumber
        else:
            assert sender.refusal(sequence, count) is OutOfOrderSequenceNumber
    assert sender.next_offset == 100 + sum(count for _, count in stored)


def test_what_could_not_be_written_is_taken_back(sender: Sender) -> None:
    sender.send(0)
    before = sender.states.add(ID, 0, ProducerBatch(1, 1, 101, -1), seen_ms=5)
    sender.states.put_back(ID, before)
    assert sender.send(1) is None
    new = sender.states.add(8, 0, ProducerBatch(0, 1, 102, -1), seen_ms=5)
    sender.states.put_back(8, new)
    assert sender.states.get(8) is None


def test_silent_producers_are_forgotten() -> None:
    states = ProducerStates()
    for producer_id, seen_ms in ((1, 0), (2, 500), (3, 1000)):
        states.add(producer_id, 0, ProducerBatch(0, 1, 0, -1), seen_ms)
    assert states.expire(1500, 1000) == 1
    assert [producer_id for producer_id, _ in states.items()] == [2, 3]
    assert states.expire(1500, 1000) == 0


def test_there_are_never_more_than_the_limit() -> None:
    states = ProducerStates()
    for producer_id in range(5):
        states.add(producer_id, 0, ProducerBatch(0, 1, producer_id, -1), 0)
    states.add(0, 0, ProducerBatch(1, 1, 5, -1), 0)
    assert states.keep(5) == 0
    assert states.keep(3) == 2
    assert [producer_id for producer_id, _ in states.items()] == [3, 4, 0]


def test_self_chosen_ids_push_out_no_others() -> None:
    states = ProducerStates()
    states.add(7, 0, ProducerBatch(0, 1, 0, -1), 0)
    for number in range(5):
        states.add(SELF_CHOSEN | number, 0, ProducerBatch(0, 1, 1 + number, -1), 0)
        states.keep(3)
    assert [producer_id for producer_id, _ in states.items()] == [
        7,
        *(SELF_CHOSEN | number for number in (2, 3, 4)),
    ]
    assert len(states) == 4
    assert states.get(SELF_CHOSEN | 4) == states.copy().get(SELF_CHOSEN | 4)
    assert states.expire(10, 5) == 4
    assert not len(states)


def test_transactions_open_end_and_abort() -> None:
    states = ProducerStates()
    assert states.open_offset is None
    states.add(1, 0, ProducerBatch(0, 2, 10, -1), 0, opens=True)
    states.add(2, 0, ProducerBatch(0, 2, 12, -1), 0, opens=True)
    states.add(1, 0, ProducerBatch(2, 2, 14, -1), 0, opens=True)
    assert states.open_offset == 10
    assert states.expire(10**9, 1) == states.keep(1) == 0  # they have not ended
    states.end_transaction(1, 0, 16, 0, aborted=True)
    assert states.open_offset == 12
    states.end_transaction(2, 0, 17, 0, aborted=False)
    assert states.open_offset is None
    aborted = [AbortedSpan(1, 10, 16)]
    assert states.aborted_between(0, 100) == states.aborted_between(16, 17) == aborted
    assert states.aborted_between(17, 100) == states.aborted_between(0, 10) == []
    assert states.check(1, 0, 4, 1) is None  # the numbers go on behind a transaction
    states.forget_below(17)
    assert states.aborted == []


def test_transactions_that_nobody_can_end_are_aborted() -> None:
    states = ProducerStates()
    for producer_id in (1, 2, 3):
        states.add(
            producer_id, 0, ProducerBatch(0, 2, 10 + producer_id, -1), 0, opens=producer_id > 1
        )
    states.end_transaction(2, 0, 20, 0, aborted=True)
    states.add(2, 0, ProducerBatch(2, 1, 21, -1), 7, opens=True)
    given_up = [AbortedSpan(3, 13, 30), AbortedSpan(2, 21, 30)]
    assert states.abort_open(30) == given_up
    assert states.open_offset is None
    assert states.abort_open(31) == []
    assert states.aborted_between(0, 100) == [AbortedSpan(2, 12, 20), *given_up]
    assert [producer_id for producer_id, _ in states.items()] == [1, 3, 2]
    assert states.check(2, 0, 3, 1) is None
    assert states.expire(8, 7) == 2
    states.add(3, 0, ProducerBatch(0, 1, 40, -1), 0, opens=True)
    assert states.open_offset == 40


def test_those_that_sent_last_are_named_first() -> None:
    states = ProducerStates()
    for seen_ms, number in enumerate((1, 2 | SELF_CHOSEN, 3, 4 | SELF_CHOSEN, 1)):
        states.add(number, 0, ProducerBatch(7, 3, 10 * seen_ms, -1), seen_ms)
    newest = states.newest(3)
    assert [number for number, _ in newest] == [1, 4 | SELF_CHOSEN, 3]
    assert [each.batches[-1].last_sequence for _, each in newest] == [9, 9, 9]
    assert len(states.newest(9)) == 4
