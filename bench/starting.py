"""Measures starts of brokers without data and with 3,500 partitions: time to the ready line, and
memory. Also measures the speed of recovery after an unclean stop."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.request import urlopen

from ..protocol.records.messages.sets import NewRecord, build_set
from ..testing.program import WITH_HTTP, ServerProcess, serving
from ..testing.requests import create_topic, produce
from .brokers import (
    MIB,
    broker,
    data_folder,
    kernel_choice,
    processor_seconds,
    resident_bytes,
    sets,
)
from .figure import Figure
from .raw_client import RefusedRequest, check_end, encoded

_LOG_BYTES: Final = 512 * MIB
_ROUNDS: Final = 3
_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
_STARTS: Final = 5
_PARTITIONS: Final = 3_500
_MINUTES: Final = 1_440
_FIRST_MS: Final = 1_479_144_240_000
_SETTLED_SECONDS: Final = 0.5
_SETTLED_SHARE: Final = 0.04


def empty() -> Iterator[Figure]:
    """A broker on an empty directory."""
    with data_folder() as data:
        yield Figure("start_empty", _median_start_seconds(data), "s")
    with broker() as (server, client):
        client.call(create_topic("bench"))
        yield Figure("rss_idle", _settled_bytes(server), "bytes")


def of_3500() -> Iterator[Figure]:
    """Start a broker with 3,500 partitions, each with a message and an index entry for each minute
    of a day, after a clean stop."""
    with data_folder() as data:
        _fill(data)
        yield Figure("start_3500", _median_start_seconds(data), "s")
        with broker(data=data) as (server, _):
            used = _settled_bytes(server)
            metrics = urlopen(f"http://{server.http}/metrics").read().decode()
            found = len(re.findall(rf"^horolog_log_end_offset{{.*}} {_MINUTES}\b", metrics, re.M))
            if found < _PARTITIONS:
                raise RefusedRequest(f"the metrics name {found} partitions as they should be")
            yield Figure("rss_3500", used, "bytes")


def _median_start_seconds(data: Path) -> float:
    return median(start_seconds(data) for _ in range(_STARTS))


def start_seconds(data: Path) -> float:
    """Yield the time from the start of the process to its ready line, after a clean stop."""
    began = time.perf_counter()
    with serving(data, *WITH_HTTP, env=kernel_choice()) as server:
        taken = time.perf_counter() - began
        _stop(server)
    return taken


def _settled_bytes(server: ServerProcess) -> int:
    """Return the resident memory after all imports and with all logs open."""
    urlopen(f"http://{server.http}/metrics").read()
    used = processor_seconds(server)
    while True:
        time.sleep(_SETTLED_SECONDS)
        before, used = used, processor_seconds(server)
        if used - before < _SETTLED_SHARE * _SETTLED_SECONDS:
            return resident_bytes(server)


def _fill(data: Path) -> None:
    records = [
        NewRecord(b"", timestamp_ms=_FIRST_MS + 60_000 * minute) for minute in range(_MINUTES)
    ]
    day = bytes(build_set(records))
    with broker(data=data) as (server, client):
        topic = create_topic("bench", _PARTITIONS, retention_ms=-1, index_interval_bytes=1)
        client.call(topic)
        for partition in range(_PARTITIONS):
            client.exchange(encoded(produce("bench", day, partition=partition, acks=1)))
        check_end(client, "bench", _MINUTES)
        _stop(server)


def _stop(server: ServerProcess) -> None:
    """Stop a broker cleanly, and wait until its syncs are done."""
    server.process.terminate()
    if server.process.wait() != 0:
        raise RefusedRequest(f"the stop was not clean: {server.log.read_text()}")


def recovery() -> Iterator[Figure]:
    """Yield the speed of the recovery of a killed broker's log of 512 MiB, which no checkpoint
    covers."""
    with data_folder() as data:
        log_format = ("--set", "log.format=json")
        rates: list[float] = []
        with broker(*log_format, data=data) as (server, client):
            client.call(create_topic("bench", retention_ms=-1, segment_bytes=128 * MIB))
            some, count = sets(100, 64 << 10)
            times = _LOG_BYTES // len(some)
            client.pipeline(encoded(produce("bench", some, acks=1)), 1, times, 8)
            check_end(client, "bench", times * count)
        for _ in range(_ROUNDS):
            (data / _CHECKPOINT).unlink(missing_ok=True)
            with broker(*log_format, data=data) as (server, client):
                check_end(client, "bench", times * count)
                event = _recovered(server)
                server.log.unlink()
            rates.append(event["bytes"] / (event["ms"] / 1000))
        yield Figure("recovery", median(rates), "bytes/s")


def _recovered(server: ServerProcess) -> dict[str, Any]:
    """Return the broker's log event about its recovery, written a moment after the ready line."""
    while True:
        for line in server.log.read_text().splitlines():
            event: dict[str, Any] = json.loads(line)
            if event.get("event") == "recovery_finished":
                return event
        time.sleep(0.01)
