"""Syncing: what one sync of a log has to do, doing it for many logs at once, in a thread, and what
is known once it is done.

The loop's thread decides what to sync (`Log.begin_flush`) and learns the outcome (`Log.end_flush`);
only `FlushWork.run` may be in another thread, on handles of its own.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from ...clock import Clock
from ..files import NO_HANDLES, RETRIABLE_ERRORS, File, Files, replace_file
from ..index.index_checksums import FILE_NAME
from ..producers.producer_snapshots import KEPT, PendingSnapshot


@dataclass(slots=True, eq=False)
class FlushWork:
    """One sync of one log. When it is done, everything below `target_offset` is on
    stable storage."""

    target_offset: int
    directory: Path
    files: Files
    index_paths: Sequence[Path]
    """Index files of the segments that were closed since the last sync."""
    checksums: bytes | None
    """New content of the `index-checksums` file."""
    new_checksums: frozenset[int]
    """Base offsets of the segments that `index_paths` belong to."""
    sync_directory: bool
    """Whether files were created or renamed. The folder is synced then, because without its names
    their content is not safe."""
    segments_dropped: bool = False
    """Whether old segments were renamed. No message waits for that."""
    snapshots: Sequence[PendingSnapshot] = ()
    """Producer snapshots at offsets up to `target_offset`."""
    log_files: list[File] = field(default_factory=list)
    """Log files, oldest first. The handles belong to this work; `run` closes them."""
    not_begun: bool = False
    """Whether the sync failed because no handle was free for the folder. Its names are not synced,
    and nothing is lost."""
    unfinished: OSError | None = None
    """Why the indexes or their checksums have to wait for another sync: no room on the disk, or no
    free handle. All messages are safe all the same."""

    def run(self) -> None:
        """Sync everything. Raises `OSError`."""
        self.sync_messages()
        sync_indexes([self])

    def sync_messages(self) -> None:
        """Sync the log files, then the folder. The messages are safe then. Raises `OSError`."""
        try:
            for file in self.log_files:
                file.sync()
        finally:
            self.close()
        if self.sync_directory:
            try:
                self.files.sync_directory(self.directory)
            except OSError as error:
                self.not_begun = error.errno in NO_HANDLES
                raise

    @property
    def has_indexes(self) -> bool:
        """Whether anything but messages has to be synced."""
        others = self.index_paths or self.snapshots or self.segments_dropped
        return bool(others) or self.checksums is not None

    def sync_index_files(self) -> None:
        """Sync the index files. Raises `OSError`."""
        for path in self.index_paths:
            with self.finishing_later():
                self._sync_index(path)

    @contextmanager
    def finishing_later(self) -> Iterator[None]:
        """Record an error in `unfinished` if the sync may succeed later."""
        try:
            yield
        except OSError as error:
            if error.errno not in RETRIABLE_ERRORS:
                raise
            self.unfinished = error

    def _sync_index(self, path: Path) -> None:
        try:
            index = self.files.open(path)
        except FileNotFoundError:
            return  # Retention dropped the segment since this work was begun.
        try:
            index.sync()
        except OSError as error:
            # It must not be tried again, whatever the reason was.
            raise OSError(errno.EIO, f"{path}: {error}") from error
        finally:
            index.close()

    def close(self) -> None:
        """Close the handles."""
        for file in self.log_files:
            file.close()
        self.log_files.clear()


def sync_indexes(works: Sequence[FlushWork]) -> None:
    """Sync everything but messages for some works of one log, in their order.

    The order is: indexes, snapshots, checksums, names of dropped segments. What a later work writes
    again is written once. If anything has to wait for room or a handle, all works are unfinished.
    Raises `OSError`.
    """
    last = works[-1]
    for work in works:
        work.sync_index_files()
    snapshots = [one for work in works for one in work.snapshots if not one.settled]
    for snapshot in snapshots[-KEPT:]:
        with last.finishing_later():
            snapshot.write(last.files)
    for snapshot in snapshots[:-KEPT]:
        with last.finishing_later():
            snapshot.skip(last.files)
    unfinished = [work.unfinished for work in works if work.unfinished is not None]
    checksums = [work.checksums for work in works if work.checksums is not None]
    if checksums and not unfinished:
        with last.finishing_later():
            replace_file(last.files, last.directory / FILE_NAME, checksums[-1])  # and the names
    elif any(work.segments_dropped for work in works):
        with last.finishing_later():
            last.files.sync_directory(last.directory)
    for work in works:
        work.unfinished = last.unfinished or (unfinished[0] if unfinished else None)


LOGS_IN_A_ROUND: Final = 64
"""Number of logs whose syncs the loop begins or ends in one turn. A client may produce to
thousands."""


class Flushable(Protocol):
    """The operations that group commit needs from a log."""

    def begin_flush(self, *, closed_only: bool = False) -> FlushWork | None: ...

    def messages_synced(self, work: FlushWork) -> None: ...

    def end_flush(self, work: FlushWork, error: OSError | None = None) -> None: ...


_Indexing = tuple[Flushable, FlushWork]
"""A log and one of its syncs: the messages are synced, the indexes are not."""


class GroupCommit:
    """Syncs logs in rounds: requests made during a round are served by the next round.

    The first round begins with the loop's next turn, so it syncs what this turn reads from all
    ready connections. A round syncs messages, the only thing that clients wait for. The indexes of
    closed segments follow in rounds of their own, during the next rounds of messages.

    `executor` runs the syncs of messages. `index_executor` runs those of indexes, in order.
    `call_soon` takes a function from any thread and calls it in the loop's thread. `on_sync`, if
    given, gets the seconds that each sync of a log's messages took. `on_indexed`, if given, is
    called after each round of indexes: recovery points rise then.
    """

    def __init__(
        self,
        executor: Executor,
        index_executor: Executor,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Clock,
        on_sync: Callable[[float], None] | None = None,
        on_indexed: Callable[[], None] | None = None,
    ) -> None:
        self._executor = executor
        self._index_executor = index_executor
        self._call_soon = call_soon
        self._clock = clock
        self._on_sync = on_sync
        self._on_indexed = on_indexed
        self._asked: dict[Flushable, bool] = {}
        """Logs to be synced; the value says whether only their closed segments are."""
        self._round = False
        self._to_index: dict[Path, list[_Indexing]] = {}
        """Works to index, by folder of the log."""
        self._with_checksums: dict[Path, FlushWork] = {}
        """By folder of the log, the newest of these works with checksums to write."""
        self._indexing = 0
        self._idle_callbacks: list[Callable[[], None]] = []

    @property
    def busy(self) -> bool:
        """Whether a round is running or due, or a sync of indexes is pending."""
        return self._round or self._indexing > 0

    def request(self, log: Flushable, *, closed_only: bool = False) -> None:
        """Request a sync of `log`, or only of its closed segments. `end_flush` of the log is called
        in the loop's thread."""
        self._asked[log] = closed_only and self._asked.get(log, True)
        if not self._round:
            self._round = True
            self._call_soon(self._start_round)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once nothing is running or requested; at once if that is now."""
        if self.busy:
            self._idle_callbacks.append(callback)
        else:
            callback()

    def _start_round(self) -> None:
        """Begin the next round, or call the idle callbacks if there is none."""
        works: list[tuple[Flushable, FlushWork]] = []
        for log in list(islice(self._asked, LOGS_IN_A_ROUND)):
            work = log.begin_flush(closed_only=self._asked.pop(log))
            if work is not None:
                works.append((log, work))
        if works:
            self._executor.submit(self._run, works)
            return
        if self._asked:
            self._call_soon(self._start_round)
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
            # An exception from one log is raised after all other logs were handled.
            ends.callback(self._start_round)
            for log, work, error, seconds in reversed(outcomes):
                if self._on_sync is not None:
                    ends.callback(self._on_sync, seconds)
                if error is None and (work.has_indexes or self._indexing):
                    # In the order of the rounds, so that no recovery point gets ahead of the
                    # indexes.
                    ends.callback(self._index, log, work)
                    ends.callback(log.messages_synced, work)
                else:
                    ends.callback(log.end_flush, work, error)

    def _index(self, log: Flushable, work: FlushWork) -> None:
        """Queue a work for a sync of indexes."""
        self._indexing += 1
        self._to_index.setdefault(work.directory, []).append((log, work))
        if work.checksums is not None:
            # The checksums cover all segments of a log, possibly thousands, and change at each
            # roll, which may come faster than the disk syncs. The next round writes only the newest
            # checksums.
            older = self._with_checksums.get(work.directory)
            if older is not None:
                older.checksums = None
            self._with_checksums[work.directory] = work
        if self._indexing == 1:
            self._start_index_round()

    def _start_index_round(self) -> None:
        """Begin the next round of indexes, or call the idle callbacks if there is none."""
        if not self._to_index:
            self._tell_if_idle()
            return
        # All works of a log go together: only the newest one has checksums.
        groups = []
        for directory in list(islice(self._to_index, LOGS_IN_A_ROUND)):
            groups.append(self._to_index.pop(directory))
            self._with_checksums.pop(directory, None)
        self._index_executor.submit(self._run_indexes, groups)

    def _run_indexes(self, groups: Sequence[Sequence[_Indexing]]) -> None:
        outcomes: list[tuple[Flushable, FlushWork, OSError | None]] = []
        for group in groups:
            error = _error_of(partial(sync_indexes, [work for _, work in group]))
            outcomes += [(log, work, error) for log, work in group]
        self._call_soon(lambda: self._finish_indexes(outcomes))

    def _finish_indexes(
        self, outcomes: Sequence[tuple[Flushable, FlushWork, OSError | None]]
    ) -> None:
        self._indexing -= len(outcomes)
        with ExitStack() as ends:
            ends.callback(self._start_index_round)
            if self._on_indexed is not None:
                ends.callback(self._on_indexed)
            for log, work, error in reversed(outcomes):
                ends.callback(log.end_flush, work, error)


def _error_of(sync: Callable[[], None]) -> OSError | None:
    """Sync, and return the error if there was one."""
    try:
        sync()
    except OSError as failure:
        return failure
    except Exception as failure:
        # Whatever happened, it is not known that the bytes are safe.
        return OSError(errno.EIO, f"{type(failure).__name__}: {failure}")
    return None
