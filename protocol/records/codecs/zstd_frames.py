"""zstd (RFC 8878): one or more consecutive frames.

    fd2fb528 | descriptor uint8 | window uint8, if the descriptor says so | dictionary id, 0 to 4
    bytes | content size, 0 to 8 bytes | blocks | checksum uint32, if the descriptor says so

Integers are little-endian. Descriptor: bits 6-7 the width of the content size (0, 2, 4, 8 bytes; 0
means 1 with bit 5), bit 5 a frame without window, bits 0-1 the width of the dictionary id. Writers
that do not know the size beforehand leave it out; the size of the content buffer is then found by
trying.
"""

from typing import Final

from cramjam import DecompressionError, zstd

from ...errors import CorruptMessage
from ..layout import Buffer
from ..problems import decompressed_too_large

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_WINDOWLESS: Final = 0x20
_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_SIZE_BYTES: Final = (0, 2, 4, 8)
_SIZE_ADDED: Final = {2: 256}
"""By width of the content size field, what is added to its value."""

_LEVEL: Final = 3
"""The default of zstd and of Kafka's clients."""

_NO_ROOM: Final = "write whole buffer"
"""Part of the library's error text when the content is larger than the buffer."""

_FIRST_RATIO: Final = 8
_LEAST_ROOM_BYTES: Final = 4096


def compress(data: Buffer) -> bytes:
    """Return one frame with the content `data`."""
    return bytes(zstd.compress(data, _LEVEL))


def decompress(data: Buffer, max_bytes: int) -> bytes:
    """Return the content of all frames of `data`; nothing may follow the last one.

    Raises `CorruptMessage`, and `MessageTooLarge` for more than `max_bytes` of content. Never
    allocates more than `max_bytes` for the content.
    """
    view = memoryview(data)
    room_bytes = content_bytes(view)
    if room_bytes is None:
        room_bytes = max(_FIRST_RATIO * len(view), _LEAST_ROOM_BYTES)
    elif room_bytes > max_bytes:
        raise decompressed_too_large(max_bytes)
    while True:
        room = bytearray(min(room_bytes, max_bytes))
        try:
            produced = zstd.decompress_into(view, room)
        except DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise CorruptMessage(f"zstd: {error}") from error
            if room_bytes >= max_bytes:
                raise decompressed_too_large(max_bytes) from None
            room_bytes = max(2 * room_bytes, _LEAST_ROOM_BYTES)
        else:
            return bytes(memoryview(room)[:produced])


def content_bytes(data: memoryview) -> int | None:
    """Return the content size in the header of the first frame; `None` if it has none."""
    if len(data) <= len(_MAGIC) or bytes(data[: len(_MAGIC)]) != _MAGIC:
        return None
    at = len(_MAGIC)
    descriptor = data[at]
    width = _SIZE_BYTES[descriptor >> 6]
    if descriptor & _WINDOWLESS:
        width = width or 1
        at += 1
    else:
        at += 2
    at += _DICTIONARY_BYTES[descriptor & 0x03]
    if not width or len(data) < at + width:
        return None
    return int.from_bytes(data[at : at + width], "little") + _SIZE_ADDED.get(width, 0)
