"""A reader of every format that takes one obvious step at a time and shares no code with Horolog.

It raises (`AssertionError`, `struct.error`, whatever a codec raises) for anything out of order.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from struct import unpack
from zlib import crc32

import cramjam
import lz4.frame
from xxhash import xxh32_intdigest

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_XERIAL = b"\x82SNAPPY\x00"


@dataclass(frozen=True)
class Seen:
    """One message, and how its entry is made."""

    offset: int
    timestamp_ms: int
    append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    magic: int
    codec: str


def slow_read(data: bytes) -> list[Seen]:
    """The messages of a set that is whole."""
    return [seen for entry in _entries(data) for seen in _entry(*entry)]


def _entries(data: bytes) -> Iterator[tuple[int, bytes]]:
    stream = BytesIO(data)
    while head := stream.read(12):
        offset, size = unpack(">qi", head)
        body = stream.read(size)
        assert len(body) == size, "the set ends inside of an entry"
        yield offset, body


def _entry(offset: int, body: bytes) -> Iterator[Seen]:
    if body[4] == 2:
        yield from _batch(offset, body)
        return
    message = _message(offset, body)
    if message.codec == "none":
        yield message
        return
    assert message.value is not None
    inner = [
        _message(*entry) for entry in _entries(_unpacked(message.codec, message.value, body[4]))
    ]
    assert {(one.magic, one.codec) for one in inner} == {(message.magic, "none")}
    shift = message.offset - inner[-1].offset
    assert message.magic or not shift
    if not message.append_time:
        assert message.timestamp_ms == max(one.timestamp_ms for one in inner)
    for one in inner:
        timestamp_ms = message.timestamp_ms if message.append_time else one.timestamp_ms
        yield Seen(
            one.offset + shift,
            timestamp_ms,
            message.append_time,
            one.key,
            one.value,
            (),
            message.magic,
            message.codec,
        )


def _message(offset: int, body: bytes) -> Seen:
    crc, magic, attributes = unpack(">IBB", body[:6])
    assert crc == crc32(body[4:])
    assert magic in (0, 1)
    stream = BytesIO(body[6:])
    timestamp_ms = unpack(">q", stream.read(8))[0] if magic else -1
    key, value = _content(stream), _content(stream)
    assert not stream.read()
    assert attributes & ~15 == 0
    append_time = bool(attributes & 8)
    return Seen(offset, timestamp_ms, append_time, key, value, (), magic, CODECS[attributes & 7])


def _content(stream: BytesIO) -> bytes | None:
    (length,) = unpack(">i", stream.read(4))
    return stream.read(length) if length >= 0 else None


def _batch(offset: int, body: bytes) -> Iterator[Seen]:
    assert unpack(">I", body[5:9])[0] == _crc32c(body[9:])
    attributes, last_delta, base_ms, max_ms, producer_id, epoch, sequence, count = unpack(
        ">hiqqqhii", body[9:49]
    )
    assert attributes & ~15 == 0
    assert (producer_id, epoch, sequence) == (-1, -1, -1)
    codec, append_time = CODECS[attributes & 7], bool(attributes & 8)
    stream = BytesIO(_unpacked(codec, body[49:], 2))
    times = []
    for number in range(count):
        record = BytesIO(stream.read(_varint(stream)))
        assert record.read(1) == b"\0"
        times.append(base_ms + _varint(record))
        assert _varint(record) == number
        key, value = _field(record), _field(record)
        headers = []
        for _ in range(_varint(record)):
            name = _field(record)
            assert name is not None
            headers.append((name.decode(), _field(record)))
        assert not record.read()
        timestamp_ms = max_ms if append_time else times[-1]
        yield Seen(offset + number, timestamp_ms, append_time, key, value, tuple(headers), 2, codec)
    assert not stream.read()
    assert last_delta == count - 1
    assert append_time or max_ms == max(times)


def _varint(stream: BytesIO) -> int:
    number = shift = 0
    while True:
        (byte,) = stream.read(1)
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number >> 1 if number % 2 == 0 else -(number >> 1) - 1


def _field(stream: BytesIO) -> bytes | None:
    length = _varint(stream)
    return stream.read(length) if length >= 0 else None


def _unpacked(codec: str, data: bytes, magic: int) -> bytes:
    match codec:
        case "gzip":
            return gzip.decompress(data)
        case "zstd":
            return bytes(cramjam.zstd.decompress(data))
        case "snappy":
            return b"".join(_snappy_blocks(data))
        case "lz4":
            # Before v1 the header's checksum covers the four bytes in front of it too.
            assert data[6] == (xxh32_intdigest(data[:6] if magic == 0 else data[4:6]) >> 8) & 255
            right = (xxh32_intdigest(data[4:6]) >> 8) & 255
            return bytes(lz4.frame.decompress(data[:6] + bytes((right,)) + data[7:]))
    return data


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    stream = BytesIO(data)
    assert stream.read(8) == _XERIAL
    stream.read(8)
    while length := stream.read(4):
        yield bytes(cramjam.snappy.decompress_raw(stream.read(*unpack(">i", length))))


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
