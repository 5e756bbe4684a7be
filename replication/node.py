"""One broker of a cluster: at any time a leader, a follower, or neither.

Its driver calls the methods one at a time, with the boot-time clock in seconds, and afterwards
carries out `effects` in order.
"""

from collections.abc import Callable
from typing import ClassVar

from ..protocol.api.cluster.replicate import Answers, ReplicateRequest, Says
from ..protocol.limits import MAX_LEADER_EPOCHS
from ..storage.log.epoch_history import NO_EPOCH
from .effects import Connection, Effect, Outcome, Send, Token
from .epoch_owners import Owners, first_conflict, merged, owners_of
from .follower import Follower
from .in_sync import InSyncReplicas
from .leader import Leader
from .messages import FromFollower, FromLeader, refusal
from .partition_log import Directory, Identity, Partition
from .settings import Incarnation, Member, ReplicationSettings


class Node:
    """Base of the two kinds of broker: with etcd, and under manual promotion."""

    leader_class: ClassVar[type[Leader]] = Leader
    follower_class: ClassVar[type[Follower]] = Follower

    def __init__(
        self,
        directory: Directory,
        incarnation: Incarnation,
        settings: ReplicationSettings,
        new_number: Callable[[], int],
        *,
        may_have_lost: bool,
        copied: bool = False,
    ) -> None:
        """`may_have_lost`: the start found damage, or the last stop may have been a power cut.
        `copied`: the directory is a copy, and may be older than what its broker confirmed."""
        self.directory = directory
        self.incarnation = incarnation
        self.settings = settings
        self.effects: list[Effect] = []
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self._new_number = new_number
        self._led_epoch = NO_EPOCH
        """The last epoch in which this process led, or could have led."""
        self.leads_with_loss = False
        """Whether this broker became leader though it may lack acknowledged messages, without an
        operator's consent (unclean election)."""
        self._handing_to: int | None = None
        self._handing_since_s = 0.0
        self.leaving = False
        """Whether this broker is being stopped."""
        self.contested_epoch = NO_EPOCH
        """Epoch with two owners, one known to this directory and another to a different broker;
        `NO_EPOCH` for none."""
        if copied and directory.identity.nonce:
            stranger = self.identity._replace(nonce=new_number(), next_nonce=0, in_doubt=True)
            self.remember(stranger)
        elif may_have_lost and directory.identity.nonce:
            self.remember(self.identity._replace(in_doubt=True))

    @property
    def broker_id(self) -> int:
        return self.directory.broker_id

    @property
    def member(self) -> Member:
        return Member(self.directory.broker_id, self.directory.identity.nonce)

    @property
    def identity(self) -> Identity:
        return self.directory.identity

    @property
    def highest_epoch(self) -> int:
        """Highest epoch that this directory has ever seen."""
        return self.directory.identity.highest_epoch

    def remember(self, identity: Identity) -> None:
        """Store a changed identity in the directory."""
        self.directory.store(identity)

    # Client requests.

    def serves(self, now_s: float) -> Leader | None:
        """Return the leader, if this broker may act as leader now."""
        return self.leader

    def refusal(
        self, now_s: float, acks_all: bool, partition: Partition | None = None
    ) -> Outcome | None:
        """Return why a set may not be appended now; `None` if it may. See `Leader.refusal`."""
        leader = self.serves(now_s)
        if leader is None or self._handing_to is not None:
            return Outcome.NOT_LEADER
        return leader.refusal(acks_all, partition)

    def begin_append(self, partition: Partition) -> None:
        """See `Leader.begin_append`; ignored if this broker does not lead."""
        if self.leader is not None:
            self.leader.begin_append(partition)

    def appended(
        self, partition: Partition, first_offset: int, next_offset: int, token: Token | None
    ) -> None:
        """See `Leader.appended`; ignored if this broker does not lead."""
        if self.leader is not None:
            self.leader.appended(partition, first_offset, next_offset, token)

    def await_commit(
        self, partition: Partition, first_offset: int, next_offset: int, token: Token | None
    ) -> None:
        """See `Leader.await_commit`; ignored if this broker does not lead."""
        if self.leader is not None:
            self.leader.await_commit(partition, first_offset, next_offset, token)

    def readable(self, now_s: float) -> bool:
        """Whether this broker, as leader, may serve clients what is below the watermarks."""
        leader = self.serves(now_s)
        return leader is not None and leader.readable

    # Owners of epochs.

    @property
    def settled_epoch(self) -> int:
        """Highest epoch up to which an operator decided whose messages count."""
        return NO_EPOCH

    def conflict(self, owners: Owners) -> int | None:
        """Return the first epoch whose owner differs between `owners` and this directory."""
        return first_conflict(self.directory.owners, owners, self.settled_epoch)

    def contest(self, epoch: int) -> None:
        """Record that another broker knows a different leader of `epoch`, and stop following."""
        self.contested_epoch = epoch
        self.unfollow()

    # Events.

    def add_partition(self, partition: Partition) -> None:
        """Handle a new log in the directory, for a partition that committed metadata name."""
        if self.leader is not None:
            self.leader.add_partition(partition, self.directory.logs[partition])
        elif self.follower is not None:
            self.follower.add_partition(partition)

    def remove_partition(self, partition: Partition) -> None:
        """Handle the removal of a log whose partition the metadata no longer name."""
        if self.leader is not None:
            self.leader.remove_partition(partition)
        elif self.follower is not None:
            self.follower.remove_partition(partition)

    def synced(self, partition: Partition) -> None:
        """Handle the completed sync of a log."""
        if self.leader is not None:
            self.leader.synced(partition)
        elif self.follower is not None:
            self.follower.synced(partition)

    def reminded(self) -> None:
        """Handle the completed `Remind`."""
        if self.leader is not None:
            self.leader.reminded()

    def damaged(self) -> None:
        """Handle damage found in a log: messages that this broker confirmed are gone.

        A follower leaves the ISR, and copies the log again from the damage on. A leader continues
        as far as it can: its log may hold the only copies.
        """
        if self.leader is not None:
            return
        if not self.identity.in_doubt and self.identity.nonce:
            self.remember(self.identity._replace(in_doubt=True))
        self._leave_damaged()

    def _leave_damaged(self) -> None:
        """Withdraw from the leader the positions confirmed for a damaged log."""
        if self.follower is not None:
            self.follower.drop()

    def connected(self, now_s: float, connection: Connection) -> None:
        """Handle a connection that `Connect` requested."""
        if self.follower is not None:
            self.follower.connected(now_s, connection)

    def not_connected(self) -> None:
        """Handle the failure of a `Connect`."""
        if self.follower is not None and self.follower.connection is None:
            self.follower.closed()

    def trimmed(self, partition: Partition, token: Token | None) -> None:
        """See `Leader.trimmed`; ignored if this broker does not lead."""
        if self.leader is not None:
            self.leader.trimmed(partition, token)

    def closed(self, connection: Connection) -> None:
        """Handle a closed connection."""
        if self.leader is not None:
            self.leader.closed(connection)
        if self.follower is not None and self.follower.connection == connection:
            self.follower.closed()

    def learn(self, epoch: int) -> None:
        """Adopt `epoch`, which another broker reported. A leader or follower of an older epoch
        stops at once."""
        if epoch > self.highest_epoch:
            self.remember(self.identity._replace(highest_epoch=epoch))
        if self.leader is not None and epoch > self.leader.epoch:
            self.resign()
        if self.follower is not None and NO_EPOCH < self.follower.epoch < epoch:
            self.unfollow()

    def from_follower(self, now_s: float, connection: Connection, message: FromFollower) -> None:
        """Handle a message on a connection that another broker opened."""
        if message.says == Says.HELLO:
            self.learn(message.highest_epoch)
        leader = self.serves(now_s)
        if leader is None:
            self._effect_refusal(connection)
        elif message.says == Says.FETCH:
            leader.fetched(now_s, connection, message)
        elif message.says == Says.CONFIRM:
            leader.confirmed(connection, message)
        elif message.epoch in (NO_EPOCH, leader.epoch):
            self._greet(leader, connection, message)
        else:
            self._effect_refusal(connection)
        if self._handing_to is not None:
            self._hand_over_if_done(now_s)

    def _greet(self, leader: Leader, connection: Connection, hello: ReplicateRequest) -> None:
        conflict = self.conflict(owners_of(hello.owners))
        if conflict is None:
            leader.greeted(connection, hello, self.directory.owners)
        else:
            self._effect_refusal(connection)
            self.contest(conflict)

    def _effect_refusal(self, connection: Connection) -> None:
        self.effects.append(Send(connection, refusal(self.highest_epoch, self.broker_id)))

    def ask_ahead(self, now_s: float, connection: Connection, message: FromLeader) -> None:
        """Handle a leader's message before it is passed to `from_leader`. The driver has to carry
        out the effects in between: then the leader sends what follows while this broker appends."""
        follower = self.follower
        if follower is None or follower.connection != connection:
            return
        if message.answers == Answers.FETCHED:
            follower.ask_ahead(now_s, message)

    def from_leader(self, now_s: float, connection: Connection, message: FromLeader) -> None:
        """Handle a message on a connection that this broker opened."""
        follower = self.follower
        if follower is None or follower.connection != connection:
            return
        if message.answers == Answers.FETCHED:
            follower.fetched(now_s, message)
        elif message.answers == Answers.WELCOME:
            if message.epoch < self.highest_epoch:
                # The sender is deposed and does not know it; the next hello tells it.
                follower.drop()
                return
            conflict = self.conflict(owners_of(message.owners))
            if conflict is not None:
                self.contest(conflict)
                return
            self.learn(message.epoch)
            follower.welcomed(now_s, message)
        elif message.answers == Answers.REFUSAL:
            follower.drop()
            self.learn(message.epoch)
        elif message.answers == Answers.HANDED_OVER:
            self.handed_over(now_s, message)

    def handed_over(self, now_s: float, message: FromLeader) -> None:
        """Take over the lead under manual promotion: the old leader has stopped."""

    # Roles.

    def follow(self, leader_id: int, epoch: int) -> None:
        """Follow a leader."""
        self.unfollow()
        self.follower = self.follower_class(
            *(self.directory, leader_id, epoch, self.settings, self.effects),
            begins_anew=self.copy_begins_anew,
        )

    def copy_begins_anew(self) -> None:
        """Called before a log is emptied and copied again. With etcd, the ISR says who has
        everything."""

    def unfollow(self) -> None:
        """Stop following; nothing is fetched from now on."""
        if self.follower is not None:
            self.follower.drop()
            self.follower = None

    def lead(self, now_s: float, isr: InSyncReplicas, epoch: int) -> None:
        """Lead in a new epoch. Fetching stops, so the epoch starts where the logs end."""
        self.unfollow()
        self.remember(self.identity._replace(in_doubt=False, counted_revision=isr.revision))
        # Synced before the first message of the epoch.
        owned = merged(self.directory.owners, {epoch: self.member}, MAX_LEADER_EPOCHS)
        self.directory.keep_owners(owned)
        self._led_epoch = epoch
        self._handing_to = None
        self.leader = self.leader_class(
            self.member, epoch, isr, self.directory.logs, self.settings, now_s, self.effects
        )
        self.leader.start()

    def resign(self) -> None:
        """Stop leading; this broker never leads in this epoch again."""
        if self.leader is not None:
            self.leader.stop()
            self.leader = None
        self._handing_to = None

    def hand_over(self, now_s: float, broker_id: int) -> None:
        """Refuse writes, and let another broker lead as soon as it has everything.

        The handover is given up after `hand_over_s`.
        """
        if self.leader is not None:
            self._handing_to = broker_id
            self._handing_since_s = now_s
            # The handover happens when the other broker reports that it has everything: the answer
            # makes it report at once, not at the end of its fetch's wait.
            self.leader.answer(broker_id)

    def leave(self) -> bool:
        """Begin an orderly stop: a follower asks its leader to take it out of the ISR. Returns
        whether a leader was asked."""
        self.leaving = True
        follower = self.follower
        return follower is not None and follower.leave()

    def tick(self, now_s: float) -> None:
        """Act on the time. The driver has to call this several times in `read_every_s`."""
        if now_s - self._handing_since_s >= self.settings.hand_over_s:
            self._handing_to = None
        if self.leader is not None:
            self.leader.tick(now_s)
        elif self.follower is not None:
            self.follower.tick(now_s)

    def _hand_over_if_done(self, now_s: float) -> None:
        if self._handing_to is None or self.leader is None:
            return
        for session in self.leader.sessions.values():
            heir = session.member
            if heir.broker_id != self._handing_to or session.behind:
                continue
            if heir in self.leader.isr.members:
                self.hand_over_now(now_s, session.connection, heir)
                return

    def hand_over_now(self, now_s: float, connection: Connection, member: Member) -> None:
        """Make `member` the leader; it is in the ISR and has everything."""
        raise NotImplementedError
