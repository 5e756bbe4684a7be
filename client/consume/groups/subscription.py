"""What a consumer reads as a member of a group, checked before anything is sent."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from ....values import value_class
from ...arguments import check_int, check_topic, epoch_ms
from ..fetching import TopicPartition
from .assignors import ASSIGNORS, COOPERATIVE
from .membership import GroupTimes

Topics = str | re.Pattern[str] | Sequence[str | re.Pattern[str]]
"""Names of topics and patterns; a text that begins with `^` is a pattern."""

PartitionsCallback = Callable[[list[TopicPartition]], object]
"""Called with partitions that were assigned or revoked; may be a coroutine function."""

Start = Literal["earliest", "latest"] | timedelta | int
"""Where to begin in a partition without a committed position; an int is epoch milliseconds."""

_PATTERN: Final = "^"
_INTERVAL_SHARE: Final = 3
"""Heartbeats in the session timeout, at least: one or two may get lost."""


@value_class
class GroupSubscription:
    """What a consumer reads as a member of a group, and how; see `Consumer.subscribe`."""

    group: str
    names: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    start: Start
    assignors: tuple[str, ...]
    times: GroupTimes
    instance_id: str | None
    auto_commit: bool
    commit_interval_ms: int
    on_assigned: PartitionsCallback | None
    on_revoked: PartitionsCallback | None

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are kept during a rebalance, which all assignors must allow."""
        return COOPERATIVE.issuperset(self.assignors)


def checked_subscription(
    topics: Topics,
    *,
    group: str,
    start: object,
    check_units: bool,
    assignor: str | Sequence[str],
    instance_id: str | None,
    on_assigned: PartitionsCallback | None,
    on_revoked: PartitionsCallback | None,
    auto_commit: bool,
    commit_interval_ms: int,
    times: GroupTimes,
) -> GroupSubscription:
    """Return the subscription that a program asks for. Raises TypeError, ValueError."""
    check_topic(group, "group")
    if not group:
        raise ValueError("group is the name of the consumer group, and it is empty")
    if instance_id is not None:
        check_topic(instance_id, "group_instance_id")
        if not instance_id:
            raise ValueError("group_instance_id is an id, or None for a dynamic member")
    names, patterns = _divided(topics)
    check_int(commit_interval_ms, "commit_interval_ms")
    if commit_interval_ms < 0:
        raise ValueError(f"commit_interval_ms is from 0 on, not {commit_interval_ms}")
    _check_times(times)
    return GroupSubscription(
        group,
        names,
        patterns,
        _start(start, check_units=check_units),
        _assignors(assignor),
        times,
        instance_id,
        auto_commit,
        commit_interval_ms,
        on_assigned,
        on_revoked,
    )


def _divided(topics: Topics) -> tuple[tuple[str, ...], tuple[re.Pattern[str], ...]]:
    """Return the names and the patterns, each once."""
    given = [topics] if isinstance(topics, str | re.Pattern) else list(topics)
    if not given:
        raise ValueError("subscribe needs the name of a topic, or a pattern")
    names: dict[str, None] = {}
    patterns: dict[re.Pattern[str], None] = {}
    for one in given:
        if isinstance(one, re.Pattern):
            if not isinstance(one.pattern, str):
                raise TypeError("a pattern of topics is made from a str, not from bytes")
            patterns[one] = None
            continue
        check_topic(one, "each of topics")
        if not one:
            raise ValueError("the name of a topic is empty")
        if one.startswith(_PATTERN):
            try:
                patterns[re.compile(one)] = None
            except re.error as error:
                raise ValueError(f"{one!r} is no pattern: {error}") from error
        else:
            names[one] = None
    return tuple(names), tuple(patterns)


def _start(start: object, *, check_units: bool) -> Start:
    if start == "earliest":
        return "earliest"
    if start == "latest":
        return "latest"
    if isinstance(start, timedelta):
        if start < timedelta(0):
            raise ValueError(f"start is a length of time before now, from 0 on, not {start}")
        return start
    if isinstance(start, datetime):
        found = epoch_ms(start, None, check_units=check_units, is_bound=True)
        assert found is not None
        return found
    raise ValueError(
        f"start is 'earliest', 'latest', a timedelta before now or a datetime, not {start!r}"
    )


def _assignors(assignor: str | Sequence[str]) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys([assignor] if isinstance(assignor, str) else assignor))
    for name in chosen:
        if name not in ASSIGNORS:
            raise ValueError(f"assignor is {' or '.join(map(repr, ASSIGNORS))}, not {name!r}")
    if not chosen:
        raise ValueError("assignor names at least one assignor")
    return chosen


def _check_times(times: GroupTimes) -> None:
    for name in ("session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms"):
        value = getattr(times, name)
        check_int(value, name)
        if not 0 < value < 2**31:
            raise ValueError(f"{name} is from 1 to {2**31 - 1}, not {value}")
    if times.heartbeat_interval_ms * _INTERVAL_SHARE > times.session_timeout_ms:
        raise ValueError(
            f"heartbeat_interval_ms is at most a third of session_timeout_ms="
            f"{times.session_timeout_ms}, because a heartbeat may get lost; not "
            f"{times.heartbeat_interval_ms}"
        )
