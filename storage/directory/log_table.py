"""The logs of a data directory, opened when they are needed.

A log that was stopped cleanly is opened at its first use. `recover` opens the other logs, but may
leave small ones to their first use, if there are many. If a log cannot be opened, each request for
it gets the reason, and the other logs are not affected. The progress of recovery is reported while
it lasts, with a summary at its end.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final

from ...clock import Clock
from ...config.topic import TopicSettings
from ...protocol.errors import (
    HorologError,
    InvalidConfig,
    StorageError,
    UnknownTopicOrPartition,
)
from ...protocol.records.layout import NO_TIMESTAMP
from ..entries.segment_scan import Progress
from ..events import Observer
from ..files import RETRIABLE_ERRORS, Files
from ..log.log import Log
from ..log.log_opening import open_log
from ..log.retention import RemovedRange
from ..names import folder_name, parse_segment_file
from ..seams import Seams
from .checkpoints import Offsets
from .topics import TopicRegistry

REPORT_SECONDS: Final = 5.0
"""Time between two reports. A shorter recovery is reported only at its end."""

Partition = tuple[str, int]

SMALL_BYTES: Final = 1 << 20
"""A log with at most this many bytes to recover may be left to its first use: its recovery takes a
few milliseconds."""

EAGER_SECONDS: Final = 0.5
"""Seconds for which a start recovers small logs before it leaves the rest to their first use."""

RETRY_SECONDS: Final = 1.0
"""Minimum wait before a log that could not be opened for lack of room or handles is tried again.
The wait is at least ten times as long as the attempt took."""

FEW_LOGS: Final = 16
"""Up to this number, logs are closed one after the other: threads would not pay off."""

CLOSING_THREADS: Final = 4
CLOSING_LOGS: Final = 64
"""Number of logs synced at a time when all are closed. Each has its own handle meanwhile."""


def bytes_to_scan(files: Files, path: Path, recovery_point: int) -> int:
    """Return how many bytes recovery has to read of the log in folder `path`; 0 if that is not
    known."""
    try:
        parsed = [parse_segment_file(name) for name in files.names(path)]
        bases = sorted(
            name.base_offset for name in parsed if name and name.kind == "log" and not name.suffix
        )
        below = sum(base <= recovery_point for base in bases)
        return sum(files.size(path / f"{base:020d}.log") for base in bases[max(below - 1, 0) :])
    except OSError:
        return 0  # Opening the log meets the same error and reports it.


class RecoveryProgress:
    """Counts recovered logs and the bytes read."""

    def __init__(self, clock: Clock, observe: Observer, sizes: Mapping[Partition, int]) -> None:
        """`sizes` are the bytes to read of each log."""
        self._clock = clock
        self._observe = observe
        self._sizes = sizes
        self._bytes = sum(sizes.values())
        self._logs_done = 0
        self._bytes_done = 0
        self._began = self._reported = clock.monotonic()
        observe("recovery_started", logs=len(sizes), bytes=self._bytes)

    def of_log(self, key: Partition) -> Progress:
        """Return a function that takes the number of bytes read of one log."""
        log_bytes_done = 0

        def read(more: int) -> None:
            nonlocal log_bytes_done
            log_bytes_done += more
            self._bytes_done += more
            now = self._clock.monotonic()
            if now - self._reported >= REPORT_SECONDS:
                self._reported = now
                self._report(key, log_bytes_done)

        return read

    def _report(self, key: Partition, log_bytes_done: int) -> None:
        self._observe(
            "recovery_progress",
            topic=key[0],
            partition=key[1],
            log_bytes_done=log_bytes_done,
            log_bytes=self._sizes[key],
            logs_done=self._logs_done,
            logs=len(self._sizes),
            bytes_done=self._bytes_done,
            bytes=self._bytes,
        )

    def log_done(self) -> None:
        """Count a log that was recovered, or that cannot be."""
        self._logs_done += 1

    def finish(self) -> None:
        """Report the end of recovery. The remaining logs are recovered when they are used."""
        self._observe(
            "recovery_finished",
            logs=self._logs_done,
            logs_left=len(self._sizes) - self._logs_done,
            bytes=self._bytes_done,
            ms=round((self._clock.monotonic() - self._began) * 1000),
        )


class LogTable:
    """The logs of the added partitions, by topic and partition."""

    def __init__(
        self,
        seams: Seams,
        directory: Path,
        registry: TopicRegistry,
        on_gaps: Callable[[Log], None],
        on_cut: Callable[[Log], None],
        on_truncate: Callable[[str, int, RemovedRange], None],
        high_watermarks: Offsets | None = None,
    ) -> None:
        """`on_gaps` is called with a log before its first gap, `on_cut` before it is truncated.
        `on_truncate` is called with topic, partition and what that removes, or what recovery cuts
        off.

        `high_watermarks`, as far as known, are given for a cluster member: each log is opened as a
        follower's, with its high watermark, or with its log start if that is not known.
        """
        self._seams = seams
        self._directory = directory
        self._registry = registry
        self._on_gaps = on_gaps
        self._on_cut = on_cut
        self._on_truncate = on_truncate
        self._high_watermarks = high_watermarks
        self.on_opened: Callable[[Log], None] | None = None
        """Called with each log that is opened."""
        self._logs: dict[Partition, Log] = {}
        self.find: Callable[[Partition], Log | None] = self._logs.get
        """Returns the log of a partition if it is open."""
        self._failures: dict[Partition, HorologError] = {}
        self._retry_at: dict[Partition, float] = {}
        self._unclean: set[Partition] = set()
        self._recovery_points: Offsets = {}
        self._log_starts: Offsets = {}
        self._believed: set[Partition] = set()

    def add(
        self,
        key: Partition,
        *,
        recovery_point: int | None = 0,
        log_start_offset: int = 0,
        clean: bool,
    ) -> None:
        """Add a partition whose folder exists. `clean` says that its log was stopped cleanly.

        `recovery_point` is `None` if no checkpoint has it.
        """
        self._recovery_points[key] = recovery_point or 0
        self._log_starts[key] = log_start_offset
        if recovery_point is not None:
            self._believed.add(key)
        if not clean:
            self._unclean.add(key)

    def recover(self) -> None:
        """Open the logs that were not stopped cleanly.

        Once this takes long, small logs with a known recovery point are left to their first use.
        """
        sizes = {key: self._bytes_to_scan(key) for key in sorted(self._unclean)}
        if not sizes:
            return
        clock = self._seams.clock
        progress = RecoveryProgress(clock, self._seams.observe, sizes)
        deadline = clock.monotonic() + EAGER_SECONDS
        for key, size_bytes in sizes.items():
            small = size_bytes <= SMALL_BYTES and key in self._believed
            if small and clock.monotonic() > deadline:
                continue
            with suppress(HorologError):
                self._open(key, progress.of_log(key))
            progress.log_done()
        progress.finish()

    def get(self, key: Partition) -> Log:
        """Return the log of a partition that was added. Open it if necessary.

        Raises the errors of opening it: `StorageError`, `UnsupportedForMessageFormat`,
        `InvalidConfig`.
        """
        log = self._logs.get(key)
        if log is not None:
            return log
        failure = self._failures.get(key)
        if failure is not None and self._seams.clock.monotonic() < self._retry_at.get(key, inf):
            # A new instance each time: an exception keeps every traceback with which it was raised.
            raise type(failure)(failure.message)
        return self._open(key)

    def opened(self) -> list[Log]:
        """Return the logs that are open."""
        return list(self._logs.values())

    def unclean(self) -> frozenset[Partition]:
        """Return the partitions that have to be recovered at the next start."""
        return frozenset(self._unclean)

    def offsets(self) -> tuple[Offsets, Offsets, Offsets | None]:
        """Return recovery points, log start offsets and, for a cluster member, high watermarks of
        all partitions, for the checkpoints."""
        recovery_points, log_starts = dict(self._recovery_points), dict(self._log_starts)
        logs = list(self._logs.items())
        for key, log in logs:
            recovery_points[key] = log.flusher.safe_point
            log_starts[key] = log.log_start_offset
        if self._high_watermarks is None:
            return recovery_points, log_starts, None
        high_watermarks = self._high_watermarks | {key: log.high_watermark for key, log in logs}
        return recovery_points, log_starts, high_watermarks

    def secure_append_times(self) -> None:
        """Sync append times, so that recovery points may be checkpointed that far.

        May run in another thread.
        """
        for log in self.opened():
            try:
                log.flusher.secure_append_times()
            except UnknownTopicOrPartition:
                continue  # The topic was deleted meanwhile.
            except OSError as error:
                self._seams.observe(
                    "append_times_sync_failed",
                    topic=log.topic,
                    partition=log.partition,
                    error=error,
                )

    def set_settings(self, key: Partition, settings: TopicSettings) -> None:
        """Use other settings for a log. A log that failed because of its settings may be opened
        again."""
        log = self._logs.get(key)
        if log is not None:
            log.set_settings(settings)
        elif isinstance(self._failures.get(key), InvalidConfig):
            del self._failures[key]

    def forget(self, key: Partition) -> None:
        """Remove a partition whose files are about to be deleted."""
        log = self._logs.pop(key, None)
        if log is not None:
            log.abandon()
        self._failures.pop(key, None)
        self._retry_at.pop(key, None)
        self._unclean.discard(key)
        self._recovery_points.pop(key, None)
        self._log_starts.pop(key, None)
        if self._high_watermarks is not None:
            self._high_watermarks.pop(key, None)

    def close(self) -> list[str]:
        """Close every open log. Return a text for each failure; these logs count as unclean."""
        failed = []
        if len(self._logs) > FEW_LOGS:
            self._sync_together(self.opened())
        for (topic, partition), log in list(self._logs.items()):
            try:
                log.close()
            except (OSError, HorologError) as error:
                self._unclean.add((topic, partition))
                failed.append(f"{topic}-{partition}: {error}")
                self._seams.observe(
                    "log_close_failed", topic=topic, partition=partition, error=str(error)
                )
        return failed

    def _sync_together(self, logs: Sequence[Log]) -> None:
        """Sync logs that are about to be closed, several at a time. Each log remembers its failure,
        or meets it again when it is closed."""
        with ThreadPoolExecutor(CLOSING_THREADS, "closing") as threads:
            for first in range(0, len(logs), CLOSING_LOGS):
                syncs = []
                for log in logs[first : first + CLOSING_LOGS]:
                    with suppress(OSError, HorologError):
                        work = log.begin_close()
                        if work is not None:
                            syncs.append((log, work, threads.submit(work.run)))
                for log, work, sync in syncs:
                    error = sync.exception()
                    if error is not None and not isinstance(error, OSError):
                        raise error
                    log.flusher.end_flush(work, error)

    def _bytes_to_scan(self, key: Partition) -> int:
        path = self._directory / folder_name(*key)
        return bytes_to_scan(self._seams.files, path, self._recovery_points[key])

    def _open(self, key: Partition, progress: Progress | None = None) -> Log:
        """Open a log. A failure that will not pass by itself is kept for later requests."""
        topic, partition = key
        clean = key not in self._unclean
        began = self._seams.clock.monotonic()
        path = self._directory / folder_name(topic, partition)
        passing = False
        self._failures.pop(key, None)
        try:
            log = self._open_with_checkpoints(key, path, progress)
        except OSError as error:
            passing = error.errno in RETRIABLE_ERRORS
            what_next = "restart the broker" if not passing else "it is tried again"
            failure: HorologError = StorageError(
                f"{path}: the log cannot be opened: {error}; once that is put right, {what_next}"
            )
        except HorologError as error:
            failure = error
        except Exception as error:
            # A bug triggered by one log's bytes must not prevent all others from being served.
            failure = StorageError(f"{path}: the log cannot be opened: {error!r}")
        else:
            self._opened(key, log, clean, began)
            return log
        if not passing or not clean:
            self._failures[key] = failure
            self._unclean.add(key)
        if passing:
            now = self._seams.clock.monotonic()
            self._retry_at[key] = now + max(RETRY_SECONDS, 10 * (now - began))
        else:
            self._retry_at.pop(key, None)
        self._seams.observe(
            "log_open_failed", topic=topic, partition=partition, path=str(path), error=str(failure)
        )
        raise type(failure)(failure.message) from failure

    def _open_with_checkpoints(self, key: Partition, path: Path, progress: Progress | None) -> Log:
        """Open a log with its checkpoints. They are ignored if they point beyond the log end."""
        topic, partition = key
        settings, gaps = self._registry.settings(topic), self._registry.get(topic).gaps
        recovery_point, log_start = self._recovery_points[key], self._log_starts[key]
        known = self._high_watermarks
        told = False

        def tell(removed: RemovedRange) -> None:
            nonlocal told
            told = True
            self._on_truncate(topic, partition, removed)

        def opened(clean: bool, recovery_point: int, log_start_offset: int) -> Log:
            return open_log(
                path,
                topic,
                partition,
                settings,
                self._seams,
                clean=clean,
                end_offset=recovery_point if key in self._believed else None,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                gaps=gaps,
                high_watermark=None if known is None else known.get(key, log_start_offset),
                follows=known is not None,
                progress=progress,
                on_torn=tell,
            )

        log = opened(key not in self._unclean, recovery_point, log_start)
        if max(log_start, recovery_point) > log.log_end_offset:
            end = log.log_end_offset
            reason = (
                f"the log ends at offset {end}, before its recovery point {recovery_point} or its "
                f"log start offset {log_start}"
            )
            self._seams.observe("checkpoint_ignored", path=str(path), reason=reason)
            if not told:  # Files, or whole sets at the end of one, are missing.
                tell(RemovedRange(reason, end, end, -1, NO_TIMESTAMP, NO_TIMESTAMP))
            log.close()
            return opened(False, 0, log_start if log_start <= log.log_end_offset else 0)
        with suppress(OSError):
            log.expiry.drop_left_over()  # The next retention pass drops the rest.
        return log

    def _opened(self, key: Partition, log: Log, clean: bool, began: float) -> None:
        self._logs[key] = log
        self._unclean.discard(key)
        log.on_gaps = self._on_gaps
        log.on_cut = self._on_cut
        log.on_truncate = self._on_truncate
        if self.on_opened is not None:
            self.on_opened(log)
        if not clean:
            self._seams.observe(
                "log_recovered",
                topic=log.topic,
                partition=log.partition,
                log_end_offset=log.log_end_offset,
                ms=round((self._seams.clock.monotonic() - began) * 1000),
            )
