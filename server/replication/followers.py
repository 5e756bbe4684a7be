"""The followers of a leader: their `replicate` requests, and the leader's answers."""

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
from ...storage.metadata.snapshot import StateReading
from ...storage.read.slices import Slice
from ...storage.replica.replica_log import ReplicaLog
from ..parking import Wait
from ..requests import Call, PendingAnswer
from ..scrubbing import Scrubber
from .member import ClusterMember, PeerInfo
from .replica_directory import ReplicaMetadataLog
from .wire import Stretches, check_request, put_messages, read_all, write_state_part

LOOK_S: Final = 1.0
"""How often a leader with a damaged log checks whether another broker can lead."""

CHECKS_MAX: Final = 8
"""The most partitions that are checked for damage because of one request of a follower."""


class DamageWatch:
    """Reports damage of logs to the state machine.

    The leader sends messages without checking them. A follower that receives damaged messages
    appends none of them, and asks the leader to check its log.
    """

    def __init__(self, member: ClusterMember, scrubber: Scrubber) -> None:
        self._member = member
        self._scrubber = scrubber
        self._hurt = bool(member.stored.hurt())
        self._looked_s = 0.0
        self._checking: set[Partition] = set()
        """Partitions that are being checked for a follower."""
        self._found_good: dict[Partition, tuple[int, int]] = {}
        """The follower and the offset for which a partition was last reported as undamaged."""

    def check(self) -> None:
        """Report damage that was found; on a leader again and again, until another broker
        leads."""
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
        """Check the messages that a follower received damaged. The answer to the follower does not
        wait for the check."""
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
"""A follower's connection without requests for this long counts as closed."""

LISTED_S: Final = 10.0
"""How long a silent follower stays in the list of followers; Kafka's controller waits 9 s before it
fences a broker."""

BROKERS_MAX: Final = 5
"""The most members of a cluster: a leader and four followers."""

MAX_CHANNELS: Final = 16
"""The most connections of followers at a time, dead ones included."""

_WILDCARDS: Final = frozenset({"0.0.0.0", "::", ""})


class Channel:
    """A connection that a follower opened: its answers, and whether the follower waits for one.

    Each fetch gets one answer, in the order in which the answers were made.
    """

    def __init__(self, number: int, broker_id: int, now_s: float) -> None:
        self.number = number
        self.broker_id = broker_id
        self.last_seen_s = now_s
        """When the follower's last request arrived, in seconds of the monotonic clock."""
        self.closed = False
        """Whether further requests on this connection are ignored."""
        self.listed: Sequence[tuple[int, PeerInfo]] = []
        """The list of followers, with their addresses, that was sent on this connection last."""
        self.unplaced: dict[Partition, ReplicaPosition] = {}
        """The follower's positions in partitions that do not exist here yet."""
        self.state: StateReading | None = None
        """The reader of the metadata log's stored state, for a follower whose copy begins there."""
        self._outbox: deque[ReplicateResponse] = deque()
        self._reading: asyncio.Future[None] | None = None
        """The read that the last answer waits for; no other answer is made before it is done."""
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
        """Answer with `response` once `reading` is done; if that fails, with `instead`."""
        self._outbox.append(response)
        self._reading = reading

        def read(done: "asyncio.Future[None]") -> None:
            self._reading = None
            if (done.cancelled() or done.exception() is not None) and response in self._outbox:
                self._outbox[self._outbox.index(response)] = instead
            self._wake()

        reading.add_done_callback(read)

    def wait(self) -> Wait:
        """Return a wait for the next answer. The answer is sent within the call that makes it, so
        that the follower copies while the leader goes on. The wait is cancelled when the connection
        is lost."""
        self._wake()
        self._waiting = Wait()
        return self._waiting

    def take(self) -> ReplicateResponse | None:
        """Return the next answer, `None` if there is none."""
        return self._outbox.popleft() if self._outbox else None

    def close(self) -> None:
        """Ignore further requests. Answers that were made before can still be taken."""
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
        """When followers whose connection is gone last sent a request, by broker id."""
        self._listed: list[tuple[int, PeerInfo]] | None = None
        """The present followers with their addresses; `None` if the list has to be made again."""
        self._in_sync: tuple[Collection[Member], list[int]] = (), []
        """The members that `in_sync` saw last, and their sorted ids."""

    def handle(self, request: ReplicateRequest, call: Call) -> Any:
        """Answer a `replicate` request. Raises `CodedError`."""
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
        """Whether the log of a position exists here. If not, keep the position until it does."""
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
        """Pass the kept positions in partitions that were added to the state machine."""
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
            # This broker does not lead any longer.
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
        """Answer a broker that says hello. The epoch of a broker that is not known as a member must
        have no effect here."""
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
        # A broker has one connection: the state machine closes an earlier one.
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
        """Send an answer to a follower: carries out the effect `Send`."""
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
        """Answer with messages, once all messages that are not in memory are read."""
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
            # In a thread: producers must not wait while the disk reads old messages for a new
            # follower.
            reading = member.in_reading_thread(partial(_read, channel, cold, states))
            channel.say_later(response, reading, self._refusal())
        else:
            channel.say(response)

    def _describe(self, channel: Channel, response: ReplicateResponse) -> None:
        """Add to an answer how far the follower is behind, the in-sync replicas, and the list of
        followers with their addresses, if that has changed since it was sent last."""
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
        """Return the ids of followers that wait for an answer, or sent a request in the last
        `LISTED_S`.

        That includes followers whose connection is gone: they may be back soon, and clients that
        know only this broker could not find them if this broker fails.
        """
        now_s = self._member.now_s
        since_s = now_s - LISTED_S
        sent_s = dict(self._left_s)
        for one in self._channels.values():
            if not one.closed:
                sent_s[one.broker_id] = now_s if one.waits else one.last_seen_s
        return sorted([broker_id for broker_id, at_s in sent_s.items() if at_s >= since_s])

    def in_sync(self) -> list[int]:
        """Return the ids of the in-sync replicas; empty if this broker does not lead."""
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
        """Return how many messages a follower has not confirmed."""
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
        """Close connections of followers that have been silent for too long, and have the list of
        followers made again."""
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
        """Return the open connection of a follower, `None` if it has none."""
        for channel in self._channels.values():
            if channel.broker_id == broker_id and not channel.closed:
                return channel
        return None


def _read(
    channel: Channel,
    cold: list[tuple[ReplicatedPart, Slice]],
    states: list[tuple[ReplicatedPart, ReplicaMetadataLog]],
) -> None:
    """Read the messages and the parts of the stored state that a response still lacks, in a thread.
    Raises `OSError`, `StorageError`."""
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
    """Return an address as other brokers reach it: if the broker listens on all interfaces, `host`,
    from which its connection comes, takes the place of the wildcard."""
    if not address or not host:
        return address
    scheme, separator, place = address.rpartition("://")
    name, port = split_address(place)
    if name not in _WILDCARDS:
        return address
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}{separator}{shown}:{port}"
