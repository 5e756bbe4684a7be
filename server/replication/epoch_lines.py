"""Lines of new epochs, written ahead in a thread.

A line is on stable storage before the first message of its epoch is written. That is so without
this, too: an append writes the line if it is not there, and then the loop waits for the disk.
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
"""Lines that are written in one go, for as many logs, in `THREADS` threads: syncs that come
together cost a disk less than one after the other."""

THREADS: Final = 3

USED_MS: Final = 600_000
"""A new leader writes the lines of logs that were appended to within this time. The others get
theirs with a message: an election with thousands of idle partitions syncs nothing for them."""

_Writes = Sequence[tuple[ReplicaLog, EpochWrite]]


async def write_lines_of(member: ClusterMember, response: ReplicateResponse) -> None:
    """Write the lines of the epochs that begin in what a leader sent, before it is appended."""
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
    """Write the lines of an epoch in which this broker leads, before producers come."""
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
