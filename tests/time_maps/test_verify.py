"""What `verify` says of time maps, and what `repair` does about it."""

from array import array
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pytest

from horolog.protocol.records.kernel import time_blocks
from horolog.protocol.records.kernel.reference.spans import TimeSpan
from horolog.protocol.records.kernel.reference.times import MapBlock, time_map_blocks
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import entries, records
from horolog.storage.check.repair import Repair
from horolog.storage.check.verify import Finding, verify
from horolog.storage.events import ignore_events
from horolog.storage.files import SystemFiles
from horolog.storage.index import time_map
from horolog.storage.index.index_checksums import (
    SegmentChecksums,
    format_checksums,
    parse_checksums,
)
from horolog.testing.clock import ManualClock
from horolog.testing.directories import DataDirectory
from horolog.testing.files import QuickFiles
from horolog.testing.logs import timed_set

from .mapped import SEGMENT_BYTES, START_MS, append_sets, assert_windows_exact

FIRST = f"{0:020d}"


def findings(directory: Path) -> list[Finding]:
    return list(verify(SystemFiles(), directory))


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    """A directory that was stopped cleanly: two segments with maps, and a short one."""
    data = DataDirectory(tmp_path / "data", segment_bytes=SEGMENT_BYTES)
    data.files = QuickFiles()
    data.open().create_topic("a", 1, {})
    append_sets(data.directory.log("a", 0), range(30))
    data.close()
    assert findings(data.path) == []
    return data


@pytest.fixture
def folder(data: DataDirectory) -> Path:
    return data.path / "a-0"


def change_line(
    folder: Path, base_offset: int, change: Callable[[SegmentChecksums], SegmentChecksums]
) -> None:
    path = folder / "index-checksums"
    lines = parse_checksums(path.read_bytes())
    lines[base_offset] = change(lines[base_offset])
    path.write_bytes(format_checksums(lines))


def write_map(path: Path, content: bytes) -> None:
    """Put another map there, with a line that fits it."""
    path.write_bytes(content)

    def fitting(line: SegmentChecksums) -> SegmentChecksums:
        assert line.time_map is not None
        told = replace(line.time_map, size_bytes=len(content), crc=crc32(content))
        return replace(line, time_map=told)

    change_line(path.parent, int(path.stem), fitting)


def written(blocks: list[MapBlock]) -> bytes:
    return b"".join(map(_written, blocks))


def _written(block: MapBlock) -> bytes:
    log_bytes, offsets = block.end - block.position, block.next_offset - block.offset
    parts = [(span.messages, *span) for span in block.spans]
    if block.untimed:
        parts.append((block.untimed, -1, -1, block.untimed))
    parts = parts or [(0, -1, -1, 0)]
    appends = array("q", [number for part in parts for number in (0, 0, *part[1:], 1)])
    appends[-6:-4] = array("q", [log_bytes, offsets])
    return time_blocks(appends, block_bytes=log_bytes, whole=True)[0]


def lacking(block: MapBlock) -> MapBlock:
    return block._replace(spans=block.spans[:-1])


def one_fewer(spans: list[TimeSpan]) -> list[TimeSpan]:
    """A block has no more messages than offsets: who says of one more somewhere says of one fewer
    elsewhere."""
    number = next(number for number, span in enumerate(spans) if span.messages > 1)
    chosen = spans[number]
    fewer = chosen._replace(messages=chosen.messages - 1)
    return [*spans[:number], fewer, *spans[number + 1 :]]


def wrong_count(block: MapBlock) -> MapBlock:
    return block._replace(spans=one_fewer(block.spans))


def wide(block: MapBlock) -> MapBlock:
    last = block.spans[-1]
    return block._replace(spans=[*block.spans[:-1], last._replace(high=last.high + 1)])


def early(block: MapBlock) -> MapBlock:
    return block._replace(spans=[TimeSpan(5, 6, 1), *one_fewer(block.spans)])


def untimed(block: MapBlock) -> MapBlock:
    return block._replace(untimed=1, spans=one_fewer(block.spans))


def other_offset(block: MapBlock) -> MapBlock:
    return block._replace(next_offset=block.next_offset + 1)


def other_end(block: MapBlock) -> MapBlock:
    return block._replace(end=block.end - 1)


