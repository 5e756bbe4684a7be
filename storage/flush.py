"""Syncing: what one sync of a log has to do, and doing it for many logs at once, in a thread.

The loop's thread decides what to sync (`Log.begin_flush`) and learns the outcome
(`Log.end_flush`); only `FlushWork.run` may be in another thread, on handles of its own.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..clock import Clock
from .files import PASSING_ERRORS, File, Files, replace_file
from .index_checksums import FILE_NAME
from .producer_snapshots import PendingSnapshot


@dataclass(slots=True, eq=False)
class FlushWork:
    """One sync of one log: everything below `target_offset` will be on stable storage."""

    target_offset: int
    directory: Path
    files: Files
    index_paths: Sequence[Path]
    """Index files of segments that were closed since the last sync."""
    seals: bytes | None
    """New content of the `index-checksums` file."""
    new_seals: frozenset[int]
    """Base offsets of the segments that `index_paths` are of."""
    sync_directory: bool
    snapshots: Sequence[PendingSnapshot] = ()
    """What is known of the producers at offsets up to `target_offset`."""
    log_files: list[File] = field(default_factory=list)
    """Log files, oldest first; handles of this work's own, closed by `run`."""
    unfinished: OSError | None = None
    """Why the indexes or their checksums have to wait for another sync: there was no room, or no
    free handle. All messages are safe all the same."""

    def run(self) -> None:
        """Sync everything. Raises `OSError`."""
        self.sync_messages()
        self.sync_indexes()

    def sync_messages(self) -> None:
        """Sync, in order: logs, names. The messages are safe then. Raises `OSError`."""
        try:
            for file in self.log_files:
                file.sync()
        finally:
            self.close()
        if self.sync_directory:
            self.files.sync_directory(self.directory)

    @property
    def has_indexes(self) -> bool:
        """Whether there is more to sync than messages."""
        return bool(self.index_paths or self.snapshots) or self.seals is not None

    def sync_indexes(self) -> None:
        """Sync, in order: indexes, snapshots, checksums. Raises `OSError`."""
        for path in self.index_paths:
            with self._may_be_finished_later():
                self._sync_index(path)
        for snapshot in self.snapshots:
            with self._may_be_finished_later():
                snapshot.write(self.files)
        if self.seals is not None and self.unfinished is None:
            with self._may_be_finished_later():
                replace_file(self.files, self.directory / FILE_NAME, self.seals)

    @contextmanager
    def _may_be_finished_later(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in PASSING_ERRORS:
                raise
            self.unfinished = error

    def _sync_index(self, path: Path) -> None:
        try:
            index = self.files.open(path)
        except FileNotFoundError:
            return  # retention dropped the segment since this work was handed out
        try:
            index.sync()
        except OSError as error:
            # It must not be tried again, whatever the reason was.
            raise OSError(errno.EIO, f"{path}: {error}") from error
        finally:
            index.close()

    def close(self) -> None:
        """Give up the handles."""
        for file in self.log_files:
            file.close()
        self.log_files.clear()


class Flushable(Protocol):
    """What group commit needs of a log."""

    def begin_flush(self) -> FlushWork | None: ...

    def messages_synced(self, work: FlushWork) -> None: ...

    def end_flush(self, work: FlushWork, error: OSError | None = None) -> None: ...


class GroupCommit:
    """Syncs logs in rounds: whoever asks while a round is under way is served by the next.

    A first round begins with the loop's next turn, so that it syncs what all clients that were
    heard in this one have sent. A round syncs messages, which is all that clients wait for; the
    indexes of segments that were closed follow behind it, while the next round is under way.

    `executor` runs the syncs of messages, `index_executor` those of indexes, in their order;
    `call_soon` takes a function from any thread and calls it in the loop's. `on_sync`, if given,
    gets the seconds that the sync of each log's messages took.
    """

    def __init__(
        self,
        executor: Executor,
        index_executor: Executor,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Clock,
        on_sync: Callable[[float], None] | None = None,
    ) -> None:
        self._executor = executor
        self._index_executor = index_executor
        self._call_soon = call_soon
        self._clock = clock
        self._on_sync = on_sync
        self._asked: dict[int, Flushable] = {}
        self._round = False
        self._indexing = 0
        self._idle_callbacks: list[Callable[[], None]] = []

    @property
    def busy(self) -> bool:
        """Whether a round is under way, or about to begin, or not all it is for is synced."""
        return self._round or self._indexing > 0

    def request(self, log: Flushable) -> None:
        """Have `log` synced; its `end_flush` is called in the loop's thread."""
        self._asked[id(log)] = log
        if not self._round:
            self._round = True
            self._call_soon(self._start_round)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once nothing is under way or asked for; at once if that is now."""
        if self.busy:
            self._idle_callbacks.append(callback)
        else:
            callback()

    def _start_round(self) -> None:
        """Begin the next round, or tell those who wait that there is none."""
        logs = list(self._asked.values())
        self._asked.clear()
        works = [(log, work) for log in logs if (work := log.begin_flush()) is not None]
        if works:
            self._executor.submit(self._run, works)
            return
        self._round = False
        self._tell_if_idle()

    def _tell_if_idle(self) -> None:
        if not self.busy:
            callbacks, self._idle_callbacks = self._idle_callbacks, []
            for callback in callbacks:
                callback()

    def _run(self, works: Sequence[tuple[Flushable, FlushWork]]) -> None:
        outcomes: list[tuple[Flushable, FlushWork, OSError | None, float]] = []
        for log, work in works:
            started = self._clock.monotonic()
            error = _error_of(work.sync_messages)
            outcomes.append((log, work, error, self._clock.monotonic() - started))
        self._call_soon(lambda: self._finish(outcomes))

    def _finish(
        self, outcomes: Sequence[tuple[Flushable, FlushWork, OSError | None, float]]
    ) -> None:
        with ExitStack() as ends:
            # An exception of one log's end is raised when all the others have had theirs.
            ends.callback(self._start_round)
            for log, work, error, seconds in reversed(outcomes):
                if self._on_sync is not None:
                    ends.callback(self._on_sync, seconds)
                if error is None and (work.has_indexes or self._indexing):
                    # In the order of the rounds, so that no recovery point overtakes indexes.
                    ends.callback(self._index, log, work)
                    ends.callback(log.messages_synced, work)
                else:
                    ends.callback(log.end_flush, work, error)

    def _index(self, log: Flushable, work: FlushWork) -> None:
        """Have the indexes synced behind the messages."""
        self._indexing += 1

        def run() -> None:
            error = _error_of(work.sync_indexes)
            self._call_soon(lambda: self._indexed(log, work, error))

        self._index_executor.submit(run)

    def _indexed(self, log: Flushable, work: FlushWork, error: OSError | None) -> None:
        self._indexing -= 1
        try:
            log.end_flush(work, error)
        finally:
            self._tell_if_idle()


def _error_of(sync: Callable[[], None]) -> OSError | None:
    """Sync; what went wrong, if anything did."""
    try:
        sync()
    except OSError as failure:
        return failure
    except Exception as failure:
        # Whatever it was, the bytes are not known to be safe.
        return OSError(errno.EIO, f"{type(failure).__name__}: {failure}")
    return None
