"""Measures the memory that a broker needs for the indexes of a terabyte.

The figure is the resident memory of a broker that has started with a log of 1,000 closed segments
of 1 GiB each, has deleted the first of them by retention, and has searched the log by time 1,000
times. The log files are sparse: each has entries around one place, and the searches are for their
times. The offset index has an entry for each 4 KiB, as by default, and the time index has one for
each 64 KiB. The offset index is the same for all segments: one file with many names.

`python -m horolog.bench index_memory` measures it.
"""

import random
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

from ...protocol.api.log.list_offsets import EARLIEST
from ...protocol.records.messages.sets import NewRecord, build_set
from ...storage.directory.checkpoints import RECOVERY_POINTS, encode_checkpoint
from ...storage.index.index_checksums import FILE_NAME, SegmentChecksums, format_checksums
from ...storage.index.index_file import bytes_of
from ...testing.requests import create_topic, list_offsets, result
from ..brokers import broker, data_folder, resident_bytes
from ..figure import Figure
from ..raw_client import RawClient, RefusedRequest

_SEGMENTS: Final = 1_000
_SEGMENT_BYTES: Final = 1 << 30
_SEARCHES: Final = 1_000
_INTERVAL: Final = 4096
_MESSAGES: Final = 32
"""Number of messages that fill one interval of the offset index."""
_A_TIME_ENTRY: Final = 16
"""Intervals between two entries of the time index."""
_FIRST_MS: Final = 1_479_144_272_509
_RETENTION_SECONDS: Final = 120


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
        places.append((_FIRST_MS + base + there * _MESSAGES, base + there * _MESSAGES))
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
    """Return messages that fill an interval. The message with offset n has the time `_FIRST_MS` +
    n."""
    records = [
        NewRecord(b"v" * (_INTERVAL // _MESSAGES - 34), timestamp_ms=_FIRST_MS + offset + number)
        for number in range(_MESSAGES)
    ]
    data = bytes(build_set(records, base_offset=offset))
    assert len(data) == _INTERVAL
    return data


def _time_index(base: int, intervals: int) -> bytes:
    parts = [
        (_FIRST_MS + base + number * _MESSAGES - 1).to_bytes(8, "big")
        + (number * _MESSAGES).to_bytes(4, "big")
        for number in range(_A_TIME_ENTRY, intervals, _A_TIME_ENTRY)
    ]
    last_ms = _FIRST_MS + base + intervals * _MESSAGES - 1
    parts.append(last_ms.to_bytes(8, "big") + (intervals * _MESSAGES).to_bytes(4, "big"))
    return b"".join(parts)
