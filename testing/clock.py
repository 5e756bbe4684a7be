"""A clock that a test moves by hand."""


class ManualClock:
    """Implements `horolog.clock.Clock`; stands still until it is moved."""

    def __init__(self, now_ms: int = 1_479_144_272_509, monotonic: float = 1_000.0) -> None:
        self._now_ms = now_ms
        self._monotonic = monotonic

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass on both clocks."""
        self._now_ms += ms
        self._monotonic += ms / 1000

    def step(self, ms: int) -> None:
        """Set the wall clock forward (or back, when negative) without time passing."""
        self._now_ms += ms
