"""Maps that were made along with appends are those that are made from the log."""

import random
from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from horolog.bench.windows import SHAPES
from horolog.protocol.records.kernel import time_blocks
from horolog.protocol.records.layout import Codec
from horolog.storage.index import time_map
from horolog.storage.log import admission
from horolog.storage.log import admitted as set_times
from horolog.storage.log.log import Log
from horolog.storage.read import windows
from horolog.testing.logs import LogFolder, timed_set
from horolog.tests.properties.window_reading import assert_time_map_true, make_map

from .mapped import assert_windows_exact

MESSAGES = 3_000
SEGMENT_BYTES = 200_000
START_MS = 1_479_144_000_000
PLAIN = [Codec.NONE]
every_shape = pytest.mark.parametrize(("shape", "times"), SHAPES, ids=[name for name, _ in SHAPES])


def sets(times: list[int], rng: random.Random) -> Iterator[list[int]]:
    """Some of one message, some of more than a block."""
    begin = 0
    while begin < len(times):
        count = rng.choice([1, 3, 40, 200, 900])
        yield times[begin : begin + count]
        begin += count


def append_all(
    log: Log,
    times: list[int],
    rng: random.Random,
    magics: list[int],
    codecs: list[Codec],
) -> None:
    for some in sets(times, rng):
        # Format v0 has no times.
        magic = 0 if some[0] < 0 else rng.choice(magics)
        codec = Codec.NONE if some[0] < 0 else rng.choice(codecs)
        log.appender.append(timed_set(*some, magic=magic, codec=codec, value=bytes(80)))


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("codecs", [PLAIN, [*PLAIN, Codec.SNAPPY]], ids=["plain", "some-snappy"])
@pytest.mark.parametrize("magics", [[1], [2], [1, 2]], ids=["v1", "v2", "both"])
@every_shape
def test_byte_by_byte(
    folder: LogFolder,
    monkeypatch: pytest.MonkeyPatch,
    shape: str,
    times: object,
    magics: list[int],
    codecs: list[Codec],
    seed: int,
) -> None:
    """Where no append is noted as one span because its times are close together."""
    assert callable(times)
    for module in (time_map, set_times, admission):
        monkeypatch.setattr(module, "CLOSE_MS", -1)
    rng = random.Random(seed)
    log = folder.open(segment_bytes=SEGMENT_BYTES, retention_ms=-1)
    append_all(log, list(times(MESSAGES, rng)), rng, magics, codecs)
    log.appender.roll()
    assert len(log.segments) > 1
    for segment in log.segments[:-1]:
        made = segment.time_map.data()
        assert segment.time_map.log_bytes == segment.size_bytes, shape
        segment.time_map.forget()
        make_map(log, segment)
        assert segment.time_map.data() == made
        assert segment.time_map.next_offset == segment.next_offset


