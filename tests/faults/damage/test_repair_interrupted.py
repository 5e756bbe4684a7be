"""A repair that is interrupted anywhere can be run again, and then it is as if it had not been."""

import errno
import shutil
from pathlib import Path
from random import Random

import pytest

from horolog.protocol.errors import StorageError
from horolog.testing.directories import DataDirectory
from horolog.testing.files import FaultyFiles, QuickFiles
from horolog.testing.power_cuts import PowerCuts
from horolog.testing.recording import RecordingFiles

from .damaging import flip, overwrite
from .repairing import Message, check_served, errors, fill, places, repair


class Damaged:
    """A directory with all kinds of damage, and what is left of it."""

    def __init__(self, place: Path, *, clean: bool) -> None:
        origin = DataDirectory(place / "origin")
        fill(origin, clean=clean)
        self.data = origin.copy(place / "damaged")
        if not clean:
            origin.close()
        folder = self.data.path / "t-0"
        found = places(folder)
        paths = sorted({one.path for one in found})
        self.end_offset = found[-1].messages[-1][0] + 1
        lost = [one for one in found if one.path == paths[2]]
        lost += [one for one in found if one.path == paths[0]][1:2]
        lost += found[-1:]
        flip(lost[-2].path, lost[-2].end - 1, 0)
        paths[2].write_bytes(bytes(90))
        overwrite(lost[-1].path, lost[-1].start + 8, bytes(4))
        (folder / paths[1].name).with_suffix(".timeindex").write_bytes(b"?" * 12)
        (folder / f"{int(paths[4].stem) + 1:020d}.log").write_bytes(paths[4].read_bytes())
        (self.data.path / "log-start-offset-checkpoint").write_bytes(b"?")
        self.left: list[Message] = [m for one in found if one not in lost for m in one.messages]

    def check(self, path: Path) -> None:
        """Repair what an interrupted repair has left at `path`, and look at it."""
        repair(path)
        assert errors(path) == []
        copied = DataDirectory(path)
        check_served(copied, self.left, self.end_offset)


@pytest.fixture(params=["clean", "killed"])
def damaged(request: pytest.FixtureRequest, place: Path) -> Damaged:
    return Damaged(place, clean=request.param == "clean")


def test_it_is_repaired(damaged: Damaged) -> None:
    assert len(damaged.left) > 15
    damaged.check(damaged.data.path)
    broken = {path.name for path in damaged.data.path.rglob("*.broken")}
    assert len(broken) == 6


@pytest.mark.parametrize(
    ("samples", "every"),
    [
        pytest.param(1, 3, id="some"),
        pytest.param(6, 1, id="many", marks=pytest.mark.soak),
    ],
)
@pytest.mark.timeout(7200)
def test_a_crash_or_a_power_cut_after_any_operation(
    damaged: Damaged,
    place: Path,
    samples: int,
    every: int,
    request: pytest.FixtureRequest,
) -> None:
    recording = RecordingFiles(QuickFiles(), damaged.data.path)
    repair(damaged.data.path, recording)
    assert len(recording.operations) > 50
    random = Random(f"{request.config.getoption('--hypothesis-seed')} {request.node.name}")
    cuts = PowerCuts(recording, random, exhaustive_max=4, samples=samples)
    states = 0
    for number, state in enumerate(cuts.states()):
        # A state where everything landed is what a mere crash leaves.
        if state.lost and number % every:
            continue
        states += 1
        state.make(place / "state")
        try:
            damaged.check(place / "state")
        except BaseException as error:
            error.add_note(f"after {state.operations_done} operations; lost: {state.lost}")
            raise
        shutil.rmtree(place / "state")
    assert states > 30


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("open", errno.EIO),
        ("pwrite", errno.ENOSPC),
        ("truncate", errno.EIO),
        ("sync", errno.EIO),
        ("rename", errno.ENOSPC),
        ("unlink", errno.EIO),
        ("sync_directory", errno.EIO),
    ],
)
@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_disk_that_fails(
    damaged: Damaged,
    place: Path,
    kind: str,
    error: int,
    all_of_them: bool,
    request: pytest.FixtureRequest,
) -> None:
    """At one operation in `every`, others with each seed; the soak fails all."""
    every = 1 if all_of_them else {"open": 18, "sync": 6, "sync_directory": 8}.get(kind, 4)
    random = Random(f"{request.config.getoption('--hypothesis-seed')} {request.node.name}")
    failed = 0
    for passing in range(random.randrange(every), 1000, every):
        copy = damaged.data.copy(place / "copy")
        files = FaultyFiles(QuickFiles())
        files.fail(kind, error, passing=passing, times=1)
        try:
            repair(copy.path, files)
        except (OSError, StorageError):
            failed += 1
        else:
            # A file that cannot be opened may be told as one that cannot be read.
            files.heal()
        assert files.open_count == 0
        damaged.check(copy.path)
        done = files.did(kind) <= passing
        shutil.rmtree(copy.path)
        if done:
            break
    else:
        pytest.fail("it never comes to an end")
    assert failed > 0 or kind == "unlink"
