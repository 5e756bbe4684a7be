"""The 32-bit xxHash, for the header checksum of LZ4 frames; seed 0."""

from struct import unpack_from
from typing import Final

_PRIME_1: Final = 0x9E3779B1
_PRIME_2: Final = 0x85EBCA77
_PRIME_3: Final = 0xC2B2AE3D
_PRIME_4: Final = 0x27D4EB2F
_PRIME_5: Final = 0x165667B1
_MASK: Final = 0xFFFFFFFF
_STRIPE_BYTES: Final = 16


def xxh32(data: bytes) -> int:
    """Hash of a few bytes: far too slow for content."""
    size = len(data)
    at = 0
    if size >= _STRIPE_BYTES:
        lanes = [_PRIME_1 + _PRIME_2, _PRIME_2, 0, -_PRIME_1]
        for at in range(0, size - _STRIPE_BYTES + 1, _STRIPE_BYTES):
            words = unpack_from("<4I", data, at)
            lanes = [
                _rotate(lane + word * _PRIME_2, 13) * _PRIME_1
                for lane, word in zip(lanes, words, strict=True)
            ]
        at += _STRIPE_BYTES
        total = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = _PRIME_5
    total += size
    while at + 4 <= size:
        (word,) = unpack_from("<I", data, at)
        total = _rotate(total + word * _PRIME_3, 17) * _PRIME_4
        at += 4
    for byte in data[at:]:
        total = _rotate(total + byte * _PRIME_5, 11) * _PRIME_1
    total &= _MASK
    total = (total ^ total >> 15) * _PRIME_2 & _MASK
    total = (total ^ total >> 13) * _PRIME_3 & _MASK
    return total ^ total >> 16


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK
