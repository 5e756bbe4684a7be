"""The memory that the producers of all logs together may take.

Each log bounds how many producers it remembers, but a broker has thousands of logs. When the room
is full, producers that were silent for some minutes are forgotten first, in all logs: none of them
still sends a batch again. When all have sent something since, a producer that is not known yet is
refused. Those that are known go on.
"""

from typing import Final, Protocol

from ...clock import Clock
from ...protocol.errors import PolicyViolation

QUIET_MS: Final = 300_000
"""Who was silent for so long does not retry: by default Kafka's producers give up after two
minutes."""

LOOK_SECONDS: Final = 10.0
"""Time between two searches for silent producers, at least: each looks at every log."""


class Forgetful(Protocol):
    """The producers of one log."""

    def forget_silent(self, now_ms: int, after_ms: int) -> int: ...


class ProducerBudget:
    """Counts what producers take. For the loop's thread."""

    def __init__(self, clock: Clock, max_bytes: int | None = None) -> None:
        """Without `max_bytes` there is always room."""
        self.used_bytes = 0
        self._clock = clock
        self._max_bytes = max_bytes
        self._logs: dict[Forgetful, None] = {}
        self._looked_at: float | None = None

    def enter(self, log: Forgetful) -> None:
        """Let `log` be asked to forget silent producers, until `leave`."""
        self._logs[log] = None

    def leave(self, log: Forgetful) -> None:
        self._logs.pop(log, None)

    def holds(self, more_bytes: int) -> bool:
        """Whether there is room for so many bytes more as it is."""
        return self._max_bytes is None or self.used_bytes + more_bytes <= self._max_bytes

    def check(self, producer_id: int, more_bytes: int) -> None:
        """Make room for a producer that is not known yet. Raises `PolicyViolation` where all that
        are known have sent something lately."""
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
