"""The state of a cluster, as etcd keeps it, and the changes that it may go through.

Each change is a transaction that holds only if the state still has the revision at which it was
read. So of two changes from one state one happens, and a change that comes late does nothing.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..storage.log.epoch_history import NO_EPOCH
from .partition_log import Directory, Partition, PartitionLog
from .settings import Incarnation, Member


class ReplicaExtent(NamedTuple):
    """What a directory has, as long as its logs do not change."""

    counted_revision: int
    logs: tuple[tuple[Partition, int, int], ...]
    """(partition, log end offset, log start offset)"""
    history_lost: bool = False
    """Whether it is not known of some log in which epochs its messages were written: others have to
    copy that log anew."""


class Kept(NamedTuple):
    """A member that is out of the ISR, and whose logs may be needed yet."""

    member: Member
    revision: int
    """The last at which it was in the ISR."""


class Halt(NamedTuple):
    """Why no broker leads until a person has made the state anew."""

    contested_epoch: int
    """The epoch that two brokers led in; `NO_EPOCH` where etcd went back to an older state."""


class ClusterState(NamedTuple):
    """The key `state`."""

    epoch: int
    leader: Incarnation | None
    isr: frozenset[Member]
    kept: frozenset[Kept] = frozenset()
    """Members that went out of the ISR since the last leader was in service: in doubt, without a
    lease at an election, or too late. Each keeps its logs as they are, until a leader is in
    service and says so. Where all of the ISR turn out to be in doubt, these are asked too."""
    least_epoch: int = 0
    """No lower one may begin: some broker knows the epochs below, which etcd may not."""
    settled_epoch: int = NO_EPOCH
    """Whose messages count in the epochs up to this one was said when the state was made: those of
    the directory that it was made for."""
    halt: Halt | None = None

    def without(self, members: frozenset[Member], revision: int) -> "ClusterState":
        """This state, read at `revision`, when `members` go out of the ISR."""
        kept = {Kept(member, revision) for member in members}
        return self._replace(isr=self.isr - members, kept=self.kept | kept)

    def removed(self, broker_id: int) -> "ClusterState":
        """This state without a broker that a person has taken out for good."""
        return self._replace(
            isr=frozenset(one for one in self.isr if one.broker_id != broker_id),
            kept=frozenset(one for one in self.kept if one.member.broker_id != broker_id),
        )

    def keeps(self, member: Member) -> bool:
        """Whether a member's logs may be needed as they are."""
        return any(kept.member == member for kept in self.kept)


class RequestState(NamedTuple):
    """What was known when a request to etcd was sent. An answer that is older says that etcd went
    back to an earlier state."""

    revision: int
    """The latest one of etcd that was read."""
    state_revision: int
    """Of the last change of the state that was read."""
    epoch: int
    """The highest one that the directory had seen."""
    counted_revision: int
    """`Identity.counted_revision`"""


class MemberInfo(NamedTuple):
    """A key `members/ID`, on the lease of its broker."""

    incarnation: Incarnation
    member: Member
    highest_epoch: int
    lease_id: int
    reach: ReplicaExtent | None
    """Only of members in doubt and of those kept for recovery, whose logs do not change; and only
    if it is known."""


class ClusterView(NamedTuple):
    """Everything under `/horolog/NAME/`, read at one moment."""

    revision: int
    """Of etcd at that moment."""
    state: ClusterState
    state_revision: int
    """Of the last change of `state`."""
    leader: Incarnation | None
    """The key `leader`, which is there as long as the leader's lease."""
    leader_revision: int
    """Of its last change; 0 without the key."""
    leader_lease: int
    """Which lease it is on; 0 without the key."""
    members: Mapping[int, MemberInfo]


def reach(directory: Directory) -> ReplicaExtent:
    """What a directory has now."""
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
    """The state when a member of the ISR wins: members without a live lease are out of it.

    They are kept. The request may come late, when the winner has lost what they have.
    """
    live = {info.member for info in view.members.values()} | {winner.member}
    state = view.state.without(view.state.isr - live, view.state_revision)
    return state._replace(epoch=epoch_above(view, winner.highest_epoch), leader=winner.incarnation)


def elected_alone(view: ClusterView, winner: MemberInfo) -> ClusterState:
    """The state when a broker wins whose log counts from now on, whatever others have.

    They are kept all the same, as in `elected`.
    """
    state = view.state.without(view.state.isr - {winner.member}, view.state_revision)
    return state._replace(
        epoch=epoch_above(view, winner.highest_epoch),
        leader=winner.incarnation,
        isr=frozenset({winner.member}),
        kept=frozenset(it for it in state.kept if it.member != winner.member),
    )


def epoch_above(view: ClusterView, own_highest: int) -> int:
    """An epoch above all that the state and the members know."""
    known = [info.highest_epoch for info in view.members.values()]
    return max(view.state.epoch, own_highest, view.state.least_epoch - 1, *known) + 1


def halted(state: ClusterState, contested_epoch: int, highest_epoch: int) -> ClusterState:
    """The state in which no broker leads, for a broker that knows epochs up to `highest_epoch`."""
    least = max(state.least_epoch, highest_epoch + 1)
    halt = state.halt
    if halt is None or halt.contested_epoch == NO_EPOCH:
        halt = Halt(contested_epoch)
    return state._replace(halt=halt, least_epoch=least)


def left_in_doubt(view: ClusterView, broker_id: int) -> ClusterState:
    """The state when a member that may have lost something takes itself out."""
    mine = {member for member in view.state.isr if member.broker_id == broker_id}
    return view.state.without(frozenset(mine), view.state_revision)


def last_counted(
    kept: Collection[Kept], members: Mapping[int, MemberInfo]
) -> dict[Member, ReplicaExtent] | None:
    """What each member of the ISR has that a leader counted last; `None`: not all have
    reported.

    Each of them had everything that was committed, until it lost something. One that went out of
    the ISR before, and whose leader knew that, may lack what was committed afterwards, and may have
    what never was.
    """
    reported = {info.member: info.reach for info in members.values() if info.reach is not None}
    if not all(it.member in reported for it in kept):
        return None
    counted = max((reported[it.member].counted_revision for it in kept), default=0)
    return {it.member: reported[it.member] for it in kept if it.revision >= counted}


def is_to_lead(reaches: Mapping[Member, ReplicaExtent], member: Member) -> bool:
    """Whether none has more than `member` in any partition, and no other has as much that can say
    more of its epochs.

    All began with the same, so ends say who has more. Epochs do not: a leader may have committed
    messages of earlier epochs only.
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
    """Where these logs begin, at the latest: a leader let go what is below."""
    starts: dict[Partition, int] = {}
    for each in reaches.values():
        for partition, _, start in each.logs:
            starts[partition] = max(start, starts.get(partition, 0))
    return starts
