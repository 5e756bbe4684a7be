"""`python -m horolog.bench [NAME...]`: measure, print a table, write `build/bench.json`."""

import sys
from collections.abc import Iterator
from pathlib import Path

from .figure import Figure, measure
from .figures import MEASUREMENTS, NAMES

RESULTS = Path("build") / "bench.json"


def main(names: list[str]) -> int:
    return measure(names, NAMES, _figures, RESULTS)


def _figures(wanted: set[str]) -> Iterator[Figure]:
    for measurement in MEASUREMENTS:
        if not wanted.isdisjoint(measurement.names):
            yield from measurement.measure()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
