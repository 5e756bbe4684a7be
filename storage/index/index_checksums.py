"""`index-checksums`: the checksums with which the indexes of closed segments are trusted.

Index files have no checksum of their own. When a segment is rolled or its log closed, this file
gets a line with the length and CRC-32 of both indexes, the positions where the message format
changes inside the segment, and the checksums of the append times and the time map. An index that
does not match its line is rebuilt from the log before it is used. So are both indexes if the length
of the log has changed: code without a time index may have appended to it. Append times that do not
match are unknown from then on; a time map that does not match is dropped. The file has a line with
the version, then one line for each segment (here wrapped):

    0
    <base offset> <.log bytes> <.index bytes> <crc> <.timeindex bytes> <crc>
        <position>:<magic>[,...] [<.appendtime bytes> <crc> <largest time> <end offset>]
        [<.timemap bytes> <crc> <smallest time> <largest time> <messages without a time>]
    <base offset> open <.timeindex entries> <relative offset of the last one>

The last line exists only for logs with copies. It has the state of the last segment's time index
before it was closed: after a stop, the index continues as if it had never been closed. The file is
derived data: without it, or with lines that cannot be read, indexes are rebuilt, and append times
are unknown.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock

from ...values import value_class

FILE_NAME = "index-checksums"
_VERSION = "0"
_OPEN = "open"
_APPEND_TIME_FIELDS = 4
_TIME_MAP_FIELDS = 5


@value_class
class AppendTimesChecksum:
    """Checksum of a segment's append times."""

    size_bytes: int
    """Length of the `.appendtime` file."""
    crc: int
    largest_ms: int
    """The largest append time, -1 if none is known."""
    end_offset: int
    """The file has the times of the offsets below it."""


@value_class
class TimeMapChecksum:
    """Checksum of a segment's time map, which covers its whole log."""

    size_bytes: int
    """Length of the `.timemap` file; 0 if there is none."""
    crc: int
    first_ms: int
    """The smallest timestamp of the segment, -1 if it has none."""
    last_ms: int
    """The largest timestamp."""
    untimed: int
    """Number of messages without a timestamp."""


@value_class
class SegmentChecksums:
    """The line of one segment."""

    log_bytes: int
    """Length of the `.log` file."""
    offset_index: tuple[int, int]
    """Length in bytes and CRC-32 of the `.index` file."""
    time_index: tuple[int, int]
    """Length in bytes and CRC-32 of the `.timeindex` file."""
    magic_changes: tuple[tuple[int, int], ...]
    """`(position, magic)` of each entry whose format differs from the entry before, and of the
    first entry."""
    append_times: AppendTimesChecksum | None = None
    time_map: TimeMapChecksum | None = None
    open_form: tuple[int, int] | None = None
    """`TimeIndex.open_form` before the segment was closed, if closing changed it."""

    def with_time_map(self, time_map: TimeMapChecksum | None) -> "SegmentChecksums":
        """Return the line with another time map."""
        indexes = self.offset_index, self.time_index, self.magic_changes
        return SegmentChecksums(
            self.log_bytes, *indexes, self.append_times, time_map, self.open_form
        )

    def line(self, base_offset: int) -> bytes:
        """Return the line of the segment at `base_offset`, as text of the file."""
        spans = ",".join(f"{position}:{magic}" for position, magic in self.magic_changes)
        offsets, times = self.offset_index, self.time_index
        text = f"{base_offset} {self.log_bytes} "
        text += f"{offsets[0]} {offsets[1]} {times[0]} {times[1]} {spans}"
        known = self.append_times
        if known is not None:
            text += f" {known.size_bytes} {known.crc} {known.largest_ms} {known.end_offset}"
        mapped = self.time_map
        if mapped is not None:
            text += f" {mapped.size_bytes} {mapped.crc} {mapped.first_ms} {mapped.last_ms}"
            text += f" {mapped.untimed}"
        return f"{text}\n".encode("ascii")


