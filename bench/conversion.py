"""Measures the cost of conversion between message formats: `python -m horolog.bench.conversion`.

Prints processor time per message, the best of many tries: of an append with and without conversion,
and of a fetch for a reader that knows only format v0.
"""

import sys
import time
from collections.abc import Callable, Iterator

from ..config.topic import topic_settings
from ..protocol.records.layout import MESSAGE_CODECS, Codec
from ..protocol.records.messages.downconversion import downconversion, run
from ..protocol.records.messages.sets import NewRecord, build_set
from ..storage.log.admission import admit
from ..storage.log.admitted import AppendTarget

NOW_MS = 1_479_144_272_509
MESSAGES = 500
SIZES = (100, 1024)
TRIES = 200
PLENTY = 1 << 24


def main() -> int:
    print(f"{'what':<28} {'codec':<8} {'value':>6}  ns per message")
    for what, codec, value_bytes, nanoseconds in figures():
        print(f"{what:<28} {codec:<8} {value_bytes:>4} B {nanoseconds:>10.0f}")
    return 0


def figures() -> Iterator[tuple[str, str, int, float]]:
    """Yield for each measurement: its name, the codec, the size of a value, nanoseconds per
    message."""
    for value_bytes in SIZES:
        for codec in MESSAGE_CODECS:
            for what, magic, version in (
                ("append, v1 as it is", 1, "producer"),
                ("append, v0 to v1", 0, "0.10.0"),
                ("append, v1 to v0", 1, "0.9.0"),
            ):
                yield what, codec.label, value_bytes, _append(magic, codec, version, value_bytes)
            yield "fetch, v1 to v0", codec.label, value_bytes, _fetch(codec, value_bytes)


def _set(magic: int, codec: Codec, value_bytes: int) -> bytes:
    """Return a set of values that compress about as well as text."""
    text = b"".join(b"%x " % (at * 2654435761 % 2**32) for at in range(MESSAGES * value_bytes // 6))
    time_ms = NOW_MS if magic else -1
    new = [
        NewRecord(text[at * value_bytes :][:value_bytes], timestamp_ms=time_ms)
        for at in range(MESSAGES)
    ]
    return bytes(build_set(new, magic=magic, codec=codec))


def _append(magic: int, codec: Codec, version: str, value_bytes: int) -> float:
    settings = topic_settings({}, {"message.format.version": version})
    target = AppendTarget(
        next_offset=1_000_000, now_ms=NOW_MS, stamp_ms=NOW_MS, stopwatch=time.monotonic
    )
    sent = _set(magic, codec, value_bytes)
    return _best(lambda: admit(bytearray(sent), settings, target))


def _fetch(codec: Codec, value_bytes: int) -> float:
    stored = _set(1, codec, value_bytes)
    return _best(lambda: run(downconversion(stored, max_bytes=PLENTY, max_content_bytes=PLENTY)))


def _best(work: Callable[[], object]) -> float:
    best = sys.maxsize
    for _ in range(TRIES):
        began = time.process_time_ns()
        work()
        best = min(best, time.process_time_ns() - began)
    return best / MESSAGES


if __name__ == "__main__":
    sys.exit(main())
