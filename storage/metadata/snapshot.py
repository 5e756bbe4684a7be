"""A state as bytes: the result of the records below an offset.

A line of text, then frames: length and CRC-32 of the body, each a big-endian uint32, and the body.
The first body is msgpack `["state", offset]`, the last `["end", number of records]`; those in
between are records as in the log (`records`). An incomplete file or answer is not valid.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgpack

from .metadata_state import MetadataState
from .records import MAX_RECORD_BYTES, MalformedRecord, MetadataRecord, decode_record, encode_record

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
