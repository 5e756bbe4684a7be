"""How the groups are, in a few numbers."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, field

from ...values import value_class
from .group import Group
from .states import State


@value_class
class GroupFigures:
    """What metrics show of all groups together."""

    _: KW_ONLY

    states: Mapping[State, int] = field(default_factory=dict)
    """How many groups are in each state that a group can be in."""
    members: int = 0
    size_bytes: int = 0
    rebalances: int = 0
    members_gone: Mapping[str, int] = field(default_factory=dict)
    """By reason."""


def count_states(groups: Iterable[Group]) -> dict[State, int]:
    """How many of `groups` are in each state; a dead group is none."""
    counts = Counter(group.state for group in groups)
    return {state: counts[state] for state in State if state is not State.DEAD}
