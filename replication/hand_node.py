"""A broker of a cluster without etcd: an operator says at the command line which broker leads.

No service knows the ISR, so the leader stores it in its own directory, and only what all brokers
have is certain to survive.
"""

from collections.abc import Callable
from typing import Final

from ..protocol.api.cluster.replicate import Answers, ReplicateResponse, Says
from ..storage.log.epoch_history import NO_EPOCH
from .cluster_state import ClusterState
from .effects import Connection, Send, Transact
from .epoch_owners import owners_of
from .in_sync import InSyncReplicas
from .messages import FromFollower, FromLeader
from .node import Node
from .partition_log import Directory
from .settings import Incarnation, Member, ReplicationSettings

EPOCHS_APART: Final = 1000
"""Distance between two epochs of one broker. Each is a multiple of this plus the broker's id, which
must be smaller: two operators who promote two brokers at once create two different epochs."""


LEAVING_S: Final = 1.0
"""Time in which the leader takes a follower with a damaged log out of the ISR, before the follower
copies the log again."""


def next_epoch(highest_epoch: int, broker_id: int) -> int:
    """Return the lowest epoch of a broker above all that it has seen."""
    first = max(highest_epoch, 0) // EPOCHS_APART * EPOCHS_APART + broker_id
    return first if first > highest_epoch else first + EPOCHS_APART


