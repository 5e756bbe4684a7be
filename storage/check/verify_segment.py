"""Checking one segment: its log message by message, what is derived from it against it, and what
`index-checksums` says of its files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final
from zlib import crc32

from ...protocol.records.layout import BATCH_MAGIC
from ...values import value_class
from ..entries.entry_check import CheckedEntry, EntryCheck
from ..entries.entry_rules import jumps_rule, last_reach
from ..entries.log_reader import CHUNK_BYTES, Stop, StoredEntry, read_log_file
from ..entries.log_survey import LogRun, LogSurvey
from ..files import File, Files
from ..index.index_checksums import (
    FILE_NAME,
    AppendTimesChecksum,
    SegmentChecksums,
    TimeMapChecksum,
    end_offset,
    is_open_form,
    parse_checksums,
)
from .findings import KEPT_AS_IT_IS, NOTHING, REPAIR, TORN, Finding, cannot_read
from .verify_indexes import (
    MADE_ANEW,
    OffsetIndexCheck,
    TimeIndexCheck,
    TimeMapCheck,
    check_append_times,
)

_REBUILT: Final = "nothing: the broker rebuilds the segment's indexes from its log"


@value_class
class NeighbourSegments:
    """What the check of a segment needs to know of its partition."""

    gaps: bool
    """Whether offsets may jump."""
    next_base_offset: int | None
    """Base offset of the segment after it; `None` for the last one."""
    recovery_point: int | None
    """Everything below it was synced; `None` if not known."""
    checksums: SegmentChecksums | None = None
    """The segment's line in `index-checksums`."""
    clean: bool = False
    """Whether the log was stopped cleanly."""
    limit_offset: int | None = None
    """Base offset of the next segment, even if that segment is missing."""


def survey_segment(
    log: File,
    log_bytes: int,
    base_offset: int,
    around: NeighbourSegments,
    *,
    due: int | None = None,
) -> LogSurvey:
    """Return the survey of one segment, so that check and repair see the same valid and bad runs.

    `due` is where the segment before it ends, if the survey has to begin there.
    """
    following, point = around.limit_offset, around.recovery_point
    return LogSurvey(
        log,
        log_bytes,
        next_offset=base_offset if due is None else max(base_offset, due),
        limit_offset=following,
        gaps=around.gaps,
        end_offset=end_offset(around.checksums, log_bytes, following, point, clean=around.clean),
        reach=last_reach(base_offset, point if around.clean else None),
    )


@value_class
class _Derived:
    """The checks of the files derived from a log, entry by entry."""

    offsets: OffsetIndexCheck | None
    times: TimeIndexCheck | None
    time_map: TimeMapCheck

    def start(self) -> Iterator[Finding]:
        """Begin all checks."""
        for check in (self.offsets, self.times, self.time_map):
            if check is not None:
                yield from check.start()

    def passed(
        self, checked: CheckedEntry, previous_offset: int, *, good: bool
    ) -> Iterator[Finding]:
        """Check against the next entry of the log, behind `previous_offset`. `good` says that the
        entry can be read."""
        stored, last_offset = checked.stored, checked.stored.last_offset
        if self.offsets is not None:
            of_batch = stored.magic == BATCH_MAGIC
            yield from self.offsets.passed(
                stored.position, previous_offset, last_offset, of_batch=of_batch
            )
        if self.times is not None:
            first = checked.inside.first_offset
            yield from self.times.passed(first, last_offset, stored.timestamp_ms)
        yield from self.time_map.passed(stored, good=good)

    def finish(self, log_bytes: int, end_offset: int) -> Iterator[Finding]:
        """Check what remains after the end of the log. The next segment begins, or would begin, at
        `end_offset`."""
        if self.offsets is not None:
            yield from self.offsets.finish(log_bytes)
        if self.times is not None:
            yield from self.times.finish(end_offset)
        yield from self.time_map.finish(log_bytes)


