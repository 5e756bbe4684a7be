"""Indexes are judged by what their entries say, against a plain reading of the log."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import entries
from horolog.storage.check.verify import Finding, verify
from horolog.storage.files import SystemFiles
from horolog.testing.directories import DataDirectory
from horolog.testing.files import QuickFiles
from horolog.testing.logs import timed_set

ZERO = f"{0:020d}"


def errors(directory: Path) -> list[Finding]:
    return [finding for finding in verify(SystemFiles(), directory) if finding.error]


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    data = DataDirectory(tmp_path / "data", segment_bytes=600, index_interval_bytes=50)
    data.files = QuickFiles()
    return data


def fill(data: DataDirectory) -> None:
    """One log of several segments, its times out of order."""
    data.open().create_topic("create", 1, {})
    log = data.directory.log("create", 0)
    for number in range(40):
        times = [1000 - number * 37 % 11, 1000 + number, -1]
        log.appender.append(timed_set(*times, codec=Codec(number % 4)))
    assert log.segment_count > 3
    data.close()


class Stored(NamedTuple):
    position: int
    offset: int
    timestamp_ms: int


def offset_entry_is_true(stored: list[Stored], offset: int, position: int) -> bool:
    for number, message in enumerate(stored):
        if message.position == position:
            before = stored[number - 1].offset if number else -1
            return before < offset <= message.offset
    return False


def time_entry_is_true(stored: list[Stored], timestamp_ms: int, offset: int) -> bool:
    below = [message.timestamp_ms for message in stored if message.offset < offset]
    upto = [message.timestamp_ms for message in stored if message.offset <= offset]
    there = [message for message in stored if message.offset == offset]
    end = stored[-1].offset + 1
    seed = offset <= end and bool(below) and max(below) == timestamp_ms >= 0
    kafka = bool(there) and there[0].timestamp_ms == timestamp_ms == max(upto)
    return seed or kafka


def rising(entries: list[tuple[int, int]]) -> bool:
    before = (-1, -1)
    for entry in entries:
        if not (entry[0] > before[0] and entry[1] > before[1]):
            return False
        before = entry
    return True


@pytest.mark.parametrize(
    ("suffix", "layout", "is_true"),
    [
        (".index", ">ii", offset_entry_is_true),
        (".timeindex", ">qi", time_entry_is_true),
    ],
)
def test_every_flipped_bit_of_an_index_is_judged_by_what_it_says(
    suffix: str, layout: str, is_true: Callable[[list[Stored], int, int], bool], data: DataDirectory
) -> None:
    directory = data.open()
    directory.create_topic("a", 1, {"segment.bytes": "100000", "index.interval.bytes": "60"})
    for time_ms in (3, 1, 7, 7, 2, 20, 4, 40, 5, 6, 41, 42):
        directory.log("a", 0).appender.append(timed_set(time_ms))
    data.close()
    folder = data.path / "a-0"
    (folder / "index-checksums").unlink()
    stored = [
        Stored(entry.position, entry.offset, entry.timestamp_ms)
        for entry in entries((folder / f"{ZERO}.log").read_bytes())
    ]
    path = folder / (ZERO + suffix)
    content = path.read_bytes()
    size = struct.calcsize(layout)
    assert len(content) >= 4 * size
    assert errors(folder) == []
    true = 0
    for at in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            slots = list(struct.iter_unpack(layout, bytes(damaged)))
            expected = rising(slots) and all(is_true(stored, *slot) for slot in slots)
            found = errors(folder)
            assert (not found) == expected, (at, bit, found)
            assert all(error.path == path for error in found)
            true += expected
    assert true < len(content)


def test_no_density_is_asked_for(data: DataDirectory) -> None:
    fill(data)
    for suffix, size in ((".index", 8), (".timeindex", 12)):
        path = data.path / "create-0" / (ZERO + suffix)
        content = path.read_bytes()
        slots = [content[at : at + size] for at in range(0, len(content), size)]
        assert len(slots) > 2
        path.write_bytes(b"".join(slots[1::2]))
    assert errors(data.path) == []


@pytest.mark.parametrize(("suffix", "size"), [(".index", 8), (".timeindex", 12)])
def test_slots_that_were_made_ahead_are_absent(suffix: str, size: int, data: DataDirectory) -> None:
    fill(data)
    path = data.path / "create-0" / (ZERO + suffix)
    content = path.read_bytes()
    path.write_bytes(content + bytes(size * 100_000))
    assert errors(data.path) == []
    path.write_bytes(bytes(size * 100_000))
    assert errors(data.path) == []
    path.write_bytes(content + bytes(size - 1))
    [error] = errors(data.path)
    assert (error.path, error.position) == (path, len(content))
    assert "delete this file" in error.advice


def test_another_segment_s_indexes_are_found(data: DataDirectory) -> None:
    fill(data)
    folder = data.path / "create-0"
    later = sorted(folder.glob("*.log"))[2].stem
    for suffix in (".index", ".timeindex"):
        content = (folder / (later + suffix)).read_bytes()
        (folder / (ZERO + suffix)).write_bytes(content)
    assert {error.path.suffix for error in errors(data.path)} >= {".timeindex"}
