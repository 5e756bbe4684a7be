"""offset-commit, offset-fetch and offset-delete: offsets of consumer groups, or named positions.

offset-commit (key 8): versions 0 to 7, native 0
     1  generation and member, commit_timestamp
     2  retention_time_ms in place of commit_timestamp
     3  throttle_time_ms in the response (KIP-13)
     4  the response comes before the client is throttled (KIP-219)
     5  no retention_time_ms (KIP-211)
     6  committed_leader_epoch (KIP-320)
     7  group_instance_id (KIP-345)
offset-fetch (key 9): versions 0 to 5, native 0
     1  the same as 0
     2  no list means all partitions; an error of the group (KIP-88)
     3  throttle_time_ms in the response (KIP-13)
     4  the response comes before the client is throttled (KIP-219)
     5  committed_leader_epoch (KIP-320)
offset-delete (key 47): versions 0, native 0 (KIP-496)

Left out: several groups in one offset-fetch (KIP-709), commits of transactions (KIP-447).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from functools import partial

from ...protocol.api.groups.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResult,
)
from ...protocol.api.groups.offset_delete import (
    OFFSET_DELETE,
    OffsetDeletePartitionResult,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResult,
)
from ...protocol.api.groups.offset_fetch import (
    LIST_NAMES,
    LIST_POSITIONS,
    OFFSET_FETCH,
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResult,
)
from ...protocol.api.pieces import Pieces
from ...protocol.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidRequest,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
)
from ...protocol.lag import Lag
from ...protocol.limits import MAX_LISTED
from ...protocol.window_topics import base_of, find_window
from ...storage.directory.position_records import (
    BROKERS,
    KEPT,
    NO_EPOCH,
    StoredPosition,
    check_name,
)
from ...storage.read.window_sets import knowledge_of
from ...times import INT64_MAX
from ..groups.group import CONSUMER, Group, NoSubscription, topics_of
from ..groups.states import State
from ..requests import Call, PendingAnswer, in_turns
from ..window_topics import log_window
from ..work import Turns
from .base import Services
from .registration import handles
from .repeats import answering_once
from .window_reads import latest_offset, window_lag

FIRST_VERSION_WITH_ALL = 2
"""First version of offset-fetch in which null topics ask for all positions."""


@handles(OFFSET_COMMIT)
def commit(
    services: Services, request: OffsetCommitRequest, call: Call
) -> OffsetCommitResponse | PendingAnswer:
    """Check each position, then store the valid ones durably with one record.

    Raises a `CodedError` if the group member may not commit.
    """
    services.groups.check_commit(
        request.group_id, request.member_id, request.generation_id, request.group_instance_id
    )
    retention_ms = _retention_ms(services, request, call)
    return in_turns(services.work, _committing(services, request, retention_ms))


def _committing(
    services: Services, request: OffsetCommitRequest, retention_ms: int
) -> Pieces[OffsetCommitResponse | PendingAnswer]:
    positions: list[StoredPosition] = []
    written: list[OffsetCommitPartitionResult] = []
    topics: list[OffsetCommitTopicResult] = []
    for topic in request.topics:
        results = []
        for partition in topic.partitions:
            result = OffsetCommitPartitionResult(partition=partition.partition)
            try:
                position = _position(services, topic.name, partition, retention_ms)
                positions.append(_with_last_move(services, request.group_id, position))
                written.append(result)
            except Exception as error:
                outcome = services.outcomes.of(error, api="offset-commit")
                result.error_code, result.error_message = outcome
            results.append(result)
            yield
        topics.append(OffsetCommitTopicResult(name=topic.name, partitions=results))
    response = OffsetCommitResponse(topics=topics)
    if not positions:
        return response
    # A commit waits for the disk, so the answer is pending.
    ready = services.metadata.positions.commit(request.group_id, positions)

    def committed() -> Pieces[OffsetCommitResponse]:
        error = ready.exception()
        if isinstance(error, Exception):
            outcome = services.outcomes.of(error, api="offset-commit")
            for result in written:
                result.error_code, result.error_message = outcome
        else:
            for position in positions:
                services.lags.committed(request.group_id, position)
                yield
        return response

    return PendingAnswer(ready, lambda: in_turns(services.work, committed()))


def _retention_ms(services: Services, request: OffsetCommitRequest, call: Call) -> int:
    """Return how long a position is kept without use. Positions of the native protocol are kept:
    their named reader comes back; groups of Kafka clients may be gone for good. A tool that moves
    the positions of a group does not change that."""
    if not call.kafka:
        of_group = request.keeps_retention and _is_group(services, request.group_id)
        return BROKERS if of_group else KEPT
    return BROKERS if request.retention_time_ms < 0 else max(request.retention_time_ms, 1)


def _is_group(services: Services, name: str) -> bool:
    """Whether a name is that of a group of Kafka's clients."""
    store = services.directory.committed
    return name in services.groups.coordinator.groups or store.is_of_group(name)


