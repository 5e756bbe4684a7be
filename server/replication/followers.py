"""The followers of a leader: their requests, and the answers."""

from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...config.address import split_address
from ...protocol.api.cluster.replicate import (
    ReplicaPlace,
    ReplicatedPart,
    ReplicateRequest,
    ReplicateResponse,
    Says,
)
from ...protocol.errors import InconsistentClusterId, InvalidRequest, PolicyViolation
from ...protocol.limits import MAX_PARTITIONS
from ...replication.messages import (
    Confirm,
    Fetched,
    FollowerPosition,
    FromFollower,
    FromLeader,
    Hello,
    Welcome,
)
from ...replication.partition_log import Partition
from ...replication.settings import Member
from ...storage.read.slices import Slice
from ..handlers.base import Call
from ..requests import PendingAnswer
from .channel import Channel, Known
from .stored_metadata import StoredMetadata
from .wire import (
    read_all,
    read_hello,
    read_positions,
    refusal,
    unread,
    write_response,
    write_state_part,
)

if TYPE_CHECKING:
    from .cluster import Cluster

SILENT_S: Final = 60.0
"""After so long a connection on which nothing is asked for is taken for gone."""

LISTED_S: Final = 10.0
"""For so long a follower that is silent is listed: Kafka's controller waits 9 s before it takes a
broker for gone."""

BROKERS_MAX: Final = 5
"""A leader and four followers."""

MAX_CHANNELS: Final = 16
"""Connections of followers that are known at a time, dead ones included."""

_WILDCARDS: Final = frozenset({"0.0.0.0", "::", ""})


