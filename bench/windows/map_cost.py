"""What keeping the time map takes of the time of a produce."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from ...protocol.records.kernel import walk
from ...protocol.records.messages.sets import NewRecord, build_set
from ...storage.index.time_map import SetTimes, TimeMap
from ...testing.logs import LogFolder
from ..figure import Figure
from ..producing import produce_rate
from ..raw_client import Refused

_SET_BYTES: Final = 64 << 10
_MESSAGES: Final = 490
"""Of 100 bytes, in a set of 64 KiB."""
_ROUNDS: Final = 11
_SETS: Final = 256
"""As many are added for one figure, because not each ends a block or is written."""
_NAMES: Final = {"time_map_cost": 0, "time_map_cost_jitter": 600_000}
"""Up to so many milliseconds a message is early or late."""


def time_map_cost(*, rounds: int = _ROUNDS) -> Iterator[Figure]:
    """Share of the time that a set of 64 KiB takes which goes into the time map of its segment: of
    sets with times of half a second each, and of ones that are up to ten minutes early or late.
    Both are added in turns, in this process, each just after it was walked over."""
    seconds = {name: list[float]() for name in _NAMES}
    with TemporaryDirectory(prefix="horolog-bench-") as folder:
        logs = LogFolder(Path(folder) / "t-0")
        time_map = logs.open(retention_ms=-1).segments[0].time_map
        sets = {name: _sets(jitter_ms) for name, jitter_ms in _NAMES.items()}
        for _ in range(rounds):
            for name in _NAMES:
                seconds[name].append(_add(time_map, *sets[name]) / _SETS)
        logs.let_go()
    (produced,) = produce_rate("produce_100B_64KiB", 100, _SET_BYTES)
    set_seconds = _MESSAGES / produced.value
    for name in _NAMES:
        yield Figure(name, median(seconds[name]) / set_seconds, "share", "produce_100B_64KiB")


def _sets(jitter_ms: int) -> tuple[list[bytes], SetTimes]:
    rng = random.Random(1)
    now_ms = int(time.time() * 1000)
    times = [now_ms + number + rng.randint(-jitter_ms, jitter_ms) for number in range(_MESSAGES)]
    records = [NewRecord(b"v" * 100, timestamp_ms=at_ms) for at_ms in times]
    sets = [bytes(build_set(records, base_offset=number * _MESSAGES)) for number in range(_SETS)]
    return sets, (min(times), max(times), _MESSAGES)


def _add(time_map: TimeMap, sets: list[bytes], times: SetTimes) -> float:
    """Seconds for a map that begins and gets these sets."""
    time_map.begin()
    position, seconds = 0, 0.0
    for data in sets:
        next_offset = walk(data, 0, len(data)).last_offset + 1
        began = time.perf_counter()
        time_map.add(position, data, next_offset, times)
        seconds += time.perf_counter() - began
        position += len(data)
    if not time_map.makes or time_map.size_bytes <= 0:
        raise Refused("the time map was not kept")
    return seconds
