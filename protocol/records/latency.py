"""Histogram of append latency: append time minus create time, in fixed buckets."""

from dataclasses import dataclass, field
from typing import Final

LATENCY_BUCKETS_MS: Final[tuple[int, ...]] = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000),
    *(3_600_000, 86_400_000),
)
"""Inclusive upper bounds in milliseconds; larger latencies have a bucket of their own."""


def _no_counts() -> list[int]:
    return [0] * (len(LATENCY_BUCKETS_MS) + 1)


@dataclass(slots=True)
class LatencyCounts:
    """Append latencies of messages, as counts per bucket.

    A message from the future counts as latency 0, and also in `skewed`. A message without a create
    time counts only in `untimed`.
    """

    counts: list[int] = field(default_factory=_no_counts)
    """Messages per bucket, not cumulative; the last bucket is above every bound."""
    skewed: int = 0
    untimed: int = 0
    sum_ms: int = 0
    max_ms: int = 0

    @property
    def timed(self) -> int:
        """Number of messages in the buckets."""
        return sum(self.counts)

    def add(self, *others: "LatencyCounts") -> None:
        """Add the counts of `others`."""
        rows = [one.counts for one in others]
        self.counts = list(map(sum, zip(self.counts, *rows, strict=True)))
        for other in others:
            self.skewed += other.skewed
            self.untimed += other.untimed
            self.sum_ms += other.sum_ms
            self.max_ms = max(self.max_ms, other.max_ms)
