"""The passes of the background tasks: retention, delayed deletion, flushing, checkpoints.

Every pass treats each log by itself: one that fails is reported, and the others are not kept
waiting. A pass in which something failed ends in `PassFailed`, so that it is tried again soon.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

from ..clock import Clock
from ..config.broker import BrokerSettings
from ..memory import collect_garbage
from ..protocol.errors import HorologError, StorageError, UnknownTopicOrPartition
from ..storage.directory.log_directory import LogDirectory
from ..storage.events import Observer
from ..storage.log.flush import GroupCommit
from ..storage.log.log import Log
from ..storage.log.retention import RetentionPlan
from .logs import Logs
from .parking import Partition
from .trusted_time import TrustedTime
from .work import Turns, Work

FIRST_RETRY_MS = 1_000
"""Wait after the first failed pass; it doubles with each further one up to the task's interval."""


_ROUNDING_S = 1e-4
"""Intervals are whole milliseconds; sums and differences of seconds are off by far less."""


class PeriodicTask:
    """Calls `run` every `interval_ms` until stopped.

    An exception of `run` never ends the task. Passes never overlap.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], Awaitable[None]],
        *,
        interval_ms: int,
        observe: Observer,
    ) -> None:
        self.name = name
        self._run = run
        self._interval_ms = interval_ms
        self._delay_ms = interval_ms
        self._observe = observe
        self._failures = 0
        self._wait: asyncio.Timeout | None = None
        """The wait for the next pass; `None` during a pass."""
        self._asked = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    def first_after(self, delay_ms: int) -> None:
        """Run the first pass `delay_ms` after the start instead of after a whole interval."""
        self._delay_ms = delay_ms

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._loop(), name=self.name)

    def soon(self) -> None:
        """Run a pass now instead of when the interval is over."""
        self._asked.set()

    def time_passed(self, seconds: float) -> bool:
        """Take `seconds` as over that the loop did not see pass, because a test moved the clock.

        Whether a pass is due now, which is for the caller to run.
        """
        wait = self._wait
        if wait is None or wait.expired():
            return seconds * 1000 >= self._delay_ms
        due_at = wait.when()
        assert due_at is not None
        due_at -= seconds
        if due_at - asyncio.get_running_loop().time() < _ROUNDING_S:
            return True
        wait.reschedule(due_at)
        return False

    async def run_now(self) -> None:
        """Run a pass and return when one that began after this call is over, failed or not."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(over)
        self._asked.set()
        await over

    async def stop(self) -> None:
        """Cancel the task and wait until it is gone."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        for over in self._waiters:
            over.cancel()

    async def _loop(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._delay_ms / 1000) as self._wait:
                    await self._asked.wait()
            self._wait = None
            self._asked.clear()
            waiters, self._waiters = self._waiters, []
            try:
                await self._run()
            except Exception as error:
                self._failures += 1
                self._delay_ms = self._retry_ms()
                self._observe(
                    "task_failed",
                    task=self.name,
                    error=error,
                    failures=self._failures,
                    retry_ms=self._delay_ms,
                )
            else:
                self._failures = 0
                self._delay_ms = self._interval_ms
            finally:
                for over in waiters:
                    if not over.done():
                        over.set_result(None)

    def _retry_ms(self) -> int:
        # The exponent is bounded: a task that fails for a year must not compute 2 ** 10 ** 5.
        backoff = FIRST_RETRY_MS * int(2 ** min(self._failures - 1, 16))
        return min(backoff, max(self._interval_ms, FIRST_RETRY_MS))


CLOCK_INTERVAL_MS = 10_000
"""Time between two looks at the clocks: after a kill, the next start is off by this much."""

GARBAGE_INTERVAL_MS = 5_000
BUSY_ROUNDS_MAX = 60
"""While requests are worked on, garbage is left for so many intervals: five minutes."""

RESERVE_INTERVAL_MS = 10_000
"""Time between two looks whether the room kept on the disk is whole."""

RESERVE_DELAY_MS = 1_000
"""It is made when the broker has started."""

DELETION_INTERVAL_MS = 1_000
"""How exact `file.delete.delay.ms` is."""

ROLLED_INTERVAL_MS = 3_600_000
"""The task for logs that rolled runs when one did; this is only its longest sleep."""


IDLE_ROLLS: Final = 100
"""Idle segments that one pass closes at most, for each is half a dozen syncs: after an update, or a
long time without producers, there may be thousands. The others follow with the next passes."""


class PassFailed(Exception):
    """Some logs could not be treated; each was reported by itself."""


class Maintenance:
    """What the background tasks do, and the tasks by name."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        directory: LogDirectory,
        logs: Logs,
        commits: GroupCommit,
        work: Work,
        clock: Clock,
        trusted_time: TrustedTime,
        observe: Observer,
    ) -> None:
        self._directory = directory
        self._logs = logs
        self._commits = commits
        self._work = work
        self._clock = clock
        self._trusted_time = trusted_time
        self._observe = observe
        self._rolled: dict[Partition, None] = {}
        self._synced = False
        self._all_open = False
        self._busy_rounds = 0
        """Since garbage was collected."""

        self.when_clock_moves: list[Callable[[], None]] = []
        """What else goes by the broker's clock: called when a test has moved it."""
        self.tasks: dict[str, PeriodicTask] = {}
        self.add("retention", self._retain_all, settings.log_retention_check_interval_ms)
        self.tasks["retention"].first_after(settings.log_initial_task_delay_ms)
        self.add("rolled", self._retain_rolled, ROLLED_INTERVAL_MS)
        self.add("garbage", self._collect_garbage, GARBAGE_INTERVAL_MS)
        self.add("clock", self._look_at_clock, CLOCK_INTERVAL_MS)
        self.add("deletion", self._delete, DELETION_INTERVAL_MS)
        self.add("reserve", self._fill_reserve, RESERVE_INTERVAL_MS)
        self.tasks["reserve"].first_after(RESERVE_DELAY_MS)
        self.add("flush", self._flush, settings.log_flush_scheduler_interval_ms)
        self.add(
            "recovery_points",
            self._write_recovery_points,
            settings.recovery_point_checkpoint_interval_ms,
        )
        self.add("checkpoints", self._write_checkpoints, settings.checkpoint_interval_ms)

    def add(self, name: str, run: Callable[[], Awaitable[None]], interval_ms: int) -> None:
        """Have `run` called every so often from `start` on."""
        self.tasks[name] = PeriodicTask(name, run, interval_ms=interval_ms, observe=self._observe)

    def start(self) -> None:
        for task in self.tasks.values():
            task.start()

    async def stop(self) -> None:
        for task in self.tasks.values():
            await task.stop()

    async def time_passed(self, seconds: float) -> None:
        """A test let `seconds` pass on the broker's clock: run what became due by that, each task
        once, one after the other."""
        for look in self.when_clock_moves:
            look()
        due = [task for task in self.tasks.values() if task.time_passed(seconds)]
        for task in due:
            await task.run_now()

    async def open_logs(self) -> None:
        """Open every log, so that the metrics have them all and what is wrong with one is reported
        early. Takes turns with the requests, which open what they need themselves."""
        turns = self._work.turns()
        for topic, partition in list(self._directory.partitions()):
            with contextlib.suppress(HorologError, OSError):  # the directory reports it
                self._logs.find(topic, partition)
            await turns.give_way()
        self._all_open = True

    def note_roll(self, topic: str, partition: int) -> None:
        """A log began a new segment: sync the old one, and see what retention says, soon."""
        self._commits.request(self._logs.find(topic, partition).flusher, closed_only=True)
        self._rolled[topic, partition] = None
        self.tasks["rolled"].soon()

    def note_sync(self) -> None:
        """A log was synced: its recovery point is worth writing down."""
        self._synced = True

    async def _collect_garbage(self) -> None:
        self._busy_rounds += 1
        if not self._all_open:
            return  # What there is stays; to look through thousands of logs holds up requests.
        if self._work.is_quiet or self._busy_rounds > BUSY_ROUNDS_MAX:
            self._busy_rounds = 0
            collect_garbage()

    async def _retain_all(self) -> None:
        await self._retain(self._directory.partitions())

    async def _retain_rolled(self) -> None:
        rolled, self._rolled = self._rolled, {}
        await self._retain(rolled)

    async def _retain(self, partitions: Iterable[Partition]) -> None:
        now_ms = self._trusted_time.now_ms()
        turns = self._work.turns()
        expired: list[tuple[Log, RetentionPlan]] = []
        failed = 0
        idle_rolls = 0
        for topic, partition in list(partitions):
            try:
                log, plan = await self._expire(topic, partition, now_ms)
                if idle_rolls < IDLE_ROLLS and log.expiry.roll_if_idle(now_ms):
                    idle_rolls += 1
                    self._commits.request(log.flusher)
            except UnknownTopicOrPartition:
                pass  # deleted since the pass began
            except Exception as error:
                failed += 1
                self._observe("retention_failed", topic=topic, partition=partition, error=error)
            else:
                if log.expiry.has_expired:
                    expired.append((log, plan))
            await turns.give_way()
        if expired:
            failed += await self._drop(expired, turns)
        self.tasks["deletion"].soon()
        if failed:
            raise PassFailed(f"{failed} logs could not be maintained")

    async def _expire(self, topic: str, partition: int, now_ms: int) -> tuple[Log, RetentionPlan]:
        log = self._logs.find(topic, partition)
        if not log.prepared:
            await self._logs.prepare([log])
            log = self._logs.find(topic, partition)
        if log.expires and log.settings.retention_ms >= 0:
            await self._logs.read_trimmed(log)
            log = self._logs.find(topic, partition)
        plan = self._directory.reserve.retrying(partial(log.expiry.expire, now_ms))
        if plan.roll_active:
            self._commits.request(log.flusher)
        return log, plan

    async def _drop(self, expired: Sequence[tuple[Log, RetentionPlan]], turns: Turns) -> int:
        """Drop what expired, once it is safe where the logs begin; how many logs failed."""
        logs = [log for log, _ in expired]
        try:
            await self._work.in_storage_thread(lambda: self._directory.secure_log_starts(logs))
        except StorageError as error:
            # Perhaps the disk is full; then dropping is what makes room.
            self._observe("checkpoint_failed", error=error.message)
        failed = 0
        for log, plan in expired:
            try:
                if self._logs.is_current(log):
                    self._directory.reserve.retrying(partial(log.expiry.drop_expired, plan))
            except OSError as error:
                failed += 1
                self._observe(
                    "retention_failed", topic=log.topic, partition=log.partition, error=error
                )
            await turns.give_way()
        return failed

    async def _look_at_clock(self) -> None:
        self._trusted_time.look()
        at_ms = self._trusted_time.trusted_ms
        # The lock file may belong to another account, which lets us write it but not set its time.
        with contextlib.suppress(PermissionError):
            await self._work.in_storage_thread(lambda: self._directory.seen(at_ms))

    async def _delete(self) -> None:
        deletions = self._directory.deletions
        while len(deletions):
            pause = await self._work.in_storage_thread(deletions.run_step)
            if pause is None:
                return
            await asyncio.sleep(pause)

    async def _fill_reserve(self) -> None:
        await self._work.in_storage_thread(self._directory.reserve.fill)

    async def _flush(self) -> None:
        now = self._clock.monotonic()
        # Thousands of logs with nothing to do are looked at every second. A request waits for a
        # sync where the watermark is not at the end; if the one asked for could not begin, this
        # one may. A snapshot of producers may be left by a sync that found no room for it.
        due = [
            log
            for log in self._directory.open_logs()
            if log.watermark.offset < log.log_end_offset
            or log.producers.to_be_written
            or (
                (since := log.unflushed_since) is not None
                and (now - since) * 1000 >= log.settings.flush_ms
            )
        ]
        for log in due:
            self._commits.request(log.flusher)

    async def _write_recovery_points(self) -> None:
        if self._synced:
            await self._write_checkpoints()

    async def _write_checkpoints(self) -> None:
        self._synced = False
        try:
            await self._work.in_storage_thread(self._directory.write_checkpoints)
        except BaseException:
            self._synced = True
            raise
