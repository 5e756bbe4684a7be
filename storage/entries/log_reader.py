"""Offline reading of a log file, entry by entry, past messages with a wrong CRC.

For tools that inspect files (`dump`, `verify`). Only reads, holds about a mebibyte at a time, and
says in words where and why it had to stop.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from ...protocol.records.batch import BatchHeader, read_header
from ...protocol.records.kernel import walk
from ...protocol.records.kernel.terms import Problem
from ...protocol.records.layout import BATCH_MAGIC, ENTRY_OVERHEAD, MAGIC_AT, Codec
from ...protocol.records.messages.sets import Entry, entries
from ...values import value_class
from ..files import File
from .entry_rules import RULES, ZEROS_RULE

CHUNK_BYTES: Final = 1 << 20

_HEADER = Struct(">qi")


@value_class
class StoredEntry:
    """One entry of a log file."""

    position: int
    """Position in the file."""
    entry: Entry | BatchHeader
    """The decoded entry. Its own `position` counts in the piece that was read, not in the file."""
    data: bytes
    """The whole entry, including its 12-byte header."""
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
        """Timestamp of a message; for a wrapper message or a batch, its stated
        largest timestamp."""
        if isinstance(self.entry, Entry):
            return self.entry.timestamp_ms
        return self.entry.max_timestamp_ms

    @property
    def offset(self) -> int:
        """Offset as stored: of the message, of the last message in a wrapper, of the first in a
        batch."""
        return self.entry.offset if isinstance(self.entry, Entry) else self.entry.base_offset

    @property
    def last_offset(self) -> int:
        """Offset of the last message in the entry."""
        return self.entry.offset if isinstance(self.entry, Entry) else self.entry.last_offset


@value_class
class Stop:
    """Where reading stopped before the end of the file."""

    position: int
    problem: Problem
    rule: str
    """What is wrong, in words."""


def read_log_file(file: File, end: int, start: int = 0) -> Iterator[StoredEntry | Stop]:
    """Yield the entries from `start` to `end` of `file`. If reading has to stop, a `Stop` comes
    last.

    An entry with a wrong CRC is returned with `crc_ok` false if its lengths add up. After any other
    problem the beginning of the next entry is unknown. Raises `OSError`.
    """
    position = start
    wanted = CHUNK_BYTES
    while position < end:
        wanted = min(wanted, end - position)
        data = file.pread(wanted, position)
        if len(data) < wanted:
            end = position + len(data)  # A broker truncated the file meanwhile.
        wanted = CHUNK_BYTES
        walked = walk(data, 0, len(data))
        yield from stored_entries(data, 0, walked.end, position)
        at = walked.end
        problem = walked.problem
        if problem is Problem.CRC:
            # Valid or not, its size is plausible: the walk checks sizes before CRCs.
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
    """Return the end of the entry at `position` according to its header; the end of the header if
    that is cut off."""
    if position + ENTRY_OVERHEAD > len(data):
        return position + ENTRY_OVERHEAD
    size: int = _HEADER.unpack_from(data, position)[1]
    return position + ENTRY_OVERHEAD + size


def stored_entries(
    data: bytes, start: int, end: int, position: int, *, crc_ok: bool = True
) -> Iterator[StoredEntry]:
    """Yield the entries of `data[start:end]`, which a walk has passed. `data` is at `position` of
    the file."""
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
