"""A broker of a cluster: carries out what `replication/` decides.

Everything is in the loop's thread. The state machine is called with one event at a time, and what
it wants done is done at once (`settle`); syncs, connections and topics take their time and come
back as events.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from random import Random
from typing import Any, Final

from ...clock import Clock
from ...config.broker import BrokerSettings
from ...protocol.errors import NotLeader, RequestTimedOut
from ...replication.effects import Answer, Close, Connect, Effect, Remind, Send, SyncLog
from ...replication.leader import Leader
from ...replication.node import Node
from ...replication.partition_log import Partition
from ...replication.settings import ReplicationSettings
from ...storage.directory.log_directory import LogDirectory
from ...storage.events import Observer
from ...storage.log.flush import GroupCommit
from ...storage.log.log import Log
from ..groups.service import GroupService
from ..parking import ParkingLot
from ..replicated_store import ReplicatedStore
from ..scrubbing import Scrubber
from ..syncing import synced_to
from ..work import Work
from .broker_addresses import BrokerAddresses
from .channel import Channel
from .cluster_admin import ClusterAdmin
from .commits import Commit
from .damage import DamageWatch
from .deciding import Decider
from .epoch_lines import write_lines_to_lead
from .epoch_owners_file import EpochOwnersFile
from .followers import Followers
from .identity_file import IdentityFile
from .leadership import ClusterLeadership
from .replica_fetcher import ReplicaFetcher
from .serving import Serving
from .standing import Standing
from .stored_directory import StoredDirectory
from .stored_metadata import METADATA
from .topic_forwarding import ForwardedTopicCreation
from .wire import merged

TICK_S: Final = 0.1
"""How often the state machine gets the time."""

REMIND_S: Final = 0.005
"""How long a watermark that moved waits for messages to go with to the followers. Their readers
wait as much longer; a message that comes alone costs two exchanges with a follower, not one."""

FETCH_BYTES: Final = 2 << 20
"""Messages in one answer to a follower. What is more than a processor's own cache has is copied at
half the speed."""

LEAVING_S: Final = 0.02
"""How often a broker that stops looks whether it is out of the ISR."""

WAIT_MS: Final = 30_000
"""How long a trim waits for all in-sync replicas."""

STARTS_S: Final = 1.0
"""How often it is looked which logs begin later now, because of retention."""


class Cluster:
    """One broker of a cluster, from `start` to `stop`."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        directory: LogDirectory,
        identity: IdentityFile,
        owners: EpochOwnersFile,
        clock: Clock,
        random: Random,
        observe: Observer,
        commits: GroupCommit,
        work: Work,
        produces: ParkingLot,
        scrubber: Scrubber,
        store: ReplicatedStore,
        groups: GroupService,
        native_address: str,
        kafka_address: str | None,
        seconds: Callable[[], float],
        decides: "Callable[[Cluster], Decider]",
    ) -> None:
        """Opens the logs of the directory. `seconds` is a clock that never goes back. Raises
        `StorageError`."""
        self.settings = settings
        self.directory = directory
        self.observe = observe
        self.clock = clock
        self.broker_id = settings.broker_id
        self.native_address = native_address
        self.kafka_address = kafka_address or ""
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._random = random
        self._commits = commits
        self.work = work
        self._produces = produces
        produces.minds_moves = False  # Who waits for a commit is told when it is done.
        self.stored = StoredDirectory(directory, identity, owners, self.broker_id, observe)
        self.stored.changed()
        self.stored.know_epochs()
        self._watch(self.stored.logs)
        self.store = store
        self._groups = groups
        self._watch_metadata()
        self.followers = Followers(self)
        self.fetcher = ReplicaFetcher(self)
        self.forwarded_creation = ForwardedTopicCreation(self)
        self.serving = Serving(self)
        self.admin = ClusterAdmin(self)
        self.addresses = BrokerAddresses(self)
        self.standing = Standing(self)
        self.damage = DamageWatch(self, scrubber)
        self.decider = decides(self)
        self.node: Node = self.decider.node
        self._role: object = None
        self.elections = 0
        """How often this broker began to lead."""
        self._starts: dict[Partition, int] = {}
        self._looked_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._committed: list[Commit] = []
        """Commits that are done, for the requests that wait for them."""
        self._carriers: dict[type[Effect], Callable[[Any], None]] = {
            Send: self._send,
            Answer: self._answer,
            SyncLog: self._sync,
            Remind: self._remind_later,
            Connect: self._connect,
            Close: self._close,
        }
        """What carries out an effect; all others are the decider's."""

    def replication_settings(self) -> ReplicationSettings:
        """The settings that `replication/` goes by, with etcd and by hand."""
        settings = self.settings
        return ReplicationSettings(
            lag_max_s=settings.replica_lag_time_max_ms / 1000,
            min_insync=settings.min_insync_replicas,
            sync_for_acks_all=settings.topic_defaults.get("acks.all.durability") != "written",
            leader_within_s=settings.replica_lag_time_max_ms / 1000,
            fetch_max_bytes=FETCH_BYTES,
        )

    def new_number(self) -> int:
        """A random number above 0."""
        return self._random.getrandbits(62) + 1

    async def start(self) -> None:
        """Begin to lead, or to follow. Raises `InvalidConfig`."""
        if self.stored.copied:
            self.observe("directory_copied", path=str(self.settings.data_dir))
        await self.decider.prepare()
        self.decider.start()
        self.store.moved()  # Topics may not be what was committed before the last stop.
        self._tick()
        by_hand = not self.settings.cluster_etcd
        if by_hand and self.node.leader is None and self.node.follower is None:
            self.observe("leads_not", reason=self.waits_for)

    async def stop(self) -> None:
        """Hand over, or leave the ISR, so that no producer waits for this broker; then close the
        connections."""
        self.node.leaving = True
        await self.decider.resign()
        await self._leave()
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        await self.fetcher.stop()
        self.node.resign()
        self.node.unfollow()
        self.settle()
        await self.decider.stop()

    async def _leave(self) -> None:
        """Wait until the leader has taken this follower out of the ISR, for as long as handing over
        may take."""
        node = self.node
        asked = node.leave()
        self.settle()
        until_s = self.now_s + node.settings.hand_over_s
        while asked and self.broker_id in self.fetcher.in_sync and self.now_s < until_s:
            asked = node.follower is not None
            await asyncio.sleep(LEAVING_S)

    # What is asked about it.

    @property
    def now_s(self) -> float:
        return self._seconds()

    @property
    def leader(self) -> Leader | None:
        """What leads, if clients are to be served now."""
        return self.node.serves(self._seconds())

    @property
    def leads(self) -> bool:
        """Whether clients are to be served."""
        return self.leader is not None

    @property
    def epoch(self) -> int:
        """Of this broker's leading; 0 where it does not."""
        leader = self.leader
        return 0 if leader is None else leader.epoch

    @property
    def waits_for(self) -> str:
        """Why this broker neither leads nor follows; empty if it does."""
        return "" if self.node.leader is not None or self._follows else self.decider.waits_for

    @property
    def _follows(self) -> bool:
        """Whether this broker follows one of which it knows where it is."""
        return self.node.follower is not None and bool(self.fetcher.address)

    @property
    def brokers_declared(self) -> int:
        """How many brokers there are to be, where that is declared; etcd knows who was there."""
        return 0 if self.settings.cluster_etcd else self.settings.cluster_brokers

    @property
    def leader_hint(self) -> str:
        """Who leads, for a client that asked the wrong broker."""
        if self._follows:
            return f"broker {self.broker_id} follows the leader at {self.fetcher.address}"
        return f"broker {self.broker_id} does not lead: {self.waits_for}"

    # The state machine.

    def happens(self, step: Callable[[float], Any]) -> Any:
        """Give the state machine an event, and carry out its effects."""
        try:
            return step(self.now_s)
        finally:
            self.settle()

    def settle(self) -> None:
        """Carry out the effects of the state machine, and those that these bring about."""
        node = self.node
        while node.effects:
            effects = node.effects[:]
            node.effects.clear()
            for effect in effects if node.leader is not None else merged(effects):
                carry_out = self._carriers.get(type(effect)) or self.decider.carry_out
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
            self.store.leads_no_more(NotLeader(self.leader_hint))
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
        if isinstance(effect.connection, Channel):
            self.followers.say(effect.connection, effect.message)
        else:
            self.fetcher.say(effect.connection, effect.message)

    def _sync(self, effect: SyncLog) -> None:
        stored = self.stored.logs.get(effect.partition)
        if stored is not None:
            self._commits.request(stored.log.flusher)

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
        commit.settle(effect.outcome, "" if self.leads else self.leader_hint)
        self._committed.append(commit)

    def _answer_clients(self) -> None:
        """Let those go on that wait for what was settled."""
        committed, self._committed = self._committed, []
        self._produces.look_at(committed)

    async def settled(self, commit: Commit, ask: Callable[[], None]) -> None:
        """Ask for something, and wait for its result."""
        ready = self._produces.park([commit], lambda _: commit.done, WAIT_MS, requests=1)
        ask()
        self.settle()
        if not commit.done:
            await ready
        else:
            ready.cancel()
        if not commit.done:
            raise RequestTimedOut(f"the in-sync replicas did not follow within {WAIT_MS} ms")

    def _tick(self) -> None:
        if self._stopped:
            return
        self._timer = self._loop.call_later(TICK_S, self._tick)
        try:
            self.look_at_topics()
            self._look_at_metadata()
            self.damage.look()
            self.happens(self.decider.tick)
            self.followers.look()
            self.fetcher.look()
            self.standing.look()
            if self.leads and self.now_s - self._looked_s >= STARTS_S:
                self._looked_s = self.now_s
                self._look_at_starts()
        except Exception as error:
            self.observe("replication_failed", error=error)

    def _look_at_starts(self) -> None:
        raised = self.stored.raised_starts(self._starts)
        for partition in raised:
            self.node.trimmed(partition, None)
        if raised:
            self.settle()

    # Topics and logs.

    def look_at_topics(self) -> None:
        """Know of the partitions that were added and removed."""
        if not self.stored.topics_changed:
            return
        self.forwarded_creation.look()
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
        """What is applied follows the log, and partitions what is applied."""
        metadata, store = self.stored.metadata, self.store
        store.leadership = ClusterLeadership(self)
        store.changed = self.look_at_topics
        metadata.moved = store.moved
        metadata.metadata.began_later = lambda: self._synced(metadata.log)

    def _look_at_metadata(self) -> None:
        """A broker that cannot read what all others go by lacks what they have."""
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

    async def synced_to(self, log: Log, offset: int) -> None:
        """Bring the messages of a log below `offset` to stable storage. Raises `StorageError`."""
        await synced_to(self._commits, log, offset)

    async def secure_starts(self, logs: Sequence[Log]) -> None:
        """Bring to stable storage where logs begin, and drop what is before. Raises
        `StorageError`, `OSError`."""
        await self.work.in_storage_thread(lambda: self.directory.secure_log_starts(logs))
        for log in logs:
            if self.directory.opened_log((log.topic, log.partition)) is log:
                self.directory.reserve.retrying(log.expiry.drop_expired)

    def in_storage_thread(self, call: Callable[[], None]) -> "asyncio.Future[None]":
        """Run a call that reads or writes a lot."""
        return self.work.in_storage_thread(call)

    def in_reading_thread(self, call: Callable[[], None]) -> "asyncio.Future[None]":
        """Run a call that waits for the disk."""
        return self.work.in_reading_thread(call)

    def start_work(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a task for as long as the broker runs."""
        return self.work.start(work)
