"""`repair` of a log that is damaged in two places: whatever is good and has a place stays there."""

import shutil
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from horolog.testing.directories import DataDirectory
from horolog.testing.files import QuickFiles

from .damaging import cut, flip
from .pairs import Damage, Stored, apply, certain, damages, fill, read
from .repairing import errors, repair

KINDS = ("plain", "wrappers", "batches", "mixed")
HARD = (
    ("offset + 7 of entry 10", "offset + 7 of entry 11"),
    ("offset + 7 of entry 3", "offset + 7 of entry 4"),
    ("offset - 1 of entry 9", "offset - 1 of entry 10"),
    ("offset - 1 of entry 9", "offset - 1 of entry 11"),
    ("offset below zero of entry 9", "offset - 1 of entry 10"),
    ("offset below zero of entry 9", "offset - 1 of entry 11"),
    ("offset far of entry 9", "zeros of entry 10"),
    ("offset far of entry 10", "offset far of entry 11"),
    ("offset + 1 of entry 11", "entry 9 twice"),
    ("entry 6 twice", "entries 6 and 7 swapped"),
)
LATER_FORMAT = "format (magic byte)"
ONES_TRIED, PAIRS_TRIED = 3, 7
"""Of each log, drawn with the seed that a failing run names; the soak tries every pair."""


