"""The state of a cluster, as etcd keeps it, and the changes that it may go through.

Each change is a transaction that holds only if the state still has the revision at which it was
read. So of two changes from one state one happens, and a change that comes late does nothing.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from .epochs import latest
from .partition_log import Directory, Partition
from .settings import Incarnation, Member

LogEnds = tuple[tuple[Partition, int, int, int], ...]
"""(partition, epoch of the last message, log end offset, log start offset) of a directory's logs."""


class ClusterState(NamedTuple):
    """The key `state`."""

    epoch: int
    leader: Incarnation | None
    isr: frozenset[Member]
    kept: frozenset[Member] = frozenset()
    """Members that are out of the ISR since the last leader was in service: in doubt, or without
    a lease at an election. Each keeps its log as it is, until a leader is in service and says so.
    Where all of the ISR turn out to be in doubt, these are asked too."""


class MemberInfo(NamedTuple):
    """A key `members/ID`, on the lease of its broker."""

    incarnation: Incarnation
    member: Member
    highest_epoch: int
    lease_id: int
    ends: LogEnds | None
    """Only of members in doubt and of those kept for recovery, whose logs do not change."""


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


def log_ends(directory: Directory) -> LogEnds:
    return tuple(
        (partition, latest(log.epoch_starts), log.log_end_offset, log.log_start_offset)
        for partition, log in sorted(directory.logs.items())
    )


def elected(view: ClusterView, winner: MemberInfo) -> ClusterState:
    """The state when a member of the ISR wins: members without a live lease are out of it.

    They are kept. The request may come late, when the winner has lost what they have.
    """
    live = {info.member for info in view.members.values()} | {winner.member}
    return ClusterState(
        epoch_above(view, winner.highest_epoch),
        winner.incarnation,
        view.state.isr & live,
        view.state.kept | view.state.isr - live,
    )


def elected_alone(view: ClusterView, winner: MemberInfo) -> ClusterState:
    """The state when somebody wins whose log counts from now on, whatever others have."""
    return ClusterState(
        epoch_above(view, winner.highest_epoch), winner.incarnation, frozenset({winner.member})
    )


def epoch_above(view: ClusterView, own_highest: int) -> int:
    """An epoch above all that anybody who can be asked knows."""
    known = [info.highest_epoch for info in view.members.values()]
    return max(view.state.epoch, own_highest, *known) + 1


def left_in_doubt(state: ClusterState, broker_id: int) -> ClusterState:
    """The state when a member that may have lost something takes itself out."""
    mine = {member for member in state.isr if member.broker_id == broker_id}
    return state._replace(isr=state.isr - mine, kept=state.kept | mine)


def has_greatest_ends(
    kept: Collection[Member], members: Mapping[int, MemberInfo], broker_id: int
) -> bool:
    """Whether all that are kept are heard, and none has more than this one in any partition.

    More is a later last epoch, or as late a one and a greater end.
    """
    heard = {info.member: info.ends for info in members.values() if info.ends is not None}
    mine = members.get(broker_id)
    if mine is None or mine.ends is None or not all(member in heard for member in kept):
        return False
    own = {partition: (epoch, end) for partition, epoch, end, _ in mine.ends}
    return all(
        own.get(partition, (-1, 0)) >= (epoch, end)
        for member in kept
        for partition, epoch, end, _ in heard[member]
    )


def latest_starts(
    kept: Collection[Member], members: Mapping[int, MemberInfo]
) -> dict[Partition, int]:
    """Where the logs of all that are kept begin, at the latest: a leader let go what is below."""
    starts: dict[Partition, int] = {}
    for info in members.values():
        if info.member in kept:
            for partition, _, _, start in info.ends or ():
                starts[partition] = max(start, starts.get(partition, 0))
    return starts
