"""How a cluster member serves clients: which requests it answers, and what answers wait for."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final

from ...protocol.api.broker.describe_cluster import DESCRIBE_CLUSTER
from ...protocol.api.groups.find_coordinator import FIND_COORDINATOR
from ...protocol.api.groups.list_groups import LIST_GROUPS, ListGroupsResponse
from ...protocol.api.log.count_by_time import CountByTimeRequest
from ...protocol.api.pieces import Pieces
from ...protocol.api.registry import APIS
from ...protocol.api.schema import Api, ServedBy, replaced
from ...protocol.api.topics.metadata import METADATA, MetadataResponse
from ...protocol.errors import (
    CodedError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    ReplicaNotAvailable,
    RequestTimedOut,
)
from ...protocol.window_topics import base_of
from ...replication.effects import Outcome
from ...replication.follower import Follower
from ...replication.leader import Leader
from ...replication.partition_log import Partition
from ...storage.log.admitted import Appended
from ...storage.log.log import Log
from ...storage.metadata.folder import METADATA_PARTITION
from ...storage.replica.replica_log import ReplicaLog
from ..handlers.base import Services
from ..metadata_store import MetadataStore
from ..parking import ParkingLot
from ..requests import Call, Handler, HandlerOfMany, PendingAnswer, in_turns, then
from .broker_addresses import BrokerAddresses
from .member import ClusterMember
from .replica_fetcher import ReplicaFetcher
from .replica_states import ReplicaStates
from .service import Commit
from .topic_forwarding import ForwardedTopicCreation, with_failures

PART_BYTES: Final = 192 << 10
"""The least size of the part of a produce that is appended, and copied by followers, before the
rest is appended, so that both brokers work at the same time. A smaller part costs more than it
gains."""

KNOWN_S: Final = 5.0
"""How long a metadata request waits at a new leader for its topics, before it is answered with the
topics that are known."""

WAIT_MS: Final = 30_000
"""How long a trim waits for all in-sync replicas."""


def error_of(outcome: Outcome, leader_hint: str) -> CodedError:
    """Return the error for a client, from the state machine's outcome of its request."""
    if outcome is Outcome.NOT_LEADER:
        return NotLeader(leader_hint)
    if outcome is Outcome.NOT_ENOUGH_REPLICAS:
        return NotEnoughReplicas(
            "fewer brokers are in sync than min.insync.replicas; nothing was done "
            "(horolog cluster status)"
        )
    return NotEnoughReplicasAfterAppend(
        "fewer brokers are in sync than min.insync.replicas; the messages are in the log, "
        "and may be lost if this broker is"
    )


class FollowerReads:
    """Reads at a follower: which messages clients may read from its copy, and when.

    A follower answers up to its own high watermark, to clients that allow it. It answers for a
    partition only after it has copied, since it began to follow, all that was committed there:
    messages that it had before may be truncated, and may be fewer than clients have seen elsewhere.
    It discards an answer if the log was truncated during the read. With access rules, it answers
    nothing once its leader has been silent for too long: the rules may have changed meanwhile.
    """

    def __init__(
        self, member: ClusterMember, fetcher: ReplicaFetcher, states: ReplicaStates
    ) -> None:
        self._member = member
        self._fetcher = fetcher
        self._states = states

    def may(self, api: Api, request: Any) -> bool:
        """Whether this broker is a follower that may answer the request."""
        if api.served_by is not ServedBy.LEADER_OR_FOLLOWER:
            return False
        return self._member.node.follower is not None and bool(request.allow_follower)

    def answer(self, request: Any, handle: Callable[[], Any]) -> Pieces[Any]:
        """Return this follower's answer to a request, which `handle` makes.

        Raises `ReplicaNotAvailable` if the request cannot be answered from this copy; a pending
        answer raises it later, if the copy cannot be used any more.
        """
        follower = self._member.node.follower
        assert follower is not None
        self.check_rules()
        read = []
        topics = self._member.directory.topics()
        for (topic, number), seen_offset in _asked(request):
            partition = base_of(topics, topic), number
            read.append(self._read(follower, partition, seen_offset))
            yield

        def end(body: Any) -> Any:
            if self._member.node.follower is not follower:
                raise ReplicaNotAvailable(
                    f"broker {self._member.broker_id} followed another leader when this was asked"
                )
            for stored, cuts in read:
                if stored.cuts != cuts:
                    raise self._not_now(stored.partition, "was cut while it was read")
            self.check_rules()
            body.follower_heard_ms = self._heard_ms()
            return body

        return then(handle(), end)

    def check_rules(self) -> None:
        """Raise `ReplicaNotAvailable` if the access rules known here may be out of date."""
        problem = self._states.rules_may_be_old()
        if problem:
            raise ReplicaNotAvailable(problem)

    def _read(
        self, follower: Follower, partition: Partition, seen_offset: int
    ) -> tuple[ReplicaLog, int]:
        stored = self._member.stored.logs.get(partition)
        if stored is None or partition in self._member.stored.failing:
            raise self._not_now(partition, "is not copied here")
        if stored.damaged_from is not None:
            raise self._not_now(partition, f"is damaged here from offset {stored.damaged_from} on")
        if not follower.has_reached(partition):
            raise self._not_now(partition, "has not been copied up to what was committed yet")
        if stored.log.high_watermark < seen_offset:
            raise self._not_now(
                partition,
                f"ends here at offset {stored.log.high_watermark}, below {seen_offset}, which the "
                "client has seen",
            )
        return stored, stored.cuts

    def _not_now(self, partition: Partition, why: str) -> ReplicaNotAvailable:
        topic, number = partition
        return ReplicaNotAvailable(f"{topic}-{number} {why}; {self._states.leader_hint}")

    def _heard_ms(self) -> int:
        member = self._member
        return max(round((member.now_s - self._fetcher.answered_s) * 1000), 0)


