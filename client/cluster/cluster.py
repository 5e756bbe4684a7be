"""What a client talks to: the broker or brokers, and what is known of their topics."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ...protocol.api.schema import Api
from ..errors import ConnectionFailed
from .targets import Some, Target


class ClusterConnections(ABC):
    """Takes requests to the broker that they are for.

    Raises ConnectionFailed, RequestTimedOut, ClientClosed, and UnsupportedVersion for what the
    other side has not.
    """

    address: str
    """As the application gave it."""

    kafka: bool
    """Kafka's protocol is spoken: what is not in it cannot be had."""

    several: bool
    """Another broker may be in charge for the next request."""

    known_partition_count: Callable[[str], int | None]
    """How many partitions a topic has, when that is known. Every message asks."""

    @property
    def failure(self) -> ConnectionFailed | None:
        """What the last attempt to find the broker in charge ended with, when it failed."""
        return None

    @abstractmethod
    async def open(self) -> None:
        """Connect to one broker, to know that there is one."""

    @abstractmethod
    async def request(
        self, api: Api, body: object, *, to: Target = Some.ANY, wait_ms: int = 0
    ) -> Any:
        """Send one request and wait for its response.

        `wait_ms` is how long the broker has been asked to wait, on top of the request timeout.
        """

    @abstractmethod
    async def request_or_drop(
        self,
        api: Api,
        body: object,
        *,
        to: Target = Some.ANY,
        wait_ms: int = 0,
    ) -> Any:
        """As `request`, for who tries again: a connection that does not answer in time is given
        up, with everything else under way on it, because a new one may work."""

    @abstractmethod
    async def request_once(self, api: Api, body: object, *, to: Target, wait_ms: int = 0) -> Any:
        """As `request`, and what was sent is not sent again to another broker, whatever the first
        one answered: for requests that must not overtake each other."""

    @abstractmethod
    async def request_all(
        self, api: Api, bodies: Sequence[object], *, to: Target = Some.ANY
    ) -> list[Any]:
        """Send requests back to back, so that they are served in this order."""

    @abstractmethod
    async def send_unanswered(self, api: Api, body: object, *, to: Target) -> None:
        """Send a request that the broker does not answer (produce with `acks` 0)."""

    @abstractmethod
    async def partition_count(self, topic: str) -> int:
        """How many partitions `topic` has; it is created when the broker does that."""

    @abstractmethod
    def forget(self, topic: str) -> None:
        """What was known of `topic` turned out wrong."""

    @abstractmethod
    def beside(self) -> "ClusterConnections":
        """The same brokers, for questions that must not stand behind a fetch that waits."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections. Requests under way fail."""
