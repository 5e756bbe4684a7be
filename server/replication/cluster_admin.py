"""What people ask of a cluster: how it is, and who is to lead."""

import asyncio
from typing import TYPE_CHECKING, Final

from ...protocol.api.cluster.describe_replicas import (
    NOT_KNOWN,
    DescribeReplicasResponse,
    ReplicaMember,
)
from ...protocol.api.cluster.promote import PromoteRequest, PromoteResponse
from ...protocol.errors import NotLeader, PolicyViolation, RequestTimedOut
from ...replication.leader import Leader
from ..metrics.replica_families import ReplicaFigures
from ..requests import PendingAnswer
from .standing import LEADER

if TYPE_CHECKING:
    from .cluster import Cluster

LOOK_S: Final = 0.02

LEADS_WITHIN_S: Final = 10.0
"""So long a person waits until the broker leads that is to."""


class ClusterAdmin:
    """Answers `describe-replicas` and `promote`."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    def describe(self) -> DescribeReplicasResponse:
        """How the cluster is, as this broker knows it."""
        cluster = self._cluster
        node = cluster.node
        response = DescribeReplicasResponse(
            cluster_id=cluster.directory.cluster_id(),
            epoch=node.highest_epoch,
            broker_id=cluster.broker_id,
            waits_for=cluster.waits_for,
            unreadable=cluster.stored.unreadable or cluster.fetcher.unreadable,
        )
        contested = cluster.decider.contested_epoch
        owner = cluster.stored.owners.get(contested)
        if owner is not None:
            response.contested_epoch, response.contested_leader = contested, owner.broker_id
        if node.leader is not None:
            response.leader = cluster.broker_id
            response.in_sync = sorted(one.broker_id for one in node.leader.isr.members)
            response.members = self._members()
        else:
            self._as_follower(response)
        return response

    def figures(self) -> ReplicaFigures:
        """What the metrics show."""
        cluster = self._cluster
        leader = cluster.node.leader
        not_copied = len(cluster.stored.failing.keys() | set(cluster.stored.hurt()))
        if leader is None:
            return ReplicaFigures(
                epoch=cluster.node.highest_epoch,
                elections=cluster.elections,
                not_copied=not_copied,
            )
        in_sync = len(leader.isr.members)
        members = self._members()
        return ReplicaFigures(
            leads=True,
            epoch=leader.epoch,
            replicas=max(len(members), cluster.brokers_declared),
            in_sync=in_sync,
            under_min=in_sync < max(map(leader.min_insync, (None, *leader.partitions))),
            elections=cluster.elections,
            not_copied=not_copied,
            lags={
                one.broker_id: (
                    one.lag_messages,
                    None if one.lag_ms == NOT_KNOWN else one.lag_ms / 1000,
                )
                for one in members
                if one.lag_messages != NOT_KNOWN and one.broker_id != cluster.broker_id
            },
        )

    def _me(self) -> ReplicaMember:
        cluster = self._cluster
        return ReplicaMember(
            broker_id=cluster.broker_id,
            address=cluster.native_address,
            kafka_address=cluster.kafka_address,
            state="",
        )

    def _members(self) -> list[ReplicaMember]:
        """All that are known to a broker that leads."""
        cluster = self._cluster
        members = []
        for broker_id in sorted(cluster.standing.states()):
            member = self._me()
            if broker_id != cluster.broker_id:
                followers = cluster.followers
                known = followers.known.get(broker_id) or followers.absent.get(broker_id)
                member = ReplicaMember(broker_id=broker_id, state="")
                if known is not None:
                    member.address, member.kafka_address = known.address, known.kafka_address
            members.append(cluster.standing.member(member))
        return members

    def _as_follower(self, response: DescribeReplicasResponse) -> None:
        cluster = self._cluster
        fetcher = cluster.fetcher
        missing = fetcher.missing()
        response.missing = str(missing)
        if missing.messages is None or missing.seconds is None:
            response.missing_messages = response.missing_ms = NOT_KNOWN
        else:
            response.missing_messages = missing.messages
            response.missing_ms = round(missing.seconds * 1000)
        response.promise = cluster.decider.promise
        states = cluster.standing.states()
        response.in_sync = list(cluster.decider.in_sync or fetcher.in_sync)
        if fetcher.leader_id in states:
            leader = ReplicaMember(
                broker_id=fetcher.leader_id,
                address=fetcher.address,
                kafka_address=fetcher.kafka_address,
                state="",
            )
            leader = cluster.standing.member(leader)
            response.members.append(leader)
            response.leader = fetcher.leader_id if leader.state == LEADER else NOT_KNOWN
        me = cluster.standing.member(self._me())
        me.lag_messages = response.missing_messages
        me.lag_ms = response.missing_ms if me.lag_messages else 0
        response.members.append(me)
        response.members.sort(key=lambda one: one.broker_id)

    def promote(self, request: PromoteRequest) -> PromoteResponse | PendingAnswer:
        """Let a broker lead. Raises `CodedError`."""
        cluster = self._cluster
        if request.broker_id in (0, cluster.broker_id):
            return self._promote_me(accept_loss=request.accept_loss)
        leader = cluster.node.leader
        if leader is None:
            raise NotLeader(
                f"broker {cluster.broker_id} does not lead, so it cannot hand over to broker "
                f"{request.broker_id}. {cluster.leader_hint}"
            )
        if request.broker_id not in {one.broker_id for one in leader.isr.members}:
            raise PolicyViolation(
                f"broker {request.broker_id} is not in sync, so that handing over to it would lose "
                "messages; wait until it is (horolog cluster status)"
            )
        task = cluster.start_work(self._hand_over(leader, request.broker_id))
        return PendingAnswer(task, lambda: self._handed_over(task, leader))

    def _handed_over(self, task: "asyncio.Task[None]", leader: Leader) -> PromoteResponse:
        task.result()
        return PromoteResponse(epoch=leader.epoch)

    async def _hand_over(self, leader: Leader, broker_id: int) -> None:
        cluster = self._cluster
        cluster.happens(lambda now_s: cluster.node.hand_over(now_s, broker_id))
        until_s = cluster.now_s + cluster.node.settings.hand_over_s
        while cluster.node.leader is leader and cluster.now_s < until_s:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)  # What the state machine decides has no event.
        if cluster.node.leader is leader:
            raise PolicyViolation(
                f"broker {broker_id} did not catch up within {cluster.node.settings.hand_over_s} "
                "s, so this one leads on; try again"
            )

    def _promote_me(self, *, accept_loss: bool) -> PromoteResponse | PendingAnswer:
        cluster = self._cluster
        missing = cluster.fetcher.missing()
        reason = cluster.happens(
            lambda now_s: cluster.decider.promote(now_s, accept_loss=accept_loss)
        )
        if reason is not None:
            raise PolicyViolation(
                f"{reason}. What may be missing here: {missing}; --accept-loss lets it lead all "
                "the same"
            )
        if accept_loss:
            cluster.observe("promoted_with_loss", **missing.fields())
        if cluster.leads:
            return PromoteResponse(epoch=cluster.epoch)
        task = cluster.start_work(self._until_led())
        return PendingAnswer(task, lambda: self._led(task))

    def _led(self, task: "asyncio.Task[None]") -> PromoteResponse:
        task.result()
        return PromoteResponse(epoch=self._cluster.epoch)

    async def _until_led(self) -> None:
        cluster = self._cluster
        until_s = cluster.now_s + LEADS_WITHIN_S
        while not cluster.leads and cluster.now_s < until_s:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)  # What the state machine decides has no event.
        if not cluster.leads:
            raise RequestTimedOut(
                f"broker {cluster.broker_id} does not lead after {LEADS_WITHIN_S:g} s, and may: "
                f"{cluster.waits_for or cluster.leader_hint}"
            )
