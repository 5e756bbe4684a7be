"""What the journal records of a removal."""

from ..storage.directory.journal import MAX_TOPIC_REMOVALS, Cause, Removal
from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.topics import TopicEntry
from ..storage.log.log import Log
from ..storage.log.removed import removed_with_topic
from ..storage.log.retention import RemovedRange


def removal_of(
    cause: Cause, rule: str, log: Log, topic_id: str, removed: RemovedRange, at_ms: int
) -> Removal:
    """Return the entry for messages that left a log now."""
    return Removal(
        cause,
        rule,
        log.topic,
        topic_id,
        log.partition,
        removed.first_offset,
        removed.end_offset,
        removed.messages,
        removed.first_timestamp_ms,
        removed.largest_timestamp_ms,
        at_ms,
        at_ms,
    )


def removals_of_topic(
    directory: LogDirectory, entry: TopicEntry, principal: str, at_ms: int
) -> list[Removal]:
    """Return the entries for the deletion of a topic: one for each partition that is open, from the
    first on. A log that was not opened since the start is not opened for that; its offsets are
    not known."""
    found = []
    for partition in range(min(entry.partitions, MAX_TOPIC_REMOVALS)):
        log = directory.opened_log((entry.name, partition))
        if log is None:
            found.append(_unknown(entry, partition, principal, at_ms))
        else:
            removed = removed_with_topic(log)
            found.append(removal_of(Cause.DELETION, principal, log, entry.topic_id, removed, at_ms))
    return found


def _unknown(entry: TopicEntry, partition: int, principal: str, at_ms: int) -> Removal:
    return Removal(
        Cause.DELETION,
        principal,
        entry.name,
        entry.topic_id,
        partition,
        first_offset=-1,
        end_offset=-1,
        messages=-1,
        first_timestamp_ms=-1,
        largest_timestamp_ms=-1,
        began_ms=at_ms,
        at_ms=at_ms,
    )
