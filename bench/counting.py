"""What counting the latency of every message takes of the time of a produce."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from ..clock import SystemClock
from ..protocol.records.kernel import walk
from ..protocol.records.kernel.terms import Offsets
from ..server.metrics.figures import Figures
from .brokers import sets
from .figure import Figure, times_in_turns
from .producing import produce_rate

_TRIES: Final = 300
_SET_BYTES: Final = 64 << 10
_WINDOW_MS: Final = 60_000
_SETS: Final = 64
"""As many are added up for one figure, because not each takes the same time."""


def latency_count_cost() -> Iterator[Figure]:
    """Share of the time that a set of 64 KiB takes: the walk that counts over the one that does
    not, and adding the counts up; measured in this process, with the kernel that is used."""
    data, count = sets(100, _SET_BYTES)
    buffer = bytearray(data)
    now_ms = int(time.time() * 1000)
    figures = Figures(SystemClock(), _WINDOW_MS).topic("bench")
    latency = walk(buffer, 0, len(buffer), now_ms=now_ms).latency
    assert latency is not None

    def walking(now_ms: int) -> Callable[[], object]:
        return lambda: walk(buffer, 0, len(buffer), offsets=Offsets.ASSIGN, now_ms=now_ms)

    def adding_up() -> None:
        for _ in range(_SETS):
            figures.appended(count, len(data), latency)

    works: tuple[Callable[[], object], ...] = (walking(-1), walking(now_ms), adding_up)
    without, with_counts, adding = times_in_turns(works, rounds=_TRIES, each=1)
    adding /= _SETS
    (produced,) = produce_rate("produce_100B_64KiB", 100, _SET_BYTES)
    set_seconds = count / produced.value
    cost = max(with_counts - without, 0.0) + adding
    yield Figure("latency_count_cost", cost / set_seconds, "share", "produce_100B_64KiB")