def _position(
    services: Services, topic: str, partition: OffsetCommitPartition, retention_ms: int
) -> StoredPosition:
    base = base_of(services.directory.topics(), topic)
    services.logs.check_partition(base, partition.partition)
    metadata = partition.committed_metadata or ""
    limit = services.settings.offset_metadata_max_bytes
    size = len(metadata.encode())
    if size > limit:
        raise OffsetMetadataTooLarge(
            f"the text beside the position takes {size} bytes; the limit is {limit} "
            "(offset.metadata.max.bytes)"
        )
    if partition.committed_offset < 0:
        raise InvalidRequest(f"offset {partition.committed_offset} is below 0")
    return StoredPosition(
        topic=topic,
        partition=partition.partition,
        offset=partition.committed_offset,
        timestamp_ms=partition.timestamp_ms,
        commit_time_ms=services.clock.now_ms(),
        metadata=metadata,
        retention_ms=retention_ms,
        leader_epoch=max(partition.committed_leader_epoch, NO_EPOCH),
    )


def _with_last_move(services: Services, name: str, position: StoredPosition) -> StoredPosition:
    """Return the position with the time of its last move, if this commit repeats the offset. Many
    clients commit every few seconds, whether they read anything or not."""
    before = services.directory.committed.get(name, position.topic, position.partition)
    if before is None or before.offset != position.offset:
        return position
    return position._replace(moved_ms=before.moved_at_ms)


@handles(OFFSET_FETCH)
@answering_once
def fetch(
    services: Services, request: OffsetFetchRequest, call: Call
) -> OffsetFetchResponse | PendingAnswer:
    """Return the positions of a group or name; a position never committed has offset -1."""
    if request.listing not in ("", LIST_NAMES, LIST_POSITIONS):
        raise InvalidRequest(
            f"listing is {request.listing!r}; it must be {LIST_NAMES!r} or {LIST_POSITIONS!r}, or "
            "not be given"
        )
    services.metadata.check_coordinates()
    if request.topics is None and call.version < FIRST_VERSION_WITH_ALL:
        raise InvalidRequest(
            f"topics is null, which means all from version {FIRST_VERSION_WITH_ALL} on only"
        )
    if request.topics is not None and not request.listing and not request.lag:
        return in_turns(services.work, _named_alone(services, request))
    task = services.work.start(_fetch(services, request))
    return PendingAnswer(task, task.result)


