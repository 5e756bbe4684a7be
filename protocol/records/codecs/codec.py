"""Compresses and decompresses the value of a wrapper and the records of a batch.

Modules that load a library are imported when their codec is first used, so that a broker starts
without them.
"""

from typing import Final, NamedTuple

from ..layout import BATCH_MAGIC, Buffer, Codec
from . import gzip_stream

LOADED_LATE: Final = tuple(
    f"{__package__}.{name}" for name in ("lz4_frame", "xerial", "zstd_frames")
)
"""Modules that can be imported in advance, so that the first use of a codec does not wait for
them."""


def compress(codec: Codec, data: Buffer, *, magic: int) -> bytes:
    """Return `data` compressed for the value of a wrapper (magic 0 or 1) or for the records of a
    batch (2).

    Raises `ValueError` for `Codec.NONE`, and for zstd in a wrapper, where no client expects it.
    """
    match codec:
        case Codec.GZIP:
            return gzip_stream.compress(data)
        case Codec.SNAPPY:
            from . import xerial

            return xerial.compress(data)
        case Codec.LZ4:
            from . import lz4_frame

            return lz4_frame.compress(data, magic)
        case Codec.ZSTD if magic == BATCH_MAGIC:
            from . import zstd_frames

            return zstd_frames.compress(data)
    raise _unfit(codec, magic)


def decompress(codec: Codec, data: Buffer, *, magic: int, max_bytes: int) -> bytes:
    """Return the decompressed value of a wrapper (magic 0 or 1) or records of a batch (2).

    Raises `CorruptMessage` for any damage, including a truncated stream and bytes after its end;
    `MessageTooLarge` as soon as the content exceeds `max_bytes`; `ValueError` as `compress`.
    """
    match codec:
        case Codec.GZIP:
            return gzip_stream.decompress(data, max_bytes)
        case Codec.SNAPPY:
            from . import xerial

            return xerial.decompress(data, max_bytes)
        case Codec.LZ4:
            from . import lz4_frame

            return lz4_frame.decompress(data, magic, max_bytes)
        case Codec.ZSTD if magic == BATCH_MAGIC:
            from . import zstd_frames

            return zstd_frames.decompress(data, max_bytes)
    raise _unfit(codec, magic)


class Opened(NamedTuple):
    """Decompressed content from a producer."""

    content: bytes
    for_all_readers: bool
    """Whether all Kafka clients can read the data as sent. If not, it must be compressed again:
    librdkafka aborts at a second gzip member; aiokafka and the Java client refuse snappy framing of
    version 0. All of them read several zstd frames. Several lz4 frames are refused here."""


def open_sent(codec: Codec, data: Buffer, *, magic: int, max_bytes: int) -> Opened:
    """Like `decompress`, for data from a producer: every checksum in it is verified."""
    match codec:
        case Codec.GZIP:
            content, members = gzip_stream.open_members(data, max_bytes)
            return Opened(content, members == 1)
        case Codec.SNAPPY:
            from . import xerial

            return Opened(xerial.decompress(data, max_bytes), xerial.is_usual(data))
        case Codec.LZ4:
            from . import lz4_frame

            content = lz4_frame.decompress(data, magic, max_bytes, verify_checksums=True)
            return Opened(content, True)
    return Opened(decompress(codec, data, magic=magic, max_bytes=max_bytes), True)


def _unfit(codec: Codec, magic: int) -> ValueError:
    return ValueError(f"codec {codec.label} compresses nothing in format v{magic}")
