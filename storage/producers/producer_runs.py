"""Batches that came together, by the producers that number them.

Usually a producer's batches go on one behind the other and none is a retry. Then they are one run,
of which the first batch has to be judged and the last few have to be remembered.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ...protocol.errors import HorologError
from ...protocol.records.layout import (
    BATCH_OVERHEAD,
    MAGIC_AT,
    NO_PRODUCER_ID,
    PRODUCER_ID_AT,
)
from ..check.entry_rules import BATCH_MAGIC
from ..files import Buffer
from .producer_states import REMEMBERED_BATCHES, SEQUENCES, ProducerStates, SentBatch

_NUMBERS: Final = Struct(">qhii")
"""From `PRODUCER_ID_AT` on: producer id, epoch, sequence number of the first record, records."""


class NumberedSet(NamedTuple):
    """A set of one batch that its producer numbered."""

    number: int
    """Which of the sets it is."""
    producer_id: int
    epoch: int
    sequence: int
    messages: int


class ProducerRun(NamedTuple):
    """What one producer sent."""

    producer_id: int
    epoch: int
    last: Sequence[SentBatch]
    """Its last batches, as many as are remembered at most."""


def sets_in_turn(
    record_sets: Sequence[Buffer], states: ProducerStates
) -> tuple[int, list[NumberedSet]]:
    """How many of the first sets need not be judged one by one, and those of them with numbers.

    One that does is a retry, or is to be refused, or does not go on where the one before it ended;
    or nothing is known of its producer, for which there is no room beside another's. The numbers
    are what the first batch of a set says, which has to be checked.
    """
    numbered: list[NumberedSet] = []
    last: dict[int, NumberedSet] = {}
    new = 0
    for number, record_set in enumerate(record_sets):
        if not is_batch(record_set):
            continue
        one = NumberedSet(number, *_NUMBERS.unpack_from(record_set, PRODUCER_ID_AT))
        if one.producer_id == NO_PRODUCER_ID:
            continue
        before = last.get(one.producer_id)
        if before is not None:
            due = (before.sequence + before.messages) % SEQUENCES
            if (one.epoch, one.sequence) != (before.epoch, due):
                return number, numbered
        elif not _is_due(states, one):
            return number, numbered
        elif states.get(one.producer_id) is None:
            new += 1
            if new > 1 and not states.has_room_for(new):
                return number, numbered
        last[one.producer_id] = one
        numbered.append(one)
    return len(record_sets), numbered


def is_batch(record_set: Buffer) -> bool:
    """Whether a set begins with a batch."""
    return len(record_set) >= BATCH_OVERHEAD and record_set[MAGIC_AT] == BATCH_MAGIC


def producer_runs(
    numbered: Sequence[NumberedSet], first_offsets: Sequence[int], append_time_ms: int
) -> list[ProducerRun]:
    """The runs of the sets in turn that have these offsets, in the order in which they end."""
    by_producer: dict[int, list[NumberedSet]] = {}
    for one in numbered:
        if one.number < len(first_offsets):
            run = by_producer.pop(one.producer_id, [])
            run.append(one)
            by_producer[one.producer_id] = run
    return [
        ProducerRun(
            producer_id,
            run[0].epoch,
            [
                SentBatch(one.sequence, one.messages, first_offsets[one.number], append_time_ms)
                for one in run[-REMEMBERED_BATCHES:]
            ],
        )
        for producer_id, run in by_producer.items()
    ]


def _is_due(states: ProducerStates, one: NumberedSet) -> bool:
    try:
        return states.check(one.producer_id, one.epoch, one.sequence, one.messages) is None
    except HorologError:
        return False