@every_shape
def test_no_log_is_read_for_the_windows_over_them(
    folder: LogFolder, shape: str, times: object
) -> None:
    """As they are noted by default, each block is true, and windows are exact."""
    assert callable(times)
    rng = random.Random(3)
    known = list(times(MESSAGES // 2, rng))
    log = folder.open(segment_bytes=SEGMENT_BYTES, retention_ms=-1)
    append_all(log, known, rng, [1, 2], PLAIN)
    folder.files.operations.clear()
    for segment in log.segments:
        assert not windows.is_unmapped(segment), shape
        assert segment.time_map.makes == (segment is log.segments[-1])
    assert {name for what, name in folder.files.operations if what == "pread"} <= {
        segment.time_map.path.name for segment in log.segments
    }
    for segment in log.segments:
        assert_time_map_true(segment)
    if shape != "none":
        assert_windows_exact(log, folder.times())


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_what_is_compressed_is_mapped_too(folder: LogFolder, codec: Codec, magic: int) -> None:
    """Sets of which some are compressed, some have times close together, and some have not."""
    rng = random.Random(10 * magic + int(codec))
    log = folder.open(segment_bytes=SEGMENT_BYTES, retention_ms=-1)
    start_ms = 1_479_144_000_000
    value = rng.randbytes(1_000)
    for number in range(40):
        far_ms = 3_600_000 if number % 3 else 500
        times = [start_ms + 700 * number + rng.randrange(far_ms) for _ in range(20)]
        log.appender.append(timed_set(*times, codec=codec, value=value, magic=magic))
        log.appender.append(timed_set(*times, value=value, magic=magic))
    log.appender.roll()
    assert len(log.segments) > 2
    for segment in log.segments[:-1]:
        assert segment.time_map.log_bytes == segment.size_bytes
        assert_time_map_true(segment)
    assert_windows_exact(log, folder.times())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_offsets_that_no_message_has_are_in_front_of_an_append(
    folder: LogFolder, codec: Codec
) -> None:
    """As behind a cut within a wrapper."""
    log = folder.open(retention_ms=-1)
    log.appender.append(timed_set(1, 2, codec=Codec.GZIP))
    log.truncate(1)
    log.appender.append(timed_set(1_479_144_000_000, 1_479_147_600_000, codec=codec, magic=2))
    (segment,) = log.segments
    log.appender.roll()
    assert segment.time_map.next_offset == log.log_end_offset == 3
    assert_time_map_true(segment)


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize(
    "settings",
    [{"compression_type": "gzip"}, {"message_format_version": "0.10.0", "compression_type": "lz4"}],
    ids=["gzip", "lz4 in v1"],
)
def test_what_is_compressed_anew_is_mapped_too(
    folder: LogFolder, magic: int, settings: dict[str, Any]
) -> None:
    """And the same map is made from the log."""
    rng = random.Random(7)
    log = folder.open(segment_bytes=SEGMENT_BYTES, retention_ms=-1, **settings)
    for _ in range(30):
        times = [1_479_144_000_000 + rng.randrange(3_600_000) for _ in range(20)]
        log.appender.append(timed_set(*times, value=rng.randbytes(1_000), magic=magic))
    log.appender.roll()
    for segment in log.segments[:-1]:
        made = segment.time_map.data()
        assert segment.time_map.log_bytes == segment.size_bytes
        segment.time_map.forget()
        make_map(log, segment)
        assert segment.time_map.data() == made
        assert_time_map_true(segment)
    assert_windows_exact(log, folder.times())


def spread_times(count: int, rng: random.Random) -> list[int]:
    """Of a few hours."""
    return [START_MS + rng.randrange(10**7) for _ in range(count)]


@pytest.mark.usefixtures("fast_path")
@pytest.mark.parametrize("magic", [1, 2])
def test_times_that_admission_noted_are_not_looked_for_again(
    folder: LogFolder, monkeypatch: pytest.MonkeyPatch, magic: int
) -> None:
    """Also of sets that do not begin with a block, and of several that are appended together."""
    rng = random.Random(11)
    log = folder.open(retention_ms=-1)
    log.appender.append(timed_set(START_MS, magic=magic))
    monkeypatch.setattr(time_map, "entry_spans", None)
    for count in (1, 70, 500, 3):
        some = [
            timed_set(*spread_times(count, rng), magic=magic, value=bytes(40)) for _ in range(3)
        ]
        log.appender.append_sets(some)
    (segment,) = log.segments
    assert segment.time_map.makes
    log.appender.roll()
    monkeypatch.undo()
    assert_time_map_true(segment)
    made = segment.time_map.data()
    segment.time_map.forget()
    make_map(log, segment)
    assert segment.time_map.data() == made


def test_usual_sets_behind_others_of_one_write(folder: LogFolder) -> None:
    """Their rows were made for another place in a block."""
    rng = random.Random(12)
    log = folder.open(retention_ms=-1)
    log.appender.append(timed_set(START_MS))
    for _ in range(4):
        spread = [spread_times(300, rng) for _ in range(3)]
        codecs = (Codec.NONE, Codec.GZIP, Codec.NONE)
        log.appender.append_sets(
            [
                timed_set(*some, codec=codec, value=bytes(60))
                for some, codec in zip(spread, codecs, strict=True)
            ]
        )
    (segment,) = log.segments
    assert segment.time_map.makes
    log.appender.roll()
    made = segment.time_map.data()
    assert_time_map_true(segment)
    segment.time_map.forget()
    make_map(log, segment)
    assert segment.time_map.data() == made


def test_small_appends_are_not_looked_at_again_and_again(
    folder: LogFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than become blocks together are in one block: each is looked at once or twice,
    not with all that follow it."""
    looked_at = 0

    def counted(
        appends: "array[int]", *, block_bytes: int, whole: bool
    ) -> tuple[bytes, int, tuple[int, int, int, int, int, int]]:
        nonlocal looked_at
        looked_at += len(appends) // time_map.ROW_NUMBERS
        return time_blocks(appends, block_bytes=block_bytes, whole=whole)

    monkeypatch.setattr(time_map, "time_blocks", counted)
    log = folder.open(segment_bytes=1 << 20, retention_ms=-1)
    for number in range(2_000):
        log.appender.append(timed_set(1_479_144_000_000 + number, value=bytes(66)))
    found = log.segments[0].time_map
    assert found.log_bytes > 2 * time_map.BLOCK_BYTES
    assert 0 < looked_at <= 4_000
    assert_time_map_true(log.segments[0])
