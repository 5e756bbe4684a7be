"""A follower's side of replication: its connection to the leader, and handling of the answers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...client.cluster.connection import ClientConnection, connect
from ...client.cluster.servers import parse_servers
from ...client.errors import SecurityError
from ...client.security.security import Security
from ...config.address import split_address
from ...protocol.api.cluster.describe_replicas import NOT_KNOWN
from ...protocol.api.cluster.replicate import (
    REPLICATE,
    Answers,
    ReplicatedPart,
    ReplicateRequest,
    ReplicateResponse,
    Says,
)
from ...protocol.errors import (
    HorologError,
    InvalidRequest,
    LeaderNotAvailable,
    StorageError,
    UnsupportedVersion,
)
from ...protocol.limits import MAX_LEADER_EPOCHS
from ...replication.epoch_owners import merged, owners_of
from ...replication.messages import partition_of
from ...replication.partition_log import Identity, Partition
from ...storage.log.epoch_history import NO_EPOCH
from ...storage.log.log import Log
from ...storage.names import is_id
from ...storage.replica.replica_log import ReplicaLog
from ...times import format_time
from ...values import value_class
from .followers import reachable
from .member import GIVEN, ClusterMember, PeerInfo, write_lines_of
from .replica_directory import METADATA
from .wire import read_state_part, take_response

Incoming = ReplicateResponse | Exception

FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 0.5
"""The first and the longest wait between two attempts to connect."""

AGAIN_S: Final = 10.0
"""How long after a failure a follower asks again for what it could not copy."""

RATE_S: Final = 10.0
"""Over how many seconds the rate of copied messages is measured."""


_end_of: Final[Callable[[ReplicaLog], int]] = attrgetter("log.log_end_offset")


@value_class
class AcceptsFollower:
    """The login of a follower at its leader."""

    credentials: str
    """Path of a file with user and password; empty if the leader requires no login."""
    ca: str

    def security(self, *, tls: bool) -> Security | None:
        """Return the client's security settings. Raises `OSError`, `SecurityError`."""
        if not (tls or self.credentials):
            return None
        user = password = None
        if self.credentials:
            lines = Path(self.credentials).read_text(encoding="utf-8").splitlines()
            if len(lines) < 2:
                raise SecurityError(
                    f"{self.credentials} (cluster.credentials) has no user and password on its "
                    "first two lines"
                )
            user, password = lines[:2]
        return Security(tls=tls, ca=self.ca or None, user=user, password=password)

    async def connect(self, address: str, timeout_ms: int) -> ClientConnection:
        """Connect to the broker at `address`; `timeout_ms` is the limit for each request. Raises
        the errors of `client.cluster.connection.connect`, `OSError` if a file of the login cannot
        be read, and `SecurityError`."""
        servers = parse_servers(address)
        return await connect(
            servers.addresses[0],
            client_id="horolog-follower",
            request_timeout_ms=timeout_ms,
            security=await asyncio.to_thread(self.security, tls=servers.tls),
        )


class LeaderConnection:
    """A connection to a leader, on which requests are sent and answers arrive in order."""

    def __init__(
        self,
        number: int,
        address: str,
        timeout_ms: int,
        accepts: AcceptsFollower,
        takes: Callable[["LeaderConnection", ReplicateResponse], bool],
    ) -> None:
        """`number` identifies the connection at the leader. `takes` is called with an answer as
        soon as it arrives, if no earlier answer waits. If `takes` returns false, `next` returns the
        answer; if it raises, `next` raises the same."""
        self.number = number
        self.address = address
        self.closed = False
        self._timeout_ms = timeout_ms
        self._accepts = accepts
        self._connection: ClientConnection | None = None
        self._takes = takes
        self._waits = False
        """Whether `next` waits, so that all earlier answers have been handled."""
        self._incoming: asyncio.Queue[Incoming] = asyncio.Queue()

    async def open(self) -> None:
        """Connect. Raises the errors of `AcceptsFollower.connect`, and `UnsupportedVersion` if both
        brokers have no version of `replicate` in common."""
        self._connection = await self._accepts.connect(self.address, self._timeout_ms)
        try:
            self._connection.version(REPLICATE)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(
                f"{error.message}: this broker and its leader are more than one release apart; "
                "upgrade the older of the two, one release at a time, followers first"
            ) from None

    def send(self, request: ReplicateRequest) -> None:
        """Send a request. `next` returns its answer, or raises the error."""
        connection = self._connection
        assert connection is not None
        try:
            if request.says == Says.CONFIRM:
                connection.submit_unanswered(REPLICATE, request)
            else:
                connection.submit_for(self, REPLICATE, request)
        except Exception as error:
            self._incoming.put_nowait(error)

    # Called by the connection with the outcome of a request.

    def done(self) -> bool:
        """Whether further answers are ignored."""
        return self.closed

    def set_result(self, response: ReplicateResponse, /) -> None:
        """Handle an answer that has arrived."""
        incoming: Incoming = response
        if self._waits and self._incoming.empty():
            # Waking a task for each answer costs as much as handling a small answer.
            try:
                if self._takes(self, response):
                    return
            except Exception as error:
                incoming = error
        self._incoming.put_nowait(incoming)

    def set_exception(self, error: Exception, /) -> None:
        """Handle the error of a request."""
        self._incoming.put_nowait(error)

    async def next(self) -> ReplicateResponse:
        """Wait for the next answer that `takes` did not handle. Raises the error of the connection,
        or of the leader."""
        self._waits = True
        try:
            incoming = await self._incoming.get()
        finally:
            self._waits = False
        if isinstance(incoming, Exception):
            raise incoming
        return incoming

    def close(self) -> None:
        """Close the connection, and ignore further answers."""
        self.closed = True
        if self._connection is not None:
            self._connection.abort()


