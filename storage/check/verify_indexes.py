"""Whether the indexes of a segment, its append times and its time map are true, found while its log
is read from the front.

Every entry of an index must be true; how many there are does not matter. What true means is in the
classes. Entries that lie behind the place where the log could not be read on are not judged.

Each block of a time map has to be whole entries of the log, and has to say of their messages what
is so: where their offsets end, how many have no time, and in which spans of time the others are. A
map may end before its log does. A map that is not as its line in `index-checksums` says is not used
but made anew: that it is not true is only noted then.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from ...protocol.errors import HorologError
from ...protocol.records.columns import read_columns
from ...protocol.records.kernel.reference.spans import TimeSpan
from ...protocol.records.kernel.reference.times import MapBlock, time_map_blocks
from ...protocol.records.layout import NO_TIMESTAMP
from ..entries.entry_rules import MAX_DECOMPRESSED_BYTES
from ..entries.log_reader import CHUNK_BYTES, StoredEntry
from ..files import File, Files
from ..index.append_times import ENTRY
from ..index.index_checksums import FILE_NAME as INDEX_CHECKSUMS
from ..index.index_checksums import TimeMapChecksum
from ..index.index_file import OFFSET_ENTRY, TIME_ENTRY, entries_end, index_entries
from ..names import RELATIVE_OFFSET_MAX
from .findings import REBUILD, Finding

MADE_ANEW: Final = "nothing: it is made anew from the log when a window of time is asked for"

NAMES_OF_OFFSETS: Final = ("offsets", "positions")
"""Names of the numbers in an offset index entry."""

NAMES_OF_TIMES: Final = ("timestamps", "offsets")
"""Names of the numbers in a time index entry."""

NO_BYTES: Final = "it says of a block that it has no bytes"


class _BlockTimes:
    """The timestamps of the messages in one block of the log, compared with the
    spans in the map."""

    def __init__(self, block: MapBlock) -> None:
        self._block = block
        self._untimed = 0
        self._found = [0] * len(block.spans)
        self._bounds: set[tuple[int, int]] = set()
        """Span number and timestamp of the span limits that occur."""
        self._lacking_ms = NO_TIMESTAMP

    def add(self, times_ms: list[int], untimed: int) -> None:
        """Add rising timestamps. The first `untimed` of them are -1."""
        self._untimed += untimed
        known = untimed
        for number, span in enumerate(self._block.spans):
            begin, end = bisect_left(times_ms, span.low), bisect_right(times_ms, span.high)
            self._found[number] += end - begin
            if begin < end:
                self._bounds |= {(number, times_ms[begin]), (number, times_ms[end - 1])}
            if begin > known:
                self._lacking_ms = times_ms[known]
            known = max(known, end)
        if known < len(times_ms):
            self._lacking_ms = times_ms[known]

    def rule(self) -> str | None:
        """Return what is wrong with the block, in words; `None` if nothing is."""
        block = self._block
        if self._lacking_ms >= 0:
            return f"a message of the block has the time {self._lacking_ms}, which is in no span"
        if block.untimed != self._untimed:
            return f"it says that {block.untimed} messages have no time; there are {self._untimed}"
        apart = spans_rule(block.spans)
        if apart is not None:
            return apart
        for number, (span, found) in enumerate(zip(block.spans, self._found, strict=True)):
            if span.messages != found:
                return (
                    f"it says that {span.messages} messages are from {span.low} to {span.high}; "
                    f"there are {found}"
                )
            for bound_ms in (span.low, span.high):
                if (number, bound_ms) not in self._bounds:
                    return f"a span is from {span.low} to {span.high}; nothing is of {bound_ms}"
        return None


class TimeMapCheck:
    """Steps through the blocks of one time map in parallel with its log."""

    def __init__(
        self,
        log_path: Path,
        data: bytes | None,
        base_offset: int,
        checksum: TimeMapChecksum | None,
    ) -> None:
        """`data` is the content of the map's file, if it exists. `checksum` is the map's part of
        the segment's line, if that line is for a log of this length."""
        self._path = log_path.with_suffix(".timemap")
        self._log_name = log_path.name
        self._checksum = checksum
        self._asked = data is not None or checksum is not None
        self._believed = False
        if data is not None and checksum is not None and checksum.size_bytes:
            written = data[: checksum.size_bytes]
            self._believed = (len(written), crc32(written)) == (checksum.size_bytes, checksum.crc)
            data = written if self._believed else data
        self._blocks = time_map_blocks(data or b"", base_offset)
        self._block: MapBlock | None = None
        self._map_end = self._mapped_bytes = 0
        self._times: _BlockTimes | None = None
        self._entries = bytearray()
        """Entries of the block whose timestamps were not added yet."""
        self._end = 0
        """Position up to which the log was read."""
        self._whole = self._all_read = True
        """Whether all entries of the block, and of the log, could be read."""
        self._first_ms = self._last_ms = NO_TIMESTAMP
        self._untimed = 0

    def start(self) -> Iterator[Finding]:
        """Begin with the first block."""
        yield from self._advance()

    def _advance(self) -> Iterator[Finding]:
        """Go to the next block."""
        self._block = self._times = None
        self._whole = True
        try:
            block = next(self._blocks, None)
        except ValueError as error:
            yield from self._wrong(self._map_end, str(error))
            return
        if block is None:
            return
        if block.end == block.position:
            yield from self._wrong(block.map_position, NO_BYTES)
            return
        self._block, self._times = block, _BlockTimes(block)
        self._map_end, self._mapped_bytes = block.map_end, block.end

    def _wrong(self, position: int, rule: str) -> Iterator[Finding]:
        advice = REBUILD if self._believed else MADE_ANEW
        yield Finding(self._path, position, rule, advice, error=self._believed)
        if not self._believed:
            self._block = self._times = None
            self._blocks = iter(())

    def passed(self, item: StoredEntry, *, good: bool) -> Iterator[Finding]:
        """Check against the next entry of the log. `good` says that the entry can be read."""
        if not self._asked:
            return
        if item.position != self._end or not good:
            self._take_times()
            self._whole = self._all_read = False
        if good:
            self._entries += item.data
        self._end = item.position + len(item.data)
        while self._block is not None and self._block.end < self._end:
            block = self._block
            if item.position < block.end:
                rule = (
                    f"a block ends at byte {block.end} of the log, inside of an entry from "
                    f"{item.position} to {self._end}"
                )
                yield from self._wrong(block.map_position, rule)
                self._block = self._times = None
                return
            yield from self._advance()
            self._whole = False
        if self._block is not None and self._block.end == self._end:
            yield from self._judge(self._block, item.last_offset + 1)
            if self._block is not None:
                yield from self._advance()
        elif len(self._entries) >= CHUNK_BYTES:
            self._take_times()

    def _judge(self, block: MapBlock, next_offset: int) -> Iterator[Finding]:
        self._take_times()
        if not self._whole or self._times is None:
            return
        rule = self._times.rule()
        if block.next_offset != next_offset:
            rule = (
                f"a block ends before offset {block.next_offset} at byte {block.end} of the log, "
                f"where offset {next_offset} is due"
            )
        if rule is not None:
            yield from self._wrong(block.map_position, rule)

    def _take_times(self) -> None:
        """Add the timestamps of the entries passed so far."""
        entries, self._entries = bytes(self._entries), bytearray()
        try:
            for columns in read_columns(
                entries, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES, content=()
            ):
                times_ms = sorted(array("q", columns.timestamps))
                untimed = bisect_left(times_ms, 0)
                self._untimed += untimed
                if untimed < len(times_ms):
                    known = self._last_ms >= 0
                    first_ms = times_ms[untimed]
                    self._first_ms = min(self._first_ms, first_ms) if known else first_ms
                    self._last_ms = max(self._last_ms, times_ms[-1])
                if self._times is not None:
                    self._times.add(times_ms, untimed)
        except HorologError:
            self._whole = self._all_read = False

    def finish(self, log_bytes: int) -> Iterator[Finding]:
        """Check what remains after the end of the log."""
        self._take_times()
        while self._block is not None and self._block.end <= log_bytes:
            yield from self._advance()  # The end of the log could not be read.
        if self._block is not None:
            rule = f"a block ends at byte {self._block.end} of the log, which has {log_bytes} bytes"
            yield from self._wrong(self._block.map_position, rule)
        elif self._believed and self._mapped_bytes < log_bytes:
            rule = f"it ends at byte {self._mapped_bytes} of the log, which has {log_bytes} bytes"
            yield Finding(self._path, None, rule, MADE_ANEW, error=False)
        if self._checksum is not None and self._all_read and self._end == log_bytes:
            yield from self._check_line(self._checksum)

    def _check_line(self, checksum: TimeMapChecksum) -> Iterator[Finding]:
        says = checksum.first_ms, checksum.last_ms, checksum.untimed
        found = self._first_ms, self._last_ms, self._untimed
        if says != found:
            yield Finding(
                self._path.with_name(INDEX_CHECKSUMS),
                None,
                f"for {self._log_name} it has {_shown(*says)}, the log has {_shown(*found)}",
                "stop the broker and delete this file; all indexes are rebuilt then",
            )


