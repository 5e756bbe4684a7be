"""The base of a cluster member, which its parts share: state machine, logs and clock; and writing
the lines of new leader epochs ahead, in threads.

A line must be on stable storage before the first message of its epoch is written. An append writes
a missing line itself, but then the event loop waits for the disk.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from ...config.cluster_table import NOT_FOLLOWING
from ...protocol.api.cluster.replicate import ReplicateRequest, ReplicateResponse
from ...replication.effects import Effect
from ...replication.leader import Leader
from ...replication.messages import partition_of
from ...replication.node import Node
from ...replication.settings import ReplicationSettings
from ...storage.events import Observer
from ...storage.log.leader_epochs import EpochWrite
from ...storage.log.log import Log
from ...storage.replica.replica_log import ReplicaLog
from ...values import value_class
from ..handlers.base import Services
from ..syncing import synced_to
from .member_files import MemberFiles
from .replica_directory import ReplicaDirectory

AT_ONCE: Final = 96
"""Lines that are written together, one for each log, in `THREADS` threads: concurrent syncs cost a
disk less than syncs one after another."""

THREADS: Final = 3

USED_MS: Final = 600_000
"""A new leader writes lines ahead only for logs with an append within this time. Other logs get
their line with the next message: so an election with thousands of idle partitions syncs nothing for
them."""

_Writes = Sequence[tuple[ReplicaLog, EpochWrite]]

GIVEN: Final = 0
"""Stands for the id of a leader given by address (cluster.follow), until it says its own id."""

FETCH_BYTES: Final = 2 << 20
"""The most bytes of messages in one answer to a follower. More than fits a processor's cache is
copied at half the speed."""


@value_class
class PeerInfo:
    """The addresses of another broker, as it gave them."""

    address: str
    kafka_address: str


class Election(Protocol):
    """The way in which the leader is chosen: by people, or by etcd. Makes a broker's node, and
    carries out the effects that only this kind of node has."""

    @property
    def node(self) -> Node: ...

    @property
    def waits_for(self) -> str:
        """Why this broker neither leads nor follows."""
        ...

    @property
    def contested_epoch(self) -> int:
        """The epoch in which two brokers led; `NO_EPOCH` if there is none."""
        ...

    @property
    def promise(self) -> str:
        """Why messages may be lost if this broker is promoted; empty if none can be."""
        ...

    @property
    def in_sync(self) -> list[int] | None:
        """The ids of the in-sync replicas, if this broker knows them without leading; else
        `None`."""
        ...

    async def prepare(self) -> None:
        """Read what the start needs to know. Raises `InvalidConfig`."""
        ...

    def start(self) -> None: ...

    async def resign(self) -> None:
        """Stop leading, because the broker stops."""
        ...

    async def stop(self) -> None:
        """Release connections and leases, once the broker neither leads nor follows."""
        ...

    def tick(self, now_s: float) -> None:
        """Tell the node the time."""
        ...

    def carry_out(self, effect: Effect) -> None:
        """Carry out an effect that only this kind of node has."""
        ...

    def knows(self, hello: ReplicateRequest) -> bool:
        """Whether a broker that says hello is a member, and its epoch is possible."""
        ...

    async def know(self, hello: ReplicateRequest) -> None:
        """Wait until `knows` is true, for as long as a new member may take to become known."""
        ...

    def promote(self, now_s: float, *, accept_loss: bool) -> str | None:
        """Let this broker lead, now or soon, without the old leader's answer. Returns why it may
        not, or `None`."""
        ...


def given_addresses(follow: str) -> tuple[str, ...]:
    """Return the addresses in `cluster.follow`."""
    return () if follow == NOT_FOLLOWING else tuple(follow.split(","))


class ClusterMember(ABC):
    """A cluster member, as far as its parts use it."""

    election: Election
    node: Node

    def __init__(
        self,
        services: Services,
        files: MemberFiles,
        observe: Observer,
        *,
        native_address: str,
        random: Random,
        seconds: Callable[[], float],
    ) -> None:
        """Open the logs of the directory. `seconds` is a monotonic clock. Raises
        `StorageError`."""
        self.settings = services.settings
        self.directory = services.directory
        self.observe = observe
        self.clock = services.clock
        self.work = services.work
        self.commits = services.commits
        self.broker_id = self.settings.broker_id
        self.native_address = native_address
        self.kafka_address = services.kafka_address or ""
        self._random = random
        self._seconds = seconds
        self.stored = ReplicaDirectory(
            self.directory, files.identity, files.owners, self.broker_id, observe
        )
        self.stored.changed()
        self.stored.know_epochs()
        self.known: dict[int, PeerInfo] = {}
        """By id, the brokers that have said hello; with etcd, the registered members."""
        self.absent: dict[int, PeerInfo] = {}
        """With etcd: members that have left since this broker started."""
        self.elections = 0
        """How often this broker began to lead."""

    @property
    def given_leaders(self) -> Sequence[str]:
        """The other addresses in `cluster.follow`."""
        given = given_addresses(self.settings.cluster_follow)
        return [one for one in given if one != self.native_address]

    @property
    def brokers_declared(self) -> int:
        """The number of brokers in `cluster.brokers`; 0 with etcd, which knows the members."""
        return 0 if self.settings.cluster_etcd else self.settings.cluster_brokers

    def replication_settings(self) -> ReplicationSettings:
        """The settings that `replication/` uses, with etcd and by hand."""
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

    # The state machine.

    @property
    def now_s(self) -> float:
        return self._seconds()

    @property
    def leader(self) -> Leader | None:
        """The leader state of this broker, if it may serve clients now; else `None`."""
        return self.node.serves(self._seconds())

    @property
    def leads(self) -> bool:
        """Whether this broker leads and may serve clients now."""
        return self.leader is not None

    @property
    def epoch(self) -> int:
        """The epoch in which this broker leads; 0 if it does not."""
        leader = self.leader
        return 0 if leader is None else leader.epoch

    def happens(self, step: Callable[[float], Any]) -> Any:
        """Pass an event to the state machine, and carry out the effects. Returns what `step`
        returns."""
        try:
            return step(self.now_s)
        finally:
            self.settle()

    @abstractmethod
    def settle(self) -> None:
        """Carry out the effects of the state machine, and the effects that result from them."""

    @abstractmethod
    def check_topics(self) -> None:
        """Find the partitions that were added and removed, and tell the state machine."""

    # Threads and tasks.

    async def synced_to(self, log: Log, offset: int) -> None:
        """Bring the messages of a log below `offset` to stable storage. Raises `StorageError`."""
        await synced_to(self.commits, log, offset)

    async def secure_starts(self, logs: Sequence[Log]) -> None:
        """Store the log starts of `logs` durably, and drop the segments below them. Raises
        `StorageError`, `OSError`."""
        await self.work.in_storage_thread(lambda: self.directory.secure_log_starts(logs))
        for log in logs:
            if self.directory.opened_log((log.topic, log.partition)) is log:
                self.directory.reserve.retrying(log.expiry.drop_expired)

    def in_storage_thread(self, call: Callable[[], None]) -> "asyncio.Future[None]":
        """Run a call that reads or writes much, in the thread for storage."""
        return self.work.in_storage_thread(call)

    def in_reading_thread(self, call: Callable[[], None]) -> "asyncio.Future[None]":
        """Run a call that waits for the disk, in the threads for reading."""
        return self.work.in_reading_thread(call)

    def start_work(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a task for as long as the broker runs."""
        return self.work.start(work)