class MissingReplica(NamedTuple):
    """Estimate of the acknowledged messages that a broker may lack: their number and time, or, if
    these are not known, how far its own logs reach."""

    messages: int | None
    """Estimated number of messages; `None` if no leader has answered since the start."""
    seconds: float | None
    last_ms: int = NOT_KNOWN
    """When this broker's last message was appended, if `messages` is `None`."""
    ends: int = NOT_KNOWN
    """The sum of this broker's log end offsets: a broker with a larger sum has more messages."""

    def __str__(self) -> str:
        if self.messages is not None:
            return f"up to {self.seconds:.1f} s, about {self.messages:,} messages"
        when = "at an unknown time" if self.last_ms < 0 else f"at {format_time(self.last_ms)}"
        return f"not known; its last message came {when}, its log end offsets add up to {self.ends}"

    def fields(self) -> Mapping[str, object]:
        """Return the fields of a log event."""
        if self.messages is not None and self.seconds is not None:
            return {"messages": self.messages, "seconds": round(self.seconds, 1)}
        last = None if self.last_ms < 0 else format_time(self.last_ms)
        return {"messages": None, "seconds": None, "last_message": last, "ends": self.ends}


def not_known(logs: Mapping[Partition, ReplicaLog]) -> MissingReplica:
    """Return the estimate for a broker with these logs that has had no answer of a leader."""
    found = [one.log for partition, one in logs.items() if partition != METADATA]
    # A new active segment may have no message yet.
    times = (one.append_times.largest_ms for log in found for one in log.segments[-2:])
    ends = sum(log.log_end_offset for log in found)
    return MissingReplica(None, None, max(times, default=NOT_KNOWN), ends)


