"""Measuring by name: figures are printed as they come, and written to a file in the end."""

import json
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from ..protocol.records.kernel import FORM
from .figure import BoundedFigure, Figure


def check_known(names: Sequence[str], known: Collection[str]) -> bool:
    """Name on standard error what cannot be measured; True where there is nothing of that."""
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
    """Take the figures of these names, or of all, and write them to `results`; the exit code, which
    is 1 where a figure is above its limit."""
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
