"""Appending entries of another log as a follower does, whose leader rolls as its own log would."""

from horolog.protocol.records.kernel import walk
from horolog.protocol.records.kernel.terms import Offsets
from horolog.protocol.records.layout import NO_TIMESTAMP
from horolog.storage.files import Buffer
from horolog.storage.log.admitted import Appended
from horolog.storage.log.epoch_history import EpochStart
from horolog.storage.log.log import Log
from horolog.storage.log.rolling import roll_reason
from horolog.storage.names import RELATIVE_OFFSET_MAX
from horolog.storage.replica.copy_facts import CopyFacts
from horolog.storage.replica.replica_log import ReplicaLog


def append_copy(log: Log, data: Buffer) -> Appended:
    """Append `data` from the log end on: offsets may jump, and no append time is known."""
    offset, active = log.log_end_offset, log.segment_list.active
    found = walk(data, 0, len(data), offsets=Offsets.RISING, base_offset=offset)
    base, last = active.base_offset, found.last_offset
    now_ms = log.seams.clock.now_ms()
    if found.end and roll_reason(
        active, log.settings, found.end, last, found.max_timestamp_ms, now_ms
    ):
        # Where offsets jump far, the new segment begins just near enough to index them.
        base = min(max(offset, last + 1 - RELATIVE_OFFSET_MAX), found.first_offset)
    facts = CopyFacts(
        offset,
        base,
        log.segment_list.first.base_offset,
        log.log_start_offset,
        gaps=found.end > 0,
        epochs=(EpochStart(log.epochs.history.last_epoch, offset),),
        append_times=((offset, NO_TIMESTAMP),) if found.end else (),
        times_end=last + 1 if found.end else offset,
    )
    return ReplicaLog(log).append(data, facts)
