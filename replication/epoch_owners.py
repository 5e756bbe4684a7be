"""Which broker led in which epoch. An epoch belongs to one broker; two owners are a conflict.

etcd may be restored to an older state while a broker that knows a later epoch is down. Another
broker may then be elected into that same epoch, and its messages would be taken for those of the
first owner.
"""

from collections.abc import Iterable, Mapping

from ..protocol.api.cluster.replicate import EpochOwner
from .partition_log import PartitionLog
from .settings import Member

Owners = Mapping[int, Member]
"""By epoch, the member that led in it."""


def first_conflict(own: Owners, other: Owners, settled_epoch: int) -> int | None:
    """Return the lowest epoch above `settled_epoch` whose owner differs between `own` and
    `other`."""
    common = own.keys() & other.keys()
    return min((e for e in common if e > settled_epoch and own[e] != other[e]), default=None)


def merged(own: Owners, leader: Owners, most: int) -> dict[int, Member]:
    """Return the owners that a follower knows after it has accepted those of its leader: the newest
    `most` epochs."""
    conflict = first_conflict(own, leader, -1)
    agreed = {e: member for e, member in own.items() if conflict is None or e < conflict}
    return dict(sorted((agreed | dict(leader)).items())[-most:])


def cut_before(log: PartitionLog, epoch: int) -> bool:
    """Remove the messages of `epoch` and of later epochs. Returns whether there were any."""
    starts = [each.start_offset for each in log.epochs.starts if each.epoch >= epoch]
    if not starts:
        return False
    if starts[0] > log.log_start_offset:
        log.truncate(starts[0])
    else:
        log.truncate_fully(log.log_start_offset, None)
    return True


def listed(owners: Owners) -> list[EpochOwner]:
    """The owners as brokers send them."""
    return [
        EpochOwner(epoch=epoch, broker_id=member.broker_id, nonce=member.nonce)
        for epoch, member in owners.items()
    ]


def owners_of(sent: Iterable[EpochOwner]) -> Owners:
    """The opposite of `listed`."""
    return {one.epoch: Member(one.broker_id, one.nonce) for one in sent}
