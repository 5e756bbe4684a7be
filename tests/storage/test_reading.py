"""Reading by offset: where a slice begins, where it ends, what it never does (rules F-1*)."""

import pytest

from horolog.protocol.errors import OffsetOutOfRange, StorageError
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import entries
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, timed_set, untimed_set
from horolog.tests.followers.appending import append_copy

NOW = 1_479_144_272_509
PLENTY = 1 << 20
GZIP = Codec.GZIP


def offsets(log: Log, offset: int, max_bytes: int = PLENTY) -> list[int]:
    """The offsets of the whole entries in a slice."""
    return [entry.offset for entry in entries(reader.read(log, offset, max_bytes).read())]


@pytest.fixture
def five(folder: LogFolder) -> Log:
    """Five messages of 39 bytes, offsets 10 to 14."""
    log = folder.open()
    log.truncate_fully(10)
    folder.append(*range(NOW, NOW + 5))
    return log


@pytest.mark.parametrize(
    ("offset", "size"),
    [
        pytest.param(15, 0, id="tc64-F-10-log-end"),
        pytest.param(14, 39, id="F-10-last"),
        pytest.param(10, 195, id="F-10-log-start"),
        pytest.param(12, 117, id="F-11-in-the-middle"),
    ],
)
def test_inside_of_the_log(five: Log, offset: int, size: int) -> None:
    read = reader.read(five, offset, PLENTY)
    assert (read.size, len(read.read()), read.high_watermark) == (size, size, 15)


@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(16, id="tc64-F-10-above-the-end"),
        pytest.param(9, id="tc64-F-10-below-the-start"),
        pytest.param(-1, id="F-10-negative"),
        pytest.param(2**63 - 1, id="F-10-largest"),
    ],
)
def test_outside_of_the_log(five: Log, offset: int) -> None:
    with pytest.raises(OffsetOutOfRange, match=rf"offset {offset} .* 10 .* 15") as refused:
        reader.read(five, offset, PLENTY)
    assert refused.value.code == 1


@pytest.mark.parametrize(
    ("high_watermark", "offset", "expected"),
    [
        pytest.param(13, 13, [], id="tc65-F-10-at-the-high-watermark"),
        pytest.param(13, 14, [], id="tc65-F-10-above-it"),
        pytest.param(13, 15, [], id="tc65-F-10-log-end"),
        pytest.param(13, 10, [10, 11, 12], id="F-12-only-up-to-it"),
        pytest.param(13, 12, [12], id="F-12-last-visible"),
        pytest.param(10, 10, [], id="F-10-nothing-visible"),
    ],
)
def test_consumers_see_up_to_the_high_watermark(
    five: Log, high_watermark: int, offset: int, expected: list[int]
) -> None:
    five.hold_high_watermark(high_watermark)
    assert offsets(five, offset) == expected
    assert reader.read(five, offset, PLENTY).high_watermark == high_watermark


@pytest.mark.parametrize(
    ("max_bytes", "whole_first", "size"),
    [
        pytest.param(20, False, 20, id="tc66-F-13-cut-inside-the-first"),
        pytest.param(20, True, 39, id="tc67-F-14-first-one-whole"),
        pytest.param(50, False, 50, id="F-13-cut-inside-the-second"),
        pytest.param(50, True, 50, id="F-14-only-the-first-one-is-special"),
        pytest.param(39, False, 39, id="F-13-equal"),
        pytest.param(0, False, 0, id="tc68-F-14-no-room"),
        pytest.param(0, True, 39, id="F-14-no-room-first-one-whole"),
        pytest.param(-5, False, 0, id="F-13-negative"),
        pytest.param(117, True, 117, id="F-13-all"),
    ],
)
def test_limits(five: Log, max_bytes: int, whole_first: bool, size: int) -> None:
    read = reader.read(five, 12, max_bytes, whole_first=whole_first)
    assert len(read.read()) == read.size == size
    assert reader.read(five, 12, PLENTY).read().startswith(read.read())


