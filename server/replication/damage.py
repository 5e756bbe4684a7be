"""Damage that is met while a broker of a cluster runs, at its own reads or at a follower's."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ...protocol.errors import HorologError
from ...replication.messages import FollowerPosition
from ...replication.partition_log import Partition
from ..scrubbing import Scrubber
from .channel import Channel
from .stored_log import StoredLog

if TYPE_CHECKING:
    from .cluster import Cluster

LOOK_S: Final = 1.0
"""How often a leader that has damage looks whether another broker can lead."""

CHECKS_MAX: Final = 8
"""Partitions that are checked for one request of a follower."""


class DamageWatch:
    """Reports damage to the state machine.

    The leader sends messages without looking at them. A follower that gets damaged ones appends
    none of them, and asks the leader to check what it has stored.
    """

    def __init__(self, cluster: "Cluster", scrubber: Scrubber) -> None:
        self._cluster = cluster
        self._scrubber = scrubber
        self._hurt = bool(cluster.stored.hurt())
        self._looked_s = 0.0
        self._checking: set[Partition] = set()
        """Partitions that are checked for a follower now."""
        self._found_good: dict[Partition, tuple[int, int]] = {}
        """By partition, the follower and the offset for which it was reported as good last."""

    def look(self) -> None:
        """Report damage that was met; that of a leader again and again, until another one leads."""
        cluster = self._cluster
        stored = cluster.stored
        met, stored.damage_met = stored.damage_met, False
        again = self._hurt and cluster.node.leader is not None
        if not met and (not again or cluster.now_s - self._looked_s < LOOK_S):
            return
        self._looked_s = cluster.now_s
        hurt = stored.hurt()
        self._hurt = bool(hurt)
        if hurt:
            cluster.happens(lambda _: cluster.node.damaged())

    def doubted(self, channel: Channel, positions: Sequence[FollowerPosition]) -> None:
        """Check what a follower got damaged. Its next answer does not wait for that."""
        doubted = [one for one in positions if one.check]
        if not doubted or channel.closed or not self._cluster.leads:
            return
        for one in doubted[:CHECKS_MAX]:
            stored = self._cluster.stored.logs[one.partition]
            if one.partition not in self._checking and one.end < stored.log_end_offset:
                self._checking.add(one.partition)
                self._cluster.start_work(self._check(stored, one.end, channel.broker_id))

    async def _check(self, stored: StoredLog, offset: int, broker_id: int) -> None:
        partition = stored.partition
        try:
            with suppress(HorologError, OSError):
                good = await self._scrubber.checked(stored.log, offset, within_s=None)
                if good and self._found_good.get(partition) != (broker_id, offset):
                    self._found_good[partition] = broker_id, offset
                    self._cluster.observe(
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
