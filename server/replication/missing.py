"""What a broker may lack of what others have answered, as far as it knows."""

from collections.abc import Mapping
from typing import NamedTuple

from ...protocol.api.cluster.describe_replicas import NOT_KNOWN, LogEnd
from ...replication.partition_log import Partition
from ...storage.log.epoch_history import NO_EPOCH
from ...times import format_time
from .stored_log import StoredLog
from .stored_metadata import METADATA


class Missing(NamedTuple):
    """Messages, and seconds, or what is known instead."""

    messages: int | None
    """About so many; `None`: no leader has said anything since the start."""
    seconds: float | None
    last_ms: int = NOT_KNOWN
    """When the last message of this broker was appended, where the rest is not known."""
    ends: int = NOT_KNOWN
    """Its log end offsets, added up: of several brokers the one with more has more."""

    def __str__(self) -> str:
        if self.messages is not None:
            return f"up to {self.seconds:.1f} s, about {self.messages:,} messages"
        when = "at an unknown time" if self.last_ms < 0 else f"at {format_time(self.last_ms)}"
        return f"not known; its last message came {when}, its log end offsets add up to {self.ends}"

    def fields(self) -> Mapping[str, object]:
        """For an event."""
        if self.messages is not None and self.seconds is not None:
            return {"messages": self.messages, "seconds": round(self.seconds, 1)}
        last = None if self.last_ms < 0 else format_time(self.last_ms)
        return {"messages": None, "seconds": None, "last_message": last, "ends": self.ends}


def not_known(logs: Mapping[Partition, StoredLog]) -> Missing:
    """Of a broker with these logs that has not heard of a leader."""
    found = [one.log for partition, one in logs.items() if partition != METADATA]
    # A segment that was rolled just now has no message yet.
    times = (one.append_times.largest_ms for log in found for one in log.segments[-2:])
    ends = sum(log.log_end_offset for log in found)
    return Missing(None, None, max(times, default=NOT_KNOWN), ends)


def log_ends(logs: Mapping[Partition, StoredLog], contested_epoch: int) -> list[LogEnd]:
    """Where these logs end, and what they have from `contested_epoch` on: what a person compares
    who has to choose a leader."""
    return [
        LogEnd(
            topic=partition[0],
            partition=partition[1],
            end=log.log_end_offset,
            epoch=NO_EPOCH if log.history_lost else log.epochs.last_epoch,
            contested_from=_contested_from(log, contested_epoch),
        )
        for partition, log in sorted(logs.items())
    ]


def _contested_from(log: StoredLog, contested_epoch: int) -> int:
    if contested_epoch == NO_EPOCH or log.history_lost:
        return NOT_KNOWN
    starts = (it.start_offset for it in log.epochs.starts if it.epoch >= contested_epoch)
    return next(starts, NOT_KNOWN)