def test_a_whole_first_entry_larger_than_every_chunk(folder: LogFolder) -> None:
    log = folder.open()
    big = timed_set(NOW, value=b"x" * 500_000)
    log.appender.append(big)
    log.appender.append(timed_set(NOW))
    assert reader.read(log, 0, 1, whole_first=True).size == len(big)
    assert offsets(log, 1) == [1]


@pytest.mark.parametrize("offset", [5, 6, 7])
def test_a_wrapper_is_returned_whole_tc71(folder: LogFolder, offset: int) -> None:
    log = folder.open()
    folder.append(1, 2, 3, 4, 5)
    wrapper = timed_set(100, 300, 200, codec=GZIP)
    log.appender.append(bytes(wrapper))
    folder.append(6)
    read = reader.read(log, offset, PLENTY)
    assert read.position == 5 * 39
    assert read.size == len(wrapper) + 39
    assert offsets(log, offset) == [7, 8]


@pytest.mark.parametrize("interval", [0, 10**9], ids=["indexed", "unindexed"])
def test_every_offset_leads_to_the_entry_that_holds_it(folder: LogFolder, interval: int) -> None:
    log = folder.open(index_interval_bytes=interval, segment_bytes=700)
    for number in range(12):
        log.appender.append(timed_set(*range(number + 1), codec=GZIP if number % 2 else Codec.NONE))
    stored = folder.entries()
    holding = {offset: next(e.offset for e in stored if e.offset >= offset) for offset in range(78)}
    assert {offset: offsets(log, offset)[0] for offset in range(78)} == holding
    assert log.segment_count > 3


def test_a_slice_stays_within_a_segment_f12(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=78)
    folder.append(*range(NOW, NOW + 5))
    assert [offsets(log, offset) for offset in range(5)] == [[0, 1], [1], [2, 3], [3], [4]]


@pytest.fixture
def gappy(folder: LogFolder) -> Log:
    """A segment with the entries 2, 5 and 6, one with 9 (15 was cut off again) and 20."""
    log = folder.open()
    for offset in (2, 5, 6):
        append_copy(log, timed_set(NOW, base_offset=offset))
    log.appender.roll()
    append_copy(log, timed_set(NOW, base_offset=9) + timed_set(NOW, base_offset=15))
    log.truncate(15)
    append_copy(log, timed_set(NOW, base_offset=20))
    return log


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        (0, 2),
        (1, 2),
        (2, 2),
        (3, 5),
        (4, 5),
        (6, 6),
        (7, 9),
        (8, 9),
        (9, 9),
        (10, 20),
        (14, 20),
        (15, 20),
        (19, 20),
        (20, 20),
    ],
)
@pytest.mark.parametrize("again", ["live", "clean", "unclean"])
def test_offsets_in_gaps(
    folder: LogFolder, gappy: Log, offset: int, first: int, again: str
) -> None:
    log = gappy
    if again == "clean":
        log = folder.restart()
        log.prepare()
    elif again == "unclean":
        log = folder.kill_and_restart(checkpointed=False)
    assert offsets(log, offset)[0] == first
    assert log.log_end_offset == 21
    assert offsets(log, 21) == []


def test_a_jump_between_two_segments(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=39 * 2)
    append_copy(log, timed_set(1, 2))
    far = 2**31 + 500
    append_copy(log, timed_set(3, base_offset=far))
    assert folder.bases() == [0, far + 1 - (2**31 - 1)]
    assert offsets(log, 2) == [far]
    assert offsets(log, far - 1) == [far]
    assert reader.readable_bytes(log, 2) == 39
    assert folder.found(3) == [(3, far)]


@pytest.mark.parametrize(
    ("offset", "high_watermark", "expected"),
    [
        pytest.param(0, None, 195, id="all"),
        pytest.param(1, None, 156, id="from-the-middle-of-a-segment"),
        pytest.param(4, None, 39, id="last"),
        pytest.param(5, None, 0, id="log-end"),
        pytest.param(0, 3, 117, id="F-21-to-the-high-watermark"),
        pytest.param(1, 2, 39, id="both-in-one-segment"),
        pytest.param(3, 3, 0, id="at-the-high-watermark"),
        pytest.param(4, 2, 0, id="above-the-high-watermark"),
    ],
)
def test_readable_bytes(
    folder: LogFolder, offset: int, high_watermark: int | None, expected: int
) -> None:
    log = folder.open(segment_bytes=78)
    folder.append(*range(NOW, NOW + 5))
    log.hold_high_watermark(high_watermark)
    assert reader.readable_bytes(log, offset) == expected


