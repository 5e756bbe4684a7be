"""The largest value of a sliding window, in constant memory.

The window is cut into equal slots of monotonic time; each slot keeps its largest value, and a slot
that has fallen out of the window is emptied when the ring comes round to it. A value therefore
counts for at least the window and at most one slot longer, and a step of the wall clock changes
nothing.
"""

from ...clock import Clock

SLOTS = 60


class MaxWindow:
    """The largest value recorded in the last `window_ms` milliseconds."""

    __slots__ = ("_clock", "_largest", "_numbers", "_slot_seconds")

    def __init__(self, clock: Clock, window_ms: int) -> None:
        self._clock = clock
        self._slot_seconds = max(window_ms, 1) / 1000 / SLOTS
        # One slot more than the window holds: the one being filled is only partly over.
        self._numbers = [-1] * (SLOTS + 1)
        self._largest = [0] * (SLOTS + 1)

    def record(self, value: int) -> None:
        number = int(self._clock.monotonic() / self._slot_seconds)
        place = number % len(self._numbers)
        if self._numbers[place] != number:
            self._numbers[place] = number
            self._largest[place] = value
        elif value > self._largest[place]:
            self._largest[place] = value

    def largest(self) -> int | None:
        """The largest value of the window, `None` when nothing was recorded in it."""
        oldest = int(self._clock.monotonic() / self._slot_seconds) - SLOTS
        return max(
            (
                value
                for number, value in zip(self._numbers, self._largest, strict=True)
                if number >= oldest and number >= 0
            ),
            default=None,
        )
