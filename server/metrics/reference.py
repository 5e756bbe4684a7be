"""Generator of `docs/metrics.md`: `python -m horolog.server.metrics.reference`."""

import sys
from collections.abc import Iterator

from ...clock import SystemClock
from .families import Gauges, families
from .figures import Figures

_INTRODUCTION = """\
# Metrics

Generated from `server/metrics/families.py` by `make docs`.

`http://HOST:PORT/metrics` on the HTTP port, in Prometheus' text format; the text is at most a
second old. Base units (seconds, bytes) are in the names. The `topic` label goes away with its
topic. The usual figures of the process (`process_*`) are there too.

| name | type | labels | meaning |
|---|---|---|---|"""

_WINDOW_MS = 60_000


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    yield from _INTRODUCTION.splitlines()
    figures = Figures(SystemClock(), _WINDOW_MS)
    for family in sorted(families(figures, Gauges()), key=lambda family: family.name):
        labels = ", ".join(f"`{label}`" for label in family.labels)
        meaning = family.meaning.replace("last 60 s", "last `max.latency.window.ms`")
        yield f"| `{family.name}` | {family.kind} | {labels} | {meaning} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