@pytest.mark.parametrize(
    ("falsify", "text"),
    [
        (lacking, "which is in no span"),
        (wrong_count, " messages are from "),
        (wide, "nothing is of"),
        (early, "it says that 1 messages are from 5 to 6; there are 0"),
        (untimed, "it says that 1 messages have no time; there are 0"),
        (other_offset, "a block ends before offset"),
        (other_end, "inside of an entry"),
    ],
)
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_map_that_is_not_true_is_found_and_goes(
    data: DataDirectory,
    folder: Path,
    falsify: Callable[[MapBlock], MapBlock],
    text: str,
    number: int,
) -> None:
    path = folder / f"{FIRST}.timemap"
    blocks = list(time_map_blocks(path.read_bytes(), 0))
    assert written(blocks) == path.read_bytes()
    chosen = blocks[number]
    blocks[number] = falsify(chosen)
    write_map(path, written(blocks))
    first = findings(data.path)[0]
    assert (first.path, first.position, first.error) == (path, chosen.map_position, True)
    assert text in first.rule
    assert "delete this file" in first.advice
    assert_repaired(data, path)


def assert_repaired(data: DataDirectory, path: Path) -> None:
    log_bytes = path.with_suffix(".log").read_bytes()
    repairing = Repair(QuickFiles(), data.path, clock=ManualClock(), observe=ignore_events)
    try:
        plan = repairing.plan()
        assert [step.path for step in plan.steps] == [path]
        repairing.carry_out(plan)
    finally:
        repairing.release()
    assert findings(data.path) == []
    assert not path.exists()
    assert path.with_suffix(".log").read_bytes() == log_bytes
    log = data.open().log("a", 0)
    log.prepare()
    stored = [
        (record.offset, record.timestamp_ms)
        for segment in log.segments
        for record in records(segment.log_path.read_bytes(), max_decompressed_bytes=1 << 20)
    ]
    assert len(stored) == 600
    assert_windows_exact(log, stored)
    data.close()
    assert path.exists()
    assert findings(data.path) == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (lambda map_bytes: map_bytes + b"\x01\x01", "in the middle of a block"),
        (lambda map_bytes: map_bytes + b"\x81", "in the middle of a block"),
        (lambda map_bytes: map_bytes + b"\0\0\0\0", "it has no bytes"),
        (lambda map_bytes: map_bytes + b"\x01\x01\0\0", "of the log, which has"),
    ],
)
def test_what_a_map_has_too_much(
    data: DataDirectory, folder: Path, content: Callable[[bytes], bytes], text: str
) -> None:
    path = folder / f"{FIRST}.timemap"
    map_bytes = path.read_bytes()
    write_map(path, content(map_bytes))
    found = findings(data.path)[0]
    assert (found.path, found.error) == (path, True)
    assert text in found.rule
    assert_repaired(data, path)


def test_a_map_of_another_log(data: DataDirectory, folder: Path) -> None:
    path = folder / f"{FIRST}.timemap"
    write_map(path, (folder / f"{280:020d}.timemap").read_bytes())
    assert findings(data.path)[0].error
    assert_repaired(data, path)


def test_a_map_that_ends_before_its_log_is_made_anew(data: DataDirectory, folder: Path) -> None:
    path = folder / f"{FIRST}.timemap"
    blocks = list(time_map_blocks(path.read_bytes(), 0))
    write_map(path, written(blocks[:-1]))
    (found,) = findings(data.path)
    assert (found.path, found.error) == (path, False)
    assert f"it ends at byte {blocks[-1].position}" in found.rule


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "text"),
    [(torn, "bytes, and had"), (flipped, "(CRC)"), (Path.unlink, "it is missing")],
)
def test_a_map_that_is_not_as_its_line_says_is_noted(
    data: DataDirectory, folder: Path, harm: Callable[[Path], None], text: str
) -> None:
    path = folder / f"{FIRST}.timemap"
    harm(path)
    found = findings(data.path)
    assert {finding.path for finding in found} == {path}
    assert not any(finding.error for finding in found)
    assert any(text in finding.rule for finding in found)
    assert all("made anew" in finding.advice for finding in found)


