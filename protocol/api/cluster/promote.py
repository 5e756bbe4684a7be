"""promote: make a broker the leader. Kafka has no such request."""

from typing import Final

from ..rights import ALTERS_CLUSTER
from ..schema import Api, ServedBy, boolean, int32, message


@message
class PromoteRequest:
    broker_id: int = int32(
        default=0,
        doc="Id of the new leader. The leader hands over to it as soon as it has all "
        "messages. 0, or the id of the broker that gets the request: that broker leads, "
        "without a handover.",
    )
    accept_loss: bool = boolean(
        default=False, doc="Promote the broker although acknowledged messages may be lost."
    )


@message
class PromoteResponse:
    epoch: int = int32(
        default=-1, doc="The epoch in which the broker that got the request leads, or led."
    )


PROMOTE: Final = Api(
    key=1006,
    name="promote",
    min_version=0,
    max_version=0,
    request=PromoteRequest,
    response=PromoteResponse,
    doc="Make a broker the leader, in a cluster without etcd. Refused with POLICY_VIOLATION "
    "if messages may be lost and `accept_loss` is false.",
    native=True,
    rights=ALTERS_CLUSTER,
    served_by=ServedBy.ANY_BROKER,
)
