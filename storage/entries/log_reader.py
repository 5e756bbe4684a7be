"""Reading a log file offline, entry by entry, past messages whose CRC is wrong.

For people who look at files (`dump`, `verify`): reads only, holds about a mebibyte at a time, and
says in words where and why it had to stop.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from ...protocol.records.batch import BatchHeader, read_header
from ...protocol.records.kernel import walk
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import BATCH_MAGIC, ENTRY_OVERHEAD, MAGIC_AT, Codec
from ...protocol.records.messages.message import Entry, entries
from ...values import value_class
from ..files import File
from .entry_rules import RULES, ZEROS_RULE

CHUNK_BYTES: Final = 1 << 20

_HEADER = Struct(">qi")


@value_class
class StoredEntry:
    """One entry of a log file."""

    position: int
    """In the file."""
    entry: Entry | BatchHeader
    """An `Entry`'s own `position` counts in the piece that was read, not in the file."""
    data: bytes
    """The whole entry, its 12-byte header included."""
    crc_ok: bool

    @property
    def magic(self) -> int:
        return self.entry.magic

    @property
    def codec(self) -> Codec:
        return self.entry.codec

    @property
    def is_append_time(self) -> bool:
        return self.entry.is_append_time

    @property
    def timestamp_ms(self) -> int:
        """Of a message; of a wrapper or a batch the largest, as it says."""
        if isinstance(self.entry, Entry):
            return self.entry.timestamp_ms
        return self.entry.max_timestamp_ms

    @property
    def offset(self) -> int:
        """As it is written: of the message, the last one in a wrapper, the first one in a batch."""
        return self.entry.offset if isinstance(self.entry, Entry) else self.entry.base_offset

    @property
    def last_offset(self) -> int:
        """Of the last message in it."""
        return self.entry.offset if isinstance(self.entry, Entry) else self.entry.last_offset


@value_class
class Stop:
    """Where reading ended before the end of the file."""

    position: int
    problem: Problem
    rule: str
    """What is wrong, in words."""


def read_log_file(file: File, end: int, start: int = 0) -> Iterator[StoredEntry | Stop]:
    """The entries from `start` to `end` of `file`; a `Stop`, if there is one, comes last.

    An entry with a wrong CRC is given with `crc_ok` false when its lengths add up. Anything else
    that is wrong leaves no way to tell where the next entry begins. Raises `OSError`.
    """
    position = start
    wanted = CHUNK_BYTES
    while position < end:
        wanted = min(wanted, end - position)
        data = file.pread(wanted, position)
        if len(data) < wanted:
            end = position + len(data)  # A broker cut the file meanwhile.
        wanted = CHUNK_BYTES
        walked = walk(data, 0, len(data))
        yield from stored_entries(data, 0, walked.end, position)
        at = walked.end
        problem = walked.problem
        if problem is Problem.CRC:
            # Good or not, its size is plausible: the walk checks sizes before CRCs.
            after = _entry_end(data, at)
            unchecked = walk(data, at, after, check_crc=False)
            problem = unchecked.problem
            if problem is Problem.NONE:
                yield from stored_entries(data, at, after, position, crc_ok=False)
                at = after
        elif problem is Problem.PARTIAL:
            whole = _entry_end(data, at)
            if position + whole <= end:
                wanted = max(CHUNK_BYTES, whole - at)
                problem = Problem.NONE
        if problem is not Problem.NONE:
            yield _stop(file, position + at, end, problem)
            return
        position += at


def _entry_end(data: bytes, position: int) -> int:
    """Where the entry at `position` says it ends; the end of its header if that is cut off."""
    if position + ENTRY_OVERHEAD > len(data):
        return position + ENTRY_OVERHEAD
    size: int = _HEADER.unpack_from(data, position)[1]
    return position + ENTRY_OVERHEAD + size


def stored_entries(
    data: bytes, start: int, end: int, position: int, *, crc_ok: bool = True
) -> Iterator[StoredEntry]:
    """The entries of `data[start:end]`, which a walk has passed; `data` is at `position` of the
    file."""
    at = start
    while at < end:
        after = _entry_end(data, at)
        entry: Entry | BatchHeader
        if data[at + MAGIC_AT] == BATCH_MAGIC:
            entry = read_header(data, at)
        else:
            (entry,) = entries(data, at, after, verify_crc=False)
        yield StoredEntry(position + at, entry, data[at:after], crc_ok)
        at = after


def _stop(file: File, position: int, size_bytes: int, problem: Problem) -> Stop:
    zeros = problem in (Problem.SIZE, Problem.PARTIAL) and is_zero(file, position, size_bytes)
    return Stop(position, problem, ZEROS_RULE if zeros else RULES[problem])


def is_zero(file: File, position: int, end: int) -> bool:
    """Whether every byte from `position` to `end` is zero. Raises `OSError`."""
    while position < end:
        data = file.pread(min(CHUNK_BYTES, end - position), position)
        if not data or data.strip(b"\0"):
            return False
        position += len(data)
    return True
