"""Which parts of a log file are valid: runs of valid entries and of bad bytes."""

from collections.abc import Generator, Iterator

from ...protocol.records.kernel.terms import Problem
from ...values import value_class
from ..files import File
from .entry_check import CheckedEntry, EntryCheck
from .entry_rules import ANY_REACH, OffsetLimit
from .salvage import EntrySearch, offsets_at
from .segment_scan import LogScan, SegmentScan, scan_log_file


@value_class
class LogRun:
    """Bytes `start` to `end` of a log file, all valid or all bad."""

    start: int
    end: int
    first_offset: int
    """Offset of the first message; for bad bytes the offset that was expected."""
    next_offset: int
    """The offset after the last message; for bad bytes the same as `first_offset`."""
    rule: str | None = None
    """What is wrong, in words; `None` for valid bytes."""
    later_format: bool = False
    """Whether the bytes have a format that only a later version can read."""

    @property
    def good(self) -> bool:
        return self.rule is None

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


class LogSurvey:
    """The valid and the bad runs of a log file from `start` on, where `next_offset` is expected.

    `limit_offset` is the base offset of the next segment. An offset that jumps must not reach it,
    nor an offset after a jump. If consecutive messages reach it without a jump, the two segments
    overlap, and no message is bad for that. `reach` applies only to the last segment. `end_offset`
    is the offset after the last message, if it is known and nothing is missing at the end of the
    file.
    """

    def __init__(
        self,
        file: File,
        size_bytes: int,
        *,
        next_offset: int,
        limit_offset: int | None,
        gaps: bool,
        start: int = 0,
        end_offset: int | None = None,
        reach: OffsetLimit = ANY_REACH,
    ) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._position = start
        self._next_offset = next_offset
        self._limit_offset = limit_offset
        self._end_offset = end_offset
        self._reach = reach
        self._gaps = gaps
        self._jumped = False

    @property
    def _upper_offset(self) -> int:
        limit = self._limit_offset
        return self._reach.limit_offset if limit is None else limit

    def runs(self) -> Iterator[LogRun]:
        """Yield all runs in order. Raises `OSError`."""
        return (found for found in self._survey(deep=False) if isinstance(found, LogRun))

    def entries_and_runs(self) -> Iterator[CheckedEntry | LogRun]:
        """Like `runs`, with the valid entries of each run before it, checked deeply. Reads no byte
        twice if the file is valid."""
        return self._survey(deep=True)

    def _survey(self, *, deep: bool) -> Iterator[CheckedEntry | LogRun]:
        while self._position < self._size_bytes:
            start, due = self._position, self._next_offset
            scan = yield from self._good_run(deep=deep)
            if self._position > start:
                offsets = offsets_at(self._file, start, self._position)
                first = due if offsets is None else offsets[0]
                yield LogRun(start, self._position, first, self._next_offset)
            if scan.problem is Problem.NONE:
                return
            yield from self._bad_run(scan)

    def _good_run(self, *, deep: bool) -> Generator[CheckedEntry, None, SegmentScan]:
        while True:
            start, due = self._position, self._next_offset
            scan = yield from self._scan(deep=deep)
            self._position, self._next_offset = scan.good_bytes, scan.next_offset
            if not scan.overlap or self._limit_offset is None or self._jumped:
                return scan
            in_order = scan_log_file(
                self._file, start, scan.good_bytes, next_offset=due, gaps=False, check_crc=True
            )
            if in_order.problem is not Problem.NONE:
                return scan
            self._limit_offset = self._end_offset = None

    def _scan(self, *, deep: bool) -> Generator[CheckedEntry, None, SegmentScan]:
        check = EntryCheck(
            self._next_offset, gaps=self._gaps, limit_offset=self._upper_offset, deep=deep
        )
        scan = LogScan(
            self._file,
            self._position,
            self._size_bytes,
            check,
            next_offset=self._next_offset,
            gaps=self._gaps,
        )
        last: CheckedEntry | None = None
        for data, position in scan.pieces():
            if deep:
                for checked in check.entries(data, position, scan.found.good_bytes):
                    if last is not None:
                        yield last
                    last = checked
        # The next entry may have shown that its offset is wrong.
        if last is not None and last.stored.position < scan.found.good_bytes:
            yield last
        return scan.found

    def _bad_run(self, scan: SegmentScan) -> Iterator[LogRun]:
        """Yield the bytes at which `scan` stopped, up to the next trustworthy entry."""
        start, due = self._position, self._next_offset
        found = None if scan.later_format else self._search()
        if found is None and self._may_go_on_far and not scan.later_format:
            self._reach = ANY_REACH
            found = self._search()
        self._position = self._size_bytes if found is None else found[0]
        if self._position > start:
            yield LogRun(start, self._position, due, due, scan.rule, scan.later_format)
        if found is not None:
            self._jumped = self._jumped or found[1] != due
            self._next_offset = found[1]

    @property
    def _may_go_on_far(self) -> bool:
        return self._limit_offset is None and self._gaps and not self._reach.exact

    def _search(self) -> tuple[int, int] | None:
        """Return position and first offset of the next trustworthy entry."""
        whole = self._end_offset is not None
        search = EntrySearch(
            self._file,
            self._size_bytes,
            self._next_offset,
            self._upper_offset,
            None if self._gaps else self._end_offset if whole else self._limit_offset,
            self._gaps,
            whole=whole,
        )
        return search.after(self._position)


def goes_on_far(file: File, scan: SegmentScan, size_bytes: int, limit_offset: int) -> bool:
    """Whether the entry that stopped `scan` of a log with gaps is at or above `limit_offset`, and
    no valid entry below that limit follows it. Raises `OSError`."""
    offsets = offsets_at(file, scan.good_bytes, size_bytes)
    if offsets is None or offsets[1] < limit_offset:
        return False
    search = EntrySearch(file, size_bytes, scan.next_offset, limit_offset, None, True, whole=False)
    return search.after(scan.good_bytes) is None


def good_after(
    file: File, scan: SegmentScan, size_bytes: int, reach: OffsetLimit, *, gaps: bool
) -> int | None:
    """Return the offset after the last valid entry behind the one that stopped `scan`; `None` if
    there is none.

    For the last segment of a log, with its `reach`. Raises `OSError`.
    """
    found = None
    survey = LogSurvey(
        file,
        size_bytes,
        next_offset=scan.next_offset,
        limit_offset=None,
        gaps=gaps,
        start=scan.good_bytes,
        reach=reach,
    )
    for run in survey.runs():
        if run.good:
            found = run.next_offset
    return found
