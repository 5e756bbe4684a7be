"""A cluster in the process of a test: a leader and its followers, each in a thread of its own, with
one clock. No broker is promoted but by the test."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ..client.administer.admin import ReplicaAdmin
from ..server.broker import Broker
from ..server.replication.cluster import Cluster
from ..values import value_class
from .broker import BrokerThread, state_mark
from .clock import ClockOffset, MovingClock
from .faults import BrokerFaults
from .ports import free_ports
from .snapshots import BrokerSnapshot, StateMark
from .stored import StoredTopic
from .waiting import wait_until

BROKERS: Final = 3
"""Brokers of a cluster that does not say how many."""

DEADLINE_SECONDS: Final = 30.0

_LAG_MAX_MS: Final = 2_000
"""How long a follower may be silent and still count as in sync."""


@value_class
class ClusterSnapshot:
    """What the brokers of a cluster held at one time."""

    cluster: "BrokerCluster" = field(compare=False)
    brokers: Sequence[BrokerSnapshot]
    """In the order of the brokers."""
    leader: int
    """Position of the leader among them."""
    clock: ClockOffset

    def restore(self) -> None:
        """Put the cluster back into this state, as `BrokerCluster.restore` does."""
        self.cluster.restore(self)


class BrokerCluster:
    """Brokers with the ids 1 to N. The first leads at the start, and the others follow it."""

    def __init__(
        self, folder: Path, settings: Mapping[str, object] | None = None, brokers: int = BROKERS
    ) -> None:
        """The data directories are in `folder`; the `settings` are those of all brokers."""
        if brokers < 1:
            raise ValueError(f"brokers {brokers}: a cluster has at least one")
        self.clock = MovingClock()
        ports = free_ports(2 * brokers)
        self.brokers: Sequence[BrokerThread] = [
            BrokerThread(
                folder / f"broker{number + 1}",
                {
                    "cluster.brokers": brokers,
                    "replica.lag.time.max.ms": _LAG_MAX_MS,
                    **{name.replace("_", "."): value for name, value in (settings or {}).items()},
                    "broker.id": number + 1,
                    "listen": f"127.0.0.1:{ports[2 * number]}",
                    "kafka.listen": f"127.0.0.1:{ports[2 * number + 1]}",
                },
                self.clock,
            )
            for number in range(brokers)
        ]
        """Each with `address`, `kafka_address`, `stop()` and `faults`."""
        for broker in self.brokers:
            broker.faults = BrokerFaults(self.clock.now_ms, partial(self._stop_broker, broker))
        self._addresses = [f"127.0.0.1:{port}" for port in ports[::2]]
        self._kafka = [f"127.0.0.1:{port}" for port in ports[1::2]]
        self._last: ClusterSnapshot | None = None
        self._last_led: StateMark | None = None
        """What the leader had when `stop_leader` stopped it."""

    @property
    def address(self) -> str:
        """`HOST:PORT,HOST:PORT,...` of the native protocol, for clients and `--server`."""
        return ",".join(self._addresses)

    @property
    def kafka_bootstrap(self) -> str:
        """`HOST:PORT,HOST:PORT,...` for Kafka's clients."""
        return ",".join(self._kafka)

    @property
    def leader(self) -> BrokerThread:
        """The broker that leads. Raises `RuntimeError` while none does."""
        found = next((broker for broker in self.running if broker.in_loop(_leads)), None)
        if found is None:
            raise RuntimeError("no broker leads: promote() one, or start() the leader again")
        return found

    @property
    def running(self) -> Sequence[BrokerThread]:
        """The brokers that are not stopped."""
        return [broker for broker in self.brokers if broker.is_running]

    @property
    def followers(self) -> Sequence[BrokerThread]:
        """The running brokers that do not lead."""
        return [broker for broker in self.running if not broker.in_loop(_leads)]

    @property
    def faults(self) -> BrokerFaults:
        """The faults of the broker that leads now."""
        return self.leader.faults

    def start(self) -> None:
        """Start all brokers, and return when every follower is in sync."""
        first, *others = self.brokers
        first.start({"cluster.create": True})
        for broker in others:
            broker.start({"cluster.follow": first.address})
        self.wait_in_sync()

    def stop(self) -> None:
        """Stop all brokers, the followers first. Does nothing if they are stopped."""
        leads = [broker for broker in self.running if broker.in_loop(_leads)]
        for broker in [each for each in self.running if each not in leads] + leads:
            broker.stop()

    def stop_leader(self) -> BrokerThread:
        """Stop the leader, and return it. None leads until the test promotes a follower, or starts
        the same one again."""
        leader = self.leader
        leader.faults.stop_leader()
        return leader

    def _stop_broker(self, broker: BrokerThread) -> None:
        """Stop a broker. If it leads, remember what it has."""
        if broker.is_running and broker.in_loop(_leads):
            self._last_led = broker.in_loop(state_mark)
        broker.stop()

    def promote(self, broker: BrokerThread | None = None, *, accept_loss: bool = False) -> None:
        """Have a follower lead, by default the first one that is running, and the other running
        brokers follow it. Returns when it leads and they are in sync.

        Raises the broker's error if it may lack messages and `accept_loss` is false. It lacks none
        if it has everything that the leader had in `stop_leader`.
        """
        chosen = broker or self._first_follower()
        led = self._last_led
        complete = led is not None and chosen.in_loop(state_mark).reaches(led)
        loses = accept_loss or complete  # By the leader's mark nothing is lost then.
        newest = max(each.in_loop(_newest_epoch) for each in self.running)
        chosen.in_loop(partial(_learn_epoch, epoch=newest))
        chosen.in_loop(lambda broker: _promote(broker.addresses.native, loses))
        self._last_led = None
        wait_until(lambda: chosen.in_loop(_leads), within_s=DEADLINE_SECONDS)
        for other in self.running:
            if other is not chosen:
                other.stop()
                self.rejoin(other)
        self.wait_in_sync()

    def rejoin(self, broker: BrokerThread) -> None:
        """Start a stopped broker, to follow the leader."""
        broker.start({"cluster.follow": self.leader.address})

    def wait_in_sync(self) -> None:
        """Wait until every running follower follows the leader in its present epoch, and has, and
        shows, everything that the leader has now."""
        wanted = {int(str(broker.settings["broker.id"])) for broker in self.running}

        def found() -> bool:
            for broker in self.running:
                if broker.in_loop(_in_sync) == wanted:
                    mark = broker.in_loop(state_mark)
                    return all(each.in_loop(partial(_shows, mark=mark)) for each in self.running)
            return False

        wait_until(found, within_s=DEADLINE_SECONDS, state=lambda: "a follower is not in sync")

    def topic(self, name: str) -> StoredTopic:
        """Return a topic of the leader, to look at what is stored in it."""
        return self.leader.topic(name)

    def snapshot(self) -> ClusterSnapshot:
        """Take a snapshot of all brokers, which must be running, once all are in sync."""
        if len(self.running) != len(self.brokers):
            raise RuntimeError("a snapshot of a cluster needs all brokers running")
        self.wait_in_sync()
        leader = list(self.brokers).index(self.leader)
        taken = [broker.snapshot() for broker in self.brokers]
        self._last = ClusterSnapshot(self, taken, leader, self.clock.offset())
        return self._last

    def restore(self, snapshot: ClusterSnapshot | None = None) -> None:
        """Put all brokers back into the state of a snapshot, by default the last one, with the same
        leader. Raises `TypeError` for what is no snapshot, `ValueError` without one, and for one of
        another cluster."""
        chosen = snapshot or self._last
        if chosen is None:
            raise ValueError("there is no snapshot of this cluster: take one with snapshot()")
        if not isinstance(chosen, ClusterSnapshot):
            raise TypeError(f"snapshot {chosen!r}: it must be what snapshot() returned")
        if chosen.cluster is not self:
            raise ValueError("the snapshot is of another cluster")
        self.stop()
        leader = self.brokers[chosen.leader]
        for broker, taken in zip(self.brokers, chosen.brokers, strict=True):
            broker.replace_data(taken)
        leader.start()
        for broker in self.brokers:
            if broker is not leader:
                broker.start({"cluster.follow": leader.address})
        self.wait_in_sync()
        self._last = chosen

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._close(self.brokers)
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._close(self.brokers)

    def _first_follower(self) -> BrokerThread:
        followers = self.followers
        if not followers:
            raise RuntimeError("no follower is running that could be promoted")
        return followers[0]

    def _close(self, brokers: Iterable[BrokerThread]) -> None:
        for broker in brokers:
            broker.close()


