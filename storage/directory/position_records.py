"""A position, which names and positions are allowed, and a change of the positions of one name."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...protocol.errors import InvalidGroupId, InvalidRequest
from ...protocol.limits import MAX_GROUP_NAME_BYTES
from ..names import MAX_TOPIC_NAME

COMMIT: Final = "commit"
FORGET: Final = "forget"
FORGET_SOME: Final = "forget-some"

KEPT: Final = -1
"""Retention of a position that never expires."""

NO_EPOCH: Final = -1

NOT_KNOWN: Final = -1
"""Time of a use or a move that is not kept apart from the commit time."""

BROKERS: Final = 0
"""Retention of a position that uses the broker's setting."""


class StoredPosition(NamedTuple):
    """The position of one consumer in one partition."""

    topic: str
    partition: int
    offset: int
    """Offset of the next message to read."""
    timestamp_ms: int
    """Timestamp of the last message read, -1 if not known."""
    commit_time_ms: int
    metadata: str
    """Text stored by the consumer. The caller checks its length."""
    retention_ms: int = KEPT
    """How long the position is kept once its name is not used: in ms, `KEPT`, or `BROKERS`."""
    used_ms: int = -1
    """When its name was last used after this commit; -1 if it was not."""
    leader_epoch: int = NO_EPOCH
    """Leader epoch of the last message read (KIP-320); `NO_EPOCH` if not known."""
    moved_ms: int = NOT_KNOWN
    """When the offset last changed, if that was before this commit; else `NOT_KNOWN`."""

    @property
    def moved_at_ms(self) -> int:
        """When the offset last changed."""
        return self.commit_time_ms if self.moved_ms == NOT_KNOWN else self.moved_ms

    @property
    def used_at_ms(self) -> int:
        """When the position was committed, or its name last used after that."""
        return max(self.commit_time_ms, self.used_ms)


def no_position(topic: str, partition: int) -> StoredPosition:
    """Return the entry that stands for a dropped position."""
    return StoredPosition(topic, partition, 0, -1, -1, "")


class PositionChange(NamedTuple):
    """The content of one record."""

    kind: str
    """`COMMIT`, `FORGET` or `FORGET_SOME`."""
    name: str
    entries: Sequence[StoredPosition]


def check_name(name: str) -> None:
    """Raise `InvalidGroupId` for a name that is empty or too long."""
    size = len(name.encode())
    if not 1 <= size <= MAX_GROUP_NAME_BYTES:
        raise InvalidGroupId(
            f"the position name {name[:40]!r} has {size} bytes; allowed are 1 to "
            f"{MAX_GROUP_NAME_BYTES}"
        )


def check_entry(entry: StoredPosition) -> None:
    """Raise `InvalidRequest` for an invalid position."""
    if not 1 <= len(entry.topic) <= MAX_TOPIC_NAME:
        raise InvalidRequest(
            f"the topic name {entry.topic[:40]!r} has {len(entry.topic)} characters; "
            f"allowed are 1 to {MAX_TOPIC_NAME}"
        )
    if not 0 <= entry.partition < 2**31:
        raise InvalidRequest(f"partition {entry.partition} is not within 0 to {2**31 - 1}")
    if not 0 <= entry.offset < 2**63:
        raise InvalidRequest(
            f"offset {entry.offset} of {entry.topic}-{entry.partition} is not within 0 to "
            f"{2**63 - 1}"
        )
