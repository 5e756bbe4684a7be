"""Scrubbing: all logs are read again and again, slowly, to find bytes that changed on the disk
while other brokers still have undamaged copies.

A round reads every segment once. Rounds begin `log.scrub.days` apart, and the rate is chosen so
that a round takes that long, within bounds. If a reader finds damage, its segment is checked at
once.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Final

from ..clock import Clock
from ..config.broker import BrokerSettings
from ..protocol.errors import HorologError, UnknownTopicOrPartition
from ..storage.check.scrub import SegmentScrub
from ..storage.directory.log_directory import LogDirectory
from ..storage.events import Observer
from ..storage.log.log import Log
from ..storage.metadata.folder import METADATA_PARTITION
from ..storage.segment.segment import Segment
from .logs import Logs
from .metrics.figures import Figures
from .parking import Partition
from .work import Work

SCRUB_INTERVAL_MS: Final = 1_000

MIN_RATE: Final = 1 << 20
"""Lowest rate in bytes a second: with little data, a round ends early, and scrubbing pauses."""

MAX_RATE: Final = 16 << 20
"""Highest rate in bytes a second: a few per cent of a disk's time. A round over more than 9 TiB
takes longer than a week at this rate."""

BURST_S: Final = 10.0
"""How many seconds of reading a late pass makes up for at most."""

CHECK_AGAIN_S: Final = 600.0
"""How long a check of a segment for a reader counts; only after that it is checked again."""

CHECKS_MAX: Final = 1_000
"""The most checks of segments that are remembered."""

CHECK_WAIT_S: Final = 5.0
"""How long a reader waits for the check of a segment."""

_DAY_S: Final = 86_400.0


class Scrubber:
    """Checks the segments of a data directory."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        directory: LogDirectory,
        logs: Logs,
        work: Work,
        clock: Clock,
        random: Random,
        figures: Figures,
        observe: Observer,
    ) -> None:
        self._days = settings.log_scrub_days
        self._directory = directory
        self._logs = logs
        self._work = work
        self._clock = clock
        self._random = random
        self._figures = figures
        self._observe = observe
        self._round: Iterator[Partition] | None = None
        self._log: Log | None = None
        """The log whose segments are read now."""
        self._next_offset = 0
        """The log's segments with a base offset from here on are still to be read."""
        self._scrub: SegmentScrub | None = None
        self._open: set[SegmentScrub] = set()
        """Scrubs that may have a file open."""
        self._began_s = 0.0
        self._round_bytes = 0
        self._next_round_s = clock.monotonic()
        self._passed_s = clock.monotonic()
        self._due_bytes = 0.0
        self._checks: dict[Segment, tuple[float, asyncio.Task[None]]] = {}
        self._one_check = asyncio.Lock()
        self._damaged: set[Partition] = set()
        """Damaged partitions whose segments were checked."""

    def close(self) -> None:
        """Close all files. No thread may be reading them any more."""
        for scrub in self._open:
            scrub.close()

    # Rounds

    async def run_pass(self) -> None:
        """Read as many bytes as are due by now."""
        self._look_at_damage()
        now_s = self._clock.monotonic()
        passed_s, self._passed_s = now_s - self._passed_s, now_s
        if not self._days:
            return
        if self._round is None:
            if now_s < self._next_round_s:
                return
            await self._begin_round(now_s)
        rate = self._rate()
        self._due_bytes = min(self._due_bytes + rate * passed_s, rate * BURST_S)
        turns = self._work.turns()
        while self._due_bytes > 0 and await self._step():
            await turns.give_way()

    def _rate(self) -> float:
        """Return the rate of reading in bytes a second."""
        wanted = self._figures.scrub_total_bytes / (self._days * _DAY_S)
        return min(max(wanted, MIN_RATE), MAX_RATE)

    async def _begin_round(self, now_s: float) -> None:
        partitions = [*self._directory.partitions(), METADATA_PARTITION]
        # A random start: a broker that is restarted every day still reads every log some day.
        first = self._random.randrange(len(partitions)) if partitions else 0
        partitions = partitions[first:] + partitions[:first]
        total, turns = 0, self._work.turns()
        for partition in partitions:
            log = self._find(partition)
            total += 0 if log is None else log.size_bytes
            await turns.give_way()
        self._figures.scrub_total_bytes, self._figures.scrub_done_bytes = total, 0
        self._began_s, self._next_round_s = now_s, now_s + self._days * _DAY_S
        self._round, self._due_bytes = iter(partitions), float(MIN_RATE)

    async def _step(self) -> bool:
        """Read one piece of a segment. Returns false when the round is over."""
        scrub = self._scrub
        if scrub is None:
            scrub = self._scrub = await self._next_scrub()
            if scrub is None:
                return self._round is not None
        before = scrub.read_bytes
        more = await self._read(scrub)
        read = scrub.read_bytes - before
        self._due_bytes -= read
        self._figures.scrub_done_bytes += read
        if not more:
            self._scrub = None
            await self._end(scrub)
        return True

    async def _next_scrub(self) -> SegmentScrub | None:
        """Return the scrub of the present log's next segment; `None` if the log has no more
        segments: the round then goes on with the next log, or is over."""
        log = self._log
        if log is not None and self._is_current(log):
            for segment in log.segments:
                if segment.base_offset >= self._next_offset:
                    self._next_offset = segment.base_offset + 1
                    return SegmentScrub(log, segment)
        assert self._round is not None
        self._log, self._next_offset = None, 0
        partition = next(self._round, None)
        if partition is None:
            self._end_round()
            return None
        self._log = log = self._find(partition)
        if log is not None and not log.prepared:
            await self._logs.prepare([log])
        return None

    def _end_round(self) -> None:
        self._round = None
        self._figures.scrub_rounds += 1
        self._observe(
            "scrub_finished",
            size_bytes=self._figures.scrub_done_bytes,
            seconds=round(self._clock.monotonic() - self._began_s),
        )

    # One segment

    async def _read(self, scrub: SegmentScrub) -> bool:
        self._open.add(scrub)
        try:
            more = await self._work.in_storage_thread(scrub.read)
        except UnknownTopicOrPartition:
            return False  # The topic was deleted meanwhile.
        except OSError as error:
            if scrub.segment in scrub.log.segments:
                self._observe("scrub_failed", path=str(scrub.segment.log_path), error=error)
            return False
        return more

    async def _end(self, scrub: SegmentScrub) -> None:
        """Record the result of a check."""
        self._open.discard(scrub)
        scrub.close()
        self._figures.scrubbed_bytes += scrub.read_bytes
        log, segment = scrub.log, scrub.segment
        damage = scrub.damage()
        if damage is not None:
            segment.record_damage(damage)
        elif scrub.indexes_differ and segment in log.segments:
            log.segment_list.doubt_indexes(segment)
            await self._logs.prepare([log])

    def check(self, log: Log, segment: Segment) -> "asyncio.Task[None] | None":
        """Check a segment at once, in which a reader has found damage. Returns the check, which may
        have begun for another reader; `None` if too many segments were checked lately."""
        now_s = self._clock.monotonic()
        for one, (at_s, task) in list(self._checks.items()):
            if task.done() and now_s - at_s >= CHECK_AGAIN_S:
                del self._checks[one]
        known = self._checks.get(segment)
        if known is None:
            if len(self._checks) >= CHECKS_MAX:
                return None
            task = self._work.start(self._check(log, segment))
            known = self._checks[segment] = now_s, task
        return known[1]

    async def checked(
        self, log: Log, offset: int, *, within_s: float | None = CHECK_WAIT_S
    ) -> bool:
        """Wait until the segment that holds `offset` is checked, for `within_s` at most. Returns
        whether the check is done and found no damage."""
        await self._logs.prepare([] if log.prepared else [log])
        segment = log.segment_list.holding(offset)
        task = self.check(log, segment)
        if task is None:
            return False
        await asyncio.wait({task}, timeout=within_s)
        return task.done() and segment.damaged is None

    async def _check(self, log: Log, segment: Segment) -> None:
        async with self._one_check:
            scrub = SegmentScrub(log, segment, unsynced=True)
            while await self._read(scrub):
                pass
            await self._end(scrub)

    def _look_at_damage(self) -> None:
        """Check the whole of each segment with newly found damage: readers read only a part, so
        that there may be damage before it."""
        damaged = self._figures.damaged_partitions
        for partition in damaged.keys() - self._damaged:
            log = self._find(partition)
            for segment in () if log is None else log.segments:
                if log is not None and segment.damaged is not None:
                    self.check(log, segment)
        self._damaged = set(damaged)

    def damages(self) -> Iterator[str]:
        """Yield a text about each damaged place."""
        for partition in list(self._figures.damaged_partitions):
            log = self._find(partition)
            damages = [one.damaged for one in log.segments] if log is not None else []
            found = [damage.text for damage in damages if damage is not None]
            if not found:
                self._figures.damaged_partitions.pop(partition, None)
            for text in found:
                yield f"{partition[0]}-{partition[1]} is {text}"

    def _find(self, partition: Partition) -> Log | None:
        if partition == METADATA_PARTITION:
            return self._directory.metadata.log
        with suppress(HorologError, OSError):
            return self._logs.find(*partition)
        return None

    def _is_current(self, log: Log) -> bool:
        return self._find((log.topic, log.partition)) is log
