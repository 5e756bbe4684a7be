"""What is measured, figure by figure. Broker and client are separate processes.

Names and units are fixed by those who compare runs; `bench/README.md` says how each is taken.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ..protocol.api.api_versions import ApiVersionsRequest
from ..protocol.records.layout import Codec
from ..protocol.records.sets import NewRecord, build_set
from ..testing.program import ServerProcess, serving
from ..testing.requests import create_topic, fetch, list_offsets, produce
from .raw_client import RawClient, encoded

NOW_MS = 1_479_144_272_509
_MIB = 1 << 20
_ROUND_TRIPS = 2_000
_WINDOW = 4
_PRODUCE_SECONDS = 2.0
_RETENTION_LIMIT = {
    "segment_bytes": 64 * _MIB,
    "retention_bytes": 256 * _MIB,
    "file_delete_delay_ms": 0,
    "retention_ms": -1,
}
"""Old segments go as new ones come: what is written stays in memory that is already there."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value, perhaps beside another one of the same run."""

    name: str
    value: float
    unit: str
    beside: str | None = None
    ratio: float | None = None


@contextmanager
def broker(*arguments: str) -> Iterator[tuple[ServerProcess, RawClient]]:
    """A broker on an empty directory, and a connection to it."""
    with (
        TemporaryDirectory(prefix="horolog-bench-") as folder,
        serving(Path(folder) / "data", *arguments) as server,
        closing(RawClient(server.native)) as client,
    ):
        yield server, client


def echo_p50() -> Iterator[Figure]:
    with broker() as (_, client):
        yield Figure("echo_p50", _echo(client), "s")


def _echo(client: RawClient) -> float:
    """Median time of the smallest request: the round trip that every other figure contains."""
    request = encoded(ApiVersionsRequest())
    return _median_seconds(lambda: client.exchange(request), _ROUND_TRIPS)


def _median_seconds(work: Callable[[], object], count: int) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def sets(value_bytes: int, set_bytes: int) -> tuple[bytes, int]:
    """A plain set of about `set_bytes`, and how many messages it has."""
    count = max(set_bytes // (value_bytes + 34), 1)
    record = NewRecord(b"v" * value_bytes, timestamp_ms=NOW_MS)
    return bytes(build_set([record] * count, codec=Codec.NONE)), count


def produce_rate(name: str, value_bytes: int, set_bytes: int) -> Iterator[Figure]:
    """Messages a second into a topic at its retention limit, after one full turn of it."""
    with broker() as (_, client):
        client.call(create_topic("bench", **_RETENTION_LIMIT))
        data, count = sets(value_bytes, set_bytes)
        request = encoded(produce("bench", data, acks=1))
        one_turn = (_RETENTION_LIMIT["retention_bytes"] + 64 * _MIB) // len(data)
        client.pipeline([request] * one_turn, _WINDOW)
        appended, began = 0, time.perf_counter()
        while (seconds := time.perf_counter() - began) < _PRODUCE_SECONDS:
            client.pipeline([request] * 64, _WINDOW)
            appended += 64 * count
        yield Figure(name, appended / seconds, "msg/s")


def produce_one() -> Iterator[Figure]:
    """One message a request, one request at a time."""
    with broker() as (_, client):
        client.call(create_topic("bench"))
        echo = _echo(client)
        request = encoded(produce("bench", sets(100, 1)[0], acks=1))
        median = _median_seconds(lambda: client.exchange(request), _ROUND_TRIPS)
        yield Figure("produce_one", median, "s", "echo_p50", median / echo)


def fetch_rate(name: str, fetch_bytes: int) -> Iterator[Figure]:
    """Bytes a second out of 64 MiB that are in memory, one fetch at a time."""
    with broker() as (_, client):
        client.call(create_topic("bench", retention_ms=-1))
        data, count = sets(100, 256 << 10)
        client.pipeline([encoded(produce("bench", data, acks=1))] * 256, _WINDOW)
        end = 256 * count
        requests = [
            encoded(fetch("bench", (0, offset), partition_max_bytes=fetch_bytes))
            for offset in range(0, end - fetch_bytes // 100, end // 64)
        ]
        fetched, began = 0, time.perf_counter()
        while (seconds := time.perf_counter() - began) < _PRODUCE_SECONDS:
            for request in requests:
                fetched += len(client.exchange(request))
        yield Figure(name, fetched / seconds, "bytes/s")


def find_time(name: str, segments: int) -> Iterator[Figure]:
    """The first offset at a time, median, in a log of so many segments."""
    with broker() as (_, client):
        client.call(create_topic("bench", retention_ms=-1, segment_bytes=16 << 10))
        data_sets = [
            bytes(
                build_set(
                    [NewRecord(b"v" * 100, timestamp_ms=NOW_MS + 120 * at + i) for i in range(120)]
                )
            )
            for at in range(segments)
        ]
        client.pipeline([encoded(produce("bench", data, acks=1)) for data in data_sets], _WINDOW)
        echo = _echo(client)
        targets = [NOW_MS + (7919 * at) % (120 * segments) for at in range(_ROUND_TRIPS)]
        requests = iter([encoded(list_offsets("bench", (0, target))) for target in targets])
        median = _median_seconds(lambda: client.exchange(next(requests)), _ROUND_TRIPS)
        yield Figure(name, median, "s", "echo_p50", median / echo)


def start_empty() -> Iterator[Figure]:
    """From the start of the process to its ready line."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        with broker():
            times.append(time.perf_counter() - began)
    yield Figure("start_empty", statistics.median(times), "s")


def rss_idle() -> Iterator[Figure]:
    """Resident memory of a broker that has answered and is left alone."""
    with broker() as (server, client):
        client.call(create_topic("bench"))
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        yield Figure("rss_idle", int(line.split()[1]) * 1024, "bytes")


FIGURES: dict[str, Callable[[], Iterator[Figure]]] = {
    "echo_p50": echo_p50,
    "produce_100B_16KiB": lambda: produce_rate("produce_100B_16KiB", 100, 16 << 10),
    "produce_100B_64KiB": lambda: produce_rate("produce_100B_64KiB", 100, 64 << 10),
    "produce_100B_1MiB": lambda: produce_rate("produce_100B_1MiB", 100, 1_000_000),
    "produce_1KiB_64KiB": lambda: produce_rate("produce_1KiB_64KiB", 1024, 64 << 10),
    "produce_one": produce_one,
    "fetch_64KiB": lambda: fetch_rate("fetch_64KiB", 64 << 10),
    "fetch_1MiB": lambda: fetch_rate("fetch_1MiB", _MIB),
    "find_time_1": lambda: find_time("find_time_1", 1),
    "find_time_1000": lambda: find_time("find_time_1000", 1_000),
    "start_empty": start_empty,
    "rss_idle": rss_idle,
}
"""How each figure is taken, by its name."""
