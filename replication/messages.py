"""What leader and followers say to each other. Everything belongs to one connection and one epoch.

A follower opens a connection, says hello, is welcomed, and from then on fetches (which is answered,
perhaps late) and confirms (which is not answered). The first fetch names every partition, later
ones those whose position changed. One is under way at a time; while much is to be copied the next
one is sent before an answer is appended (`ahead`), so that there is one answer more on its way: the
leader goes on behind what it has sent. After any other fetch it goes on where the follower says
that it is.

A hello itself confirms nothing: it may have been sent by a process that is no more, whereas a
follower that answers a welcome is alive and has what it says.

The messages are the structs of the protocol. What is the driver's stays at its default here: the
number of the connection, addresses, ids of topics.
"""

from ..protocol.api.cluster.replicate import (
    Answers,
    DamagedPartition,
    ReplicaPosition,
    ReplicatedPart,
    ReplicateRequest,
    ReplicateResponse,
    Says,
)
from .epoch_owners import Owners, listed
from .partition_log import Partition
from .settings import Member

FromFollower = ReplicateRequest
FromLeader = ReplicateResponse


def partition_of(one: ReplicaPosition | ReplicatedPart | DamagedPartition) -> Partition:
    """The partition that a part of a message is about."""
    return one.topic, one.partition


def member_of(hello: ReplicateRequest) -> Member:
    """The member that says hello."""
    return Member(hello.broker_id, hello.nonce)


def hello_of(member: Member, epoch: int, highest_epoch: int, owners: Owners) -> ReplicateRequest:
    """The first message of a follower. `epoch` is of the leader that it means to follow;
    `NO_EPOCH` where a person said whom to follow."""
    return ReplicateRequest(
        says=Says.HELLO,
        connection=0,
        epoch=epoch,
        broker_id=member.broker_id,
        nonce=member.nonce,
        highest_epoch=highest_epoch,
        owners=listed(owners),
    )


def refusal(highest_epoch: int, broker_id: int) -> ReplicateResponse:
    """The answer of a broker that does not lead in the epoch of the request. Who asked is deposed
    if it led in an older one than `highest_epoch`."""
    return ReplicateResponse(answers=Answers.REFUSAL, epoch=highest_epoch, broker_id=broker_id)
