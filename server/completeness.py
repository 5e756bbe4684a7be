"""From when on logs are complete: the times from which on no message has left them."""

from typing import Final, NamedTuple

from ..storage.directory.journal import Cause, Journal, Removal
from ..storage.directory.log_directory import LogDirectory
from ..storage.index.append_time_lookup import known_times
from ..storage.log.log import Log
from ..times import later
from .metadata_store import MetadataStore

NOT_KNOWN: Final = -1

_TOPICS_MAX: Final = 1_000
"""Topics whose removals are kept summed up. The journal bounds their partitions."""


class _PartitionRemovals(NamedTuple):
    """What is known of all that left a partition."""

    reached: int = 0
    """Offset up to which it is known, from offset 0 on, what left the partition."""
    largest_ms: int = -1
    """Largest timestamp of what left; -1 if there was none, or it is not known."""
    at_ms: int = -1
    """When the last messages left."""
    cut_ms: int = -1
    """When the last messages were truncated; -1 if none were."""
    has_unknown_times: bool = False
    """Whether messages were, or may have been, truncated whose times are not known."""


class _TopicRemovals(NamedTuple):
    """What is known of all that left a topic, when the entries were of these versions."""

    versions: tuple[object, ...]
    partitions: dict[int, _PartitionRemovals]


class Completeness:
    """Says from when on partitions are complete. The entries of a topic are summed up once, until
    there are others, so that an answer costs a look-up."""

    def __init__(self, directory: LogDirectory, metadata: MetadataStore) -> None:
        self._directory = directory
        self._metadata = metadata
        self._topics: dict[str, _TopicRemovals] = {}

    def complete_from_ms(self, log: Log) -> int:
        """Return the time from which on no message has left a log; 0 if none has left it, -1 if
        that is not known, because the entries do not cover everything below the log start, or do
        not have the times of what was truncated."""
        removed = self._removed(log)
        if removed is None:
            return 0 if log.log_start_offset == 0 else NOT_KNOWN
        if removed.has_unknown_times or removed.reached < log.log_start_offset:
            return NOT_KNOWN
        return later(removed.largest_ms, 1)

    def complete_from_append_ms(self, log: Log) -> int:
        """As `complete_from_ms`, by append time: what left the start of a log was not appended
        after its first message, and what was truncated not after the truncation. The log is
        prepared, and the append times of its first segment are loaded."""
        start = log.log_start_offset
        removed = self._removed(log)
        cut_ms = -1 if removed is None else removed.cut_ms
        if start == 0:
            return later(cut_ms, 1)
        if start < log.log_end_offset:
            times = log.segment_list.holding(start).append_times
            first_ms = known_times(times, start, start + 1, 1).spans[0][1]
            return NOT_KNOWN if first_ms < 0 else later(max(first_ms, cut_ms), 1)
        if removed is None or removed.reached < start:
            return NOT_KNOWN
        return later(removed.at_ms, 1)

    def _removed(self, log: Log) -> _PartitionRemovals | None:
        """Return what left a partition; `None` if nothing is known to have left it."""
        entry = self._directory.topics().get(log.topic)
        topic_id = "" if entry is None else entry.topic_id
        journals = self._journals()
        versions = topic_id, *(each.version(log.topic) for each in journals)
        known = self._topics.get(log.topic)
        if known is None or known.versions != versions:
            if len(self._topics) >= _TOPICS_MAX:
                self._topics.clear()
            own = [
                each
                for journal in journals
                for each in journal.of(log.topic)
                if each.topic_id == topic_id
            ]
            known = self._topics[log.topic] = _TopicRemovals(versions, _summed_up(own))
        return known.partitions.get(log.partition)

    def _journals(self) -> list[Journal]:
        truncations = self._directory.truncations.loaded
        journal = self._metadata.metadata.state.journal
        return [journal] if truncations is None else [journal, truncations]


def _summed_up(removals: list[Removal]) -> dict[int, _PartitionRemovals]:
    found: dict[int, _PartitionRemovals] = {}
    for each in sorted(removals, key=lambda one: one.first_offset):
        known = found.get(each.partition, _PartitionRemovals())
        reached, cut_ms, has_unknown_times = known.reached, known.cut_ms, known.has_unknown_times
        if each.cause == Cause.TRUNCATION:
            # It removes the end of a log, which goes on at the same offset.
            if each.messages:
                cut_ms = max(cut_ms, each.at_ms)
                has_unknown_times = has_unknown_times or each.largest_timestamp_ms < 0
        elif each.first_offset <= reached:
            reached = max(reached, each.end_offset)
        found[each.partition] = _PartitionRemovals(
            reached,
            max(known.largest_ms, each.largest_timestamp_ms),
            max(known.at_ms, each.at_ms),
            cut_ms,
            has_unknown_times,
        )
    return found
