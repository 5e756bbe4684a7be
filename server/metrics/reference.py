"""Writes `docs/metrics.md` from the collector: `python -m horolog.server.metrics.reference`."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ...clock import SystemClock
from ...protocol.lag import Lag
from ..groups.figures import GroupFigures
from .families import families
from .figures import Figures

if TYPE_CHECKING:
    from ...storage.log.log import Log

_INTRODUCTION = """\
# Metrics

Generated from `server/metrics/families.py` by `make docs`.

`http://HOST:PORT/metrics` on the HTTP port, in Prometheus' text format; the text is at most a
second old. Base units (seconds, bytes) are in the names. The `topic` label goes away with its
topic. The usual figures of the process (`process_*`) are there too.

| name | type | labels | meaning |
|---|---|---|---|"""

_WINDOW_MS = 60_000


class _NothingOpen:
    """The gauges of a broker without logs and clients."""

    def logs(self) -> Iterable["Log"]:
        return ()

    def retention_now_ms(self) -> int:
        return 0

    def clock_ahead_seconds(self) -> float:
        return 0.0

    def connections(self) -> int:
        return 0

    def unauthenticated(self) -> int:
        return 0

    def certificate_days(self) -> float | None:
        return None

    def held_bytes(self) -> int:
        return 0

    def parked(self) -> Mapping[str, int]:
        return {}

    def lags(self) -> Mapping[tuple[str, str, int], Lag]:
        return {}

    def lags_left_out(self) -> int:
        return 0

    def groups(self) -> GroupFigures:
        return GroupFigures()

    def positions_bytes(self) -> int:
        return 0

    def producer_states_bytes(self) -> int:
        return 0

    def replicas(self) -> None:
        return None


def lines() -> Iterator[str]:
    """The lines of the page."""
    yield from _INTRODUCTION.splitlines()
    figures = Figures(SystemClock(), _WINDOW_MS)
    for family in sorted(families(figures, _NothingOpen()), key=lambda family: family.name):
        labels = ", ".join(f"`{label}`" for label in family.labels)
        meaning = family.meaning.replace("last 60 s", "last `max.latency.window.ms`")
        yield f"| `{family.name}` | {family.kind} | {labels} | {meaning} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
