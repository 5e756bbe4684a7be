"""A cluster in which people decide who leads."""

from ...protocol.api.cluster.replicate import ReplicateRequest
from ...replication.effects import Effect
from ...replication.hand_node import HandNode
from ...replication.settings import Incarnation
from ...storage.log.epoch_history import NO_EPOCH
from .member import GIVEN, ClusterMember


class ManualPromotion:
    """The `Election` of such a cluster; see there."""

    in_sync = None

    def __init__(self, member: ClusterMember) -> None:
        self._member = member
        settings = member.settings
        replication = member.replication_settings()
        self.node = HandNode(
            member.stored,
            Incarnation(member.broker_id, member.new_number()),
            replication._replace(answer_within_s=settings.replica_lag_time_max_ms / 1000),
            member.new_number,
            may_have_lost=member.stored.may_have_lost,
            copied=member.stored.copied,
            follows=GIVEN if member.given_leaders else None,
            brokers=settings.cluster_brokers,
            create=settings.cluster_create and not member.stored.identity.nonce,
        )

    @property
    def waits_for(self) -> str:
        node = self.node
        if node.contested_epoch != NO_EPOCH:
            return (
                f"another broker led in epoch {node.contested_epoch} than this one knows, so that "
                "one of the two has other messages: start the one that is to follow once with "
                "--discard, which sets aside what it has"
            )
        if node.newer_epoch:
            return (
                f"another broker has led since, in epoch {node.highest_epoch}: start this one with "
                "--follow and its address, or promote it (horolog cluster promote)"
            )
        if node.confirmed_by is None:
            return (
                "this broker belongs to no cluster yet: start it with --follow and the leader's "
                "address or, if it has the data that counts, once with --create-cluster"
            )
        if node.identity.in_doubt:
            return (
                "something may be missing that this broker has confirmed: start it with --follow, "
                "or let it lead all the same (horolog cluster promote --accept-loss)"
            )
        confirmed = len(node.confirmed_by)
        return (
            f"of the {node.brokers - 1} other brokers (cluster.brokers), which have to say that "
            f"no broker was promoted meanwhile, {confirmed} did so: start them, or start this one "
            "with --alone"
        )

    @property
    def contested_epoch(self) -> int:
        return self.node.contested_epoch

    def knows(self, hello: ReplicateRequest) -> bool:
        return True

    async def know(self, hello: ReplicateRequest) -> None:
        """There is no list of members: `cluster.brokers` says how many there may be."""

    @property
    def promise(self) -> str:
        return self.node.why_not_promote() or ""

    async def prepare(self) -> None:
        """There is no one else to ask."""

    def start(self) -> None:
        if self._member.settings.cluster_alone:
            self.node.lead_alone(self._member.now_s)

    async def resign(self) -> None:
        """People hand over before."""

    async def stop(self) -> None:
        """Nothing is held."""

    def tick(self, now_s: float) -> None:
        self.node.tick(now_s)

    def carry_out(self, effect: Effect) -> None:
        """There is nothing else."""

    def promote(self, now_s: float, *, accept_loss: bool) -> str | None:
        return self.node.promote(now_s, accept_loss=accept_loss)