class SegmentCheck:
    """One pass over a segment. `next_offset` and `complete` are valid once `run` is exhausted."""

    def __init__(
        self, files: Files, directory: Path, base_offset: int, surroundings: NeighbourSegments
    ) -> None:
        stem = f"{base_offset:020d}"
        self._files = files
        self._log_path = directory / f"{stem}.log"
        self._offset_path = directory / f"{stem}.index"
        self._time_path = directory / f"{stem}.timeindex"
        self._append_times_path = directory / f"{stem}.appendtime"
        self._map_path = directory / f"{stem}.timemap"
        self._base_offset = base_offset
        self._around = surroundings
        self._magic_changes: list[tuple[int, int]] = []
        self.next_offset = base_offset
        """Offset after the last entry that was read."""
        self.complete = False
        """Whether the log could be read to its end."""

    @property
    def _settled(self) -> bool:
        """Whether the segment was closed and could not have changed since."""
        around = self._around
        if around.next_base_offset is None or around.recovery_point is None:
            return around.clean
        return around.clean or around.next_base_offset <= around.recovery_point

    def run(self) -> Iterator[Finding]:
        """Yield everything found in the segment. An `OSError` becomes a finding."""
        try:
            with ExitStack() as opened:
                log = self._open(opened, self._log_path)
                map_check = self._open_map(log)
                offset_check = time_check = None
                if self._files.exists(self._offset_path):
                    file = self._open(opened, self._offset_path)
                    offset_check = OffsetIndexCheck(self._offset_path, file, self._base_offset)
                if self._files.exists(self._time_path):
                    file = self._open(opened, self._time_path)
                    time_check = TimeIndexCheck(self._time_path, file, self._base_offset)
                yield from self._missing(offset_check, time_check)
                yield from self._check(log, _Derived(offset_check, time_check, map_check))
            yield from self._check_derived()
        except OSError as error:
            self.complete = False
            path = Path(error.filename or self._log_path)
            yield cannot_read(path, error)

    def _open(self, opened: ExitStack, path: Path) -> File:
        file = self._files.open(path, read_only=True)
        opened.callback(file.close)
        return file

    def _open_map(self, log: File) -> TimeMapCheck:
        """Return the check of the time map. The map is read before the end of the log is known:
        what a broker writes meanwhile reaches the log first."""
        line, data = self._around.checksums, None
        if self._files.exists(self._map_path):
            data = self._files.read_bytes(self._map_path)
        is_current = line is not None and line.log_bytes == log.size() and self._settled
        checksum = line.time_map if line is not None and is_current else None
        return TimeMapCheck(self._log_path, data, self._base_offset, checksum)

    def _missing(
        self, offset_check: OffsetIndexCheck | None, time_check: TimeIndexCheck | None
    ) -> Iterator[Finding]:
        for check, path in ((offset_check, self._offset_path), (time_check, self._time_path)):
            if check is None:
                rule = "the segment has no such file; it is rebuilt from the log when it is needed"
                yield Finding(path, None, rule, NOTHING, error=False)

    def _check(self, log: File, derived: _Derived) -> Iterator[Finding]:
        log_bytes = log.size()
        yield from derived.start()
        self.complete = True
        damaged = False
        begins = True
        for found in survey_segment(
            log, log_bytes, self._base_offset, self._around
        ).entries_and_runs():
            if not self.complete:
                if isinstance(found, LogRun):
                    yield self._behind(found)
            elif isinstance(found, CheckedEntry):
                if begins:
                    yield from self._begin_run(found, damaged=damaged)
                begins = False
                yield from self._take(found, derived)
            else:
                begins, damaged = True, not found.good
                if damaged:
                    yield from self._check_bad(log, found, derived)
        if self.complete:
            end_offset = max(self.next_offset, self._around.next_base_offset or 0)
            yield from derived.finish(log_bytes, end_offset)

    def _begin_run(self, first: CheckedEntry, *, damaged: bool) -> Iterator[Finding]:
        """Record that valid entries begin; `damaged` if they follow bad ones."""
        offset, due = first.inside.first_offset, self.next_offset
        if not damaged and not self._around.gaps and offset > due:
            yield self._in_log(first.stored.position, jumps_rule(offset, due))
        self.next_offset = offset

    def _take(self, checked: CheckedEntry, derived: _Derived) -> Iterator[Finding]:
        """Handle a valid entry. A start does not enforce the rules for its content."""
        rule = checked.inside.rule
        if rule is not None:
            yield Finding(self._log_path, checked.stored.position, rule, KEPT_AS_IT_IS)
        yield from self._pass(checked, derived, good=True)

    def _check_bad(self, log: File, run: LogRun, derived: _Derived) -> Iterator[Finding]:
        """Check bad bytes entry by entry, as far as the lengths add up."""
        for item in read_log_file(log, run.end, run.start):
            if item.position == run.start:
                yield self._in_log(item.position, str(run.rule), later=run.later_format)
            if isinstance(item, Stop):
                self.complete = False
                return
            check = EntryCheck(self.next_offset, gaps=self._around.gaps, deep=True)
            inside = check.check_alone(item)
            if inside.rule is not None and item.position > run.start:
                yield self._in_log(item.position, inside.rule)
            yield from self._pass(CheckedEntry(item, inside), derived, good=False)

    def _pass(self, checked: CheckedEntry, derived: _Derived, *, good: bool) -> Iterator[Finding]:
        yield from derived.passed(checked, self.next_offset - 1, good=good)
        self._record_format(checked.stored)
        self.next_offset = checked.stored.last_offset + 1

    def _record_format(self, item: StoredEntry) -> None:
        magic = item.magic
        if not self._magic_changes or self._magic_changes[-1][1] != magic:
            self._magic_changes.append((item.position, magic))

    def _check_derived(self) -> Iterator[Finding]:
        """Check the checksums and the append times, if the whole log could be read."""
        if not self.complete:
            return
        if self._around.checksums is not None and self._settled:
            yield from check_checksums(
                self._files, self._log_path, self._around.checksums, self._magic_changes
            )
        if self._files.exists(self._append_times_path):
            end_offset = max(self.next_offset, self._around.next_base_offset or 0)
            yield from check_append_times(
                self._files,
                self._append_times_path,
                self._base_offset,
                end_offset,
                settled=self._settled,
            )

    def _behind(self, stretch: LogRun) -> Finding:
        """Return the finding for a run behind the place where the log becomes unreadable."""
        if stretch.rule is None:
            return Finding(self._log_path, stretch.start, _good_rule(stretch), REPAIR, False)
        return Finding(self._log_path, stretch.start, stretch.rule, REPAIR)

    def _in_log(self, position: int, rule: str, *, later: bool = False) -> Finding:
        """Return a finding in the log file, where offset `next_offset` is expected."""
        point = self._around.recovery_point
        if later:
            advice = "use a version of Horolog that reads this format; the data is left as it is"
        elif self._around.next_base_offset is None if point is None else self.next_offset >= point:
            advice = TORN
        else:
            advice = REPAIR
        return Finding(self._log_path, position, rule, advice)


