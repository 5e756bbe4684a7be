"""A leader's side towards its clients: what they may ask for, and what they wait for."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from ...protocol.api.broker.describe_cluster import DESCRIBE_CLUSTER
from ...protocol.api.groups.find_coordinator import FIND_COORDINATOR
from ...protocol.api.registry import APIS
from ...protocol.api.schema import Api, ServedBy, replaced
from ...protocol.api.topics.metadata import METADATA, MetadataResponse
from ...protocol.errors import (
    CodedError,
    CoordinatorLoading,
    LeaderNotAvailable,
    NotCoordinator,
    NotLeader,
    OffsetNotAvailable,
)
from ...replication.leader import Leader
from ...storage.log.admitted import Appended
from ...storage.log.log import Log
from ..handlers.base import Call, Handler, HandlerOfMany, Services, in_turns, then
from ..requests import PendingAnswer
from .commits import Commit, error_of
from .reading import FollowerReads
from .topic_forwarding import with_failures

if TYPE_CHECKING:
    from .cluster import Cluster

PART_BYTES: Final = 192 << 10
"""Sets that a follower is sent at once, while more come with them: what one connection sends
would be at one broker after the other. Less than that costs more than is gained."""

KNOWN_S: Final = 5.0
"""How long a new leader is asked for its topics before it answers with those it knows."""


class Serving:
    """What a broker of a cluster does for its clients."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._at_follower = FollowerReads(cluster)
        self._readable: Leader | None = None
        """The leader of whom it is known that it may show what it has."""

    # Which requests.

    def error(self, api: Api) -> CodedError | None:
        """Why a request is not served now, if so."""
        if api.served_by is ServedBy.ANY_BROKER:
            return None
        leader = self._cluster.leader
        if leader is None:
            return self._not_led(api)
        if not self._cluster.store.knows:
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
        hint = self._cluster.leader_hint
        return NotCoordinator(hint) if api.served_by is ServedBy.COORDINATOR else NotLeader(hint)

    def gated(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Handlers that refuse requests which this broker does not serve now: for want of
        leadership, also where it has lost that by the time of the answer."""
        gated = {
            key: handler
            if APIS[key].served_by is ServedBy.ANY_BROKER
            else self._gated(APIS[key], handler)
            for key, handler in handlers.items()
        }
        gated[METADATA.key] = self._metadata(handlers[METADATA.key])
        gated[DESCRIBE_CLUSTER.key] = self._brokers(handlers[DESCRIBE_CLUSTER.key])
        gated[FIND_COORDINATOR.key] = self._coordinator(handlers[FIND_COORDINATOR.key])
        return gated

    def _metadata(self, handler: Handler) -> Handler:
        """Only a leader creates topics that metadata asks for, once it knows which exist; a
        follower forwards that to the leader."""

        def handle(services: Services, request: Any, call: Call) -> Any:
            store, asked = self._cluster.store, self._cluster.forwarded_creation
            if not self._cluster.leads:
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
                # No topic that an earlier leader has shown is to be missing.
                task = services.work.start(store.known(KNOWN_S))
                return PendingAnswer(task, lambda: answer(services, request, call))
            return answer(services, request, call)

        def answer(services: Services, request: Any, call: Call) -> Any:
            def placed(response: MetadataResponse) -> Any:
                return in_turns(services, self._cluster.addresses.metadata(response, call))

            return then(handler(services, request, call), placed)

        return handle

    def _brokers(self, handler: Handler) -> Handler:
        """All brokers that this one knows of, and which of them leads."""

        def handle(services: Services, request: Any, call: Call) -> Any:
            response = handler(services, request, call)
            return self._cluster.addresses.brokers(response, call)

        return handle

    def _coordinator(self, handler: Handler) -> Handler:
        """A follower says where the leader is, which looks after the groups."""

        def handle(services: Services, request: Any, call: Call) -> Any:
            response = handler(services, request, call)
            return response if self._cluster.leads else self._cluster.addresses.coordinator(call)

        return handle

    def _gated(self, api: Api, handler: Handler) -> Handler:
        def handle(services: Services, request: Any, call: Call) -> Any:
            if self._at_follower.may(api, request):
                return in_turns(
                    services,
                    self._at_follower.answer(request, lambda: handler(services, request, call)),
                )
            self.check(api)
            epoch = self._cluster.epoch
            same = partial(self._same, api, epoch)
            return then(handler(services, request, call), same)

        return handle

    def gated_many(self, handlers: Mapping[int, HandlerOfMany]) -> dict[int, HandlerOfMany]:
        """The same for requests that arrive together."""
        return {key: self._gated_many(APIS[key], handler) for key, handler in handlers.items()}

    def _gated_many(self, api: Api, handler: HandlerOfMany) -> HandlerOfMany:
        def handle(services: Services, version: int, requests: Sequence[Any]) -> Sequence[Any]:
            error = self.error(api)
            if error is not None:
                alone = partial(self._without_leading, api, handler, error, services, version)
                return list(map(alone, requests))
            outcomes = handler(services, version, requests)
            if api.served_by is not ServedBy.LEADER_OR_FOLLOWER:
                return outcomes  # Sets know of their epoch by themselves.
            epoch = self._cluster.epoch
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
        """The outcome of one of them at a broker that does not lead, because of `error`."""
        if not self._at_follower.may(api, request):
            return error

        def answer() -> Any:
            (outcome,) = handler(services, version, (request,))
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        try:
            return in_turns(services, self._at_follower.answer(request, answer))
        except Exception as refused:
            return refused

    def check(self, api: Api) -> None:
        """Raise why a request is not served now, if so."""
        error = self.error(api)
        if error is not None:
            raise error

    def _same(self, api: Api, epoch: int, body: Any) -> Any:
        """An answer that was waited for counts only if the broker leads still: its log may have
        been cut meanwhile."""
        if self._cluster.epoch != epoch:
            raise self._not_led(api)
        return body

    # Sets.

    def check_append(self) -> None:
        """Raise why nothing may be appended now, if so."""
        self._check_refusal(acks_all=False)

    def check_change(self) -> None:
        """Raise why topics may not be changed now, if so."""
        self._check_refusal(acks_all=True)

    def _check_refusal(self, *, acks_all: bool) -> None:
        cluster = self._cluster
        outcome = cluster.node.refusal(cluster.now_s, acks_all)
        if outcome is not None:
            raise error_of(outcome, cluster.leader_hint)

    def begin_append(self, log: Log, acks: int) -> None:
        """To be called before something is appended, behind `check_append`; raises why it may
        not be."""
        cluster = self._cluster
        cluster.look_at_topics()
        partition = log.topic, log.partition
        stored = cluster.stored.logs.get(partition)
        if stored is None or stored.log is not log:
            raise NotLeader(f"{log.topic}-{log.partition} cannot be replicated: its log is damaged")
        outcome = cluster.node.refusal(cluster.now_s, acks == -1, partition)
        if outcome is not None:
            raise error_of(outcome, cluster.leader_hint)
        cluster.node.begin_append(partition)

    @staticmethod
    def first_part(sizes: Sequence[int]) -> int:
        """How many of the sets that came together are to be appended before the others; 0 where
        all of them are one part."""
        total = sum(sizes)
        if total < 2 * PART_BYTES or len(sizes) < 2:
            return 0
        return bisect_left(list(accumulate(sizes)), total // 2, hi=len(sizes) - 2) + 1

    def appended(self, log: Log, outcome: Appended, acks: int) -> Commit | None:
        """Sets were appended, or had been before; the wait for them with `acks=all`."""
        cluster = self._cluster
        partition = log.topic, log.partition
        commit = Commit() if acks == -1 else None
        node = cluster.node
        note = node.await_commit if outcome.repeated else node.appended
        note(partition, outcome.first_offsets[0], outcome.last_offset + 1, commit)
        cluster.settle()
        return commit

    # Trims.

    async def trimmed(self, log: Log) -> None:
        """Wait until a trim is in all in-sync replicas. Raises `CodedError` when it cannot be."""
        cluster = self._cluster
        partition = log.topic, log.partition
        if partition not in cluster.stored.logs or not cluster.leads:
            raise NotLeader(cluster.leader_hint)
        commit = Commit()
        await cluster.settled(commit, lambda: cluster.node.trimmed(partition, commit))
        if commit.error is not None:
            raise commit.error
