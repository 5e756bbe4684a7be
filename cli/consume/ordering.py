"""Messages of several partitions and topics in the order of their times.

Stored messages are sorted in runs of bounded size, in files where they are many (`SortedMessages`).
Messages that are still to come are held for a while, so that those which are a little late find
their place (`SettledMessages`).
"""

import errno
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import heappop, heappush, merge
from pathlib import Path
from struct import Struct
from typing import IO, Final

import msgspec

from ...client.results import ConsumerRecord
from ...protocol.records.layout import TimestampType
from ..errors import CommandFailed, note
from ..output import shown_size
from .selection import time_of

RUN_BYTES: Final = 64 * 1024 * 1024
"""Memory that messages take before they are sorted and written as a run."""

_RUNS_MERGED: Final = 128
"""Number of runs that are merged at a time; each is an open file."""

_WRITE_BYTES: Final = 64 * 1024
_SORTED_AT_ONCE: Final = 10_000
"""Entries that one call sorts. It holds up the interpreter, and so the event loop beside it."""

_BATCH: Final = 1000
"""Messages given out at a time."""

_OVERHEAD_BYTES: Final = 64
"""Memory of an entry beside its bytes."""

_MESSAGE_BYTES: Final = 500
"""Memory of a message that is held, beside its key and value."""

_TIME: Final = Struct(">Q")
_POSITION: Final = Struct(">IQ")
"""The place of a message in the order, in bytes that compare as the places do: time + 1, the name
of the topic and a zero byte, partition and offset."""

_LENGTH: Final = Struct(">I")
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_Content = tuple[
    int | None,
    TimestampType | None,
    bytes | None,
    bytes | None,
    tuple[tuple[str, bytes | None], ...],
    int | None,
]
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Content).decode


def free_bytes(folder: Path) -> int:
    """Return how many bytes the file system of a folder has left."""
    return shutil.disk_usage(folder).free


