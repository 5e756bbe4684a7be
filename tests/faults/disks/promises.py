"""What a broker has promised so far, so that a state after a power cut can be judged by it."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field

Message = tuple[int, bytes | None]
"""Timestamp and value."""

Partition = tuple[str, int]
PositionKey = tuple[str, str, int]
"""Name, topic, partition."""


@dataclass(frozen=True)
class TopicState:
    """What the topics file has to say of a topic."""

    partitions: int
    overrides: Mapping[str, str]
    gaps: bool = False


@dataclass
class LogPromise:
    """One log. Offsets are never used twice, except after a truncation."""

    sent: dict[int, set[Message]] = field(default_factory=dict)
    """By offset: only these may be there."""
    append_times: dict[Message, int] = field(default_factory=dict)
    """When each was appended: that may be forgotten after a power cut, but never be wrong."""
    safe: dict[int, Message] = field(default_factory=dict)
    """These must be there: somebody was told that they are synced."""
    end_offset: int = 0
    """The log does not end before it."""
    start_offset: int = 0
    """The log does not begin before it: somebody was told that it was trimmed."""
    doomed_below: int = 0
    """Retention has begun to drop the segments up to here."""
    sealed_below: int = 0
    """The indexes of the segments up to here are synced, and what they have to be is known."""
    producers: dict[int, int] = field(default_factory=dict)
    """By producer, where a batch of it ended that was dropped: a retry of it must be known."""
    was_cut: bool = False
    """Some time: of a segment's time entries those went that tell of all up to the cut (I-23)."""
    cut_into_batch: bool = False
    """A cut took more than what is from its offset on, and the recovery point is that offset."""


@dataclass
class Promise:
    """All of a data directory at one moment."""

    topics: dict[str, list[TopicState | None]] = field(default_factory=dict)
    """Any of these; `None` is no such topic. More than one while it is being changed."""
    logs: dict[Partition, LogPromise] = field(default_factory=dict)
    positions: dict[PositionKey, list[int | None]] = field(default_factory=dict)
    """Any of these offsets; `None` is no position."""
    clean: bool = False
    """The broker was stopped, and said that this went well."""
    stopped: bool = False
    """It was stopped cleanly some time."""
    recovered: bool = False
    """A stop was not clean, or not of all logs."""
    kept: set[bytes] = field(default_factory=set)
    """Bytes that recovery may take out of a log, but not throw away."""


class Promises:
    """`now`, and what it was after each number of operations at which it changed."""

    def __init__(self, now: Promise | None = None) -> None:
        self.now = Promise() if now is None else deepcopy(now)
        self._changes: list[tuple[int, Promise]] = []

    def note(self, operations_done: int) -> None:
        """`now` has been changed; it holds from `operations_done` operations on."""
        self._changes.append((operations_done, deepcopy(self.now)))

    def at(self, operations_done: int) -> Promise:
        """What holds when the power goes after so many operations.

        Of several changes with no operation between them the last one counts.
        """
        held = [promise for since, promise in self._changes if since <= operations_done]
        return held[-1]

    @property
    def changed_at(self) -> set[int]:
        """Numbers of operations at which something changed."""
        return {since for since, _ in self._changes}
