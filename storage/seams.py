"""What the logs of one broker share. It is passed to them: nothing in storage is global."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from random import Random
from threading import Lock
from typing import Final, Protocol, cast

from ..clock import Clock
from ..protocol.errors import PolicyViolation
from ..values import value_class
from .events import Observer
from .files import Files
from .open_files import IndexCache, LogDeletion, LogFiles, LogOpenFiles, OpenFiles

QUIET_MS: Final = 300_000
"""A producer that was silent for this long does not retry: by default, Kafka's producers give up
after two minutes."""

LOOK_SECONDS: Final = 10.0
"""Minimum time between two searches for silent producers. Each search goes through every log."""


class Deletions(Protocol):
    """Takes files that are already renamed to `.deleted`, to be removed later."""

    def add(self, paths: Sequence[Path], delay_ms: int) -> None: ...


class DiskRoom:
    """The free room of one data directory: open to all writes, or reserved for recovering from a
    full disk.

    An operation that frees room uses the bytes that the reserve gives up. Appends are refused
    meanwhile, because they would fill the room at once. Any thread may use this.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.keepers = 0
        """Number of operations that reserve the room now."""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Refuse appends until the block ends."""
        with self._lock:
            self.keepers += 1
        try:
            yield
        finally:
            with self._lock:
                self.keepers -= 1

    def check_append(self) -> None:
        """Raise the error of a full disk if the room is reserved now."""
        if self.keepers:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Forgetful(Protocol):
    """The producers of one log."""

    def forget_silent(self, now_ms: int, after_ms: int) -> int: ...


class ProducerBudget:
    """The memory limit for the producers of all logs together. For the event loop's thread.

    Each log limits how many producers it remembers, but a broker has thousands of logs. When the
    limit is reached, all logs forget the producers that were silent for some minutes, because those
    will not retry a batch. If all producers were active since, a new producer is refused.
    """

    def __init__(self, clock: Clock, max_bytes: int | None = None) -> None:
        """Without `max_bytes` there is no limit."""
        self.used_bytes = 0
        self._clock = clock
        self._max_bytes = max_bytes
        self._logs: dict[Forgetful, None] = {}
        self._looked_at: float | None = None

    def enter(self, log: Forgetful) -> None:
        """Add `log` to those asked to forget silent producers, until `leave`."""
        self._logs[log] = None

    def leave(self, log: Forgetful) -> None:
        self._logs.pop(log, None)

    def holds(self, more_bytes: int) -> bool:
        """Whether this many more bytes fit without forgetting a producer."""
        return self._max_bytes is None or self.used_bytes + more_bytes <= self._max_bytes

    def check(self, producer_id: int, more_bytes: int) -> None:
        """Make room for an unknown producer. Raises `PolicyViolation` if all known producers were
        active recently."""
        if self.holds(more_bytes):
            return
        now = self._clock.monotonic()
        if self._looked_at is None or now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            now_ms = self._clock.now_ms()
            for log in list(self._logs):
                log.forget_silent(now_ms, QUIET_MS)
            if self.holds(more_bytes):
                return
        raise PolicyViolation(
            f"producer {producer_id} is not known here, and the producers that are, all of them "
            f"active in the last {QUIET_MS // 60_000} minutes, take {self.used_bytes} bytes; "
            f"the limit is max.producer.states.bytes={self._max_bytes}: raise it, or let fewer "
            "producers write to fewer partitions each"
        )


@value_class
class Seams:
    """Clock, file system, event sink, random numbers, and what logs share."""

    clock: Clock
    files: Files
    observe: Observer
    deletions: Deletions
    open_files: OpenFiles
    random: Random
    producer_room: ProducerBudget
    disk_room: DiskRoom = field(default_factory=DiskRoom)
    index_cache: IndexCache = field(default_factory=IndexCache)

    def of_log(self, deletion: LogDeletion) -> "Seams":
        """Return the seams of one log, which give it no file once it was deleted."""
        return replace(
            self,
            files=cast(Files, LogFiles(self.files, deletion)),
            open_files=LogOpenFiles(self.open_files, deletion),
        )