def mixed(folder: LogFolder) -> Log:
    """v0: offsets 0, 1; v1: 2, 3; v0: 4; v1: 5."""
    log = folder.open()
    log.appender.append(untimed_set(2))
    log.appender.append(timed_set(1) + timed_set(2))
    log.appender.append(untimed_set() + timed_set(3))
    return log


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, [(0, 0), (1, 0)]),
        (1, [(1, 0)]),
        (2, [(2, 1), (3, 1)]),
        (3, [(3, 1)]),
        (4, [(4, 0)]),
        (5, [(5, 1)]),
    ],
)
@pytest.mark.parametrize("again", ["live", "clean", "unclean", "rebuilt", "rolled"])
def test_a_slice_never_mixes_formats_decision_26(
    folder: LogFolder, offset: int, expected: list[tuple[int, int]], again: str
) -> None:
    log = mixed(folder)
    if again == "clean":
        log = folder.restart()
    elif again == "unclean":
        log = folder.kill_and_restart(checkpointed=False)
    elif again == "rolled":
        log.appender.roll()
        log = folder.restart()
        log.prepare()
    elif again == "rebuilt":
        log.appender.roll()
        log.close()
        (folder.path / "index-checksums").unlink()
        log = folder.open()
        log.prepare()
    data = reader.read(log, offset, PLENTY, whole_first=True).read()
    assert [(entry.offset, entry.magic) for entry in entries(data)] == expected


def test_formats_after_a_restart_and_more_appends(folder: LogFolder) -> None:
    mixed(folder)
    log = folder.restart()
    log.appender.append(timed_set(4))
    log.appender.append(untimed_set())
    assert [offsets(log, offset) for offset in (5, 7)] == [[5, 6], [7]]


def test_formats_after_a_restart_a_roll_and_a_kill(folder: LogFolder) -> None:
    """Checksums of the first stop would still fit the indexes, which got no entry since."""
    folder.open()
    folder.log.appender.append(untimed_set())
    folder.restart()
    folder.append(-1)
    folder.log.flusher.flush()
    folder.log.appender.roll()
    log = folder.kill_and_restart()
    log.prepare()
    assert [offsets(log, offset) for offset in (0, 1)] == [[0], [1]]


def test_formats_after_a_truncation(folder: LogFolder) -> None:
    log = mixed(folder)
    log.truncate(4)
    log.appender.append(timed_set(4))
    assert offsets(log, 2) == [2, 3, 4]
    log.truncate(1)
    log.appender.append(untimed_set(2))
    assert offsets(log, 0) == [0, 1, 2]


@pytest.mark.parametrize(("offset", "magic"), [(0, 0), (2, 1), (4, 0), (5, 1), (6, -1)])
def test_a_slice_tells_its_format(folder: LogFolder, offset: int, magic: int) -> None:
    log = mixed(folder)
    assert reader.read(log, offset, PLENTY).magic == magic


def test_damage_on_the_way_is_told(folder: LogFolder) -> None:
    """M-17."""
    log = folder.open()
    folder.append(1, 2, 3, 4)
    with log.segments[0].log_path.open("r+b") as file:
        file.seek(39 + 8)
        file.write((5).to_bytes(4, "big"))
    assert reader.read(log, 0, 39).size == 39
    with pytest.raises(StorageError, match="damaged at byte 39"):
        reader.read(log, 2, PLENTY)


def test_a_slice_of_a_closed_segment_outlives_other_reads_of_its_log(folder: LogFolder) -> None:
    log = folder.open(segment_bytes=39)
    folder.append(*range(7))
    log.flusher.flush()
    first = reader.read(log, 0, PLENTY)
    for offset in range(1, 7):
        assert offsets(log, offset) == [offset]
    assert [entry.timestamp_ms for entry in entries(first.read())] == [0]