async def _leads(broker: Broker) -> bool:
    return broker.services.replication.leads


async def _in_sync(broker: Broker) -> set[int]:
    """Return the ids of the brokers in sync, as the leader knows them; none at a follower, and none
    while one of them does not follow this leader, or lacks messages.

    A new leader counts the followers of the epoch before as in sync, although none follows it yet.
    """
    replication = broker.services.replication
    assert isinstance(replication, Cluster)
    leader = replication.leader
    if leader is None:
        return set()
    following = {one.member for one in leader.sessions.values() if not one.behind}
    members = leader.isr.members
    return {one.broker_id for one in members} if members <= following | {leader.me} else set()


async def _newest_epoch(broker: Broker) -> int:
    """Return the newest epoch that a broker knows."""
    replication = broker.services.replication
    assert isinstance(replication, Cluster)
    return replication.node.highest_epoch


async def _learn_epoch(broker: Broker, epoch: int) -> None:
    """Tell a broker of an epoch, so that the one in which it will lead is above it."""
    replication = broker.services.replication
    assert isinstance(replication, Cluster)
    node = replication.node
    replication.happens(lambda _: node.learn(epoch))


async def _shows(broker: Broker, mark: StateMark) -> bool:
    """Whether a broker shows its readers everything up to a mark."""
    directory = broker.directory
    shown = {(log.topic, log.partition): log.high_watermark for log in directory.open_logs()}
    return directory.metadata.applied >= mark.metadata_end and all(
        shown.get(key, 0) >= end for key, (_, end) in mark.logs.items()
    )


async def _promote(address: str, accept_loss: bool) -> int:
    async with ReplicaAdmin(address) as admin:
        return await admin.promote(accept_loss=accept_loss)
