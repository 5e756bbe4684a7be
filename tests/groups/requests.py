"""What members of groups ask, as requests of Kafka's protocol."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from horolog.protocol.api.groups.find_coordinator import FindCoordinatorRequest
from horolog.protocol.api.groups.heartbeat import HeartbeatRequest
from horolog.protocol.api.groups.join_group import (
    JOIN_GROUP,
    JoinGroupProtocol,
    JoinGroupRequest,
)
from horolog.protocol.api.groups.leave_group import LEAVE_GROUP, LeaveGroupRequest
from horolog.protocol.api.groups.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from horolog.protocol.api.groups.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from horolog.protocol.api.groups.sync_group import SyncGroupAssignment, SyncGroupRequest
from horolog.protocol.api.kafka import frames as kafka
from horolog.protocol.api.schema import Api
from horolog.testing.wire import Wire, wire

OLDER = {JOIN_GROUP.key: 3, LEAVE_GROUP.key: 2}
"""The last versions in which the first request to join makes a member, and one member leaves."""


class OlderClient(Wire):
    """Sends requests in their highest versions, but for those in `OLDER`."""

    def newest(self, api: Api) -> int:
        return OLDER.get(api.key, super().newest(api))


def kafka_client(address: str | None) -> AbstractAsyncContextManager[Wire]:
    """A connection to the port of Kafka's clients."""
    assert address is not None
    return wire(address, kafka, kind=OlderClient)


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


async def stable(client: Wire, group: str, **options: Any) -> tuple[str, int]:
    """Become the only member of a group; its id and generation."""
    joined = await client.call(join(group, **options))
    assert joined.error_code == 0
    member_id = joined.member_id
    synced = await client.call(sync(group, member_id, joined.generation_id, {member_id: b"all"}))
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return member_id, joined.generation_id
