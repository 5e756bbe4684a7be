"""Requests of operators: describe the cluster, and promote a broker."""

import asyncio
from collections.abc import Mapping
from typing import Final

from ...protocol.api.cluster.describe_replicas import (
    NOT_KNOWN,
    DescribeReplicasResponse,
    LogEnd,
    ReplicaMember,
)
from ...protocol.api.cluster.promote import PromoteRequest, PromoteResponse
from ...protocol.errors import NotLeader, PolicyViolation, RequestTimedOut
from ...replication.leader import Leader
from ...replication.partition_log import Partition
from ...storage.log.epoch_history import NO_EPOCH
from ...storage.replica.replica_log import ReplicaLog
from ..metrics.replica_families import ReplicaFigures
from ..requests import PendingAnswer
from .member import ClusterMember
from .replica_fetcher import ReplicaFetcher
from .replica_states import LEADER, ReplicaStates

CHECK_S: Final = 0.02

LEADS_WITHIN_S: Final = 10.0
"""How long `promote` waits until this broker leads."""


class ClusterAdmin:
    """Answers `describe-replicas` and `promote`."""

    def __init__(
        self,
        member: ClusterMember,
        fetcher: ReplicaFetcher,
        states: ReplicaStates,
    ) -> None:
        self._member = member
        self._fetcher = fetcher
        self._states = states

    def describe(self, *, log_ends: bool = False) -> DescribeReplicasResponse:
        """Describe the cluster, as far as this broker knows it. With `log_ends`, and if no leader
        is known, the answer includes the ends of this broker's logs."""
        member = self._member
        node = member.node
        response = DescribeReplicasResponse(
            cluster_id=member.directory.cluster_id(),
            epoch=node.highest_epoch,
            broker_id=member.broker_id,
            waits_for=self._states.waits_for,
            unreadable=member.stored.unreadable or self._fetcher.unreadable,
        )
        contested = member.election.contested_epoch
        owner = member.stored.owners.get(contested)
        if owner is not None:
            response.contested_epoch, response.contested_leader = contested, owner.broker_id
        if node.leader is not None:
            response.leader = member.broker_id
            response.in_sync = sorted(one.broker_id for one in node.leader.isr.members)
            response.members = self._members()
        else:
            self._as_follower(response)
        if log_ends and response.leader == NOT_KNOWN:
            response.log_ends = _log_ends(member.stored.logs, response.contested_epoch)
        return response

    def figures(self) -> ReplicaFigures:
        """Return the figures of replication for the metrics."""
        member = self._member
        leader = member.node.leader
        not_copied = len(member.stored.failing.keys() | set(member.stored.hurt()))
        if leader is None:
            return ReplicaFigures(
                epoch=member.node.highest_epoch,
                elections=member.elections,
                not_copied=not_copied,
            )
        in_sync = len(leader.isr.members)
        members = self._members()
        return ReplicaFigures(
            leads=True,
            epoch=leader.epoch,
            replicas=max(len(members), member.brokers_declared),
            in_sync=in_sync,
            under_min=in_sync < max(map(leader.min_insync, (None, *leader.partitions))),
            elections=member.elections,
            not_copied=not_copied,
            lags={
                one.broker_id: (
                    one.lag_messages,
                    None if one.lag_ms == NOT_KNOWN else one.lag_ms / 1000,
                )
                for one in members
                if one.lag_messages != NOT_KNOWN and one.broker_id != member.broker_id
            },
        )

    def _me(self) -> ReplicaMember:
        member = self._member
        return ReplicaMember(
            broker_id=member.broker_id,
            address=member.native_address,
            kafka_address=member.kafka_address,
            state="",
        )

    def _members(self) -> list[ReplicaMember]:
        """Describe all members that this leader knows."""
        known, absent = self._member.known, self._member.absent
        members = []
        for broker_id in sorted(self._states.states()):
            one = self._me()
            if broker_id != one.broker_id:
                peer = known.get(broker_id) or absent.get(broker_id)
                one = ReplicaMember(broker_id=broker_id, state="")
                if peer is not None:
                    one.address, one.kafka_address = peer.address, peer.kafka_address
            members.append(self._states.member(one))
        return members

    def _as_follower(self, response: DescribeReplicasResponse) -> None:
        member = self._member
        fetcher = self._fetcher
        missing = fetcher.missing()
        response.missing = str(missing)
        if missing.messages is None or missing.seconds is None:
            response.missing_messages = response.missing_ms = NOT_KNOWN
        else:
            response.missing_messages = missing.messages
            response.missing_ms = round(missing.seconds * 1000)
        response.promise = member.election.promise
        states = self._states.states()
        response.in_sync = list(member.election.in_sync or fetcher.in_sync)
        if fetcher.leader_id in states:
            leader = ReplicaMember(
                broker_id=fetcher.leader_id,
                address=fetcher.address,
                kafka_address=fetcher.kafka_address,
                state="",
            )
            leader = self._states.member(leader)
            response.members.append(leader)
            response.leader = fetcher.leader_id if leader.state == LEADER else NOT_KNOWN
        me = self._states.member(self._me())
        me.lag_messages = response.missing_messages
        me.lag_ms = response.missing_ms if me.lag_messages else 0
        response.members.append(me)
        response.members.sort(key=lambda one: one.broker_id)

    def promote(self, request: PromoteRequest) -> PromoteResponse | PendingAnswer:
        """Let this broker lead, or hand over to another broker. Raises `CodedError`."""
        member = self._member
        if request.broker_id in (0, member.broker_id):
            return self._promote_me(accept_loss=request.accept_loss)
        leader = member.node.leader
        if leader is None:
            raise NotLeader(
                f"broker {member.broker_id} does not lead, so it cannot hand over to broker "
                f"{request.broker_id}. {self._states.leader_hint}"
            )
        if request.broker_id not in {one.broker_id for one in leader.isr.members}:
            raise PolicyViolation(
                f"broker {request.broker_id} is not in sync, so that handing over to it would lose "
                "messages; wait until it is (horolog cluster status)"
            )
        task = member.start_work(self._hand_over(leader, request.broker_id))
        return PendingAnswer(task, lambda: self._handed_over(task, leader))

    def _handed_over(self, task: "asyncio.Task[None]", leader: Leader) -> PromoteResponse:
        task.result()
        return PromoteResponse(epoch=leader.epoch)

    async def _hand_over(self, leader: Leader, broker_id: int) -> None:
        member = self._member
        member.happens(lambda now_s: member.node.hand_over(now_s, broker_id))
        until_s = member.now_s + member.node.settings.hand_over_s
        while member.node.leader is leader and member.now_s < until_s:  # noqa: ASYNC110
            await asyncio.sleep(CHECK_S)  # What the state machine decides has no event.
        if member.node.leader is leader:
            raise PolicyViolation(
                f"broker {broker_id} did not catch up within {member.node.settings.hand_over_s} "
                "s, so this one leads on; try again"
            )

    def _promote_me(self, *, accept_loss: bool) -> PromoteResponse | PendingAnswer:
        member = self._member
        missing = self._fetcher.missing()
        reason = member.happens(
            lambda now_s: member.election.promote(now_s, accept_loss=accept_loss)
        )
        if reason is not None:
            raise PolicyViolation(
                f"{reason}. What may be missing here: {missing}; --accept-loss lets it lead all "
                "the same"
            )
        if accept_loss:
            member.observe("promoted_with_loss", **missing.fields())
        if member.leads:
            return PromoteResponse(epoch=member.epoch)
        task = member.start_work(self._until_led())
        return PendingAnswer(task, lambda: self._led(task))

    def _led(self, task: "asyncio.Task[None]") -> PromoteResponse:
        task.result()
        return PromoteResponse(epoch=self._member.epoch)

    async def _until_led(self) -> None:
        member = self._member
        until_s = member.now_s + LEADS_WITHIN_S
        while not member.leads and member.now_s < until_s:  # noqa: ASYNC110
            await asyncio.sleep(CHECK_S)  # What the state machine decides has no event.
        if not member.leads:
            raise RequestTimedOut(
                f"broker {member.broker_id} does not lead after {LEADS_WITHIN_S:g} s, and may: "
                f"{self._states.waits_for or self._states.leader_hint}"
            )


def _log_ends(logs: Mapping[Partition, ReplicaLog], contested_epoch: int) -> list[LogEnd]:
    """Return the ends of logs, and where their messages from `contested_epoch` on begin: an
    operator compares these to choose a leader."""
    return [
        LogEnd(
            topic=partition[0],
            partition=partition[1],
            end=log.log_end_offset,
            epoch=NO_EPOCH if log.history_lost else log.epochs.last_epoch,
            contested_from=_contested_from(log, contested_epoch),
        )
        for partition, log in sorted(logs.items())
    ]


def _contested_from(log: ReplicaLog, contested_epoch: int) -> int:
    if contested_epoch == NO_EPOCH or log.history_lost:
        return NOT_KNOWN
    starts = (it.start_offset for it in log.epochs.starts if it.epoch >= contested_epoch)
    return next(starts, NOT_KNOWN)
