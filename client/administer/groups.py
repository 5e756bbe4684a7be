"""Consumer groups, and named positions: which there are, who their members are, moving and deleting
their positions.

A named position is stored as the offsets of a group with that name; it never has members. The
requests are Kafka's. Horolog's own protocol also answers when positions last moved.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, TypeVar

from ...clock import SystemClock
from ...protocol.api.framing import ProtocolError
from ...protocol.api.groups.delete_groups import (
    DELETE_GROUPS,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ...protocol.api.groups.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ...protocol.api.groups.list_groups import (
    LIST_GROUPS,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ...protocol.api.groups.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from ...protocol.api.groups.offset_delete import (
    OFFSET_DELETE,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
)
from ...protocol.api.groups.offset_fetch import (
    LIST_POSITIONS,
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ...protocol.api.log.list_offsets import EARLIEST, LATEST
from ...protocol.consumer_protocol import read_assignment
from ...protocol.errors import (
    CodedError,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidGroupId,
    InvalidRequest,
    NonEmptyGroup,
    OffsetOutOfRange,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ...protocol.limits import MAX_GROUP_NAME_BYTES
from ...times import INT64_MAX
from ...values import value_class
from ..arguments import check_int, epoch_ms
from ..cluster.route import Route
from ..cluster.targets import CoordinatorNode, NodeById
from ..responses import check, check_code, partition_result
from ..results import (
    AfterEnd,
    Found,
    GroupDescription,
    GroupPosition,
    GroupSummary,
    MemberDescription,
    NoTimestamps,
    PositionLag,
    PositionMove,
)
from .lagging import lags_of
from .searching import find_offset, offsets_at

T = TypeVar("T")

SeekTo = Literal["earliest", "latest"] | datetime | timedelta

Place = tuple[str, int]
"""Topic and partition."""

_DEAD: Final = "Dead"
"""State in which a group that does not exist is described."""

_AT_A_TIME: Final = 64
"""Number of partitions asked about concurrently."""

_DESCRIBED_AT_ONCE: Final = 100
"""Number of groups in one request for their members."""

_MEMBERS_NAMED: Final = 10
"""Number of members that an error names."""

_MILLISECOND: Final = timedelta(milliseconds=1)


@value_class
class SeekTarget:
    """Where positions are moved to."""

    kind: Literal["earliest", "latest", "time", "offset", "by"]
    number: int = 0
    """Epoch milliseconds, the offset, or the number of messages, by kind."""


def seek_target(
    to: SeekTo | None,
    *,
    timestamp_ms: int | None,
    offset: int | None,
    by: int | None,
    check_units: bool,
) -> SeekTarget:
    """Return the target that the arguments of `seek_group` name. Raises TypeError unless exactly
    one is given, ValueError for a number that is out of range, `TimeError`."""
    given = [each for each in (to, timestamp_ms, offset, by) if each is not None]
    if len(given) != 1:
        raise TypeError("give exactly one of to, timestamp_ms, offset and by")
    if offset is not None:
        check_int(offset, "offset")
        if not 0 <= offset <= INT64_MAX:
            raise ValueError(f"offset is from 0 to {INT64_MAX}, not {offset}")
        return SeekTarget("offset", offset)
    if by is not None:
        check_int(by, "by")
        if not -INT64_MAX <= by <= INT64_MAX:
            raise ValueError(f"by is from {-INT64_MAX} to {INT64_MAX}, not {by}")
        return SeekTarget("by", by)
    if to == "earliest":
        return SeekTarget("earliest")
    if to == "latest":
        return SeekTarget("latest")
    if isinstance(to, timedelta):
        return _before_now(to)
    if to is not None and not isinstance(to, datetime):
        raise ValueError(
            f"to is 'earliest', 'latest', a datetime, or a timedelta before now, not {to!r}"
        )
    time_ms = epoch_ms(to, timestamp_ms, check_units=check_units, is_bound=True)
    return SeekTarget("time", time_ms or 0)


def _before_now(length: timedelta) -> SeekTarget:
    ago_ms = length // _MILLISECOND
    now_ms = SystemClock().now_ms()
    if not 0 <= ago_ms <= now_ms:
        raise ValueError(f"to is a length of time before now, not {length!r}")
    return SeekTarget("time", now_ms - ago_ms)


async def list_groups(cluster: Route, idle_for: timedelta | None) -> list[GroupSummary]:
    """Return all groups and names with positions, sorted by name; with `idle_for` only those that
    have had no member and no commit for that long."""
    if cluster.kafka:
        if idle_for is not None:
            raise UnsupportedVersion(
                "Kafka's protocol does not say when a group was last used; ask a Horolog broker at "
                "its own port, without kafka://"
            )
        return await _kafka_groups(cluster)
    idle_ms = -1 if idle_for is None else idle_for // _MILLISECOND
    found: list[GroupSummary] = []
    more = True
    while more:
        after = found[-1].name if found else ""
        request = ListGroupsRequest(after=after, idle_ms=idle_ms)
        response: ListGroupsResponse = await cluster.request(LIST_GROUPS, request)
        check_code(response.error_code)
        found += map(_summary, response.groups)
        more = response.more and bool(response.groups)
    return found


def _summary(group: ListedGroup) -> GroupSummary:
    return GroupSummary(
        name=group.group_id,
        state=None if group.has_only_positions else group.group_state,
        protocol_type=group.protocol_type,
        members=group.members,
        positions=group.positions,
        moved_at_ms=_known(group.moved_ms),
        used_at_ms=_known(group.used_ms),
    )


async def _kafka_groups(cluster: Route) -> list[GroupSummary]:
    """Each broker lists the groups that it coordinates, and describes them."""
    found: dict[str, GroupSummary] = {}
    for node_id in await cluster.node_ids():
        at = NodeById(node_id)
        response: ListGroupsResponse = await cluster.request(
            LIST_GROUPS, ListGroupsRequest(), to=at
        )
        check_code(response.error_code)
        names = [group.group_id for group in response.groups]
        for start in range(0, len(names), _DESCRIBED_AT_ONCE):
            request = DescribeGroupsRequest(groups=names[start : start + _DESCRIBED_AT_ONCE])
            described: DescribeGroupsResponse = await cluster.request(
                DESCRIBE_GROUPS, request, to=at
            )
            for group in described.groups:
                check_code(group.error_code)
                found[group.group_id] = GroupSummary(
                    name=group.group_id,
                    state=group.group_state if group.protocol_type or group.members else None,
                    protocol_type=group.protocol_type,
                    members=len(group.members),
                )
    return [found[name] for name in sorted(found)]


async def describe_group(cluster: Route, name: str) -> GroupDescription:
    """Return a group with its members and positions. Raises GroupIdNotFound."""
    described = await _described(cluster, name)
    members = _members(described)
    lags = await lags_of(cluster, name, now_ms=SystemClock().now_ms())
    if described.group_state == _DEAD and not lags:
        raise _no_group(name)
    holders = {place: member for member in members for place in member.partitions}
    positions = [_position(each, holders.get((each.topic, each.partition))) for each in lags]
    stored = {(each.topic, each.partition) for each in lags}
    positions += await _without_position(cluster, sorted(holders.keys() - stored), holders)
    return GroupDescription(
        name=name,
        state=lags[0].group if lags else described.group_state,
        protocol_type=described.protocol_type,
        protocol=described.protocol_data,
        members=tuple(members),
        positions=tuple(sorted(positions, key=lambda each: (each.topic, each.partition))),
    )


def _position(found: PositionLag, member: MemberDescription | None) -> GroupPosition:
    return GroupPosition(
        topic=found.topic,
        partition=found.partition,
        offset=found.offset,
        end_offset=found.end_offset,
        lag=found.lag,
        moved_at_ms=found.moved_at_ms,
        member=member,
        error=found.error,
    )


async def _without_position(
    cluster: Route,
    places: Sequence[Place],
    holders: Mapping[Place, MemberDescription],
) -> list[GroupPosition]:
    """Return the partitions that members have and in which nothing is committed yet."""

    async def one(place: Place) -> GroupPosition:
        end_offset, error = None, None
        try:
            (end,) = await offsets_at(cluster, *place, [LATEST])
            end_offset = end.offset
        except CodedError as failure:
            error = failure
        return GroupPosition(
            topic=place[0],
            partition=place[1],
            end_offset=end_offset,
            member=holders[place],
            error=error,
        )

    return await _for_each(places, one)


async def plan_seek(
    cluster: Route,
    name: str,
    target: SeekTarget,
    topic: str | None,
    partition: int | None,
) -> list[PositionMove]:
    """Return where the positions of a group are, and where they would be. Raises NonEmptyGroup
    while the group has members, GroupIdNotFound if there is no position to move and no topic is
    given, InvalidGroupId for a name that no group may have, OffsetOutOfRange for an offset that a
    partition does not have."""
    _check_name(cluster, name)
    await _check_empty(cluster, name, "positions move only while no client reads with them")
    stored = await _stored(cluster, name)
    if topic is None:
        if not stored:
            raise GroupIdNotFound(
                f"group {name!r} has no positions that could move; name a topic, and positions are "
                "created for its partitions"
            )
        places = sorted(stored)
    else:
        places = await _places(cluster, topic, partition)

    async def one(place: Place) -> PositionMove:
        old = stored.get(place)
        return PositionMove(*place, old, await _new_offset(cluster, place, old, target))

    return await _for_each(places, one)


def _check_name(cluster: Route, name: str) -> None:
    """Raise InvalidGroupId for a name that is empty, or longer than Horolog allows."""
    size = len(name.encode())
    if not name or (size > MAX_GROUP_NAME_BYTES and not cluster.kafka):
        raise InvalidGroupId(
            f"the group name {name[:40]!r} has {size} bytes; give one of 1 to "
            f"{MAX_GROUP_NAME_BYTES} bytes"
        )


async def _places(cluster: Route, topic: str, partition: int | None) -> list[Place]:
    count = (await cluster.partition_counts([topic]))[topic]
    if partition is None:
        return [(topic, number) for number in range(count)]
    if partition >= count:
        raise UnknownTopicOrPartition(
            f"{topic} has no partition {partition}, only those from 0 to {count - 1}"
        )
    return [(topic, partition)]


async def _new_offset(cluster: Route, place: Place, old: int | None, target: SeekTarget) -> int:
    if target.kind == "time":
        return await _offset_of_time(cluster, place, target.number)
    start, end = await _bounds(cluster, place)
    match target.kind:
        case "earliest":
            return start
        case "latest":
            return end
        case "offset":
            if not start <= target.number <= end:
                raise OffsetOutOfRange(
                    f"{place[0]}-{place[1]} has no offset {target.number}, only those from {start} "
                    f"to {end}"
                )
            return target.number
        case _:
            if old is None:
                raise InvalidRequest(
                    f"{place[0]}-{place[1]} has no position from which {target.number:+} could be "
                    "counted; give a time, an offset, earliest or latest"
                )
            return min(max(old + target.number, start), end)


async def _offset_of_time(cluster: Route, place: Place, time_ms: int) -> int:
    match await find_offset(cluster, *place, time_ms):
        case Found(offset, _):
            return offset
        case AfterEnd(end_offset):
            return end_offset
        case NoTimestamps():
            start, end = await _bounds(cluster, place)
            if start != end:
                raise InvalidRequest(
                    f"no message of {place[0]}-{place[1]} has a time, so none is found by time; "
                    "give an offset, earliest or latest"
                )
            return end


async def _bounds(cluster: Route, place: Place) -> tuple[int, int]:
    start, end = await offsets_at(cluster, *place, [EARLIEST, LATEST])
    return start.offset or 0, end.offset or 0


async def move(cluster: Route, name: str, moves: Sequence[PositionMove]) -> None:
    """Commit the new offsets. They are durable on return. Raises NonEmptyGroup if the group has
    members by now; any other error says how many positions moved."""
    topics: dict[str, list[OffsetCommitPartition]] = {}
    for each in moves:
        topics.setdefault(each.topic, []).append(
            OffsetCommitPartition(partition=each.partition, committed_offset=each.new or 0)
        )
    request = OffsetCommitRequest(
        group_id=name,
        topics=[
            OffsetCommitTopic(name=topic, partitions=places) for topic, places in topics.items()
        ],
        keeps_retention=True,
    )
    failures: list[tuple[PositionMove, CodedError]] = []
    try:
        response: OffsetCommitResponse = await cluster.request(
            OFFSET_COMMIT, request, to=CoordinatorNode(name)
        )
        for each in moves:
            try:
                partition_result(response.topics, each.topic, each.partition)
            except CodedError as error:
                failures.append((each, error))
    except UnknownMemberId as error:
        raise _joined_meanwhile(name) from error
    if not failures:
        return
    first, failure = failures[0]
    if isinstance(failure, UnknownMemberId):
        raise _joined_meanwhile(name) from failure
    count = len(moves) - len(failures)
    place = f"{first.topic}-{first.partition}: "  # in some messages already
    raise type(failure)(
        f"{count} of {len(moves)} positions moved; not {place}{failure.message.removeprefix(place)}"
    ) from failure


def _joined_meanwhile(name: str) -> NonEmptyGroup:
    return NonEmptyGroup(f"a member joined group {name!r} meanwhile; no position moved")


async def plan_deletion(
    cluster: Route, name: str, topic: str | None, partition: int | None
) -> list[PositionMove]:
    """Return the positions that a deletion removes. Raises GroupIdNotFound, also if the group has
    no position in `topic`, and NonEmptyGroup if a whole group has members."""
    described = await _described(cluster, name)
    stored = await _stored(cluster, name)
    if described.group_state == _DEAD and not stored:
        raise _no_group(name)
    if topic is None:
        _check_no_members(name, described, "stop them, and delete the group then")
    gone = [
        PositionMove(*place, old, None)
        for place, old in sorted(stored.items())
        if topic in (None, place[0]) and partition in (None, place[1])
    ]
    if topic is not None and not gone:
        where = topic if partition is None else f"{topic}-{partition}"
        raise GroupIdNotFound(f"group {name!r} has no position in {where}")
    return gone


async def delete_whole(cluster: Route, name: str) -> None:
    """Delete a group with all its positions. Raises NonEmptyGroup, GroupIdNotFound."""
    response: DeleteGroupsResponse = await cluster.request(
        DELETE_GROUPS, DeleteGroupsRequest(groups_names=[name]), to=CoordinatorNode(name)
    )
    for result in response.results:
        check(result)


async def delete_positions(cluster: Route, name: str, gone: Iterable[PositionMove]) -> None:
    """Delete positions of a group. Raises GroupSubscribedToTopic if a member subscribes to the
    topic."""
    topics: dict[str, list[OffsetDeletePartition]] = {}
    for each in gone:
        places = topics.setdefault(each.topic, [])
        places.append(OffsetDeletePartition(partition=each.partition))
    request = OffsetDeleteRequest(
        group_id=name,
        topics=[OffsetDeleteTopic(name=topic, partitions=list_) for topic, list_ in topics.items()],
    )
    response: OffsetDeleteResponse = await cluster.request(
        OFFSET_DELETE, request, to=CoordinatorNode(name)
    )
    check_code(response.error_code)
    for topic, places in topics.items():
        for place in places:
            try:
                partition_result(response.topics, topic, place.partition)
            except GroupSubscribedToTopic:
                described = await _described(cluster, name)
                raise GroupSubscribedToTopic(
                    f"members of group {name!r} subscribe to {topic}: {_named(described)}; stop "
                    "them first"
                ) from None


async def _described(cluster: Route, name: str) -> DescribedGroup:
    response: DescribeGroupsResponse = await cluster.request(
        DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[name]), to=CoordinatorNode(name)
    )
    (described,) = response.groups
    check(described)
    return described


def _members(described: DescribedGroup) -> list[MemberDescription]:
    return [
        MemberDescription(
            member_id=member.member_id,
            client_id=member.client_id,
            host=member.client_host.removeprefix("/"),
            instance_id=member.group_instance_id,
            partitions=_partitions(member.member_assignment),
        )
        for member in described.members
    ]


def _partitions(assignment: bytes) -> tuple[Place, ...]:
    """Return the partitions of an assignment; none if the members are not consumers."""
    try:
        return tuple(read_assignment(assignment))
    except ProtocolError:
        return ()


async def _stored(cluster: Route, name: str) -> dict[Place, int]:
    """Return the committed offsets of a group."""
    found: dict[Place, int] = {}
    after, more = "", True
    while more:
        if cluster.kafka:
            request = OffsetFetchRequest(group_id=name, topics=None)
        else:
            request = OffsetFetchRequest(
                group_id=name, topics=[], listing=LIST_POSITIONS, after=after
            )
        response: OffsetFetchResponse = await cluster.request(
            OFFSET_FETCH, request, to=CoordinatorNode(name)
        )
        check_code(response.error_code)
        for topic in response.topics:
            after = topic.name
            for result in topic.partitions:
                if result.committed_offset >= 0:
                    found[topic.name, result.partition] = result.committed_offset
        more = response.more
    return found


async def _check_empty(cluster: Route, name: str, why: str) -> None:
    _check_no_members(name, await _described(cluster, name), f"stop them: {why}")


def _check_no_members(name: str, described: DescribedGroup, cure: str) -> None:
    if described.members:
        count = len(described.members)
        noun = "member" if count == 1 else "members"
        raise NonEmptyGroup(f"group {name!r} has {count} {noun}: {_named(described)}; {cure}")


def _named(described: DescribedGroup) -> str:
    members = _members(described)
    shown = [f"{member.member_id} at {member.host}" for member in members[:_MEMBERS_NAMED]]
    more = len(members) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more else "")


def _no_group(name: str) -> GroupIdNotFound:
    return GroupIdNotFound(f"there is no group {name!r}, and no position under this name")


def _known(number: int) -> int | None:
    return None if number < 0 else number


async def _for_each(places: Sequence[Place], call: Callable[[Place], Awaitable[T]]) -> list[T]:
    """Return the results of `call` for each place. The first error ends the others."""
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def one(place: Place) -> T:
        async with turns:
            return await call(place)

    tasks = [asyncio.ensure_future(one(place)) for place in places]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