class ChecksumTable:
    """The checksums of a log's segments, by base offset, and the file's content.

    The whole file is written at each roll, even for logs with thousands of segments, so the lines
    are kept in order. Any thread may use this, because `prepare` may run in its own thread.
    """

    __slots__ = ("_known", "_lines", "_lock")

    def __init__(self, known: Mapping[int, SegmentChecksums]) -> None:
        self._known = dict(known)
        self._lines: dict[int, bytes] | None = None
        """Lines by base offset, made on first use."""
        self._lock = Lock()

    def __contains__(self, base_offset: int) -> bool:
        return base_offset in self._known

    def get(self, base_offset: int) -> SegmentChecksums | None:
        """Return the checksums of the segment at `base_offset`, if known."""
        return self._known.get(base_offset)

    def put(self, base_offset: int, checksums: SegmentChecksums) -> None:
        """Set the checksums of a segment."""
        with self._lock:
            self._known[base_offset] = checksums
            if self._lines is not None:
                last = next(reversed(self._lines), -1)
                in_place = base_offset in self._lines or base_offset > last
                self._lines[base_offset] = checksums.line(base_offset)
                if not in_place:
                    self._lines = dict(sorted(self._lines.items()))

    def forget(self, base_offset: int) -> bool:
        """Remove the checksums of a segment. Return whether there were any."""
        with self._lock:
            if self._lines is not None:
                self._lines.pop(base_offset, None)
            return self._known.pop(base_offset, None) is not None

    def content(self) -> bytes:
        """Return the content of the file."""
        with self._lock:
            if self._lines is None:
                known = sorted(self._known.items())
                self._lines = {base: checksums.line(base) for base, checksums in known}
            lines = [f"{_VERSION}\n".encode("ascii"), *self._lines.values()]
            last = next(reversed(self._lines), None)
            form = None if last is None else self._known[last].open_form
        if form is not None:
            lines.append(f"{last} {_OPEN} {form[0]} {form[1]}\n".encode("ascii"))
        return b"".join(lines)


def end_offset(
    checksums: SegmentChecksums | None,
    log_bytes: int,
    next_base_offset: int | None,
    recovery_point: int | None,
    *,
    clean: bool,
) -> int | None:
    """Return the offset after the last message of a log file of `log_bytes`, in a log without gaps.
    `None` if it is not known, or if messages may be missing at the end of the file.

    `next_base_offset` is that of the next segment. For the last segment only a clean stop gives the
    end.
    """
    if checksums is None or log_bytes != checksums.log_bytes:
        return None
    if next_base_offset is None:
        return recovery_point if clean else None
    return next_base_offset


def following_base(
    checksums: Mapping[int, SegmentChecksums], base_offset: int, next_base_offset: int | None
) -> int | None:
    """Return the base offset of the segment after the one at `base_offset`, even if that segment is
    missing.

    `next_base_offset` is that of the next existing log file. A segment before it may be missing;
    its line, and the end of the append times in the segment's own line, show this.
    """
    known = [base for base in checksums if base > base_offset]
    if next_base_offset is not None:
        known.append(next_base_offset)
        own = checksums.get(base_offset)
        if own is not None and own.append_times is not None:
            known.append(own.append_times.end_offset)
    return min((base for base in known if base > base_offset), default=None)


def parse_checksums(data: bytes) -> dict[int, SegmentChecksums]:
    """Return the checksums by base offset. Invalid lines are skipped."""
    lines = data.decode("ascii", errors="replace").splitlines()
    checksums: dict[int, SegmentChecksums] = {}
    if not lines or lines[0] != _VERSION:
        return checksums
    for line in lines[1:]:
        fields = line.split(" ")
        if fields[1:2] == [_OPEN]:
            _take_open_form(checksums, fields)
            continue
        try:
            base, log_bytes, *numbers = map(int, fields[:6])
            index_bytes, index_crc, time_bytes, time_crc = numbers
            changes = [part.split(":") for part in fields[6].split(",") if part]
            spans = tuple((int(position), int(magic)) for position, magic in changes)
            rest = tuple(map(int, fields[7:]))
        except (ValueError, IndexError):
            continue
        indexes = (index_bytes, index_crc), (time_bytes, time_crc)
        append_times = time_map = None
        if len(rest) in (_APPEND_TIME_FIELDS, _APPEND_TIME_FIELDS + _TIME_MAP_FIELDS):
            append_times = AppendTimesChecksum(*rest[:_APPEND_TIME_FIELDS])
            rest = rest[_APPEND_TIME_FIELDS:]
        if len(rest) == _TIME_MAP_FIELDS:
            time_map = TimeMapChecksum(*rest)
        checksums[base] = SegmentChecksums(log_bytes, *indexes, spans, append_times, time_map)
    return checksums


def _take_open_form(checksums: dict[int, SegmentChecksums], fields: Sequence[str]) -> None:
    """Parse the line with the open form of a time index, if it is valid."""
    try:
        base, entries, offset = int(fields[0]), int(fields[2]), int(fields[3])
    except (ValueError, IndexError):
        return
    if base in checksums and min(entries, offset) >= 0:
        checksums[base] = replace(checksums[base], open_form=(entries, offset))


def is_open_form(line: bytes) -> bool:
    """Whether a line has the open form of a time index."""
    return re.fullmatch(rb"[0-9]{1,19} open [0-9]{1,10} [0-9]{1,10}\n", line) is not None


def format_checksums(checksums: Mapping[int, SegmentChecksums]) -> bytes:
    """Return the file's content for `checksums`."""
    return ChecksumTable(checksums).content()
