"""Reading a log file offline, entry by entry, past messages whose CRC is wrong.

For people who look at files (`dump`, `verify`): reads only, holds about a mebibyte at a time, and
says in words where and why it had to stop.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from ..protocol.records.kernel import Problem, walk
from ..protocol.records.layout import ENTRY_OVERHEAD
from ..protocol.records.message import Entry, entries
from .entry_rules import RULES, ZEROS_RULE
from .files import File

CHUNK_BYTES: Final = 1 << 20

_HEADER = Struct(">qi")


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry of a log file."""

    position: int
    """In the file."""
    entry: Entry
    """Its own `position` counts in the piece that was read, not in the file."""
    data: bytes
    """The whole entry, its 12-byte header included."""
    crc_ok: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """Where reading ended before the end of the file."""

    position: int
    problem: Problem
    rule: str
    """What is wrong, in words."""


def read_log_file(file: File, size_bytes: int) -> Iterator[StoredEntry | Stop]:
    """The entries in the first `size_bytes` of `file`; a `Stop`, if there is one, comes last.

    An entry with a wrong CRC is given with `crc_ok` false when its lengths add up. Anything else
    that is wrong leaves no way to tell where the next entry begins. Raises `OSError`.
    """
    position = 0
    wanted = CHUNK_BYTES
    while position < size_bytes:
        wanted = min(wanted, size_bytes - position)
        data = file.pread(wanted, position)
        if len(data) < wanted:
            size_bytes = position + len(data)  # A broker cut the file meanwhile.
        wanted = CHUNK_BYTES
        walked = walk(data, 0, len(data))
        yield from _good(data, 0, walked.end, position)
        end = walked.end
        problem = walked.problem
        if problem is Problem.CRC:
            # Good or not, its size is plausible: the walk checks sizes before CRCs.
            after = _entry_end(data, end)
            unchecked = walk(data, end, after, check_crc=False)
            problem = unchecked.problem
            if problem is Problem.NONE:
                yield from _good(data, end, after, position, crc_ok=False)
                end = after
        elif problem is Problem.PARTIAL:
            whole = _entry_end(data, end)
            if position + whole <= size_bytes:
                wanted = max(CHUNK_BYTES, whole - end)
                problem = Problem.NONE
        if problem is not Problem.NONE:
            yield _stop(file, position + end, size_bytes, problem)
            return
        position += end


def _entry_end(data: bytes, position: int) -> int:
    """Where the entry at `position` says it ends; the end of its header if that is cut off."""
    if position + ENTRY_OVERHEAD > len(data):
        return position + ENTRY_OVERHEAD
    size: int = _HEADER.unpack_from(data, position)[1]
    return position + ENTRY_OVERHEAD + size


def _good(
    data: bytes, start: int, end: int, position: int, *, crc_ok: bool = True
) -> Iterator[StoredEntry]:
    for entry in entries(data, start, end, verify_crc=False):
        stored = data[entry.position : entry.end]
        yield StoredEntry(position + entry.position, entry, stored, crc_ok)


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
