"""`python -m horolog.bench.limits kafka`: how much of Apache Kafka's rate a broker of one Python
process can have at most, and how much Horolog has.

The produce requests and fetches of `make bench-kafka`, in turns with Kafka, Horolog, and a least
process: for produce requests the one of `loops.py` that decodes, checks, numbers, writes and
answers; for fetches the one of `answers.py`, which sends a file and looks at nothing.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ...protocol.api.kafka import frames as kafka
from ...protocol.api.log.fetch import FETCH
from ...testing.requests import fetch, result
from ..apache_kafka import Unavailable
from ..beside_kafka import ComparedSides, Rounds, compared, in_turns, produce_rate, warm_up
from ..brokers import MIB, batch
from ..fetching import fetch_all
from ..kafka_sides import Side, Sides, both, check_answer
from .answers import answering
from .loops import looping

_PRODUCED: Final = tuple((value, kib) for value in (100, 1024) for kib in (16, 64, 900))
_FETCHED: Final = (("fetch_1MiB", MIB), ("fetch_8MiB", 8 * MIB))
_SECONDS: Final = 0.5
_IN_FLIGHT: Final = 4
_FILLED_BYTES: Final = 64 * MIB


class _Least(Side):
    """A process that has one topic with one partition, whatever that is called.

    It takes the place of `Sides.fsync`, of which nothing is asked here.
    """

    def topic(self, what: str, **settings: object) -> str:
        return what

    def check_end(self, topic: str, messages: int) -> None:
        """It is not asked: each answer said that nothing was wrong."""


def main() -> int:
    print(f"{'':<24}{'Kafka':>14}{'Horolog':>14}{'ratio':>7}{'least':>14}{'ratio':>7}")
    try:
        with both() as sides, TemporaryDirectory() as folder:
            warm_up(sides.kafka)
            for row in chain(_produced(sides, Path(folder)), _fetched(sides, Path(folder))):
                assert row.fsync is not None
                figures = f"{row.kafka:>14,.5g}{row.horolog:>14,.5g}{row.ratio:>7.2f}"
                print(
                    f"{row.name:<24}{figures}{row.fsync:>14,.5g}{row.fsync / row.kafka:>7.2f}",
                    flush=True,
                )
    except Unavailable as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _produced(sides: Sides, folder: Path) -> Iterator[ComparedSides]:
    with looping(folder, "kafka") as (client, pid):
        least = _Least(sides.fsync.name, "", pid, client)
        for value_bytes, kib in _PRODUCED:
            name = f"produce_{'100B' if value_bytes == 100 else '1KiB'}_{kib}KiB"
            yield from produce_rate(replace(sides, fsync=least), name, value_bytes, kib << 10)


def _fetched(sides: Sides, folder: Path) -> Iterator[ComparedSides]:
    data, _ = batch(100, 64 << 10)
    pair = (sides.kafka, sides.written)
    topics = {side.name: side.topic("fetched", retention_ms=-1) for side in pair}
    for side in pair:
        times = _FILLED_BYTES // len(data)
        side.client.pipeline(side.produce(topics[side.name], data), 1, times, _IN_FLIGHT)
    for name, size_bytes in _FETCHED:
        requests = {
            side.name: side.request(
                fetch(topics[side.name], (0, 0), partition_max_bytes=size_bytes)
            )
            for side in pair
        }
        ours = sides.written
        frame = bytes(ours.client.exchange(requests[ours.name]))
        answer = len(frame).to_bytes(4, "big") + frame
        head_bytes = len(answer) - len(result(check_answer(memoryview(frame), FETCH)).records)
        with answering(folder, answer, head_bytes, encoding=kafka) as client:
            requests[sides.fsync.name] = requests[ours.name]
            least = _Least(sides.fsync.name, "", 0, client)
            work = partial(_fetch_rate, requests)
            in_turns((*pair, least), work)
            found: Rounds = in_turns((*pair, least), work)
        yield compared(name, "bytes/s", found)


def _fetch_rate(requests: Mapping[str, bytes], side: Side) -> float:
    """Bytes a second of one request, again and again."""
    began, done = time.perf_counter(), 0
    while (taken := time.perf_counter() - began) < _SECONDS:
        done += fetch_all(side.client, [requests[side.name]] * 8, _IN_FLIGHT)
    return done / taken
