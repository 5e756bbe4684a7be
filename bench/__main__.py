"""`python -m horolog.bench [NAME...]`: measure, print a table, write `build/bench.json`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from ..protocol.records.kernel import FORM
from .figure import Figure
from .figures import MEASUREMENTS, NAMES

RESULTS = Path("build") / "bench.json"


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.stderr.write(f"unknown: {', '.join(unknown)}; there are {', '.join(NAMES)}\n")
        return 2
    wanted = set(names or NAMES)
    figures: list[Figure] = []
    for measurement in MEASUREMENTS:
        if wanted.isdisjoint(measurement.names):
            continue
        for figure in measurement.measure():
            figures.append(figure)
            print(figure.row, flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    result = {"mode": kernel_mode(), "figures": [asdict(figure) for figure in figures]}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def kernel_mode() -> str:
    """The form of the kernel that brokers use."""
    return FORM


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
