"""How much memory positions may take, and what they take."""

import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from horolog.protocol.errors import InvalidCommitOffsetSize
from horolog.storage.directory.position_records import (
    BROKERS,
    COMMIT,
    HEADER,
    PositionChange,
    encode_change,
)
from horolog.storage.directory.position_table import NAME_BYTES, POSITION_BYTES, PositionTable
from horolog.storage.directory.positions import Positions, StoredPosition
from horolog.storage.events import ignore_events
from horolog.storage.files import SystemFiles
from horolog.testing.files import QuickFiles
from horolog.testing.logs import RecordedEvents

MIB = 1 << 20


def position(
    offset: int = 1, topic: str = "a", partition: int = 0, metadata: str = "", **more: int
) -> StoredPosition:
    return StoredPosition(
        topic, partition, offset, 1_000 + offset, 2_000 + offset, metadata, **more
    )


def bytes_of(name: str, *texts: str) -> int:
    return NAME_BYTES + len(name) + sum(POSITION_BYTES + len(text.encode()) for text in texts)


def test_the_memory_of_positions_is_bounded(tmp_path: Path, files: SystemFiles) -> None:
    limit = bytes_of("job", "é" * 100, "x" * 200)
    positions = Positions(files, tmp_path, ignore_events, max_bytes=limit)
    positions.commit("job", [position(metadata="é" * 100)])
    with pytest.raises(InvalidCommitOffsetSize) as refused:
        positions.commit(
            "job",
            [position(2, metadata="é" * 100), position(1, partition=1, metadata="x" * 201)],
        )
    assert f"max.positions.bytes={limit}" in refused.value.message
    assert f"take {bytes_of('job', 'é' * 100)} bytes" in refused.value.message
    assert positions.of("job") == [position(metadata="é" * 100)], "all or none"

    positions.commit("job", [position(1, partition=1, metadata="x" * 200)])
    assert positions.size_bytes == limit
    with pytest.raises(InvalidCommitOffsetSize):
        positions.commit("other", [position()])
    with pytest.raises(InvalidCommitOffsetSize):
        positions.commit("job", [position(3, metadata="é" * 101)])
    positions.commit("job", [position(9, metadata="é" * 100), position(9, partition=1)])
    assert positions.size_bytes == limit - 200
    positions.commit("job", [position(9, partition=1), position(9, partition=1, metadata="y" * 9)])
    assert positions.size_bytes == limit - 191, "of one position given twice the last counts"


def test_what_is_deleted_makes_room(tmp_path: Path, files: SystemFiles) -> None:
    limit = bytes_of("one", "x" * 500, "x" * 500)
    positions = Positions(files, tmp_path, ignore_events, max_bytes=limit)
    large = [position(metadata="x" * 500), position(metadata="x" * 500, topic="b")]
    empty = bytes_of("one")
    for _ in range(2):
        positions.commit("one", large)
        with pytest.raises(InvalidCommitOffsetSize):
            positions.commit("one", [position(topic="c")])
        positions.forget_topic("a")
        assert positions.size_bytes == bytes_of("one", "x" * 500)
        positions.commit("one", [position(topic="c")])
        positions.forget("one")
        assert positions.size_bytes == 0
    expiring = position(metadata="x" * (limit - empty - POSITION_BYTES), retention_ms=BROKERS)
    positions.commit("one", [expiring])
    positions.used("one", 5_000)
    assert positions.size_bytes == limit
    assert positions.expire("one", 100, 10_000) == 1
    assert positions.size_bytes == 0


def test_a_store_above_its_bound_is_read_and_grows_no_more(
    tmp_path: Path, files: SystemFiles
) -> None:
    before = Positions(files, tmp_path, ignore_events)
    for name in ("one", "two"):
        before.commit(name, [position(metadata="x" * 1000, partition=p) for p in range(10)])
    size_bytes = before.size_bytes
    before.close()
    limit = size_bytes // 2 + 500
    positions = Positions(files, tmp_path, ignore_events, max_bytes=limit)
    assert positions.size_bytes == size_bytes
    assert len(positions.of("one")) == len(positions.of("two")) == 10
    with pytest.raises(InvalidCommitOffsetSize, match=f"max.positions.bytes={limit}"):
        positions.commit("one", [position(partition=10)])
    positions.commit("one", [position(7, metadata="y" * 1000, partition=3)])
    positions.commit("one", [position(7, metadata="y" * 900, partition=4)])
    positions.forget("two")
    positions.commit("one", [position(partition=10)])
    positions.close()
    assert Positions(files, tmp_path, ignore_events).size_bytes <= limit


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


def test_opening_a_store_and_compacting_it_take_little_more_than_it_holds(tmp_path: Path) -> None:
    files = QuickFiles()
    with (tmp_path / "positions").open("wb") as file:
        file.write(HEADER)
        for round_ in range(3):  # so much of it is overwritten that the start compacts it
            for name in range(40):
                batch = [position(round_, partition=p, metadata="x" * 4_000) for p in range(50)]
                file.write(encode_change(PositionChange(COMMIT, f"name-{name}", batch)))
    events = RecordedEvents()
    tracemalloc.start()
    try:
        positions = Positions(files, tmp_path, events)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert events.named("positions_compacted")
    assert len(positions) == 2_000
    assert peak < positions.size_bytes + 5 * MIB


def whole_file(path: Path, sizes: Sequence[int]) -> list[int]:
    """Write one commit of so much text each; returns where they end."""
    ends = []
    with path.open("wb") as file:
        file.write(HEADER)
        for number, size in enumerate(sizes):
            batch = [position(number, partition=number, metadata="x" * size)]
            file.write(encode_change(PositionChange(COMMIT, "job", batch)))
            ends.append(file.tell())
    return ends


@pytest.mark.parametrize("hit", range(6))
def test_damage_in_a_large_file_costs_one_commit(hit: int, tmp_path: Path) -> None:
    """Records that end within, at and beyond what is read at a time."""
    files = QuickFiles()
    path = tmp_path / "positions"
    sizes = [300_000, MIB - 300_200, 3 * MIB, 10, 2 * MIB, 700_000]
    ends = whole_file(path, sizes)
    for at in (ends[hit] - 1, ends[hit] - sizes[hit]):
        content = bytearray(path.read_bytes())
        content[at] ^= 1
        path.write_bytes(content)
        events = RecordedEvents()
        store = Positions(files, tmp_path, events)
        assert [p.partition for p in store.of("job")] == [n for n in range(6) if n != hit]
        assert len(events.named("positions_cut" if hit == 5 else "positions_damaged")) == 1
        store.close()
        ends = whole_file(path, sizes)
