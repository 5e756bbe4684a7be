"""What a process keeps in memory of the indexes of a terabyte.

`python -m horolog.bench.windows.index_memory` prints the resident memory, in bytes, of a process
that has opened a log of 1,000 closed segments of 1 GiB, planned its retention, and searched 1,000
times in it. The log files are sparse: of each, the entries around one place are there, and searches
are for their times. The offset index has an entry for each 4 KiB, as by default, and the time index
one for each 64 KiB; the offset index, which is the same for all segments, is one file with many
names.
"""

import random
import subprocess
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from zlib import crc32

from ...protocol.records.messages.sets import NewRecord, build_set
from ...storage.index.index_checksums import FILE_NAME, SegmentChecksums, format_checksums
from ...storage.index.index_file import bytes_of
from ...testing.logs import LogFolder
from ..figure import Figure

_SEGMENTS: Final = 1_000
_SEGMENT_BYTES: Final = 1 << 30
_SEARCHES: Final = 1_000
_INTERVAL: Final = 4096
_MESSAGES: Final = 32
"""Of one interval: they fill it."""
_A_TIME_ENTRY: Final = 16
"""Intervals between two entries of the time index."""
_FIRST_MS: Final = 1_479_144_272_509


def index_memory(
    *, segments: int = _SEGMENTS, segment_bytes: int = _SEGMENT_BYTES
) -> Iterator[Figure]:
    """Resident memory of such a process."""
    command = [sys.executable, "-m", __name__, str(segments), str(segment_bytes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    yield Figure("index_memory", float(done.stdout), "bytes")


def main(segments: int = _SEGMENTS, segment_bytes: int = _SEGMENT_BYTES) -> None:
    with TemporaryDirectory(prefix="horolog-bench-") as name:
        path = Path(name) / "t-0"
        path.mkdir()
        places = _write(path, segments, segment_bytes)
        end_offset = segments * segment_bytes // _INTERVAL * _MESSAGES
        folder = LogFolder(path)
        log = folder.open(
            clean=True, end_offset=end_offset, recovery_point=end_offset, retention_ms=-1
        )
        log.prepare()
        log.expiry.plan_retention(_FIRST_MS)
        rng = random.Random(1)
        for _ in range(_SEARCHES):
            at_ms, offset = rng.choice(places)
            found = log.find_time(at_ms).run()
            if found is None or found.offset != offset:
                raise AssertionError(f"{at_ms} is at offset {offset}, not in {found}")
        print(_resident_bytes())
        folder.let_go()


def _write(path: Path, segments: int, segment_bytes: int) -> list[tuple[int, int]]:
    """Write the files; times of messages that are there, and their offsets."""
    intervals = segment_bytes // _INTERVAL
    entries = array("i")
    for number in range(1, intervals):
        entries.extend((number * _MESSAGES, number * _INTERVAL))
    offset_index = bytes_of(entries)
    checksums: dict[int, SegmentChecksums] = {}
    places: list[tuple[int, int]] = []
    rng = random.Random(1)
    shared = path.parent / "index"
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
    """Messages that fill an interval; that with offset n has the time `_FIRST_MS` + n."""
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


def _resident_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kib) << 10


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