@pytest.mark.parametrize("part", [1.0, 0.5, 0.3])
@pytest.mark.parametrize("known", [True, False])
def test_what_a_kill_leaves_is_nothing_wrong(
    data: DataDirectory, folder: Path, part: float, known: bool
) -> None:
    """Blocks that no line tells of yet, the last one perhaps in part."""
    path = folder / f"{FIRST}.timemap"
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    if known:
        change_line(folder, 0, lambda line: replace(line, time_map=None))
    else:
        (folder / "index-checksums").unlink()
    found = findings(data.path)
    assert not any(finding.error for finding in found)
    assert [finding.path for finding in found] == ([] if part == 1.0 else [path])


@pytest.mark.parametrize("name", ["first_ms", "last_ms", "untimed"])
@pytest.mark.parametrize("base_offset", [0, 560])
def test_what_a_line_says_of_the_times_is_checked(
    data: DataDirectory, folder: Path, name: str, base_offset: int
) -> None:
    """Of a segment without a map too: its messages would be passed over."""

    def change(line: SegmentChecksums) -> SegmentChecksums:
        told = line.time_map
        assert told is not None
        return replace(line, time_map=replace(told, **{name: getattr(told, name) + 1}))

    change_line(folder, base_offset, change)
    (found,) = findings(data.path)
    assert (found.path, found.error) == (folder / "index-checksums", True)
    assert f"for {base_offset:020d}.log it has times from" in found.rule


@pytest.mark.parametrize("name", [f"{7:020d}.timemap", f"{0:020d}.timemap.deleted"])
def test_files_that_are_left_over_are_listed(data: DataDirectory, folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"\0")
    (found,) = findings(data.path)
    assert (found.path, found.error) == (folder / name, False)
    assert "not a file of ours" not in found.rule


def test_a_bad_message_leaves_its_block_alone(data: DataDirectory, folder: Path) -> None:
    log = folder / f"{FIRST}.log"
    content = bytearray(log.read_bytes())
    content[100_000] ^= 1
    log.write_bytes(content)
    assert {finding.path for finding in findings(data.path)} == {log}


def is_true(map_bytes: bytes, log: bytes) -> bool:
    """Whether a map is that of a log without gaps, by reading all of both."""
    positions = {entry.position: entry for entry in entries(log)}
    ends = {entry.end: entry.offset + 1 for entry in positions.values()}
    stored = [
        (record.offset, record.timestamp_ms)
        for record in records(log, max_decompressed_bytes=1 << 20)
    ]
    try:
        blocks = list(time_map_blocks(map_bytes, 0))
    except ValueError:
        return False
    for block in blocks:
        if block.end == block.position or ends.get(block.end) != block.next_offset:
            return False
        inside = [ms for at, ms in stored if block.offset <= at < block.next_offset]
        timed = [ms for ms in inside if ms >= 0]
        spans = block.spans
        if block.untimed != len(inside) - len(timed):
            return False
        if sum(span.messages for span in spans) != len(timed):
            return False
        for span in spans:
            if span.messages != sum(span.low <= ms <= span.high for ms in timed):
                return False
            if not {span.low, span.high} <= set(timed):
                return False
        if any(one.high >= other.low for one, other in pairwise(spans)):
            return False
    return True


def test_every_flipped_bit_is_judged_by_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_map, "BLOCK_BYTES", 200)
    data = DataDirectory(tmp_path / "small")
    data.files = QuickFiles()
    data.open().create_topic("a", 1, {})
    log = data.directory.log("a", 0)
    for number in range(12):
        times = [START_MS + 300 * number, START_MS + 300 * number + number % 3]
        log.appender.append(timed_set(*times, codec=Codec(number % 4)))
    log.appender.append(timed_set(-1))
    data.close()
    path = data.path / "a-0" / f"{FIRST}.timemap"
    stored = path.with_suffix(".log").read_bytes()
    content = path.read_bytes()
    assert len(list(time_map_blocks(content, 0))) > 2
    assert is_true(content, stored)
    assert findings(data.path) == []
    for at in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[at] ^= 1 << bit
            write_map(path, bytes(damaged))
            found = findings(data.path)
            wrong = any(finding.error for finding in found)
            assert wrong != is_true(bytes(damaged), stored), (at, bit, found)
            assert all(finding.path == path for finding in found)