async def write_lines_of(member: ClusterMember, response: ReplicateResponse) -> None:
    """Write the lines of epochs that begin in a leader's messages, before these are appended."""
    writes = []
    for part in response.parts:
        log = member.stored.logs.get(partition_of(part))
        if log is not None and part.stored is not None and not part.diverging:
            write = log.lines_of(part.stored)
            if write is not None:
                writes.append((log, write))
    for first in range(0, len(writes), AT_ONCE):
        await _run(member, writes[first : first + AT_ONCE])
        follower = member.node.follower
        if follower is not None:
            follower.extend_wait(member.now_s)


async def write_lines_to_lead(member: ClusterMember, epoch: int) -> None:
    """Write the lines of the epoch in which this broker leads, before producers send messages."""
    used_since_ms = member.clock.now_ms() - USED_MS
    used = [
        log
        for log in member.stored.logs.values()
        if log.log.segment_list.active.append_times.largest_ms >= used_since_ms
    ]
    for first in range(0, len(used), AT_ONCE):
        if member.epoch != epoch:
            return
        await _run(member, list(_lines(used[first : first + AT_ONCE], epoch)))


def _lines(logs: Iterable[ReplicaLog], epoch: int) -> Iterable[tuple[ReplicaLog, EpochWrite]]:
    for log in logs:
        write = log.line_to_lead(epoch)
        if write is not None:
            yield log, write


async def _run(member: ClusterMember, writes: _Writes) -> None:
    if not writes:
        return

    def run(first: int) -> None:
        for _, write in writes[first::THREADS]:
            with suppress(OSError):  # The append tries again, and reports.
                write.run()

    await asyncio.gather(*(member.in_reading_thread(partial(run, at)) for at in range(THREADS)))
    for log, write in writes:
        log.log.epochs.note(write)