async def _fetch(services: Services, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Answer requests that may take long: lists, all positions, and lags. Other requests get their
    turns meanwhile."""
    store = services.directory.committed
    if request.listing == LIST_NAMES:
        names = await services.work.in_storage_thread(
            partial(store.names, request.after, MAX_LISTED + 1)
        )
        more = len(names) > MAX_LISTED
        return OffsetFetchResponse(topics=[], names=names[:MAX_LISTED], more=more)
    if request.listing:
        held = await services.work.in_storage_thread(partial(store.of, request.group_id))
        response = await _page(services, held, request.after)
    elif request.topics is None:
        held = await services.work.in_storage_thread(partial(store.of, request.group_id))
        topics = await _listed(held, services.work.turns())
        return OffsetFetchResponse(topics=topics)
    else:
        named = _named(services, request)
        topics = await services.work.finish(named, services.work.turns())
        response = OffsetFetchResponse(topics=topics)
    if request.lag:
        await _add_lags(services, request.group_id, response.topics)
        _add_group(services, request.group_id, response)
    return response


async def _page(services: Services, held: list[StoredPosition], after: str) -> OffsetFetchResponse:
    """Return one page of positions: whole topics whose names come after `after`, at least one."""
    begin = bisect_right(held, after, key=_topic_of)
    end = begin + MAX_LISTED
    if end < len(held):
        # The last topic is left out if it goes on, unless it is the only one.
        last = held[end].topic
        end = bisect_left(held, last, begin, end, key=_topic_of)
        if end == begin:
            end = bisect_right(held, last, begin, key=_topic_of)
    more, turns = end < len(held), services.work.turns()
    topics = await _listed(held[begin:end], turns)
    while held:  # Freeing a million positions at once would take 100 ms.
        del held[-MAX_LISTED:]
        await turns.give_way()
    return OffsetFetchResponse(topics=topics, more=more)


async def _listed(held: list[StoredPosition], turns: Turns) -> list[OffsetFetchTopicResult]:
    """Return the entries of positions, which are sorted. Frees the positions on the way."""
    topics: list[OffsetFetchTopicResult] = []
    held.reverse()
    while held:
        position = held.pop()
        if not topics or topics[-1].name != position.topic:
            topics.append(OffsetFetchTopicResult(name=position.topic, partitions=[]))
        topics[-1].partitions.append(_result(position.partition, position))
        await turns.give_way()
    return topics


def _topic_of(position: StoredPosition) -> str:
    return position.topic


def _named_alone(services: Services, request: OffsetFetchRequest) -> Pieces[OffsetFetchResponse]:
    return OffsetFetchResponse(topics=(yield from _named(services, request)))


def _named(services: Services, request: OffsetFetchRequest) -> Pieces[list[OffsetFetchTopicResult]]:
    store = services.directory.committed
    topics: list[OffsetFetchTopicResult] = []
    for topic in request.topics or ():
        results: list[OffsetFetchPartitionResult] = []
        if topic.offsets:
            if len(topic.offsets) != len(topic.partitions):
                raise InvalidRequest(
                    f"there are {len(topic.offsets)} offsets for {len(topic.partitions)} "
                    f"partitions of {topic.name!r}; there must be one for each, or none"
                )
            for partition, offset in zip(topic.partitions, topic.offsets, strict=True):
                results.append(
                    OffsetFetchPartitionResult(partition=partition, committed_offset=offset)
                )
                yield
        else:
            for partition in topic.partitions:
                position = store.get(request.group_id, topic.name, partition)
                results.append(_result(partition, position))
                yield
        topics.append(OffsetFetchTopicResult(name=topic.name, partitions=results))
    return topics


async def _add_lags(
    services: Services, name: str, topics: Iterable[OffsetFetchTopicResult]
) -> None:
    turns = services.work.turns()
    for topic in topics:
        for result in topic.partitions:
            if result.committed_offset < 0:
                continue
            try:
                lag, end = await _lag(
                    services, name, topic.name, result.partition, result.committed_offset
                )
            except Exception as error:
                outcome = services.outcomes.of(error, api="offset-fetch")
                result.error_code, result.error_message = outcome
            else:
                result.end_offset = end
                result.lag = lag.messages
                result.lag_ms = _ms(lag.seconds)
                result.lag_estimated = lag.estimated
                result.catch_up_ms = _ms(lag.catch_up_seconds)
            await turns.give_way()


async def _lag(
    services: Services, name: str, topic: str, partition: int, offset: int
) -> tuple[Lag, int]:
    """Return the lag of a position, and the offset after the last message that consumers can
    read."""
    window = find_window(services.directory.topics(), topic)
    if window is None:
        lag = await services.lags.of(topic, partition, offset, name)
        return lag, services.logs.find(topic, partition).high_watermark
    lag = await window_lag(services, window, partition, offset)
    log, found = services.logs.find(window.base, partition), log_window(window)
    known = knowledge_of(log, found, committed=False)
    return lag, await latest_offset(services, log, found, known)


def _add_group(services: Services, name: str, response: OffsetFetchResponse) -> None:
    group = services.groups.coordinator.groups.get(name)
    if group is not None:
        response.group_state = group.state
        response.group_members = len(group.members)
    elif services.directory.committed.is_of_group(name):
        response.group_state = State.EMPTY


def _ms(seconds: float | None) -> int:
    return -1 if seconds is None else round(min(seconds * 1000, INT64_MAX))


def _result(partition: int, position: StoredPosition | None) -> OffsetFetchPartitionResult:
    if position is None:
        return OffsetFetchPartitionResult(partition=partition)
    return OffsetFetchPartitionResult(
        partition=partition,
        committed_offset=position.offset,
        committed_leader_epoch=position.leader_epoch,
        metadata=position.metadata,
        timestamp_ms=position.timestamp_ms,
        commit_time_ms=position.commit_time_ms,
        moved_ms=position.moved_at_ms,
    )


@handles(OFFSET_DELETE)
def delete(services: Services, request: OffsetDeleteRequest, call: Call) -> PendingAnswer:
    """Delete positions of a group, except in topics to which a member subscribes."""
    task = services.work.start(_delete(services, request))
    return PendingAnswer(task, task.result)


async def _delete(services: Services, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete positions. Raises `InvalidGroupId`, `GroupIdNotFound`, `NonEmptyGroup`, and the errors
    of a commit."""
    name = request.group_id
    check_name(name)
    services.metadata.check_coordinates()
    turns = services.work.turns()
    asked = {topic.name: dict[int, None]() for topic in request.topics}
    for topic in request.topics:
        asked[topic.name] |= {each.partition: None for each in topic.partitions}
        await turns.give_way()
    subscribed = await _subscribed(services, name, asked, turns)
    topics: list[OffsetDeleteTopicResult] = []
    gone: list[tuple[str, int]] = []
    for topic_name, partitions in asked.items():
        results: list[OffsetDeletePartitionResult] = []
        topics.append(OffsetDeleteTopicResult(name=topic_name, partitions=results))
        for partition in partitions:
            result = OffsetDeletePartitionResult(partition=partition)
            results.append(result)
            try:
                base = base_of(services.directory.topics(), topic_name)
                services.logs.check_partition(base, partition)
                if subscribed is None or topic_name in subscribed:
                    raise GroupSubscribedToTopic(
                        f"a member of group {name!r} subscribes to topic {topic_name!r}"
                    )
                gone.append((topic_name, partition))
            except Exception as error:
                outcome = services.outcomes.of(error, api="offset-delete")
                result.error_code, result.error_message = outcome
            await turns.give_way()
    if gone:
        await services.metadata.positions.forget_some(name, gone)
    return OffsetDeleteResponse(topics=topics)


async def _subscribed(
    services: Services, name: str, asked: Collection[str], turns: Turns
) -> set[str] | None:
    """Return the topics in `asked` to which members of a group subscribe; `None` if a member's
    subscription is not known.

    Raises `GroupIdNotFound`, and `NonEmptyGroup` if the members are not consumers.
    """
    group = services.groups.coordinator.groups.get(name)
    if group is None:
        if not services.directory.committed.has(name):
            raise GroupIdNotFound(f"there is no group {name!r}")
        return set()
    if group.state is State.EMPTY:
        return set()
    if group.protocol_type != CONSUMER:
        raise NonEmptyGroup(
            f"group {name!r} has {len(group.members)} members of the type "
            f"{group.protocol_type[:80]!r}, of which it is not known what they read"
        )
    topics: set[str] = set()
    for metadata in _subscriptions(group):
        try:
            for topic in topics_of(metadata):
                if topic in asked:
                    topics.add(topic)
                await turns.give_way()
        except NoSubscription:
            return None
        await turns.give_way()
    return topics


def _subscriptions(group: Group) -> list[bytes]:
    """Return the members' metadata for the chosen protocol of the group; a member without metadata
    for that protocol gives the metadata of all its protocols."""
    return [
        protocol.metadata
        for member in group.members.values()
        for protocol in member.joining.protocols
        if protocol.name == group.protocol or not member.metadata(group.protocol)
    ]
