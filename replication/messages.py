"""The messages between leader and followers. Each belongs to one connection and one epoch.

A follower opens a connection and sends a hello; the leader answers with a welcome. From then on the
follower sends fetches, which are answered, perhaps late, and confirms, which are not answered. The
first fetch names every partition, later ones the partitions whose position changed. Usually one
fetch is in flight. While there is much to copy, the follower sends the next fetch before it has
appended the last answer (`ahead`), so that another answer is on its way; the leader then continues
behind the messages that it has sent. After any other fetch it continues at the follower's position.

A hello itself confirms nothing, because its process may have ended since. A follower that answers a
welcome is alive, and has the messages that it reports.

The messages are the structs of the protocol. Fields of the driver keep their defaults here: the
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
    """Return the partition that a part of a message concerns."""
    return one.topic, one.partition


def member_of(hello: ReplicateRequest) -> Member:
    """Return the member that sent a hello."""
    return Member(hello.broker_id, hello.nonce)


def hello_of(member: Member, epoch: int, highest_epoch: int, owners: Owners) -> ReplicateRequest:
    """Return the first message of a follower. `epoch` is that of the leader to follow, or
    `NO_EPOCH` if an operator named the leader."""
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
    """Return the answer of a broker that does not lead in the epoch of the request. A client that
    led in an epoch below `highest_epoch` is deposed."""
    return ReplicateResponse(answers=Answers.REFUSAL, epoch=highest_epoch, broker_id=broker_id)
