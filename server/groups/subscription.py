"""What consumers subscribe to: the bytes that they bring along with each protocol.

    version int16, topics [string], ...

As Kafka's ConsumerProtocolSubscription of any version; what follows the topics is not looked at.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import Final

CONSUMER: Final = "consumer"
"""Protocol type of the groups whose members bring such bytes."""

_HEAD: Final = Struct(">hi")
_LENGTH: Final = Struct(">h")


class NoSubscription(ValueError):
    """The bytes do not say which topics."""


def topics_of(metadata: bytes) -> Iterator[str]:
    """The topics of a subscription, one by one. Raises `NoSubscription`."""
    try:
        _, count = _HEAD.unpack_from(metadata)
        at = _HEAD.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            begin = at + _LENGTH.size
            at = begin + length
            if length < 0 or at > len(metadata):
                raise NoSubscription(f"a topic's name has {length} bytes")
            yield str(metadata[begin:at], "utf-8")
    except (StructError, UnicodeDecodeError) as error:
        raise NoSubscription(str(error)) from error


def same_topics(metadata: bytes, other: bytes, most_bytes: int) -> bool:
    """Whether two subscriptions name the same topics. Of bytes that are no subscription only equal
    ones do, and so it is for more than `most_bytes`."""
    if metadata == other:
        return True
    if max(len(metadata), len(other)) > most_bytes:
        return False
    try:
        return set(topics_of(metadata)) == set(topics_of(other))
    except NoSubscription:
        return False