def _shown(first_ms: int, last_ms: int, untimed: int) -> str:
    times = f"times from {first_ms} to {last_ms}" if last_ms >= 0 else "no times"
    return f"{times} and {untimed} messages without one"


class _IndexCheck:
    """Steps through the entries of one index file in parallel with its log."""

    ENTRY: Struct
    NAMES: tuple[str, str]

    def __init__(self, path: Path, file: File) -> None:
        self._path = path
        size_bytes = file.size()
        self._entries = index_entries(file, self.ENTRY, entries_end(file, self.ENTRY, size_bytes))
        self._torn = size_bytes % self.ENTRY.size
        self._size_bytes = size_bytes
        self._before = (-1, -1)
        self._entry: tuple[int, int, int] | None = None

    def start(self) -> Iterator[Finding]:
        """Check the file's size and go to the first entry."""
        if self._torn:
            yield self._wrong(
                self._size_bytes - self._torn,
                f"the file ends inside an entry: {self._size_bytes} bytes are no multiple of "
                f"{self.ENTRY.size}",
            )
        yield from self._advance()

    def _advance(self) -> Iterator[Finding]:
        """Go to the next entry whose two numbers are both above those of the entry before."""
        self._entry = None
        for position, first, second in self._entries:
            rule = rise_rule(self.NAMES, self._before, (first, second))
            if rule is None:
                self._before = (first, second)
                self._entry = (position, first, second)
                return
            yield self._wrong(position, rule)

    def _wrong(self, position: int, rule: str) -> Finding:
        return Finding(self._path, position, rule, REBUILD)