class ReplicaFetcher:
    """Opens connections to the leader, and passes its answers to the state machine."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member
        self._given = member.given_leaders
        self._turn = 0
        """Index of the given address that is tried."""
        self._turn_failed = False
        """Whether that address was tried, and its broker has not said that it leads."""
        self._pause_s = FIRST_PAUSE_S
        self._connections: dict[LeaderConnection, asyncio.Task[None]] = {}
        self._reported: str | None = None
        """The last reported reason why the leader is not followed; `None` while it is."""
        self._reports: dict[str, str] = {}
        """The last reported reason by address."""
        self.leader_id = GIVEN
        """The leader's broker id, once it has said so; `GIVEN` before."""
        self.address = self._given[0] if self._given else ""
        """The leader's address, or the address that was tried last."""
        self.kafka_address = ""
        """The leader's address for Kafka's protocol; empty if it has none."""
        self.answered_s = member.now_s
        """When the leader last answered; before its first answer, the time of the start."""
        self.behind_messages: int | None = None
        """How many messages this broker lacked at that answer; `None` without an answer since it
        started or led."""
        self.unreadable = ""
        """The partitions that the leader cannot read for followers, by its last answer."""
        self.in_sync: Sequence[int] = ()
        """The ids of the in-sync replicas, by the leader's last answer."""
        self.others: Mapping[int, PeerInfo] = {}
        """The addresses of the other followers, by the leader's last list."""
        self._tried_s = 0.0
        self._counts: list[tuple[float, int]] = []

    # Effects of the state machine.

    def connect(self, broker_id: int) -> None:
        """Begin to connect to the leader: carries out the effect `Connect`."""
        member = self._member
        known = member.known.get(broker_id)
        self.address = self._next_given() if known is None else known.address
        timeout_ms = member.settings.replica_lag_time_max_ms
        accepts = AcceptsFollower(member.settings.cluster_credentials, member.settings.cluster_ca)
        connection = LeaderConnection(
            member.new_number(), self.address, timeout_ms, accepts, self._take_at_once
        )
        self._connections[connection] = member.start_work(self._run(connection))

    def _next_given(self) -> str:
        """Return the given address whose turn it is; empty if none was given."""
        if not self._given:
            return ""
        if self._turn_failed:
            self._turn += 1
        self._turn_failed = True
        return self._given[self._turn % len(self._given)]

    def say(self, connection: Any, request: ReplicateRequest) -> None:
        """Send a request to the leader: carries out the effect `Send`."""
        member = self._member
        request.connection = connection.number
        for one in request.positions:
            one.topic_id = member.stored.logs[partition_of(one)].topic_id
        if request.says == Says.HELLO:
            joined = member.stored.identity.highest_epoch >= 0
            request.cluster_id = member.directory.cluster_id() if joined else ""
            request.address = member.native_address
            request.kafka_address = member.kafka_address
        connection.send(request)

    def close(self, connection: Any) -> None:
        """Close a connection: carries out the effect `Close`."""
        connection.close()
        task = self._connections.pop(connection, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def stop(self) -> None:
        """Close all connections."""
        for connection in list(self._connections):
            self.close(connection)

    # Answers of the leader.

    async def _run(self, connection: LeaderConnection) -> None:
        member, node = self._member, self._member.node
        connected = False
        try:
            if self._reported is not None:
                await asyncio.sleep(self._pause_s)
                self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
            failure = member.stored.metadata.blocks
            if failure is not None:
                raise StorageError(failure.message)
            if not connection.address:
                raise LeaderNotAvailable("the leader that etcd names is not there")
            await connection.open()
            connected = True
            member.happens(lambda now_s: node.connected(now_s, connection))
            while not connection.closed:
                await self._take(connection, await connection.next())
        except Exception as error:
            if not connection.closed:
                self._failed(connection, error)
                if connected:
                    node.closed(connection)
                else:
                    node.not_connected()
        finally:
            self._connections.pop(connection, None)
            connection.close()

    def _failed(self, connection: LeaderConnection, error: Exception) -> None:
        """Report why the leader is not followed, unless the same reason was reported last."""
        text = error.message if isinstance(error, HorologError) else repr(error)
        if text != self._reports.get(connection.address):
            self._reported = self._reports[connection.address] = text
            self._member.observe("leader_not_followed", address=connection.address, error=text)

    def _take_at_once(self, connection: LeaderConnection, response: ReplicateResponse) -> bool:
        """Handle an answer at once if the disk need not be waited for. Returns whether it did."""
        if response.answers != Answers.FETCHED:
            return False
        take_response(response, self._is_here)
        if self._waits_for(response):
            return False
        self._record(response)
        self._deliver(connection, response)
        return True

    def _waits_for(self, response: ReplicateResponse) -> bool:
        """Whether something has to be written to the disk before the state machine gets an
        answer."""
        logs = self._member.stored.logs
        for part in response.parts:
            log = logs[partition_of(part)]
            if part.state_bytes or log.log_start_offset < part.log_start_offset:
                return True
            if part.stored is not None and log.needs_lines(part.stored):
                return True
        return False

    async def _take(self, connection: LeaderConnection, response: ReplicateResponse) -> None:
        member, node = self._member, self._member.node
        self._ignore_strange_epoch(response)
        take_response(response, self._is_here)
        welcome = response.answers == Answers.WELCOME
        if welcome and response.epoch >= node.highest_epoch:
            if not is_id(response.cluster_id):
                raise InvalidRequest(f"the leader's cluster id is {response.cluster_id[:64]!r}")
            member.directory.keep_cluster_id(response.cluster_id)
            self.leader_id = response.broker_id
            self._turn_failed = False
            self.kafka_address = reachable(
                response.kafka_address, split_address(connection.address.rpartition("://")[2])[0]
            )
        if welcome or response.answers == Answers.REFUSAL:
            coming = Identity(highest_epoch=response.epoch)
            await member.stored.store_ahead(coming, member.work)
        if welcome:
            owners = owners_of(response.owners)
            coming_owners = merged(member.stored.owners, owners, MAX_LEADER_EPOCHS)
            if not node.conflict(owners):
                await member.stored.write_owners_ahead(coming_owners, member.work)
        if welcome or response.answers == Answers.FETCHED:
            self._record(response)
        if response.answers == Answers.FETCHED:
            await self._take_state(response)
            await self._raise_starts(response)
            await write_lines_of(member, response)
        if connection.closed:
            return
        before = node.follower.epoch if node.follower is not None else None
        self._deliver(connection, response)
        if welcome and node.follower is not None and before != node.follower.epoch:
            self._reported = None
            self._reports.clear()
            member.observe(
                "follows",
                leader=response.broker_id,
                address=connection.address,
                epoch=response.epoch,
            )

    def _ignore_strange_epoch(self, response: ReplicateResponse) -> None:
        """Ignore the epoch of a refusal if this broker has joined no cluster: it joins the cluster
        of its leader, not of every broker that it asks."""
        if response.answers == Answers.REFUSAL and self._member.node.highest_epoch == NO_EPOCH:
            response.epoch = NO_EPOCH

    def _deliver(self, connection: LeaderConnection, response: ReplicateResponse) -> None:
        """Pass an answer to the state machine, and carry out the effects."""
        member, node = self._member, self._member.node
        if response.answers == Answers.FETCHED:
            self._follow_starts(response)
        now_s = member.now_s
        node.ask_ahead(now_s, connection, response)
        member.settle()
        try:
            node.from_leader(now_s, connection, response)
        finally:
            member.settle()

    def _is_here(self, part: ReplicatedPart) -> bool:
        """Whether a part belongs to a topic that exists here, with the same id."""
        stored = self._member.stored.logs.get(partition_of(part))
        return stored is not None and stored.topic_id == part.topic_id

    async def _take_state(self, response: ReplicateResponse) -> None:
        """Store the parts of the leader's metadata state."""
        for part in response.parts:
            if part.state_bytes and partition_of(part) == METADATA:
                take = partial(self._member.stored.metadata.take_part, read_state_part(part))
                await self._member.in_storage_thread(take)

    async def _raise_starts(self, response: ReplicateResponse) -> None:
        """Move log starts to those of the leader, with one write for all logs: retention moves many
        at a time. The state machine moves the other log starts, one by one."""
        raised: list[Log] = []
        for part in response.parts:
            stored = self._member.stored.logs.get(partition_of(part))
            if stored is None or part.diverging or stored.partition == METADATA:
                continue
            if stored.log_start_offset < part.log_start_offset <= stored.log_end_offset:
                await self._member.synced_to(stored.log, part.log_start_offset)
                stored.begin_at(part.log_start_offset)
                raised.append(stored.log)
        if raised:
            await self._member.secure_starts(raised)
            for log in raised:
                # The leader waits for a confirmation.
                self._member.node.synced((log.topic, log.partition))
            self._member.settle()

    def _follow_starts(self, response: ReplicateResponse) -> None:
        """Hide messages below the leader's log start from consumers, if that lies inside a record
        set, which is copied as a whole."""
        for part in response.parts:
            stored = self._member.stored.logs.get(partition_of(part))
            inside = part.first_visible_offset > part.log_start_offset
            if stored is not None and inside and not part.diverging:
                stored.log.expiry.trim(min(part.first_visible_offset, stored.log.recovery_point))

    def _record(self, response: ReplicateResponse) -> None:
        """Record how far this broker is behind, what the leader says of the cluster, and the rate
        of messages."""
        self._pause_s = FIRST_PAUSE_S
        now_s = self._member.now_s
        self.answered_s, self.behind_messages = now_s, response.behind_messages
        self.in_sync = response.in_sync
        if response.unreadable != self.unreadable:
            self.unreadable = response.unreadable
            if self.unreadable:
                self._member.observe(
                    "leader_cannot_read", leader=self.leader_id, error=self.unreadable
                )
        if response.members:
            self.others = {
                one.broker_id: PeerInfo(one.address, one.kafka_address)
                for one in response.members
                if one.broker_id != self._member.broker_id
            }
        if not self._counts or now_s - self._counts[-1][0] >= 1:
            stored = self._member.stored
            ends = sum(map(_end_of, stored.logs.values())) - stored.metadata.log_end_offset
            self._counts.append((now_s, ends))
            self._counts = [one for one in self._counts if now_s - one[0] <= RATE_S]

    def ask_again(self) -> None:
        """Connect to the leader anew, every `AGAIN_S`, if some partitions could not be copied."""
        member = self._member
        follower, failing = member.node.follower, member.stored.failing
        if follower is not None and failing and member.now_s - self._tried_s >= AGAIN_S:
            self._tried_s = member.now_s
            member.happens(lambda _: follower.drop())

    def missing(self) -> MissingReplica:
        """Estimate which messages this broker may lack by now."""
        if self.behind_messages is None:
            return not_known(self._member.stored.logs)
        silent_s = max(self._member.now_s - self.answered_s, 0.0)
        if len(self._counts) < 2:
            return MissingReplica(self.behind_messages, silent_s)
        (first_s, first), (last_s, last) = self._counts[0], self._counts[-1]
        rate = max(last - first, 0) / max(last_s - first_s, 1.0)
        return MissingReplica(self.behind_messages + round(rate * silent_s), silent_s)

    def leads(self, *, with_loss: bool) -> None:
        """Forget what the last leader said, because this broker leads now. `with_loss`: messages
        may be missing, which is reported."""
        if with_loss:
            self._member.observe("elected_with_loss", **self.missing().fields())
        self.in_sync = ()
        self.unreadable = ""
        self.behind_messages = None