def _good_rule(stretch: LogRun) -> str:
    last = stretch.next_offset - 1
    return (
        f"from here to byte {stretch.end} there are good messages, offsets {stretch.first_offset} "
        f"to {last}, which cannot be reached"
    )


def read_checksums(
    files: Files, folder: Path
) -> tuple[Mapping[int, SegmentChecksums], list[Finding]]:
    """Return the checksums of a partition's segments by base offset, and what is wrong with the
    file."""
    path = folder / FILE_NAME
    if not files.exists(path):
        return {}, []
    try:
        data = files.read_bytes(path)
    except OSError as error:
        return {}, [cannot_read(path, error)]
    checksums = parse_checksums(data)
    lines = data.splitlines(keepends=True)
    if lines and is_open_form(lines[-1]):
        del lines[-1]
    if len(checksums) == len(lines) - 1 and data.endswith(b"\n"):
        return checksums, []
    return checksums, [Finding(path, *_first_wrong_line(lines), _REBUILT)]


def _first_wrong_line(lines: Sequence[bytes]) -> tuple[int, str]:
    if not lines or not parse_checksums(lines[0] + b"0 0 0 0 0 0 \n"):
        return 0, "its first line is not the version that is known"
    position = len(lines[0])
    seen: set[int] = set()
    for line in lines[1:]:
        found = parse_checksums(lines[0] + line)
        if not found or not line.endswith(b"\n"):
            return position, "a line is not that of a segment"
        if not seen.isdisjoint(found):
            return position, "a segment has two lines"
        seen |= found.keys()
        position += len(line)
    return position, "it does not end as it should"


