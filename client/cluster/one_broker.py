"""A Horolog broker, which is alone: every request is for it."""

import asyncio
from collections.abc import Sequence
from typing import Any

from ...protocol.api.schema import Api
from ...protocol.api.topics.metadata import (
    METADATA,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from ...protocol.errors import LeaderNotAvailable
from ..responses import topic_result
from ..security.security import Security
from .cluster import ClusterConnections
from .link import ClientLink
from .targets import Some, Target


class OneBroker(ClientLink, ClusterConnections):
    """One connection, over the native protocol."""

    kafka = False
    several = False

    def __init__(
        self,
        address: str,
        *,
        client_id: str | None,
        request_timeout_ms: int,
        security: Security | None = None,
    ) -> None:
        super().__init__(
            address,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            security=security,
        )
        self._partition_counts: dict[str, int] = {}
        self.known_partition_count = self._partition_counts.get

    async def open(self) -> None:
        await self.connection()

    async def request(
        self, api: Api, body: object, *, to: Target = Some.ANY, wait_ms: int = 0
    ) -> Any:
        return await (await self.connection()).submit(api, body, wait_ms=wait_ms)

    async def request_or_drop(
        self, api: Api, body: object, *, to: Target = Some.ANY, wait_ms: int = 0
    ) -> Any:
        return await ClientLink.request_or_drop(self, api, body, wait_ms=wait_ms)

    async def request_once(self, api: Api, body: object, *, to: Target, wait_ms: int = 0) -> Any:
        return await self.request(api, body, wait_ms=wait_ms)

    async def request_all(
        self, api: Api, bodies: Sequence[object], *, to: Target = Some.ANY
    ) -> list[Any]:
        connection = await self.connection()
        answers = [connection.submit(api, body) for body in bodies]
        return list(await asyncio.gather(*answers))

    async def send_unanswered(self, api: Api, body: object, *, to: Target) -> None:
        (await self.connection()).submit_unanswered(api, body)

    async def partition_count(self, topic: str) -> int:
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
        self._partition_counts.pop(topic, None)

    def beside(self) -> ClusterConnections:
        return OneBroker(
            self.address,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            security=self._security,
        )

    async def close(self) -> None:
        await ClientLink.close(self)
