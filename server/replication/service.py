"""The interface of replication to the rest of a broker, single or in a cluster; and a single-node
cluster, where every write is committed as soon as it is local."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from ...protocol.api.cluster.describe_replicas import DescribeReplicasResponse
from ...protocol.api.cluster.promote import PromoteRequest, PromoteResponse
from ...protocol.api.cluster.replicate import ReplicateRequest
from ...protocol.errors import CodedError, InvalidRequest
from ...storage.log.admitted import Appended
from ...storage.log.epoch_history import NO_EPOCH
from ...storage.log.log import Log
from ..metrics.replica_families import ReplicaFigures
from ..requests import Call, Handler, HandlerOfMany, PendingAnswer


class Commit:
    """The wait of a client until all in-sync replicas have a record set, or a trim."""

    __slots__ = ("_on_settled", "done", "error")

    def __init__(self, on_settled: Callable[[CodedError | None], None] | None = None) -> None:
        """`on_settled` is called with the error, if there is one, once the outcome is known."""
        self._on_settled = on_settled
        self.done = False
        self.error: CodedError | None = None
        """The error of the answer, if the outcome is not what the client asked for."""

    def settle(self, error: CodedError | None) -> None:
        """End the wait, with the error if there is one."""
        self.done = True
        self.error = error
        if self._on_settled is not None:
            self._on_settled(error)


class Replication(Protocol):
    """The broker's place in its cluster: `SingleNode`, or `Cluster`."""

    @property
    def replicates(self) -> bool:
        """Whether the broker is a cluster member. If not, the functions for record sets
        (`first_part` to `appended`) need not be called."""
        ...

    @property
    def leads(self) -> bool:
        """Whether this broker serves the clients that have to ask the leader."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch in which this broker leads; 0 for a cluster member that does not lead, -1 for a
        single broker."""
        ...

    async def start(self) -> None:
        """Begin to lead, or to follow. Raises `InvalidConfig`."""
        ...

    async def stop(self) -> None:
        """Hand over, or leave the in-sync replicas, and end all copying."""
        ...

    # Which requests are served.

    def gated(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """Return handlers that refuse requests which this broker does not serve now."""
        ...

    def gated_many(self, handlers: Mapping[int, HandlerOfMany]) -> Mapping[int, HandlerOfMany]:
        """As `gated`, for handlers of requests that arrive together."""
        ...

    def rules_may_be_old(self) -> str:
        """Return why the access rules known here may be out of date, so that clients must not be
        served; empty if they are not."""
        ...

    def leads_not(self) -> str:
        """Return why this broker does not lead, and who does; empty for the leader."""
        ...

    def not_ready(self) -> str:
        """Return why clients should use another broker; empty if they need not."""
        ...

    # Sets that producers send.

    def first_part(self, sizes: Sequence[int], /) -> int:
        """Return how many of the record sets of a produce to append before the others; 0 to append
        all of them together. `sizes` are in bytes."""
        ...

    def check_append(self) -> None:
        """Raise a `CodedError` if this broker may not append messages now."""
        ...

    def begin_append(self, log: Log, acks: int, /) -> None:
        """Prepare an append to a log. Called after `check_append`. Raises a `CodedError` if this
        broker may not append to the log."""
        ...

    def appended(self, log: Log, outcome: Appended, acks: int, /) -> Commit | None:
        """Report record sets that were appended, now or by an earlier attempt. Returns the wait for
        their commit, with `acks=all` only."""
        ...

    # The brokers of the cluster.

    def broker_ids(self) -> Collection[int]:
        """Return the ids of the known brokers; each has a replica of every topic."""
        ...

    def most_in_sync(self) -> int | None:
        """Return how many brokers can be in sync; `None` if that is not known."""
        ...

    def describe(self, *, log_ends: bool = False) -> DescribeReplicasResponse:
        """Describe the cluster, as far as this broker knows it. With `log_ends`, and if no leader
        is known, the answer includes the ends of this broker's logs. Raises `InvalidRequest` for a
        single broker."""
        ...

    def figures(self) -> ReplicaFigures | None:
        """Return the figures of replication for the metrics."""
        ...

    def replicate(self, services: Any, request: ReplicateRequest, call: Call) -> Any:
        """Answer a `replicate` request of another broker. Raises `CodedError`."""
        ...

    def promote(self, request: PromoteRequest) -> PromoteResponse | PendingAnswer:
        """Let this broker lead, or hand over to another broker. Raises `CodedError`."""
        ...


class SingleNode:
    """The `Replication` of a single broker."""

    replicates: Final = False
    leads: Final = True
    epoch: Final = NO_EPOCH

    def __init__(self, broker_id: int) -> None:
        self._broker_ids = (broker_id,)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def gated(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        return handlers

    def gated_many(self, handlers: Mapping[int, HandlerOfMany]) -> Mapping[int, HandlerOfMany]:
        return handlers

    def rules_may_be_old(self) -> str:
        return ""

    def leads_not(self) -> str:
        return ""

    def not_ready(self) -> str:
        return ""

    def first_part(self, sizes: Sequence[int], /) -> int:
        return 0

    def check_append(self) -> None:
        pass

    def begin_append(self, log: Log, acks: int, /) -> None:
        pass

    def appended(self, log: Log, outcome: Appended, acks: int, /) -> Commit | None:
        return None

    def broker_ids(self) -> Collection[int]:
        return self._broker_ids

    def most_in_sync(self) -> int | None:
        return 1

    def describe(self, *, log_ends: bool = False) -> DescribeReplicasResponse:
        raise _no_cluster()

    def figures(self) -> ReplicaFigures | None:
        return None

    def replicate(self, services: Any, request: ReplicateRequest, call: Call) -> Any:
        raise _no_cluster()

    def promote(self, request: PromoteRequest) -> PromoteResponse | PendingAnswer:
        raise _no_cluster()


def _no_cluster() -> InvalidRequest:
    return InvalidRequest(
        "this broker is alone: it belongs to no cluster, and no broker can follow it. Start it "
        "with --broker-id N --create-cluster to let others follow it"
    )


class SingleNodeLeadership:
    """The `Leadership` of a single broker: it always leads, and is always in sync."""

    alone = True

    def check_topics(self) -> None:
        pass

    def check_coordinates(self) -> None:
        pass

    def check_positions(self) -> None:
        pass

    def begin_append(self) -> None:
        pass

    def appended(self, offset: int, settled: Callable[[CodedError | None], None]) -> None:
        settled(None)

    async def trimmed(self, logs: Sequence[Log]) -> Mapping[Log, Exception]:
        return {}
