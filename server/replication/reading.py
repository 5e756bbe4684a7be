"""Reads at a follower: what clients may have of a copy, and when they may not.

A follower answers up to its own high watermark, to who allows it. It gives nothing of a partition
before it has had, since it began to follow, all that was committed there: what it had before may
be cut off, and less than others have shown. Nor does it give what was read while a log was cut.
Where access rules count, it gives nothing once its leader has been silent for too long: the rules
may have changed meanwhile.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...protocol.api.log.count_by_time import CountByTimeRequest
from ...protocol.api.pieces import Pieces
from ...protocol.api.schema import Api, ServedBy
from ...protocol.cluster_errors import ReplicaNotAvailable
from ...replication.follower import Follower
from ...replication.partition_log import Partition
from ..handlers.base import then
from ..window_topics import base_of
from .stored_log import StoredLog

if TYPE_CHECKING:
    from .cluster import Cluster


class FollowerReads:
    """What a broker that follows does for who reads from it."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    def may(self, api: Api, request: Any) -> bool:
        """Whether a follower may answer a request, and this broker is one."""
        if api.served_by is not ServedBy.LEADER_OR_FOLLOWER:
            return False
        return self._cluster.node.follower is not None and bool(request.allow_follower)

    def answer(self, request: Any, handle: Callable[[], Any]) -> Pieces[Any]:
        """The answer of this broker to a request that `handle` answers.

        Raises `ReplicaNotAvailable` where the request cannot be answered from this copy, and so
        does what comes later, if it cannot any more.
        """
        follower = self._cluster.node.follower
        assert follower is not None
        self.check_rules()
        read = []
        topics = self._cluster.directory.topics()
        for (topic, number), seen_offset in _asked(request):
            partition = base_of(topics, topic), number
            read.append(self._read(follower, partition, seen_offset))
            yield

        def end(body: Any) -> Any:
            if self._cluster.node.follower is not follower:
                raise ReplicaNotAvailable(
                    f"broker {self._cluster.broker_id} followed another leader when this was asked"
                )
            for stored, cuts in read:
                if stored.cuts != cuts:
                    raise self._not_now(stored.partition, "was cut while it was read")
            self.check_rules()
            body.follower_heard_ms = self._heard_ms()
            return body

        return then(handle(), end)

    def check_rules(self) -> None:
        """Raise `ReplicaNotAvailable` where the access rules that are known here may be old."""
        problem = self._cluster.standing.rules_may_be_old()
        if problem:
            raise ReplicaNotAvailable(problem)

    def _read(
        self, follower: Follower, partition: Partition, seen_offset: int
    ) -> tuple[StoredLog, int]:
        stored = self._cluster.stored.logs.get(partition)
        if stored is None or partition in self._cluster.stored.failing:
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
        return ReplicaNotAvailable(f"{topic}-{number} {why}; {self._cluster.leader_hint}")

    def _heard_ms(self) -> int:
        cluster = self._cluster
        return max(round((cluster.now_s - cluster.fetcher.answered_s) * 1000), 0)


def _asked(request: Any) -> Iterator[tuple[Partition, int]]:
    """The partitions of a request, and what the client has seen of each."""
    if isinstance(request, CountByTimeRequest):
        yield (request.topic, request.partition), request.seen_offset
        return
    for topic in request.topics:
        for one in topic.partitions:
            yield (topic.name, one.partition), getattr(one, "seen_offset", -1)
