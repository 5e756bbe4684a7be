"""The election of a leader through etcd: sends the state machine's requests to etcd, and passes
the results back."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from socket import gethostname
from typing import Any, Final

from ....config.broker import BrokerSettings
from ....config.cluster_table import NOT_FOLLOWING
from ....protocol.api.cluster.replicate import ReplicateRequest
from ....protocol.errors import HorologError, InvalidConfig, StorageError
from ....replication.cluster_node import ClusterNode
from ....replication.cluster_state import ClusterState, RequestState
from ....replication.effects import (
    Effect,
    GrantLease,
    ReadCluster,
    Register,
    RenewLease,
    RevokeLease,
    Transact,
)
from ....replication.messages import member_of
from ....replication.settings import Incarnation, Member
from ....storage.directory.log_directory import LogDirectory
from ....storage.log.epoch_history import NO_EPOCH
from ....storage.replica.replica_log import ReplicaLog
from ..followers import reachable
from ..member import ClusterMember, Election, PeerInfo
from ..replica_directory import ReplicaDirectory
from .client import (
    EtcdClient,
    EtcdError,
    EtcdMisconfigured,
    EtcdUnreachable,
    Gateway,
    LeaseNotFound,
    access_of,
)
from .store import ClusterKeys, ClusterStore, StoredMember

PATIENCE_S: Final = 2.0
"""How long an answer of etcd is waited for."""

LOGS_S: Final = 1.0
"""Interval of the check whether a log has failed."""

REFUSED_S: Final = 5.0
"""If all writes to a log fail for this long, another broker leads if one can: the disk is full."""

KNOWN_S: Final = 2.0
"""How long the leader waits until etcd has the key of a broker that says hello: the broker may
connect before its key is written."""

TAKEN_S: Final = 3.0
"""How long, beyond the lease, a start waits for another broker with its id to leave etcd."""


class EtcdJoining:
    """Checks whether this broker may take part in the cluster that etcd describes."""

    def __init__(
        self, name: str, directory: LogDirectory, stored: ReplicaDirectory, me: Incarnation
    ) -> None:
        self._name = name
        self._directory = directory
        self._stored = stored
        self._me = me
        self._was_there = False
        """Whether this run has read the cluster from etcd."""
        self._registered = False
        """Whether this run's own registration has been read from etcd."""
        self.refused = self.taken = False
        """Why this broker must not start: `refused` as it has other data, `taken` for as long as
        another broker has its id."""
        self.joined = False

    def first_state(self) -> ClusterState:
        """Return the state of a new cluster with this broker's data: this broker is in sync, and
        no broker leads yet."""
        epoch = max(0, self._stored.identity.highest_epoch)
        member = Member(self._stored.broker_id, self._stored.identity.nonce)
        return ClusterState(epoch, None, frozenset({member}), settled_epoch=epoch)

    @property
    def never_joined(self) -> bool:
        """Whether this directory has not been in a cluster yet.

        The directory may have epochs all the same, from the Kafka broker that wrote its logs. The
        nonce is stored just before the cluster is created, the epoch once the created cluster is
        read back.
        """
        identity = self._stored.identity
        return not identity.nonce or identity.highest_epoch == NO_EPOCH

    def check(self, seen: ClusterKeys) -> str:
        """Check the cluster that was read from etcd. Returns why this broker must not act on it;
        empty if it may."""
        self.refused = self.taken = False
        if seen.view is None:
            return self._missing()
        self._was_there = True
        other = self._other_data(seen, seen.view.state)
        taken = self._taken(seen)
        self.refused, self.taken = bool(other), bool(taken)
        return other or taken

    def _missing(self) -> str:
        if self._was_there or not self.never_joined:
            return (
                f"cluster {self._name} is not in etcd (any more), and this broker has been in a "
                "cluster: where the one is that led last, stopped, run "
                f"`horolog cluster create {self._name}`"
            )
        return (
            f"cluster {self._name} is not in etcd yet: start the broker whose data counts with "
            f"--create-cluster, or run `horolog cluster create {self._name}` where its data is"
        )

    def _other_data(self, seen: ClusterKeys, state: ClusterState) -> str:
        if self.joined:
            return ""
        directory, member = self._directory, Member(self._me.broker_id, self._stored.identity.nonce)
        if not self.never_joined or member in state.isr:
            ours = directory.cluster_id()
            if ours != seen.cluster_id:
                return (
                    f"this directory has the data of cluster {ours}, and {self._name} in etcd is "
                    f"cluster {seen.cluster_id}: start with another data directory (--data-dir), "
                    "or once with --discard, which sets this data aside"
                )
        elif directory.topics():
            return (
                "this directory has topics that are not of the cluster "
                f"{self._name}: start with an empty data directory (--data-dir), or with "
                "--discard, which sets them aside"
            )
        try:
            directory.keep_cluster_id(seen.cluster_id)
        except HorologError as error:
            return error.message
        self.joined = True
        return ""

    def _taken(self, seen: ClusterKeys) -> str:
        there = seen.members.get(self._me.broker_id)
        if there is None:
            return ""
        if there.info.incarnation == self._me:
            self._registered = True
            return ""
        nonce = self._stored.identity.nonce
        if nonce and there.info.member.nonce == nonce and not self._registered:
            return ""  # An earlier run in the same directory, which this run has locked now.
        return (
            f"another broker with broker.id {self._me.broker_id} is at "
            f"{there.address}, or was until a moment ago: each has its own (--broker-id)"
        )


