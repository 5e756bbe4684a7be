"""The state of a cluster, as etcd stores it, and the changes that may be made to it.

Each change is a transaction that succeeds only if the state still has the revision at which it was
read. So of two changes to one state only one succeeds, and a change that arrives late has no
effect.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..storage.log.epoch_history import NO_EPOCH
from .partition_log import Directory, Partition, PartitionLog
from .settings import Incarnation, Member


class ReplicaExtent(NamedTuple):
    """The extent of a directory's logs, valid as long as the logs do not change."""

    counted_revision: int
    logs: tuple[tuple[Partition, int, int], ...]
    """(partition, log end offset, log start offset)"""
    history_lost: bool = False
    """Whether some log has lost the epochs of its messages. Other brokers have to copy such a log
    anew."""


class KeptMember(NamedTuple):
    """A member that left the ISR, and whose logs may still be needed."""

    member: Member
    revision: int
    """Last revision at which the member was in the ISR."""


class Halt(NamedTuple):
    """Why no broker leads until an operator has made the state anew."""

    contested_epoch: int
    """Epoch in which two brokers led; `NO_EPOCH` where etcd was restored to an older state."""


class ClusterState(NamedTuple):
    """Value of the key `state`."""

    epoch: int
    leader: Incarnation | None
    isr: frozenset[Member]
    kept: frozenset[KeptMember] = frozenset()
    """Members that left the ISR since a leader was last in service: in doubt, without a lease at an
    election, or too far behind. Each keeps its logs unchanged until a leader in service releases
    it. If all of the ISR turn out to be in doubt, the extents of these members count too."""
    least_epoch: int = 0
    """Lowest epoch that may begin. Some broker knows the epochs below, which etcd may not know."""
    settled_epoch: int = NO_EPOCH
    """Up to this epoch the owner of messages is settled: an operator made the state for one
    directory, whose messages count."""
    halt: Halt | None = None

    def without(self, members: frozenset[Member], revision: int) -> "ClusterState":
        """Return this state, read at `revision`, with `members` moved from the ISR to the kept
        members."""
        kept = {KeptMember(member, revision) for member in members}
        return self._replace(isr=self.isr - members, kept=self.kept | kept)

    def removed(self, broker_id: int) -> "ClusterState":
        """Return this state without a broker that an operator removed for good."""
        return self._replace(
            isr=frozenset(one for one in self.isr if one.broker_id != broker_id),
            kept=frozenset(one for one in self.kept if one.member.broker_id != broker_id),
        )

    def keeps(self, member: Member) -> bool:
        """Whether a member's logs may be needed unchanged."""
        return any(kept.member == member for kept in self.kept)


class RequestState(NamedTuple):
    """What a broker knew when it sent a request to etcd. An older answer shows that etcd was
    restored to an earlier state."""

    revision: int
    """Latest revision of etcd that the broker had read."""
    state_revision: int
    """Revision of the last change of the state that the broker had read."""
    epoch: int
    """Highest epoch that the directory had seen."""
    counted_revision: int
    """`Identity.counted_revision` of the directory."""


class MemberInfo(NamedTuple):
    """Value of a key `members/ID`, which is on the lease of its broker."""

    incarnation: Incarnation
    member: Member
    highest_epoch: int
    lease_id: int
    reach: ReplicaExtent | None
    """Extent of the logs, if it is known; only of members in doubt and of kept members, whose logs
    do not change."""


class ClusterView(NamedTuple):
    """Everything under `/horolog/NAME/`, read at one revision."""

    revision: int
    """Revision of etcd at the time of the read."""
    state: ClusterState
    state_revision: int
    """Revision of the last change of `state`."""
    leader: Incarnation | None
    """Value of the key `leader`, which exists as long as the leader's lease."""
    leader_revision: int
    """Revision of the last change of the key `leader`; 0 without the key."""
    leader_lease: int
    """Lease that the key `leader` is on; 0 without the key."""
    members: Mapping[int, MemberInfo]


def reach(directory: Directory) -> ReplicaExtent:
    """Return the extent of a directory's logs now."""
    logs = sorted(directory.logs.items())
    return ReplicaExtent(
        directory.identity.counted_revision,
        tuple((name, _whole_end(log), log.log_start_offset) for name, log in logs),
        any(log.history_lost for _, log in logs),
    )


