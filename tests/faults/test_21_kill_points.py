"""Fault 21: a kill between any two operations on the disk, in recovery too.

The lives are those of the power cut tests. A kill loses nothing that was written, so more is
promised than after a power cut: whatever was appended is there, synced or not.
"""

import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from horolog.testing.crashing import KILLED, Change, CrashingFiles, KillPoint, in_child
from horolog.testing.directories import DataDirectory
from horolog.testing.files import QuickFiles
from horolog.tests.faults.disks.life import DATA, START_MS, Life
from horolog.tests.faults.disks.promises import Partition, Promise
from horolog.tests.faults.disks.survival import check_survivor
from horolog.tests.faults.disks.workloads import WORKLOADS

Workload = Callable[[Life], None]
Tell = Callable[[str], None]

each_workload = pytest.mark.parametrize(
    "workload", WORKLOADS, ids=lambda workload: workload.__name__
)

PLACES_TRIED = 0.1
"""How many of the places in the code a workload is killed at, beside those with a name."""

TIMES_KILLED_IN_RECOVERY = 1
"""For each workload; the soak kills at every operation of the recovery of every state."""

NAMED_POINTS = {
    "rolls": {
        "after the log is written, before the index": "index_file.IndexFile.write_from",
        "in the middle of a roll": "segment.Segment.create",
        "between a temporary file and its rename": "files.replace_file",
    },
    "retention": {
        "in the middle of a deletion by retention": "segment.Segment.set_aside",
        "while what was deleted is removed": "deletion.remove",
    },
    "topics": {
        "while a topic is made": "topic_changes.TopicChanges._make_folders",
        "while a topic is deleted": "startup.rename_deleted",
    },
    "stops": {
        "while the marker of a clean stop is written": "clean_shutdown.leave_marker",
        "while it is taken away": "clean_shutdown.take_marker",
    },
    "truncation": {"while a log is cut": "segment.Segment.truncate"},
    "positions": {"while a position is committed": "current_state.append_record"},
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory where there is such a place."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


class KilledLife(Life):
    """A life in which everything that was written counts as safe."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._cuts: dict[Partition, int] = {}
        """From which offset on messages are being removed."""

    def promise(self) -> Promise:
        promise = deepcopy(self.promises.now)
        for key, log in promise.logs.items():
            log.safe = {
                offset: message
                for offset, message in self.written.get(key, {}).items()
                if log.doomed_below <= offset < self._cuts.get(key, offset + 1)
            }
            log.end_offset = max([log.end_offset, *(offset + 1 for offset in log.safe)])
        return promise

    def truncate(self, topic: str, offset: int, partition: int = 0) -> None:
        self._cuts[topic, partition] = self.first_cut(topic, offset, partition)
        super().truncate(topic, offset, partition)
        del self._cuts[topic, partition]


def live(workload: Workload, folder: Path, point: KillPoint | None = None) -> CrashingFiles:
    """A life up to `point`; what was promised by then is left in a file."""
    life = KilledLife(folder)

    def last_will() -> None:
        (folder / "will").write_bytes(pickle.dumps(life.promise()))

    life.data.files = files = CrashingFiles(life.recording, point, last_will)
    workload(life)
    return files


def kill(workload: Workload, folder: Path, point: KillPoint) -> Promise:
    """Let a child live up to `point`; what it had promised."""
    shutil.rmtree(folder, ignore_errors=True)
    assert in_child(lambda: live(workload, folder, point)) == KILLED
    promise: Promise = pickle.loads((folder / "will").read_bytes())
    return promise


def recover(folder: Path, point: KillPoint | None = None) -> CrashingFiles:
    """Start on what a kill left, up to `point`."""
    data = DataDirectory(folder / DATA)
    data.clock.step(START_MS - data.clock.now_ms())
    data.files = files = CrashingFiles(QuickFiles(), point)
    directory = data.open()
    for key in directory.partitions():
        directory.log(*key).prepare()
    return files


def points_in_recovery(folder: Path) -> dict[KillPoint, Change]:
    """Where the recovery of what is in `folder` can be killed."""
    copy = folder.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return recover(copy).points()


def some_places(
    random: Random, points: dict[KillPoint, Change], named: Iterable[str]
) -> list[KillPoint]:
    """A point for each place in the code from which files are changed, whole and half: of some
    places, and of all that have a name. The soak kills at every point."""
    by_place: dict[tuple[bool, Change], KillPoint] = {}
    for point in random.sample(list(points), len(points)):
        by_place[point.half, points[point]] = point
    functions = set(named)
    must = {place for place in by_place if functions & set(place[1].callers)}
    others = [place for place in by_place if place not in must]
    chosen = [*must, *random.sample(others, round(PLACES_TRIED * len(others)))]
    return sorted((by_place[place] for place in chosen), key=lambda point: point.number)


@contextmanager
def explained(*kills: object) -> Iterator[None]:
    """Say of what is raised where the kills were."""
    try:
        yield
    except BaseException as error:
        for killed in kills:
            error.add_note(f"killed at {killed}")
        raise


def kill_once(
    workload: Workload, folder: Path, points: dict[KillPoint, Change], chosen: Iterable[KillPoint]
) -> None:
    """Kill at each of the chosen points; what is left has to be what was promised."""
    for point in chosen:
        with explained(point, points[point]):
            promise = kill(workload, folder / "killed", point)
            check_survivor(folder / "killed", promise)


def kill_twice(workload: Workload, folder: Path, first: KillPoint, second: KillPoint) -> None:
    """Kill a life, and the recovery from that; the next one recovers."""
    with explained(first, second):
        promise = kill(workload, folder / "killed", first)
        assert in_child(lambda: recover(folder / "killed", second)) == KILLED
        check_survivor(folder / "killed", promise)


@pytest.fixture
def random(request: pytest.FixtureRequest) -> Random:
    """Random numbers that `--hypothesis-seed` brings back."""
    return Random(f"{request.config.getoption('--hypothesis-seed')} {request.node.name}")


@each_workload
def test_21_a_kill_at_some_places(
    workload: Workload, folder: Path, random: Random, tell: Tell
) -> None:
    points = live(workload, folder / "whole").points()
    named = NAMED_POINTS.get(workload.__name__, {})
    chosen = some_places(random, points, named.values())
    kill_once(workload, folder, points, chosen)
    tell(f"killed at {len(chosen)} of {len(points)} points")
    struck = {caller for point in chosen for caller in points[point].callers}
    for name, function in named.items():
        assert function in struck, name


@each_workload
def test_21_a_kill_in_recovery(workload: Workload, folder: Path, random: Random) -> None:
    points = live(workload, folder / "whole").points()
    for first in random.sample(list(points), TIMES_KILLED_IN_RECOVERY):
        kill(workload, folder / "killed", first)
        kill_twice(
            workload, folder, first, random.choice(list(points_in_recovery(folder / "killed")))
        )


@pytest.mark.soak
@each_workload
def test_21_a_kill_at_every_point(workload: Workload, folder: Path, tell: Tell) -> None:
    points = live(workload, folder / "whole").points()
    kill_once(workload, folder, points, points)
    tell(f"killed at all {len(points)} points")


@pytest.mark.soak
@each_workload
def test_21_every_kill_in_every_recovery(workload: Workload, folder: Path, tell: Tell) -> None:
    tried = 0
    for first in live(workload, folder / "whole").points():
        kill(workload, folder / "killed", first)
        for second in points_in_recovery(folder / "killed"):
            kill_twice(workload, folder, first, second)
            tried += 1
    tell(f"killed {tried} times, and once more in recovery")
