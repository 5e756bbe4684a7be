"""Measures starts of brokers without data and with 3,500 partitions: time to the ready line, and
memory. Also measures the speed of recovery after an unclean stop, and the memory that a broker
needs for the indexes of a terabyte.

The last figure (`python -m horolog.bench index_memory`) is the resident memory of a broker that has
started with a log of 1,000 closed segments of 1 GiB each, has deleted the first of them by
retention, and has searched the log by time 1,000 times. The log files are sparse: each has entries
around one place, and the searches are for their times. The offset index has an entry for each 4
KiB, as by default, and the time index has one for each 64 KiB. The offset index is the same for all
segments: one file with many names.
"""

import json
import random
import re
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.request import urlopen
from zlib import crc32

from ..protocol.api.log.list_offsets import EARLIEST
from ..protocol.records.messages.sets import NewRecord, build_set
from ..storage.directory.checkpoints import RECOVERY_POINTS, encode_checkpoint
from ..storage.index.index_checksums import FILE_NAME, SegmentChecksums, format_checksums
from ..storage.index.index_file import bytes_of
from ..testing.program import WITH_HTTP, ServerProcess, serving
from ..testing.requests import create_topic, list_offsets, produce, result
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
from .raw_client import RawClient, RefusedRequest, check_end, encoded

_SEGMENTS: Final = 1_000
_SEGMENT_BYTES: Final = 1 << 30
_SEARCHES: Final = 1_000
_INTERVAL: Final = 4096
_MESSAGES: Final = 32
"""Number of messages that fill one interval of the offset index."""
_A_TIME_ENTRY: Final = 16
"""Intervals between two entries of the time index."""
_BASE_MS: Final = 1_479_144_272_509
_RETENTION_SECONDS: Final = 120

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


def index_memory(
    *, segments: int = _SEGMENTS, segment_bytes: int = _SEGMENT_BYTES
) -> Iterator[Figure]:
    """Measure the resident memory of the broker that the module describes."""
    with data_folder() as data:
        with broker(data=data) as (server, client):
            room = (segments - 1) * segment_bytes
            client.call(create_topic("t", retention_ms=-1, retention_bytes=room))
            server.stop()
        places = _write(data / "t-0", segments, segment_bytes)
        end_offset = segments * segment_bytes // _INTERVAL * _MESSAGES
        (data / RECOVERY_POINTS).write_bytes(encode_checkpoint({("t", 0): end_offset}))
        often = "log.retention.check.interval.ms=100"
        with broker("--set", often, data=data) as (server, client):
            _wait_for_retention(client)
            rng = random.Random(1)
            for _ in range(_SEARCHES):
                at_ms, offset = rng.choice(places[1:])
                found = result(client.call(list_offsets("t", (0, at_ms)))).offset
                if found != offset:
                    raise RefusedRequest(f"{at_ms} is at offset {offset}, not at {found}")
            yield Figure("index_memory", float(resident_bytes(server)), "bytes")


def _wait_for_retention(client: RawClient) -> None:
    """Wait until the first segment is deleted."""
    until = time.monotonic() + _RETENTION_SECONDS
    while not result(client.call(list_offsets("t", (0, EARLIEST)))).offset:
        if time.monotonic() > until:
            raise RefusedRequest(f"retention took nothing in {_RETENTION_SECONDS} s")
        time.sleep(0.05)


def _write(path: Path, segments: int, segment_bytes: int) -> list[tuple[int, int]]:
    """Write the files; return the times and offsets of some stored messages."""
    intervals = segment_bytes // _INTERVAL
    entries = array("i")
    for number in range(1, intervals):
        entries.extend((number * _MESSAGES, number * _INTERVAL))
    offset_index = bytes_of(entries)
    checksums: dict[int, SegmentChecksums] = {}
    places: list[tuple[int, int]] = []
    rng = random.Random(1)
    for empty in path.iterdir():
        empty.unlink()
    shared = path.parent.parent / "index"
    shared.write_bytes(offset_index)
    for number in range(segments):
        base = number * intervals * _MESSAGES
        stem = path / f"{base:020d}"
        there = rng.randrange(1, intervals)
        places.append((_BASE_MS + base + there * _MESSAGES, base + there * _MESSAGES))
        with stem.with_suffix(".log").open("xb") as log:
            log.truncate(segment_bytes)
            first = there // _A_TIME_ENTRY * _A_TIME_ENTRY
            for interval in range(first, there + 1):
                log.seek(interval * _INTERVAL)
                log.write(_interval(base + interval * _MESSAGES))
        stem.with_suffix(".index").hardlink_to(shared)
        time_index = _time_index(base, intervals)
        stem.with_suffix(".timeindex").write_bytes(time_index)
        checksums[base] = SegmentChecksums(
            segment_bytes, _checksum(offset_index), _checksum(time_index), ((0, 1),)
        )
    (path / FILE_NAME).write_bytes(format_checksums(checksums))
    end = path / f"{segments * intervals * _MESSAGES:020d}"
    for suffix in (".log", ".index", ".timeindex"):
        end.with_suffix(suffix).touch()
    return places


def _checksum(data: bytes) -> tuple[int, int]:
    return len(data), crc32(data)


def _interval(offset: int) -> bytes:
    """Return messages that fill an interval. The message with offset n has the time `_BASE_MS` +
    n."""
    records = [
        NewRecord(b"v" * (_INTERVAL // _MESSAGES - 34), timestamp_ms=_BASE_MS + offset + number)
        for number in range(_MESSAGES)
    ]
    data = bytes(build_set(records, base_offset=offset))
    assert len(data) == _INTERVAL
    return data


def _time_index(base: int, intervals: int) -> bytes:
    parts = [
        (_BASE_MS + base + number * _MESSAGES - 1).to_bytes(8, "big")
        + (number * _MESSAGES).to_bytes(4, "big")
        for number in range(_A_TIME_ENTRY, intervals, _A_TIME_ENTRY)
    ]
    last_ms = _BASE_MS + base + intervals * _MESSAGES - 1
    parts.append(last_ms.to_bytes(8, "big") + (intervals * _MESSAGES).to_bytes(4, "big"))
    return b"".join(parts)
