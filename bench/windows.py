"""`python -m horolog.bench.windows`: the cost of time maps and what they find, for nine shapes of
data.

Each shape is a log of 1,000,000 messages of 100 bytes, in one segment, appended in sets of 64 KiB.
Windows of a fiftieth of the segment's span, at ten places, are looked up in its time map. The table
has these columns: the size of the map as a share of the log; the bytes of the blocks read for a
window, divided by the bytes of the blocks with a message of it; the time to the first message of
the window, with the map and with a full scan; and the speed of making the map from the log. Each
result of the map is compared with the times of all messages. A missing block ends the run.

Then it measures how long it takes to find the one segment of 10,000 that can have a message of a
window.

As figures of `make bench`, it reads an hour out of a day of messages that arrived late, early and
far ahead of their time, and measures the cost of the time map as a share of a produce request.
"""

import math
import random
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from ..protocol.api.log.count_by_time import CountByTimeRequest
from ..protocol.api.log.fetch import FetchPartition, FetchRequest, FetchTopic
from ..protocol.records.columns import read_columns
from ..protocol.records.kernel import UnchangedSets, take_unchanged, time_map_runs
from ..protocol.records.kernel.reference.times import time_map_blocks
from ..protocol.records.layout import NO_TIMESTAMP
from ..protocol.records.messages.sets import NewRecord, build_set
from ..storage.index.time_map import BLOCK_BYTES, CLOSE_MS
from ..storage.log.log import Log
from ..storage.read import reader, windows
from ..storage.read.windows import ReadWindow
from ..testing.logs import LogFolder, timed_set
from ..testing.requests import create_topic, produce, result
from ..times import INT64_MAX
from .brokers import broker
from .figure import Figure
from .raw_client import RawClient, RefusedRequest, check_end, encoded
from .requests import produce_rate

_SET_BYTES: Final = 64 << 10
_IN_A_SET: Final = 490
"""Number of messages of 100 bytes in a set of 64 KiB."""
_COST_ROUNDS: Final = 11
_SETS: Final = 256
"""Number of sets added for one figure. One is not enough, because not every set ends a block of the
map."""
_NAMES: Final = {"time_map_cost": 0, "time_map_cost_jitter": 600_000}
"""Figure -> by how many milliseconds a message may be early or late."""

_MESSAGES: Final = 5_000_000

_HOUR_MS: Final = 3_600_000

_FETCH_BYTES: Final = 1 << 20
_ROUNDS: Final = 5

SEGMENTS: Final = 10_000
_CHANGES: Final = 20
_SPAN_MS: Final = 10
_START_MS: Final = 1_479_144_272_509
MESSAGES: Final = 1_000_000
_A_SET: Final = 490
_WINDOWS: Final = 10
_PART: Final = 50
_NOON_MS: Final = 1_479_124_800_000
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000
_YEAR_MS: Final = 365 * _DAY_MS
Times = Iterator[int]


def time_map_cost(*, rounds: int = _COST_ROUNDS) -> Iterator[Figure]:
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
    set_seconds = _IN_A_SET / produced.value
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
            self._next_offset += _IN_A_SET
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
    times = [now_ms + number + rng.randint(-jitter_ms, jitter_ms) for number in range(_IN_A_SET)]
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


class FirstLooks(NamedTuple):
    """Seconds of a search for the segment of a window."""

    at_first: float
    """The first search, which sorts the time ranges of all segments."""
    after_roll: float
    """Median of searches that each follow a roll, which adds a segment."""
    after_removal: float
    """Median of searches that each follow the removal of a segment."""


