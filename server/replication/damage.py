"""Damage that is met while a broker of a cluster runs, at its own reads or at a follower's."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ...protocol.errors import HorologError
from ...replication.messages import FollowerPosition
from ...replication.partition_log import Partition
from ...storage.replica.replica_log import ReplicaLog
from ..scrubbing import Scrubber
from .member import ClusterMember

LOOK_S: Final = 1.0
"""How often a leader that has damage looks whether another broker can lead."""

CHECKS_MAX: Final = 8
"""Partitions that are checked for one request of a follower."""


class DamageWatch:
    """Reports damage to the state machine.

    The leader sends messages without looking at them. A follower that gets damaged ones appends
    none of them, and asks the leader to check what it has stored.
    """

    def __init__(self, member: ClusterMember, scrubber: Scrubber) -> None:
        self._member = member
        self._scrubber = scrubber
        self._hurt = bool(member.stored.hurt())
        self._looked_s = 0.0
        self._checking: set[Partition] = set()
        """Partitions that are checked for a follower now."""
        self._found_good: dict[Partition, tuple[int, int]] = {}
        """By partition, the follower and the offset for which it was reported as good last."""

    def check(self) -> None:
        """Report damage that was met; that of a leader again and again, until another one leads."""
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

    def doubted(self, broker_id: int, positions: Sequence[FollowerPosition]) -> None:
        """Check what a follower got damaged. Its next answer does not wait for that."""
        doubted = [one for one in positions if one.check]
        if not doubted or not self._member.leads:
            return
        for one in doubted[:CHECKS_MAX]:
            stored = self._member.stored.logs[one.partition]
            if one.partition not in self._checking and one.end < stored.log_end_offset:
                self._checking.add(one.partition)
                self._member.start_work(self._check(stored, one.end, broker_id))

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
