"""A single-node cluster: every write is committed as soon as it is local."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from ..protocol.api.cluster.describe_replicas import DescribeReplicasResponse
from ..protocol.api.cluster.promote import PromoteRequest, PromoteResponse
from ..protocol.api.cluster.replicate import ReplicateRequest
from ..protocol.errors import CodedError, InvalidRequest
from ..storage.log.admitted import Appended
from ..storage.log.epoch_history import NO_EPOCH
from ..storage.log.log import Log
from .metrics.replica_families import ReplicaFigures
from .replication.service import Commit
from .requests import Call, Handler, HandlerOfMany, PendingAnswer


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
