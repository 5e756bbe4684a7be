"""The passes of the background tasks: retention, delayed deletion, flushing, checkpoints; and what
the journal records of a removal.

Each pass handles every log separately: a failure is reported, and the pass goes on with the other
logs. A pass with a failure ends in `PassFailed`, so that it is tried again soon.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from ..clock import Clock
from ..config.broker import BrokerSettings
from ..memory import collect_garbage
from ..protocol.errors import (
    CodedError,
    HorologError,
    StorageError,
    UnknownTopicOrPartition,
)
from ..storage.directory.journal import MAX_TOPIC_REMOVALS, Cause, Removal
from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.topics import TopicEntry
from ..storage.events import Observer
from ..storage.log.flush import GroupCommit
from ..storage.log.log import Log
from ..storage.log.removed import removed_with_topic
from ..storage.log.retention import RemovedRange, RetentionPlan
from .logs import Logs
from .parking import Partition
from .trusted_time import TrustedTime
from .work import Turns, Work

FIRST_RETRY_MS = 1_000
"""Wait after the first failed pass; it doubles with each further one up to the task's interval."""


_ROUNDING_S = 1e-4
"""Tolerance for rounding. Intervals are whole milliseconds; rounding errors are far smaller."""


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
        """Run a pass now instead of at the end of the interval."""
        self._asked.set()

    def time_passed(self, seconds: float) -> bool:
        """Shorten the wait by `seconds`, because a test moved the broker's clock, which the event
        loop does not see.

        Returns whether a pass is due now; the caller has to run it.
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
"""Time between two readings of the clocks: after a kill, the next start knows the time of the last
use of the data to within this much."""

GARBAGE_INTERVAL_MS = 5_000
BUSY_ROUNDS_MAX = 60
"""For how many intervals garbage collection is put off while the broker is busy: five minutes."""

RESERVE_INTERVAL_MS = 10_000
"""Time between two checks that the reserved disk space is complete."""

RESERVE_DELAY_MS = 1_000
"""When the reserve is first filled, counted from the broker's start."""

DELETION_INTERVAL_MS = 1_000
"""Precision of `file.delete.delay.ms`."""

ROLLED_INTERVAL_MS = 3_600_000
"""Longest sleep of the task for rolled logs, which runs whenever a log has rolled."""


IDLE_ROLLS: Final = 100
"""The most idle segments that one pass closes, because each takes half a dozen syncs: after an
update, or a long time without producers, there may be thousands. The next passes close the
others."""


class PassFailed(Exception):
    """A pass failed for some logs; each failure was reported."""


