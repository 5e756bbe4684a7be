"""What every client of Kafka is asked to do in these tests, in one form for all of them."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from .access import Access
from .steps import Step

WAIT_SECONDS = 30
"""How long a client may take for one thing before its test fails."""

POLL_SECONDS = 0.05
"""How long a client waits for messages before somebody looks whether there is more to do."""


class Message(NamedTuple):
    """A message as a client sends or gets it."""

    value: bytes
    key: bytes | None = None
    timestamp_ms: int = -1
    headers: tuple[tuple[str, bytes], ...] = ()


class Stored(NamedTuple):
    """A message with its place."""

    partition: int
    offset: int
    message: Message


class Refused(Exception):
    """The broker refused, and the client says why: with Kafka's name of the error."""


@dataclass(frozen=True, slots=True)
class Sending:
    """How messages are sent."""

    codec: str = "none"
    idempotent: bool = False
    partition: int = 0


PLAIN = Sending()


class Member(ABC):
    """A consumer that subscribes to a topic, as a member of a group. It commits when told to."""

    @abstractmethod
    def poll(self) -> Sequence[Stored]:
        """What has come; waits at most `POLL_SECONDS` for it."""

    @abstractmethod
    def assigned(self) -> set[int]:
        """The partitions that it has now."""

    @abstractmethod
    def commit(self) -> None:
        """Commit what was polled."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""


class Writer(ABC):
    """A producer that goes on: what it could not send yet it sends again, in order and once."""

    @abstractmethod
    def write(self, value: bytes) -> None:
        """Send a message to partition 0; does not wait for the broker."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until everything is acknowledged. Raises when something is not."""


class Client(ABC):
    """A client library or program, and the broker it talks to."""

    name: ClassVar[str]
    """As its makers write it."""
    unable: ClassVar[Mapping[Step, str]] = {}
    """What it cannot do itself, with any broker, and why."""
    untried: ClassVar[Collection[Step]] = ()
    """What is not asked of it here, because that takes too long."""

    def __init__(self, address: str, access: Access | None = None) -> None:
        """`access` is for a broker that lets not everybody in."""
        self.address = address
        self.access = access

    @abstractmethod
    def produce(self, topic: str, messages: Sequence[Message], sending: Sending = PLAIN) -> None:
        """Send them as one batch, and return when all are acknowledged. Raises `Refused`."""

    @abstractmethod
    def consume(self, topic: str, count: int, offset: int = 0) -> list[Stored]:
        """So many messages of partition 0, from an offset on, without a group."""

    @abstractmethod
    def member(self, group: str, topic: str) -> AbstractContextManager[Member]:
        """A member of a group that reads a topic from its beginning; it leaves in the end."""

    @abstractmethod
    def writer(self, topic: str) -> AbstractContextManager[Writer]:
        """A producer that numbers its batches."""

    def offsets_for_times(self, topic: str, times: Sequence[int]) -> list[int | None]:
        """The first offset at each of the times, in partition 0."""
        raise NotImplementedError

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        raise NotImplementedError

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 when there is no such topic."""
        raise NotImplementedError

    def settings(self, topic: str) -> Mapping[str, str]:
        """A topic's settings."""
        raise NotImplementedError

    def alter_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        raise NotImplementedError

    def delete_topic(self, topic: str) -> None:
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of connections and processes."""
