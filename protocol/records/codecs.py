"""The value of a wrapper, compressed and decompressed."""

from . import gzip_stream, lz4_frame, xerial
from .layout import Buffer, Codec


def compress(codec: Codec, data: Buffer, *, magic: int) -> bytes:
    """`data` as the value of a wrapper of that magic. `ValueError` for `Codec.NONE`."""
    match codec:
        case Codec.GZIP:
            return gzip_stream.compress(data)
        case Codec.SNAPPY:
            return xerial.compress(data)
        case Codec.LZ4:
            return lz4_frame.compress(data, magic)
    raise ValueError(f"codec {codec.label} compresses nothing")


def decompress(codec: Codec, data: Buffer, *, magic: int, max_bytes: int) -> bytes:
    """The message set in the value of a wrapper of that magic.

    Raises `CorruptMessage` for whatever is broken, a truncated stream and bytes after its end
    included; `MessageTooLarge` as soon as the content would have more than `max_bytes`;
    `ValueError` for `Codec.NONE`.
    """
    match codec:
        case Codec.GZIP:
            return gzip_stream.decompress(data, max_bytes)
        case Codec.SNAPPY:
            return xerial.decompress(data, max_bytes)
        case Codec.LZ4:
            return lz4_frame.decompress(data, magic, max_bytes)
    raise ValueError(f"codec {codec.label} compresses nothing")
