"""`python -m horolog.bench.fixture`: how long a test waits for `horolog_broker`, and after it."""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from ..testing.broker import BrokerThread
from .figure import Figure, quantile


def main(tests: int = 100) -> int:
    """Print how long so many tests would have waited. The one before them, which imports what is
    needed, is not counted."""
    starts: list[float] = []
    stops: list[float] = []
    with TemporaryDirectory() as folder:
        for number in range(tests + 1):
            broker = BrokerThread(Path(folder) / str(number))
            began = time.perf_counter()
            broker.start()
            started = time.perf_counter()
            broker.stop()
            starts.append(started - began)
            stops.append(time.perf_counter() - started)
    for name, taken in (("fixture_start", starts[1:]), ("fixture_stop", stops[1:])):
        print(Figure(name, quantile(taken, 0.5), "s").row)
        print(Figure(f"{name}_p90", quantile(taken, 0.9), "s").row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