class Case:
    """A log, and what a repair must leave of it."""

    def __init__(self, place: Path, kind: str, *, gaps: bool, clean: bool) -> None:
        self.place = place
        self.gaps = gaps
        self.clean = clean
        self.origin = DataDirectory(place / "origin")
        self.origin.files = QuickFiles()
        self.log = fill(self.origin, kind, gaps=gaps)
        if not clean:
            (self.origin.path / ".kafka_cleanshutdown").unlink()
        self.folder = self.origin.path / "t-0"
        self.names = [path.name for path in sorted(self.folder.glob("*.log"))]
        self.damages = list(damages(self.log, self.names))

    def check(self, *pair: Damage) -> None:
        """Damage a copy, repair it and read it."""
        data = self.origin.copy(self.place / "copy")
        data.files = QuickFiles()
        apply(data.path / "t-0", *pair)
        # An offset that is wrong may be the one that is due where an entry has gone elsewhere.
        moved = any(one.misleads for one in pair) and any(one.moves for one in pair)
        kept = list(certain(self.log, *pair, gaps=self.gaps))
        try:
            self.check_repaired(data, kept, moved=moved)
        except BaseException as error:
            error.add_note(f"damaged by {[one.name for one in pair]}")
            raise
        shutil.rmtree(data.path)

    def check_repaired(
        self, data: DataDirectory, kept: list[Stored], *, moved: bool = False
    ) -> None:
        undone = [step.wrong for step in repair(data.path) if not step.done]
        if undone:
            # A magic byte became that of a later format: who reads it has to repair that.
            assert all(LATER_FORMAT in wrong for wrong in undone)
            return
        assert errors(data.path) == []
        directory = data.open()
        found = read(directory.log("t", 0))
        data.close()
        for one in kept:
            for message in one.messages:
                assert found.get(message[0]) == message
        if self.clean and not self.gaps and not moved:
            # Nothing is served at another place than its own.
            known = {message for one in self.log for message in one.messages}
            assert set(found.values()) <= known


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.parametrize("gaps", [False, True], ids=["contiguous", "gaps"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_pairs_of_damages(
    place: Path, kind: str, gaps: bool, clean: bool, request: pytest.FixtureRequest
) -> None:
    case = Case(place, kind, gaps=gaps, clean=clean)
    random = Random(f"{request.config.getoption('--hypothesis-seed')} {request.node.name}")
    pairs = list(combinations(case.damages, 2))
    for one in random.sample(case.damages, ONES_TRIED):
        case.check(one)
    for pair in random.sample(pairs, PAIRS_TRIED):
        case.check(*pair)


@pytest.mark.soak
@pytest.mark.parametrize("gaps", [False, True], ids=["contiguous", "gaps"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_all_pairs_of_damages(place: Path, kind: str, gaps: bool, clean: bool) -> None:
    case = Case(place, kind, gaps=gaps, clean=clean)
    for one in case.damages:
        case.check(one)
    for pair in combinations(case.damages, 2):
        case.check(*pair)


@pytest.mark.parametrize("traces", ["all", "none of the segment", "none in the checksums"])
def test_the_next_segment_is_gone(place: Path, kind: str, traces: str) -> None:
    """The last message of a segment leads nowhere then, and is not to blame for that."""
    case = Case(place, kind, gaps=False, clean=True)
    data = case.origin
    if traces == "none in the checksums":
        checksums = case.folder / "index-checksums"
        base = case.log[3].first_offset
        lines = checksums.read_text().splitlines(keepends=True)
        assert any(line.startswith(f"{base} ") for line in lines)
        checksums.write_text("".join(one for one in lines if not one.startswith(f"{base} ")))
    gone = case.folder / case.names[1]
    for path in case.folder.glob(
        f"{gone.stem}.*" if traces == "none of the segment" else gone.name
    ):
        path.unlink()
    victim = case.log[1]
    flip(case.folder / case.names[0], victim.position + len(victim.data) - 1, 3)
    case.check_repaired(data, [one for n, one in enumerate(case.log) if n not in (1, 3, 4, 5)])


def test_the_last_segment_is_gone(place: Path, kind: str) -> None:
    case = Case(place, kind, gaps=False, clean=True)
    (case.folder / case.names[-1]).unlink()
    victim = case.log[7]
    flip(case.folder / case.names[2], victim.position + len(victim.data) - 1, 3)
    kept = [one for number, one in enumerate(case.log) if number < 9 and number != 7]
    case.check_repaired(case.origin, kept)


@pytest.mark.parametrize("number", [0, 1, 3, 4, 7])
def test_bytes_that_are_gone_from_the_middle(place: Path, kind: str, number: int) -> None:
    """What stands behind them leads to the next segment: its offsets are right."""
    case = Case(place, kind, gaps=False, clean=True)
    victim = case.log[number]
    path = case.folder / case.names[victim.segment]
    content = path.read_bytes()
    after = victim.position + len(victim.data)
    path.write_bytes(content[: victim.position] + content[after:])
    case.check_repaired(case.origin, [one for one in case.log if one is not victim])


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_an_offset_too_far_for_its_segment(place: Path, kind: str, clean: bool) -> None:
    """Where offsets may jump no entry contradicts the last offset; the end of a clean stop does.

    Behind a kill it could be a message that Kafka's cleaner left so far behind the others.
    """
    case = Case(place, kind, gaps=True, clean=clean)
    (far,) = [one for one in case.damages if one.name == "offset far of entry 11"]
    case.check(far)
    apply(case.folder, far)
    if not clean:
        (case.origin.path / "recovery-point-offset-checkpoint").unlink()
    # A start that comes before the repair does without where it knows, and says so.
    (case.folder / case.names[-1]).with_suffix(".index").unlink()
    log = case.origin.open().log("t", 0)
    end_offset = case.log[-1].last_offset + 1
    assert log.log_end_offset <= end_offset if clean else log.log_end_offset > end_offset
    case.origin.close()


@pytest.mark.parametrize("pair", HARD, ids=" and ".join)
@pytest.mark.parametrize("gaps", [False, True], ids=["contiguous", "gaps"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_two_that_bear_each_other_out(
    place: Path, kind: str, gaps: bool, clean: bool, pair: tuple[str, str]
) -> None:
    """Each of the two makes the other look right, and what is good look wrong."""
    case = Case(place, kind, gaps=gaps, clean=clean)
    case.check(*(one for one in case.damages if one.name in pair))


def test_nothing_behind_a_cut_contradicts_what_is_in_front_of_it(place: Path, kind: str) -> None:
    case = Case(place, kind, gaps=False, clean=True)
    victim, lost = case.log[1], case.log[2]
    path = case.folder / case.names[0]
    flip(path, victim.position + len(victim.data) - 1, 3)
    cut(path, lost.position + 5)
    case.check_repaired(case.origin, [case.log[0], *case.log[3:]])
