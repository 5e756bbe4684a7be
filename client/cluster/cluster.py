"""Interface of a client's connections to a broker or a cluster, with its topic metadata."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ...protocol.api.schema import Api
from ..errors import ConnectionFailed
from .targets import Some, Target


class ClusterConnections(ABC):
    """Sends each request to the broker that serves it.

    Raises ConnectionFailed, RequestTimedOut, ClientClosed, and UnsupportedVersion for a request
    that the broker does not serve.
    """

    address: str
    """Address as the application gave it."""

    kafka: bool
    """Whether Kafka's protocol is used, without Horolog's own requests."""

    several: bool
    """Whether the leader, and so the broker for the next request, may change."""

    known_partition_count: Callable[[str], int | None]
    """Returns the number of partitions of a topic; None if unknown. Called for every message."""

    @property
    def failure(self) -> ConnectionFailed | None:
        """Error of the last attempt to find the responsible broker; None if it succeeded."""
        return None

    @abstractmethod
    async def open(self) -> None:
        """Connect to one broker, to make sure that a broker can be reached."""

    @abstractmethod
    async def request(
        self, api: Api, body: object, *, to: Target = Some.ANY, wait_ms: int = 0
    ) -> Any:
        """Send one request and wait for its response.

        `wait_ms` is how long the request lets the broker wait, in addition to the request timeout.
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
        """Send one request as `request` does, for callers that repeat it. A connection that does
        not answer in time is closed with all its other requests, because a new one may work."""

    @abstractmethod
    async def request_once(self, api: Api, body: object, *, to: Target, wait_ms: int = 0) -> Any:
        """Send one request as `request` does, but never again to another broker, whatever the first
        one answered: for requests that must not overtake each other."""

    @abstractmethod
    async def request_all(
        self, api: Api, bodies: Sequence[object], *, to: Target = Some.ANY
    ) -> list[Any]:
        """Send requests back to back, so that the broker serves them in this order."""

    @abstractmethod
    async def send_unanswered(self, api: Api, body: object, *, to: Target) -> None:
        """Send a request that the broker does not answer (produce with `acks` 0)."""

    @abstractmethod
    async def partition_count(self, topic: str) -> int:
        """Return the number of partitions of `topic`. The topic is created if the broker creates
        topics automatically."""

    @abstractmethod
    def forget(self, topic: str) -> None:
        """Drop the cached metadata of `topic`."""

    @abstractmethod
    def beside(self) -> "ClusterConnections":
        """Return other connections to the same brokers, for requests that must not queue behind a
        fetch that waits."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections. Requests in flight fail."""
