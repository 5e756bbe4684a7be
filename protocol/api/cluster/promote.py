"""promote: make a broker the leader. Kafka has no such request."""

from typing import Final

from ..rights import ALTERS_CLUSTER
from ..schema import Api, ServedBy, boolean, int32, message


@message
class PromoteRequest:
    broker_id: int = int32(
        default=0,
        doc="Who is to lead. The leader hands over to it, when it has everything; 0, or the "
        "broker's own id: the one that is asked leads, without the leader's word.",
    )
    accept_loss: bool = boolean(
        default=False, doc="Lead although messages may be lost that were answered."
    )


@message
class PromoteResponse:
    epoch: int = int32(
        default=-1, doc="The epoch in which the broker that was asked leads, or led."
    )


PROMOTE: Final = Api(
    key=1006,
    name="promote",
    min_version=0,
    max_version=0,
    request=PromoteRequest,
    response=PromoteResponse,
    doc="Let a broker lead, of a cluster in which people decide. Refused with POLICY_VIOLATION "
    "where messages may be lost and `accept_loss` is not given.",
    native=True,
    rights=ALTERS_CLUSTER,
    served_by=ServedBy.ANY_BROKER,
)