def first_looks(segments: int = SEGMENTS) -> FirstLooks:
    """Search for a window of one message in the middle of a log with `segments` closed segments."""
    with TemporaryDirectory(prefix="horolog-bench-") as path:
        folder = LogFolder(Path(path) / "t-0")
        log = folder.open(retention_ms=-1, segment_bytes=50)
        for number in range(segments):
            log.appender.append(timed_set(_START_MS + _SPAN_MS * number))
        wanted = segments // 2
        from_ms = _START_MS + _SPAN_MS * wanted
        window = ReadWindow.between(from_ms, from_ms + _SPAN_MS)

        def look() -> float:
            began = time.perf_counter()
            place = windows.find_position(log, log.log_start_offset, window, log.high_watermark)
            seconds = time.perf_counter() - began
            if place.offset != wanted:
                raise RefusedRequest(f"the window is said to begin at {place.offset}, not {wanted}")
            return seconds

        def roll() -> None:
            log.appender.append(timed_set(_START_MS + _SPAN_MS * (log.log_end_offset + 1)))

        def remove() -> None:
            log.expiry.trim(log.segments[1].base_offset)
            log.expiry.drop_expired()

        def after(change: Callable[[], None]) -> float:
            seconds = []
            for _ in range(_CHANGES):
                change()
                seconds.append(look())
            return median(seconds)

        found = FirstLooks(look(), after(roll), after(remove))
        folder.let_go()
    return found


