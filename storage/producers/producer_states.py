"""What a log knows of the producers that number their batches, so that a retry is not stored twice.

A pure table: no file, no clock. Each batch of such a producer has the sequence number of its first
message; the next one goes on where it ended, and after 2**31 - 1 comes 0. The last few batches of a
producer are remembered with their offsets: one that is sent again is answered with those.

Usually a producer's batches that came together go on one behind the other and none is a retry. Then
they are one run, of which the first batch has to be judged and the last few have to be remembered.

Batches that belong to transactions, which only other brokers store, are followed too: where a
transaction that has not ended begins, and which have been aborted.
"""

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, takewhile
from operator import attrgetter
from typing import Final, NamedTuple

from ...protocol.errors import (
    DuplicateSequenceNumber,
    HorologError,
    InvalidProducerEpoch,
    OutOfOrderSequenceNumber,
)
from ...protocol.records.layout import SELF_CHOSEN
from ...values import value_class
from ..seams import ProducerBudget

NumberedSet = tuple[int, int, int, int, int]
"""Index of the set among several, producer id, epoch, sequence number of the first message, number
of messages, as `producer_numbers` returns them."""

REMEMBERED_BATCHES: Final = 5
"""Number of batches remembered for each producer: the maximum that Kafka's clients
have in flight."""

SEQUENCES: Final = 2**31
"""How many sequence numbers there are."""

PRODUCER_BYTES: Final = 250
"""Memory for a producer beside its batches."""

BATCH_BYTES: Final = 220
"""Memory for a remembered batch."""

_AHEAD: Final = SEQUENCES // 2
"""A sequence number up to this distance behind the expected one is old; otherwise it is ahead."""


class ProducerBatch(NamedTuple):
    """One stored batch of a producer."""

    first_sequence: int
    messages: int
    """Number of messages, including those removed since."""
    first_offset: int
    append_time_ms: int
    """Append time in ms, -1 unless the broker stamped the batch."""

    @property
    def last_offset(self) -> int:
        return self.first_offset + self.messages - 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of its last message."""
        return (self.first_sequence + self.messages - 1) % SEQUENCES

    @property
    def next_sequence(self) -> int:
        """Sequence number of the message after its last."""
        return (self.first_sequence + self.messages) % SEQUENCES


@value_class
class KnownProducer:
    """State of one producer."""

    epoch: int
    batches: tuple[ProducerBatch, ...]
    """The last batches of this epoch, oldest first."""
    seen_ms: int
    """When it last sent something, by the broker's clock."""
    open_offset: int = -1
    """First offset of its open transaction; -1 if it has none."""


class AbortedSpan(NamedTuple):
    """Messages of one producer that `read_committed` consumers must not see."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the control batch that aborted the transaction."""


