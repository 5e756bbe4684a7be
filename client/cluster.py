"""The way to the broker: a connection when one is needed, and what topics look like.

There is one broker; the class is where a second one would be noticed.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from ..protocol.api.metadata import METADATA, MetadataRequest, MetadataResponse, MetadataTopic
from ..protocol.api.schema import Api
from ..protocol.errors import LeaderNotAvailable
from .connection import Connection, connect
from .errors import ClientClosed
from .responses import topic_result


class Cluster:
    """Keeps one connection; a broken one is replaced at the next request."""

    def __init__(self, address: str, *, client_id: str | None, request_timeout_ms: int) -> None:
        self.address = address
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._closed = False
        self._partition_counts: dict[str, int] = {}

    async def connection(self) -> Connection:
        """A connection that works as far as is known, ready to be written to.

        Callers get it in the order in which they asked. Raises ConnectionFailed, ClientClosed.
        """
        async with self._connecting:
            self._check_open()
            connection = self._connection
            if connection is None or connection.failed:
                connection = self._connection = await connect(
                    self.address,
                    client_id=self._client_id,
                    request_timeout_ms=self._request_timeout_ms,
                )
                if self._closed:
                    await connection.close()
                    self._check_open()
            await connection.writable()
            return connection

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed(f"the client of {self.address} is closed")

    async def request(self, api: Api, body: object, *, wait_ms: int = 0) -> Any:
        """Send one request and wait for its response."""
        return await (await self.connection()).submit(api, body, wait_ms=wait_ms)

    async def request_all(self, api: Api, bodies: Sequence[object]) -> list[Any]:
        """Send requests back to back, so that they are served in this order."""
        connection = await self.connection()
        answers = [connection.submit(api, body) for body in bodies]
        return list(await asyncio.gather(*answers))

    async def partition_count(self, topic: str) -> int:
        """How many partitions `topic` has; it is created when the broker does that."""
        known = self._partition_counts.get(topic)
        if known is not None:
            return known
        response: MetadataResponse = await self.request(
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
