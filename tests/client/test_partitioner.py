"""The partition of a key: the same as with Kafka's Java client."""

import pytest

from horolog.protocol.partitioner import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_published_hashes(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32


def test_a_partition_is_in_range_and_all_are_used() -> None:
    partitions = [partition_of(str(n).encode(), 7) for n in range(1_000)]
    assert set(partitions) == set(range(7))


def test_a_negative_hash_counts_without_its_sign() -> None:
    assert partition_of(b"21", 10) == ((-973932308) & 0x7FFFFFFF) % 10
