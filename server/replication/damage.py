"""Damage that is met while a broker of a cluster runs, at its own reads or at a follower's."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ...protocol.errors import CodedError
from ...protocol.records.kernel.terms import Problem
from ...replication.messages import Position
from ...replication.partition_log import Partition
from ...storage.entries.segment_scan import SegmentScan, scan_log_file
from ...storage.read.slices import Slice
from .channel import Channel
from .stored_log import StoredLog

if TYPE_CHECKING:
    from .cluster import Cluster

LOOK_S: Final = 1.0
"""How often a leader that has damage looks whether another broker can lead."""

CHECKS_MAX: Final = 8
"""Partitions that are looked at closely for one connection of a follower."""

CHECKED_BYTES: Final = 1 << 20
"""So much is looked at; more where a set takes more."""


class DamageWatch:
    """Reports damage to the state machine.

    Messages go to followers unlooked at. A follower that finds them damaged takes none of them and
    comes again; where it ends as it did the last time, the leader looks at what it would send.
    """

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._hurt = bool(cluster.stored.hurt())
        self._looked_s = 0.0
        self._behind: dict[int, tuple[int, dict[Partition, int]]] = {}
        """By follower, its connection, and where it ended on that at first, where it was behind."""

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

    def fetched(self, channel: Channel, positions: Sequence[Position]) -> None:
        """A follower asked for what follows its positions."""
        number, before = self._behind.get(channel.broker_id, (0, {}))
        if number == channel.number:
            return
        logs = self._cluster.stored.logs
        behind = {
            one.partition: one.end
            for one in positions
            if one.partition in logs and one.end < logs[one.partition].log_end_offset
        }
        self._behind[channel.broker_id] = channel.number, behind
        stuck = [key for key, end in behind.items() if before.get(key) == end]
        for partition in stuck[:CHECKS_MAX]:
            self._suspect(logs[partition], behind[partition])

    def _suspect(self, stored: StoredLog, offset: int) -> None:
        try:
            found = stored.replica.read(offset, CHECKED_BYTES).found
        except (CodedError, OSError):
            return  # That was met already, and reported.
        if found.segment is not None and found.size:
            self._cluster.start_work(self._check(stored, found))

    async def _check(self, stored: StoredLog, found: Slice) -> None:
        segment = found.segment
        assert segment is not None
        scans: list[SegmentScan] = []
        end = found.position + found.size
        scan = partial(
            scan_log_file,
            segment.file,
            found.position,
            end,
            next_offset=segment.base_offset,
            gaps=True,
            check_crc=True,
        )
        try:
            await self._cluster.in_reading_thread(lambda: scans.append(scan()))
        except OSError:
            return  # Nothing is known of it then.
        bad = scans[0]
        cut_off = bad.problem is Problem.PARTIAL and bad.good_bytes > found.position
        if bad.problem is Problem.NONE or cut_off or segment not in stored.log.segments:
            return
        segment.damage(bad.good_bytes)
