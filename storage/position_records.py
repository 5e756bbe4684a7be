"""Bytes of the positions file: a header line, then one record for each commit.

0   body length, uint32 big-endian
4   CRC-32 of the body, uint32 big-endian
8   body, msgpack: [kind, name, entries]
    kind "commit":       entries [topic, partition, offset, timestamp, commit time, metadata],
                         which go on with [retention, used] where it is not kept for ever
    kind "forget":       no entries; drops all positions of the name
    kind "forget-topic": no entries; `name` is a topic, dropped from under every name
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgpack

from ..values import value_class

HEADER: Final = b"horolog positions 1\n"
COMMIT: Final = "commit"
FORGET: Final = "forget"
FORGET_TOPIC: Final = "forget-topic"

_FRAME = Struct(">II")
KEPT: Final = -1
"""Retention of a position that never expires."""

BROKERS: Final = 0
"""Retention of a position that lives as long as the broker's settings say."""

_BODY_START = b"\x93"  # msgpack's array of three, how every body begins


@value_class
class Position:
    """Where one consumer goes on in one partition."""

    topic: str
    partition: int
    offset: int
    """The next offset to read."""
    timestamp_ms: int
    """Time of the last message read, -1 when it is not known."""
    commit_time_ms: int
    metadata: str
    """The consumer's own text; its length is checked by the caller."""
    retention_ms: int = KEPT
    """How long it is to live once nobody uses its name: in ms, `KEPT`, or `BROKERS`."""
    used_ms: int = -1
    """When its name was last seen in use after this commit; -1 when it was not."""


class Change(NamedTuple):
    """What one record says."""

    kind: str
    name: str
    entries: Sequence[Position]


def encode_change(change: Change) -> bytes:
    """One record."""
    entries = [astuple(entry)[: 6 if entry.retention_ms == KEPT else 8] for entry in change.entries]
    body: bytes = msgpack.packb([change.kind, change.name, entries])
    return _FRAME.pack(len(body), crc32(body)) + body


def good_records(content: bytes, start: int) -> Iterator[tuple[int, int, Change]]:
    """`(position, end, change)` of every good record, skipping over bytes that are none."""
    position = start
    while position + _FRAME.size < len(content):
        length, crc = _FRAME.unpack_from(content, position)
        end = position + _FRAME.size + length
        if end <= len(content):
            body = content[position + _FRAME.size : end]
            if body.startswith(_BODY_START) and crc32(body) == crc:
                change = _decode(body)
                if change is not None:
                    yield position, end, change
                    position = end
                    continue
        body_start = content.find(_BODY_START, position + _FRAME.size + 1)
        if body_start < 0:
            return
        position = body_start - _FRAME.size


def _decode(body: bytes) -> Change | None:
    """The change of a body whose CRC is right; `None` when it is not one of ours after all."""
    try:
        kind, name, entries = msgpack.unpackb(body)
        positions = [_position(*entry) for entry in entries]
    except (ValueError, TypeError, msgpack.UnpackException):
        return None
    if kind not in {COMMIT, FORGET, FORGET_TOPIC} or not isinstance(name, str):
        return None
    return Change(kind, name, positions)


def _position(
    topic: Any,
    partition: Any,
    offset: Any,
    timestamp_ms: Any,
    commit_time_ms: Any,
    metadata: Any,
    retention_ms: Any = KEPT,
    used_ms: Any = -1,
) -> Position:
    texts = isinstance(topic, str) and isinstance(metadata, str)
    numbers = (partition, offset, timestamp_ms, commit_time_ms, retention_ms, used_ms)
    if not texts or not all(type(number) is int for number in numbers):
        raise TypeError("not a position")
    return Position(
        topic, partition, offset, timestamp_ms, commit_time_ms, metadata, retention_ms, used_ms
    )
