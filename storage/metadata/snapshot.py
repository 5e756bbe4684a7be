"""A state as bytes: the result of the records below an offset; and copying it to another broker, in
parts of limited size.

A line of text, then frames: length and CRC-32 of the body, each a big-endian uint32, and the body.
The first body is msgpack `["state", offset]`, the last `["end", number of records]`; those in
between are records as in the log (`records`). An incomplete file or answer is not valid.

For a copy, the leader reads its file; the follower writes a file beside its own. When that is
complete and valid, it replaces the follower's own.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgpack

from ...protocol.errors import InvalidRequest, StorageError
from ..files import File, Files
from .access_records import MalformedRecord
from .metadata_state import MetadataState
from .records import MAX_RECORD_BYTES, MetadataRecord, decode_record, encode_record

PART_BYTES: Final = 1 << 20

MAX_STATE_BYTES: Final = 1 << 32
"""Maximum size of a copied state in bytes: enough for a million positions with long texts."""

_HEAD_BYTES: Final = 256
"""The end offset of a state is within this many bytes at its beginning."""

HEADER: Final = b"horolog metadata 1\n"
_FRAME = Struct(">II")
_FIRST: Final = "state"
_LAST: Final = "end"
_INT64_MAX: Final = 2**63 - 1


class MalformedState(ValueError):
    """Bytes that are not a complete state. The text says why."""


class Snapshot(NamedTuple):
    """A state, and the offset of the first record that is not in it."""

    offset: int
    state: MetadataState


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


def encode_state(offset: int, records: Iterable[MetadataRecord]) -> Iterator[bytes]:
    """Yield the bytes of a state, in pieces. `records` create the state from an empty one."""
    yield HEADER + _frame(msgpack.packb([_FIRST, offset]))
    count = 0
    for record in records:
        yield _frame(encode_record(record))
        count += 1
    yield _frame(msgpack.packb([_LAST, count]))


def decode_state(pieces: Iterable[bytes]) -> Snapshot:
    """Return the state in the pieces. Never holds more than a frame in memory. Raises
    `MalformedState` for bytes that `encode_state` cannot have made."""
    bodies = _bodies(_Pieces(pieces))
    word, offset = _mark(next(bodies, b""), _FIRST)
    state = MetadataState()
    count = 0
    last = b""
    for body in bodies:
        if last:
            try:
                state.apply(decode_record(last))
            except MalformedRecord as error:
                raise MalformedState(f"record {count}: {error}") from error
            count += 1
        last = body
    word, recorded = _mark(last, _LAST)
    if recorded != count:
        raise MalformedState(f"it has {count} records, and says {word} at {recorded}")
    return Snapshot(offset, state)


def state_offset(head: bytes) -> int:
    """Return the end offset of the state that begins with these bytes. Raises `MalformedState`."""
    return _mark(next(_bodies(_Pieces([head])), b""), _FIRST)[1]


def _frame(body: bytes) -> bytes:
    return _FRAME.pack(len(body), crc32(body)) + body


class _Pieces:
    """Reads from pieces as from a file."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._ready = bytearray()
        self.at = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes; fewer at the end."""
        ready = self._ready
        while len(ready) < size and (piece := next(self._pieces, None)) is not None:
            ready += piece
        taken = bytes(ready[:size])
        del ready[:size]
        self.at += len(taken)
        return taken


def _bodies(pieces: _Pieces) -> Iterator[bytes]:
    if pieces.take(len(HEADER)) != HEADER:
        raise MalformedState(f"it does not begin with {HEADER.decode().strip()!r}")
    while True:
        at = pieces.at
        frame = pieces.take(_FRAME.size)
        if not frame:
            return
        if len(frame) < _FRAME.size:
            raise MalformedState(f"it ends within a frame, at byte {at}")
        length, crc = _FRAME.unpack(frame)
        if length > MAX_RECORD_BYTES:
            raise MalformedState(f"byte {at}: a frame of {length} bytes; {MAX_RECORD_BYTES} is all")
        body = pieces.take(length)
        if len(body) < length:
            raise MalformedState(f"byte {at}: a frame of {length} bytes, {len(body)} are left")
        if crc32(body) != crc:
            raise MalformedState(f"byte {at}: the checksum of a frame is wrong")
        yield body


def _mark(body: bytes, word: str) -> tuple[str, int]:
    try:
        fields: Any = msgpack.unpackb(body)
    except (ValueError, TypeError, msgpack.UnpackException):
        fields = None
    if not isinstance(fields, list) or len(fields) != 2 or fields[0] != word:
        raise MalformedState(f"its {word!r} is missing")
    if type(fields[1]) is not int or not 0 <= fields[1] <= _INT64_MAX:
        raise MalformedState(f"its {word!r} has no number")
    return word, fields[1]
