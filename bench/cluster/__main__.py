"""`python -m horolog.bench.cluster [NAME...]`: a leader and its follower, measured.

Prints a table and writes `build/bench-cluster.json`, in the shape of `build/bench.json`. Figures
beside Apache Kafka need Java and Maven; where there are none they are left out, and that is said.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from ...protocol.records.kernel import FORM
from ..apache_kafka import Unavailable
from ..figure import Figure
from .beside_kafka import beside_kafka
from .copying import copying
from .producing import idle, least, producing

RESULTS: Final = Path("build") / "bench-cluster.json"

MEASUREMENTS: Final[dict[str, Callable[[], Iterator[Figure]]]] = {
    "copy": copying,
    "produce": producing,
    "least": least,
    "idle": idle,
    "beside_kafka": beside_kafka,
}
"""What is measured, in this order."""


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        sys.stderr.write(f"unknown: {', '.join(unknown)}; there are {', '.join(MEASUREMENTS)}\n")
        return 2
    figures: list[Figure] = []
    for name in names or MEASUREMENTS:
        try:
            for figure in MEASUREMENTS[name]():
                figures.append(figure)
                print(figure.row, flush=True)
        except Unavailable as error:
            sys.stderr.write(f"{name} is left out: {error}\n")
            if names:
                return 1
    RESULTS.parent.mkdir(exist_ok=True)
    result = {"mode": FORM, "figures": [asdict(figure) for figure in figures]}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
