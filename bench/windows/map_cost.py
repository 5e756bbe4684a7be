"""Measures the cost of the time map as a share of a produce request."""

import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from ...protocol.records.kernel import UnchangedSets, take_unchanged
from ...protocol.records.layout import NO_TIMESTAMP
from ...protocol.records.messages.sets import NewRecord, build_set
from ...storage.index.time_map import BLOCK_BYTES, CLOSE_MS
from ...testing.logs import LogFolder
from ...times import INT64_MAX
from ..figure import Figure
from ..producing import produce_rate
from ..raw_client import RefusedRequest

_SET_BYTES: Final = 64 << 10
_MESSAGES: Final = 490
"""Number of messages of 100 bytes in a set of 64 KiB."""
_ROUNDS: Final = 11
_SETS: Final = 256
"""Number of sets added for one figure. One is not enough, because not every set ends a block of the
map."""
_NAMES: Final = {"time_map_cost": 0, "time_map_cost_jitter": 600_000}
"""Figure -> by how many milliseconds a message may be early or late."""


def time_map_cost(*, rounds: int = _ROUNDS) -> Iterator[Figure]:
    """Yield the cost of the time map of a segment, as a share of the time that a set of 64 KiB
    takes: for sets whose times span half a second, and for sets with times up to ten minutes early
    or late.

    The cost is the extra time of an admission that notes times for the map, and the time to add
    them to the map, both measured in this process. The figure uses the shortest of all walks over a
    set, and the median of all additions.
    """
    with TemporaryDirectory(prefix="horolog-bench-") as folder:
        costs = {
            name: _Cost(Path(folder) / name / "t-0", jitter_ms)
            for name, jitter_ms in _NAMES.items()
        }
        for _ in range(rounds):
            for cost in costs.values():
                cost.measure()
        for cost in costs.values():
            cost.end()
    (produced,) = produce_rate("produce_100B_64KiB", 100, _SET_BYTES)
    set_seconds = _MESSAGES / produced.value
    for name, cost in costs.items():
        yield Figure(name, cost.seconds / set_seconds, "share", "produce_100B_64KiB")


class _Cost:
    """Measures the cost of one kind of sets."""

    def __init__(self, folder: Path, jitter_ms: int) -> None:
        self._logs = LogFolder(folder)
        self._time_map = self._logs.open(retention_ms=-1).segments[0].time_map
        self._sets = _sets(jitter_ms)
        self._position = self._next_offset = 0
        self._admitted, self._noted = ([math.inf] * _SETS for _ in range(2))
        """Shortest time for each set: of an admission without the map, and of one with it."""
        self._added = list[float](), list[float]()
        """Times of adding a set to the map: of additions without a new block, and of additions with
        one."""
        self._time_map.begin()

    @property
    def seconds(self) -> float:
        """Return the mean cost of a set."""
        added = sum(median(some) * len(some) for some in self._added if some)
        sets = sum(map(len, self._added))
        return (sum(self._noted) - sum(self._admitted)) / _SETS + added / sets

    def measure(self) -> None:
        """Add all sets once more."""
        time_map = self._time_map
        for number, data in enumerate(self._sets):
            _admit(data, self._next_offset, 0, 0)  # The others find it in the processor's cache.
            began = time.perf_counter()
            _admit(data, self._next_offset, 0, 0)
            plain = time.perf_counter()
            found = _admit(data, self._next_offset, BLOCK_BYTES, time_map.since_bytes)
            noted = time.perf_counter()
            self._next_offset += _MESSAGES
            mapped_bytes = time_map.log_bytes
            adds = time.perf_counter()
            time_map.add(self._position, data, self._next_offset, found.spans)
            added = time.perf_counter() - adds
            self._added[time_map.log_bytes > mapped_bytes].append(added)
            self._admitted[number] = min(self._admitted[number], plain - began)
            self._noted[number] = min(self._noted[number], noted - plain)
            self._position += len(data)

    def end(self) -> None:
        """Check that the map exists, and close its log."""
        if not self._time_map.makes or self._time_map.size_bytes <= 0:
            raise RefusedRequest("the time map was not kept")
        self._logs.let_go()


def _sets(jitter_ms: int) -> list[bytearray]:
    rng = random.Random(1)
    now_ms = int(time.time() * 1000)
    times = [now_ms + number + rng.randint(-jitter_ms, jitter_ms) for number in range(_MESSAGES)]
    records = [NewRecord(b"v" * 100, timestamp_ms=at_ms) for at_ms in times]
    return [bytearray(build_set(records)) for _ in range(_SETS)]


def _admit(
    data: bytearray, base_offset: int, block_bytes: int, block_since_bytes: int
) -> UnchangedSets:
    """Admit a set as a broker does; with `block_bytes`, note times for the map."""
    found = take_unchanged(
        [data],
        base_offset=base_offset,
        now_ms=0,
        magics=0b111,
        append_time_ms=NO_TIMESTAMP,
        lowest_ms=0,
        highest_ms=INT64_MAX,
        entry_max_bytes=_SET_BYTES,
        room_bytes=len(data),
        marks_max=100,
        interval_bytes=4096,
        since_bytes=0,
        largest_ms=NO_TIMESTAMP,
        magic=1,
        segment_offset=0,
        segment_position=0,
        close_ms=CLOSE_MS,
        block_bytes=block_bytes,
        block_since_bytes=block_since_bytes,
    )
    if found is None:
        raise RefusedRequest("a set was not as most are")
    return found