class SortedMessages:
    """Sorts messages by (time, topic, partition, offset), in memory of `RUN_BYTES` and a temporary
    folder. Messages without a time come first."""

    def __init__(
        self,
        by: str,
        *,
        last: int | None = None,
        run_bytes: int = RUN_BYTES,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """`by` is the time that counts, as in `time_of`. With `last` only that many messages are
        kept, those at the end of the order."""
        self._by = by
        self._last = last
        self._run_bytes = run_bytes
        self._free = free
        self._entries: list[bytes] = []
        self._entries_bytes = 0
        self._runs: list[IO[bytes]] = []
        """Files without a name, so that nothing is left behind however the program ends."""
        self._stored_bytes = 0
        """Size of all runs; goes on to be counted when there is no room for them."""
        self._count = 0
        """Number of messages in runs and in memory."""
        self._no_room: Path | None = None
        """The folder that has no room for the runs; None as long as there is room."""

    def close(self) -> None:
        """Delete the runs."""
        self._entries.clear()
        for run in self._runs:
            run.close()
        self._runs.clear()

    def add(self, records: Iterable[ConsumerRecord]) -> bool:
        """Add messages. Returns whether the memory is full, so that `spill` is to be called."""
        for record in records:
            time_ms = time_of(record, self._by)
            entry = b"".join(
                (
                    _TIME.pack(0 if time_ms is None else time_ms + 1),
                    record.topic.encode(),
                    b"\0",
                    _POSITION.pack(record.partition, record.offset),
                    _encode(record[3:]),
                )
            )
            self._entries.append(entry)
            self._entries_bytes += len(entry) + _OVERHEAD_BYTES
            self._count += 1
        return self._entries_bytes >= self._run_bytes

    def spill(self) -> None:
        """Sort what is in memory, and write it as a run. May run in a thread."""
        self._sort()
        if self._entries_bytes < self._run_bytes // 2:
            return  # with `last`, most of it was dropped
        self._write_run(iter(self._entries), self._file_bytes())
        self._entries.clear()
        self._entries_bytes = 0
        if len(self._runs) >= _RUNS_MERGED:
            self._join_runs()

    def batches(self) -> Iterator[list[ConsumerRecord]]:
        """Yield the messages in order, and delete the runs. Raises CommandFailed when there was no
        room for the runs."""
        try:
            self._sort()
            self._check_room()
            skipped = 0 if self._last is None else max(self._count - self._last, 0)
            batch: list[ConsumerRecord] = []
            for number, entry in enumerate(merge(*map(_run_entries, self._runs), self._entries)):
                if number < skipped:
                    continue
                batch.append(_record(entry))
                if len(batch) == _BATCH:
                    yield batch
                    batch = []
            yield batch
        finally:
            self.close()

    def _sort(self) -> None:
        entries = self._entries
        parts = [
            sorted(entries[first : first + _SORTED_AT_ONCE])
            for first in range(0, len(entries), _SORTED_AT_ONCE)
        ]
        self._entries = list(merge(*parts)) if len(parts) > 1 else parts[0] if parts else []
        if self._last is not None and len(self._entries) > self._last:
            dropped = len(self._entries) - self._last
            del self._entries[:dropped]
            self._count -= dropped
            self._entries_bytes = self._file_bytes() + len(self._entries) * (
                _OVERHEAD_BYTES - _LENGTH.size
            )

    def _file_bytes(self) -> int:
        return sum(map(len, self._entries)) + _LENGTH.size * len(self._entries)

    def _write_run(self, entries: Iterator[bytes], size_bytes: int) -> None:
        """Write a run, or count its size when there is no room."""
        self._stored_bytes += size_bytes
        if self._no_room is not None:
            return
        folder = _temporary_folder()
        if self._free(folder) < size_bytes:
            self._give_up(folder)
            return
        try:
            run = tempfile.TemporaryFile(buffering=_WRITE_BYTES, dir=folder)  # noqa: SIM115
            self._runs.append(run)
            for entry in entries:
                run.write(_LENGTH.pack(len(entry)))
                run.write(entry)
            run.flush()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise CommandFailed(
                    f"messages cannot be sorted in {folder}: {error.strerror}: set TMPDIR to a "
                    "folder that can be written"
                ) from None
            self._give_up(folder)

    def _give_up(self, folder: Path) -> None:
        """Delete the runs. What follows is only counted, to say how much room it takes."""
        for run in self._runs:
            with suppress(OSError):  # it may have bytes left that find no room
                run.close()
        self._runs.clear()
        self._no_room = folder
        note(
            f"{folder} has no room for the messages to be sorted: reading on to see how much they "
            "need"
        )

    def _check_room(self) -> None:
        if self._no_room is None:
            return
        needed = self._stored_bytes + self._file_bytes()
        if needed > self._run_bytes * _RUNS_MERGED:
            needed *= 2  # runs are merged into a new one before they are deleted
        raise CommandFailed(
            f"--order time needs {shown_size(needed)} ({needed} bytes) in {self._no_room}, which "
            f"has {shown_size(self._free(self._no_room))} left: set TMPDIR to a folder with "
            "room, or read a shorter window; nothing was printed"
        )

    def _join_runs(self) -> None:
        """Merge all runs into one, so that no more files have to be open at a time."""
        joined, self._runs = self._runs, []
        size_bytes = sum(run.tell() for run in joined)
        self._stored_bytes -= size_bytes
        self._write_run(merge(*map(_run_entries, joined)), size_bytes)
        for run in joined:
            run.close()


def _temporary_folder() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise CommandFailed(
            f"there is no temporary folder: {error.strerror}: set TMPDIR to a folder with room"
        ) from None


def _record(entry: bytes) -> ConsumerRecord:
    end = entry.index(b"\0", _TIME.size)
    partition, offset = _POSITION.unpack_from(entry, end + 1)
    content = _decode(memoryview(entry)[end + 1 + _POSITION.size :])
    return ConsumerRecord(entry[_TIME.size : end].decode(), partition, offset, *content)


def _run_entries(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while head := file.read(_LENGTH.size):
        (length,) = _LENGTH.unpack(head)
        yield file.read(length)


_Place = tuple[int, str, int, int]


class SettledMessages:
    """Holds messages as they come for a while, and gives them out in the order of their times."""

    def __init__(
        self,
        settle_s: float,
        by: str,
        monotonic: Callable[[], float],
        *,
        held_max_bytes: int = RUN_BYTES,
    ) -> None:
        """Beyond `held_max_bytes` the first messages in the order are given out early."""
        self.late = 0
        """Number of messages that came after their place in the order was given out."""
        self._settle_s = settle_s
        self._by = by
        self._monotonic = monotonic
        self._held_max_bytes = held_max_bytes
        self._held: list[tuple[_Place, int, ConsumerRecord]] = []
        """Heap by place; with the size in bytes."""
        self._held_bytes = 0
        self._due: deque[tuple[float, _Place]] = deque()
        """When what came together is given out, and the last place of it."""
        self._passed: _Place | None = None
        """The last place that was given out."""

    def passed(self, record: ConsumerRecord) -> None:
        """Note that this message was given out elsewhere."""
        place = self._place(record)
        if place is not None:
            self._passed = place if self._passed is None else max(self._passed, place)

    def add(self, records: Sequence[ConsumerRecord]) -> list[ConsumerRecord]:
        """Hold messages that just came. Returns those that cannot wait: late ones, messages without
        a time, and the first ones when too much is held."""
        at_once: list[ConsumerRecord] = []
        latest: _Place | None = None
        for record in records:
            place = self._place(record)
            if place is None or (self._passed is not None and place <= self._passed):
                self.late += place is not None
                at_once.append(record)
                continue
            size_bytes = _MESSAGE_BYTES + len(record.key or b"") + len(record.value or b"")
            heappush(self._held, (place, size_bytes, record))
            self._held_bytes += size_bytes
            latest = place if latest is None else max(latest, place)
        if latest is not None:
            self._due.append((self._monotonic() + self._settle_s, latest))
        while self._held_bytes > self._held_max_bytes:
            at_once.append(self._pop())
        return at_once

    def take_due(self) -> list[ConsumerRecord]:
        """Return the messages that were held long enough, with all that come before them."""
        latest: _Place | None = None
        while self._due and self._due[0][0] <= self._monotonic():
            place = self._due.popleft()[1]
            latest = place if latest is None else max(latest, place)
        taken = []
        while latest is not None and self._held and self._held[0][0] <= latest:
            taken.append(self._pop())
        return taken

    def take_all(self) -> list[ConsumerRecord]:
        """Return all messages that are held."""
        self._due.clear()
        return [self._pop() for _ in range(len(self._held))]

    @property
    def wait_s(self) -> float | None:
        """Seconds until messages are due; None if none is held."""
        return max(0.0, self._due[0][0] - self._monotonic()) if self._due else None

    def _pop(self) -> ConsumerRecord:
        place, size_bytes, record = heappop(self._held)
        self._held_bytes -= size_bytes
        self._passed = place
        return record

    def _place(self, record: ConsumerRecord) -> _Place | None:
        time_ms = time_of(record, self._by)
        if time_ms is None:
            return None
        return time_ms, record.topic, record.partition, record.offset
