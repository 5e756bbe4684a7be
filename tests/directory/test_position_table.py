"""What positions take in memory."""

import tracemalloc

import pytest

from horolog.storage.directory.position_records import COMMIT, PositionChange, StoredPosition
from horolog.storage.directory.position_table import PositionTable


def position(offset: int, topic: str, partition: int, metadata: str) -> StoredPosition:
    return StoredPosition(topic, partition, offset, 1_000 + offset, 2_000 + offset, metadata)


@pytest.mark.parametrize(
    ("names", "per_name", "text_bytes"),
    [(5_000, 1, 0), (5_000, 1, 100), (2_500, 2, 0), (1_000, 6, 10), (20, 700, 0), (5, 100, 4_000)],
)
def test_what_is_counted_covers_the_memory(names: int, per_name: int, text_bytes: int) -> None:
    tracemalloc.start()
    try:
        table = PositionTable()
        for name in range(names):
            # Each string and number anew, as from a decoder.
            entries = [
                position(name * 1_000_000 + number, "".join("topic"), number, "x" * text_bytes)
                for number in range(per_name)
            ]
            table.apply(PositionChange(COMMIT, f"name-{name}", entries))
        del entries
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert table.size_bytes / 2 < taken < table.size_bytes
