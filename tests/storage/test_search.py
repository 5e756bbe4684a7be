"""The first message at or after a time, and the message with the largest (rules L-2*)."""

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import get_ident

import pytest

from horolog.protocol.errors import MessageTooLarge, StorageError
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import build_wrapper
from horolog.storage.files import File, Files
from horolog.storage.open_files import OpenFiles
from horolog.storage.read import reader
from horolog.storage.read.search import EARLIEST, LATEST, FoundMessage
from horolog.testing.logs import LogFolder, timed_set, untimed_set
from horolog.tests.followers.appending import append_copy

NOW = 1_479_144_272_509
INT64_MAX = 2**63 - 1
GZIP = Codec.GZIP
Expected = tuple[int, int] | None


@pytest.mark.parametrize(
    ("times", "target", "expected"),
    [
        pytest.param([10, 20, 20, 30], 20, (20, 1), id="tc72-L-20-lowest-of-equals"),
        pytest.param([10, 20, 20, 30], 21, (30, 3), id="tc73-L-20-between"),
        pytest.param([10, 20, 20, 30], 30, (30, 3), id="tc73-L-20-last"),
        pytest.param([10, 20, 20, 30], 31, None, id="tc73-L-20-after-all"),
        pytest.param([10, 20, 20, 30], 0, (10, 0), id="tc73-L-20-before-all"),
        pytest.param([10, 40, 20, 30], 25, (40, 1), id="tc74-L-20-offset-order"),
        pytest.param([10, 40, 20, 30], 41, None, id="L-20-nothing-late-enough"),
        pytest.param([-1, 40, -1, 50], 0, (40, 1), id="L-20-no-time-matches-nothing"),
        pytest.param([-1, -1], 0, None, id="L-28-no-times-at-all"),
        pytest.param([0, 5], 0, (0, 0), id="L-20-time-zero"),
        pytest.param([INT64_MAX], INT64_MAX, (INT64_MAX, 0), id="L-20-largest-time"),
        pytest.param([], 5, None, id="tc89-L-20-empty-log"),
    ],
)
@pytest.mark.parametrize("interval", [0, 4096], ids=["indexed", "unindexed"])
@pytest.mark.parametrize("segment_bytes", [39, 78, 4096])
def test_find_time(
    folder: LogFolder,
    times: list[int],
    target: int,
    expected: Expected,
    interval: int,
    segment_bytes: int,
) -> None:
    """decision 7."""
    folder.open(index_interval_bytes=interval, segment_bytes=segment_bytes)
    folder.append(*times)
    assert folder.found(target) == [expected]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param(100, (100, 5), id="first"),
        pytest.param(150, (300, 6), id="tc75-L-23"),
        pytest.param(300, (300, 6), id="L-23-equal"),
        pytest.param(301, None, id="L-23-after"),
    ],
)
@pytest.mark.parametrize("codec", [GZIP, Codec.SNAPPY, Codec.LZ4])
def test_inside_a_wrapper(folder: LogFolder, target: int, expected: Expected, codec: Codec) -> None:
    folder.open(index_interval_bytes=0)
    folder.append(1, 2, 3, 4, 5)
    folder.log.appender.append(timed_set(100, 300, 200, codec=codec))
    assert folder.found(target) == [expected]


def test_inside_a_stamped_wrapper_tc76(folder: LogFolder) -> None:
    folder.open(message_timestamp_type="LogAppendTime", index_interval_bytes=0)
    folder.append(1, 2, 3, 4, 5)
    folder.clock.advance(100)
    folder.log.appender.append(timed_set(7, 8, 9, codec=GZIP))
    assert folder.found(NOW + 1, NOW + 100, NOW + 101) == [
        (NOW + 100, 5),
        (NOW + 100, 5),
        None,
    ]


def test_a_wrapper_that_promises_too_much_is_passed_over_l27(folder: LogFolder) -> None:
    folder.open()
    inner = timed_set(10, 20)
    append_copy(folder.log, build_wrapper(inner, offset=1, timestamp_ms=99, magic=1, codec=GZIP))
    append_copy(folder.log, timed_set(30, base_offset=2))
    assert folder.found(15, 25, 98, 99) == [(20, 1), (30, 2), None, None]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param(160, (180, 3), id="tc77-L-25-first-segment"),
        pytest.param(250, (260, 10), id="tc77-L-25-third-segment"),
        pytest.param(60, (100, 0), id="tc77-L-25-earlier-times-later"),
        pytest.param(201, (220, 9), id="tc77-L-25-after-the-first"),
        pytest.param(300, (300, 11), id="L-25-last"),
        pytest.param(301, None, id="L-25-none"),
    ],
)
@pytest.mark.parametrize("again", ["live", "clean", "unclean", "no-indexes"])
def test_across_segments(folder: LogFolder, target: int, expected: Expected, again: str) -> None:
    """I-28."""
    folder.open(index_interval_bytes=50)
    for times in ([100, 120, 140, 180, 200], [50, 70, 90], [150, 220, 260, 300]):
        folder.append(*times)
        folder.log.appender.roll()
    restart(folder, again)
    assert folder.found(target) == [expected]


