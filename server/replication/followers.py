"""The followers of a leader: their requests, and the answers."""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ...config.address import split_address
from ...protocol.api.cluster.replicate import (
    Answers,
    ReplicaPlace,
    ReplicaPosition,
    ReplicatedPart,
    ReplicateRequest,
    ReplicateResponse,
    Says,
)
from ...protocol.errors import HorologError, InconsistentClusterId, InvalidRequest, PolicyViolation
from ...protocol.limits import MAX_PARTITIONS
from ...replication.messages import partition_of, refusal
from ...replication.partition_log import Partition
from ...replication.settings import Member
from ...storage.metadata.state_copy import StateReading
from ...storage.read.slices import Slice
from ...storage.replica.replica_log import ReplicaLog
from ..parking import Wait
from ..requests import Call, PendingAnswer
from ..scrubbing import Scrubber
from .member import ClusterMember, PeerInfo
from .replica_directory import ReplicaMetadataLog
from .wire import Stretches, check_request, put_messages, read_all, write_state_part

LOOK_S: Final = 1.0
"""How often a leader that has damage looks whether another broker can lead."""

CHECKS_MAX: Final = 8
"""Partitions that are checked for one request of a follower."""


class DamageWatch:
    """Reports damage to the state machine.

    The leader sends messages without looking at them. A follower that gets damaged ones appends
    none of them, and asks the leader to check what it has stored.
    """

    def __init__(self, member: ClusterMember, scrubber: Scrubber) -> None:
        self._member = member
        self._scrubber = scrubber
        self._hurt = bool(member.stored.hurt())
        self._looked_s = 0.0
        self._checking: set[Partition] = set()
        """Partitions that are checked for a follower now."""
        self._found_good: dict[Partition, tuple[int, int]] = {}
        """By partition, the follower and the offset for which it was reported as good last."""

    def check(self) -> None:
        """Report damage that was met; that of a leader again and again, until another one leads."""
        member = self._member
        stored = member.stored
        met, stored.damage_met = stored.damage_met, False
        again = self._hurt and member.node.leader is not None
        if not met and (not again or member.now_s - self._looked_s < LOOK_S):
            return
        self._looked_s = member.now_s
        hurt = stored.hurt()
        self._hurt = bool(hurt)
        if hurt:
            member.happens(lambda _: member.node.damaged())

    def doubted(self, broker_id: int, positions: Sequence[ReplicaPosition]) -> None:
        """Check what a follower got damaged. Its next answer does not wait for that."""
        doubted = [one for one in positions if one.check]
        if not doubted or not self._member.leads:
            return
        for one in doubted[:CHECKS_MAX]:
            stored = self._member.stored.logs[partition_of(one)]
            if stored.partition not in self._checking and one.end_offset < stored.log_end_offset:
                self._checking.add(stored.partition)
                self._member.start_work(self._check(stored, one.end_offset, broker_id))

    async def _check(self, stored: ReplicaLog, offset: int, broker_id: int) -> None:
        partition = stored.partition
        try:
            with suppress(HorologError, OSError):
                good = await self._scrubber.checked(stored.log, offset, within_s=None)
                if good and self._found_good.get(partition) != (broker_id, offset):
                    self._found_good[partition] = broker_id, offset
                    self._member.observe(
                        "damaged_on_the_way",
                        topic=partition[0],
                        partition=partition[1],
                        offset=offset,
                        broker=broker_id,
                        advice="what is stored here is good: look at that broker's memory, and at "
                        "the network",
                    )
        finally:
            self._checking.discard(partition)


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


