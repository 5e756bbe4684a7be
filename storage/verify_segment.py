"""Checking one segment: its log message by message, and both indexes against it."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ..protocol.errors import HorologError
from ..protocol.records.kernel import Problem
from ..protocol.records.layout import Codec
from ..protocol.records.message import Entry, open_wrapper
from .entry_rules import RULES
from .files import File, Files
from .findings import NOTHING, REPAIR, TORN, Finding
from .log_reader import Stop, StoredEntry, read_log_file
from .verify_index import OffsetIndexCheck, TimeIndexCheck


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the check of a segment is told about the partition."""

    gaps: bool
    """Whether offsets may jump."""
    next_base_offset: int | None
    """Of the segment after it; `None` for the last one."""
    recovery_point: int | None
    """Everything below it was synced; `None` when that is not known."""
    max_decompressed_bytes: int


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
        self._base_offset = base_offset
        self._around = surroundings
        self.next_offset = base_offset
        """Offset after the last entry that was read."""
        self.complete = False
        """Whether the log could be read to its end."""

    def run(self) -> Iterator[Finding]:
        """Everything found in the segment. Raises no `OSError`: that is a finding too."""
        path = self._log_path
        try:
            with ExitStack() as opened:
                log = self._open(opened, path)
                path = self._offset_path
                offset_check = None
                if self._files.exists(path):
                    offset_check = OffsetIndexCheck(
                        path, self._open(opened, path), self._base_offset
                    )
                path = self._time_path
                time_check = None
                if self._files.exists(path):
                    time_check = TimeIndexCheck(path, self._open(opened, path), self._base_offset)
                path = self._log_path
                yield from self._missing(offset_check, time_check)
                yield from self._check(log, offset_check, time_check)
        except OSError as error:
            self.complete = False
            yield Finding(
                Path(error.filename or path), None, f"it cannot be read: {error}", "see the disk"
            )

    def _open(self, opened: ExitStack, path: Path) -> File:
        file = self._files.open(path, read_only=True)
        opened.callback(file.close)
        return file

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
    ) -> Iterator[Finding]:
        log_bytes = log.size()
        if offset_check is not None:
            yield from offset_check.start()
        if time_check is not None:
            yield from time_check.start()
        for item in read_log_file(log, log_bytes):
            if isinstance(item, Stop):
                yield self._in_log(item.position, item.rule, item.problem)
                return
            previous = self.next_offset - 1
            first, found = self._first_offset(item)
            yield from found
            yield from self._check_order(item, first)
            if offset_check is not None:
                yield from offset_check.passed(item.position, previous, item.entry.offset)
            if time_check is not None:
                yield from time_check.passed(first, item.entry.offset, item.entry.timestamp_ms)
            self.next_offset = item.entry.offset + 1
        self.complete = True
        if offset_check is not None:
            yield from offset_check.finish(log_bytes)
        if time_check is not None:
            yield from time_check.finish(max(self.next_offset, self._around.next_base_offset or 0))

    def _in_log(self, position: int, rule: str, problem: Problem | None = None) -> Finding:
        """A finding in the log file at what would be `next_offset`."""
        point = self._around.recovery_point
        if problem is Problem.MAGIC:
            advice = "use a version of Horolog that reads this format; the data is left as it is"
        elif self._around.next_base_offset is None if point is None else self.next_offset >= point:
            advice = TORN
        else:
            advice = REPAIR
        return Finding(self._log_path, position, rule, advice)

    def _first_offset(self, item: StoredEntry) -> tuple[int, list[Finding]]:
        """The offset of the entry's first message, and what is wrong inside of the entry."""
        entry = item.entry
        unknown = min(entry.offset, self.next_offset)
        if not item.crc_ok:
            first = entry.offset if entry.codec is Codec.NONE else unknown
            return first, [self._in_log(item.position, RULES[Problem.CRC])]
        if entry.codec is Codec.NONE:
            return entry.offset, []
        try:
            inner = open_wrapper(entry, max_decompressed_bytes=self._around.max_decompressed_bytes)
        except HorologError as error:
            return unknown, [self._in_log(item.position, error.message)]
        base_offset = entry.offset - inner[-1].offset if entry.magic else 0
        found = [self._in_log(item.position, rule) for rule in self._inside(entry, inner)]
        return base_offset + inner[0].offset, found

    def _inside(self, entry: Entry, inner: list[Entry]) -> Iterator[str]:
        """Rules that the messages of a wrapper break."""
        offsets = [message.offset for message in inner]
        if any(after <= before for before, after in pairwise(offsets)):
            yield "the offsets inside a compressed message do not rise"
        elif not self._around.gaps and offsets[-1] - offsets[0] != len(offsets) - 1:
            yield "offsets are missing inside a compressed message"
        if not entry.magic and offsets[-1] != entry.offset:
            yield "a compressed message does not have the offset of its last message"
        largest_ms = max(message.timestamp_ms for message in inner)
        if entry.magic and not entry.is_append_time and entry.timestamp_ms != largest_ms:
            yield (
                f"a compressed message has the timestamp {entry.timestamp_ms}, its messages have "
                f"up to {largest_ms}"
            )

    def _check_order(self, item: StoredEntry, first: int) -> Iterator[Finding]:
        expected = self.next_offset
        if first < expected:
            yield self._in_log(
                item.position, f"offset {first} comes where {expected} is due: offsets must rise"
            )
        elif first > expected and not self._around.gaps:
            yield self._in_log(
                item.position,
                f"offset {first} comes where {expected} is due, and this log has no gaps",
            )
