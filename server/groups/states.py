"""States of a consumer group, as one table.

A group is `Empty` until a member joins. It then prepares a rebalance: it waits until every member
has joined, for at most the rebalance timeout. A new generation begins; its leader knows all members
and assigns the partitions, which completes the rebalance. The group stays `Stable` until members
join, leave or are lost. A `Dead` group was deleted.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from ...protocol.errors import CodedError, RebalanceInProgress, UnknownMemberId
from ...values import value_class

Refusal = type[CodedError]


class State(StrEnum):
    """State of a group; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Sync(StrEnum):
    """Treatment of a member's sync-group."""

    WAITS = "waits"
    """Answered when the leader has sent the assignments."""
    ANSWERED = "answered"
    """Answered at once with the member's assignment."""


class Rejoin(StrEnum):
    """Treatment of a join-group by which a member changes nothing."""

    WAITS = "waits"
    """Counts for the rebalance in preparation."""
    ANSWERED = "answered"
    """Gets the same answer again, because the first one may be lost."""
    LEADER_REBALANCES = "leader rebalances"
    """The same, but the leader's request starts a rebalance, because the leader's topics may have
    changed."""


@value_class
class Rules:
    """Rules of one state, for members of the group's current generation."""

    next: frozenset[State]
    """States that may follow."""
    rejoin: Rejoin | Refusal
    sync: Sync | Refusal
    heartbeat: Refusal | None
    """Error of a heartbeat, which extends the session all the same; None: no error."""
    commit: Refusal | None
    """Error of an offset-commit; None: no error."""


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
"""Rules by state. A commit is accepted while a rebalance is prepared, because members commit their
work before they join again. After the new generation has begun, the old and new assignments may
overlap."""
