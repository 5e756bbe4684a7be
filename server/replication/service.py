"""What the rest of a broker asks of replication, whether other brokers copy from it or not."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from ...protocol.api.cluster.describe_replicas import DescribeReplicasResponse
from ...protocol.api.cluster.promote import PromoteRequest, PromoteResponse
from ...protocol.api.cluster.replicate import ReplicateRequest
from ...protocol.errors import CodedError
from ...storage.log.admitted import Appended
from ...storage.log.log import Log
from ..metrics.replica_families import ReplicaFigures
from ..requests import Call, Handler, HandlerOfMany, PendingAnswer


class Commit:
    """The wait of a client until all in-sync replicas have a set, or a trim."""

    __slots__ = ("_on_settled", "done", "error")

    def __init__(self, on_settled: Callable[[CodedError | None], None] | None = None) -> None:
        """`on_settled` is called with the error, if there is one, once the outcome is known."""
        self._on_settled = on_settled
        self.done = False
        self.error: CodedError | None = None
        """The error of the answer, if the outcome is not what the client asked for."""

    def settle(self, error: CodedError | None) -> None:
        """The outcome is known."""
        self.done = True
        self.error = error
        if self._on_settled is not None:
            self._on_settled(error)


class Replication(Protocol):
    """The broker's place in its cluster: `SingleNode`, or `Cluster`."""

    @property
    def replicates(self) -> bool:
        """Whether the broker is a cluster member. Where it is not, what concerns a single set
        (`first_part` to `appended`) need not be called."""
        ...

    @property
    def leads(self) -> bool:
        """Whether this broker serves the clients that have to ask the leader."""
        ...

    @property
    def epoch(self) -> int:
        """In which this broker leads; 0 for a cluster member that does not lead, -1 for a single
        broker."""
        ...

    async def start(self) -> None:
        """Begin to lead, or to follow. Raises `InvalidConfig`."""
        ...

    async def stop(self) -> None:
        """Hand over, or leave the in-sync replicas, and end all copying."""
        ...

    # Which requests are served.

    def gated(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """Handlers that refuse requests which this broker does not serve now."""
        ...

    def gated_many(self, handlers: Mapping[int, HandlerOfMany]) -> Mapping[int, HandlerOfMany]:
        """The same for requests that arrive together."""
        ...

    def rules_may_be_old(self) -> str:
        """Why clients are not to be served by the access rules that are known here; empty where
        they are."""
        ...

    def leads_not(self) -> str:
        """Why this broker does not lead, and who does; empty for the leader."""
        ...

    def not_ready(self) -> str:
        """Why clients had better ask another broker; empty if they need not."""
        ...

    # Sets that producers send.

    def first_part(self, sizes: Sequence[int], /) -> int:
        """How many of the sets that came together are to be appended before the others; 0 where
        all of them are one part."""
        ...

    def check_append(self) -> None:
        """Raise why nothing may be appended now, if so."""
        ...

    def begin_append(self, log: Log, acks: int, /) -> None:
        """To be called before something is appended, behind `check_append`; raises why it may
        not be."""
        ...

    def appended(self, log: Log, outcome: Appended, acks: int, /) -> Commit | None:
        """Sets were appended, or had been before; the wait for them with `acks=all`."""
        ...

    # The brokers of the cluster.

    def broker_ids(self) -> Collection[int]:
        """The brokers on record; all of them have every topic."""
        ...

    def most_in_sync(self) -> int | None:
        """How many brokers can be in sync; `None` where it is not known."""
        ...

    def describe(self, *, log_ends: bool = False) -> DescribeReplicasResponse:
        """How the cluster is, as this broker knows it; without a leader with the ends of its logs,
        where `log_ends` are wanted. Raises `InvalidRequest` for a single broker."""
        ...

    def figures(self) -> ReplicaFigures | None:
        """What the metrics show of replication."""
        ...

    def replicate(self, services: Any, request: ReplicateRequest, call: Call) -> Any:
        """Answer another broker. Raises `CodedError`."""
        ...

    def promote(self, request: PromoteRequest) -> PromoteResponse | PendingAnswer:
        """Let a broker lead. Raises `CodedError`."""
        ...
