"""An observer of storage events that keeps what it was given."""

from typing import Any


class RecordedEvents:
    """Implements `horolog.storage.events.Observer`."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: str, /, **fields: object) -> None:
        self.seen.append((event, fields))

    def named(self, event: str) -> list[dict[str, Any]]:
        """The fields of every event of that name, in the order of happening."""
        return [fields for name, fields in self.seen if name == event]
