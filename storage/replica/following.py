"""Appending what a leader has stored: its bytes, its rolls, its append times and file times.

Nothing is judged but whether the bytes are whole and go on from the log end. All or nothing, but
for a roll: bytes that are refused change nothing.
"""

from contextlib import suppress

from ...protocol.errors import CorruptMessage, InvalidRequest, StorageError
from ...protocol.records.kernel import Walk, walk
from ...protocol.records.kernel.terms import Offsets, Problem
from ...protocol.records.layout import BATCH_MAGIC, NO_TIMESTAMP
from ...protocol.records.problems import problem_error
from ..entries.entry_check import EntryCheck
from ..files import Buffer
from ..index.append_times import Span
from ..log.admitted import NOTHING_APPENDED, Appended, AppendRun
from ..log.epoch_history import EpochHistory, MalformedEpochs
from ..log.leader_epochs import EpochWrite
from ..log.log import Log
from ..log.trimmed import may_be_untimed
from ..names import MAX_OFFSET
from ..segment.segment import Segment
from .copy_facts import CopyFacts, MalformedFacts

_BATCHES = 1 << BATCH_MAGIC

LOG_BYTES_MAX = 2**31 - 1
"""Positions in a log file have 31 bits."""


class Following:
    """Appends to a log what its leader has."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    def appending(self, data: Buffer, facts: CopyFacts) -> EpochWrite | None:
        """The epochs that have to be written first, if there are new ones; see
        `Replica.appending`."""
        history = self._log.epochs.history
        if all(epoch <= history.last_epoch for epoch, _ in facts.epochs):
            return None
        _, followed = self._checked(data, facts)
        return None if followed is None else self._log.epochs.writing(followed)

    def append(self, data: Buffer, facts: CopyFacts, written: EpochWrite | None) -> Appended:
        """Append the whole entries of a stretch; see `Replica.append`."""
        log = self._log
        self._log.appender.check_writable()
        found, history = self._checked(data, facts)
        if facts.gaps:
            log.record_gaps()
        try:
            if history is None:
                pass
            elif written is not None and written.history == history:
                log.epochs.take(history)
            else:
                log.epochs.keep(history)
        except OSError as error:
            raise self._log.appender.not_written(error) from error
        first_offset = found.first_offset if found.end else log.log_end_offset
        active = log.segment_list.active
        rolled = self._roll(facts, first_offset, found.end)
        appended = NOTHING_APPENDED
        if found.end:
            stored = memoryview(data)[: found.end]
            if log.segment_list.active is not active:
                found = self._log.appender.walk_for(log.segment_list.active, stored)
            appended = self._append(stored, found, facts, rolled)
        self._take_file_times(facts)
        return appended

    def _checked(self, data: Buffer, facts: CopyFacts) -> tuple[Walk, EpochHistory | None]:
        """The walk over the whole entries of a stretch, as for the active segment, and the epochs
        as they will be, `None` if as they are. Changes nothing. Raises as `append`."""
        log = self._log
        due = log.log_end_offset
        if facts.offset != due:
            raise InvalidRequest(
                f"a stretch from offset {facts.offset} on is to be appended to "
                f"{log.topic}-{log.partition}, which ends at {due}"
            )
        try:
            if not facts.decoded:
                facts.check()
        except MalformedFacts as error:
            raise InvalidRequest(f"what goes with the stretch is not good: {error}") from error
        gaps = facts.gaps or log.gaps
        found = check_copied(
            data, due, log.segment_list.active, log.settings.index_interval_bytes, gaps=gaps
        )
        base = log.segment_list.active.base_offset
        if facts.segment_base >= due:
            base = facts.segment_base
        first = found.first_offset if found.end else base
        if found.end and first < base:
            raise InvalidRequest(
                f"a stretch from offset {first} on is said to be of a segment that begins at {base}"
            )
        if base > due and not gaps:
            raise InvalidRequest(
                f"a segment begins at offset {base}, the log ends at {due}, and has no gaps"
            )
        history = log.epochs.history
        if not found.end:
            return found, None
        try:
            followed = history.followed(facts.epochs, due, found.last_offset + 1)
        except MalformedEpochs as error:
            raise InvalidRequest(f"{error}: the log has to be cut before it goes on") from error
        return found, None if followed == history else followed

    def _roll(self, facts: CopyFacts, first_offset: int, size_bytes: int) -> str | None:
        """Have the segment that the leader has, as far as that is possible; why one was begun.

        Segments that were not begun together stay as they are until the leader begins the next.
        """
        log = self._log
        listed = log.segment_list
        active = listed.active
        base = facts.segment_base
        if base < active.base_offset and not active.size_bytes and len(listed.segments) > 1:
            self._reopen()
            active = listed.active
        elif base >= log.log_end_offset and base != active.base_offset:
            return self._begin_segment(base, "leader")
        if active.size_bytes and (
            active.size_bytes + size_bytes > LOG_BYTES_MAX
            # The leader may hold messages that are too far from its base offset for an index.
            or (base != active.base_offset and not active.fits(first_offset))
        ):
            return self._begin_segment(log.log_end_offset, "size")
        return None

    def _begin_segment(self, base_offset: int, reason: str) -> str:
        log = self._log
        try:
            log.segment_list.roll(base_offset, log.settings, reason)
        except OSError as error:
            raise self._log.appender.not_written(error) from error
        except StorageError as failure:
            log.fail(failure)
            raise
        self._ends_in_active()
        log.producers.take_snapshot(log.log_end_offset)
        return reason

    def _reopen(self) -> None:
        """Go on in the last segment but one: the leader has not begun the one behind it."""
        log = self._log
        try:
            log.segment_list.reopen(log.settings)
        except OSError as error:
            failure = StorageError(f"{log.path}: a segment could not be opened again ({error})")
            log.fail(failure)
            raise failure from error
        self._ends_in_active()

    def _ends_in_active(self) -> None:
        """The log begins and ends where its segments do."""
        log = self._log
        log.log_start_offset = max(log.log_start_offset, log.segment_list.first.base_offset)
        log.log_end_offset = log.segment_list.active.next_offset
        log.advance()

    def _append(
        self, stored: memoryview, found: Walk, facts: CopyFacts, rolled: str | None
    ) -> Appended:
        log = self._log
        listed = log.segment_list
        run = AppendRun(log.seams.clock.now_ms(), wait_for_sync=False)
        run.first_offset = listed.active.next_offset
        spans = _spans_within(facts, listed.active, found.last_offset + 1)
        try:
            listed.active.stage(stored, found, NO_TIMESTAMP, append_spans=spans)
        except OSError as error:
            raise self._log.appender.not_written(error) from error
        run.last_stamp_ms = found.last_append_time_ms
        self._log.appender.commit_or_raise(run)
        if found.magics & _BATCHES:
            log.producers.take_stored(stored)
        return Appended(
            (found.first_offset,),
            found.last_offset,
            NO_TIMESTAMP,
            found.count,
            len(stored),
            None,
            rolled,
        )

    def _take_file_times(self, facts: CopyFacts) -> None:
        """Let closed files, and those without timestamps, be as old as the leader's. What fails is
        done with the next stretch."""
        log = self._log
        segments = log.segment_list.segments
        active = segments[-1]
        told = max(facts.created_ms, facts.modified_ms, facts.modified_before_ms)
        # A copy may begin in the middle of the leader's first segment.
        begun_in = len(segments) == 1 and facts.segment_base < active.base_offset
        if told < 0 or not (active.base_offset == facts.segment_base or begun_in):
            return
        files = log.seams.files
        with suppress(OSError):
            if 0 <= facts.created_ms != active.created_ms and active.first_timestamp_ms < 0:
                active.set_created(facts.created_ms)
            if facts.modified_ms >= 0 and may_be_untimed(log, active):
                files.set_modified_ms(active.log_path, facts.modified_ms)
            for before in segments[-2:-1] if facts.modified_before_ms >= 0 else ():
                files.set_modified_ms(before.log_path, facts.modified_before_ms)


def check_copied(
    data: Buffer, log_end_offset: int, active: Segment, interval_bytes: int, *, gaps: bool
) -> Walk:
    """Check entries that another log stored, which come at the log end; the walk over the whole
    ones, with places for index entries as they fall in `active`. `gaps` lets offsets jump.

    Raises `CorruptMessage`, `UnsupportedForMessageFormat`, and `InvalidRequest` for offsets that do
    not go on from the log end.
    """
    rule = Offsets.RISING if gaps else Offsets.CONTIGUOUS
    found = walk(
        data,
        0,
        len(data),
        offsets=rule,
        base_offset=log_end_offset,
        interval_bytes=interval_bytes,
        since_bytes=active.since_bytes,
        largest_ms=active.largest[0],
        magic=active.last_magic,
        segment_offset=active.base_offset,
        segment_position=active.size_bytes,
    )
    if found.problem not in (Problem.NONE, Problem.PARTIAL, Problem.OFFSET):
        raise problem_error(data, found, len(data))
    check = EntryCheck(log_end_offset, gaps=gaps, limit_offset=MAX_OFFSET)
    breach = check.check(data, found, 0)
    if breach is not None:
        if breach.problem is Problem.OFFSET:
            raise InvalidRequest(f"byte {breach.position} of a stretch: {breach.rule}")
        raise CorruptMessage(f"byte {breach.position} of a stretch: {breach.rule}")
    return found


def _spans_within(facts: CopyFacts, segment: Segment, end_offset: int) -> list[Span]:
    """The append times of what goes into a segment, up to `end_offset`; -1 is unknown."""
    begin = max(segment.next_offset, segment.base_offset)
    spans = [span for span in facts.append_times if begin < span[0] < end_offset]
    before = [ms for offset, ms in facts.append_times if offset <= begin < facts.times_end]
    spans = [(begin, before[-1] if before else NO_TIMESTAMP), *spans]
    if facts.times_end < end_offset and spans[-1][0] < facts.times_end:
        spans.append((facts.times_end, NO_TIMESTAMP))
    return spans