class Maintenance:
    """The background tasks, by name, and the functions that they run."""

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
        record: Callable[[Sequence[Removal]], Awaitable[None]],
    ) -> None:
        """`record` stores in the journal what retention removed."""
        self._directory = directory
        self._logs = logs
        self._commits = commits
        self._work = work
        self._clock = clock
        self._trusted_time = trusted_time
        self._observe = observe
        self._record = record
        self._unrecorded: list[Removal] = []
        """What was removed and is not in the journal yet, because that could not be written."""
        self._rolled: dict[Partition, None] = {}
        self._synced = False
        self._all_open = False
        self._busy_rounds = 0
        """Intervals since garbage was last collected."""

        self.when_clock_moves: list[Callable[[], None]] = []
        """Called when a test has moved the broker's clock."""
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
        """Add a task that calls `run` every `interval_ms` from `start` on."""
        self.tasks[name] = PeriodicTask(name, run, interval_ms=interval_ms, observe=self._observe)

    def start(self) -> None:
        for task in self.tasks.values():
            task.start()

    async def stop(self) -> None:
        for task in self.tasks.values():
            await task.stop()

    async def time_passed(self, seconds: float, *, always: Collection[str] = ()) -> None:
        """Run the tasks that became due because a test moved the broker's clock by `seconds`, and
        the tasks named in `always`: each task once, one after another."""
        for look in self.when_clock_moves:
            look()
        due = [
            task for task in self.tasks.values() if task.time_passed(seconds) or task.name in always
        ]
        for task in due:
            await task.run_now()

    async def open_logs(self) -> None:
        """Open every log, so that the metrics have all logs and a damaged log is reported early.
        Requests get their turns meanwhile, and open the logs that they need themselves."""
        turns = self._work.turns()
        for topic, partition in list(self._directory.partitions()):
            with contextlib.suppress(HorologError, OSError):  # The directory reports the error.
                self._logs.find(topic, partition)
            await turns.give_way()
        self._all_open = True

    def note_roll(self, topic: str, partition: int) -> None:
        """Have the closed segment of a log that rolled synced, and retention checked soon."""
        self._commits.request(self._logs.find(topic, partition).flusher, closed_only=True)
        self._rolled[topic, partition] = None
        self.tasks["rolled"].soon()

    def note_sync(self) -> None:
        """Have recovery points written by the next pass, because a log was synced."""
        self._synced = True

    async def _collect_garbage(self) -> None:
        self._busy_rounds += 1
        if not self._all_open:
            return  # Most objects are here to stay; a collection would only delay requests.
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
                self._note_removed(log, now_ms)
                if idle_rolls < IDLE_ROLLS and log.expiry.roll_if_idle(now_ms):
                    idle_rolls += 1
                    self._commits.request(log.flusher)
            except UnknownTopicOrPartition:
                pass  # The topic was deleted since the pass began.
            except Exception as error:
                failed += 1
                self._observe("retention_failed", topic=topic, partition=partition, error=error)
            else:
                if log.expiry.has_expired:
                    expired.append((log, plan))
            await turns.give_way()
        if self._unrecorded:
            failed += not await self._record_removed()
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

    def _note_removed(self, log: Log, now_ms: int) -> None:
        entry = self._directory.topics().get(log.topic)
        if entry is not None:
            self._unrecorded += [
                removal_of(Cause.RETENTION, each.rule, log, entry.topic_id, each, now_ms)
                for each in log.expiry.removed
            ]
            log.expiry.removed = []

    async def _record_removed(self) -> bool:
        """Store in the journal what was removed, before the files go. Retention goes on without: it
        makes room on a full disk. Returns whether that worked."""
        removals, self._unrecorded = self._unrecorded, []
        try:
            await self._record(removals)
        except CodedError as error:
            self._unrecorded = [*removals, *self._unrecorded][-MAX_TOPIC_REMOVALS:]
            self._observe("journal_not_written", error=error.message, removals=len(removals))
            return False
        return True

    async def _drop(self, expired: Sequence[tuple[Log, RetentionPlan]], turns: Turns) -> int:
        """Drop expired segments, once the new log starts are on stable storage. Returns how many
        logs failed."""
        logs = [log for log, _ in expired]
        try:
            await self._work.in_storage_thread(lambda: self._directory.secure_log_starts(logs))
        except StorageError as error:
            # If the disk is full, dropping segments makes room.
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
        # If the lock file belongs to another account, its time cannot be set, even with the right
        # to write.
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
        # This runs every second over thousands of logs, most of which need nothing. If the high
        # watermark is below the log end, a request waits for a sync; its own sync may not have been
        # able to begin. A producer snapshot may be left over from a sync that found no disk space.
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


def removal_of(
    cause: Cause, rule: str, log: Log, topic_id: str, removed: RemovedRange, at_ms: int
) -> Removal:
    """Return the entry for messages that left a log now."""
    return Removal(
        cause,
        rule,
        log.topic,
        topic_id,
        log.partition,
        removed.first_offset,
        removed.end_offset,
        removed.messages,
        removed.first_timestamp_ms,
        removed.largest_timestamp_ms,
        at_ms,
        at_ms,
    )


def removals_of_topic(
    directory: LogDirectory, entry: TopicEntry, principal: str, at_ms: int
) -> list[Removal]:
    """Return the entries for the deletion of a topic: one for each partition that is open, from the
    first on. A log that was not opened since the start is not opened for that; its offsets are
    not known."""
    found = []
    for partition in range(min(entry.partitions, MAX_TOPIC_REMOVALS)):
        log = directory.opened_log((entry.name, partition))
        if log is None:
            found.append(_unknown(entry, partition, principal, at_ms))
        else:
            removed = removed_with_topic(log)
            found.append(removal_of(Cause.DELETION, principal, log, entry.topic_id, removed, at_ms))
    return found


def _unknown(entry: TopicEntry, partition: int, principal: str, at_ms: int) -> Removal:
    return Removal(
        Cause.DELETION,
        principal,
        entry.name,
        entry.topic_id,
        partition,
        first_offset=-1,
        end_offset=-1,
        messages=-1,
        first_timestamp_ms=-1,
        largest_timestamp_ms=-1,
        began_ms=at_ms,
        at_ms=at_ms,
    )
