"""What the store of topics and positions knows of who leads: the cluster's word."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...protocol.errors import CodedError, CoordinatorNotAvailable, NotCoordinator
from ...replication.effects import Outcome
from ...storage.log.log import Log
from .commits import Commit, error_of
from .stored_metadata import METADATA

if TYPE_CHECKING:
    from .cluster import Cluster


class ClusterLeadership:
    """The `Leadership` of a broker of a cluster; see there."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    def check_topics(self) -> None:
        self._cluster.serving.check_change()

    def check_coordinates(self) -> None:
        if not self._cluster.leads:
            raise NotCoordinator(self._cluster.leader_hint)

    def check_positions(self) -> None:
        cluster = self._cluster
        outcome = cluster.node.refusal(cluster.now_s, acks_all=True)
        if outcome is Outcome.NOT_LEADER:
            raise NotCoordinator(cluster.leader_hint)
        if outcome is not None:
            raise CoordinatorNotAvailable(error_of(outcome, cluster.leader_hint).message)

    def begin_append(self) -> None:
        self._cluster.node.begin_append(METADATA)

    def appended(self, offset: int, settled: Callable[[CodedError | None], None]) -> None:
        cluster = self._cluster
        commit = Commit(settled)
        cluster.node.appended(METADATA, offset, offset + 1, commit)
        cluster.settle()

    async def trimmed(self, logs: Sequence[Log]) -> Mapping[Log, Exception]:
        serving = self._cluster.serving
        waits = [serving.trimmed(log) for log in logs]
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        return {
            log: outcome
            for log, outcome in zip(logs, outcomes, strict=True)
            if isinstance(outcome, Exception)
        }
