"""Batches that came together, by the producers that number them.

Usually a producer's batches go on one behind the other and none is a retry. Then they are one run,
of which the first batch has to be judged and the last few have to be remembered.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...protocol.errors import HorologError
from .producer_states import REMEMBERED_BATCHES, SEQUENCES, ProducerBatch, ProducerStates

NumberedSet = tuple[int, int, int, int, int]
"""Which of some sets it is, producer id, epoch, sequence number of the first message, messages: as
`producer_numbers` has them."""


class ProducerRun(NamedTuple):
    """What one producer sent."""

    producer_id: int
    epoch: int
    last: Sequence[ProducerBatch]
    """Its last batches, as many as are remembered at most."""


def sets_in_turn(numbered: Sequence[NumberedSet], states: ProducerStates) -> int:
    """How many of these sets, from the first on, need not be judged one by one.

    One that does is a retry, or is to be refused, or does not go on where the one before it ended;
    or nothing is known of its producer, for which there is no room beside another's.
    """
    last: dict[int, NumberedSet] = {}
    new = 0
    for place, one in enumerate(numbered):
        _, producer_id, epoch, sequence, messages = one
        before = last.get(producer_id)
        if before is not None:
            _, _, epoch_before, sequence_before, messages_before = before
            due = (sequence_before + messages_before) % SEQUENCES
            if epoch != epoch_before or sequence != due:
                return place
        elif not _is_due(states, producer_id, epoch, sequence, messages):
            return place
        elif states.get(producer_id) is None:
            new += 1
            if new > 1 and not states.has_room_for(new):
                return place
        last[producer_id] = one
    return len(numbered)


def producer_runs(
    numbered: Sequence[NumberedSet], first_offsets: Sequence[int], append_time_ms: int
) -> list[ProducerRun]:
    """The runs of the sets in turn that have these offsets, in the order in which they end."""
    by_producer: dict[int, list[NumberedSet]] = {}
    for one in numbered:
        number, producer_id, *_ = one
        if number < len(first_offsets):
            run = by_producer.pop(producer_id, [])
            run.append(one)
            by_producer[producer_id] = run
    return [
        ProducerRun(
            producer_id,
            run[0][2],
            [
                ProducerBatch(sequence, messages, first_offsets[number], append_time_ms)
                for number, _, _, sequence, messages in run[-REMEMBERED_BATCHES:]
            ],
        )
        for producer_id, run in by_producer.items()
    ]


def _is_due(
    states: ProducerStates, producer_id: int, epoch: int, sequence: int, messages: int
) -> bool:
    try:
        return states.check(producer_id, epoch, sequence, messages) is None
    except HorologError:
        return False
