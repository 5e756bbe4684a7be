"""A client of Kafka's protocol for tests: one connection, requests as message objects."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from horolog.config.address import split_address
from horolog.protocol.api import kafka
from horolog.protocol.api.find_coordinator import FindCoordinatorRequest
from horolog.protocol.api.heartbeat import HeartbeatRequest
from horolog.protocol.api.join_group import JoinGroupProtocol, JoinGroupRequest
from horolog.protocol.api.leave_group import LeaveGroupRequest
from horolog.protocol.api.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from horolog.protocol.api.registry import APIS
from horolog.protocol.api.sync_group import SyncGroupAssignment, SyncGroupRequest

API_OF = {api.request: api for api in APIS.values()}


class KafkaClient:
    """Answers come in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._number = 0

    async def call(self, body: object, version: int | None = None) -> Any:
        """Send a request, in its newest version unless told otherwise, and wait for its answer."""
        await self.send(body, version)
        return await self.receive(body, version)

    async def send(self, body: object, version: int | None = None) -> None:
        api = API_OF[type(body)]
        self._number += 1
        number = api.last_version(native=False) if version is None else version
        self._writer.write(kafka.encode_request(api, number, self._number, "tester", body))
        await self._writer.drain()

    async def receive(self, body: object, version: int | None = None) -> Any:
        """The next answer, which is one to a request like `body`."""
        api = API_OF[type(body)]
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        _, raw = kafka.open_response(await self._reader.readexactly(size))
        number = api.last_version(native=False) if version is None else version
        return kafka.decode_response(api.response, number, raw)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def kafka_client(address: str | None) -> AsyncIterator[KafkaClient]:
    """A connection to `HOST:PORT`."""
    assert address is not None
    client = KafkaClient(*await asyncio.open_connection(*split_address(address)))
    try:
        yield client
    finally:
        await client.close()


def coordinator(name: str, key_type: int = 0) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=name, key_type=key_type)


def join(
    group: str,
    member_id: str = "",
    *,
    session_ms: int = 10_000,
    rebalance_ms: int = 60_000,
    metadata: bytes = b"topics",
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupProtocol(name="range", metadata=metadata)],
    )


def sync(
    group: str, member_id: str, generation: int, shares: dict[str, bytes] | None = None
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        assignments=[
            SyncGroupAssignment(member_id=each, assignment=share)
            for each, share in (shares or {}).items()
        ],
    )


def heartbeat(group: str, member_id: str, generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)


def leave(group: str, member_id: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=group, member_id=member_id)


def commit(
    group: str,
    topic: str,
    offset: int,
    *,
    member_id: str = "",
    generation: int = -1,
    retention_ms: int = -1,
    metadata: str = "",
) -> OffsetCommitRequest:
    place = OffsetCommitPartition(partition=0, committed_offset=offset, committed_metadata=metadata)
    return OffsetCommitRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitTopic(name=topic, partitions=[place])],
    )


def committed(group: str, topic: str | None = None) -> OffsetFetchRequest:
    """Partition 0 of a topic, or everything."""
    topics = None if topic is None else [OffsetFetchTopic(name=topic, partitions=[0])]
    return OffsetFetchRequest(group_id=group, topics=topics)


async def stable(client: KafkaClient, group: str, **options: Any) -> tuple[str, int]:
    """Become the only member of a group; its id and generation."""
    joined = await client.call(join(group, **options))
    assert joined.error_code == 0
    member_id = joined.member_id
    synced = await client.call(sync(group, member_id, joined.generation_id, {member_id: b"all"}))
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return member_id, joined.generation_id