def _takes_no_writes(stored: ReplicaLog) -> bool:
    """Whether a log has failed, or every write to it has failed for `REFUSED_S`."""
    refused = stored.log.refused_writes
    long = refused is not None and refused.last - refused.first >= REFUSED_S
    return long or stored.log.failure is not None


WAITING_MAX: Final = 16
"""Requests that may wait in a lane: more than the state machine has at a time. If there are more,
the oldest is dropped, and the state machine asks for it again."""

Request = Callable[[], Awaitable[None]]


class Lane:
    """Runs requests to etcd one after another, in a task. A request that has waited longer than
    `patience_s` is dropped."""

    def __init__(
        self,
        failed: Callable[[Exception], None],
        now_s: Callable[[], float],
        patience_s: float,
    ) -> None:
        self._failed = failed
        self._now_s = now_s
        self._patience_s = patience_s
        self._waiting: deque[tuple[float, Request]] = deque(maxlen=WAITING_MAX)
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is running or waits."""
        return self._task is not None

    def ask(self, request: Request) -> None:
        """Run a request when the requests before it are done."""
        self._waiting.append((self._now_s(), request))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                asked_s, request = self._waiting.popleft()
                if self._now_s() - asked_s > self._patience_s:
                    continue
                try:
                    await request()
                except (HorologError, OSError) as error:
                    self._failed(error)
        finally:
            self._task = None

    async def drained(self, within_s: float) -> None:
        """Wait until all requests are done, for `within_s` at most; then drop the rest."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within_s)
        await self.stop()

    async def stop(self) -> None:
        """Drop the requests that wait, and cancel the running one."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


class EtcdElection:
    """The `Election` of a cluster with etcd."""

    def __init__(self, member: ClusterMember, client: EtcdClient, store: ClusterStore) -> None:
        self._member = member
        self._client = client
        self._store = store
        settings = member.settings
        self._lease_s = settings.cluster_lease_ms // 1000
        me = Incarnation(member.broker_id, member.new_number())
        self.node = ClusterNode(
            member.stored,
            me,
            member.replication_settings()._replace(
                lease_s=self._lease_s,
                unclean=settings.cluster_unclean_leader_election_enable,
                answer_within_s=PATIENCE_S,
            ),
            member.new_number,
            may_have_lost=member.stored.may_have_lost,
            copied=member.stored.copied,
        )
        self._joining = EtcdJoining(store.name, member.directory, member.stored, me)
        self._why_not = "etcd has not answered yet"
        self._failure = ""
        """Why the last request to etcd failed; empty after a read that succeeded."""
        self._reported = ""
        self._reported_halt = ""
        self._cluster_id = ""
        self._latest_revision = 0
        self._member_revision = 0
        self._looked_s = self._asked_s = 0.0

        def lane() -> Lane:
            return Lane(self._failed, self._now_s, PATIENCE_S)

        self._reads, self._leases, self._writes = lane(), lane(), lane()

    def _now_s(self) -> float:
        return self._member.now_s

    # What the member asks about the election.

    @property
    def waits_for(self) -> str:
        if self._why_not and not self._failure:
            return self._why_not
        if self._failure:
            return f"etcd is needed to know who leads: {self._failure}"
        view = self.node.view
        if view is not None and (self.node.went_back or view.state.halt is not None):
            return self._halted(view.state)
        if view is not None and not view.state.isr:
            stored = self._member.stored
            lost = stored.lost_histories or (
                "this data directory is a copy, which may be older than what its broker had"
                if stored.copied
                else ""
            )
            return f"{lost}; " * bool(lost) + (
                "everybody who was in sync may have lost something: brokers "
                f"{sorted({kept.member.broker_id for kept in view.state.kept})} have to be there "
                "to find out who has most, or a person accepts loss (horolog cluster promote ID "
                "--accept-loss)"
            )
        if view is not None and view.leader is None:
            names = sorted(member.broker_id for member in view.state.isr)
            return f"no broker leads; one of the brokers in sync, {names}, can be elected"
        return "a leader is being elected"

    def _halted(self, state: ClusterState) -> str:
        """Return why no broker leads until a person has made the cluster's state anew, and how to
        do that."""
        cure = f"`horolog cluster create {self._store.name} --replace`; then start them"
        contested = self.contested_epoch
        if contested != NO_EPOCH:
            return (
                f"two brokers led in epoch {contested}, and both have messages of it, as etcd was "
                "restored from a backup meanwhile. See which offsets are whose (horolog cluster "
                "status). Stop all brokers; where the messages are that count, run "
                f"{cure}: the others give up theirs from that epoch on"
            )
        known = max(state.least_epoch - 1, self.node.highest_epoch)
        was = f"was at epoch {known}" if known > state.epoch else "had later changes"
        return (
            f"etcd is at epoch {state.epoch} and {was}: it was restored from a backup, and may "
            "name brokers as in sync that are not any more. Stop all brokers; where the one is "
            f"that led last, run {cure}"
        )

    @property
    def in_sync(self) -> list[int] | None:
        view = self.node.view
        if view is not None and view.state.halt is not None:
            return []
        return None if view is None else sorted(one.broker_id for one in view.state.isr)

    @property
    def contested_epoch(self) -> int:
        view = self.node.view
        halt = None if view is None else view.state.halt
        return self.node.contested_epoch if halt is None else halt.contested_epoch

    @property
    def promise(self) -> str:
        view = self.node.view
        if view is not None and self.node.member in view.state.isr:
            return ""
        return "this broker is not in sync"

    def knows(self, hello: ReplicateRequest) -> bool:
        view = self.node.view
        if view is None:
            return False
        member = member_of(hello)
        there = view.members.get(member.broker_id)
        registered = there is not None and there.member == member
        if not (registered or member in view.state.isr or view.state.keeps(member)):
            return False
        newest = view.state.epoch if there is None else max(view.state.epoch, there.highest_epoch)
        return hello.highest_epoch <= newest

    async def know(self, hello: ReplicateRequest) -> None:
        until_s = self._now_s() + KNOWN_S
        while not self.knows(hello) and self._now_s() < until_s:
            self._ask_read()
            await asyncio.sleep(KNOWN_S / 20)

    # The start and the end.

    async def prepare(self) -> None:
        """Read the cluster once. If etcd does not answer, the reads go on after the start.

        Raises `InvalidConfig` if etcd answers with an error, if this broker must not join, or if
        another broker keeps this broker's id until its lease should have ended.
        """
        until_s = self._now_s() + self._lease_s + TAKEN_S
        while True:
            try:
                await self._read()
            except EtcdUnreachable as error:
                self._failed(error)
                return
            except EtcdError as error:
                raise InvalidConfig(f"cluster.etcd (--etcd): {error.message}") from error
            joining = self._joining
            if joining.refused or (joining.taken and self._now_s() > until_s):
                raise InvalidConfig(self._why_not)
            if not joining.taken:
                return
            await asyncio.sleep(0.2)  # A lease ends by etcd's clock, which has no event for us.

    def start(self) -> None:
        """Do nothing: `tick` sends the requests."""

    async def resign(self) -> None:
        """Hand over to the in-sync follower that is the least behind, and wait for that for a
        while. `stop` releases the lease in any case."""
        member, node = self._member, self.node
        leader = node.leader
        if leader is None:
            return
        heirs = sorted(
            (len(session.behind), session.member.broker_id)
            for session in leader.sessions.values()
            if session.member in leader.isr.members
        )
        if not heirs:
            return
        member.happens(lambda now_s: node.hand_over(now_s, heirs[0][1]))
        until_s = member.now_s + node.settings.hand_over_s
        while node.leader is leader and member.now_s < until_s:
            await asyncio.sleep(0.02)
            member.happens(node.tick)

    async def stop(self) -> None:
        if self.node.lease is not None:
            self.carry_out(RevokeLease(self.node.lease.lease_id))
            self.node.lease = None
        await self._reads.stop()
        await self._leases.stop()
        await self._writes.drained(PATIENCE_S)
        await self._client.close()

    # Time.

    def tick(self, now_s: float) -> None:
        node = self.node
        if self._why_not:
            if now_s - self._asked_s >= node.settings.read_every_s:
                self._ask_read()
            return
        node.tick(now_s)
        alone = node.leader is None and (node.follower is None or node.follower.connection is None)
        if alone and not self._failure:
            self._ask_read()  # A leader is about to change, and the regular read would be late.
        if now_s - self._looked_s >= LOGS_S:
            self._looked_s = now_s
            if any(map(_takes_no_writes, self._member.stored.logs.values())):
                node.log_failed()

    # Effects of the state machine.

    def carry_out(self, effect: Effect) -> None:
        if isinstance(effect, ReadCluster):
            self._ask_read()
        elif isinstance(effect, GrantLease):
            self._leases.ask(lambda: self._grant(effect))
        elif isinstance(effect, RenewLease):
            self._leases.ask(lambda: self._renew(effect))
        elif isinstance(effect, RevokeLease):
            # In the lane of writes: after the transaction that lets another broker lead.
            self._writes.ask(lambda: self._revoke(effect))
        elif isinstance(effect, Register):
            self._writes.ask(lambda: self._register(effect))
        elif isinstance(effect, Transact):
            self._writes.ask(lambda: self._transact(effect))

    def _ask_read(self) -> None:
        if not self._reads.busy:
            self._asked_s = self._now_s()
            self._reads.ask(self._read)

    async def _read(self) -> None:
        sent = self._sent()
        seen = await self._store.read()
        if seen.view is None and self._creates:
            sent = self._sent()
            seen = await self._create()
        self._failure = ""
        await self._deliver(seen, sent)

    @property
    def _creates(self) -> bool:
        return self._member.settings.cluster_create and self._joining.never_joined

    async def _create(self) -> ClusterKeys:
        """Create the cluster in etcd, with this broker's data."""
        member = self._member
        identity = member.stored.identity
        if not identity.nonce:
            member.stored.store(identity._replace(nonce=member.new_number()))
        state = self._joining.first_state()
        return await self._store.create(member.directory.cluster_id(), state)

    async def _grant(self, effect: GrantLease) -> None:
        lease_id, ttl_s = await self._store.gateway.grant(self._lease_s)
        self._event(
            lambda now_s: self.node.lease_granted(now_s, lease_id, effect.asked_s, float(ttl_s))
        )

    async def _renew(self, effect: RenewLease) -> None:
        ttl_s = await self._store.gateway.keep_alive(effect.lease_id)
        if ttl_s is None:
            self._event(lambda _: self.node.lease_lost(effect.lease_id))
        else:
            self._event(
                lambda now_s: self.node.lease_renewed(
                    now_s, effect.lease_id, effect.asked_s, float(ttl_s)
                )
            )

    async def _revoke(self, effect: RevokeLease) -> None:
        await self._store.gateway.revoke(effect.lease_id)

    async def _register(self, effect: Register) -> None:
        member = self._member
        host = gethostname()
        stored = StoredMember(
            effect.info,
            reachable(member.native_address, host),
            reachable(member.kafka_address, host),
        )
        for _ in range(2):  # The key may have been deleted when an earlier lease ended.
            sent = self._sent()
            seen = await self._store.register(stored, self._member_revision)
            await self._deliver(seen, sent)
            there = seen.members.get(member.broker_id)
            if self._why_not or (there is not None and there.info == effect.info):
                return

    async def _transact(self, effect: Transact) -> None:
        sent = self._sent()
        await self._deliver(await self._store.transact(effect, self._cluster_id), sent)

    # Answers of etcd.

    def _sent(self) -> RequestState:
        sent = self.node.sent
        return sent._replace(revision=max(sent.revision, self._latest_revision))

    def _event(self, step: Callable[[float], Any]) -> None:
        self._member.happens(step)

    def _failed(self, error: Exception) -> None:
        """Record the failure of a request. The state machine asks again for what it needs."""
        if isinstance(error, LeaseNotFound):
            self._ask_read()
            return
        text = error.message if isinstance(error, HorologError) else str(error)
        self._failure = text
        kind = "etcd_refuses" if isinstance(error, EtcdMisconfigured) else "etcd_not_reached"
        if isinstance(error, StorageError):
            kind = "replication_failed"
        if text != self._reported:
            self._reported = text
            self._member.observe(kind, error=text)

    async def _deliver(self, seen: ClusterKeys, sent: RequestState) -> None:
        if sent.revision <= seen.revision < self._latest_revision:
            return  # A later revision was read meanwhile.
        self._latest_revision = max(self._latest_revision, seen.revision)
        member, node = self._member, self.node
        why_not = self._joining.check(seen)
        if why_not != self._why_not:
            self._why_not = why_not
            if why_not:
                member.observe("leads_not", reason=why_not)
        if why_not:
            self._take_no_part()
            return
        self._reported = ""
        self._cluster_id = seen.cluster_id
        self._member_revision = seen.member_revisions.get(member.broker_id, 0)
        self._record_places(seen)
        view = seen.view
        assert view is not None
        await member.stored.store_ahead(node.coming_identity(view), member.work)
        await member.stored.write_owners_ahead(node.coming_owners(view), member.work)
        self._event(lambda now_s: node.cluster_read(now_s, view, sent))
        self._report_halt(view.state)

    def _report_halt(self, state: ClusterState) -> None:
        halted = self._halted(state) if self.node.went_back or state.halt is not None else ""
        if halted != self._reported_halt:
            self._reported_halt = halted
            if halted:
                self._member.observe("leads_not", reason=halted)

    def _take_no_part(self) -> None:
        def leave(_: float) -> None:
            self.node.resign()
            self.node.unfollow()

        if self.node.leader is not None or self.node.follower is not None:
            self._event(leave)

    def _record_places(self, seen: ClusterKeys) -> None:
        """Record the addresses of the other members, which of them are registered now, and which
        were."""
        mine, known, absent = self._member.broker_id, self._member.known, self._member.absent
        for broker_id in known.keys() - seen.members.keys():
            absent[broker_id] = known.pop(broker_id)
        for broker_id in absent.keys() & seen.removed:
            del absent[broker_id]
        for broker_id, member in seen.members.items():
            absent.pop(broker_id, None)
            if broker_id != mine:
                known[broker_id] = PeerInfo(member.address, member.kafka_address)

    # Requests of a person.

    def promote(self, now_s: float, *, accept_loss: bool) -> str | None:
        """Let this broker lead, if no broker leads or can be elected. Returns why it may not, or
        `None`."""
        node, view = self.node, self.node.view
        if self._why_not or view is None or self._failure:
            return self.waits_for
        if node.leader is not None:
            return None
        if view.leader is not None and view.leader.broker_id != node.broker_id:
            return f"broker {view.leader.broker_id} leads, and is asked to hand over"
        live = {info.member for info in view.members.values()}
        able = sorted(member.broker_id for member in view.state.isr & live)
        if able:
            return f"brokers {able} are in sync, and one of them is elected by itself"
        if not accept_loss and not view.state.isr:
            return self.waits_for
        if not accept_loss:
            return (
                "no broker in sync is there, and this one may lack what they answered: "
                f"start one of {sorted(member.broker_id for member in view.state.isr)}"
            )
        node.accepts_loss = True
        return None


