"""Measures the kernel's cost per message, in both forms: `python -m horolog.bench.kernel`.

Prints processor time, the best of many tries. The two forms take turns, so that the ratios hold on
a machine with other load. Sets have 64 KiB, or one message where the cost of a call is measured.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType

from ..protocol.records import kernel
from ..protocol.records.kernel import reference
from ..protocol.records.kernel.terms import OWN, Offsets
from ..protocol.records.layout import BATCH_MAGIC, BATCH_OVERHEAD, NO_TIMESTAMP
from ..protocol.records.messages.sets import NewRecord, build_set
from ..storage.index.time_map import BLOCK_BYTES, CLOSE_MS
from ..times import INT64_MAX

NOW_MS = 1_479_144_272_509
SET_BYTES = 64 << 10
TRIES = 30
TRY_SECONDS = 0.002
"""Approximate time for which a try repeats its work."""

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Cost:
    """Nanoseconds of processor time per message."""

    what: str
    value_bytes: int
    compiled: float
    reference: float

    @property
    def ratio(self) -> float:
        return self.reference / self.compiled


def main() -> int:
    if kernel.FORM != "compiled":
        sys.stderr.write("the kernel is not compiled: make setup does it where a compiler is\n")
        return 1
    print(f"{'ns per message':<24} {'value':>7} {'compiled':>9} {'reference':>10} {'ratio':>6}")
    for cost in costs():
        print(
            f"{cost.what:<24} {cost.value_bytes:>5} B {cost.compiled:>9.1f}"
            f" {cost.reference:>10.1f} {cost.ratio:>6.1f}"
        )
    return 0


def costs(tries: int = TRIES) -> Iterator[Cost]:
    """Yield the cost of every kind of work, in both forms."""
    for value_bytes in (100, 1024):
        for what, messages, work in works(value_bytes):
            best = _best([partial(work, kernel), partial(work, reference)], tries)
            yield Cost(what, value_bytes, best[0] / messages, best[1] / messages)


OfForm = Callable[[ModuleType], object]
"""Work that is called with one form of the kernel."""


def works(value_bytes: int) -> Iterator[tuple[str, int, OfForm]]:
    """Yield every kind of work: its name, its number of messages, and the work."""
    count = SET_BYTES // (value_bytes + 34)
    yield "walk", count, _walk(value_bytes, count, 0)
    yield "walk, many latencies", count, _walk(value_bytes, count, 5)
    yield "walk, one message", 1, _walk(value_bytes, 1, 0)
    yield "store as sent", count, _take(value_bytes, count, 1)
    yield "store as sent: records", count, _take(value_bytes, count, 2)
    yield "first offset at a time", count, _scan(value_bytes, count)
    yield "encode", count, _encode("SetEncoder", value_bytes, count)
    yield "columns", count, _columns(value_bytes, count)
    yield "append times", count, _stamp(value_bytes, count)
    yield "v1 to v0", count, _rewrite(value_bytes, count)
    yield "records: check", count, _check(value_bytes, count)
    yield "records: encode", count, _encode("RecordEncoder", value_bytes, count)
    yield "records: columns", count, _record_columns(value_bytes, count)
    yield "records to v1", count, _to_messages(value_bytes, count)


def _records(value_bytes: int, count: int, apart_ms: int) -> list[NewRecord]:
    return [NewRecord(bytes(value_bytes), None, NOW_MS - 3 - apart_ms * n) for n in range(count)]


def _walk(value_bytes: int, count: int, apart_ms: int) -> OfForm:
    """Walk over a set as for an append: CRC, times, latencies, index marks, assigned offsets."""
    data = build_set(_records(value_bytes, count, apart_ms))

    def run(module: ModuleType) -> object:
        return module.walk(
            data,
            0,
            len(data),
            offsets=Offsets.ASSIGN,
            base_offset=5,
            now_ms=NOW_MS,
            interval_bytes=4096,
        )

    return run


def _take(value_bytes: int, count: int, magic: int) -> OfForm:
    """Admit a set that is stored as sent, with all the work that a broker does per message. The
    Python form has no fast path."""
    data = build_set(_records(value_bytes, count, 0), magic=magic)

    def run(module: ModuleType) -> object:
        return (_plain_admission if module is reference else _fast_path)(module, data, magic)

    return run


def _fast_path(module: ModuleType, data: bytearray, magic: int) -> object:
    found = module.take_unchanged(
        [data],
        base_offset=5,
        now_ms=NOW_MS,
        magics=1 << magic,
        append_time_ms=NO_TIMESTAMP,
        lowest_ms=0,
        highest_ms=INT64_MAX,
        entry_max_bytes=len(data),
        room_bytes=len(data),
        marks_max=100,
        interval_bytes=4096,
        since_bytes=0,
        largest_ms=NO_TIMESTAMP,
        magic=magic,
        segment_offset=0,
        segment_position=0,
        close_ms=CLOSE_MS,
        block_bytes=BLOCK_BYTES,
    )
    if found is None:
        raise ValueError("the set is not stored as it was sent")
    return found


def _plain_admission(module: ModuleType, data: bytearray, magic: int) -> object:
    size = len(data)
    found = module.walk(
        *(data, 0, size),
        offsets=Offsets.ASSIGN,
        base_offset=5,
        now_ms=NOW_MS,
        interval_bytes=4096,
    )
    if magic == BATCH_MAGIC:
        module.check_records(
            data, BATCH_OVERHEAD, size, base_timestamp_ms=NOW_MS - 3, now_ms=NOW_MS
        )
    return found


def _scan(value_bytes: int, count: int) -> OfForm:
    data = build_set(_records(value_bytes, count, 0))
    return lambda module: module.scan_timestamp(data, 0, len(data), NOW_MS)


def _encode(encoder_name: str, value_bytes: int, count: int) -> OfForm:
    records = _records(value_bytes, count, 0)

    def run(module: ModuleType) -> object:
        encoder = getattr(module, encoder_name)()
        for record in records:
            encoder.add(record.value, record.key, record.timestamp_ms)
        return encoder.finish()

    return run


def _columns(value_bytes: int, count: int) -> OfForm:
    data = build_set(_records(value_bytes, count, 0))
    return lambda module: module.gather(data, 0, len(data), count)


def _stamp(value_bytes: int, count: int) -> OfForm:
    data = build_set(_records(value_bytes, count, 0))
    return lambda module: module.stamp(data, 0, len(data), NOW_MS)


def _rewrite(value_bytes: int, count: int) -> OfForm:
    data = build_set(_records(value_bytes, count, 0))

    def run(module: ModuleType) -> object:
        return module.rewrite(bytearray(), data, 0, len(data), 0, OWN, 0, OWN)

    return run


def _content(value_bytes: int, count: int) -> memoryview:
    """The records of a batch that is not compressed."""
    batch = build_set(_records(value_bytes, count, 0), magic=2)
    return memoryview(batch)[BATCH_OVERHEAD:]


def _check(value_bytes: int, count: int) -> OfForm:
    """Check the records of a batch as for an append."""
    data = _content(value_bytes, count)

    def run(module: ModuleType) -> object:
        size = len(data)
        return module.check_records(data, 0, size, base_timestamp_ms=NOW_MS - 3, now_ms=NOW_MS)

    return run


def _record_columns(value_bytes: int, count: int) -> OfForm:
    data = _content(value_bytes, count)
    return lambda module: module.gather_records(data, base_offset=0, base_timestamp_ms=NOW_MS)


def _to_messages(value_bytes: int, count: int) -> OfForm:
    data = _content(value_bytes, count)
    return lambda module: module.records_to_messages(
        bytearray(), data, 0, magic=1, base_offset=0, base_timestamp_ms=NOW_MS
    )


def _best(works: list[Work], tries: int) -> list[float]:
    """Return the nanoseconds of one call of each work."""
    repeats = [max(int(TRY_SECONDS * 1e9 / max(_timed(work, 1), 1)), 1) for work in works]
    best = [float("inf")] * len(works)
    for _ in range(tries):
        for place, (work, repeated) in enumerate(zip(works, repeats, strict=True)):
            best[place] = min(best[place], _timed(work, repeated))
    return best


def _timed(work: Work, repeated: int) -> float:
    began = time.process_time_ns()
    for _ in range(repeated):
        work()
    return (time.process_time_ns() - began) / repeated


if __name__ == "__main__":
    sys.exit(main())