def in_order(count: int, rng: random.Random) -> Times:
    """A day of messages in the order of their times."""
    return (_NOON_MS + number * _DAY_MS // count for number in range(count))


def jitter(count: int, rng: random.Random) -> Times:
    """Messages up to ten minutes early or late."""
    around = 10 * _MINUTE_MS
    return (at_ms + rng.randrange(-around, around) for at_ms in in_order(count, rng))


def jitter_and_ahead(count: int, rng: random.Random) -> Times:
    """The same, with one message in 2,000 up to three days ahead."""
    for at_ms in jitter(count, rng):
        yield at_ms + rng.randrange(3 * _DAY_MS) if rng.random() < 0.0005 else at_ms


def a_year_back(count: int, rng: random.Random) -> Times:
    """Messages in order, with one in a hundred up to a year old."""
    for at_ms in in_order(count, rng):
        yield at_ms - rng.randrange(_YEAR_MS) if rng.random() < 0.01 else at_ms


def two_clocks(count: int, rng: random.Random) -> Times:
    """Two producers that alternate, one with a clock that is a day behind."""
    return (at_ms - number % 2 * _DAY_MS for number, at_ms in enumerate(in_order(count, rng)))


def uniform(count: int, rng: random.Random) -> Times:
    """Messages with random times of one day."""
    return (_NOON_MS + rng.randrange(_DAY_MS) for _ in range(count))


def one_time(count: int, rng: random.Random) -> Times:
    """Messages that all have the same time."""
    return (_NOON_MS for _ in range(count))


def no_times(count: int, rng: random.Random) -> Times:
    """Messages of format v0, which have no time."""
    return (-1 for _ in range(count))


def backfill(count: int, rng: random.Random) -> Times:
    """Messages in order, with last year's in the middle third."""
    for number, at_ms in enumerate(in_order(count, rng)):
        back = count // 3 <= number < 2 * count // 3
        yield at_ms - _YEAR_MS if back else at_ms


SHAPES: Final[tuple[tuple[str, Callable[[int, random.Random], Times]], ...]] = (
    ("in order", in_order),
    ("jitter ±10 min", jitter),
    ("that, 0.05 % up to 3 days ahead", jitter_and_ahead),
    ("1 % up to a year back", a_year_back),
    ("two clocks a day apart", two_clocks),
    ("uniformly random", uniform),
    ("one time for all", one_time),
    ("none", no_times),
    ("a backfill of last year", backfill),
)


@dataclass(frozen=True, slots=True)
class ShapeRow:
    """The results of one shape."""

    shape: str
    map_share: float
    read_ratio: float
    """The worst ratio of all windows; 0 if no window has a message."""
    first_seconds: float
    scan_seconds: float
    make_bytes_a_second: float

    @property
    def text(self) -> str:
        """Return a row of a table in Markdown."""
        ratio = f"{self.read_ratio:.2f}" if self.read_ratio else "-"
        return (
            f"| {self.shape} | {100 * self.map_share:.3f} % | {ratio} "
            f"| {1e3 * self.first_seconds:.2f} ms | {1e3 * self.scan_seconds:.0f} ms "
            f"| {self.make_bytes_a_second / 1e9:.1f} GB/s |"
        )


def main() -> None:
    """Measure, print a table, and print how long searches in many segments take."""
    print(
        "| shape | map / log | read / blocks with an answer | first message | full scan | making |"
    )
    print("|---|---|---|---|---|---|")
    for shape, times in SHAPES:
        with TemporaryDirectory(prefix="horolog-bench-") as folder:
            row = measured(shape, list(times(MESSAGES, random.Random(1))), Path(folder) / "t-0")
        print(row.text, flush=True)
    looks = first_looks()
    print(
        f"\n{SEGMENTS:,} segments: {looks.at_first * 1e3:.1f} ms at first, then "
        f"{looks.after_roll * 1e6:.0f} us after a roll and {looks.after_removal * 1e6:.0f} us "
        "after a removal"
    )


def measured(shape: str, times: Sequence[int], path: Path) -> ShapeRow:
    """Measure one shape. Raises `AssertionError` if the map lacks a block."""
    folder = LogFolder(path)
    folder.open(retention_ms=-1, segment_bytes=1 << 30)
    log = folder.log
    try:
        for begin in range(0, len(times), _A_SET):
            log.appender.append(_record_set(times[begin : begin + _A_SET]))
        made = _make(log)
        (segment,) = log.segments
        data = segment.time_map.data()
        held = list(time_map_blocks(data, 0))
        timed = [at_ms for at_ms in times if at_ms >= 0]
        ratios, first_seconds = [], []
        for window in _windows(timed):
            began = time.perf_counter()
            place = windows.find_position(log, 0, window, log.high_watermark)
            if place.end_offset > place.offset:
                reader.read(log, place.offset, 64 << 10).read()
            first_seconds.append(time.perf_counter() - began)
            runs = time_map_runs(data, base_offset=0, from_ms=window[0], last_ms=window[1])
            read = sum(end - position for position, end, _, _ in runs)
            answering = 0
            for block in held:
                some = times[block.offset : block.next_offset]
                if any(window.first_ms <= at_ms <= window.last_ms for at_ms in some):
                    answering += block.end - block.position
                    assert any(first <= block.offset < end for _, _, first, end in runs)
            if answering:
                ratios.append(read / answering)
        return ShapeRow(
            shape,
            len(data) / segment.size_bytes,
            max(ratios, default=0),
            median(first_seconds) if first_seconds else 0.0,
            _scan(log),
            made,
        )
    finally:
        folder.let_go()


def _record_set(times: Sequence[int]) -> bytes:
    records = [NewRecord(b"v" * 100, timestamp_ms=at_ms) for at_ms in times]
    return bytes(build_set(records, magic=0 if times[0] < 0 else 1))


def _make(log: Log) -> float:
    """Make the map from the log; return bytes a second."""
    (segment,) = log.segments
    segment.time_map.forget()
    mapping, cuts = windows.mapping(log, segment), segment.cuts
    began = time.perf_counter()
    mapping.run()
    taken = time.perf_counter() - began
    windows.apply_mapping(log, segment, mapping, cuts)
    return segment.time_map.log_bytes / taken


def _windows(times: Sequence[int]) -> Iterator[ReadWindow]:
    if not times:
        return
    first_ms, last_ms = min(times), max(times)
    length_ms = max((last_ms - first_ms) // _PART, 1)
    for number in range(_WINDOWS):
        begin = first_ms + number * (last_ms - first_ms - length_ms) // (_WINDOWS - 1)
        yield ReadWindow.between(max(begin, 0), begin + length_ms)


def _scan(log: Log) -> float:
    """Return the seconds of a scan of all messages' times."""
    began = time.perf_counter()
    offset = 0
    seen = array("q")
    while offset < log.high_watermark:
        data = reader.read(log, offset, 1 << 20, whole_first=True).read()
        for columns in read_columns(data, max_decompressed_bytes=1 << 26, content=()):
            seen.frombytes(columns.timestamps[-8:])
            offset = int.from_bytes(columns.offsets[-8:], "little") + 1
    return time.perf_counter() - began


def window_hour(*, messages: int = _MESSAGES, rounds: int = _ROUNDS) -> Iterator[Figure]:
    """Yield figures of a window of one hour, and of counts for each minute of the day."""
    times = array("q", jitter_and_ahead(messages, random.Random(1)))
    with broker() as (_, client):
        client.call(create_topic("bench", retention_ms=-1))
        sets = [times[begin : begin + _A_SET] for begin in range(0, messages, _A_SET)]
        sizes = [_append(client, some) for some in sets]
        check_end(client, "bench", messages)
        middle = times[messages // 2]
        from_ms = middle - middle % _HOUR_MS
        inside = sum(from_ms <= at_ms < from_ms + _HOUR_MS for at_ms in times)
        answering = sum(
            size
            for size, some in zip(sizes, sets, strict=True)
            if any(from_ms <= at_ms < from_ms + _HOUR_MS for at_ms in some)
        )
        _read(client, from_ms, messages)  # The first one makes the time map.
        found = [_read(client, from_ms, messages) for _ in range(rounds)]
        if {one[0] for one in found} != {inside}:
            raise RefusedRequest(f"the hour has {inside} messages, {found[0][0]} came")
        ratio = median(one[1] for one in found) / answering
        rate = median(inside / one[3] for one in found)
        yield Figure("window_hour", rate, "msg/s", "bytes of blocks with an answer", ratio)
        yield Figure("window_hour_first", median(one[2] for one in found), "s")
        day_ms = min(times) // _MINUTE_MS * _MINUTE_MS
        yield Figure("count_by_time", _count(client, day_ms, times, rounds), "s")


def _append(client: RawClient, times: "array[int]") -> int:
    records = [NewRecord(b"v" * 100, timestamp_ms=at_ms) for at_ms in times]
    data = bytes(build_set(records))
    client.exchange(encoded(produce("bench", data, acks=1)))
    return len(data)


def _read(client: RawClient, from_ms: int, end_offset: int) -> tuple[int, int, float, float]:
    """Read the messages of the hour; return their number, the bytes received, and the seconds to
    the first and to the last."""
    until_ms = from_ms + _HOUR_MS
    offset = messages = read_bytes = 0
    first_seconds = 0.0
    began = time.perf_counter()
    while offset < end_offset:
        wanted = FetchPartition(
            partition=0,
            fetch_offset=offset,
            partition_max_bytes=_FETCH_BYTES,
            window_from_ms=from_ms,
            window_until_ms=until_ms,
        )
        answer = result(
            client.call(
                FetchRequest(
                    topics=[FetchTopic(name="bench", partitions=[wanted])], max_bytes=_FETCH_BYTES
                )
            )
        )
        read_bytes += len(answer.records)
        offset = answer.next_offset
        for columns in read_columns(answer.records, max_decompressed_bytes=1 << 24, content=()):
            stamps = memoryview(columns.timestamps).cast("q")
            messages += sum(from_ms <= at_ms < until_ms for at_ms in stamps)
            offset = memoryview(columns.offsets).cast("q")[-1] + 1
        if messages and not first_seconds:
            first_seconds = time.perf_counter() - began
    return messages, read_bytes, first_seconds, time.perf_counter() - began


def _count(client: RawClient, from_ms: int, times: "array[int]", rounds: int) -> float:
    """Return the seconds of a count of a day by minutes."""
    until_ms = from_ms + 24 * _HOUR_MS
    expected = Counter((at_ms - from_ms) // _MINUTE_MS for at_ms in times)
    seconds = []
    for _ in range(rounds):
        counts = [0] * (24 * 60)
        from_offset, end_offset = 0, -1
        began = time.perf_counter()
        while from_offset >= 0:
            answer = client.call(
                CountByTimeRequest(
                    topic="bench",
                    partition=0,
                    from_ms=from_ms,
                    until_ms=until_ms,
                    every_ms=_MINUTE_MS,
                    from_offset=from_offset,
                    end_offset=end_offset,
                )
            )
            if answer.error_code:
                raise RefusedRequest(str(answer.error_message))
            counts = list(map(add, counts, answer.counts))
            from_offset, end_offset = answer.next_offset, answer.end_offset
        seconds.append(time.perf_counter() - began)
        if counts != [expected[minute] for minute in range(24 * 60)]:
            raise RefusedRequest("the counts are wrong")
    return median(seconds)


if __name__ == "__main__":
    main()