class ProducerStates:
    """The producers of one log, by id.

    Producers with ids handed out by a broker and those that chose their own are kept apart, each
    ordered with the longest silent first. A writer that takes a new id for each piece of its work
    then makes the broker forget only producers of its own kind.
    """

    def __init__(self) -> None:
        self._handed_out: dict[int, KnownProducer] = {}
        self._self_chosen: dict[int, KnownProducer] = {}
        self.aborted: list[AbortedSpan] = []
        """Aborted transactions, in the order in which they ended."""
        self.open_count = 0
        """Number of producers with an open transaction."""
        self._size_bytes = 0
        self._room: ProducerBudget | None = None

    def enter(self, room: ProducerBudget) -> None:
        """Count these states in `room` until `leave`. Known producers always fit."""
        self._room = room
        room.enter(self)
        room.used_bytes += self._size_bytes

    def leave(self) -> None:
        """Stop counting these states in the room."""
        if self._room is not None:
            self._room.used_bytes -= self._size_bytes
            self._room.leave(self)
            self._room = None

    def has_room_for(self, count: int) -> bool:
        """Whether `count` more producers can be remembered without forgetting others."""
        return self._room is None or self._room.holds(count * (PRODUCER_BYTES + BATCH_BYTES))

    def _resize(self, more_bytes: int) -> None:
        self._size_bytes += more_bytes
        if self._room is not None:
            self._room.used_bytes += more_bytes

    def _put(
        self, like: dict[int, KnownProducer], producer_id: int, producer: KnownProducer
    ) -> None:
        """Add an unknown producer, as the one seen last."""
        like[producer_id] = producer
        self._resize(_size_bytes(producer))

    def _pop(self, like: dict[int, KnownProducer], producer_id: int) -> KnownProducer | None:
        known = like.pop(producer_id, None)
        if known is not None:
            self._resize(-_size_bytes(known))
        return known

    def __len__(self) -> int:
        return len(self._handed_out) + len(self._self_chosen)

    def items(self) -> Iterator[tuple[int, KnownProducer]]:
        """Yield the producer ids with their states."""
        return chain(self._handed_out.items(), self._self_chosen.items())

    def newest(self, count: int) -> list[tuple[int, KnownProducer]]:
        """Return up to `count` producers, most recently active first."""
        each = (reversed(self._handed_out.items()), reversed(self._self_chosen.items()))
        merged = heapq.merge(*each, key=lambda item: -item[1].seen_ms)
        return list(islice(merged, count))

    def get(self, producer_id: int) -> KnownProducer | None:
        return self._like(producer_id).get(producer_id)

    def _like(self, producer_id: int) -> dict[int, KnownProducer]:
        """Return the table that holds producers with this kind of id."""
        return self._self_chosen if producer_id & SELF_CHOSEN else self._handed_out

    def check(  # noqa: C901 - the checks of one value, in order
        self, producer_id: int, epoch: int, first_sequence: int, count: int
    ) -> ProducerBatch | None:
        """Check whether a batch may be stored. Return `None` if so, or the batch that it is a retry
        of.

        An unknown producer may begin with any sequence number: its batches may have been deleted by
        retention, or it was silent for `producer.id.expiration.ms`. Raises `InvalidProducerEpoch`
        for an epoch that a later one has replaced, `DuplicateSequenceNumber` for a batch that is
        stored already at an offset not remembered any more, `OutOfOrderSequenceNumber` if a batch
        before it is missing, `PolicyViolation` if there is no room for an unknown producer.
        """
        known = self.get(producer_id)
        if known is None:
            if self._room is not None:
                self._room.check(producer_id, PRODUCER_BYTES + BATCH_BYTES)
            return None
        if epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} comes with epoch {epoch}; another one took its id over, "
                f"with epoch {known.epoch}"
            )
        if epoch > known.epoch:
            if first_sequence:
                raise OutOfOrderSequenceNumber(
                    f"producer {producer_id} begins epoch {epoch} with sequence number "
                    f"{first_sequence}; it must be 0"
                )
            return None
        if not known.batches:
            return None
        for batch in known.batches:
            if batch.first_sequence == first_sequence and batch.messages == count:
                return batch
        due = known.batches[-1].next_sequence
        if first_sequence == due:
            return None
        behind = (due - first_sequence) % SEQUENCES
        if count <= behind <= _AHEAD:
            raise DuplicateSequenceNumber(
                f"sequence numbers {first_sequence} and following of producer {producer_id} are "
                f"stored already; {due} is due, and of older batches only the last "
                f"{REMEMBERED_BATCHES} are remembered"
            )
        raise OutOfOrderSequenceNumber(
            f"producer {producer_id} sends sequence number {first_sequence} where {due} is due: "
            "batches are missing in between"
        )

    def add(
        self,
        producer_id: int,
        epoch: int,
        batch: ProducerBatch,
        seen_ms: int,
        *,
        opens: bool = False,
    ) -> KnownProducer | None:
        """Add a stored batch. `opens` says that it belongs to a transaction.

        Returns the state before, for `put_back`.
        """
        known = self.get(producer_id)
        open_offset = -1 if known is None else known.open_offset
        if opens and open_offset < 0:
            open_offset = batch.first_offset
            self.open_count += 1
        self._take(producer_id, epoch, (batch,), seen_ms, open_offset)
        return known

    def add_run(
        self, producer_id: int, epoch: int, batches: Sequence[ProducerBatch], seen_ms: int
    ) -> KnownProducer | None:
        """Add the last ones of consecutive stored batches.

        Returns the state before, for `put_back`.
        """
        known = self.get(producer_id)
        open_offset = -1 if known is None else known.open_offset
        self._take(producer_id, epoch, batches, seen_ms, open_offset)
        return known

    def _take(
        self,
        producer_id: int,
        epoch: int,
        batches: Sequence[ProducerBatch],
        seen_ms: int,
        open_offset: int,
    ) -> None:
        like = self._like(producer_id)
        known = self._pop(like, producer_id)
        held = 1
        if known is not None:
            held = max(len(known.batches), held)
            if known.epoch == epoch:
                batches = (*known.batches, *batches)
        count = min(len(batches), REMEMBERED_BATCHES)
        if count > held and self._room is not None:
            # A known producer continues even without room for more, but with fewer batches
            # remembered.
            count = count if self._room.holds(PRODUCER_BYTES + BATCH_BYTES * count) else held
        self._put(
            like, producer_id, KnownProducer(epoch, tuple(batches[-count:]), seen_ms, open_offset)
        )

    def end_transaction(
        self, producer_id: int, epoch: int, offset: int, seen_ms: int, *, aborted: bool
    ) -> None:
        """Apply the control batch at `offset`, which ends a transaction."""
        like = self._like(producer_id)
        known = self._pop(like, producer_id)
        open_offset = -1
        batches: tuple[ProducerBatch, ...] = ()
        if known is not None:
            open_offset = known.open_offset
            batches = known.batches if known.epoch == epoch else ()
        if open_offset >= 0:
            self.open_count -= 1
            if aborted:
                self.aborted.append(AbortedSpan(producer_id, open_offset, offset))
        self._put(like, producer_id, KnownProducer(epoch, batches, seen_ms))

    def abort_open(self, last_offset: int) -> list[AbortedSpan]:
        """Mark all open transactions as aborted at `last_offset`, the offset of the last message.
        Return them."""
        given_up = []
        for producer_id, producer in self.items():
            if producer.open_offset >= 0:
                self._like(producer_id)[producer_id] = replace(producer, open_offset=-1)
                given_up.append(AbortedSpan(producer_id, producer.open_offset, last_offset))
        self.open_count = 0
        self.aborted += given_up
        return given_up

    def put_back(self, producer_id: int, before: KnownProducer | None) -> None:
        """Restore a producer's state, after a batch that could not be stored."""
        like = self._like(producer_id)
        known = self._pop(like, producer_id)
        self.open_count -= known is not None and known.open_offset >= 0
        if before is not None:
            self._put(like, producer_id, before)
            self.open_count += before.open_offset >= 0

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget the producers that were silent for longer than `after_ms`. Return their number.

        Producers with an open transaction stay.
        """
        expired = [
            producer_id
            for producer_id, producer in self.items()
            if now_ms - producer.seen_ms > after_ms and producer.open_offset < 0
        ]
        for producer_id in expired:
            self._pop(self._like(producer_id), producer_id)
        return len(expired)

    def forget_silent(self, now_ms: int, after_ms: int) -> int:
        """Like `expire`, but stop at the first producer of each kind that was active since.

        If the clock was set back meanwhile, some expired producers stay.
        """
        forgotten = 0
        for like in (self._handed_out, self._self_chosen):
            silent = takewhile(lambda item: now_ms - item[1].seen_ms > after_ms, like.items())
            for producer_id in [one for one, producer in silent if producer.open_offset < 0]:
                self._pop(like, producer_id)
                forgotten += 1
        return forgotten

    def keep(self, count: int) -> int:
        """Forget the longest silent producers until `count` of each kind are left. Return how many
        were forgotten.

        Producers with an open transaction stay.
        """
        return self._keep(self._handed_out, count) + self._keep(self._self_chosen, count)

    def _keep(self, producers: dict[int, KnownProducer], count: int) -> int:
        surplus = len(producers) - count
        if surplus <= 0:
            return 0
        idle = (one for one, producer in producers.items() if producer.open_offset < 0)
        forgotten = list(islice(idle, surplus))
        for producer_id in forgotten:
            self._pop(producers, producer_id)
        return len(forgotten)

    @property
    def open_offset(self) -> int | None:
        """First offset of the oldest open transaction."""
        if not self.open_count:
            return None
        return min(p.open_offset for _, p in self.items() if p.open_offset >= 0)

    def aborted_between(self, start: int, end: int) -> list[AbortedSpan]:
        """Return the aborted transactions with messages from offset `start` up to, but not
        including, `end`."""
        number = bisect_left(self.aborted, start, key=attrgetter("last_offset"))
        found = [t for t in islice(self.aborted, number, None) if t.first_offset < end]
        return sorted(found, key=attrgetter("first_offset"))

    def forget_below(self, offset: int) -> None:
        """Forget aborted transactions that ended below `offset`, the new log start."""
        if self.aborted and self.aborted[0].last_offset < offset:
            self.aborted = [t for t in self.aborted if t.last_offset >= offset]

    def copy(self) -> "ProducerStates":
        """Return a separate table with the same content, not counted in any room."""
        copied = ProducerStates()
        copied._handed_out = dict(self._handed_out)
        copied._self_chosen = dict(self._self_chosen)
        copied.aborted = list(self.aborted)
        copied.open_count = self.open_count
        copied._size_bytes = self._size_bytes
        return copied


class ProducerRun(NamedTuple):
    """Consecutive batches of one producer."""

    producer_id: int
    epoch: int
    last: Sequence[ProducerBatch]
    """Its last batches, at most as many as are remembered."""


def sets_in_turn(numbered: Sequence[NumberedSet], states: ProducerStates) -> int:
    """Return how many of these sets, from the first on, need no check one by one.

    A set needs one if it is a retry, if it has to be refused, if it does not continue where the one
    before it ended, or if its producer is unknown and there is no room for another one.
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
    """Return the runs of the sets that have these offsets, in the order in which they end."""
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


def _size_bytes(producer: KnownProducer) -> int:
    return PRODUCER_BYTES + BATCH_BYTES * len(producer.batches)
