"""Builds the leader's answer to a follower's fetch: one part for each partition with news."""

from collections.abc import Mapping
from typing import Final

from ..protocol.api.cluster.replicate import EpochBegin, ReplicatedPart
from ..storage.log.epoch_history import EpochEnd, EpochStart
from ..storage.replica.copy_facts import Stored
from .led_partition import LedPartition
from .partition_log import Partition
from .session import Session

NOTHING: Final = -1
"""The watermark sent to a follower whose log is not known to be a prefix of the leader's."""

SYNC_AFTER_ANSWERS: Final = 16
"""A follower that is far behind syncs once for this many full answers."""


def next_parts(
    session: Session, partitions: Mapping[Partition, LedPartition], max_bytes: int, *, counted: bool
) -> list[ReplicatedPart]:
    """Build the next answer's parts, with up to `max_bytes` of messages. Partitions that did not
    fit stay in `session.changed`. `counted`: the follower counts as in sync."""
    room = max_bytes
    parts: list[ReplicatedPart] = []
    left: set[Partition] = set()
    session.more = set()
    news = session.changed | session.moved
    session.moved = set()
    for partition in sorted(news):
        part = partitions[partition]
        log, stored = part.log, None
        first = log.log_start_offset
        end = session.goes_on_at(partition)
        starts: tuple[EpochStart, ...] = ()
        sure = partition not in session.unsure
        if end is not None and sure and first <= end < log.log_end_offset:
            if room <= 0:
                left.add(partition)
                continue
            stored = log.read_stored(end, room)
            room -= stored.size_bytes
            starts = log.epochs.between(end, stored.next_offset)
            _note_sent(session, part, partition, end, stored)
        wanted = part.sync_to
        if not counted:
            reached = end if stored is None else stored.next_offset
            wanted = _joins_with(session, part, reached, SYNC_AFTER_ANSWERS * max_bytes)
        begins_anew = end is None or end < first
        made = ReplicatedPart(
            topic=partition[0],
            partition=partition[1],
            diverging=_sent(session.diverging.pop(partition, None)),
            epochs=[EpochBegin(epoch=epoch, offset=offset) for epoch, offset in starts],
            log_start_offset=first,
            first_visible_offset=first,
            high_watermark=NOTHING if end is None else log.high_watermark,
            sync_to=wanted,
        )
        made.stored = stored
        made.producer_state = log.producers_at_start() if begins_anew else None
        parts.append(made)
    session.changed = left
    return parts


def _sent(diverging: EpochEnd | None) -> list[EpochBegin]:
    if diverging is None:
        return []
    return [EpochBegin(epoch=diverging.epoch, offset=diverging.end_offset)]


def _note_sent(
    session: Session, part: LedPartition, partition: Partition, end: int, stored: Stored
) -> None:
    session.unsynced_bytes += stored.size_bytes
    if not stored.exact:
        session.unsure[partition] = end
    elif stored.size_bytes:
        session.sent[partition] = stored.next_offset
        if stored.next_offset < part.log.log_end_offset:
            session.more.add(partition)


def _joins_with(
    session: Session, part: LedPartition, reached: int | None, unsynced_bytes: int
) -> int:
    """Return the offset up to which a follower outside the ISR has to sync.

    It syncs when it has everything that it needs to join the ISR, and once per `unsynced_bytes`
    before that: a sync after each answer would take all its time.
    """
    wanted = max(part.sync_to, part.log.high_watermark)
    if reached is not None and reached < wanted:
        if session.unsynced_bytes < unsynced_bytes:
            return 0
        session.unsynced_bytes = 0
    return wanted
