"""describe-groups, list-groups and delete-groups: groups as an operator sees them.

A group is a name that has had members since the broker started, or that has positions.

describe-groups (key 15): versions 0 to 4, native 0
     1  throttle_time_ms in the response (KIP-13)
     2  the response comes before the client is throttled (KIP-219)
     3  authorized_operations (KIP-430)
     4  group_instance_id (KIP-345)
list-groups (key 16): versions 0 to 5, native 0
     1  throttle_time_ms in the response (KIP-13)
     2  the response comes before the client is throttled (KIP-219)
     3  compact encoding (KIP-482)
     4  states_filter (KIP-518)
     5  types_filter (KIP-848)
delete-groups (key 42): versions 0 to 1, native 0 (KIP-229)
     1  the response comes before the client is throttled (KIP-219)
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from typing import Final

from ...protocol.api.groups.delete_groups import (
    DELETE_GROUPS,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ...protocol.api.groups.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ...protocol.api.groups.list_groups import (
    CLASSIC,
    LIST_GROUPS,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ...protocol.api.rights import GROUP_OPERATIONS
from ...protocol.api.security.acl_terms import ResourceType
from ...protocol.errors import GroupIdNotFound
from ...protocol.limits import MAX_LISTED
from ...storage.directory.position_records import check_name
from ...storage.directory.position_table import NameSummary
from ..groups.group import Group
from ..groups.states import State
from ..requests import Call, PendingAnswer
from .base import Services, allowed_bits
from .registration import handles

NO_POSITIONS: Final = NameSummary("", positions=0, of_group=False, moved_ms=-1, used_ms=-1)


@handles(DESCRIBE_GROUPS)
def describe(services: Services, request: DescribeGroupsRequest, call: Call) -> PendingAnswer:
    """Describe the state and the members of each named group; a missing group is `Dead`."""
    services.metadata.check_coordinates()
    task = services.work.start(_describe(services, request, call))
    return PendingAnswer(task, task.result)


async def _describe(
    services: Services, request: DescribeGroupsRequest, call: Call
) -> DescribeGroupsResponse:
    described: list[DescribedGroup] = []
    turns = services.work.turns()
    for name in dict.fromkeys(request.groups):
        group = services.groups.coordinator.groups.get(name)
        if group is not None:
            described.append(_described(group))
        else:
            known = services.directory.committed.has(name)
            state = State.EMPTY if known else State.DEAD
            described.append(DescribedGroup(group_id=name, group_state=state))
        if request.include_authorized_operations:
            described[-1].authorized_operations = allowed_bits(
                services, call, ResourceType.GROUP, name, GROUP_OPERATIONS
            )
        await turns.give_way()
    return DescribeGroupsResponse(groups=described)


def _described(group: Group) -> DescribedGroup:
    stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group.name,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.joining.instance_id,
                client_id=member.joining.client_id,
                client_host=member.joining.client_host,
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment if stable else b"",
            )
            for member in group.members.values()
        ],
    )


@handles(LIST_GROUPS)
def list_all(services: Services, request: ListGroupsRequest, call: Call) -> PendingAnswer:
    """List the groups that match the filters: for Kafka's clients those with members first, else
    by name, in pages."""
    work = _list(services, request) if call.kafka else _page(services, request)
    task = services.work.start(work)
    return PendingAnswer(task, task.result)


async def _list(services: Services, request: ListGroupsRequest) -> ListGroupsResponse:
    if request.types_filter and CLASSIC not in map(str.lower, request.types_filter):
        return ListGroupsResponse(groups=[])
    wanted = frozenset(map(str.lower, request.states_filter))
    store = services.directory.committed
    names: list[str] = []
    if not wanted or State.EMPTY.lower() in wanted:
        names = await services.work.in_storage_thread(partial(store.names, "", MAX_LISTED))
    groups = services.groups.coordinator.groups
    turns = services.work.turns()
    states: dict[str, State] = {}
    for name, group in list(groups.items()):
        if not wanted or group.state.lower() in wanted:
            states[name] = group.state
        await turns.give_way()
    # In a thread, which the event loop does not wait for: there may be a hundred thousand.
    listed = await services.work.in_storage_thread(
        partial(_members_first, states, names, frozenset(groups))
    )
    found: list[ListedGroup] = []
    for name in listed:
        found.append(
            ListedGroup(
                group_id=name,
                protocol_type=groups[name].protocol_type if name in groups else "",
                group_state=states.get(name, State.EMPTY),
                group_type=CLASSIC,
            )
        )
        await turns.give_way()
    return ListGroupsResponse(groups=found)


def _members_first(
    states: Mapping[str, State], stored: Sequence[str], live: Collection[str]
) -> list[str]:
    """Return the names of groups, at most `MAX_LISTED`: first those with members. `states` are
    those of the wanted live groups, `stored` names with positions."""
    with_members = {name for name, state in states.items() if state is not State.EMPTY}
    without = {name for name in stored if name not in live} | (states.keys() - with_members)
    # Not sorted(): it would hold up the interpreter for all names.
    first = nsmallest(MAX_LISTED, with_members)
    return first + nsmallest(MAX_LISTED - len(first), without)


async def _page(services: Services, request: ListGroupsRequest) -> ListGroupsResponse:
    """Return the groups after a name that match the filters, at most `MAX_LISTED`, by name. There
    is at least one, unless none is left: clients continue after the last one that they get."""
    services.metadata.check_coordinates()
    wanted = frozenset(map(str.lower, request.states_filter))
    now_ms = services.trusted_time.now_ms()
    after, more = request.after, True
    listed: list[ListedGroup] = []
    while more and not listed:
        groups, more = await _groups_after(services, after)
        after = groups[-1].group_id if groups else after
        for each in groups:
            idle = not each.members and 0 <= each.used_ms <= now_ms - request.idle_ms
            if (request.idle_ms < 0 or idle) and (not wanted or each.group_state.lower() in wanted):
                listed.append(each)
    return ListGroupsResponse(groups=listed, more=more)


async def _groups_after(services: Services, after: str) -> tuple[list[ListedGroup], bool]:
    """Return some groups after a name, in order of name, and whether there are more."""
    store = services.directory.committed
    summaries, more = await services.work.in_storage_thread(
        partial(store.summaries, after, MAX_LISTED)
    )
    found = {summary.name: summary for summary in summaries}
    last = summaries[-1].name if more else None
    groups = services.groups.coordinator.groups
    # In a thread, which the event loop does not wait for: there may be a hundred thousand.
    names = await services.work.in_storage_thread(
        partial(_first_names, list(groups), found.keys(), after, last)
    )
    turns = services.work.turns()
    listed: list[ListedGroup] = []
    for name in names[:MAX_LISTED]:
        summary = found.get(name) or NO_POSITIONS._replace(name=name)
        listed.append(_listed(summary, groups.get(name)))
        await turns.give_way()
    return listed, more or len(names) > MAX_LISTED


def _first_names(
    live: Iterable[str], stored: Collection[str], after: str, last: str | None
) -> list[str]:
    """Return the first names of groups after `after`, in order, one more than fit into a page. Live
    groups count up to `last`, the last name that was read from the store; None: all names were."""
    behind = {name for name in live if name > after and (last is None or name < last)}
    return nsmallest(MAX_LISTED + 1, behind.union(stored))


def _listed(summary: NameSummary, group: Group | None) -> ListedGroup:
    return ListedGroup(
        group_id=summary.name,
        protocol_type="" if group is None else group.protocol_type,
        group_state=State.EMPTY if group is None else group.state,
        has_only_positions=group is None and not summary.of_group,
        members=0 if group is None else len(group.members),
        positions=summary.positions,
        moved_ms=summary.moved_ms,
        used_ms=summary.used_ms,
    )


@handles(DELETE_GROUPS)
def delete(services: Services, request: DeleteGroupsRequest, call: Call) -> PendingAnswer:
    """Delete groups that have no members, with their positions."""
    task = services.work.start(_delete(services, request))
    return PendingAnswer(task, task.result)


async def _delete(services: Services, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results: list[DeletableGroupResult] = []
    turns = services.work.turns()
    for name in dict.fromkeys(request.groups_names):
        result = DeletableGroupResult(group_id=name)
        try:
            await _delete_one(services, name)
        except Exception as error:
            outcome = services.outcomes.of(error, api="delete-groups")
            result.error_code, result.error_message = outcome
        results.append(result)
        await turns.give_way()
    return DeleteGroupsResponse(results=results)


async def _delete_one(services: Services, name: str) -> None:
    check_name(name)
    coordinator = services.groups.coordinator
    store = services.directory.committed
    if name in coordinator.groups:
        coordinator.delete(name)
    elif not store.has(name):
        raise GroupIdNotFound(f"there is no group {name!r}")
    await services.metadata.positions.forget(name)