class Channel:
    """The answers on a connection that a follower opened, and whether it waits for one.

    Answers go in the order in which they were made: each fetch is answered with one.
    """

    def __init__(self, number: int, broker_id: int, now_s: float) -> None:
        self.number = number
        self.broker_id = broker_id
        self.last_seen_s = now_s
        """When the last request of the follower came."""
        self.closed = False
        """Whether nothing that comes from it counts any more."""
        self.listed: Sequence[tuple[int, PeerInfo]] = []
        """The followers that its last list had, with their addresses."""
        self.unplaced: dict[Partition, ReplicaPosition] = {}
        """Positions in topics that are not known here, yet."""
        self.state: StateReading | None = None
        """What is read of the metadata log's stored state, for a copy that begins there."""
        self._outbox: deque[ReplicateResponse] = deque()
        self._reading: asyncio.Future[None] | None = None
        """What the last answer waits for; no other is made before."""
        self._waiting: Wait | None = None

    @property
    def waits(self) -> bool:
        """Whether the follower waits for an answer."""
        return self._waiting is not None and not self._waiting.done()

    @property
    def has_answer(self) -> bool:
        if len(self._outbox) == 1 and self._reading is not None:
            return self._reading.done()
        return bool(self._outbox)

    def say(self, response: ReplicateResponse) -> None:
        """Answer the fetch that waits, or the next one."""
        self._outbox.append(response)
        self._wake()

    def say_later(
        self,
        response: ReplicateResponse,
        reading: "asyncio.Future[None]",
        instead: ReplicateResponse,
    ) -> None:
        """The same once `reading` is done; if that fails, `instead`."""
        self._outbox.append(response)
        self._reading = reading

        def read(done: "asyncio.Future[None]") -> None:
            self._reading = None
            if (done.cancelled() or done.exception() is not None) and response in self._outbox:
                self._outbox[self._outbox.index(response)] = instead
            self._wake()

        reading.add_done_callback(read)

    def wait(self) -> Wait:
        """Over when there is an answer, which goes out within the call that makes it: a follower
        copies while the leader goes on. Cancelled when the connection is lost."""
        self._wake()
        self._waiting = Wait()
        return self._waiting

    def take(self) -> ReplicateResponse | None:
        """The next answer."""
        return self._outbox.popleft() if self._outbox else None

    def close(self) -> None:
        """Take nothing more from it; answers that were made before can still be taken."""
        self.closed = True
        self._wake()
        if self._reading is None:
            self._close_state()
        else:
            self._reading.add_done_callback(lambda _: self._close_state())

    def _close_state(self) -> None:
        if self.state is not None:
            self.state.close()
            self.state = None

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.set_result(None)


