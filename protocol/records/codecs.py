"""The value of a wrapper and the records of a batch, compressed and decompressed."""

from . import gzip_stream, lz4_frame, xerial, zstd_frames
from .layout import Buffer, Codec


def compress(codec: Codec, data: Buffer, *, magic: int) -> bytes:
    """`data` as the value of a wrapper of that magic, or as the records of a batch (2).

    `ValueError` for `Codec.NONE`, and for zstd in a wrapper, where no reader expects it.
    """
    match codec:
        case Codec.GZIP:
            return gzip_stream.compress(data)
        case Codec.SNAPPY:
            return xerial.compress(data)
        case Codec.LZ4:
            return lz4_frame.compress(data, magic)
        case Codec.ZSTD if magic == 2:
            return zstd_frames.compress(data)
    raise _unfit(codec, magic)


def decompress(codec: Codec, data: Buffer, *, magic: int, max_bytes: int) -> bytes:
    """The message set in the value of a wrapper of that magic, or the records of a batch (2).

    Raises `CorruptMessage` for whatever is broken, a truncated stream and bytes after its end
    included; `MessageTooLarge` as soon as the content would have more than `max_bytes`;
    `ValueError` as `compress`.
    """
    match codec:
        case Codec.GZIP:
            return gzip_stream.decompress(data, max_bytes)
        case Codec.SNAPPY:
            return xerial.decompress(data, max_bytes)
        case Codec.LZ4:
            return lz4_frame.decompress(data, magic, max_bytes)
        case Codec.ZSTD if magic == 2:
            return zstd_frames.decompress(data, max_bytes)
    raise _unfit(codec, magic)


def _unfit(codec: Codec, magic: int) -> ValueError:
    return ValueError(f"codec {codec.label} compresses nothing in format v{magic}")
