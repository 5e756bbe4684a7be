"""Messages as a consumer receives them and as a producer sends them."""

from ...values import value_class
from .layout import NO_TIMESTAMP, TimestampType


@value_class
class Record:
    """One message as a consumer receives it."""

    offset: int
    timestamp_ms: int
    """Timestamp in ms since the epoch; -1 if the message has none."""
    timestamp_type: TimestampType | None
    """`None` for v0 messages, which have no time."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Names and values, in the order in which they were sent; names can repeat. Only in v2."""


@value_class
class NewRecord:
    """A message that has no offset yet."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = NO_TIMESTAMP
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Headers; only v2 has them."""
