"""Messages: as a consumer sees them, and as a producer has them."""

from ...values import value_class
from .layout import NO_TIMESTAMP, TimestampType


@value_class
class Record:
    """One message as a consumer sees it."""

    offset: int
    timestamp_ms: int
    """-1 when it has none."""
    timestamp_type: TimestampType | None
    """`None` for v0 messages, which know no time."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Names and contents, in the order they were sent in; names can repeat. Only in v2."""


@value_class
class NewRecord:
    """A message that has no offset yet."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = NO_TIMESTAMP
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Only v2 has a place for them."""
