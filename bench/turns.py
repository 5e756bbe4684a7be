"""Compares figures of this tree with those of a commit, in turns: `python -m horolog.bench.turns
--against COMMIT FIGURE... [--turns 6]`.

Each turn runs `python -m horolog.bench FIGURE...` once in both trees, each time in a new process.
The order changes from turn to turn. Prints the medians, by how much this tree is worse, and the
spread: half of the distance between the quartiles, divided by the median, of the tree with the
larger spread. The exit code is 1 if a figure is worse by more than 3 % and by more than its spread.

The commit is checked out in a temporary folder, and its kernel is compiled if this tree's is. It
runs with the libraries that are installed here.
"""

import json
import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from ..protocol.records.kernel import FORM
from ..values import value_class
from .figure import check_known
from .figures import NAMES

ROOT: Final = Path(__file__).resolve().parents[1]

WORSE_MAX: Final = 0.03
"""A figure is worse if the difference is larger than this and than the spread."""

_LEAST_TURNS: Final = 2
_HIGHER_IS_BETTER: Final = ("/s", "ratio")
"""Ends of units for which a higher value is better."""


@value_class
class Compared:
    """One figure in both trees."""

    name: str
    unit: str
    before: Sequence[float]
    after: Sequence[float]

    @property
    def worse(self) -> float:
        """By which share of the commit's median this tree is worse; below 0 if it is better."""
        before, after = median(self.before), median(self.after)
        if not before:
            return 0.0
        change = after / before - 1
        return -change if self.unit.endswith(_HIGHER_IS_BETTER) else change

    @property
    def spread(self) -> float:
        """The spread of the tree with the larger spread."""
        return max(_spread(self.before), _spread(self.after))

    @property
    def is_worse(self) -> bool:
        return self.worse > max(WORSE_MAX, self.spread)

    @property
    def row(self) -> str:
        values = f"{median(self.before):>14,.6g} {median(self.after):>14,.6g} {self.unit:<8}"
        verdict = "  WORSE" if self.is_worse else ""
        return f"{self.name:<28} {values} {self.worse:>+8.1%} {self.spread:>7.1%}{verdict}"


def _spread(values: Sequence[float]) -> float:
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / 2 / middle if middle else 0.0


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Yield a folder from which the package is imported as it was at a commit."""
    with tempfile.TemporaryDirectory(prefix="horolog-turns-") as folder:
        tree = Path(folder) / "horolog"
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            if FORM == "compiled":
                build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
                subprocess.run(build, cwd=tree, check=True)
            yield Path(folder)
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=ROOT, check=True)


def figures_of(folder: Path | None, names: Sequence[str]) -> Mapping[str, tuple[float, str]]:
    """Run the figures once; return values and units by name. `folder` has the package; by default
    it is this one."""
    env = dict(os.environ)
    if folder is not None:
        env["PYTHONPATH"] = str(folder)
    with tempfile.TemporaryDirectory(prefix="horolog-turns-") as results:
        command = [sys.executable, "-m", "horolog.bench", *names]
        subprocess.run(command, cwd=results, env=env, stdout=subprocess.DEVNULL, check=True)
        written = json.loads((Path(results) / "build" / "bench.json").read_text())
    return {each["name"]: (each["value"], each["unit"]) for each in written["figures"]}


def compare(folder: Path, names: Sequence[str], turns: int) -> list[Compared]:
    """Measure the figures of both trees, `turns` times each."""
    before: defaultdict[str, list[float]] = defaultdict(list)
    after: defaultdict[str, list[float]] = defaultdict(list)
    units: dict[str, str] = {}
    sides = [(folder, before), (None, after)]
    for _ in range(turns):
        for tree, found in sides:
            for name, (value, unit) in figures_of(tree, names).items():
                found[name].append(value)
                units[name] = unit
        sides.reverse()
    return [
        Compared(name, unit, before[name], after[name])
        for name, unit in units.items()
        if len(before[name]) == len(after[name]) == turns
    ]


def main(arguments: Sequence[str]) -> int:
    parser = ArgumentParser(prog="python -m horolog.bench.turns", description=__doc__)
    parser.add_argument("--against", required=True, metavar="COMMIT")
    parser.add_argument("--turns", type=int, default=6, metavar="N")
    parser.add_argument("figures", nargs="+", metavar="FIGURE")
    options = parser.parse_args(arguments)
    if not check_known(options.figures, NAMES):
        return 2
    if options.turns < _LEAST_TURNS:
        parser.error(f"--turns is {options.turns}; it must be at least {_LEAST_TURNS}")
    with checked_out(options.against) as folder:
        compared = compare(folder, options.figures, options.turns)
    sys.stdout.write(
        f"{'figure':<28} {options.against[:14]:>14} {'this tree':>14} {'unit':<8} "
        f"{'worse by':>8} {'spread':>7}\n"
    )
    sys.stdout.writelines(f"{each.row}\n" for each in compared)
    return 1 if any(each.is_worse for each in compared) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
