"""Windows read from closed segments, and how these are packed for tasks."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog import blocking
from horolog.pipeline.segments import SegmentSpan, pack
from horolog.testing.broker import BrokerThread

from .sources import T0_MS, parts, read, rows, source

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SETTINGS = {"segment.bytes": 1_300_000, "retention.ms": -1, "segment.ms": 2**40}
SETS, SET_MESSAGES, PARTITIONS = 200, 50, 3
MESSAGES = SETS * SET_MESSAGES


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[list[int]]]:
    """Folders of partitions of a day out of order, with a few messages far off; and their times."""
    random = Random(7)
    data = tmp_path_factory.mktemp("logs") / "data"
    all_times: list[list[int]] = []
    with BrokerThread(data, SETTINGS) as broker, blocking.Producer(broker.address) as producer:
        with blocking.Admin(broker.address) as admin:
            admin.create_topic("t", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            times = [
                T0_MS + DAY_MS * number // MESSAGES + random.randrange(-600_000, 600_000)
                for number in range(MESSAGES)
            ]
            for number in random.sample(range(MESSAGES), 40):
                times[number] += random.randrange(-300, 3) * DAY_MS
            for first in range(0, MESSAGES, SET_MESSAGES):
                some = times[first : first + SET_MESSAGES]
                values = [bytes(400)] * SET_MESSAGES
                producer.send_batch("t", values, timestamps_ms=some, partition=partition)
            all_times.append(times)
        # Of times that are far apart a map is made when somebody asks for a window.
        read(source(broker.address, subscribe="t", endingTimestamp=T0_MS))
    return [data / f"t-{partition}" for partition in range(PARTITIONS)], all_times


def closed(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))[:-1]


def expected(
    folders: Sequence[Path], times: Sequence[Sequence[int]], start_ms: int, end_ms: int
) -> list[tuple[int, int]]:
    return [
        (partition, offset)
        for partition, folder in enumerate(folders)
        for offset in range(int(max(folder.glob("*.log")).stem))
        if start_ms <= times[partition][offset] < end_ms
    ]


def found_in(folders: Sequence[Path], **options: object) -> list[tuple[int, int]]:
    made = source(None, segments_path=",".join(map(str, folders)), **options)
    return [(row["partition"], row["offset"]) for row in read(made)]


def bytes_of(folders: Sequence[Path], **options: object) -> list[int]:
    """What each task reads."""
    made = source(None, segments_path=",".join(map(str, folders)), **options)
    planned = made.reader(made.schema()).partitions()
    return [sum(part.end - part.start for part in parts([task])) for task in planned]


@pytest.mark.parametrize("tasks", [1, 7])
def test_windows_are_exact(logs: tuple[list[Path], list[list[int]]], tasks: int) -> None:
    folders, times = logs
    random = Random(tasks)
    windows = [(T0_MS - 300 * DAY_MS, T0_MS - DAY_MS), (T0_MS + 2 * DAY_MS, T0_MS + 9 * DAY_MS)]
    for _ in range(8):
        start_ms = T0_MS + random.randrange(DAY_MS)
        windows.append((start_ms, start_ms + random.randrange(3 * HOUR_MS)))
    for start_ms, end_ms in windows:
        bounds = {"startingTimestamp": start_ms, "endingTimestamp": end_ms, "minPartitions": tasks}
        assert found_in(folders, **bounds) == expected(folders, times, start_ms, end_ms)


def test_a_time_map_passes_over_what_is_outside(
    logs: tuple[list[Path], list[list[int]]],
) -> None:
    folders, _ = logs
    whole = sum(log.stat().st_size for folder in folders for log in closed(folder))
    hour = {"startingTimestamp": T0_MS + HOUR_MS, "endingTimestamp": T0_MS + 2 * HOUR_MS}
    assert sum(bytes_of(folders)) == whole
    # An hour of a day, twenty minutes around it, a block at either end, and blocks far off.
    assert 0 < sum(bytes_of(folders, **hour)) < whole / 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x7f"),
        lambda path: path.write_bytes(path.read_bytes()[:-4]),
    ],
    ids=["gone", "changed", "short"],
)
def test_a_time_map_that_may_be_wrong_is_not_believed(
    logs: tuple[list[Path], list[list[int]]], spoil: Callable[[Path], None]
) -> None:
    folders, times = logs
    maps = sorted(folders[0].glob("*.timemap"))
    assert maps
    kept = {path: path.read_bytes() for path in maps}
    start_ms, end_ms = T0_MS + 5 * HOUR_MS, T0_MS + 6 * HOUR_MS
    bounds = {"startingTimestamp": start_ms, "endingTimestamp": end_ms}
    try:
        for path in maps:
            spoil(path)
        assert found_in(folders[:1], **bounds) == expected(folders[:1], times, start_ms, end_ms)
    finally:
        for path, data in kept.items():
            path.write_bytes(data)


def test_small_segments_are_packed_into_few_tasks(
    logs: tuple[list[Path], list[list[int]]],
) -> None:
    folders, _ = logs
    segments = sum(len(closed(folder)) for folder in folders)
    assert segments >= 3 * PARTITIONS
    assert len(bytes_of(folders)) == PARTITIONS
    for wanted in (PARTITIONS + 1, 2 * segments):
        sizes = bytes_of(folders, minPartitions=wanted)
        assert len(sizes) == wanted
        # A set has 22 KB here.
        assert max(sizes) - min(sizes) < 80_000
        assert found_in(folders, minPartitions=wanted) == [
            (partition, offset)
            for partition, folder in enumerate(folders)
            for offset in range(int(max(folder.glob("*.log")).stem))
        ]


def test_tasks_of_one_large_folder_are_cut_smaller(
    logs: tuple[list[Path], list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, _ = logs
    monkeypatch.setattr("horolog.pipeline.segments.TASK_BYTES", 500_000)
    assert max(bytes_of(folders[:1])) < 560_000


def test_rows_of_a_task_are_those_of_its_parts(
    logs: tuple[list[Path], list[list[int]]],
) -> None:
    folders, _ = logs
    made = source(None, segments_path=folders[0], minPartitions=4)
    reader = made.reader(made.schema())
    first, *_ = reader.partitions()
    offsets = [row["offset"] for row in rows(reader, [first], made.schema(), made)]
    assert offsets == list(range(len(offsets)))
    assert 0 < len(offsets) < MESSAGES


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 3000)), max_size=8),
    st.integers(1, 12),
    st.lists(st.integers(0, 4000), max_size=60),
)
def test_packing_reads_everything_once(
    stretches: list[tuple[int, int]], tasks: int, cuts: list[int]
) -> None:
    places = sorted(set(cuts))
    given_parts = [
        SegmentSpan(("t", number), f"{number}", start, start + size, 0, lambda: places)
        for number, (start, size) in enumerate(stretches)
    ]
    packed = pack(given_parts, tasks)
    assert len(packed) <= tasks
    assert all(packed)
    for whole in given_parts:
        own = [part for task in packed for part in task if part.path == whole.path]
        assert (own[0].start, own[-1].end) == (whole.start, whole.end)
        assert all(one.end == other.start for one, other in pairwise(own))
        assert all(part.size > 0 for part in own)
        assert {part.start for part in own[1:]} <= set(places)
    # In the order that was given.
    order = [(int(part.path), part.start) for task in packed for part in task]
    assert order == sorted(order)


@pytest.mark.parametrize("tasks", [1, 2, 5, 16])
def test_tasks_are_about_equal_where_parts_can_be_cut(tasks: int) -> None:
    places = range(0, 10_001, 10)
    given_parts = [
        SegmentSpan(("t", 0), f"{number}", 0, 10_000, 0, lambda: places) for number in range(3)
    ]
    sizes = [sum(part.size for part in task) for task in pack(given_parts, tasks)]
    assert len(sizes) == tasks
    assert max(sizes) - min(sizes) <= 20
