"""The leader and the brokers' addresses, in answers to clients."""

from typing import Any, Final

from ...config.address import split_address
from ...protocol.api.broker.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from ...protocol.api.groups.find_coordinator import FindCoordinatorResponse
from ...protocol.api.pieces import Pieces
from ...protocol.api.topics.metadata import MetadataBroker, MetadataResponse
from ...protocol.errors import CoordinatorNotAvailable, LeaderNotAvailable
from ..requests import Call
from .followers import Followers
from .member import ClusterMember
from .replica_fetcher import ReplicaFetcher
from .replica_states import ReplicaStates

NO_LEADER = -1
"""The leader id in an answer if no leader is known."""

_PARTITIONS_AT_ONCE: Final = 200


class BrokerAddresses:
    """Puts into answers what this broker knows of the other brokers."""

    def __init__(
        self,
        member: ClusterMember,
        followers: Followers,
        fetcher: ReplicaFetcher,
        states: ReplicaStates,
    ) -> None:
        self._member = member
        self._followers = followers
        self._fetcher = fetcher
        self._states = states

    def metadata(self, response: MetadataResponse, call: Call) -> Pieces[MetadataResponse]:
        """Turn a single broker's metadata answer into the answer of a cluster member."""
        member = self._member
        me, leader = member.broker_id, self._leader_id()
        addresses = self._all(call)
        response.brokers = [
            MetadataBroker(node_id=broker_id, host=host, port=port)
            for broker_id, (host, port) in sorted(addresses.items())
        ]
        response.controller_id = leader
        in_sync = self._in_sync()
        replicas = sorted({me, *addresses, *in_sync})
        offline = [one for one in replicas if one not in addresses]
        known = leader in addresses
        epoch, seen = member.node.highest_epoch, 0
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_id = leader if known else NO_LEADER
                partition.leader_epoch = epoch
                partition.replica_nodes = replicas
                partition.isr_nodes = in_sync
                partition.offline_replicas = offline
                if not known:
                    partition.error_code = LeaderNotAvailable.code
                seen += 1
                if seen % _PARTITIONS_AT_ONCE == 0:
                    yield
        return response

    def brokers(self, response: DescribeClusterResponse, call: Call) -> DescribeClusterResponse:
        """As `metadata`, for an answer without topics."""
        response.brokers = [
            DescribeClusterBroker(broker_id=broker_id, host=host, port=port)
            for broker_id, (host, port) in sorted(self._all(call).items())
        ]
        response.controller_id = self._leader_id()
        return response

    def coordinator(self, call: Call) -> FindCoordinatorResponse:
        """Answer with the coordinator of all groups, the leader. Raises
        `CoordinatorNotAvailable`."""
        leader = self._leader_id()
        place = self._others(call).get(leader)
        if place is None:
            raise CoordinatorNotAvailable(self._states.leader_hint)
        return FindCoordinatorResponse(node_id=leader, host=place[0], port=place[1])

    def _leader_id(self) -> int:
        member = self._member
        if member.leads:
            return member.broker_id
        known = member.node.follower is not None and self._fetcher.leader_id
        return self._fetcher.leader_id if known else NO_LEADER

    def _in_sync(self) -> list[int]:
        """Return the ids of the in-sync replicas, as far as this broker knows; a follower knows
        them from its leader or from etcd."""
        leader = self._member.node.leader
        if leader is not None:
            return sorted(one.broker_id for one in leader.isr.members)
        leader_id = self._leader_id()
        known = self._member.election.in_sync or self._fetcher.in_sync
        return sorted(known) or ([] if leader_id == NO_LEADER else [leader_id])

    def _all(self, call: Call) -> dict[int, tuple[str, int]]:
        return {self._member.broker_id: call.local_address, **self._others(call)}

    def _others(self, call: Call) -> dict[int, tuple[str, int]]:
        """Return the addresses of the other running brokers, for the protocol of the request."""
        member = self._member
        placed: dict[int, Any] = {}
        if member.leads:
            placed = {
                broker_id: member.known[broker_id]
                for broker_id in self._followers.there()
                if broker_id in member.known
            }
        else:
            by_etcd = bool(member.settings.cluster_etcd)
            placed = dict(member.known if by_etcd else self._fetcher.others)
            leader_id = self._leader_id()
            if leader_id != NO_LEADER:
                placed[leader_id] = self._fetcher
            elif not by_etcd:
                placed.clear()
        addresses = {
            broker_id: one.kafka_address if call.kafka else one.address.rpartition("://")[2]
            for broker_id, one in placed.items()
        }
        return {
            broker_id: split_address(address) for broker_id, address in addresses.items() if address
        }
