"""Figures of measurements, and helpers to measure in rounds. `measure` measures figures by name,
prints each when it is known, and writes all to a file at the end."""

import json
import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from ..protocol.records.kernel import FORM


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value in a base unit, and optionally the name of another value and the ratio to
    it."""

    name: str
    value: float
    unit: str
    beside: str | None = None
    ratio: float | None = None

    @property
    def row(self) -> str:
        """The figure as one line of text."""
        beside = f"  {self.ratio:.2f} x {self.beside}" if self.ratio else ""
        return f"{self.name:<28} {self.value:>18,.6g} {self.unit}{beside}"


@dataclass(frozen=True, slots=True)
class BoundedFigure(Figure):
    """A figure whose value may not exceed a limit."""

    limit: float = math.inf
    note: str = ""
    """Text printed behind the figure, for example the request that was measured."""

    @property
    def row(self) -> str:
        wrong = "" if self.is_within else f"  ABOVE {self.limit:g}"
        return f"{self.name:<48} {self.value:>8.4f} {self.unit}{wrong}  {self.note}"

    @property
    def is_within(self) -> bool:
        return self.value <= self.limit


def quantile(values: Iterable[float], share: float) -> float:
    """Return the quantile `share` of `values`: the smallest value that at least this share does not
    exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def median_ratio(ours: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios of all rounds: `ours` divided by `others`."""
    return median(one / other for one, other in zip(ours, others, strict=True))


def rates(work: Callable[[], float], *, rounds: int, seconds: float) -> list[float]:
    """Return the amount of work a second, for each of `rounds` rounds of at least `seconds`.

    Each call of `work` returns the amount that it did.
    """
    found = []
    for _ in range(rounds):
        done, taken, began = 0.0, 0.0, time.perf_counter()
        while not done or taken < seconds:
            done += work()
            taken = time.perf_counter() - began
        found.append(done / taken)
    return found


def rate_beside(
    name: str,
    unit: str,
    beside: str,
    works: Sequence[Callable[[], float]],
    rounds: int,
    seconds: float,
) -> Figure:
    """Measure two works in turns, so that other load on the machine affects both alike. Returns the
    figure of the second work, with its ratio to the first."""
    first: list[float] = []
    second: list[float] = []
    pairs = list(zip(works, (first, second), strict=True))
    for _ in range(rounds):
        for work, found in pairs:
            found += rates(work, rounds=1, seconds=seconds)
        pairs.reverse()
    return Figure(name, median(second), unit, beside, median_ratio(second, first))


def times_in_turns(works: Sequence[Callable[[], object]], *, rounds: int, each: int) -> list[float]:
    """Return the median seconds of one call of each of `works`. Each round calls every work `each`
    times.

    The works take turns, so that other load on the machine affects all alike.
    """
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for number, work in enumerate(works):
            for _ in range(each):
                began = time.perf_counter()
                work()
                times[number].append(time.perf_counter() - began)
    return [median(some) for some in times]


def check_known(names: Sequence[str], known: Collection[str]) -> bool:
    """Return whether all names are known. Print unknown names on standard error."""
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.stderr.write(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}\n")
    return not unknown


def measure(
    names: Sequence[str],
    known: Collection[str],
    figures: Callable[[set[str]], Iterable[Figure]],
    results: Path,
) -> int:
    """Measure the figures of these names, or all figures, and write them to `results`. Returns the
    exit code: 1 if a figure is above its limit, 2 if a name is unknown."""
    if not check_known(names, known):
        return 2
    found: list[Figure] = []
    for figure in figures(set(names or known)):
        found.append(figure)
        print(figure.row, flush=True)
    results.parent.mkdir(exist_ok=True)
    # The form of the kernel is that of the brokers too.
    result = {"mode": FORM, "figures": [asdict(figure) for figure in found]}
    results.write_text(json.dumps(result, indent=1) + "\n")
    bounded = (figure for figure in found if isinstance(figure, BoundedFigure))
    return 0 if all(figure.is_within for figure in bounded) else 1