def _asked(request: Any) -> Iterator[tuple[Partition, int]]:
    """Yield the partitions of a request, each with the offset up to which the client has seen it,
    -1 if unknown."""
    if isinstance(request, CountByTimeRequest):
        yield (request.topic, request.partition), request.seen_offset
        return
    for topic in request.topics:
        for one in topic.partitions:
            yield (topic.name, one.partition), getattr(one, "seen_offset", -1)


class Serving:
    """Serves the clients of a cluster member."""

    def __init__(
        self,
        member: ClusterMember,
        store: MetadataStore,
        produces: ParkingLot,
        *,
        fetcher: ReplicaFetcher,
        states: ReplicaStates,
        addresses: BrokerAddresses,
        forwarded: ForwardedTopicCreation,
    ) -> None:
        self._member = member
        self._store = store
        self._produces = produces
        self._states = states
        self._addresses = addresses
        self._forwarded = forwarded
        self._at_follower = FollowerReads(member, fetcher, states)
        self._readable: Leader | None = None
        """The leader state of this broker that was found `readable`; it stays so."""

    # Which requests.

    def error(self, api: Api) -> CodedError | None:
        """Return why this broker does not serve a request now; `None` if it does."""
        if api.served_by is ServedBy.ANY_BROKER:
            return None
        leader = self._member.leader
        if leader is None:
            return self._not_led(api)
        if not self._store.knows:
            return self._not_known(api)
        if api.served_by is ServedBy.LEADER_OR_FOLLOWER and leader is not self._readable:
            if not leader.readable:
                return OffsetNotAvailable(
                    "this broker leads since a moment ago, and does not know yet what the others "
                    "have; try again"
                )
            self._readable = leader
        return None

    def _not_known(self, api: Api) -> CodedError:
        text = "this broker leads since a moment ago, and reads what topics there are; try again"
        match api.served_by:
            case ServedBy.COORDINATOR:
                return CoordinatorLoading(text)
            case ServedBy.LEADER_OR_FOLLOWER:
                return OffsetNotAvailable(text)
            case _:
                return LeaderNotAvailable(text)

    def _not_led(self, api: Api) -> CodedError:
        hint = self._states.leader_hint
        return NotCoordinator(hint) if api.served_by is ServedBy.COORDINATOR else NotLeader(hint)

    def gated(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Return handlers that refuse requests which this broker does not serve now, for example
        because it does not lead, or does not lead any more when the answer is made."""
        gated = {
            key: handler
            if APIS[key].served_by is ServedBy.ANY_BROKER
            else self._gated(APIS[key], handler)
            for key, handler in handlers.items()
        }
        gated[METADATA.key] = self._metadata(handlers[METADATA.key])
        gated[DESCRIBE_CLUSTER.key] = self._brokers(handlers[DESCRIBE_CLUSTER.key])
        gated[FIND_COORDINATOR.key] = self._coordinator(handlers[FIND_COORDINATOR.key])
        gated[LIST_GROUPS.key] = self._groups(gated[LIST_GROUPS.key])
        return gated

    def _metadata(self, handler: Handler) -> Handler:
        """Return the handler of metadata requests. A leader creates missing topics once it knows
        which exist; a follower forwards the creation to the leader."""

        def handle(services: Services, request: Any, call: Call) -> Any:
            store, asked = self._store, self._forwarded
            if not self._member.leads:
                missing = asked.missing(services, request, call)
                request = replaced(request, allow_auto_topic_creation=False)
                if missing:
                    making = services.work.start(asked.make(missing))

                    def answer_when_made() -> Any:
                        def failed(response: MetadataResponse) -> Any:
                            return with_failures(response, making.result(), services)

                        return then(answer(services, request, call), failed)

                    return PendingAnswer(making, answer_when_made, alone=True)
            elif not store.knows:
                # The answer must include all topics that an earlier leader has shown.
                task = services.work.start(store.known(KNOWN_S))
                return PendingAnswer(task, lambda: answer(services, request, call))
            return answer(services, request, call)

        def answer(services: Services, request: Any, call: Call) -> Any:
            def placed(response: MetadataResponse) -> Any:
                return in_turns(services.work, self._addresses.metadata(response, call))

            return then(handler(services, request, call), placed)

        return handle

    def _brokers(self, handler: Handler) -> Handler:
        """Return a handler whose answers name all known brokers and the leader."""

        def handle(services: Services, request: Any, call: Call) -> Any:
            response = handler(services, request, call)
            return self._addresses.brokers(response, call)

        return handle

    def _coordinator(self, handler: Handler) -> Handler:
        """Return the handler that answers with the leader, which coordinates all groups."""

        def handle(services: Services, request: Any, call: Call) -> Any:
            response = handler(services, request, call)
            return response if self._member.leads else self._addresses.coordinator(call)

        return handle

    def _groups(self, gated: Handler) -> Handler:
        """Return the handler that lists groups. Clients of Kafka's protocol ask each broker for the
        groups that it coordinates, and a follower coordinates none."""

        def handle(services: Services, request: Any, call: Call) -> Any:
            if call.kafka and not self._member.leads:
                self._addresses.coordinator(call)  # raises if no leader is known
                return ListGroupsResponse(groups=[])
            return gated(services, request, call)

        return handle

    def _gated(self, api: Api, handler: Handler) -> Handler:
        def handle(services: Services, request: Any, call: Call) -> Any:
            if self._at_follower.may(api, request):
                return in_turns(
                    services.work,
                    self._at_follower.answer(request, lambda: handler(services, request, call)),
                )
            self.check(api)
            epoch = self._member.epoch
            same = partial(self._same, api, epoch)
            return then(handler(services, request, call), same)

        return handle

    def gated_many(self, handlers: Mapping[int, HandlerOfMany]) -> dict[int, HandlerOfMany]:
        """As `gated`, for handlers of requests that arrive together."""
        return {key: self._gated_many(APIS[key], handler) for key, handler in handlers.items()}

    def _gated_many(self, api: Api, handler: HandlerOfMany) -> HandlerOfMany:
        def handle(services: Services, version: int, requests: Sequence[Any]) -> Sequence[Any]:
            error = self.error(api)
            if error is not None:
                alone = partial(self._without_leading, api, handler, error, services, version)
                return list(map(alone, requests))
            outcomes = handler(services, version, requests)
            if api.served_by is not ServedBy.LEADER_OR_FOLLOWER:
                return outcomes  # A produce checks leadership itself: appending, and by `Commit`.
            epoch = self._member.epoch
            return [
                one if isinstance(one, Exception) else then(one, partial(self._same, api, epoch))
                for one in outcomes
            ]

        return handle

    def _without_leading(
        self,
        api: Api,
        handler: HandlerOfMany,
        error: CodedError,
        services: Services,
        version: int,
        request: Any,
    ) -> Any:
        """Return the outcome of one request at a broker that cannot serve it as leader: the answer
        of a follower if that is allowed, otherwise `error`."""
        if not self._at_follower.may(api, request):
            return error

        def answer() -> Any:
            (outcome,) = handler(services, version, (request,))
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        try:
            return in_turns(services.work, self._at_follower.answer(request, answer))
        except Exception as refused:
            return refused

    def check(self, api: Api) -> None:
        """Raise a `CodedError` if this broker does not serve a request now."""
        error = self.error(api)
        if error is not None:
            raise error

    def _same(self, api: Api, epoch: int, body: Any) -> Any:
        """Return `body` if this broker still leads in the same epoch. Otherwise raise: its log may
        have been truncated while the answer was pending."""
        if self._member.epoch != epoch:
            raise self._not_led(api)
        return body

    # Sets.

    def check_append(self) -> None:
        """Raise a `CodedError` if this broker may not append messages now."""
        self._check_refusal(acks_all=False)

    def check_change(self) -> None:
        """Raise a `CodedError` if this broker may not change topics now."""
        self._check_refusal(acks_all=True)

    def _check_refusal(self, *, acks_all: bool) -> None:
        member = self._member
        outcome = member.node.refusal(member.now_s, acks_all)
        if outcome is not None:
            raise error_of(outcome, self._states.leader_hint)

    def begin_append(self, log: Log, acks: int) -> None:
        """Prepare an append to a log. Called after `check_append`. Raises a `CodedError` if this
        broker may not append to the log."""
        member = self._member
        member.check_topics()
        partition = log.topic, log.partition
        stored = member.stored.logs.get(partition)
        if stored is None or stored.log is not log:
            raise NotLeader(f"{log.topic}-{log.partition} cannot be replicated: its log is damaged")
        outcome = member.node.refusal(member.now_s, acks == -1, partition)
        if outcome is not None:
            raise error_of(outcome, self._states.leader_hint)
        member.node.begin_append(partition)

    @staticmethod
    def first_part(sizes: Sequence[int]) -> int:
        """Return how many of the record sets of a produce to append before the others; 0 to append
        all of them together. `sizes` are in bytes."""
        total = sum(sizes)
        if total < 2 * PART_BYTES or len(sizes) < 2:
            return 0
        return bisect_left(list(accumulate(sizes)), total // 2, hi=len(sizes) - 2) + 1

    def appended(self, log: Log, outcome: Appended, acks: int) -> Commit | None:
        """Report record sets that were appended, now or by an earlier attempt. Returns the wait for
        their commit, with `acks=all` only."""
        member = self._member
        partition = log.topic, log.partition
        commit = Commit() if acks == -1 else None
        node = member.node
        note = node.await_commit if outcome.repeated else node.appended
        note(partition, outcome.first_offsets[0], outcome.last_offset + 1, commit)
        member.settle()
        return commit

    # Trims.

    async def trimmed(self, log: Log) -> None:
        """Wait until all in-sync replicas have carried out a trim. Raises `CodedError` if they
        cannot."""
        member = self._member
        partition = log.topic, log.partition
        if partition not in member.stored.logs or not member.leads:
            raise NotLeader(self._states.leader_hint)
        commit = Commit()
        ready = self._produces.park([commit], lambda _: commit.done, WAIT_MS, requests=1)
        member.node.trimmed(partition, commit)
        member.settle()
        if not commit.done:
            await ready
        else:
            ready.cancel()
        if not commit.done:
            raise RequestTimedOut(f"the in-sync replicas did not follow within {WAIT_MS} ms")
        if commit.error is not None:
            raise commit.error


class ClusterLeadership:
    """The `Leadership` of a cluster member."""

    alone = False

    def __init__(self, member: ClusterMember, serving: Serving, states: ReplicaStates) -> None:
        self._member = member
        self._serving = serving
        self._states = states

    def check_topics(self) -> None:
        self._serving.check_change()

    def check_coordinates(self) -> None:
        if not self._member.leads:
            raise NotCoordinator(self._states.leader_hint)

    def check_positions(self) -> None:
        member = self._member
        outcome = member.node.refusal(member.now_s, acks_all=True)
        if outcome is Outcome.NOT_LEADER:
            raise NotCoordinator(self._states.leader_hint)
        if outcome is not None:
            raise CoordinatorNotAvailable(error_of(outcome, self._states.leader_hint).message)

    def begin_append(self) -> None:
        self._member.node.begin_append(METADATA_PARTITION)

    def appended(self, offset: int, settled: Callable[[CodedError | None], None]) -> None:
        member = self._member
        commit = Commit(settled)
        member.node.appended(METADATA_PARTITION, offset, offset + 1, commit)
        member.settle()

    async def trimmed(self, logs: Sequence[Log]) -> Mapping[Log, Exception]:
        serving = self._serving
        waits = [serving.trimmed(log) for log in logs]
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        return {
            log: outcome
            for log, outcome in zip(logs, outcomes, strict=True)
            if isinstance(outcome, Exception)
        }