class OffsetIndexCheck(_IndexCheck):
    """Check of an offset index. An entry is true if an entry of the log begins at its position, and
    if its offset is above all offsets before that position and not above that entry's own. For
    batches the last condition is not checked: Kafka stores the last offset of everything that came
    with the batch in one request."""

    ENTRY = OFFSET_ENTRY
    NAMES = NAMES_OF_OFFSETS

    def __init__(self, path: Path, file: File, base_offset: int) -> None:
        super().__init__(path, file)
        self._base_offset = base_offset

    def passed(
        self, position: int, previous_offset: int, offset: int, *, of_batch: bool
    ) -> Iterator[Finding]:
        """Check index entries against the log entry at `position`, with its last offset, and the
        last offset before it."""
        while self._entry is not None and self._entry[2] <= position:
            at, relative, log_position = self._entry
            named = self._base_offset + relative
            if log_position < position:
                yield self._wrong(at, f"no entry of the log begins at byte {log_position}")
            elif named <= previous_offset or (named > offset and not of_batch):
                yield self._wrong(
                    at,
                    f"offset {named} is not at byte {log_position} of the log; offsets "
                    f"{previous_offset + 1} to {offset} are",
                )
            yield from self._advance()

    def finish(self, log_bytes: int) -> Iterator[Finding]:
        """Check the remaining entries after the end of the log, at `log_bytes`."""
        while self._entry is not None:
            at, _, log_position = self._entry
            yield self._wrong(
                at, f"byte {log_position} is past the end of the log, which has {log_bytes} bytes"
            )
            yield from self._advance()


class TimeIndexCheck(_IndexCheck):
    """Check of a time index. An entry `(T, n)` is true if T is the largest timestamp of the
    messages below offset n, or, as Kafka writes it, if the message with offset n has T and none
    before it has a larger one. If messages are further from the base offset than an entry can hold,
    the closing entry has the largest possible offset, and T is the largest timestamp of all."""

    ENTRY = TIME_ENTRY
    NAMES = NAMES_OF_TIMES

    def __init__(self, path: Path, file: File, base_offset: int) -> None:
        super().__init__(path, file)
        self._base_offset = base_offset
        self._largest_ms = -1
        self._closes_far = False
        """Whether the entry is checked against all messages, as the closing entry of a far end."""

    def passed(self, first_offset: int, last_offset: int, timestamp_ms: int) -> Iterator[Finding]:
        """Check index entries against the next log entry, with these offsets and this timestamp."""
        while (
            self._entry is not None
            and not self._closes_far
            and self._base_offset + self._entry[2] <= last_offset
        ):
            at, entry_ms, relative = self._entry
            offset = self._base_offset + relative
            below = offset <= first_offset and entry_ms == self._largest_ms
            there = first_offset <= offset and entry_ms == timestamp_ms >= self._largest_ms
            if not below and not there and relative == RELATIVE_OFFSET_MAX:
                self._closes_far = True
                break
            if not below and not there:
                yield self._wrong(
                    at,
                    f"{entry_ms} is not the largest timestamp below offset {offset}, which is "
                    f"{self._largest_ms}, nor the largest so far and at that offset",
                )
            yield from self._advance()
        self._largest_ms = max(self._largest_ms, timestamp_ms)

    def finish(self, end_offset: int) -> Iterator[Finding]:
        """Check the remaining entries after the end of the log. The next segment begins, or would
        begin, at `end_offset`."""
        while self._entry is not None:
            at, entry_ms, relative = self._entry
            offset = self._base_offset + relative
            if offset > end_offset:
                yield self._wrong(at, f"offset {offset} is past the segment's end, {end_offset}")
            elif entry_ms != self._largest_ms:
                yield self._wrong(
                    at,
                    f"{entry_ms} is not the largest timestamp below offset {offset}, which is "
                    f"{self._largest_ms}",
                )
            yield from self._advance()


