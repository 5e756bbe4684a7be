"""`index-checksums`: what makes the indexes of closed segments believable.

Indexes have no checksum of their own. When a segment is rolled or its log closed, the length
and CRC-32 of both its indexes are noted here, with the positions where the message format
changes inside the segment, and the same of its append times. An index that does not fit its line
is rebuilt from the log before it is used, and so are both when the log has another length than it
had: code that knows no time index may have appended to it. Append times that do not fit are
unknown from then on, and so is the time map. One line of text a segment, after a line with the
version (here in three):

    0
    <base offset> <.log bytes> <.index bytes> <crc> <.timeindex bytes> <crc>
        <position>:<magic>[,...] [<.appendtime bytes> <crc> <largest time> <end offset>]
        [<.timemap bytes> <crc> <smallest time> <largest time> <messages without a time>]
    <base offset> open <.timeindex entries> <relative offset of the last one>

The last line, of logs that are copied, tells what the time index of the last segment was before it
was closed: after a stop it goes on as if it had never been. The file is derived data: without it,
or with lines that cannot be read, indexes are rebuilt, and append times unknown.
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
    """What is noted of a segment's append times."""

    size_bytes: int
    """Length of the `.appendtime` file."""
    crc: int
    largest_ms: int
    """The largest append time, -1 when none is known."""
    end_offset: int
    """The file tells of the offsets below it."""


@value_class
class TimeMapChecksum:
    """What is noted of a segment's time map, which is of its whole log."""

    size_bytes: int
    """Length of the `.timemap` file; 0 where there is none."""
    crc: int
    first_ms: int
    """The smallest time of the segment, -1 when it has none."""
    last_ms: int
    """The largest time."""
    untimed: int
    """How many messages have no time."""


@value_class
class SegmentChecksums:
    """The line of one segment."""

    log_bytes: int
    """Length of the `.log` file."""
    offset_index: tuple[int, int]
    """Length in bytes and CRC-32 of the `.index` file."""
    time_index: tuple[int, int]
    """The same of the `.timeindex` file."""
    magic_changes: tuple[tuple[int, int], ...]
    """`(position, magic)` where the format differs from the entry before; the first entry too."""
    append_times: AppendTimesChecksum | None = None
    time_map: TimeMapChecksum | None = None
    open_form: tuple[int, int] | None = None
    """`TimeIndex.open_form` before the segment was closed, where closing changed it."""

    def with_time_map(self, time_map: TimeMapChecksum | None) -> "SegmentChecksums":
        """The same with another time map."""
        indexes = self.offset_index, self.time_index, self.magic_changes
        return SegmentChecksums(
            self.log_bytes, *indexes, self.append_times, time_map, self.open_form
        )

    def line(self, base_offset: int) -> bytes:
        """The line of the segment at `base_offset`."""
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
    """The checksums of a log's segments, by base offset, and the file's content for them.

    The whole file is written at each roll, of logs with thousands of segments too: so its lines are
    kept, in their order. For any thread, because logs are prepared in one of their own.
    """

    __slots__ = ("_known", "_lines", "_lock")

    def __init__(self, known: Mapping[int, SegmentChecksums]) -> None:
        self._known = dict(known)
        self._lines: dict[int, bytes] | None = None
        """Not made before they are asked for the first time."""
        self._lock = Lock()

    def __contains__(self, base_offset: int) -> bool:
        return base_offset in self._known

    def get(self, base_offset: int) -> SegmentChecksums | None:
        """Those of the segment at `base_offset`, if they are known."""
        return self._known.get(base_offset)

    def put(self, base_offset: int, checksums: SegmentChecksums) -> None:
        """Note those of a segment, in place of what was known of it."""
        with self._lock:
            self._known[base_offset] = checksums
            if self._lines is not None:
                last = next(reversed(self._lines), -1)
                in_place = base_offset in self._lines or base_offset > last
                self._lines[base_offset] = checksums.line(base_offset)
                if not in_place:
                    self._lines = dict(sorted(self._lines.items()))

    def forget(self, base_offset: int) -> bool:
        """Know nothing of a segment; whether anything was known of it."""
        with self._lock:
            if self._lines is not None:
                self._lines.pop(base_offset, None)
            return self._known.pop(base_offset, None) is not None

    def content(self) -> bytes:
        """The file's content."""
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
    """The offset after the last message of a log file of `log_bytes`, in a log without gaps; `None`
    where that is not known, or messages may be missing at the end of the file.

    `next_base_offset` is that of the next segment; of the last one only a clean stop tells the end.
    """
    if checksums is None or log_bytes != checksums.log_bytes:
        return None
    if next_base_offset is None:
        return recovery_point if clean else None
    return next_base_offset


def following_base(
    checksums: Mapping[int, SegmentChecksums], base_offset: int, next_base_offset: int | None
) -> int | None:
    """Where the segment begins, or began, that comes after the one at `base_offset`.

    `next_base_offset` is that of the next log file that is there. One in front of it may be gone;
    its line, and what the segment's own line says of its append times, tell of it.
    """
    known = [base for base in checksums if base > base_offset]
    if next_base_offset is not None:
        known.append(next_base_offset)
        own = checksums.get(base_offset)
        if own is not None and own.append_times is not None:
            known.append(own.append_times.end_offset)
    return min((base for base in known if base > base_offset), default=None)


def parse_checksums(data: bytes) -> dict[int, SegmentChecksums]:
    """Seals by base offset; lines that make no sense are left out."""
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
    """Take the line that says what a time index was before it was closed, if it makes sense."""
    try:
        base, entries, offset = int(fields[0]), int(fields[2]), int(fields[3])
    except (ValueError, IndexError):
        return
    if base in checksums and min(entries, offset) >= 0:
        checksums[base] = replace(checksums[base], open_form=(entries, offset))


def is_open_form(line: bytes) -> bool:
    """Whether a line tells what a time index was before it was closed."""
    return re.fullmatch(rb"[0-9]{1,19} open [0-9]{1,10} [0-9]{1,10}\n", line) is not None


def format_checksums(checksums: Mapping[int, SegmentChecksums]) -> bytes:
    """The file's content for `checksums`."""
    return ChecksumTable(checksums).content()
