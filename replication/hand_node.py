"""A broker of a cluster that a person decides for: who leads is said at the command line.

There is no service that knows the ISR, so the leader keeps it in its own directory, and what may be
promised is what all brokers have.
"""

from collections.abc import Callable
from typing import Final

from ..protocol.api.cluster.replicate import Answers, ReplicateResponse, Says
from ..storage.log.epoch_history import NO_EPOCH
from .cluster_state import ClusterState
from .effects import Connection, Send, Transact
from .in_sync import InSyncReplicas
from .messages import FromFollower, FromLeader
from .node import Node
from .partition_log import Directory
from .settings import Incarnation, Member, ReplicationSettings

EPOCHS_APART: Final = 1000
"""Epochs of one broker are this far apart, beginning with its id, which must be below: two people
who promote two brokers at once give them two epochs."""


LEAVING_S: Final = 1.0
"""So long a follower whose log is damaged lets its leader take it out of the ISR, before it begins
to copy again."""


def next_epoch(highest_epoch: int, broker_id: int) -> int:
    """The first epoch of a broker above all that it has seen."""
    first = max(highest_epoch, 0) // EPOCHS_APART * EPOCHS_APART + broker_id
    return first if first > highest_epoch else first + EPOCHS_APART


class HandNode(Node):
    """Follows the broker that a person chose, or leads."""

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
        """`follows`: the leader that was given with `--follow`. `brokers`: how many there are.

        `create`: `--create-cluster`. Without it an empty directory does not lead: it may be the new
        disk of a leader, and would begin with an epoch that there was before.
        """
        if settings.min_insync >= brokers:
            # Followers promote themselves without a word about loss then: a topic that asks for
            # less, which they may not know of yet, would make that untrue.
            settings = settings._replace(least_min_insync=settings.min_insync)
        super().__init__(
            *(directory, incarnation, settings, new_number),
            may_have_lost=may_have_lost,
            copied=copied,
        )
        self.brokers = brokers
        last = self.highest_epoch
        own = not self.identity.nonce or last % EPOCHS_APART == self.broker_id
        self.newer_epoch = last != NO_EPOCH and not own
        """Whether another broker led after this one, which is not to lead by itself."""
        self._revision = 0
        empty = not self.identity.nonce
        leads = follows is None and (create or not empty)
        self.confirmed_by: set[int] | None = set() if leads else None
        """Brokers that said that there is no newer epoch, until this one leads. All have to say it,
        in the ISR or not: a broker that was promoted meanwhile says something else, or nothing."""
        self._create = create
        self._leaves_damaged = False
        self._left_s: float | None = None
        """Since when the leader knows that this follower leaves the ISR because of damage."""
        if empty:
            # It has nothing yet, so it lacks what others were answered.
            self.remember(self.identity._replace(nonce=new_number(), in_doubt=not leads))
        if follows is not None:
            self.remember(self.identity._replace(nonce=new_number()))
            self.follow(follows, NO_EPOCH)

    def tick(self, now_s: float) -> None:
        asked = self.confirmed_by
        confirmed = asked is not None and (self._create or len(asked) >= self.brokers - 1)
        certain = not self.identity.in_doubt or self.brokers == 1
        if self.leader is None and confirmed and certain and not self.newer_epoch:
            self._begin(now_s, self.identity.record)
        super().tick(now_s)
        self._decide()
        self._caught_up()
        self._follow_again(now_s)

    def _begin(self, now_s: float, record: frozenset[Member]) -> None:
        """Lead, in an epoch that no other broker can give itself."""
        self.confirmed_by = None
        epoch = next_epoch(self.highest_epoch, self.broker_id)
        others = {member for member in record if member.broker_id != self.broker_id}
        state = ClusterState(epoch, self.incarnation, frozenset(others | {self.member}))
        self.remember(self.identity._replace(highest_epoch=epoch, record=state.isr))
        self._revision += 1
        self.lead(now_s, InSyncReplicas(state, self._revision), epoch)

    def _decide(self) -> None:
        """Changes of the ISR are this broker's own: kept first, counted then."""
        wanted = [effect for effect in self.effects if isinstance(effect, Transact)]
        if not wanted:
            return
        self.effects[:] = [each for each in self.effects if not isinstance(each, Transact)]
        if self.leader is not None:
            state = wanted[-1].state._replace(kept=frozenset())
            self.remember(self.identity._replace(record=state.isr))
            self._revision += 1
            self.leader.state_read(state, self._revision)

    # What others say.

    def learn(self, epoch: int) -> None:
        """The same broker is followed, in whatever epoch it leads by now."""
        followed = self.follower
        super().learn(epoch)
        if followed is not None and self.follower is None:
            self.follow(followed.leader_id, NO_EPOCH)

    def from_follower(self, now_s: float, connection: Connection, message: FromFollower) -> None:
        if self.leader is None and self.confirmed_by is not None and message.says == Says.HELLO:
            if message.highest_epoch > self.highest_epoch:
                self.newer_epoch = True
            else:
                self.confirmed_by.add(message.broker_id)
        super().from_follower(now_s, connection, message)
        self._decide()

    def from_leader(self, now_s: float, connection: Connection, message: FromLeader) -> None:
        # Before the message: what comes with it is not there yet.
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
        """Until it is copied, this broker may lack what was answered."""
        if not self.identity.in_doubt:
            self.remember(self.identity._replace(in_doubt=True))

    # What a person says.

    def promote(self, now_s: float, *, accept_loss: bool = False) -> str | None:
        """Lead from now on, without the old leader's answer; or why not.

        Nothing answered is lost only where it was answered when all brokers had it.
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
        """Why messages may be lost if this broker leads, if they may."""
        if self.identity.in_doubt:
            return "this broker has not caught up since it may have lost something"
        if self.settings.min_insync < self.brokers:
            return (
                f"min.insync.replicas is {self.settings.min_insync}, and there are "
                f"{self.brokers} brokers: messages may have been answered that this one lacks"
            )
        return None

    def lead_alone(self, now_s: float) -> None:
        """Lead although not all others have confirmed: `--alone`."""
        if self.leader is None and self.confirmed_by is not None:
            self._begin(now_s, frozenset())

    def hand_over_now(self, now_s: float, connection: Connection, member: Member) -> None:
        """Stop, say so, and follow who leads from now on."""
        if self.leader is None:
            return
        # The connection closes with `stop`; what was sent on it before arrives first.
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