def _whole_end(log: PartitionLog) -> int:
    damaged_from = log.damaged_from
    return log.log_end_offset if damaged_from is None else min(damaged_from, log.log_end_offset)


def elected(view: ClusterView, winner: MemberInfo) -> ClusterState:
    """Return the state after a member of the ISR has won. Members without a live lease leave the
    ISR.

    They become kept members: the request may be applied late, when the winner has lost messages
    that they have.
    """
    live = {info.member for info in view.members.values()} | {winner.member}
    state = view.state.without(view.state.isr - live, view.state_revision)
    return state._replace(epoch=epoch_above(view, winner.highest_epoch), leader=winner.incarnation)


def elected_alone(view: ClusterView, winner: MemberInfo) -> ClusterState:
    """Return the state after a broker has won whose log counts from now on, whatever others have.

    The others become kept members, as in `elected`.
    """
    state = view.state.without(view.state.isr - {winner.member}, view.state_revision)
    return state._replace(
        epoch=epoch_above(view, winner.highest_epoch),
        leader=winner.incarnation,
        isr=frozenset({winner.member}),
        kept=frozenset(it for it in state.kept if it.member != winner.member),
    )


def epoch_above(view: ClusterView, own_highest: int) -> int:
    """Return an epoch above all epochs that the state and the members know."""
    known = [info.highest_epoch for info in view.members.values()]
    return max(view.state.epoch, own_highest, view.state.least_epoch - 1, *known) + 1


def halted(state: ClusterState, contested_epoch: int, highest_epoch: int) -> ClusterState:
    """Return the halted state, made by a broker that knows epochs up to `highest_epoch`. No broker
    leads in it."""
    least = max(state.least_epoch, highest_epoch + 1)
    halt = state.halt
    if halt is None or halt.contested_epoch == NO_EPOCH:
        halt = Halt(contested_epoch)
    return state._replace(halt=halt, least_epoch=least)


def left_in_doubt(view: ClusterView, broker_id: int) -> ClusterState:
    """Return the state after a member that may have lost messages has left the ISR."""
    mine = {member for member in view.state.isr if member.broker_id == broker_id}
    return view.state.without(frozenset(mine), view.state_revision)


def last_counted(
    kept: Collection[KeptMember], members: Mapping[int, MemberInfo]
) -> dict[Member, ReplicaExtent] | None:
    """Return the extents of the members of the last ISR that a leader counted; `None` if not all
    kept members have reported.

    Each of them had everything that was committed, until it lost messages. A member that left the
    ISR before, with the leader's knowledge, may lack messages committed later, and may have
    messages that never were.
    """
    reported = {info.member: info.reach for info in members.values() if info.reach is not None}
    if not all(it.member in reported for it in kept):
        return None
    counted = max((reported[it.member].counted_revision for it in kept), default=0)
    return {it.member: reported[it.member] for it in kept if it.revision >= counted}


def is_to_lead(reaches: Mapping[Member, ReplicaExtent], member: Member) -> bool:
    """Whether no member has more than `member` in any partition, and no member with as much knows
    its epochs where `member` does not.

    All logs began alike, so their ends tell which has more. Epochs do not: a leader may have
    committed messages of earlier epochs only.
    """
    if member not in reaches or not _has_most(reaches, member):
        return False
    return not reaches[member].history_lost or all(
        each.history_lost or not _has_most(reaches, other) for other, each in reaches.items()
    )


def _has_most(reaches: Mapping[Member, ReplicaExtent], member: Member) -> bool:
    own = {partition: end for partition, end, _ in reaches[member].logs}
    return all(
        own.get(partition, 0) >= end for each in reaches.values() for partition, end, _ in each.logs
    )


def latest_starts(reaches: Mapping[Member, ReplicaExtent]) -> dict[Partition, int]:
    """Return the highest log start of each partition among these logs: a leader removed what is
    below."""
    starts: dict[Partition, int] = {}
    for each in reaches.values():
        for partition, _, start in each.logs:
            starts[partition] = max(start, starts.get(partition, 0))
    return starts