def restart(folder: LogFolder, again: str) -> None:
    if again == "clean":
        folder.restart()
    elif again == "unclean":
        folder.kill_and_restart(checkpointed=False)
    elif again == "no-indexes":
        folder.log.close()
        for name in [*folder.names("index"), "index-checksums"]:
            (folder.path / name).unlink(missing_ok=True)
        folder.open()


def test_a_message_before_the_last_entry_with_the_segment_s_largest_time_tc78(
    folder: LogFolder,
) -> None:
    folder.open(index_interval_bytes=0)
    folder.append(10, 30, 20, 25)
    folder.log.appender.roll()
    folder.append(40)
    assert folder.time_entries(0) == [(30, 4)]
    assert folder.found(30, 31) == [(30, 1), (40, 4)]


@pytest.mark.parametrize(
    ("high_watermark", "target", "expected"),
    [
        pytest.param(3, 40, None, id="tc79-L-26-hit-at-the-high-watermark"),
        pytest.param(4, 40, (40, 3), id="L-26-just-below-it"),
        pytest.param(3, 30, (30, 2), id="L-26-last-visible"),
        pytest.param(0, 0, None, id="L-26-nothing-visible"),
    ],
)
def test_only_below_the_high_watermark(
    folder: LogFolder, high_watermark: int, target: int, expected: Expected
) -> None:
    log = folder.open(index_interval_bytes=0)
    folder.append(10, 20, 30, 40, 50)
    log.hold_high_watermark(high_watermark)
    assert folder.found(target) == [expected]
    log.hold_high_watermark(None)
    assert folder.found(40) == [(40, 3)]


def test_the_visible_part_of_a_wrapper_l26(folder: LogFolder) -> None:
    log = folder.open()
    log.appender.append(timed_set(10, 20, 30, codec=GZIP))
    log.hold_high_watermark(2)
    assert folder.found(20, 30) == [(20, 1), None]


def test_untimed_segments_do_not_end_a_search_tc83(folder: LogFolder) -> None:
    """B-22."""
    log = folder.open()
    log.appender.append(untimed_set(5))
    log.appender.roll()
    folder.append(5000, 6000)
    assert folder.found(5500, 4000) == [(6000, 6), (5000, 5)]


def test_a_segment_that_yields_nothing_is_followed_by_the_next_l24(folder: LogFolder) -> None:
    log = folder.open()
    inner = timed_set(10)
    append_copy(log, build_wrapper(inner, offset=0, timestamp_ms=99, magic=1, codec=GZIP))
    log.appender.roll()
    append_copy(log, timed_set(50, 99, base_offset=1))
    assert folder.found(60) == [(99, 2)]


@pytest.mark.parametrize(
    ("start", "target", "expected"),
    [
        pytest.param(2, 0, (30, 2), id="decision-32-first-message-left"),
        pytest.param(2, 15, (30, 2), id="decision-32-match-below-the-start"),
        pytest.param(3, 30, (40, 4), id="decision-32-largest-of-the-segment-is-below"),
        pytest.param(1, 35, (40, 4), id="decision-32-later-segment"),
    ],
)
def test_only_from_the_log_start(
    folder: LogFolder, start: int, target: int, expected: Expected
) -> None:
    folder.open(index_interval_bytes=0)
    folder.append(10, 20, 30, 5)
    folder.log.appender.roll()
    folder.append(40)
    folder.log.close()
    log = folder.open(log_start_offset=start)
    assert log.log_start_offset == start
    assert folder.found(target) == [expected]


def test_the_log_start_inside_a_wrapper(folder: LogFolder) -> None:
    folder.open()
    folder.log.appender.append(timed_set(30, 20, 10, codec=GZIP))
    folder.append(15)
    folder.log.close()
    folder.open(log_start_offset=1)
    assert folder.found(5, 21, 15) == [(20, 1), None, (20, 1)]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param([10, 30, 30, 20], FoundMessage(1, 30), id="L-2C-first-of-equals"),
        pytest.param([30, 20, 10], FoundMessage(0, 30), id="L-2C-first"),
        pytest.param([10, 20, 30], FoundMessage(2, 30), id="L-2C-last"),
        pytest.param([-1, -1], None, id="L-2C-no-times"),
        pytest.param([-1, 0], FoundMessage(1, 0), id="L-2C-zero"),
        pytest.param([], None, id="L-2C-empty"),
    ],
)
@pytest.mark.parametrize("segment_bytes", [39, 78, 4096])
@pytest.mark.parametrize("again", ["live", "clean", "unclean", "no-indexes"])
def test_find_largest(
    folder: LogFolder,
    times: list[int],
    expected: FoundMessage | None,
    segment_bytes: int,
    again: str,
) -> None:
    folder.open(segment_bytes=segment_bytes, index_interval_bytes=0)
    folder.append(*times)
    restart(folder, again)
    folder.log.prepare()
    assert reader.find_largest(folder.log).run() == expected


