"""One broker of a cluster: at any time a leader, a follower, or neither.

Its driver calls its methods, one at a time, with the boot-time clock in seconds, and carries
out what is in `effects` afterwards, in this order.
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
    """What is the same with etcd and by hand."""

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
        """`may_have_lost`: the start found damage, or a stop that a power cut may have been.
        `copied`: the directory is a copy, which may be older than what its broker confirmed."""
        self.directory = directory
        self.incarnation = incarnation
        self.settings = settings
        self.effects: list[Effect] = []
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self._new_number = new_number
        self._led_epoch = NO_EPOCH
        """The last epoch that this process led in, or could have."""
        self.leads_with_loss = False
        """Whether it was made leader though it may lack what was answered, and nobody said so."""
        self._handing_to: int | None = None
        self._handing_since_s = 0.0
        self.leaving = False
        """Whether this broker is being stopped."""
        self.contested_epoch = NO_EPOCH
        """An epoch that has two owners, this directory's and another broker's."""
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
        """That this directory has ever seen."""
        return self.directory.identity.highest_epoch

    def remember(self, identity: Identity) -> None:
        """Store a changed identity."""
        self.directory.store(identity)

    # What clients ask for.

    def serves(self, now_s: float) -> Leader | None:
        """The leader, if this broker may act as one at this time."""
        return self.leader

    def refusal(
        self, now_s: float, acks_all: bool, partition: Partition | None = None
    ) -> Outcome | None:
        """Why a set may not be appended now, if so; see `Leader.refusal`."""
        leader = self.serves(now_s)
        if leader is None or self._handing_to is not None:
            return Outcome.NOT_LEADER
        return leader.refusal(acks_all, partition)

    def begin_append(self, partition: Partition) -> None:
        """`Leader.begin_append`."""
        if self.leader is not None:
            self.leader.begin_append(partition)

    def appended(
        self, partition: Partition, first_offset: int, next_offset: int, token: Token | None
    ) -> None:
        """`Leader.appended`."""
        if self.leader is not None:
            self.leader.appended(partition, first_offset, next_offset, token)

    def await_commit(
        self, partition: Partition, first_offset: int, next_offset: int, token: Token | None
    ) -> None:
        """`Leader.await_commit`."""
        if self.leader is not None:
            self.leader.await_commit(partition, first_offset, next_offset, token)

    def readable(self, now_s: float) -> bool:
        """Whether a client may get what is below the watermarks, as from the leader."""
        leader = self.serves(now_s)
        return leader is not None and leader.readable

    # Owners of epochs.

    @property
    def settled_epoch(self) -> int:
        """A person chose whose messages count in the epochs up to this one."""
        return NO_EPOCH

    def conflict(self, owners: Owners) -> int | None:
        """The first epoch that has another owner in `owners` than in this directory."""
        return first_conflict(self.directory.owners, owners, self.settled_epoch)

    def contest(self, epoch: int) -> None:
        """Another broker has messages of `epoch` from another leader: follow it no more."""
        self.contested_epoch = epoch
        self.unfollow()

    # What happens.

    def add_partition(self, partition: Partition) -> None:
        """A log was added to the directory's: metadata below the watermark names it."""
        if self.leader is not None:
            self.leader.add_partition(partition, self.directory.logs[partition])
        elif self.follower is not None:
            self.follower.add_partition(partition)

    def remove_partition(self, partition: Partition) -> None:
        """A log went from the directory's: the metadata names it no more."""
        if self.leader is not None:
            self.leader.remove_partition(partition)
        elif self.follower is not None:
            self.follower.remove_partition(partition)

    def synced(self, partition: Partition) -> None:
        """A log was synced."""
        if self.leader is not None:
            self.leader.synced(partition)
        elif self.follower is not None:
            self.follower.synced(partition)

    def reminded(self) -> None:
        """`Remind` was carried out."""
        if self.leader is not None:
            self.leader.reminded()

    def damaged(self) -> None:
        """A log was found to be damaged: what was confirmed of it is not here any more.

        A follower leaves the ISR, and copies the log again from its damage on. A leader goes on, as
        far as it can: what it has may be all that there is.
        """
        if self.leader is not None:
            return
        if not self.identity.in_doubt and self.identity.nonce:
            self.remember(self.identity._replace(in_doubt=True))
        self._leave_damaged()

    def _leave_damaged(self) -> None:
        """Say to no leader any more what was said of a log that is damaged."""
        if self.follower is not None:
            self.follower.drop()

    def connected(self, now_s: float, connection: Connection) -> None:
        """A connection that `Connect` asked for is there."""
        if self.follower is not None:
            self.follower.connected(now_s, connection)

    def not_connected(self) -> None:
        """A connection that `Connect` asked for could not be made."""
        if self.follower is not None and self.follower.connection is None:
            self.follower.closed()

    def trimmed(self, partition: Partition, token: Token | None) -> None:
        """`Leader.trimmed`."""
        if self.leader is not None:
            self.leader.trimmed(partition, token)

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        if self.leader is not None:
            self.leader.closed(connection)
        if self.follower is not None and self.follower.connection == connection:
            self.follower.closed()

    def learn(self, epoch: int) -> None:
        """`epoch` exists. Who leads or follows in an older one stops at once."""
        if epoch > self.highest_epoch:
            self.remember(self.identity._replace(highest_epoch=epoch))
        if self.leader is not None and epoch > self.leader.epoch:
            self.resign()
        if self.follower is not None and NO_EPOCH < self.follower.epoch < epoch:
            self.unfollow()

    def from_follower(self, now_s: float, connection: Connection, message: FromFollower) -> None:
        """A message on a connection that another broker opened."""
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
        """To be called before `from_leader` with the same message, and what it wants done is to be
        done before that: the leader sends what follows while this broker appends."""
        follower = self.follower
        if follower is None or follower.connection != connection:
            return
        if message.answers == Answers.FETCHED:
            follower.ask_ahead(now_s, message)

    def from_leader(self, now_s: float, connection: Connection, message: FromLeader) -> None:
        """A message on a connection that this broker opened."""
        follower = self.follower
        if follower is None or follower.connection != connection:
            return
        if message.answers == Answers.FETCHED:
            follower.fetched(now_s, message)
        elif message.answers == Answers.WELCOME:
            if message.epoch < self.highest_epoch:
                # It is deposed and does not know it; the next hello says it.
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
        """By hand: the leader has stopped for this one."""

    # Roles.

    def follow(self, leader_id: int, epoch: int) -> None:
        """Follow a leader."""
        self.unfollow()
        self.follower = self.follower_class(
            *(self.directory, leader_id, epoch, self.settings, self.effects),
            begins_anew=self.copy_begins_anew,
        )

    def copy_begins_anew(self) -> None:
        """A log is emptied, to be copied again. With etcd the ISR says who has everything."""

    def unfollow(self) -> None:
        """Stop following: nothing is fetched any more."""
        if self.follower is not None:
            self.follower.drop()
            self.follower = None

    def lead(self, now_s: float, isr: InSyncReplicas, epoch: int) -> None:
        """Lead in a new epoch. Nothing is fetched any more, so the logs end where it begins."""
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
        """Lead no more in this epoch, ever."""
        if self.leader is not None:
            self.leader.stop()
            self.leader = None
        self._handing_to = None

    def hand_over(self, now_s: float, broker_id: int) -> None:
        """Take no more writes, and let another broker lead as soon as it has everything.

        Given up after `hand_over_s`.
        """
        if self.leader is not None:
            self._handing_to = broker_id
            self._handing_since_s = now_s
            # It is handed over when the other one says that it has everything: at once, not when
            # its fetch has waited long enough.
            self.leader.answer(broker_id)

    def leave(self) -> bool:
        """Begin an orderly stop: a follower asks its leader to take it out of the ISR. Returns
        whether a leader was asked."""
        self.leaving = True
        follower = self.follower
        return follower is not None and follower.leave()

    def tick(self, now_s: float) -> None:
        """To be called often, several times in `read_every_s`."""
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
        """`member` is in the ISR and has everything."""
        raise NotImplementedError
