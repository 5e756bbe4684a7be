"""Build a message set anew, where the one that was sent cannot be stored as it is."""

from dataclasses import dataclass

from ..protocol.records.conversion import upconvert
from ..protocol.records.layout import LOG_APPEND_TIME_BIT, Codec
from ..protocol.records.message import Entry, build_message
from ..protocol.records.sets import build_wrapper, set_append_time


@dataclass(frozen=True, slots=True)
class Message:
    """A checked message, out of its set."""

    data: bytes
    """From the CRC on, without the entry's header."""
    entry: Entry


def rebuild(
    messages: list[Message], codec: Codec, *, next_offset: int, stamp_ms: int | None
) -> bytearray:
    """A set of `messages` with offsets from `next_offset` on, all stamped `stamp_ms` if given.

    With a codec it is one wrapper of the highest format among the messages (v1 where times are
    to be stamped); without one, every message stays an entry of its own format, and v0 becomes
    v1 only to be stamped.
    """
    if codec is Codec.NONE:
        return _plain_set(messages, next_offset, stamp_ms)
    magic = max(message.entry.magic for message in messages)
    if stamp_ms is not None:
        magic = 1
    inner = bytearray()
    for number, message in enumerate(messages):
        data = upconvert(message.entry) if message.entry.magic < magic else message.data
        offset = number if magic == 1 else next_offset + number
        _put(inner, offset, data)
    largest_ms = max(message.entry.timestamp_ms for message in messages)
    return build_wrapper(
        inner,
        offset=next_offset + len(messages) - 1,
        timestamp_ms=largest_ms if stamp_ms is None else stamp_ms,
        magic=magic,
        codec=codec,
        append_time=stamp_ms is not None,
    )


def _plain_set(messages: list[Message], next_offset: int, stamp_ms: int | None) -> bytearray:
    stored = bytearray()
    for number, message in enumerate(messages):
        data = message.data
        if stamp_ms is not None and message.entry.magic == 0:
            data = upconvert(message.entry)
        elif message.entry.is_append_time:
            data = _unmarked(message.entry)
        position = len(stored)
        _put(stored, next_offset + number, data)
        if stamp_ms is not None:
            set_append_time(stored, position, len(data), stamp_ms)
    return stored


def _unmarked(entry: Entry) -> bytes:
    """The message with its own time as create time.

    Inside a wrapper nobody looks at bit 3; outside, it would pass for an append time.
    """
    attributes = entry.attributes & ~LOG_APPEND_TIME_BIT
    return build_message(
        entry.key, entry.value, timestamp_ms=entry.timestamp_ms, attributes=attributes
    )


def _put(target: bytearray, offset: int, data: bytes) -> None:
    """Append one entry."""
    target += offset.to_bytes(8, "big") + len(data).to_bytes(4, "big") + data
