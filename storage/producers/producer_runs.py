"""Batches that came together, by the producers that number them.

Usually a producer's batches go on one behind the other and none is a retry. Then they are one run,
of which the first batch has to be judged and the last few have to be remembered.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...protocol.errors import HorologError
from .producer_states import REMEMBERED_BATCHES, SEQUENCES, ProducerStates, SentBatch

NumberedSet = tuple[int, int, int, int, int]
"""Which of the sets it is, producer id, epoch, sequence number of the first message, messages."""


class ProducerRun(NamedTuple):
    """What one producer sent."""

    producer_id: int
    epoch: int
    last: list[SentBatch]
    """Its last batches, as many as are remembered at most."""


def producer_runs(
    numbered: Sequence[NumberedSet],
    first_offsets: Sequence[int],
    append_time_ms: int,
    states: ProducerStates,
) -> list[ProducerRun] | None:
    """The runs of sets with these offsets, in the order in which they end.

    `None` when a set is a retry, or is to be refused, or does not go on where the one before it
    ended: they have to be judged one by one.
    """
    by_producer: dict[int, list[NumberedSet]] = {}
    new = 0
    for one in numbered:
        _, producer_id, epoch, sequence, messages = one
        run = by_producer.pop(producer_id, None)
        if run is None:
            if not _is_due(states, producer_id, epoch, sequence, messages):
                return None
            new += states.get(producer_id) is None
            run = []
        else:
            _, _, epoch_before, sequence_before, messages_before = run[-1]
            due = (sequence_before + messages_before) % SEQUENCES
            if epoch != epoch_before or sequence != due:
                return None
        run.append(one)
        by_producer[producer_id] = run
    if new > 1 and not states.has_room_for(new):
        return None
    return [
        ProducerRun(
            producer_id,
            run[0][2],
            [
                SentBatch(sequence, messages, first_offsets[number], append_time_ms)
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
