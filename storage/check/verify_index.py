"""Whether the entries of an index are true, found while its log is read from the front, and whether
the append times of a segment can be true.

Every entry must be true; how many there are does not matter. What true means is in the two
classes. Entries that lie behind the place where the log could not be read on are not judged.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import Final

from ..entries.log_reader import CHUNK_BYTES
from ..files import File, Files
from ..index.append_times import ENTRY
from ..index.index_reader import OFFSET_ENTRY, TIME_ENTRY, entries_end, index_entries
from ..names import RELATIVE_OFFSET_MAX
from .findings import REBUILD, Finding
from .index_rules import NAMES_OF_OFFSETS, NAMES_OF_TIMES, append_time_rule, rise_rule


class _IndexCheck:
    """Steps through the entries of one index file beside its log."""

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
        """To be called first."""
        if self._torn:
            yield self._wrong(
                self._size_bytes - self._torn,
                f"the file ends inside an entry: {self._size_bytes} bytes are no multiple of "
                f"{self.ENTRY.size}",
            )
        yield from self._advance()

    def _advance(self) -> Iterator[Finding]:
        """Go to the next entry that is above the one before it in both of its numbers."""
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
    """An entry is true when an entry of the log begins at its position, and its offset is above
    all that come before there and not above that entry's own. For batches the last is not asked:
    Kafka writes down the end of all that came with that one in a request."""

    ENTRY = OFFSET_ENTRY
    NAMES = NAMES_OF_OFFSETS

    def __init__(self, path: Path, file: File, base_offset: int) -> None:
        super().__init__(path, file)
        self._base_offset = base_offset

    def passed(
        self, position: int, previous_offset: int, offset: int, *, of_batch: bool
    ) -> Iterator[Finding]:
        """The log has an entry at `position`; its last offset and that of the entry before."""
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
        """The log has been read to its end, at `log_bytes`."""
        while self._entry is not None:
            at, _, log_position = self._entry
            yield self._wrong(
                at, f"byte {log_position} is past the end of the log, which has {log_bytes} bytes"
            )
            yield from self._advance()


class TimeIndexCheck(_IndexCheck):
    """An entry `(T, n)` is true when T is the largest timestamp of the messages below offset n, or,
    as Kafka writes it, when the message with offset n has T and none before it has a larger one.
    Where messages are further from the base offset than an entry can say, the closing entry is for
    the furthest offset that it can say, and T is the largest timestamp of all."""

    ENTRY = TIME_ENTRY
    NAMES = NAMES_OF_TIMES

    def __init__(self, path: Path, file: File, base_offset: int) -> None:
        super().__init__(path, file)
        self._base_offset = base_offset
        self._largest_ms = -1
        self._closes_far = False
        """Whether the entry is judged by all messages, as the closing one of a far end."""

    def passed(self, first_offset: int, last_offset: int, timestamp_ms: int) -> Iterator[Finding]:
        """The log goes on with an entry of these offsets and this timestamp."""
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
        """The log has been read to its end; the next segment begins, or would, at `end_offset`."""
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
    """What is wrong with the append times of the segment from `base_offset` up to `end_offset`.

    `settled` says that the segment was closed; else the last write may have been torn. Raises
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
    """The rule that an entry breaks, in words."""
    rule = append_time_rule(relative, timestamp_ms, last, base_offset)
    if rule is None and base_offset + relative >= end_offset:
        return f"offset {base_offset + relative} is past the segment's end, {end_offset}"
    return rule
