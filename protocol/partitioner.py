"""Selects the partition of a message with a key.

The hash is MurmurHash2 with the seed of Kafka's Java client, so that a key gets the same partition
whichever client sends it.
"""

from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit hash of `data`."""
    size = len(data)
    state = _SEED ^ size
    whole = size - size % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        state = (state * _MULTIPLIER & _MASK) ^ word
    if whole < size:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    state = (state ^ state >> 13) * _MULTIPLIER & _MASK
    return state ^ state >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of `key` in a topic with this many partitions."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions
