"""Named positions and groups of the page, those furthest behind in time first."""

from contextlib import suppress
from math import inf
from typing import Final

from ...protocol.api.framing import ProtocolError
from ...protocol.consumer_protocol import read_assignment
from ...protocol.lag import Lag
from ..groups.group import Group
from ..groups.member import GroupMember
from ..groups.states import State
from ..handlers.base import Services
from ..metrics.lags import MAX_READ_ASSIGNMENT_BYTES, Key
from .access import PageAccess, Query

CONSUMERS_AT_ONCE: Final = 100
GROUPS_AT_ONCE: Final = 50
MEMBERS_AT_ONCE: Final = 50
"""Largest number of members per group."""
PARTITIONS_AT_ONCE: Final = 50
"""Largest number of partitions per member."""

Lags = dict[Key, Lag]


async def consumers(services: Services, query: Query) -> dict[str, object]:
    """Return the followed positions of all topics, or of `topic`, and the groups with their
    members. `hidden` says whether there may be others that the viewer has no right to see."""
    topic = query.text("topic", "")
    await services.lags.refresh()
    access = query.access
    every = access.every_topic() and access.every_group()
    followed = {
        key: position.lag
        for key, position in services.lags.followed.items()
        if topic in ("", key[1]) and access.topic(key[1]) and access.group(key[0])
    }
    furthest = sorted(followed.items(), key=_behind, reverse=True)[:CONSUMERS_AT_ONCE]
    groups, count = await _groups(services, access, followed)
    return {
        "now_ms": services.clock.now_ms(),
        "count": len(followed),
        "left_out": services.lags.left_out if every else 0,
        "hidden": not every,
        "consumers": [_consumer(services, key, lag) for key, lag in furthest],
        "group_count": count,
        "groups": groups,
    }


def _behind(followed: tuple[Key, Lag]) -> tuple[float, int]:
    lag = followed[1]
    return (inf if lag.seconds is None else lag.seconds), lag.messages


def _consumer(services: Services, key: Key, lag: Lag) -> dict[str, object]:
    name, topic, partition = key
    position = services.directory.committed.get(name, topic, partition)
    return {
        "name": name,
        "topic": topic,
        "partition": partition,
        "offset": None if position is None else position.offset,
        "commit_time_ms": None if position is None else position.commit_time_ms,
        "messages": lag.messages,
        "seconds": lag.seconds,
        "estimated": lag.estimated,
        "catch_up_seconds": lag.catch_up_seconds,
    }


async def _groups(
    services: Services, access: PageAccess, followed: Lags
) -> tuple[list[dict[str, object]], int]:
    """Return the groups furthest behind, with members, and the number of all. A name that has
    positions only is a group without members."""
    lags: dict[str, Lags] = {}
    for key, lag in followed.items():
        lags.setdefault(key[0], {})[key] = lag
    turns = services.work.turns()
    known = services.groups.coordinator.groups
    for name in list(known):
        if name not in lags and access.group(name):
            lags[name] = {}
        await turns.give_way()
    order = sorted(lags, key=lambda name: (-_most_behind(lags[name]), name))
    shown: list[dict[str, object]] = []
    for name in order[:GROUPS_AT_ONCE]:
        group = known.get(name)
        members: list[dict[str, object]] = []
        for member in [] if group is None else list(group.members.values())[:MEMBERS_AT_ONCE]:
            members.append(_member(access, member, name, lags[name]))
            await turns.give_way()
        shown.append(_group(name, group, lags[name], members))
    return shown, len(lags)


def _most_behind(lags: Lags) -> float:
    """Return the largest lag in seconds; -1 without positions."""
    return max((inf if lag.seconds is None else lag.seconds for lag in lags.values()), default=-1.0)


def _group(
    name: str, group: Group | None, lags: Lags, members: list[dict[str, object]]
) -> dict[str, object]:
    return {
        "name": name,
        "state": State.EMPTY if group is None else group.state,
        "member_count": 0 if group is None else len(group.members),
        "members": members,
        **_sums(lags),
    }


def _sums(lags: Lags) -> dict[str, object]:
    """Return the lag of some positions together. `seconds` is None if one is unknown or there is
    none."""
    seconds = _most_behind(lags)
    return {
        "positions": len(lags),
        "messages": sum(lag.messages for lag in lags.values()),
        "seconds": seconds if 0 <= seconds < inf else None,
        "estimated": any(lag.estimated for lag in lags.values()),
    }


def _member(access: PageAccess, member: GroupMember, group: str, lags: Lags) -> dict[str, object]:
    """Return a member with those of its partitions whose topics the viewer may see."""
    joining = member.joining
    keys: list[Key] = []
    if len(member.assignment) <= MAX_READ_ASSIGNMENT_BYTES:
        with suppress(ProtocolError):
            keys += [
                (group, topic, partition)
                for topic, partition in read_assignment(member.assignment)
                if access.topic(topic)
            ]
    return {
        "id": member.member_id,
        "instance": joining.instance_id,
        "client": joining.client_id,
        "host": joining.client_host,
        "partition_count": len(keys),
        "partitions": [f"{topic}-{partition}" for _, topic, partition in keys[:PARTITIONS_AT_ONCE]],
        **_sums({key: lags[key] for key in keys if key in lags}),
    }