class HandNode(Node):
    """A broker that leads, or follows the leader that an operator chose."""

    def __init__(
        self,
        directory: Directory,
        incarnation: Incarnation,
        settings: ReplicationSettings,
        new_number: Callable[[], int],
        *,
        may_have_lost: bool,
        copied: bool = False,
        follows: int | None,
        brokers: int,
        create: bool = False,
    ) -> None:
        """`follows`: the leader given with `--follow`. `brokers`: number of brokers in the cluster.

        `create`: `--create-cluster`. Without it an empty directory does not lead: it may be the new
        disk of a former leader, and would start with an epoch that existed before.
        """
        if settings.min_insync >= brokers:
            # With this many, followers can be promoted without a warning about loss. That would be
            # wrong if a topic that they do not know of yet required fewer.
            settings = settings._replace(least_min_insync=settings.min_insync)
        super().__init__(
            *(directory, incarnation, settings, new_number),
            may_have_lost=may_have_lost,
            copied=copied,
        )
        self.brokers = brokers
        last = self.highest_epoch
        own = not self.identity.nonce or last % EPOCHS_APART == self.broker_id
        self.newer_epoch = NO_EPOCH if own else last
        """Epoch in which another broker led after this one. If there is one, this broker does not
        lead by itself."""
        self._outlived_epoch = NO_EPOCH
        """Epoch whose owner has become a follower of this broker, which therefore stopped leading.
        It leads again, unless it hears of a newer epoch first."""
        self._revision = 0
        empty = not self.identity.nonce
        leads = follows is None and (create or not empty)
        self.confirmed_by: set[int] | None = set() if leads else None
        """Brokers that confirmed that there is no newer epoch; `None` once this broker leads. All
        brokers have to confirm, in the ISR or not: one that was promoted meanwhile denies it, or
        does not answer."""
        self._create = create
        self._leaves_damaged = False
        self._left_s: float | None = None
        """Since when the leader knows that this follower leaves the ISR because of damage."""
        if empty:
            # The directory is empty, so it lacks messages that were acknowledged.
            self.remember(self.identity._replace(nonce=new_number(), in_doubt=not leads))
        if follows is not None:
            self.remember(self.identity._replace(nonce=new_number()))
            self.follow(follows, NO_EPOCH)

    def tick(self, now_s: float) -> None:
        asked = self.confirmed_by
        confirmed = asked is not None and (self._create or len(asked) >= self.brokers - 1)
        certain = not self.identity.in_doubt or self.brokers == 1
        newest = self.newer_epoch == NO_EPOCH
        may_lead = certain and ((confirmed and newest) or self._outlives)
        if self.leader is None and may_lead:
            self._begin(now_s, self.identity.record)
        super().tick(now_s)
        self._decide()
        self._caught_up()
        self._follow_again(now_s)

    def _begin(self, now_s: float, record: frozenset[Member]) -> None:
        """Lead, in an epoch that no other broker can choose."""
        self.confirmed_by = None
        epoch = next_epoch(self.highest_epoch, self.broker_id)
        others = {member for member in record if member.broker_id != self.broker_id}
        state = ClusterState(epoch, self.incarnation, frozenset(others | {self.member}))
        self.remember(self.identity._replace(highest_epoch=epoch, record=state.isr))
        self._revision += 1
        self.lead(now_s, InSyncReplicas(state, self._revision), epoch)

    def _decide(self) -> None:
        """Apply this leader's changes of the ISR without etcd: they are stored first, then
        counted."""
        wanted = [effect for effect in self.effects if isinstance(effect, Transact)]
        if not wanted:
            return
        self.effects[:] = [each for each in self.effects if not isinstance(each, Transact)]
        if self.leader is not None:
            state = wanted[-1].state._replace(kept=frozenset())
            self.remember(self.identity._replace(record=state.isr))
            self._revision += 1
            self.leader.state_read(state, self._revision)

    # Messages from other brokers.

    def learn(self, epoch: int) -> None:
        """Follow the same broker on, in the epoch in which it leads now."""
        followed = self.follower
        super().learn(epoch)
        if followed is not None and self.follower is None:
            self.follow(followed.leader_id, NO_EPOCH)

    def from_follower(self, now_s: float, connection: Connection, message: FromFollower) -> None:
        if message.says == Says.HELLO:
            if self.confirmed_by is not None and self.leader is None:
                self._take_confirmation(self.confirmed_by, message)
            else:
                self._outlive_old_leader(message)
        super().from_follower(now_s, connection, message)
        self._decide()

    def _take_confirmation(self, confirmed_by: set[int], hello: FromFollower) -> None:
        """Accept a broker's hello as the confirmation that no other broker led after this one.

        A broker that was promoted without knowing this one's last epoch led in a lower epoch. Its
        followers, and itself, know it as their last owned epoch. One that followed this broker
        afterwards knows a later one, which this broker owns.
        """
        own, theirs = self.directory.owners, owners_of(hello.owners)
        last_led = max(theirs, default=NO_EPOCH)
        if hello.highest_epoch > self.highest_epoch:
            self.newer_epoch = hello.highest_epoch
        elif last_led not in own and last_led > min(own, default=last_led):
            self.newer_epoch = last_led
        else:
            confirmed_by.add(hello.broker_id)

    @property
    def _outlives(self) -> bool:
        """Whether this broker is to lead again above `_outlived_epoch`."""
        outlived = self._outlived_epoch
        return outlived != NO_EPOCH and self.highest_epoch == outlived and self.follower is None

    def _outlive_old_leader(self, hello: FromFollower) -> None:
        """Lead again soon, above the epoch of a former leader that follows this one now.

        An operator promoted this broker while no running broker knew that epoch. The owner of the
        epoch no longer leads in it; a hello from another broker does not prove that.
        """
        owns = hello.highest_epoch % EPOCHS_APART == hello.broker_id
        leads = self.leader is not None or self._outlives
        if leads and owns and hello.highest_epoch > self.highest_epoch:
            self._outlived_epoch = hello.highest_epoch

    def from_leader(self, now_s: float, connection: Connection, message: FromLeader) -> None:
        # Before the message: the partitions that it adds are not copied yet.
        self._caught_up()
        super().from_leader(now_s, connection, message)

    def _caught_up(self) -> None:
        if self.identity.in_doubt and self.follower is not None and self.follower.has_everything:
            self.remember(self.identity._replace(in_doubt=False))

    def _leave_damaged(self) -> None:
        """Leave the ISR first, as in an orderly stop, so that no producer waits for the copy."""
        if self.follower is not None and self.follower.leave():
            self._leaves_damaged = True
        else:
            super()._leave_damaged()

    def _follow_again(self, now_s: float) -> None:
        if not self._leaves_damaged:
            return
        if self._left_s is None:
            self._left_s = now_s
        elif now_s - self._left_s >= LEAVING_S:
            self._leaves_damaged, self._left_s = False, None
            super()._leave_damaged()

    def copy_begins_anew(self) -> None:
        """Record that this broker may lack acknowledged messages until the log is copied."""
        if not self.identity.in_doubt:
            self.remember(self.identity._replace(in_doubt=True))

    # Commands of an operator.

    def promote(self, now_s: float, *, accept_loss: bool = False) -> str | None:
        """Lead from now on, without the old leader's consent. Returns why not, or `None`.

        No acknowledged message is lost only if messages were acknowledged when all brokers had
        them.
        """
        if self.leader is not None:
            return None
        if self.highest_epoch == NO_EPOCH:
            return "this broker has not followed a leader, so it knows no epoch to begin above"
        reason = None if accept_loss else self.why_not_promote()
        if reason is not None:
            return reason
        self.unfollow()
        self._begin(now_s, frozenset())
        return None

    def why_not_promote(self) -> str | None:
        """Return why messages may be lost if this broker leads; `None` if none can be."""
        if self.identity.in_doubt:
            return "this broker has not caught up since it may have lost something"
        if self.settings.min_insync < self.brokers:
            return (
                f"min.insync.replicas is {self.settings.min_insync}, and there are "
                f"{self.brokers} brokers: messages may have been answered that this one lacks"
            )
        return None

    def lead_alone(self, now_s: float) -> None:
        """Lead although not all other brokers have confirmed (`--alone`)."""
        if self.leader is None and self.confirmed_by is not None:
            self._begin(now_s, frozenset())

    def hand_over_now(self, now_s: float, connection: Connection, member: Member) -> None:
        """Stop leading, tell `member` that it leads, and follow it."""
        if self.leader is None:
            return
        # `resign` closes the connection; messages sent on it before still arrive.
        handed_over = ReplicateResponse(
            answers=Answers.HANDED_OVER, epoch=self.leader.epoch, broker_id=self.broker_id
        )
        self.effects.append(Send(connection, handed_over))
        self.resign()
        self.follow(member.broker_id, NO_EPOCH)

    def handed_over(self, now_s: float, message: FromLeader) -> None:
        if message.epoch == self.highest_epoch:
            self.unfollow()
            self._begin(now_s, frozenset())
