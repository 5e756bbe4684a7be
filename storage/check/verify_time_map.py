"""Whether the time map of a segment is true, found while its log is read from the front.

Each block has to be whole entries of the log, and has to say of their messages what is so: where
their offsets end, how many have no time, and in which spans of time the others are. A map may end
before its log does. A map that is not as its line in `index-checksums` says is not used but made
anew: that it is not true is only noted then.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

from ...protocol.errors import HorologError
from ...protocol.records.columns import read_columns
from ...protocol.records.kernel.reference.times import MapBlock, time_map_blocks
from ...protocol.records.layout import NO_TIMESTAMP
from ..entries.entry_rules import MAX_DECOMPRESSED_BYTES
from ..entries.log_reader import CHUNK_BYTES, StoredEntry
from ..index.index_checksums import FILE_NAME as INDEX_CHECKSUMS
from ..index.index_checksums import TimeMapChecksum
from .findings import REBUILD, Finding
from .index_rules import NO_BYTES, spans_rule

MADE_ANEW: Final = "nothing: it is made anew from the log when a window of time is asked for"


class _BlockTimes:
    """The times of the messages in one block of the log, beside the spans that its map says."""

    def __init__(self, block: MapBlock) -> None:
        self._block = block
        self._untimed = 0
        self._found = [0] * len(block.spans)
        self._bounds: set[tuple[int, int]] = set()
        """Number and time of the bounds of spans that occur."""
        self._lacking_ms = NO_TIMESTAMP

    def add(self, times_ms: list[int], untimed: int) -> None:
        """Take in times that rise, the first `untimed` of which are none."""
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
        """The rule that the block breaks, in words."""
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
    """Steps through the blocks of one time map beside its log."""

    def __init__(
        self,
        log_path: Path,
        data: bytes | None,
        base_offset: int,
        checksum: TimeMapChecksum | None,
    ) -> None:
        """`data` is what is in the map's file, if there is one, `checksum` what the line of the
        segment says of it, if that is of a log of this length."""
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
        """Entries of the block whose times are not taken in yet."""
        self._end = 0
        """How far the log was read."""
        self._whole = self._all_read = True
        """Whether all that was passed of the block, and of the log, could be read."""
        self._first_ms = self._last_ms = NO_TIMESTAMP
        self._untimed = 0

    def start(self) -> Iterator[Finding]:
        """To be called first."""
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
        """The next entry of the log; `good` says that it can be read."""
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
        """Take in the times of the entries that were passed."""
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
        """The log has been read to its end."""
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