class Followers:
    """Answers `replicate` requests."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._channels: dict[int, Channel] = {}
        self.known: dict[int, Known] = {}
        """Brokers that said hello, by id; with etcd those that are there."""
        self.absent: dict[int, Known] = {}
        """With etcd: those that were there since this one started, and are not any more."""
        self._left_s: dict[int, float] = {}
        """When those that left sent something last."""
        self._listed: list[tuple[int, Known]] | None = None
        """The followers that are there, with their addresses, if they were listed since the last
        `look`."""
        self._in_sync: tuple[Collection[Member], list[int]] = (), []
        """Members that were in sync when that was asked last, and their ids."""

    def handle(self, request: ReplicateRequest, call: Call) -> Any:
        """The answer to a request. Raises `CodedError`."""
        if request.says == Says.HELLO:
            return self._meet(request, call)
        channel = self._channels.get(request.connection)
        if request.says not in (Says.FETCH, Says.CONFIRM):
            raise InvalidRequest(f"says is {request.says}; it must be 0, 1, 2 or 3")
        if channel is None:
            return self._refusal() if request.says == Says.FETCH else None
        message = read_positions(request, partial(self._place_or_keep, channel))
        channel.last_seen_s = self._cluster.now_s
        if request.says == Says.CONFIRM:
            if not channel.closed:
                self._event(channel, message)
            return None
        self._cluster.damage.doubted(channel, message.positions)
        return self._fetch(channel, message)

    def _place_or_keep(self, channel: Channel, topic_id: str, position: FollowerPosition) -> bool:
        """Whether a position is in a log that exists; otherwise keep it until there is one."""
        partition = position.partition
        stored = self._cluster.stored.logs.get(partition)
        if stored is not None and stored.topic_id == topic_id:
            channel.unplaced.pop(partition, None)
            return True
        if len(channel.unplaced) >= MAX_PARTITIONS:
            raise InvalidRequest(
                f"broker {channel.broker_id} sends positions in {MAX_PARTITIONS} partitions that "
                "are not here"
            )
        channel.unplaced[partition] = topic_id, position
        return False

    def place(self, added: Iterable[Partition]) -> None:
        """Take the positions in partitions that are there now."""
        leader, logs = self._cluster.node.leader, self._cluster.stored.logs
        if leader is None:
            return
        for channel in list(self._channels.values()):
            known = []
            for partition in added:
                topic_id, position = channel.unplaced.get(partition, ("", None))
                if position is not None and topic_id == logs[partition].topic_id:
                    del channel.unplaced[partition]
                    known.append(position)
            if known and not channel.closed:
                self._event(channel, Confirm(leader.epoch, tuple(known)))

    def _fetch(self, channel: Channel, message: FromFollower) -> Any:
        if not (channel.closed or channel.has_answer):
            ready = channel.wait()
            self._event(channel, message)
            if not (channel.closed or channel.has_answer):
                ready.add_done_callback(partial(self._waited, channel))
                return PendingAnswer(ready, partial(self._take, channel))
        return self._take(channel)

    def _waited(self, channel: Channel, ready: Any) -> None:
        if ready.cancelled():
            self._gone(channel)

    def _take(self, channel: Channel) -> ReplicateResponse:
        channel.last_seen_s = self._cluster.now_s
        taken = channel.take()
        if taken is None:
            # Its leader leads no longer.
            self._channels.pop(channel.number, None)
            return self._refusal()
        return taken

    def _refusal(self) -> ReplicateResponse:
        return refusal(self._cluster.node.highest_epoch, self._cluster.broker_id)

    def _event(self, channel: Channel, message: FromFollower) -> None:
        cluster = self._cluster
        try:
            cluster.node.from_follower(cluster.now_s, channel, message)
        finally:
            cluster.settle()

    def _meet(self, request: ReplicateRequest, call: Call) -> Any:
        """Answer a broker that says hello. One that is not known as a member is neither believed
        nor followed in what it says."""
        cluster = self._cluster
        hello = read_hello(request)
        self._check(request)
        if cluster.decider.knows(hello):
            return self._greet(request, hello, call)
        if not cluster.leads:
            return self._refusal()
        known = cluster.start_work(cluster.decider.know(hello))
        return PendingAnswer(known, partial(self._greet_member, request, hello, call), alone=True)

    def _greet_member(
        self, request: ReplicateRequest, hello: Hello, call: Call
    ) -> ReplicateResponse:
        if not self._cluster.decider.knows(hello):
            raise PolicyViolation(
                f"broker {request.broker_id} is no member of this cluster: etcd has no broker of "
                f"that id with its data, or none that knows epoch {hello.highest_epoch}; start it "
                "with the same cluster.etcd and cluster.name"
            )
        self._check(request)
        return self._greet(request, hello, call)

    def _greet(self, request: ReplicateRequest, hello: Hello, call: Call) -> ReplicateResponse:
        cluster = self._cluster
        # Another connection of the same broker dies with this one: the state machine closes it.
        for other in list(self._channels.values()):
            if other.broker_id == request.broker_id or other.number == request.connection:
                self._gone(other)
        if len(self._channels) >= MAX_CHANNELS:
            raise PolicyViolation(f"{MAX_CHANNELS} brokers follow this one, or try to")
        channel = Channel(request.connection, request.broker_id, cluster.now_s)
        self._channels[channel.number] = channel
        self.known[request.broker_id] = Known(
            reachable(request.address, call.client_host),
            reachable(request.kafka_address, call.client_host),
        )
        self._listed = None
        cluster.look_at_topics()
        self._event(channel, hello)
        response = self._take(channel)
        if not channel.closed and cluster.leads:
            cluster.observe("follower_came", broker=request.broker_id, address=request.address)
        return response

    def _check(self, request: ReplicateRequest) -> None:
        cluster = self._cluster
        if request.broker_id == cluster.broker_id:
            raise InvalidRequest(
                f"broker.id {request.broker_id} is that of this broker too: each has its own"
            )
        ours = cluster.directory.cluster_id()
        if request.cluster_id not in ("", ours):
            raise InconsistentClusterId(
                f"broker {request.broker_id} has the data of cluster {request.cluster_id[:64]}, "
                f"and this is cluster {ours}: start it with another data directory, or once with "
                "cluster.discard, which sets aside what it has"
            )
        others = set(self.known) | {request.broker_id}
        most, name = cluster.settings.cluster_brokers, "cluster.brokers"
        if cluster.settings.cluster_etcd:
            most, name = BROKERS_MAX, "the most with etcd"
        if len(others) >= most:
            raise PolicyViolation(
                f"broker {request.broker_id} would be one too many: {name} is {most}, and "
                f"{sorted(self.known)} are known"
            )

    def say(self, channel: Channel, message: FromFollower | FromLeader) -> None:
        """Carry out `Send`."""
        cluster = self._cluster
        response = write_response(message, cluster.broker_id)  # type: ignore[arg-type]
        if isinstance(message, Fetched):
            self._describe(channel, response)
            self._say_fetched(channel, message, response)
            return
        if isinstance(message, Welcome):
            response.cluster_id = cluster.directory.cluster_id()
            response.kafka_address = cluster.kafka_address
            self._describe(channel, response)
        channel.say(response)

    def _say_fetched(self, channel: Channel, message: Fetched, response: ReplicateResponse) -> None:
        """Answer with messages, once all of them are read."""
        cluster = self._cluster
        logs = cluster.stored.logs
        cold: list[tuple[ReplicatedPart, Slice]] = []
        states: list[tuple[ReplicatedPart, StoredMetadata]] = []
        for part, written in zip(message.parts, response.parts, strict=True):
            stored = logs.get(part.partition)
            if stored is not None:
                written.topic_id = stored.topic_id
                written.first_visible_offset = stored.log.log_start_offset
            found = unread(part, written)
            if found is not None:
                cold.append((written, found))
            if isinstance(part.producers, StoredMetadata):
                states.append((written, part.producers))
        if cold or states:
            # A producer is not to wait until a disk has found what a new follower asks for.
            reading = cluster.in_reading_thread(partial(_read, channel, cold, states))
            channel.say_later(response, reading, self._refusal())
        else:
            channel.say(response)

    def _describe(self, channel: Channel, response: ReplicateResponse) -> None:
        """Add how far the follower is behind, who is in sync, and the addresses of the followers,
        if these are not those of the last list."""
        response.behind_messages = self.behind(channel)
        response.in_sync = self.in_sync()
        response.unreadable = self._cluster.stored.unreadable
        listed = self._listed
        if listed is None:
            known = self.known
            listed = self._listed = [(one, known[one]) for one in self.there() if one in known]
        if listed == channel.listed:
            return
        channel.listed = listed
        response.members = [
            ReplicaPlace(
                broker_id=broker_id, address=known.address, kafka_address=known.kafka_address
            )
            for broker_id, known in listed
        ]

    def there(self) -> list[int]:
        """The followers that wait for an answer, or sent something lately: also those that have
        left since. They may be back soon, and clients that know only this broker would not find
        them once it is gone."""
        now_s = self._cluster.now_s
        since_s = now_s - LISTED_S
        sent_s = dict(self._left_s)
        for one in self._channels.values():
            if not one.closed:
                sent_s[one.broker_id] = now_s if one.waits else one.last_seen_s
        return sorted([broker_id for broker_id, at_s in sent_s.items() if at_s >= since_s])

    def in_sync(self) -> list[int]:
        """The in-sync replicas, of a broker that leads."""
        leader = self._cluster.node.leader
        if leader is None:
            return []
        members, ids = self._in_sync
        if members is not leader.isr.members:
            members = leader.isr.members
            ids = sorted([one.broker_id for one in members])
            self._in_sync = members, ids
        return ids

    def behind(self, channel: Channel) -> int:
        """How many messages a follower has not said to have."""
        leader = self._cluster.node.leader
        session = None if leader is None else leader.sessions.get(channel)
        if leader is None or session is None:
            return 0
        total = 0
        for partition in session.behind:
            log = leader.partitions[partition].log
            end = session.ends.get(partition)
            total += log.log_end_offset - (log.log_start_offset if end is None else end)
        return total

    def look(self) -> None:
        """Forget connections that are not used any more, and who was there."""
        self._listed = None
        now_s = self._cluster.now_s
        for channel in list(self._channels.values()):
            if not channel.waits and now_s - channel.last_seen_s > SILENT_S:
                self._gone(channel)

    def _gone(self, channel: Channel) -> None:
        self._listed = None
        self._channels.pop(channel.number, None)
        self._left_s[channel.broker_id] = channel.last_seen_s
        channel.close()
        node = self._cluster.node
        self._cluster.happens(lambda _: node.closed(channel))

    def channel_of(self, broker_id: int) -> Channel | None:
        """The connection of a follower."""
        for channel in self._channels.values():
            if channel.broker_id == broker_id and not channel.closed:
                return channel
        return None


def _read(
    channel: Channel,
    cold: list[tuple[ReplicatedPart, Slice]],
    states: list[tuple[ReplicatedPart, StoredMetadata]],
) -> None:
    """Read what a response lacks still. Raises `OSError`, `StorageError`."""
    read_all(cold)
    for written, stored in states:
        reading = channel.state
        if reading is not None and reading.offset < stored.log.log_start_offset:
            reading.close()
            reading = channel.state = None
        if reading is None:
            reading = channel.state = stored.reading_state()
        part = reading.part()
        write_state_part(written, part)
        if part.is_last:
            reading.close()
            channel.state = None


def reachable(address: str, host: str) -> str:
    """An address as others reach it: a broker that listens everywhere is where it comes from."""
    if not address or not host:
        return address
    scheme, separator, place = address.rpartition("://")
    name, port = split_address(place)
    if name not in _WILDCARDS:
        return address
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}{separator}{shown}:{port}"
