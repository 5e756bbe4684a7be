"""A broker of a cluster whose elections go through etcd."""

from collections.abc import Callable
from typing import ClassVar

from ..protocol.limits import MAX_LEADER_EPOCHS
from ..storage.log.epoch_history import NO_EPOCH
from .cluster_state import (
    ClusterState,
    ClusterView,
    MemberInfo,
    RequestState,
    elected,
    elected_alone,
    halted,
    is_to_lead,
    last_counted,
    latest_starts,
    left_in_doubt,
    reach,
)
from .effects import (
    Connection,
    GrantLease,
    ReadCluster,
    Register,
    RenewLease,
    RevokeLease,
    Transact,
)
from .epoch_owners import Owners, merged
from .in_sync import InSyncReplicas
from .leader import Leader
from .lease import Lease
from .node import Node
from .partition_log import Directory, Identity
from .settings import Incarnation, Member, ReplicationSettings


class ClusterNode(Node):
    """A broker that reads the cluster's state repeatedly and acts on it.

    It leads when the state names this process as the leader of an epoch in which it has not led
    yet; it stands for election when no broker holds the leader's lease. Otherwise it follows the
    leader in the state.
    """

    lease_class: ClassVar[type[Lease]] = Lease

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
        super().__init__(
            *(directory, incarnation, settings, new_number),
            may_have_lost=may_have_lost,
            copied=copied,
        )
        self.view: ClusterView | None = None
        self.lease: Lease | None = None
        self.went_back = False
        """Whether etcd was restored to an older state while this process ran."""
        self.accepts_loss = False
        """Whether an operator accepted that this broker leads with the messages that it has."""
        self._bids_with_loss = False
        """Whether the last transaction to become leader was an unclean election."""
        self._bids_in_doubt = False
        """Whether the last transaction to become leader was sent although this broker may lack
        messages."""
        self._fresh_nonce = False
        """Whether the nonce was made in this run and has not been in an ISR."""
        self._made_nonces: set[int] = set()
        """Nonces made in this run."""
        self._orphaned_s: float | None = None
        """Since when no member of the ISR was registered, while there is no leader."""
        self._read_s: float | None = None
        self._lease_asked_s: float | None = None
        self._renewal_asked_s: float | None = None
        self._registered: MemberInfo | None = None
        self._registered_s = 0.0
        """When `_registered` was sent."""
        self._transacted: tuple[int, float] = (-1, 0.0)
        """The state revision of this broker's last transaction, and when it was sent."""

    # The lease.

    def holds_lease(self, now_s: float) -> bool:
        return self.lease is not None and self.lease.holds(now_s)

    def serves(self, now_s: float) -> Leader | None:
        """Return the leader, as long as the lease holds."""
        if self.leader is not None and not self.holds_lease(now_s):
            self.resign()
        return self.leader

    def lease_granted(self, now_s: float, lease_id: int, asked_s: float, ttl_s: float) -> None:
        """Handle a granted lease."""
        if asked_s != self._lease_asked_s or self.lease is not None:
            self.effects.append(RevokeLease(lease_id))
            return
        self._lease_asked_s = None
        self.lease = self.lease_class(lease_id, asked_s, ttl_s, self.settings.lease_margin)
        self._renewal_asked_s = asked_s
        self._registered = None
        self._register(now_s)

    def lease_renewed(self, now_s: float, lease_id: int, asked_s: float, ttl_s: float) -> None:
        """Handle a renewed lease."""
        if self.lease is not None and self.lease.lease_id == lease_id:
            self.lease.renewed(now_s, asked_s, ttl_s)

    def lease_lost(self, lease_id: int) -> None:
        """Handle etcd's answer that the lease does not exist."""
        if self.lease is not None and self.lease.lease_id == lease_id:
            self.resign()
            self.lease = None

    def _tick_lease(self, now_s: float) -> None:
        if self.lease is not None and not self.lease.holds(now_s):
            self.resign()
            self.lease = None
        patience_s = self.settings.answer_within_s
        if self.lease is None:
            if self._lease_asked_s is None or now_s - self._lease_asked_s >= patience_s:
                self._lease_asked_s = now_s
                self.effects.append(GrantLease(now_s))
        elif now_s - (self._renewal_asked_s or 0.0) >= self.settings.lease_s / 4:
            self._renewal_asked_s = now_s
            self.effects.append(RenewLease(self.lease.lease_id, now_s))

    def _info(self, lease_id: int) -> MemberInfo:
        kept = self.view is not None and self.view.state.keeps(self.member)
        still = kept or self.identity.in_doubt
        has = reach(self.directory) if still else None
        return MemberInfo(self.incarnation, self.member, self.highest_epoch, lease_id, has)

    def _register(self, now_s: float) -> None:
        if self.lease is None:
            return
        info = self._info(self.lease.lease_id)
        there = self.view.members.get(self.broker_id) if self.view is not None else None
        if info == there:
            return
        patience_s = self.settings.answer_within_s
        if info != self._registered or now_s - self._registered_s >= patience_s:
            self._registered, self._registered_s = info, now_s
            self.effects.append(Register(info.lease_id, info))

    # Time.

    def tick(self, now_s: float) -> None:
        self._tick_lease(now_s)
        settings = self.settings
        if self._read_s is None or now_s - self._read_s >= settings.read_every_s:
            self._read_s = now_s
            self.effects.append(ReadCluster())
        super().tick(now_s)

    # The state.

    @property
    def sent(self) -> RequestState:
        """What is known now. A request to etcd carries it, and `cluster_read` gets it back."""
        identity = self.identity
        view = self.view
        revision, state_revision = (view.revision, view.state_revision) if view else (0, 0)
        epoch = identity.highest_epoch if identity.nonce else NO_EPOCH
        return RequestState(revision, state_revision, epoch, identity.counted_revision)

    def cluster_read(self, now_s: float, view: ClusterView, sent: RequestState) -> None:
        """Act on the whole state, read by a request that was sent when `sent` was known. An answer
        older than one already handled is ignored."""
        if self.is_set_back(view, sent):
            self.went_back = True
        elif self.view is not None and view.revision < self.view.revision:
            return
        self.view = view
        state = view.state
        if self.went_back or state.halt is not None or self._contests(state):
            self._wait_for_a_person(now_s, view)
            return
        self._adopt_next_nonce(state)
        mine = state.leader == self.incarnation
        leader = self.serves(now_s)
        if leader is not None:
            if mine and state.epoch == leader.epoch and self.holds_key(view):
                if not leader.isr.members <= state.isr:
                    counted = self.identity._replace(counted_revision=view.state_revision)
                    self.remember(counted)
                leader.state_read(state, view.state_revision)
                leader.absent = state.isr - {info.member for info in view.members.values()}
            else:
                self.resign()
                leader = None
        self.learn(state.epoch)
        if leader is None and mine and state.epoch > self._led_epoch:
            self._begin(now_s, view)
        if self.leader is None and not self.leaving:
            self._take_place(now_s, view)
        self._register(now_s)

    def coming_owners(self, view: ClusterView) -> Owners:
        """Return the owners of epochs that the directory may store in `cluster_read` of this
        view."""
        state, owners = view.state, self.directory.owners
        if state.leader != self.incarnation or state.epoch <= self._led_epoch:
            return owners
        me = self._listed(state.isr)
        return (
            merged(owners, dict.fromkeys((state.epoch,), *me), MAX_LEADER_EPOCHS) if me else owners
        )

    def is_set_back(self, view: ClusterView, sent: RequestState) -> bool:
        """Whether etcd is older than it was before. If an operator made the state later than
        everything that this directory knows, it may be in another etcd, whose revisions cannot be
        compared."""
        made_later = sent.epoch <= view.state.settled_epoch
        known_revision = max(sent.state_revision, 0 if made_later else sent.counted_revision)
        return (
            view.state.epoch < sent.epoch
            or view.revision < sent.revision
            or view.state_revision < known_revision
        )

    @property
    def settled_epoch(self) -> int:
        return NO_EPOCH if self.view is None else self.view.state.settled_epoch

    def contest(self, epoch: int) -> None:
        """Stop leading and following. The state tells all members that the epoch is contested."""
        super().contest(epoch)
        self.resign()

    def _contests(self, state: ClusterState) -> bool:
        """Whether an epoch of this directory has another owner. The owner of the state's epoch is
        known without asking it."""
        owner, leader = self.directory.owners.get(state.epoch), state.leader
        if owner is not None and leader is not None and owner.broker_id != leader.broker_id:
            self.contest(state.epoch)
        if self.contested_epoch <= state.settled_epoch:
            self.contested_epoch = NO_EPOCH
        return self.contested_epoch != NO_EPOCH

    def _wait_for_a_person(self, now_s: float, view: ClusterView) -> None:
        """Stop leading and following, and record the halt in the state."""
        self.resign()
        self.unfollow()
        state = halted(view.state, self.contested_epoch, self.highest_epoch)
        if state != view.state:
            self._transact(now_s, view, state)
        self._register(now_s)

    def coming_identity(self, view: ClusterView) -> Identity:
        """Return the identity with the epoch and revision that `cluster_read` of this view may
        store.

        They may be stored before: a broker outside the ISR in a view has nothing that others lack,
        whether this broker counts it or not.
        """
        state, leader = view.state, self.leader
        shrinks = leader is not None and not leader.isr.members <= state.isr
        begins = state.leader == self.incarnation and state.epoch > self._led_epoch
        revision = view.state_revision if shrinks or begins else 0
        return Identity(highest_epoch=state.epoch, counted_revision=revision)

    def holds_key(self, view: ClusterView) -> bool:
        """Whether the key `leader` is on the current lease of this process.

        The key may be on an earlier lease of the same process; that lease will expire.
        """
        return self.lease is not None and view.leader_lease == self.lease.lease_id

    def _begin(self, now_s: float, view: ClusterView) -> None:
        """Lead if possible: the state names this process as leader of a new epoch."""
        state = view.state
        newest = state.epoch >= self.highest_epoch
        doubted = self.identity.in_doubt and not self._bids_in_doubt
        if doubted or self.member not in state.isr:
            # This broker stood for election, or was handed the lead, before it found that messages
            # are missing, or under an earlier nonce.
            self._led_epoch = state.epoch
            self._give_lease_up()
        elif newest and self.holds_lease(now_s) and self.holds_key(view):
            self.accepts_loss = self._bids_in_doubt = False
            self.leads_with_loss, self._bids_with_loss = self._bids_with_loss, False
            self.lead(now_s, InSyncReplicas(state, view.state_revision), state.epoch)
        else:
            self._led_epoch = state.epoch

    def _take_place(self, now_s: float, view: ClusterView) -> None:
        """Leave the ISR, stand for election, follow, or wait."""
        state = view.state
        listed = self._listed(state.isr)
        doubtful = self.identity.in_doubt or self.member not in listed or self._returns(view)
        if listed and doubtful:
            self.unfollow()
            self._transact(now_s, view, left_in_doubt(view, self.broker_id))
        elif self._leader_is_gone(view):
            self._stand(now_s, view)
        elif not state.keeps(self.member):
            self._renew_nonce(state)
            self._follow(view)

    def _returns(self, view: ClusterView) -> bool:
        """Whether this run has to enter the ISR anew, because another broker leads. An older copy
        of the directory has the nonce of an earlier run, and is not a member."""
        return self.identity.nonce not in self._made_nonces and not self._leader_is_gone(view)

    def _listed(self, members: frozenset[Member]) -> frozenset[Member]:
        return frozenset(member for member in members if member.broker_id == self.broker_id)

    def _leader_is_gone(self, view: ClusterView) -> bool:
        """Whether no broker holds the leader's lease, or only an earlier leadership of this broker
        does."""
        return view.leader is None or view.leader.broker_id == self.broker_id

    def _stand(self, now_s: float, view: ClusterView) -> None:
        state = view.state
        if not self.holds_lease(now_s) or self.lease is None:
            return
        if self.may_be_elected(state):
            self._bids_with_loss = self._bids_in_doubt = False
            self._campaign(now_s, view, elected(view, self._info(self.lease.lease_id)))
            return
        loses = self.accepts_loss or self._outwait_isr(now_s, view)
        if loses and not state.keeps(self.member):
            self._renew_nonce(state)
        if loses or self._prepare_recovery(view):
            self._bids_with_loss = loses and not self.accepts_loss
            self._bids_in_doubt = True
            self._campaign(now_s, view, elected_alone(view, self._info(self.lease.lease_id)))

    def may_be_elected(self, state: ClusterState) -> bool:
        """Whether this broker is a member of the ISR, with the directory with which it entered."""
        return self.member in state.isr

    def _prepare_recovery(self, view: ClusterView) -> bool:
        """Whether the ISR is empty, all its former members have reported, and this one has most
        messages. If so, raises the log starts of this directory to the highest start that any of
        them reported."""
        mine = view.members.get(self.broker_id)
        if view.state.isr or mine is None or mine.incarnation != self.incarnation:
            return False  # An earlier run may have reported more than there is now.
        reaches = last_counted(view.state.kept, view.members)
        if reaches is None or not is_to_lead(reaches, self.member):
            return False
        for partition, start in latest_starts(reaches).items():
            log = self.directory.logs.get(partition)
            if log is not None and log.log_start_offset < start <= log.log_end_offset:
                log.raise_log_start(start)
        return True

    def _outwait_isr(self, now_s: float, view: ClusterView) -> bool:
        """Measure how long no member of the ISR has been registered. Returns whether that is as
        long as a lease, so that another broker may lead (unclean election)."""
        live = {info.member for info in view.members.values()}
        if view.state.isr & live or not self.settings.unclean:
            self._orphaned_s = None
            return False
        if self._orphaned_s is None:
            self._orphaned_s = now_s
        return now_s - self._orphaned_s >= self.settings.lease_s

    def _campaign(self, now_s: float, view: ClusterView, state: ClusterState) -> None:
        if self.lease is not None and self._begin_transaction(now_s, view):
            self.unfollow()
            state = self._entered_anew(state)
            self.effects.append(
                Transact(view.state_revision, state, self.lease.lease_id, view.leader_revision)
            )

    def _transact(self, now_s: float, view: ClusterView, state: ClusterState) -> None:
        if self._begin_transaction(now_s, view):
            self.effects.append(Transact(view.state_revision, state))

    def _begin_transaction(self, now_s: float, view: ClusterView) -> bool:
        """Record a transaction on this revision. Returns false if an earlier one may still be
        answered."""
        revision, sent_s = self._transacted
        if revision == view.state_revision and now_s - sent_s < self.settings.answer_within_s:
            return False
        self._transacted = (view.state_revision, now_s)
        return True

    def _renew_nonce(self, state: ClusterState) -> None:
        """Make a new nonce unless this stay in the ISR has one: a member has one nonce per stay."""
        if self.member in state.isr:
            self._fresh_nonce = False
        elif not self._fresh_nonce:
            self.unfollow()
            nonce = self._made_nonce()
            entered = self.identity._replace(nonce=nonce, next_nonce=0, in_doubt=False)
            # The counted revision belongs to the member with the old nonce.
            self.remember(entered._replace(counted_revision=0))
            self._fresh_nonce = True

    def _made_nonce(self) -> int:
        nonce = self._new_number()
        self._made_nonces.add(nonce)
        return nonce

    def _entered_anew(self, state: ClusterState) -> ClusterState:
        """Return `state` with this broker in the ISR under a nonce of this run.

        The directory stores the new nonce beside the old one before any state names it, as it is
        unknown whether this state will be accepted.
        """
        identity = self.identity
        if identity.nonce in self._made_nonces or self.member not in state.isr:
            return state
        if identity.next_nonce not in self._made_nonces:
            self.remember(identity._replace(next_nonce=self._made_nonce()))
        entered = Member(self.broker_id, self.identity.next_nonce)
        return state._replace(isr=state.isr - {self.member} | {entered})

    def _adopt_next_nonce(self, state: ClusterState) -> None:
        nonce = self.identity.next_nonce
        if nonce and Member(self.broker_id, nonce) in state.isr:
            self.remember(self.identity._replace(nonce=nonce, next_nonce=0))

    def _follow(self, view: ClusterView) -> None:
        state, leader = view.state, view.state.leader
        if leader is None or leader != view.leader or leader.broker_id == self.broker_id:
            return
        follower = self.follower
        if follower is None or (follower.leader_id, follower.epoch) != (
            leader.broker_id,
            state.epoch,
        ):
            # The bid was lost. A leader may still hand over to this broker.
            self._bids_with_loss = self._bids_in_doubt = False
            self.follow(leader.broker_id, state.epoch)

    # Leaving the lead.

    def resign(self) -> None:
        """Stop leading, and revoke the lease that stands for it."""
        if self.leader is not None:
            self._give_lease_up()
        super().resign()

    def _give_lease_up(self) -> None:
        if self.lease is not None:
            self.effects.append(RevokeLease(self.lease.lease_id))
            self.lease = None

    def hand_over(self, now_s: float, broker_id: int) -> None:
        super().hand_over(now_s, broker_id)
        self._hand_over_if_done(now_s)  # The other broker may already have everything.

    def log_failed(self) -> None:
        """Handle a failed sync or write: a log refuses appends, and may lack messages that it had.

        If this broker is a member of the ISR, it leaves the ISR, provided that another member is
        there.
        """
        view = self.view
        if view is None or self.identity.in_doubt or self.member not in view.state.isr:
            return
        live = {info.member for info in view.members.values()}
        if (view.state.isr & live) - {self.member}:
            self.remember(self.identity._replace(in_doubt=True))
            self.resign()

    def damaged(self) -> None:
        """As leader, let another member of the ISR lead, if one is there."""
        if self.leader is not None:
            self.log_failed()
        super().damaged()

    def _leave_damaged(self) -> None:
        """Follow again as a new member: a log is truncated only once no ISR counts on it."""
        self._fresh_nonce = False
        if self.follower is not None:
            self.follower.leave()  # Otherwise the leader would admit it to the ISR again.
        self.unfollow()

    def hand_over_now(self, now_s: float, connection: Connection, member: Member) -> None:
        """Make `member` the leader in one transaction, and stop leading before it is sent."""
        view, leader = self.view, self.leader
        if view is None or leader is None or leader.isr.change is not None:
            return
        info = view.members.get(member.broker_id)
        if info is None or info.member != member or view.leader != self.incarnation:
            return
        state = elected(view, info)
        if self.leaving:
            state = state.without(frozenset({self.member}), view.state_revision)
        heir = Transact(leader.isr.revision, state, info.lease_id, view.leader_revision)
        if view.state_revision != leader.isr.revision:
            return
        super().resign()
        self.effects.append(heir)
        self._give_lease_up()
