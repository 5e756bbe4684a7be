"""The way to the broker: a connection when one is needed, and what topics look like.

There is one broker; the class is where a second one would be noticed.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from ..protocol.api.metadata import METADATA, MetadataRequest, MetadataResponse, MetadataTopic
from ..protocol.api.schema import Api
from ..protocol.errors import LeaderNotAvailable, RequestTimedOut
from .backoff import Backoff
from .connection import Connection, connect
from .errors import ClientClosed, ConnectionFailed
from .responses import topic_result

_STOPPED: Final = "it had stopped answering"


class Cluster:
    """Keeps one connection; a broken one is replaced at the next request."""

    def __init__(self, address: str, *, client_id: str | None, request_timeout_ms: int) -> None:
        self.address = address
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._backoff = Backoff()
        self._failures = 0
        self._failure: ConnectionFailed | None = None
        """What the last attempt to connect ended with, when it failed."""
        self._not_before = 0.0
        self._closed = False
        self._partition_counts: dict[str, int] = {}

    async def connection(self) -> Connection:
        """A connection that works as far as is known, ready to be written to.

        Callers get it in the order in which they asked. After a failure the next attempt to
        connect waits a little, longer each time. Raises ConnectionFailed, ClientClosed.
        """
        failures_before = self._failures
        async with self._connecting:
            self._check_open()
            connection = self._connection
            if connection is None or connection.failed:
                if self._failure is not None and self._failures > failures_before:
                    # An attempt has failed since this caller asked: that is its answer too.
                    raise ConnectionFailed(*self._failure.args)
                connection = self._connection = await self._connect()
            try:
                await connection.writable()
            except RequestTimedOut:
                connection.abort("it took no more requests")
                raise
            return connection

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        if self._not_before > loop.time():
            await asyncio.sleep(self._not_before - loop.time())
            self._check_open()
        try:
            connection = await connect(
                self.address,
                client_id=self._client_id,
                request_timeout_ms=self._request_timeout_ms,
            )
        except ConnectionFailed as error:
            self._failure = error
            self._failures += 1
            self._not_before = loop.time() + self._backoff.next_s()
            raise
        self._failure = None
        self._backoff.reset()
        if self._closed:
            await connection.close()
            self._check_open()
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed(f"the client of {self.address} is closed")

    async def request(self, api: Api, body: object, *, wait_ms: int = 0) -> Any:
        """Send one request and wait for its response."""
        return await (await self.connection()).submit(api, body, wait_ms=wait_ms)

    async def request_or_drop(self, api: Api, body: object, *, wait_ms: int = 0) -> Any:
        """As `request`, for who tries again: a connection that does not answer in time is given
        up, with everything else under way on it, because a new one may work."""
        connection = await self.connection()
        try:
            return await connection.submit(api, body, wait_ms=wait_ms)
        except RequestTimedOut:
            connection.abort(_STOPPED)
            raise

    def submit_if_ready(self, api: Api, body: object) -> "asyncio.Future[Any] | None":
        """Send a request if the connection takes it now; what `request_or_drop` would wait for."""
        connection = self._connection
        if connection is None or not connection.ready or self._connecting.locked():
            return None
        answer = connection.submit(api, body)
        answer.add_done_callback(partial(_drop_if_late, connection))
        return answer

    async def request_all(self, api: Api, bodies: Sequence[object]) -> list[Any]:
        """Send requests back to back, so that they are served in this order."""
        connection = await self.connection()
        answers = [connection.submit(api, body) for body in bodies]
        return list(await asyncio.gather(*answers))

    def known_partition_count(self, topic: str) -> int | None:
        """How many partitions `topic` has, when that is known."""
        return self._partition_counts.get(topic)

    async def partition_count(self, topic: str) -> int:
        """How many partitions `topic` has; it is created when the broker does that."""
        known = self._partition_counts.get(topic)
        if known is not None:
            return known
        response: MetadataResponse = await self.request_or_drop(
            METADATA, MetadataRequest(topics=[MetadataTopic(name=topic)])
        )
        found = topic_result(response.topics, topic)
        if not found.partitions:
            raise LeaderNotAvailable(f"{topic} has no partitions yet")
        self._partition_counts[topic] = len(found.partitions)
        return len(found.partitions)

    def forget(self, topic: str) -> None:
        """What was known of `topic` turned out wrong."""
        self._partition_counts.pop(topic, None)

    async def close(self) -> None:
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _drop_if_late(connection: Connection, answer: "asyncio.Future[Any]") -> None:
    if isinstance(answer.exception(), RequestTimedOut):
        connection.abort(_STOPPED)