@pytest.mark.parametrize(
    ("high_watermark", "expected"),
    [
        pytest.param(6, FoundMessage(4, 50), id="L-2C-all"),
        pytest.param(5, FoundMessage(4, 50), id="L-2C-just-visible"),
        pytest.param(4, FoundMessage(2, 30), id="L-2C-largest-is-above"),
        pytest.param(2, FoundMessage(0, 20), id="L-2C-inside-the-first-segment"),
        pytest.param(0, None, id="L-2C-nothing-visible"),
    ],
)
def test_find_largest_below_the_high_watermark(
    folder: LogFolder, high_watermark: int, expected: FoundMessage | None
) -> None:
    log = folder.open(index_interval_bytes=0, segment_bytes=39 * 3)
    folder.append(20, 10, 30, 5, 50, 40)
    log.hold_high_watermark(high_watermark)
    assert reader.find_largest(log).run() == expected


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param(0, FoundMessage(0, 90), id="all"),
        pytest.param(1, FoundMessage(2, 40), id="largest-is-below-the-start"),
        pytest.param(3, FoundMessage(3, 30), id="next-segment"),
    ],
)
def test_find_largest_from_the_log_start(
    folder: LogFolder, start: int, expected: FoundMessage | None
) -> None:
    folder.open(index_interval_bytes=0, segment_bytes=39 * 3)
    folder.append(90, 10, 40, 30)
    folder.log.close()
    log = folder.open(log_start_offset=start)
    log.prepare()
    assert reader.find_largest(log).run() == expected


def test_find_largest_in_a_wrapper(folder: LogFolder) -> None:
    log = folder.open()
    log.appender.append(timed_set(100, 300, 200, codec=GZIP))
    assert reader.find_largest(log).run() == FoundMessage(1, 300)


def test_find_largest_behind_a_wrapper_that_is_later_than_its_messages(folder: LogFolder) -> None:
    """Only bytes from elsewhere have such; what counts are the messages."""
    log = folder.open(segment_bytes=200)
    inner = timed_set(100, 310, 200)
    append_copy(
        folder.log, build_wrapper(inner, offset=2, timestamp_ms=INT64_MAX, magic=1, codec=GZIP)
    )
    log.appender.append(timed_set(300, 310, 310, 5))
    log.appender.append(timed_set(250, codec=GZIP))
    log.prepare()
    assert reader.find_largest(log).run() == FoundMessage(1, 310)
    log.appender.append(timed_set(311))
    assert reader.find_largest(log).run() == FoundMessage(8, 311)


