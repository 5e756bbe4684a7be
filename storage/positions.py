"""The store of named positions: where each consumer goes on.

(name, topic, partition) -> `Position`. All of them are in memory and in one file, `positions`,
that is only appended to (its bytes: `position_records`). A commit is one record, so all of it
counts or nothing. When most of the file is overwritten positions, the live ones are written to a
new file that replaces it.
"""

import heapq
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..protocol.errors import InvalidGroupId, InvalidRequest, StorageError
from .broken import keep_bytes
from .events import Observer
from .files import NO_HANDLES, PASSING_ERRORS, File, Files, replace_file
from .names import MAX_TOPIC_NAME
from .position_records import (
    COMMIT,
    FORGET,
    FORGET_TOPIC,
    HEADER,
    KEPT,
    Change,
    Position,
    encode_change,
    good_records,
)

__all__ = [
    "MAX_NAME_BYTES",
    "MAX_POSITIONS",
    "POSITIONS_FILE",
    "Position",
    "Positions",
    "check_name",
]

POSITIONS_FILE: Final = "positions"

MAX_NAME_BYTES: Final = 255
"""UTF-8. A name is a job's or a group's; Kafka's tools stay far below this."""

MAX_POSITIONS: Final = 1_000_000
"""All names together. At about 300 bytes each in memory, some 300 MB at the very most."""

MIN_COMPACTION_BYTES: Final = 1 << 20
"""Below this a rewrite saves nothing worth its two syncs."""

_COMPACTED_RECORD_ENTRIES = 1_000


Key = tuple[str, int]