def check_settings(settings: BrokerSettings) -> None:
    """Check that the settings of a cluster with etcd go together. Raises `InvalidConfig`."""
    if not settings.cluster_name:
        raise InvalidConfig(
            "cluster.etcd (--etcd) is given, and cluster.name (--cluster), the name of the cluster "
            "in etcd, is empty: give both"
        )
    if not settings.cluster_etcd:
        raise InvalidConfig(
            "cluster.name (--cluster) is given, and cluster.etcd (--etcd), where the cluster is "
            "kept, is empty: give both"
        )
    if settings.cluster_follow != NOT_FOLLOWING:
        raise InvalidConfig(
            f"cluster.follow (--follow) is {settings.cluster_follow}, and with cluster.etcd "
            "(--etcd) it is etcd that says who leads: give one of them"
        )
    if settings.cluster_alone:
        raise InvalidConfig(
            "cluster.alone (--alone) is for brokers without etcd; with it, "
            "`horolog cluster promote ID --accept-loss` lets a broker lead that may lack messages"
        )
    EtcdClient(access_of(settings))


def by_etcd(settings: BrokerSettings) -> Callable[[ClusterMember], Election]:
    """Return a function that makes a member's election, from checked settings. Raises
    `InvalidConfig`."""
    access = access_of(settings)

    def decides(member: ClusterMember) -> Election:
        client = EtcdClient(access)
        return EtcdElection(member, client, ClusterStore(Gateway(client), settings.cluster_name))

    return decides
