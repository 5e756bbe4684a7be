"""A position, and a change of the positions of one name, or of those in one topic."""

from collections.abc import Sequence
from typing import Final, NamedTuple

COMMIT: Final = "commit"
FORGET: Final = "forget"
FORGET_SOME: Final = "forget-some"
FORGET_TOPIC: Final = "forget-topic"

KEPT: Final = -1
"""Retention of a position that never expires."""

NO_EPOCH: Final = -1

BROKERS: Final = 0
"""Retention of a position that lives as long as the broker's settings say."""

MAX_NAME_BYTES: Final = 255
"""UTF-8. A name is a job's or a group's; Kafka's tools stay far below this."""


class StoredPosition(NamedTuple):
    """Where one consumer goes on in one partition."""

    topic: str
    partition: int
    offset: int
    """The next offset to read."""
    timestamp_ms: int
    """Time of the last message read, -1 when it is not known."""
    commit_time_ms: int
    metadata: str
    """The consumer's own text; its length is checked by the caller."""
    retention_ms: int = KEPT
    """How long it is to live once its name is not used: in ms, `KEPT`, or `BROKERS`."""
    used_ms: int = -1
    """When its name was last seen in use after this commit; -1 when it was not."""
    leader_epoch: int = NO_EPOCH
    """Of the last message read (KIP-320); `NO_EPOCH` when it is not known."""


def no_position(topic: str, partition: int) -> StoredPosition:
    """What stands for a position that is dropped."""
    return StoredPosition(topic, partition, 0, -1, -1, "")


class PositionChange(NamedTuple):
    """What one record says."""

    kind: str
    """`COMMIT`, `FORGET`, `FORGET_SOME`, or `FORGET_TOPIC`, whose name is the topic's; its entries
    say of which other topics too."""
    name: str
    entries: Sequence[StoredPosition]
