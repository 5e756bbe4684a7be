"""The brokers that have the same data: how they are, and who is to lead."""

from ...protocol.api.cluster.describe_replicas import (
    DESCRIBE_REPLICAS,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
)
from ...protocol.api.cluster.promote import PROMOTE, PromoteRequest, PromoteResponse
from ..client import Client


class ReplicaAdmin(Client):
    """Asks one broker of a cluster. What it refuses is raised as the error class of its code."""

    async def describe(self) -> DescribeReplicasResponse:
        """What the broker knows of the cluster."""
        response: DescribeReplicasResponse = await self._cluster.request(
            DESCRIBE_REPLICAS, DescribeReplicasRequest()
        )
        return response

    async def promote(self, broker_id: int = 0, *, accept_loss: bool = False) -> int:
        """Let a broker lead, by the word of the leader; or with 0 the one that is asked. Returns
        the epoch that the answering broker leads in, or led in."""
        response: PromoteResponse = await self._cluster.request(
            PROMOTE, PromoteRequest(broker_id=broker_id, accept_loss=accept_loss)
        )
        return response.epoch