def test_entries_larger_than_what_is_read_at_once(folder: LogFolder) -> None:
    log = folder.open(index_interval_bytes=0, max_message_bytes=2_000_000)
    noise = bytes((i * i * 31 + i // 7) & 0xFF for i in range(700_000))
    log.appender.append(timed_set(10, value=noise))
    log.appender.append(timed_set(20, 40, 30, codec=Codec.SNAPPY, value=noise[:350_000]))
    log.appender.append(timed_set(50, value=noise))
    folder.set(index_interval_bytes=10**9)
    log.appender.append(timed_set(60, value=noise) + timed_set(70, value=noise) + timed_set(80))
    assert folder.found(10, 11, 35, 45, 55, 65, 75, 81) == [
        (10, 0),
        (20, 1),
        (40, 2),
        (50, 4),
        (60, 5),
        (70, 6),
        (80, 7),
        None,
    ]
    assert reader.find_largest(log).run() == FoundMessage(7, 80)


def test_a_wrapper_that_opens_too_far_is_refused_by_name(folder: LogFolder) -> None:
    log = folder.open(max_decompressed_bytes=10_000)
    log.appender.append(timed_set(10, codec=GZIP, value=b"\0" * 9000))
    folder.set(max_decompressed_bytes=5000)
    with pytest.raises(MessageTooLarge, match=r"max\.decompressed\.bytes"):
        reader.find_time(log, 5).run()


@pytest.mark.parametrize("kind", ["time", "largest", "list", "latest", "earliest"])
def test_a_log_that_is_not_prepared_is_not_searched_in_parts(folder: LogFolder, kind: str) -> None:
    """Its segments' times are not known; nothing of that may stay after it is prepared."""
    folder.open(segment_bytes=78, index_interval_bytes=0)
    folder.append(*range(10, 110, 10))
    log = folder.restart()
    results: dict[str, Callable[[], object]] = {
        "time": lambda: reader.find_time(log, 55).run(),
        "largest": lambda: reader.find_largest(log).run(),
        "list": lambda: reader.offsets_before(log, 55, 2).run(),
        "latest": lambda: reader.offsets_before(log, LATEST, 2).run(),
        "earliest": lambda: reader.offsets_before(log, EARLIEST, 2).run(),
    }
    expected = {
        "time": FoundMessage(5, 60),
        "largest": FoundMessage(9, 100),
        "list": [5, 4],
        "latest": [10, 8],
        "earliest": [0],
    }
    assert not log.prepared
    assert results[kind]() == expected[kind]
    assert log.prepared is (kind not in ("latest", "earliest"))
    assert folder.found(15, 55, 95) == [(20, 1), (60, 5), (100, 9)]


def test_rolls_before_the_log_is_prepared(folder: LogFolder) -> None:
    folder.open(segment_bytes=78, index_interval_bytes=0)
    folder.append(*range(10, 110, 10))
    log = folder.restart()
    folder.append(15, 200, 25, 300)
    assert not log.prepared
    assert folder.found(55, 95, 150, 250) == [(60, 5), (100, 9), (200, 11), (300, 13)]


def test_appends_go_on_while_a_thread_prepares(folder: LogFolder) -> None:
    """I-8."""
    folder.open(segment_bytes=3900, index_interval_bytes=0)
    folder.append(*range(2000))
    folder.log.close()
    (folder.path / "index-checksums").unlink()
    log = folder.open()
    with ThreadPoolExecutor(1) as executor:
        preparing = executor.submit(log.prepare)
        for number in range(50):
            folder.append(5000 + number)
            if number % 10 == 0:
                log.flusher.flush()
        preparing.result()
    folder.append(9000)
    assert folder.found(0, 255, 499) == [(0, 0), (255, 255), (499, 499)]
    assert folder.found(9000) == [(9000, log.log_end_offset - 1)]
    folder.events.seen.clear()
    folder.restart().prepare()
    assert folder.events.named("index_rebuilt") == []
    assert folder.found(255, 9000) == [(255, 255), (9000, folder.log.log_end_offset - 1)]


class _ForOneThread(OpenFiles):
    """Handles that no other thread may ask for."""

    def __init__(self, files: Files, limit: int) -> None:
        super().__init__(files, limit)
        self._thread = get_ident()

    def use(self, name: str, path: Path | None = None, *, read_only: bool = False) -> File:
        assert get_ident() == self._thread, f"{name} is used in another thread"
        return super().use(name, path, read_only=read_only)


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
def test_a_thread_that_prepares_uses_no_handle_of_others(
    folder: LogFolder, timed: bool, checksums: bool
) -> None:
    folder.open(segment_bytes=3900, index_interval_bytes=0)
    for time in range(1000):
        folder.log.appender.append(timed_set(time) if timed else untimed_set())
    folder.log.close()
    if not checksums:
        (folder.path / "index-checksums").unlink()
    folder.open_files = _ForOneThread(folder.files, 8)
    log = folder.open()
    assert not log.prepared
    with ThreadPoolExecutor(1) as executor:
        executor.submit(log.prepare).result()
    assert log.prepared
    assert folder.found(700) == [(700, 700) if timed else None]


def test_a_search_that_cannot_be_prepared_says_so(folder: LogFolder) -> None:
    folder.open(segment_bytes=78)
    folder.append(*range(10, 110, 10))
    folder.log.close()
    (folder.path / "index-checksums").unlink()
    log = folder.open()
    folder.files.fail("open", errno.EIO, name="4.log", times=-1)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            reader.find_time(log, 55)
    folder.files.heal()
    assert reader.find_time(log, 55).run() == FoundMessage(5, 60)


def test_bytes_that_are_no_entries_are_damage_not_an_answer(folder: LogFolder) -> None:
    log = folder.open()
    folder.append(10, 20, 30)
    with folder.log.segments[0].log_path.open("r+b") as file:
        file.seek(39 + 8)
        file.write(b"\0\0\0\0")
    assert folder.found(10) == [(10, 0)]
    with pytest.raises(StorageError, match=r"damaged at byte 39.*horolog repair") as damage:
        reader.find_time(log, 20).run()
    assert damage.value.code == 56
