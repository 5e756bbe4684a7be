"""The store of named positions: where each consumer goes on.

(name, topic, partition) -> `StoredPosition`. All are in memory (`position_table`) and in one file,
`positions`, that is only appended to (its bytes: `position_records`). A commit is one record,
so all of it counts or nothing. When most of the file is overwritten positions, the live ones are
written to a new file that replaces it.

How many there may be is bounded, and how much memory they may take. A store that is above a bound,
because that was lowered, is read as any other; it takes what makes it no larger.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...protocol.errors import StorageError
from ..events import Observer
from ..files import NO_HANDLES, RETRIABLE_ERRORS, File, Files, replace_file, replacing
from ..quarantine import quarantine_bytes
from .position_reading import MAX_POSITIONS, PositionReading
from .position_records import (
    COMMIT,
    FORGET,
    FORGET_SOME,
    FORGET_TOPIC,
    HEADER,
    KEPT,
    MAX_NAME_BYTES,
    PositionChange,
    StoredPosition,
    encode_change,
    good_records,
    no_position,
)
from .position_rules import check_entry, check_name
from .position_table import PositionTable

__all__ = [
    "MAX_NAME_BYTES",
    "MAX_POSITIONS",
    "POSITIONS_FILE",
    "Positions",
    "StoredPosition",
    "check_name",
]

POSITIONS_FILE: Final = "positions"

MIN_COMPACTION_BYTES: Final = 1 << 20
"""Below this a rewrite saves nothing worth its two syncs."""

_COMPACTED_RECORD_ENTRIES: Final = 200
_COMPACTED_WRITE_BYTES: Final = 1 << 20


class Positions(PositionReading):
    """The positions of one data directory, all in memory and on disk.

    Reads never wait. `commit`, `forget` and `forget_topic` return when the change is on stable
    storage, so a server calls them in a thread; several threads may.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        observe: Observer,
        *,
        max_bytes: int | None = None,
        max_positions: int = MAX_POSITIONS,
    ) -> None:
        """Open the store of `directory`; its file is made by the first commit.

        `max_bytes` bounds the memory that positions take. Raises `OSError` when the file is there
        and cannot be read.
        """
        self._files = files
        self._path = directory / POSITIONS_FILE
        self._observe = observe
        super().__init__(PositionTable(), max_bytes=max_bytes, max_positions=max_positions)
        self._lock = threading.Lock()
        self._size = 0
        self._compacted_size = 0
        self._failure: str | None = None
        self._name_unsynced = False
        """Whether the folder has to be synced before anything is written."""
        self._file: File | None = None
        if files.exists(self._path):
            self._open()

    def used(self, name: str, at_ms: int) -> None:
        """Note that `name` is used; durable on return. Raises `StorageError`.

        That is of interest only where something may expire, and nothing else happens elsewhere.
        """
        with self._lock:
            held = self._table.of(name)
            expiring = next((each for each in held if each.retention_ms != KEPT), None)
            if expiring is not None:
                # One is enough: they expire together.
                self._write(PositionChange(COMMIT, name, (expiring._replace(used_ms=at_ms),)))

    def commit(self, name: str, entries: Sequence[StoredPosition]) -> None:
        """Store `entries` under `name`, all or none; durable on return.

        Raises `InvalidGroupId` for a name that is empty or too long, `InvalidRequest` for an entry
        that is no position, `InvalidCommitOffsetSize` for more than the store may hold,
        `StorageError` when the disk fails.
        """
        check_name(name)
        for entry in entries:
            check_entry(entry)
        if not entries:
            return
        with self._lock:
            self.check_room(name, entries)
            self._write(PositionChange(COMMIT, name, entries))

    def forget(self, name: str) -> None:
        """Drop all positions of `name`; durable on return. Raises `StorageError`."""
        with self._lock:
            if name in self._table:
                self._write(PositionChange(FORGET, name, ()))

    def forget_some(self, name: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Drop the positions of `name` in some partitions; durable on return. Raises
        `StorageError`."""
        with self._lock:
            held = [each for each in partitions if self._table.get(name, *each) is not None]
            if held:
                gone = tuple(no_position(topic, partition) for topic, partition in held)
                self._write(PositionChange(FORGET_SOME, name, gone))

    def expire(self, name: str, retention_ms: int, now_ms: int) -> int:
        """Forget `name` if it has expired, which a commit on its way may have changed; how many
        positions that were. Durable on return. Raises `StorageError`.
        """
        with self._lock:
            expires_ms = self.expires_ms(name, retention_ms)
            if expires_ms is None or expires_ms > now_ms:
                return 0
            count = self._table.count_of(name)
            self._write(PositionChange(FORGET, name, ()))
            return count

    def forget_topic(self, topic: str) -> None:
        """Drop all positions in `topic`; durable on return. Raises `StorageError`."""
        with self._lock:
            if self._table.has_topic(topic):
                self._write(PositionChange(FORGET_TOPIC, topic, ()))

    def close(self) -> None:
        """Close the file. Everything committed is on disk already."""
        with self._lock:
            self._failure = "the store is closed"
            if self._file is not None:
                self._file.close()

    def _write(self, change: PositionChange) -> None:
        record = encode_change(change)
        if self._failure is not None:
            raise StorageError(f"positions cannot be written: {self._failure}")
        try:
            if self._name_unsynced:
                self._files.sync_directory(self._path.parent)
                self._name_unsynced = False
            file = self._file or self._open_or_create()
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error}") from error
        try:
            file.pwrite(record, self._size)
        except OSError as error:
            self._cut_back(file, error)
            raise StorageError(f"positions cannot be written to {self._path}: {error}") from error
        try:
            file.sync()
        except OSError as error:
            # What is on the disk now is uncertain, and a second sync may wrongly succeed.
            self._failure = f"syncing {self._path} failed ({error}); restart the broker"
            raise StorageError(f"positions cannot be written: {self._failure}") from error
        self._size += len(record)
        self._table.apply(change)
        self._compact_if_due()

    def _open_or_create(self) -> File:
        if not self._size:
            replace_file(self._files, self._path, HEADER)
            self._size = len(HEADER)
        self._file = self._files.open(self._path)
        return self._file

    def _cut_back(self, file: File, cause: OSError) -> None:
        """Remove what a failed write left; a store that cannot is out of use until a restart."""
        try:
            file.truncate(self._size)
        except OSError as error:
            self._failure = f"{self._path} cannot be cut back ({error}); restart the broker"
            return
        if cause.errno not in RETRIABLE_ERRORS:
            self._failure = f"writing {self._path} failed ({cause}); restart the broker"

    def _compact_if_due(self) -> None:
        """Rewrite once the file is twice what it was after the last rewrite."""
        if self._size >= max(MIN_COMPACTION_BYTES, 2 * self._compacted_size):
            self._try_to_compact()

    def _try_to_compact(self) -> None:
        try:
            self._compact()
        except OSError as error:
            # What was asked for is durable already. Try again when the file has doubled.
            self._compacted_size = self._size
            self._observe("positions_compaction_failed", path=str(self._path), reason=str(error))

    def _compact(self) -> None:
        before = self._size
        # Until the new file is known to be in place it is uncertain which one a commit would reach.
        self._failure = f"{self._path} could not be rewritten; restart the broker"
        try:
            size = self._write_live()
        except OSError as error:
            size = self._files.size(self._path)
            in_place = size != before
            if in_place and error.errno not in NO_HANDLES:
                raise
            self._failure = None
            if not in_place:
                raise
            # Only its name is not safe yet, and there was no handle to make it so.
            self._name_unsynced = True
        if self._file is not None:
            self._file.close()
            self._file = None  # The next commit opens the new one.
        self._failure = None
        self._size = self._compacted_size = size
        self._observe(
            "positions_compacted",
            positions=len(self._table),
            from_bytes=before,
            to_bytes=self._size,
        )

    def _write_live(self) -> int:
        """Write a file of the live positions in place of the present one; returns its size."""
        position = 0
        with replacing(self._files, self._path) as file:
            part = bytearray(HEADER)
            for record in self._live_records():
                part += record
                if len(part) >= _COMPACTED_WRITE_BYTES:
                    file.pwrite(part, position)
                    position += len(part)
                    part = bytearray()
            file.pwrite(part, position)
        return position + len(part)

    def _live_records(self) -> Iterator[bytes]:
        for name in self._table.names():
            entries = self._table.of(name)
            for start in range(0, len(entries), _COMPACTED_RECORD_ENTRIES):
                some = entries[start : start + _COMPACTED_RECORD_ENTRIES]
                yield encode_change(PositionChange(COMMIT, name, some))

    def _open(self) -> None:
        self._file = file = self._files.open(self._path)
        try:
            self._read(file)
        except OSError:
            self.close()
            raise

    def _read(self, file: File) -> None:
        """Take what the file holds, and put right what a crash or damage left of it."""
        size = file.size()
        beginning = file.pread(len(HEADER), 0)
        if beginning != HEADER:
            file.close()
            self._file = None
            if not HEADER.startswith(beginning):
                kept = self._set_aside("positions_damaged", 0, size)
                with suppress(OSError):
                    if kept:
                        self._open_or_create()
            return  # Else the next commit replaces the file.
        written, damaged, end = self._load(file, size)
        self._size = end
        self._compacted_size = end * len(self._table) // max(written, 1)
        if end < size:
            # A commit that a crash tore: it was never answered.
            self._set_aside("positions_cut", end, size)
            file.truncate(end)
            file.sync()
        if damaged or self._size > max(MIN_COMPACTION_BYTES, 2 * self._compacted_size):
            self._try_to_compact()

    def _load(self, file: File, size: int) -> tuple[int, bool, int]:
        """Take every good record; how many entries they had, whether bytes between them were
        bad, and where the last one ends."""
        written = 0
        damaged = False
        end = len(HEADER)
        for position, after, change in good_records(file.pread, size, end):
            if position > end:
                damaged = True
                self._set_aside("positions_damaged", end, position)
            self._table.apply(change)
            written += len(change.entries)
            end = after
        return written, damaged, end

    def _set_aside(self, event: str, position: int, end: int) -> bool:
        """Keep bytes that are taken out of use, and tell; says whether they are kept."""
        done = True
        try:
            kept = str(quarantine_bytes(self._files, self._path, position, end))
        except OSError as error:
            # A full disk is what tears commits; it must not keep the broker from starting too.
            kept = f"nowhere: {error}"
            done = False
        self._observe(
            event, path=str(self._path), position=position, bytes=end - position, kept=kept
        )
        return done
