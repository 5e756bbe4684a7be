"""What the records of a batch say, all of them together: counts, times, latency.

It runs as it is and compiled, as `walk` does. What is in a record is read by `record_cursor`.
"""

from bisect import bisect_left
from typing import Any, Final

from ..latency import LATENCY_BUCKETS_MS, LatencyCounts
from ..layout import NO_TIMESTAMP, Buffer
from .record_cursor import NO_MORE, RECORD, RecordCursor

try:
    import cython
except ImportError:
    from . import uncompiled as cython

if not cython.compiled:
    from .uncompiled import usual

FORM: Final = "compiled" if cython.compiled else "interpreted"
"""How this module runs."""

BAD_OFFSET: Final = -4
"""The record's offset is not one more than that of the record before it."""
BAD_TIME: Final = -5
"""The record's timestamp does not fit into 64 bits."""

_RECORD: Final = RECORD
_NO_MORE: Final = NO_MORE
_BAD_OFFSET: Final = BAD_OFFSET
_BAD_TIME: Final = BAD_TIME
_NO_TIME: Final = NO_TIMESTAMP
_LARGEST_INT64: Final = 2**63 - 1
_SMALLEST_INT64: Final = -(2**63)
_LARGE_SUM: Final = 2**62
_BOUNDS: Final = LATENCY_BUCKETS_MS
_BUCKETS: Final = len(LATENCY_BUCKETS_MS) + 1


class RecordsFound:
    """What is in the good records of a batch, up to the first that is not good.

    count: how many there are.
    min_timestamp_ms, max_timestamp_ms: over the timestamps that are not -1 (a broken sender's can
        be below it); -1 without any.
    max_delta: offset delta of the first record that has the largest timestamp; -1 without any.
    untimed: how many have no timestamp.
    problem: `NO_MORE` when all are good, else what is wrong with the one that is not.
    problem_position: where that one begins.
    latency: latencies against `now_ms`, if they were asked for, by the rules of `Walk.latency`.
    """

    __slots__ = (
        "count",
        "latency",
        "max_delta",
        "max_timestamp_ms",
        "min_timestamp_ms",
        "problem",
        "problem_position",
        "untimed",
    )

    count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    max_delta: int
    untimed: int
    problem: int
    problem_position: int
    latency: LatencyCounts | None