class Followers:
    """Answers `replicate` requests."""

    def __init__(self, member: ClusterMember, damage: DamageWatch) -> None:
        self._member = member
        self._damage = damage
        self._channels: dict[int, Channel] = {}
        self._left_s: dict[int, float] = {}
        """When those that left sent something last."""
        self._listed: list[tuple[int, PeerInfo]] | None = None
        """The followers that are there, with their addresses, if they were listed since the last
        `forget_silent`."""
        self._in_sync: tuple[Collection[Member], list[int]] = (), []
        """Members that were in sync when that was asked last, and their ids."""

    def handle(self, request: ReplicateRequest, call: Call) -> Any:
        """The answer to a request. Raises `CodedError`."""
        check_request(request)
        if request.says == Says.HELLO:
            return self._meet(request, call)
        channel = self._channels.get(request.connection)
        if channel is None:
            return self._refusal() if request.says == Says.FETCH else None
        positions = request.positions
        request.positions = [one for one in positions if self._place_or_keep(channel, one)]
        channel.last_seen_s = self._member.now_s
        if request.says == Says.CONFIRM:
            if not channel.closed:
                self._event(channel, request)
            return None
        if not channel.closed:
            self._damage.doubted(channel.broker_id, request.positions)
        return self._fetch(channel, request)

    def _place_or_keep(self, channel: Channel, position: ReplicaPosition) -> bool:
        """Whether a position is in a log that exists; otherwise keep it until there is one."""
        partition = partition_of(position)
        stored = self._member.stored.logs.get(partition)
        if stored is not None and stored.topic_id == position.topic_id:
            channel.unplaced.pop(partition, None)
            return True
        if len(channel.unplaced) >= MAX_PARTITIONS:
            raise InvalidRequest(
                f"broker {channel.broker_id} sends positions in {MAX_PARTITIONS} partitions that "
                "are not here"
            )
        channel.unplaced[partition] = position
        return False

    def place(self, added: Iterable[Partition]) -> None:
        """Take the positions in partitions that are there now."""
        leader, logs = self._member.node.leader, self._member.stored.logs
        if leader is None:
            return
        for channel in list(self._channels.values()):
            known = []
            for partition in added:
                position = channel.unplaced.get(partition)
                if position is not None and position.topic_id == logs[partition].topic_id:
                    del channel.unplaced[partition]
                    known.append(position)
            if known and not channel.closed:
                confirm = ReplicateRequest(
                    says=Says.CONFIRM,
                    connection=channel.number,
                    epoch=leader.epoch,
                    positions=known,
                )
                self._event(channel, confirm)

    def _fetch(self, channel: Channel, message: ReplicateRequest) -> Any:
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
        channel.last_seen_s = self._member.now_s
        taken = channel.take()
        if taken is None:
            # Its leader leads no longer.
            self._channels.pop(channel.number, None)
            return self._refusal()
        return taken

    def _refusal(self) -> ReplicateResponse:
        return refusal(self._member.node.highest_epoch, self._member.broker_id)

    def _event(self, channel: Channel, message: ReplicateRequest) -> None:
        member = self._member
        try:
            member.node.from_follower(member.now_s, channel, message)
        finally:
            member.settle()

    def _meet(self, request: ReplicateRequest, call: Call) -> Any:
        """Answer a broker that says hello. One that is not known as a member is neither believed
        nor followed in what it says."""
        member = self._member
        self._check(request)
        if member.election.knows(request):
            return self._greet(request, call)
        if not member.leads:
            return self._refusal()
        known = member.start_work(member.election.know(request))
        return PendingAnswer(known, partial(self._greet_member, request, call), alone=True)

    def _greet_member(self, request: ReplicateRequest, call: Call) -> ReplicateResponse:
        if not self._member.election.knows(request):
            raise PolicyViolation(
                f"broker {request.broker_id} is no member of this cluster: etcd has no broker of "
                f"that id with its data, or none that knows epoch {request.highest_epoch}; start "
                "it with the same cluster.etcd and cluster.name"
            )
        self._check(request)
        return self._greet(request, call)

    def _greet(self, request: ReplicateRequest, call: Call) -> ReplicateResponse:
        member = self._member
        # Another connection of the same broker dies with this one: the state machine closes it.
        for other in list(self._channels.values()):
            if other.broker_id == request.broker_id or other.number == request.connection:
                self._gone(other)
        if len(self._channels) >= MAX_CHANNELS:
            raise PolicyViolation(f"{MAX_CHANNELS} brokers follow this one, or try to")
        channel = Channel(request.connection, request.broker_id, member.now_s)
        self._channels[channel.number] = channel
        self._member.known[request.broker_id] = PeerInfo(
            reachable(request.address, call.client_host),
            reachable(request.kafka_address, call.client_host),
        )
        self._listed = None
        member.check_topics()
        self._event(channel, request)
        response = self._take(channel)
        if not channel.closed and member.leads:
            member.observe("follower_came", broker=request.broker_id, address=request.address)
        return response

    def _check(self, request: ReplicateRequest) -> None:
        member = self._member
        if request.broker_id == member.broker_id:
            raise InvalidRequest(
                f"broker.id {request.broker_id} is that of this broker too: each has its own"
            )
        ours = member.directory.cluster_id()
        if request.cluster_id not in ("", ours):
            raise InconsistentClusterId(
                f"broker {request.broker_id} has the data of cluster {request.cluster_id[:64]}, "
                f"and this is cluster {ours}: start it with another data directory, or once with "
                "cluster.discard, which sets aside what it has"
            )
        others = set(self._member.known) | {request.broker_id}
        most, name = member.settings.cluster_brokers, "cluster.brokers"
        if member.settings.cluster_etcd:
            most, name = BROKERS_MAX, "the most with etcd"
        if len(others) >= most:
            raise PolicyViolation(
                f"broker {request.broker_id} would be one too many: {name} is {most}, and "
                f"{sorted(self._member.known)} are known"
            )

    def say(self, channel: Channel, response: ReplicateResponse) -> None:
        """Carry out `Send`."""
        member = self._member
        if response.answers == Answers.FETCHED:
            self._describe(channel, response)
            self._say_fetched(channel, response)
            return
        if response.answers == Answers.WELCOME:
            response.cluster_id = member.directory.cluster_id()
            response.kafka_address = member.kafka_address
            self._describe(channel, response)
        channel.say(response)

    def _say_fetched(self, channel: Channel, response: ReplicateResponse) -> None:
        """Answer with messages, once all of them are read."""
        member = self._member
        logs = member.stored.logs
        cold: list[tuple[ReplicatedPart, Slice]] = []
        states: list[tuple[ReplicatedPart, ReplicaMetadataLog]] = []
        file_ranges = Stretches()
        for part in response.parts:
            stored = logs.get(partition_of(part))
            if stored is not None:
                part.topic_id = stored.topic_id
                part.first_visible_offset = stored.log.log_start_offset
            found = put_messages(part, file_ranges)
            if found is not None:
                cold.append((part, found))
            if isinstance(part.producer_state, ReplicaMetadataLog):
                states.append((part, part.producer_state))
        if cold or states:
            # A producer is not to wait until a disk has found what a new follower asks for.
            reading = member.in_reading_thread(partial(_read, channel, cold, states))
            channel.say_later(response, reading, self._refusal())
        else:
            channel.say(response)

    def _describe(self, channel: Channel, response: ReplicateResponse) -> None:
        """Add how far the follower is behind, who is in sync, and the addresses of the followers,
        if these are not those of the last list."""
        response.behind_messages = self.behind(channel)
        response.in_sync = self.in_sync()
        response.unreadable = self._member.stored.unreadable
        listed = self._listed
        if listed is None:
            known = self._member.known
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
        now_s = self._member.now_s
        since_s = now_s - LISTED_S
        sent_s = dict(self._left_s)
        for one in self._channels.values():
            if not one.closed:
                sent_s[one.broker_id] = now_s if one.waits else one.last_seen_s
        return sorted([broker_id for broker_id, at_s in sent_s.items() if at_s >= since_s])

    def in_sync(self) -> list[int]:
        """The in-sync replicas, of a broker that leads."""
        leader = self._member.node.leader
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
        leader = self._member.node.leader
        session = None if leader is None else leader.sessions.get(channel)
        if leader is None or session is None:
            return 0
        total = 0
        for partition in session.behind:
            log = leader.partitions[partition].log
            end = session.ends.get(partition)
            total += log.log_end_offset - (log.log_start_offset if end is None else end)
        return total

    def forget_silent(self) -> None:
        """Forget connections that are not used any more, and who was there."""
        self._listed = None
        now_s = self._member.now_s
        for channel in list(self._channels.values()):
            if not channel.waits and now_s - channel.last_seen_s > SILENT_S:
                self._gone(channel)

    def _gone(self, channel: Channel) -> None:
        self._listed = None
        self._channels.pop(channel.number, None)
        self._left_s[channel.broker_id] = channel.last_seen_s
        channel.close()
        node = self._member.node
        self._member.happens(lambda _: node.closed(channel))

    def channel_of(self, broker_id: int) -> Channel | None:
        """The connection of a follower."""
        for channel in self._channels.values():
            if channel.broker_id == broker_id and not channel.closed:
                return channel
        return None


def _read(
    channel: Channel,
    cold: list[tuple[ReplicatedPart, Slice]],
    states: list[tuple[ReplicatedPart, ReplicaMetadataLog]],
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
