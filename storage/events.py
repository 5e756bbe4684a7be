"""Events of storage: one call with a stable event name and its fields."""

from typing import Protocol


class Observer(Protocol):
    """Receives every event of storage. The server turns events into log lines and counters."""

    def __call__(self, event: str, /, **fields: object) -> None: ...


def ignore_events(event: str, /, **fields: object) -> None:
    """An observer that ignores all events."""
