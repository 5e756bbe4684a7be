"""`python -m horolog.bench [NAME...]`: measure, print a table, write `build/bench.json`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from .figures import FIGURES, Figure

RESULTS = Path("build") / "bench.json"
MODE = "interpreted"


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        sys.stderr.write(f"unknown: {', '.join(unknown)}; there are {', '.join(FIGURES)}\n")
        return 2
    figures: list[Figure] = []
    for name in names or FIGURES:
        for figure in FIGURES[name]():
            figures.append(figure)
            print(_row(figure), flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    result = {"mode": MODE, "figures": [asdict(figure) for figure in figures]}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _row(figure: Figure) -> str:
    beside = f"  {figure.ratio:.2f} x {figure.beside}" if figure.ratio else ""
    return f"{figure.name:<20} {figure.value:>18,.6g} {figure.unit}{beside}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
