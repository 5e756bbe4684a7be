"""Bytes of the positions file: a header line, then one record for each commit.

0   body length, uint32 big-endian
4   CRC-32 of the body, uint32 big-endian
8   body, msgpack: [kind, name, entries]
    kind "commit":       entries [topic, partition, offset, timestamp, commit time, metadata],
                         which go on with [retention, used] where it is not kept for ever, and
                         with [retention, used, leader epoch] where that is known
    kind "forget":       no entries; drops all positions of the name
    kind "forget-some":  entries [topic, partition, 0, -1, -1, ""]; drops these positions
    kind "forget-topic": no entries; `name` is a topic, dropped from under every name
"""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Annotated, Final, Literal, NamedTuple
from zlib import crc32

import msgpack
import msgspec

from ..names import MAX_TOPIC_NAME

HEADER: Final = b"horolog positions 1\n"
COMMIT: Final = "commit"
FORGET: Final = "forget"
FORGET_SOME: Final = "forget-some"
FORGET_TOPIC: Final = "forget-topic"

_FRAME = Struct(">II")
KEPT: Final = -1
"""Retention of a position that never expires."""

NO_EPOCH: Final = -1

BROKERS: Final = 0
"""Retention of a position that lives as long as the broker's settings say."""

_BODY_START = b"\x93"  # msgpack's array of three, how every body begins

_CHUNK_BYTES: Final = 1 << 20
MAX_NAME_BYTES: Final = 255
"""UTF-8. A name is a job's or a group's; Kafka's tools stay far below this."""

_MAX_ENTRIES: Final = 10_000_000
"""No request is large enough to commit more."""

_MAX_TEXT: Final = 128 << 20
"""No request is as large."""

_Partition = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Epoch = Annotated[int, msgspec.Meta(ge=NO_EPOCH, le=2**31 - 1)]


class StoredPosition(NamedTuple):
    """Where one consumer goes on in one partition."""

    topic: Annotated[str, msgspec.Meta(max_length=MAX_TOPIC_NAME)]
    partition: _Partition
    offset: _Int64
    """The next offset to read."""
    timestamp_ms: _Int64
    """Time of the last message read, -1 when it is not known."""
    commit_time_ms: _Int64
    metadata: Annotated[str, msgspec.Meta(max_length=_MAX_TEXT)]
    """The consumer's own text; its length is checked by the caller."""
    retention_ms: _Int64 = KEPT
    """How long it is to live once its name is not used: in ms, `KEPT`, or `BROKERS`."""
    used_ms: _Int64 = -1
    """When its name was last seen in use after this commit; -1 when it was not."""
    leader_epoch: _Epoch = NO_EPOCH
    """Of the last message read (KIP-320); `NO_EPOCH` when it is not known."""


def no_position(topic: str, partition: int) -> StoredPosition:
    """What stands for a position that is dropped."""
    return StoredPosition(topic, partition, 0, -1, -1, "")


Read = Callable[[int, int], bytes]
"""Reads so many bytes from a position on."""


class PositionChange(NamedTuple):
    """What one record says."""

    kind: str
    name: str
    entries: Sequence[StoredPosition]


def encode_change(change: PositionChange) -> bytes:
    """One record."""
    entries = [entry[: _length(entry)] for entry in change.entries]
    body: bytes = msgpack.packb([change.kind, change.name, entries])
    return _FRAME.pack(len(body), crc32(body)) + body


def _length(entry: StoredPosition) -> int:
    if entry.leader_epoch != NO_EPOCH:
        return 9
    return 6 if entry.retention_ms == KEPT else 8


class _Window:
    """Parts of a file, read a chunk at a time."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._at = 0
        self._data = b""

    def part(self, position: int, size: int) -> bytes:
        """`size` bytes at `position`; fewer where the file ends."""
        start = position - self._at
        if start < 0 or start + size > len(self._data):
            if size > _CHUNK_BYTES:
                return self._read(size, position)
            self._at, self._data, start = position, self._read(_CHUNK_BYTES, position), 0
        return self._data[start : start + size]

    def find(self, wanted: bytes, position: int, end: int) -> int:
        """Where the single byte `wanted` is next, -1 when it is not."""
        while position < end:
            part = self.part(position, min(_CHUNK_BYTES, end - position))
            found = part.find(wanted)
            if found >= 0:
                return position + found
            if not part:
                break
            position += len(part)
        return -1


def good_records(read: Read, size: int, start: int) -> Iterator[tuple[int, int, PositionChange]]:
    """`(position, end, change)` of every good record in a file of `size` bytes, from `start` on,
    skipping over bytes that are none.

    Holds a chunk of the file, or one record, in memory. Raises what `read` raises.
    """
    window = _Window(read)
    position = start
    while position + _FRAME.size < size:
        length, crc = _FRAME.unpack(window.part(position, _FRAME.size))
        end = position + _FRAME.size + length
        if end <= size:
            body = window.part(position + _FRAME.size, length)
            if body.startswith(_BODY_START) and crc32(body) == crc:
                change = _decode(body)
                if change is not None:
                    yield position, end, change
                    position = end
                    continue
        body_start = window.find(_BODY_START, position + _FRAME.size + 1, size)
        if body_start < 0:
            return
        position = body_start - _FRAME.size


_BODY: Final = msgspec.msgpack.Decoder(
    tuple[
        Literal["commit", "forget", "forget-some", "forget-topic"],
        Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)],
        Annotated[list[StoredPosition], msgspec.Meta(max_length=_MAX_ENTRIES)],
    ]
)


def _decode(body: bytes) -> PositionChange | None:
    """The change of a body whose CRC is right; `None` when it is not one of ours after all."""
    try:
        return PositionChange(*_BODY.decode(body))
    except (msgspec.DecodeError, ValueError):
        return None
