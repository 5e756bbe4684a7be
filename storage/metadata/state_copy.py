"""Copying a stored state to another broker, in parts of limited size.

The leader reads its file; the follower writes a file beside its own. When that is complete and
valid, it replaces the follower's own.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from ...protocol.errors import InvalidRequest, StorageError
from ..files import File, Files
from .snapshot import MalformedState, Snapshot, decode_state, state_offset

PART_BYTES: Final = 1 << 20

MAX_STATE_BYTES: Final = 1 << 32
"""Maximum size of a copied state in bytes: enough for a million positions with long texts."""

_HEAD_BYTES: Final = 256
"""The end offset of a state is within this many bytes at its beginning."""


class StatePart(NamedTuple):
    """A part of a state."""

    offset: int
    """End offset of the state: the offset of the first record that is not in it."""
    size_bytes: int
    """Size of the whole state."""
    position: int
    """Position of the first byte of `data`."""
    data: bytes

    @property
    def is_last(self) -> bool:
        return self.position + len(self.data) == self.size_bytes


class StateReading:
    """A state read by its leader, from one file, even if that is replaced meanwhile."""

    def __init__(self, file: File) -> None:
        """Raises `OSError`, `MalformedState`; the file is closed then."""
        self._file = file
        self._position = 0
        try:
            self._size_bytes = file.size()
            self.offset = state_offset(file.pread(_HEAD_BYTES, 0))
        except BaseException:
            file.close()
            raise

    def part(self) -> StatePart:
        """Return the next part; after the last part, the first one again. May run in any thread.

        Raises `OSError`.
        """
        if self._position >= self._size_bytes:
            self._position = 0
        position = self._position
        data = self._file.pread(PART_BYTES, position)
        self._position += len(data)
        return StatePart(self.offset, self._size_bytes, position, data)

    def close(self) -> None:
        self._file.close()


class StateCopy:
    """A state received by a follower. Its methods may run in any thread, one at a time."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self.path = path
        self.size_bytes = 0
        """Number of bytes received of the present state."""
        self._last: StatePart | None = None

    def take(self, part: StatePart) -> Snapshot | None:
        """Store a part. Return the state once it is complete and on stable storage.

        Raises `InvalidRequest` for a part that is neither the next one nor the first of another
        state, `StorageError` for an invalid state.
        """
        self._check(part)
        try:
            with closing(self._files.open(self.path, create=True)) as file:
                if part.position == 0:
                    file.truncate(0)
                file.pwrite(part.data, part.position)
                self._last, self.size_bytes = part, part.position + len(part.data)
                if not part.is_last:
                    return None
                file.sync()
                return self._whole(file, part)
        except OSError as error:
            raise StorageError(f"{self.path} cannot be written: {error}") from error

    def _whole(self, file: File, part: StatePart) -> Snapshot:
        self._last = None
        try:
            snapshot = decode_state(pieces_of(file))
            if snapshot.offset != part.offset:
                raise MalformedState(f"it ends at {snapshot.offset}, not at {part.offset}")
        except MalformedState as error:
            raise StorageError(f"the leader's metadata cannot be read: {error}") from error
        return snapshot

    def _check(self, part: StatePart) -> None:
        if not 0 < part.size_bytes <= MAX_STATE_BYTES:
            raise InvalidRequest(
                f"a state is of {part.size_bytes} bytes; it must be 1 to {MAX_STATE_BYTES}"
            )
        if not part.data or part.position + len(part.data) > part.size_bytes:
            raise InvalidRequest(
                f"{len(part.data)} bytes of a state from {part.position} on are no part of "
                f"{part.size_bytes}"
            )
        if part.position == 0:
            return
        last = self._last
        if last is None or (last.offset, last.size_bytes) != (part.offset, part.size_bytes):
            raise InvalidRequest(f"the state up to {part.offset} does not begin at its beginning")
        if part.position != self.size_bytes:
            raise InvalidRequest(
                f"the state goes on at byte {part.position}; {self.size_bytes} are here"
            )


def pieces_of(file: File) -> Iterator[bytes]:
    """Yield the content of a file. Raises `OSError`."""
    position = 0
    while data := file.pread(PART_BYTES, position):
        position += len(data)
        yield data