class Positions:
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
        max_positions: int = MAX_POSITIONS,
    ) -> None:
        """Open the store of `directory`; its file is made by the first commit.

        Raises `OSError` when the file is there and cannot be read.
        """
        self._files = files
        self._path = directory / POSITIONS_FILE
        self._observe = observe
        self._max_positions = max_positions
        self._lock = threading.Lock()
        self._names: dict[str, dict[Key, Position]] = {}
        self._count = 0
        self._size = 0
        self._compacted_size = 0
        self._failure: str | None = None
        self._name_unsynced = False
        """Whether the folder has to be synced before anything is written."""
        self._file: File | None = None
        if files.exists(self._path):
            self._open()

    def get(self, name: str, topic: str, partition: int) -> Position | None:
        """The position, or `None` when nothing was committed."""
        return self._names.get(name, {}).get((topic, partition))

    def of(self, name: str) -> list[Position]:
        """All positions under `name`, by topic and partition."""
        found = list(self._names.get(name, {}).values())
        return sorted(found, key=lambda position: (position.topic, position.partition))

    def all(self) -> Iterator[tuple[str, Position]]:
        """Every position with its name, in no order."""
        # Copies, because other threads commit meanwhile.
        for name, held in list(self._names.items()):
            for position in list(held.values()):
                yield name, position

    def names(self, after: str = "", limit: int | None = None) -> list[str]:
        """The names that have a position, sorted: at most `limit` of those behind `after`."""
        behind = [name for name in list(self._names) if name > after]
        return sorted(behind) if limit is None else heapq.nsmallest(limit, behind)

    def __len__(self) -> int:
        """How many positions there are."""
        return self._count

    def has(self, name: str) -> bool:
        """Whether there is a position under `name`."""
        return name in self._names

    def expires_ms(self, name: str, retention_ms: int) -> int | None:
        """When everything under `name` has outlived its use: none of it was committed, and nobody
        was seen to use the name, for as long as it is to live. `None` for what is kept for ever.

        `retention_ms` is for the positions that go by the broker's settings.
        """
        held = list(self._names.get(name, {}).values())
        if not held or any(position.retention_ms == KEPT for position in held):
            return None
        used_ms = max(max(position.commit_time_ms, position.used_ms) for position in held)
        return used_ms + max(position.retention_ms or retention_ms for position in held)

    def is_of_group(self, name: str) -> bool:
        """Whether what is stored under `name` was committed for a group of Kafka's clients."""
        held = list(self._names.get(name, {}).values())
        return any(position.retention_ms != KEPT for position in held)

    def last_used_ms(self, name: str) -> int:
        """The last commit under `name`, or when it was seen in use after that; -1 for none."""
        held = list(self._names.get(name, {}).values())
        return max((max(each.commit_time_ms, each.used_ms) for each in held), default=-1)

    def used(self, name: str, at_ms: int) -> None:
        """Note that somebody uses `name`; durable on return. Raises `StorageError`.

        That is of interest only where something may expire, and nothing else happens elsewhere.
        """
        with self._lock:
            held = self._names.get(name, {}).values()
            expiring = next((each for each in held if each.retention_ms != KEPT), None)
            if expiring is not None:
                # One is enough: they expire together.
                self._write(Change(COMMIT, name, (replace(expiring, used_ms=at_ms),)))

    def commit(self, name: str, entries: Sequence[Position]) -> None:
        """Store `entries` under `name`, all or none; durable on return.

        Raises `InvalidGroupId` for a name that is empty or too long, `InvalidRequest` for an entry
        that is no position or a full store, `StorageError` when the disk fails.
        """
        check_name(name)
        for entry in entries:
            _check_entry(entry)
        if not entries:
            return
        with self._lock:
            known = self._names.get(name, {})
            new = {(entry.topic, entry.partition) for entry in entries} - known.keys()
            if self._count + len(new) > self._max_positions:
                raise InvalidRequest(
                    f"the store has {self._count} positions, {len(new)} more would pass its limit "
                    f"of {self._max_positions}; forget names that are out of use"
                )
            self._write(Change(COMMIT, name, entries))

    def forget(self, name: str) -> None:
        """Drop all positions of `name`; durable on return. Raises `StorageError`."""
        with self._lock:
            if name in self._names:
                self._write(Change(FORGET, name, ()))

    def expire(self, name: str, retention_ms: int, now_ms: int) -> int:
        """Forget `name` if it has expired, which a commit on its way may have changed; how many
        positions that were. Durable on return. Raises `StorageError`.
        """
        with self._lock:
            expires_ms = self.expires_ms(name, retention_ms)
            if expires_ms is None or expires_ms > now_ms:
                return 0
            count = len(self._names[name])
            self._write(Change(FORGET, name, ()))
            return count

    def forget_topic(self, topic: str) -> None:
        """Drop all positions in `topic`; durable on return. Raises `StorageError`."""
        with self._lock:
            if any(key[0] == topic for held in self._names.values() for key in held):
                self._write(Change(FORGET_TOPIC, topic, ()))

    def close(self) -> None:
        """Close the file. Everything committed is on disk already."""
        with self._lock:
            self._failure = "the store is closed"
            if self._file is not None:
                self._file.close()

    def _write(self, change: Change) -> None:
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
            # Nobody knows what is on the disk now, and a second sync may wrongly succeed.
            self._failure = f"syncing {self._path} failed ({error}); restart the broker"
            raise StorageError(f"positions cannot be written: {self._failure}") from error
        self._size += len(record)
        self._apply(change)
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
        if cause.errno not in PASSING_ERRORS:
            self._failure = f"writing {self._path} failed ({cause}); restart the broker"

    def _apply(self, change: Change) -> None:
        kind, name, entries = change
        # Readers look on without the lock: every step below leaves the dictionaries readable.
        if kind == COMMIT:
            held = self._names.setdefault(name, {})
            before = len(held)
            held.update({(entry.topic, entry.partition): entry for entry in entries})
            self._count += len(held) - before
        elif kind == FORGET:
            self._count -= len(self._names.pop(name, {}))
        else:
            for owner, held in list(self._names.items()):
                kept = {key: value for key, value in held.items() if key[0] != name}
                self._count -= len(held) - len(kept)
                if kept:
                    self._names[owner] = kept
                else:
                    del self._names[owner]

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
        content = b"".join([HEADER, *self._live_records()])
        # Until the new file is known to be in place nobody knows which one a commit would reach.
        self._failure = f"{self._path} could not be rewritten; restart the broker"
        try:
            replace_file(self._files, self._path, content)
        except OSError as error:
            in_place = self._files.size(self._path) != before
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
        self._size = self._compacted_size = len(content)
        self._observe(
            "positions_compacted", positions=self._count, from_bytes=before, to_bytes=self._size
        )

    def _live_records(self) -> Iterator[bytes]:
        for name, held in self._names.items():
            entries = list(held.values())
            for start in range(0, len(entries), _COMPACTED_RECORD_ENTRIES):
                some = entries[start : start + _COMPACTED_RECORD_ENTRIES]
                yield encode_change(Change(COMMIT, name, some))

    def _open(self) -> None:
        content = self._files.read_bytes(self._path)
        if not content.startswith(HEADER):
            if not HEADER.startswith(content):
                kept = self._set_aside("positions_damaged", content, 0)
                with suppress(OSError):
                    if kept:
                        self._open_or_create()
            return  # Else the next commit replaces the file.
        written, damaged, end = self._load(content)
        self._file = self._files.open(self._path)
        self._size = end
        self._compacted_size = end * self._count // max(written, 1)
        if end < len(content):
            # A commit that a crash tore: it was never answered.
            self._set_aside("positions_cut", content[end:], end)
            self._file.truncate(end)
            self._file.sync()
        if damaged or self._size > max(MIN_COMPACTION_BYTES, 2 * self._compacted_size):
            self._try_to_compact()

    def _load(self, content: bytes) -> tuple[int, bool, int]:
        """Take every good record; how many entries they had, whether bytes between them were
        bad, and where the last one ends."""
        written = 0
        damaged = False
        end = len(HEADER)
        for position, after, change in good_records(content, end):
            if position > end:
                damaged = True
                self._set_aside("positions_damaged", content[end:position], end)
            self._apply(change)
            written += len(change.entries)
            end = after
        return written, damaged, end

    def _set_aside(self, event: str, content: bytes, position: int) -> bool:
        """Keep bytes that are taken out of use, and tell; says whether they are kept."""
        end = position + len(content)
        done = True
        try:
            kept = str(keep_bytes(self._files, self._path, position, end))
        except OSError as error:
            # A full disk is what tears commits; it must not keep the broker from starting too.
            kept = f"nowhere: {error}"
            done = False
        self._observe(event, path=str(self._path), position=position, bytes=len(content), kept=kept)
        return done


def check_name(name: str) -> None:
    """Raises `InvalidGroupId` for a name that is empty or too long."""
    size = len(name.encode())
    if not 1 <= size <= MAX_NAME_BYTES:
        raise InvalidGroupId(
            f"the position name {name[:40]!r} has {size} bytes; allowed are 1 to {MAX_NAME_BYTES}"
        )


def _check_entry(entry: Position) -> None:
    if not 1 <= len(entry.topic) <= MAX_TOPIC_NAME:
        raise InvalidRequest(
            f"the topic name {entry.topic[:40]!r} has {len(entry.topic)} characters; "
            f"allowed are 1 to {MAX_TOPIC_NAME}"
        )
    if not 0 <= entry.partition < 2**31:
        raise InvalidRequest(f"partition {entry.partition} is not within 0 to {2**31 - 1}")
    if not 0 <= entry.offset < 2**63:
        raise InvalidRequest(
            f"offset {entry.offset} of {entry.topic}-{entry.partition} is not within 0 to "
            f"{2**63 - 1}"
        )