class RecordTally:
    """Adds up what the records of batches say, batch by batch.

    now_ms: latencies are counted against it, if it is >= 0.
    count, untimed: of the batch that was added last: how many good records, how many of those have
        no timestamp.
    max_timestamp_ms, max_delta: of that batch, as in `RecordsFound`.
    all_count, all_untimed, all_min_ms, all_max_ms: over all batches; times as in `RecordsFound`.
    """

    __slots__ = (
        "_above_ms",
        "_bucket",
        "_counts",
        "_skewed",
        "_sum_ms",
        "_total_ms",
        "_upto_ms",
        "all_count",
        "all_max_ms",
        "all_min_ms",
        "all_untimed",
        "count",
        "max_delta",
        "max_timestamp_ms",
        "now_ms",
        "untimed",
    )

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        if not cython.compiled:
            self._counts = [0] * _BUCKETS
        else:
            for bucket in range(_BUCKETS):
                self._counts[bucket] = 0
        self._bucket = self._skewed = self._sum_ms = 0
        self._total_ms: Any = 0
        self._above_ms = self._upto_ms = -1
        self.count = self.untimed = self.all_count = self.all_untimed = 0
        self.all_min_ms = self.all_max_ms = self.max_timestamp_ms = self.max_delta = _NO_TIME

    def add(self, cursor: RecordCursor, base_timestamp_ms: int) -> int:
        """Add the records of a batch that `cursor` has before it; returns what its last `step` did,
        or `BAD_OFFSET`, `BAD_TIME`.

        Their offset deltas must be 0, 1, ... as a producer's are.
        """
        now_ms, bucket = self.now_ms, self._bucket
        above_ms, upto_ms, sum_ms = self._above_ms, self._upto_ms, self._sum_ms
        count = untimed = run = 0
        min_ms = _LARGEST_INT64
        max_ms = max_delta = -1
        while True:
            step = _RECORD if cython.compiled and usual(cursor) else cursor.step_any()
            if step != _RECORD:
                break
            if cursor.offset_delta != count:
                step = _BAD_OFFSET
                break
            delta_ms = cursor.timestamp_delta_ms
            if delta_ms >= 0:
                if base_timestamp_ms > _LARGEST_INT64 - delta_ms:
                    step = _BAD_TIME
                    break
            elif base_timestamp_ms < _SMALLEST_INT64 - delta_ms:
                step = _BAD_TIME
                break
            timestamp = base_timestamp_ms + delta_ms
            if timestamp == _NO_TIME:
                untimed += 1
            else:
                if timestamp > max_ms or untimed == count:
                    max_ms = timestamp
                    max_delta = count
                if timestamp < min_ms:
                    min_ms = timestamp
                if now_ms >= 0 and timestamp >= 0:
                    latency_ms = now_ms - timestamp
                    if latency_ms < 0:
                        self._skewed += 1
                        latency_ms = 0
                    if not above_ms < latency_ms <= upto_ms:
                        self._counts[bucket] += run
                        run = 0
                        bucket = _bucket(latency_ms)
                        above_ms = _BOUNDS[bucket - 1] if bucket else -1
                        upto_ms = _BOUNDS[bucket] if bucket < _BUCKETS - 1 else _LARGEST_INT64
                    run += 1
                    sum_ms += latency_ms
                    if sum_ms > _LARGE_SUM:
                        self._total_ms += sum_ms
                        sum_ms = 0
            count += 1
        self._counts[bucket] += run
        self._bucket, self._above_ms, self._upto_ms, self._sum_ms = (
            bucket,
            above_ms,
            upto_ms,
            sum_ms,
        )
        self.count = count
        self.untimed = untimed
        self.max_timestamp_ms = max_ms
        self.max_delta = max_delta
        if untimed < count:
            if self.all_untimed == self.all_count:
                self.all_min_ms = min_ms
                self.all_max_ms = max_ms
            self.all_min_ms = min(self.all_min_ms, min_ms)
            self.all_max_ms = max(self.all_max_ms, max_ms)
        self.all_count += count
        self.all_untimed += untimed
        return step

    def latency(self) -> LatencyCounts | None:
        """Latencies of all, by the rules of `Walk.latency`; `None` if they were not asked for."""
        if self.now_ms < 0:
            return None
        if self.all_untimed == self.all_count or self.all_min_ms < _NO_TIME:
            return LatencyCounts(untimed=self.all_count)
        slowest_ms = max(self.now_ms - self.all_min_ms, 0)
        sum_ms = self._total_ms + self._sum_ms
        counts = [self._counts[number] for number in range(_BUCKETS)]
        return LatencyCounts(counts, self._skewed, self.all_untimed, sum_ms, slowest_ms)


def check_records(
    buffer: Buffer, start: int, end: int, *, base_timestamp_ms: int, now_ms: int = -1
) -> RecordsFound:
    """Go over the uncompressed records in `buffer[start:end]`; no content makes it raise.

    Their offset deltas must be 0, 1, ... as a producer's are. `now_ms` >= 0 asks for latencies.
    """
    return _check(memoryview(buffer), start, end, base_timestamp_ms, now_ms)


def _check(
    view: memoryview, start: int, end: int, base_timestamp_ms: int, now_ms: int
) -> RecordsFound:
    cursor = RecordCursor(view, start, end)
    tally = RecordTally(now_ms)
    found = RecordsFound.__new__(RecordsFound)
    found.problem = tally.add(cursor, base_timestamp_ms)
    found.problem_position = cursor.position if found.problem != _NO_MORE else end
    found.count = tally.count
    found.untimed = tally.untimed
    found.min_timestamp_ms = tally.all_min_ms
    found.max_timestamp_ms = tally.max_timestamp_ms
    found.max_delta = tally.max_delta
    found.latency = tally.latency()
    return found


def find_timestamp(cursor: RecordCursor, base_timestamp_ms: int, target_ms: int) -> int:
    """Bring `cursor` to its next record that has a timestamp >= `target_ms`.

    Returns what its last `step` did: `RECORD` where there is one.
    """
    while True:
        step = cursor.step()
        if step != _RECORD or cursor.timestamp_delta_ms + base_timestamp_ms >= target_ms:
            return step


def _bucket(latency_ms: int) -> int:
    """As `latency_bucket`."""
    if not cython.compiled:
        return bisect_left(_BOUNDS, latency_ms)
    bucket = 0
    while bucket < _BUCKETS - 1 and latency_ms > _BOUNDS[bucket]:
        bucket += 1
    return bucket