_DELETE_APPEND_TIMES: Final = (
    "stop the broker and delete this file; the append times in it are unknown then"
)
_APPEND_TIMES_UNKNOWN: Final = "nothing: the next start keeps the entries before it"


def check_append_times(
    files: Files, path: Path, base_offset: int, end_offset: int, *, settled: bool
) -> Iterator[Finding]:
    """Yield what is wrong with the append times of the segment from `base_offset` up to
    `end_offset`.

    `settled` says that the segment was closed; otherwise the last write may have been torn. Raises
    `OSError`.
    """
    with closing(files.open(path, read_only=True)) as file:
        size_bytes = file.size()
        torn = size_bytes % ENTRY.size
        step = CHUNK_BYTES - CHUNK_BYTES % ENTRY.size
        last = -1
        for start in range(0, size_bytes - torn, step):
            data = file.pread(min(step, size_bytes - torn - start), start)
            for number, (relative, timestamp_ms) in enumerate(
                ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY.size])
            ):
                rule = _append_time_rule(relative, timestamp_ms, last, base_offset, end_offset)
                if rule is not None:
                    advice = _DELETE_APPEND_TIMES if settled else _APPEND_TIMES_UNKNOWN
                    position = start + number * ENTRY.size
                    yield Finding(path, position, rule, advice, error=settled)
                    return
                last = relative
    if torn:
        rule = f"the file ends inside an entry: {size_bytes} bytes are no multiple of {ENTRY.size}"
        advice = _DELETE_APPEND_TIMES if settled else _APPEND_TIMES_UNKNOWN
        yield Finding(path, size_bytes - torn, rule, advice, error=settled)


def _append_time_rule(
    relative: int, timestamp_ms: int, last: int, base_offset: int, end_offset: int
) -> str | None:
    """Return what is wrong with an entry, in words; `None` if nothing is."""
    rule = append_time_rule(relative, timestamp_ms, last, base_offset)
    if rule is None and base_offset + relative >= end_offset:
        return f"offset {base_offset + relative} is past the segment's end, {end_offset}"
    return rule


def rise_rule(
    names: tuple[str, str], before: tuple[int, int], entry: tuple[int, int]
) -> str | None:
    """Return what is wrong with an entry after the one before it; `None` if both numbers rise."""
    if entry[0] > before[0] and entry[1] > before[1]:
        return None
    return (
        f"{' and '.join(names)} must rise from 0 on: {entry[0]} and {entry[1]} come after "
        f"{before[0]} and {before[1]}"
    )


def append_time_rule(
    relative: int, append_time_ms: int, last_relative: int, base_offset: int
) -> str | None:
    """Return what is wrong with an append time entry after the one before it; `None`
    if nothing is."""
    if relative <= last_relative:
        return (
            f"offsets must rise: {base_offset + relative} comes after {base_offset + last_relative}"
        )
    if append_time_ms < NO_TIMESTAMP:
        return f"{append_time_ms} is no time"
    return None


def block_rule(block: MapBlock) -> str | None:
    """Return what is wrong with a block of a time map; `None` if nothing is."""
    return NO_BYTES if block.end == block.position else spans_rule(block.spans)


def spans_rule(spans: Sequence[TimeSpan]) -> str | None:
    """Return what is wrong with the spans of a block; `None` if they do not overlap."""
    before_ms = NO_TIMESTAMP
    for span in spans:
        if span.low <= before_ms:
            return f"spans must be apart: one from {span.low} on comes after {before_ms}"
        before_ms = span.high
    return None
