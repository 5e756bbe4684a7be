"""One partition's log: segments in a row, appended to at the end, dropped at the start.

A log belongs to one thread, the event loop's. Two things may run elsewhere: `prepare`, and the
`FlushWork` that `Flusher.begin_flush` hands out. Opening a log is `log_opening.open_log`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ...protocol.errors import StorageError
from ...protocol.records.layout import NO_TIMESTAMP
from .appender import Appender
from .expiry import Expiry
from .flush import FlushWork
from .flusher import Flusher
from .log_state import REFUSED, LogParts, LogState


class Log(LogState):
    """The messages of one partition. Made by `open_log`.

    What can be done with it is in its parts; what concerns all of them is here.
    """

    # With more than thirty attributes an object's dictionary shares its keys with no other one's:
    # it takes five times the memory, and there are thousands of these.
    __slots__ = (
        "_closed_form",
        "appender",
        "expiry",
        "flusher",
    )

    def __init__(self, parts: LogParts) -> None:
        super().__init__(parts)
        self.appender = Appender(self)
        self.expiry = Expiry(self, self.appender)
        self.flusher = Flusher(self)
        self._closed_form = False

    def truncate(self, offset: int) -> None:
        """Remove the messages from `offset` on; beyond the log end nothing happens.

        A wrapper that holds `offset` goes as a whole. Raises `ValueError` for a negative offset,
        `StorageError`: then nothing is appended any more until a restart, if a cut was begun.
        """
        if offset < 0:
            raise ValueError(f"a log cannot be cut at offset {offset}; it must be 0 or more")
        if offset >= self.log_end_offset:
            return
        if offset < self.segment_list.first.base_offset:
            self.truncate_fully(offset)
            return
        with self._all_or_fail("truncated"):
            end = self.segment_list.end_before(offset)
        if self.segment_list.holding(offset).damaged is not None:
            offset = end  # Nothing of a damaged segment is kept.
        # It goes into the checkpoint that is written now: what comes in place of the messages is
        # not below the log start.
        self.log_start_offset = min(self.log_start_offset, offset)
        self.flusher.lower_recovery_point(offset, end)
        with self._all_or_fail("truncated"):
            self.producers.prepare_cut(offset)
            self.segment_list.truncate(offset, self.settings)
            self.producers.load_again(self.segment_list.segments)
            self.last_stamp_ms = self.segment_list.last_stamp_ms(0)
            self._ends_at(offset)
            if end < offset:
                self.record_gaps()  # A wrapper went whose first messages were below `offset`.
            if self.has_epochs:
                self.epochs.cut(offset)

    @contextmanager
    def _all_or_fail(self, done: str) -> Iterator[None]:
        """What is begun here and not finished ends all appends."""
        try:
            yield
        except OSError as error:
            failure = StorageError(f"{self.path}: the log could not be {done} ({error}); {REFUSED}")
            self.fail(failure)
            raise failure from error
        except StorageError as failure:
            self.fail(failure)
            raise

    def truncate_fully(self, offset: int) -> None:
        """Remove all messages; the log goes on at `offset`. Raises as `truncate`."""
        # A power cut may keep any of the segments: none of them is to be missed.
        lowest = min(offset, self.segment_list.first.base_offset)
        recovery_point = min(offset, self.recovery_point)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.flusher.lower_recovery_point(lowest, lowest)
        with self._all_or_fail("emptied"):
            self.producers.prepare_cut(-1)
            self.segment_list.restart_at(offset, self.settings)
            self.producers.load_again(self.segment_list.segments)
            if self.has_epochs:
                self.epochs.clear()
        self.recovery_point = recovery_point
        self.last_stamp_ms = NO_TIMESTAMP
        self.log_start_offset = offset
        self._ends_at(offset)

    def _ends_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.window_knowledge = None
        self.flusher.end_at(offset)
        self.watermark.cut(offset)
        self.observe("log_truncated", offset=offset)
        self.advance()

    def begin_close(self) -> FlushWork | None:
        """Do the first part of `close`: what has to be synced now, for `end_flush` when run.

        Nothing may be appended after that. Raises `OSError`, which `close` meets again.
        """
        if self.failure is not None:
            return None
        self._seal()
        return self.flusher.begin_flush()

    def abandon(self) -> None:
        """Close without syncing anything: the files are about to be deleted."""
        self._release()

    def _release(self) -> None:
        self.flusher.closed = True
        self.producers.close()
        self.segment_list.release_all()

    def _seal(self) -> None:
        self.segment_list.close_indexes(stops=True)
        self.producers.take_snapshot(self.log_end_offset)
        self._closed_form = True

    def close(self) -> None:
        """Bring everything to its closed form and sync it. Raises `OSError`, `StorageError`."""
        try:
            if self.failure is not None:
                raise self.failure
            if not self._closed_form:
                self._seal()
            self.flusher.flush()
            self.flusher.secure_append_times()
        finally:
            self._release()
