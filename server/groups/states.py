"""The states of a consumer group, as one table.

A group is `Empty` until a member joins. Then it prepares a rebalance: it waits until every member
has joined, at most for the rebalance timeout. With that a new generation begins; its leader knows
all members and shares out the work, which completes the rebalance. `Stable` lasts until members
come, go or are lost. A `Dead` group is one that was dropped.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from ...protocol.errors import CodedError, RebalanceInProgress, UnknownMemberId
from ...values import value_class

Refusal = type[CodedError]


class State(StrEnum):
    """Where a group is; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Sync(StrEnum):
    """What a member's sync-group gets."""

    WAITS = "waits"
    """It is answered when the leader has brought the assignments."""
    ANSWERED = "answered"
    """It is answered at once, with the assignment that there is."""


class Rejoin(StrEnum):
    """What becomes of a join-group of a member that brings nothing new."""

    WAITS = "waits"
    """It counts for the rebalance that is prepared."""
    ANSWERED = "answered"
    """It gets the same answer once more: the first one may be lost."""
    LEADER_REBALANCES = "leader rebalances"
    """As above, but the leader asks for a new rebalance by it: its topics may have changed."""


@value_class
class Rules:
    """What holds in one state, for members of the group's present generation."""

    next: frozenset[State]
    """The states that may follow."""
    rejoin: Rejoin | Refusal
    sync: Sync | Refusal
    heartbeat: Refusal | None
    """What a heartbeat is refused with; it counts as a sign of life all the same."""
    commit: Refusal | None
    """What offset-commit is refused with."""


RULES: Final[Mapping[State, Rules]] = MappingProxyType(
    {
        State.EMPTY: Rules(
            next=frozenset({State.PREPARING, State.DEAD}),
            rejoin=UnknownMemberId,
            sync=UnknownMemberId,
            heartbeat=UnknownMemberId,
            commit=UnknownMemberId,
        ),
        State.PREPARING: Rules(
            next=frozenset({State.COMPLETING, State.EMPTY}),
            rejoin=Rejoin.WAITS,
            sync=RebalanceInProgress,
            heartbeat=RebalanceInProgress,
            commit=None,
        ),
        State.COMPLETING: Rules(
            next=frozenset({State.STABLE, State.PREPARING}),
            rejoin=Rejoin.ANSWERED,
            sync=Sync.WAITS,
            heartbeat=None,
            commit=RebalanceInProgress,
        ),
        State.STABLE: Rules(
            next=frozenset({State.PREPARING}),
            rejoin=Rejoin.LEADER_REBALANCES,
            sync=Sync.ANSWERED,
            heartbeat=None,
            commit=None,
        ),
        State.DEAD: Rules(
            next=frozenset(),
            rejoin=UnknownMemberId,
            sync=UnknownMemberId,
            heartbeat=UnknownMemberId,
            commit=UnknownMemberId,
        ),
    }
)
"""The whole table. A commit is taken while a rebalance is prepared, because members commit what
they have done before they join again; once the new generation is there, its shares may overlap."""
