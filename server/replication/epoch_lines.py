"""Writing the lines of new leader epochs ahead, in threads.

A line must be on stable storage before the first message of its epoch is written. An append writes
a missing line itself, but then the event loop waits for the disk.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from ...protocol.api.cluster.replicate import ReplicateResponse
from ...replication.messages import partition_of
from ...storage.log.leader_epochs import EpochWrite
from ...storage.replica.replica_log import ReplicaLog
from .member import ClusterMember

AT_ONCE: Final = 96
"""Lines that are written together, one for each log, in `THREADS` threads: concurrent syncs cost a
disk less than syncs one after another."""

THREADS: Final = 3

USED_MS: Final = 600_000
"""A new leader writes lines ahead only for logs with an append within this time. Other logs get
their line with the next message: so an election with thousands of idle partitions syncs nothing for
them."""

_Writes = Sequence[tuple[ReplicaLog, EpochWrite]]


async def write_lines_of(member: ClusterMember, response: ReplicateResponse) -> None:
    """Write the lines of epochs that begin in a leader's messages, before these are appended."""
    writes = []
    for part in response.parts:
        log = member.stored.logs.get(partition_of(part))
        if log is not None and part.stored is not None and not part.diverging:
            write = log.lines_of(part.stored)
            if write is not None:
                writes.append((log, write))
    for first in range(0, len(writes), AT_ONCE):
        await _run(member, writes[first : first + AT_ONCE])
        follower = member.node.follower
        if follower is not None:
            follower.extend_wait(member.now_s)


async def write_lines_to_lead(member: ClusterMember, epoch: int) -> None:
    """Write the lines of the epoch in which this broker leads, before producers send messages."""
    used_since_ms = member.clock.now_ms() - USED_MS
    used = [
        log
        for log in member.stored.logs.values()
        if log.log.segment_list.active.append_times.largest_ms >= used_since_ms
    ]
    for first in range(0, len(used), AT_ONCE):
        if member.epoch != epoch:
            return
        await _run(member, list(_lines(used[first : first + AT_ONCE], epoch)))


def _lines(logs: Iterable[ReplicaLog], epoch: int) -> Iterable[tuple[ReplicaLog, EpochWrite]]:
    for log in logs:
        write = log.line_to_lead(epoch)
        if write is not None:
            yield log, write


async def _run(member: ClusterMember, writes: _Writes) -> None:
    if not writes:
        return

    def run(first: int) -> None:
        for _, write in writes[first::THREADS]:
            with suppress(OSError):  # The append tries again, and reports.
                write.run()

    await asyncio.gather(*(member.in_reading_thread(partial(run, at)) for at in range(THREADS)))
    for log, write in writes:
        log.log.epochs.note(write)
