"""`python -m horolog.bench.fixture`: how long a test waits for `horolog_broker`.

A test makes ten topics with a message each; after it, the broker is put back. The start of the
broker, and a cluster's, are paid once.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ..blocking import Producer
from ..testing.broker import BrokerThread, temporary_broker
from ..testing.cluster import BrokerCluster
from .figure import Figure, quantile

TOPICS: Final = 10


class Timings:
    """Seconds by name."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Time the block."""
        began = time.perf_counter()
        yield
        self.taken.setdefault(name, []).append(time.perf_counter() - began)

    def print(self) -> None:
        """Print the median and the ninth decile of each name."""
        for name, taken in self.taken.items():
            print(Figure(name, quantile(taken, 0.5), "s").row)
            if len(taken) > 1:
                print(Figure(f"{name}_p90", quantile(taken, 0.9), "s").row)


def main(tests: int = 50) -> int:
    """Print the figures of so many tests. What comes before them, which imports what is needed, is
    not counted."""
    timings = Timings()
    with TemporaryDirectory() as folder:
        for number in range(11):
            broker = BrokerThread(Path(folder) / str(number))
            broker.start()
            broker.stop()
            if not number:  # It had to import the server.
                continue
            with timings.of("fixture_start"):
                broker.start()
            with timings.of("fixture_stop"):
                broker.stop()
        with timings.of("fixture_cluster_start"), BrokerCluster(Path(folder) / "cluster"):
            pass
    with temporary_broker() as broker:
        for _ in range(tests):
            with timings.of("fixture_before_test"):
                borrowed = broker.borrowed()
                borrowed.__enter__()
            with Producer(broker.address) as producer:
                for number in range(TOPICS):
                    producer.send(f"topic{number}", b"value")
            with timings.of("fixture_snapshot"):
                snapshot = broker.snapshot()
            with timings.of("fixture_restore"):
                snapshot.restore()
            with timings.of("fixture_after_test"):
                borrowed.__exit__(None, None, None)
    timings.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
