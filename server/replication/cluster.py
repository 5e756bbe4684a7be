"""A cluster member: carries out what the state machine in `replication/` decides.

Everything runs in the event loop's thread. The state machine is called with one event at a time,
and its effects are carried out at once (`settle`). Syncs, connections and changes of topics take
time, and their results are events again.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from random import Random
from typing import Any, Final, TypeGuard

from ...protocol.api.cluster.replicate import (
    ReplicaPosition,
    ReplicateRequest,
    ReplicateResponse,
    Says,
)
from ...protocol.api.schema import replaced
from ...protocol.api.topics.create_topics import CREATE_TOPICS
from ...protocol.errors import NotLeader
from ...replication.effects import Answer, Close, Connect, Effect, Outcome, Remind, Send, SyncLog
from ...replication.messages import partition_of
from ...replication.partition_log import Partition
from ...storage.events import Observer
from ...storage.log.log import Log
from ..handlers.base import Services
from ..requests import Call
from .broker_addresses import BrokerAddresses
from .cluster_admin import ClusterAdmin
from .followers import Channel, DamageWatch, Followers
from .member import ClusterMember, Election, write_lines_to_lead
from .member_files import MemberFiles
from .replica_directory import METADATA
from .replica_fetcher import ReplicaFetcher
from .replica_states import ReplicaStates
from .service import Commit
from .serving import ClusterLeadership, Serving, error_of
from .topic_forwarding import ForwardedTopicCreation

TICK_S: Final = 0.1
"""How often the state machine is told the time."""

REMIND_S: Final = 0.005
"""How long the leader holds back a high watermark that moved, so that it can be sent to followers
together with messages. Readers at followers wait that much longer; without the delay, a single
message would cost two exchanges with each follower."""

LEAVING_S: Final = 0.02
"""How often a stopping broker checks whether it has left the ISR."""

STARTS_S: Final = 1.0
"""How often the leader checks for log starts that retention has moved."""


class Cluster(ClusterMember):
    """The `Replication` of a cluster member, from `start` to `stop`."""

    replicates: Final = True

    def __init__(
        self,
        services: Services,
        files: MemberFiles,
        observe: Observer,
        *,
        native_address: str,
        random: Random,
        seconds: Callable[[], float],
        elects: Callable[[ClusterMember], Election],
    ) -> None:
        """Open the logs of the directory. `seconds` is a monotonic clock. Raises
        `StorageError`."""
        super().__init__(
            services,
            files,
            observe,
            native_address=native_address,
            random=random,
            seconds=seconds,
        )
        self.store = services.metadata
        self._loop = asyncio.get_running_loop()
        self._produces = services.produces
        self._produces.minds_moves = False  # Produces wait for a `Commit`, not for the log.
        self._groups = services.groups
        self.damage = DamageWatch(self, services.scrubber)
        self.followers = Followers(self, self.damage)
        self.fetcher = ReplicaFetcher(self)
        self.states = ReplicaStates(self, self.followers, self.fetcher)
        self.forwarded_creation = ForwardedTopicCreation(self, self.fetcher, self.states)
        self.admin = ClusterAdmin(self, self.fetcher, self.states)
        self._serve()
        self._watch(self.stored.logs)
        self._watch_metadata()
        self.election = elects(self)
        self.node = self.election.node
        self._role: object = None
        self._starts: dict[Partition, int] = {}
        self._checked_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._committed: list[Commit] = []
        """Commits that are done, whose waiting requests are not answered yet."""
        self._carriers: dict[type[Effect], Callable[[Any], None]] = {
            Send: self._send,
            Answer: self._answer,
            SyncLog: self._sync,
            Remind: self._remind_later,
            Connect: self._connect,
            Close: self._close,
        }
        """The methods that carry out effects; the election carries out all other effects."""

    def _serve(self) -> None:
        """Make the parts that serve requests and pages, and bind their methods to this object."""
        self.addresses = BrokerAddresses(self, self.followers, self.fetcher, self.states)
        serving = self.serving = Serving(
            self,
            self.store,
            self._produces,
            fetcher=self.fetcher,
            states=self.states,
            addresses=self.addresses,
            forwarded=self.forwarded_creation,
        )
        self.gated, self.gated_many = serving.gated, serving.gated_many
        self.check_append, self.begin_append = serving.check_append, serving.begin_append
        self.first_part, self.appended = serving.first_part, serving.appended
        states, admin = self.states, self.admin
        self.rules_may_be_old = states.rules_may_be_old
        self.leads_not, self.not_ready = states.leads_not, states.not_ready
        self.describe, self.figures, self.promote = admin.describe, admin.figures, admin.promote

    # What requests and pages show.

    def broker_ids(self) -> Collection[int]:
        """Return the ids of the known members; each has a replica of every topic."""
        return self.states.states()

    def most_in_sync(self) -> int | None:
        """Return how many brokers can be in sync. With etcd only the leader knows the members, so
        that a follower returns `None`."""
        if not self.settings.cluster_etcd:
            return self.brokers_declared
        return len(self.states.states()) if self.leads else None

    def replicate(self, services: Services, request: ReplicateRequest, call: Call) -> Any:
        """Answer a `replicate` request of another broker. Raises `CodedError`."""
        if request.says == Says.MAKE:
            self.serving.check(CREATE_TOPICS)
            return self.forwarded_creation.make_for_others(services, request)
        return self.followers.handle(request, call)

    # Start and stop.

    async def start(self) -> None:
        """Begin to lead, or to follow. Raises `InvalidConfig`."""
        if self.stored.copied:
            self.observe("directory_copied", path=str(self.settings.data_dir))
        await self.election.prepare()
        self.election.start()
        self.store.moved()  # Committed changes of topics may not have been applied before the stop.
        self._tick()
        by_hand = not self.settings.cluster_etcd
        if by_hand and self.node.leader is None and self.node.follower is None:
            self.observe("leads_not", reason=self.states.waits_for)

    async def stop(self) -> None:
        """Hand over, or leave the ISR, so that no producer waits for this broker; then close the
        connections."""
        self.node.leaving = True
        await self.election.resign()
        await self._leave()
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        await self.fetcher.stop()
        self.node.resign()
        self.node.unfollow()
        self.settle()
        await self.election.stop()

    async def _leave(self) -> None:
        """Wait until the leader has removed this follower from the ISR, for as long as a handover
        may take."""
        node = self.node
        asked = node.leave()
        self.settle()
        until_s = self.now_s + node.settings.hand_over_s
        while asked and self.broker_id in self.fetcher.in_sync and self.now_s < until_s:
            asked = node.follower is not None
            await asyncio.sleep(LEAVING_S)

    # The state machine.

    def settle(self) -> None:
        """Carry out the effects of the state machine, and the effects that result from them."""
        node = self.node
        while node.effects:
            effects = node.effects[:]
            node.effects.clear()
            for effect in effects if node.leader is not None else merged(effects):
                carry_out = self._carriers.get(type(effect)) or self.election.carry_out
                carry_out(effect)
        if self._committed:
            self._answer_clients()
        role = node.leader
        if role is not self._role:
            led, self._role = self._role is not None, role
            self._change_role(led)

    def _change_role(self, led: bool) -> None:
        leader = self.node.leader
        if led:
            self.store.leads_no_more(NotLeader(self.states.leader_hint))
            self._groups.moved_away()
        if leader is None:
            self.stored.follow()
            self.observe("leads_no_more", epoch=self.node.highest_epoch)
            return
        self.elections += 1
        self.store.leads()
        self._groups.taken_over()
        self.directory.producer_ids.begin_epoch(leader.epoch)
        self._starts.clear()
        self.observe("leads", epoch=leader.epoch, broker=self.broker_id)
        self.fetcher.leads(with_loss=self.node.leads_with_loss)
        self.start_work(write_lines_to_lead(self, leader.epoch))

    def _send(self, effect: Send) -> None:
        connection, message = effect.connection, effect.message
        if isinstance(message, ReplicateRequest):
            self.fetcher.say(connection, message)
        else:
            assert isinstance(connection, Channel)
            self.followers.say(connection, message)

    def _sync(self, effect: SyncLog) -> None:
        stored = self.stored.logs.get(effect.partition)
        if stored is not None:
            self.commits.request(stored.log.flusher)

    def _connect(self, effect: Connect) -> None:
        self.fetcher.connect(effect.broker_id)

    def _close(self, effect: Close) -> None:
        if isinstance(effect.connection, Channel):
            effect.connection.close()
        else:
            self.fetcher.close(effect.connection)

    def _remind_later(self, effect: Remind) -> None:
        self._loop.call_later(REMIND_S, self._remind)

    def _remind(self) -> None:
        if not self._stopped:
            self.node.reminded()
            self.settle()

    def _answer(self, effect: Answer) -> None:
        commit = effect.token
        assert isinstance(commit, Commit)
        if effect.outcome is Outcome.DONE:
            commit.settle(None)
        else:
            hint = "" if self.leads else self.states.leader_hint
            commit.settle(error_of(effect.outcome, hint))
        self._committed.append(commit)

    def _answer_clients(self) -> None:
        """Answer the requests that wait for commits that are done."""
        committed, self._committed = self._committed, []
        self._produces.look_at(committed)

    def _tick(self) -> None:
        if self._stopped:
            return
        self._timer = self._loop.call_later(TICK_S, self._tick)
        try:
            self.check_topics()
            self._check_metadata()
            self.damage.check()
            self.happens(self.election.tick)
            self.followers.forget_silent()
            self.fetcher.ask_again()
            self.states.record_changes()
            if self.leads and self.now_s - self._checked_s >= STARTS_S:
                self._checked_s = self.now_s
                self._check_starts()
        except Exception as error:
            self.observe("replication_failed", error=error)

    def _check_starts(self) -> None:
        raised = self.stored.raised_starts(self._starts)
        for partition in raised:
            self.node.trimmed(partition, None)
        if raised:
            self.settle()

    # Topics and logs.

    def check_topics(self) -> None:
        """Find the partitions that were added and removed, and tell the state machine."""
        if not self.stored.topics_changed:
            return
        self.forwarded_creation.topics_changed()
        added, removed = self.stored.changed()
        for partition in removed:
            self.node.remove_partition(partition)
            self._starts.pop(partition, None)
        self._watch(added)
        for partition in added:
            self.node.add_partition(partition)
        self.followers.place(added)
        self.settle()

    def _watch(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.stored.logs[partition].log.on_synced = self._synced

    def _watch_metadata(self) -> None:
        """Have records applied when the metadata log moves, and partitions updated when topics
        change."""
        metadata, store = self.stored.metadata, self.store
        store.leadership = ClusterLeadership(self, self.serving, self.states)
        store.changed = self.check_topics
        metadata.moved = store.moved
        metadata.metadata.began_later = lambda: self._synced(metadata.log)

    def _check_metadata(self) -> None:
        """If the metadata log cannot be applied, put this broker in doubt and, at a follower, drop
        the connection to the leader: it lacks what the other members have."""
        node = self.node
        if self.stored.metadata.blocks is None:
            return
        if not node.identity.in_doubt:
            node.remember(node.identity._replace(in_doubt=True))
        if node.follower is not None and node.follower.connection is not None:
            node.follower.drop()

    def _synced(self, log: Log) -> None:
        partition = log.topic, log.partition
        if partition in self.stored.logs:
            self.node.synced(partition)
            self.settle()
        if partition == METADATA:
            self.store.moved()


def merged(effects: Sequence[Effect]) -> Iterable[Effect]:
    """Return the effects of a follower, with consecutive confirmations on one connection merged
    into one."""
    return effects if len(effects) == 1 else _merged(effects)


def _merged(effects: Iterable[Effect]) -> Iterator[Effect]:
    pending: Send | None = None
    positions: dict[Partition, ReplicaPosition] = {}
    leaving = False
    for effect in effects:
        message = effect.message if isinstance(effect, Send) else None
        if isinstance(effect, Send) and message is not None and _is_confirmation(message):
            same = pending is not None and pending.connection == effect.connection
            if pending is not None and not same:
                yield _confirm(pending, positions, leaving)
                positions, leaving = {}, False
            pending = effect
            positions |= {partition_of(one): one for one in message.positions}
            leaving = leaving or message.leaving
            continue
        if pending is not None:
            yield _confirm(pending, positions, leaving)
            pending, positions, leaving = None, {}, False
        yield effect
    if pending is not None:
        yield _confirm(pending, positions, leaving)


def _is_confirmation(message: ReplicateRequest | ReplicateResponse) -> TypeGuard[ReplicateRequest]:
    return isinstance(message, ReplicateRequest) and message.says == Says.CONFIRM


def _confirm(last: Send, positions: dict[Partition, ReplicaPosition], leaving: bool) -> Send:
    confirm = replaced(last.message, positions=list(positions.values()), leaving=leaving)
    return Send(last.connection, confirm)