def check_checksums(
    files: Files,
    log_path: Path,
    checksums: SegmentChecksums,
    magic_changes: Sequence[tuple[int, int]],
) -> Iterator[Finding]:
    """Check whether a closed segment's files are as they were when it was closed.

    A difference in an index is not an error: its entries may all be true. `magic_changes` are the
    format changes found in the log. Raises `OSError`.
    """
    log_bytes = files.size(log_path)
    if log_bytes != checksums.log_bytes:
        rule = f"it has {log_bytes} bytes, and had {checksums.log_bytes} when it was closed"
        yield Finding(log_path, min(log_bytes, checksums.log_bytes), rule, _REBUILT, error=False)
        return
    expected = [(".index", checksums.offset_index), (".timeindex", checksums.time_index)]
    for suffix, (size_bytes, crc) in expected:
        path = log_path.with_suffix(suffix)
        if files.exists(path):
            difference = _difference(files, path, size_bytes, crc, longer=False)
            if difference is not None:
                yield Finding(path, None, difference, _REBUILT, error=False)
    if list(checksums.magic_changes) != list(magic_changes):
        rule = (
            f"for {log_path.name} it has message formats {_formats(checksums.magic_changes)}, "
            f"the log has {_formats(magic_changes)}"
        )
        advice = "stop the broker and delete this file; all indexes are rebuilt then"
        yield Finding(log_path.with_name(FILE_NAME), None, rule, advice)
    if checksums.time_map is not None and checksums.time_map.size_bytes:
        yield from _check_time_map(files, log_path.with_suffix(".timemap"), checksums.time_map)
    if checksums.append_times is not None and checksums.append_times.size_bytes:
        yield from _check_append_times(
            files, log_path.with_suffix(".appendtime"), checksums.append_times
        )


def _check_time_map(files: Files, path: Path, checksums: TimeMapChecksum) -> Iterator[Finding]:
    difference: str | None = (
        f"it is missing; it had {checksums.size_bytes} bytes when the segment was closed"
    )
    if files.exists(path):
        # Bytes behind the map's end are cut off before the map continues.
        difference = _difference(files, path, checksums.size_bytes, checksums.crc, longer=True)
    if difference is not None:
        yield Finding(path, None, difference, MADE_ANEW, error=False)


def _check_append_times(
    files: Files, path: Path, checksums: AppendTimesChecksum
) -> Iterator[Finding]:
    if not files.exists(path):
        rule = f"it is missing; it had {checksums.size_bytes} bytes when the segment was closed"
        advice = "nothing: the append times of this segment are unknown"
        yield Finding(path, None, rule, advice, error=False)
        return
    # Entries written after the segment was closed are not trusted, but do no harm.
    difference = _difference(files, path, checksums.size_bytes, checksums.crc, longer=True)
    if difference is not None:
        advice = "stop the broker and delete this file: its append times are not believed"
        yield Finding(path, None, difference, advice)


def _formats(changes: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"v{magic} from byte {position}" for position, magic in changes) or "none"


def _difference(files: Files, path: Path, size_bytes: int, crc: int, *, longer: bool) -> str | None:
    """Return how the first `size_bytes` of a file differ from its checksum, in words. `longer`
    allows more bytes to follow."""
    with closing(files.open(path, read_only=True)) as file:
        found_bytes = file.size()
        if found_bytes < size_bytes or (found_bytes > size_bytes and not longer):
            return f"it has {found_bytes} bytes, and had {size_bytes} when the segment was closed"
        found_crc = 0
        for position in range(0, size_bytes, CHUNK_BYTES):
            data = file.pread(min(CHUNK_BYTES, size_bytes - position), position)
            found_crc = crc32(data, found_crc)
    if found_crc == crc:
        return None
    return "its content is not that which it had when the segment was closed (CRC)"
