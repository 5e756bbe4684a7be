"""What the parts of a cluster member share: its state machine, its logs and its clock."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, Final, Protocol

from ...config.cluster_table import NOT_FOLLOWING
from ...protocol.api.cluster.replicate import ReplicateRequest
from ...replication.effects import Effect
from ...replication.leader import Leader
from ...replication.node import Node
from ...replication.settings import ReplicationSettings
from ...storage.events import Observer
from ...storage.log.log import Log
from ...values import value_class
from ..handlers.base import Services
from ..syncing import synced_to
from .member_files import MemberFiles
from .replica_directory import ReplicaDirectory

GIVEN: Final = 0
"""Stands for the id of the leader that was given (cluster.follow), until it says its own."""

FETCH_BYTES: Final = 2 << 20
"""Messages in one answer to a follower. What is more than a processor's own cache has is copied at
half the speed."""


@value_class
class PeerInfo:
    """The addresses that a broker gave."""

    address: str
    kafka_address: str


class Election(Protocol):
    """Who decides who leads: people, or etcd. Makes a broker's node, and carries out the effects
    that only this kind of node has."""

    @property
    def node(self) -> Node: ...

    @property
    def waits_for(self) -> str:
        """Why this broker neither leads nor follows."""
        ...

    @property
    def contested_epoch(self) -> int:
        """The epoch that two brokers led in; `NO_EPOCH` without one."""
        ...

    @property
    def promise(self) -> str:
        """Why messages may be lost if this broker is made the leader; empty if none are."""
        ...

    @property
    def in_sync(self) -> list[int] | None:
        """Who is in sync, where a broker that does not lead knows it."""
        ...

    async def prepare(self) -> None:
        """What is to be known before the start. Raises `InvalidConfig`."""
        ...

    def start(self) -> None: ...

    async def resign(self) -> None:
        """Lead no more, because the broker stops."""
        ...

    async def stop(self) -> None:
        """Release what is held, when nothing is led or followed any more."""
        ...

    def tick(self, now_s: float) -> None:
        """Give the node the time."""
        ...

    def carry_out(self, effect: Effect) -> None:
        """Carry out an effect that only this kind of node has."""
        ...

    def knows(self, hello: ReplicateRequest) -> bool:
        """Whether a broker that says this is a member, with no epoch that cannot be."""
        ...

    async def know(self, hello: ReplicateRequest) -> None:
        """Wait until `knows`, for as long as it takes a member to be known that has just come."""
        ...

    def promote(self, now_s: float, *, accept_loss: bool) -> str | None:
        """Let this broker lead, now or soon, without the old leader's answer; or why not."""
        ...


def given_addresses(follow: str) -> tuple[str, ...]:
    """The addresses in `cluster.follow`."""
    return () if follow == NOT_FOLLOWING else tuple(follow.split(","))


class ClusterMember(ABC):
    """A broker of a cluster as its parts see it."""

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
        """Opens the logs of the directory. `seconds` is a clock that never goes back. Raises
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
        """Brokers that said hello, by id; with etcd those that are there."""
        self.absent: dict[int, PeerInfo] = {}
        """With etcd: those that were there since this one started, and are no longer."""
        self.elections = 0
        """How often this broker began to lead."""

    @property
    def given_leaders(self) -> Sequence[str]:
        """The other addresses in `cluster.follow`."""
        given = given_addresses(self.settings.cluster_follow)
        return [one for one in given if one != self.native_address]

    @property
    def brokers_declared(self) -> int:
        """How many brokers there are to be, where that is declared; etcd knows who was there."""
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

    def happens(self, step: Callable[[float], Any]) -> Any:
        """Give the state machine an event, and carry out its effects."""
        try:
            return step(self.now_s)
        finally:
            self.settle()

    @abstractmethod
    def settle(self) -> None:
        """Carry out the effects of the state machine, and those that these bring about."""

    @abstractmethod
    def check_topics(self) -> None:
        """Find the partitions that were added and removed, and tell the state machine."""

    # Threads and tasks.

    async def synced_to(self, log: Log, offset: int) -> None:
        """Bring the messages of a log below `offset` to stable storage. Raises `StorageError`."""
        await synced_to(self.commits, log, offset)

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
