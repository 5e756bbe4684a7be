"""The journal: what left the logs of each topic, when, and by which rule or user. No I/O.

A removal that continues the last one of its partition, by the same rule, is joined with it. So
retention that deletes each minute makes one entry. Beyond the limits the entries that were changed
the longest ago go first.
"""

import sys
from collections import OrderedDict
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

MAX_TOPIC_REMOVALS: Final = 1000
"""Most entries of a topic."""

MAX_JOURNAL_BYTES: Final = 16 << 20
"""Most memory of all entries."""

REMOVAL_BYTES: Final = 1024
"""Estimated memory of an entry, without the bytes of its texts."""


class Cause(StrEnum):
    """What removed messages."""

    RETENTION = "retention"
    TRIM = "trim"
    DELETION = "deletion"
    TRUNCATION = "truncation"
    CLEANING = "cleaning"


class Removal(NamedTuple):
    """Messages that left one log by one rule."""

    cause: str
    rule: str
    """The setting with its value, the principal that trimmed or deleted, or why a log was
    truncated."""
    topic: str
    topic_id: str
    """The id of the topic; a later topic of the same name has another."""
    partition: int
    first_offset: int
    end_offset: int
    """The offset after the last removed message."""
    messages: int
    """Number of messages; -1 if it is not known."""
    first_timestamp_ms: int
    """Timestamp of the first message; -1 if it has none or is not known."""
    largest_timestamp_ms: int
    """Largest timestamp of the messages; -1 if none has one, or it is not known."""
    began_ms: int
    """When the first of these messages were removed."""
    at_ms: int
    """When the last of them were removed."""
    times: int = 1
    """How many removals were joined."""

    @property
    def size_bytes(self) -> int:
        """Estimated memory of the entry."""
        return REMOVAL_BYTES + len(self.topic) + len(self.rule)


_FACTS: Final = Removal._fields.index("began_ms")
"""Number of fields that say what left, before those that say when."""


class Journal:
    """The removals of all topics, also of deleted ones. The same removals in the same order give
    the same journal on every broker."""

    def __init__(self, max_bytes: int = MAX_JOURNAL_BYTES) -> None:
        self.size_bytes = 0
        self._max_bytes = max_bytes
        self._number = 0
        self._topics: OrderedDict[int, str] = OrderedDict()
        """The topic of each entry, in the order of their last changes."""
        self._entries: dict[str, OrderedDict[int, Removal]] = {}
        self._last: dict[tuple[str, str, int], int] = {}
        """The number of the last entry by topic, topic id and partition."""

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Removal]:
        """Yield all entries, the least recently changed first."""
        for number, topic in self._topics.items():
            yield self._entries[topic][number]

    def of(self, topic: str) -> list[Removal]:
        """Return the entries of a topic name, the least recently changed first."""
        return list(self._entries.get(topic, {}).values())

    def version(self, topic: str) -> tuple[int, int]:
        """Return what is another value when entries of a topic name were added, joined or dropped;
        (0, 0) if there are none."""
        entries = self._entries.get(topic)
        return (next(reversed(entries)), len(entries)) if entries else (0, 0)

    def add(self, removal: Removal) -> None:
        """Record a removal, joined with the last one of its partition if it continues that."""
        place = removal.topic, removal.topic_id, removal.partition
        number = self._last.get(place)
        last = None if number is None else self._entries[removal.topic][number]
        if number is not None and last is not None and _continues(last, removal):
            self._take_out(number)
            removal = _joined(last, removal)
        self._put(removal)
        while len(self._entries[removal.topic]) > MAX_TOPIC_REMOVALS:
            self._take_out(next(iter(self._entries[removal.topic])))
        while self.size_bytes > self._max_bytes:
            self._take_out(next(iter(self._topics)))

    def renew(self, topic: str, former_id: str, new_id: str) -> None:
        """Give the entries of a topic its new id."""
        entries = self._entries.get(topic, OrderedDict())
        for number, removal in entries.items():
            if removal.topic_id == former_id:
                entries[number] = removal._replace(topic_id=new_id)
                last = self._last.pop((topic, former_id, removal.partition), None)
                if last is not None:
                    self._last[topic, new_id, removal.partition] = last

    def _put(self, removal: Removal) -> None:
        topic = sys.intern(removal.topic)
        removal = removal._replace(
            topic=topic,
            topic_id=sys.intern(removal.topic_id),
            cause=sys.intern(str(removal.cause)),
            rule=sys.intern(removal.rule),
        )
        self._number += 1
        self._topics[self._number] = topic
        self._entries.setdefault(topic, OrderedDict())[self._number] = removal
        self._last[topic, removal.topic_id, removal.partition] = self._number
        self.size_bytes += removal.size_bytes

    def _take_out(self, number: int) -> None:
        topic = self._topics.pop(number)
        entries = self._entries[topic]
        removal = entries.pop(number)
        self.size_bytes -= removal.size_bytes
        place = topic, removal.topic_id, removal.partition
        if self._last.get(place) == number:
            del self._last[place]
        if not entries:
            del self._entries[topic]


def _continues(last: Removal, removal: Removal) -> bool:
    """Whether a removal begins where the last one of its partition ended, or repeats some of it: a
    broker that was stopped in between removes messages again."""
    if removal.cause == Cause.TRUNCATION:
        # The log goes on with other messages at the same offsets.
        return last[:_FACTS] == removal[:_FACTS]
    same = (last.cause, last.rule) == (removal.cause, removal.rule)
    return same and last.first_offset <= removal.first_offset <= last.end_offset


def _joined(last: Removal, removal: Removal) -> Removal:
    if removal.end_offset <= last.end_offset:
        return last
    repeated = last.end_offset - removal.first_offset
    messages = -1
    if last.messages >= 0 and removal.messages >= 0:
        messages = last.messages + max(removal.messages - repeated, 0)
    return last._replace(
        end_offset=removal.end_offset,
        messages=messages,
        first_timestamp_ms=(
            removal.first_timestamp_ms if last.first_timestamp_ms < 0 else last.first_timestamp_ms
        ),
        largest_timestamp_ms=max(last.largest_timestamp_ms, removal.largest_timestamp_ms),
        at_ms=removal.at_ms,
        times=last.times + removal.times,
    )
