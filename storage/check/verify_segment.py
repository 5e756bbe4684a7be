"""Checking one segment: its log message by message, and what is derived from it against it."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from ...protocol.errors import HorologError
from ...protocol.records.batches.batch import BatchHeader
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import Codec
from ...protocol.records.messages.message import Entry, open_wrapper
from ...values import value_class
from ..files import File, Files
from ..index.index_checksums import SegmentChecksums, end_offset
from .entry_rules import (
    BATCH_MAGIC,
    RULES,
    batch_rule,
    first_offset_inside,
    inner_offsets_rule,
    jumps_rule,
)
from .findings import NOTHING, REPAIR, TORN, Finding
from .log_reader import Stop, StoredEntry, read_log_file
from .salvage import LogRun, stretches
from .verify_append_times import check_append_times
from .verify_checksums import check_checksums
from .verify_index import OffsetIndexCheck, TimeIndexCheck
from .verify_time_map import TimeMapCheck


@value_class
class Surroundings:
    """What the check of a segment needs of the partition."""

    gaps: bool
    """Whether offsets may jump."""
    next_base_offset: int | None
    """Of the segment after it; `None` for the last one."""
    recovery_point: int | None
    """Everything below it was synced; `None` when that is not known."""
    max_decompressed_bytes: int
    checksums: SegmentChecksums | None = None
    """Its line in `index-checksums`."""
    clean: bool = False
    """Whether the log was stopped cleanly."""
    limit_offset: int | None = None
    """Where the next segment begins, or began should it be gone."""


class SegmentCheck:
    """One pass over a segment. `next_offset` and `complete` are right once `run` is exhausted."""

    def __init__(
        self, files: Files, directory: Path, base_offset: int, surroundings: Surroundings
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
        """Whether the segment was closed, and nothing was to become of it since."""
        around = self._around
        if around.next_base_offset is None or around.recovery_point is None:
            return around.clean
        return around.clean or around.next_base_offset <= around.recovery_point

    def run(self) -> Iterator[Finding]:
        """Everything found in the segment. Raises no `OSError`: that is a finding too."""
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
                yield from self._check(log, offset_check, time_check, map_check)
            yield from self._check_derived()
        except OSError as error:
            self.complete = False
            path = Path(error.filename or self._log_path)
            yield Finding(path, None, f"it cannot be read: {error}", "see the disk")

    def _open(self, opened: ExitStack, path: Path) -> File:
        file = self._files.open(path, read_only=True)
        opened.callback(file.close)
        return file

    def _open_map(self, log: File) -> TimeMapCheck:
        """The check of the time map, which is read before it is known where the log ends: what a
        broker writes meanwhile comes to the log first."""
        line, data = self._around.checksums, None
        if self._files.exists(self._map_path):
            data = self._files.read_bytes(self._map_path)
        is_current = line is not None and line.log_bytes == log.size() and self._settled
        checksum = line.time_map if line is not None and is_current else None
        return TimeMapCheck(
            self._log_path,
            data,
            self._base_offset,
            checksum,
            self._around.max_decompressed_bytes,
        )

    def _missing(
        self, offset_check: OffsetIndexCheck | None, time_check: TimeIndexCheck | None
    ) -> Iterator[Finding]:
        for check, path in ((offset_check, self._offset_path), (time_check, self._time_path)):
            if check is None:
                rule = "the segment has no such file; it is rebuilt from the log when it is needed"
                yield Finding(path, None, rule, NOTHING, error=False)

    def _check(
        self,
        log: File,
        offset_check: OffsetIndexCheck | None,
        time_check: TimeIndexCheck | None,
        map_check: TimeMapCheck,
    ) -> Iterator[Finding]:
        log_bytes = log.size()
        if offset_check is not None:
            yield from offset_check.start()
        if time_check is not None:
            yield from time_check.start()
        yield from map_check.start()
        self.complete = True
        damaged = False
        for stretch in self._stretches(log, log_bytes):
            if not self.complete:
                yield self._behind(stretch)
                continue
            first, due = stretch.first_offset, self.next_offset
            if stretch.good and not damaged and not self._around.gaps and first > due:
                yield self._in_log(stretch.start, jumps_rule(first, due))
            damaged = not stretch.good
            yield from self._check_stretch(log, stretch, offset_check, time_check, map_check)
        if not self.complete:
            return
        if offset_check is not None:
            yield from offset_check.finish(log_bytes)
        if time_check is not None:
            yield from time_check.finish(max(self.next_offset, self._around.next_base_offset or 0))
        yield from map_check.finish(log_bytes)

    def _check_stretch(
        self,
        log: File,
        stretch: LogRun,
        offset_check: OffsetIndexCheck | None,
        time_check: TimeIndexCheck | None,
        map_check: TimeMapCheck,
    ) -> Iterator[Finding]:
        """Entry by entry; in a bad one as far as the lengths add up."""
        if stretch.good:
            self.next_offset = stretch.first_offset
        for item in read_log_file(log, stretch.end, stretch.start):
            reported = None if item.position > stretch.start else stretch.rule
            if reported is not None:
                yield self._in_log(item.position, reported, later=stretch.later_format)
            if isinstance(item, Stop):
                if stretch.good:  # The file has changed since it was judged.
                    yield self._in_log(item.position, item.rule)
                self.complete = False
                return
            previous = self.next_offset - 1
            first, rules = self._first_offset(item)
            if reported is None:
                for rule in rules:
                    yield self._in_log(item.position, rule)
            if offset_check is not None:
                of_batch = item.magic == BATCH_MAGIC
                yield from offset_check.passed(
                    item.position, previous, item.last_offset, of_batch=of_batch
                )
            if time_check is not None:
                yield from time_check.passed(first, item.last_offset, item.timestamp_ms)
            yield from map_check.passed(item, good=stretch.good)
            self._note_format(item)
            self.next_offset = item.last_offset + 1

    def _note_format(self, item: StoredEntry) -> None:
        magic = item.magic
        if not self._magic_changes or self._magic_changes[-1][1] != magic:
            self._magic_changes.append((item.position, magic))

    def _check_derived(self) -> Iterator[Finding]:
        """The checksums and the append times; only beside a log that could be read."""
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

    def _stretches(self, log: File, log_bytes: int) -> Iterator[LogRun]:
        around = self._around
        following, point = around.limit_offset, around.recovery_point
        return stretches(
            log,
            log_bytes,
            base_offset=self._base_offset,
            next_offset=self._base_offset,
            limit_offset=following,
            gaps=around.gaps,
            end_offset=end_offset(
                around.checksums, log_bytes, following, point, clean=around.clean
            ),
        )

    def _behind(self, stretch: LogRun) -> Finding:
        """A stretch behind the place where the log could not be read on."""
        if stretch.rule is None:
            return Finding(self._log_path, stretch.start, _good_rule(stretch), REPAIR, False)
        return Finding(self._log_path, stretch.start, stretch.rule, REPAIR)

    def _in_log(self, position: int, rule: str, *, later: bool = False) -> Finding:
        """A finding in the log file at what would be `next_offset`."""
        point = self._around.recovery_point
        if later:
            advice = "use a version of Horolog that reads this format; the data is left as it is"
        elif self._around.next_base_offset is None if point is None else self.next_offset >= point:
            advice = TORN
        else:
            advice = REPAIR
        return Finding(self._log_path, position, rule, advice)

    def _first_offset(self, item: StoredEntry) -> tuple[int, list[str]]:
        """The offset of the entry's first message, and the rules that are broken inside of it."""
        entry = item.entry
        if not isinstance(entry, Entry):
            return entry.base_offset, self._in_batch(item, entry)
        unknown = min(entry.offset, self.next_offset)
        if not item.crc_ok:
            first = entry.offset if entry.codec is Codec.NONE else unknown
            return first, [RULES[Problem.CRC]]
        if entry.codec is Codec.NONE:
            return entry.offset, []
        try:
            inner = open_wrapper(entry, max_decompressed_bytes=self._around.max_decompressed_bytes)
        except HorologError as error:
            return unknown, [error.message]
        rules = (
            inner_offsets_rule(entry, inner, gaps=self._around.gaps),
            _inner_times_rule(entry, inner),
        )
        return first_offset_inside(entry, inner), [rule for rule in rules if rule is not None]

    def _in_batch(self, item: StoredEntry, header: BatchHeader) -> list[str]:
        """What is wrong with a batch, whose records are looked at one by one."""
        if not item.crc_ok:
            return [RULES[Problem.CRC]]
        try:
            rule = batch_rule(
                item.data,
                header,
                gaps=self._around.gaps,
                max_decompressed_bytes=self._around.max_decompressed_bytes,
            )
        except HorologError as error:
            rule = error.message
        return [] if rule is None else [rule]


def _inner_times_rule(entry: Entry, inner: list[Entry]) -> str | None:
    """The rule that the timestamp of a compressed entry breaks."""
    largest_ms = max(message.timestamp_ms for message in inner)
    if not entry.magic or entry.is_append_time or entry.timestamp_ms == largest_ms:
        return None
    return (
        f"a compressed message has the timestamp {entry.timestamp_ms}, its messages have "
        f"up to {largest_ms}"
    )


def _good_rule(stretch: LogRun) -> str:
    last = stretch.next_offset - 1
    return (
        f"from here to byte {stretch.end} there are good messages, offsets {stretch.first_offset} "
        f"to {last}, which cannot be reached"
    )
