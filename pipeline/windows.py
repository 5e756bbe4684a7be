"""Windows of time: which rows an exact read has."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """The times from `from_ms` on and before `until_ms`. A message without a time is in none."""

    from_ms: int = 0
    until_ms: int | None = None
    """None is no end."""

    @property
    def empty(self) -> bool:
        """Whether no time is in it."""
        return self.until_ms is not None and self.until_ms <= self.from_ms
