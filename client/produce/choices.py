"""What a producer is asked for by name: acknowledgements and compression."""

from typing import Final, Literal

from ...protocol.records.layout import Codec

Acks = Literal["all", -1, 0, 1]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

_ACKS: Final[dict[str | int, int]] = {"all": -1, -1: -1, 0: 0, 1: 1}
_CODECS: Final = {codec.label: codec for codec in Codec}

ALL: Final = _ACKS["all"]


def acks_of(acks: Acks) -> int:
    if acks not in _ACKS:
        raise ValueError(f"acks is 'all', 0 or 1, not {acks!r}")
    return _ACKS[acks]


def codec_of(compression: str) -> Codec:
    if compression not in _CODECS:
        raise ValueError(f"compression is one of {', '.join(_CODECS)}, not {compression!r}")
    return _CODECS[compression]
