"""What a log with damage below its recovery point still does (decisions 15, 20, 21, 26)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from horolog.protocol.errors import (
    CorruptMessage,
    HorologError,
    UnsupportedForMessageFormat,
)
from horolog.protocol.records.batch import read_header, write_header
from horolog.protocol.records.kernel.terms import Problem
from horolog.protocol.records.layout import RECORD_COUNT_AT, Codec
from horolog.protocol.records.messages.sets import build_wrapper, set_offset
from horolog.storage.check.verify import verify
from horolog.storage.entries.entry_rules import RULES
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.testing.directories import DataDirectory
from horolog.testing.logs import LogFolder, timed_set
from horolog.tests.followers.appending import append_copy
from horolog.tests.properties.window_reading import count_window, make_map

from .damaging import check_refusal, flip, overwrite, read_all

ENTRY = 39
LAST_BYTE = ENTRY - 1


def fill(folder: LogFolder, times: list[int], per_segment: int = 4) -> None:
    """Plain messages, everything synced and cleanly stopped."""
    folder.open(segment_bytes=per_segment * ENTRY, index_interval_bytes=0)
    folder.append(*times)
    folder.log.flusher.flush()
    folder.log.close()


def reopened(folder: LogFolder, *, lose_indexes: bool) -> Log:
    """The log after a clean stop; without indexes every segment is read when it is prepared."""
    if lose_indexes:
        for path in folder.path.glob("*.timeindex"):
            path.unlink()
    log = folder.open(clean=True)
    log.prepare()
    return log


def refused(action: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(HorologError) as caught:
        action(*arguments)
    check_refusal(caught.value)


@pytest.mark.parametrize("found_by", ["preparing", "recovery"])
def test_a_closed_segment(folder: LogFolder, found_by: str) -> None:
    fill(folder, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100])
    flip(folder.path / f"{4:020d}.log", ENTRY + LAST_BYTE, 0)
    if found_by == "preparing":
        log = reopened(folder, lose_indexes=True)
    else:
        log = folder.open(clean=False, recovery_point=6)
        log.prepare()
    (told,) = folder.events.named("segment_damaged")
    assert told["path"] == str(folder.path / f"{4:020d}.log")
    assert (told["position"], told["offset"]) == (ENTRY, 5)
    assert told["rule"] == "a message's CRC does not fit its content"
    assert "horolog repair" in told["advice"]
    # What is in front of it and what is in other segments is served.
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 10, 10)
    found, lost = read_all(folder)
    assert [offset for offset, _ in found] == [0, 1, 2, 3, 4, 8, 9]
    assert lost == [5, 6, 7]
    assert reader.read(log, 3, 1 << 20).size == ENTRY
    assert reader.read(log, 4, 1 << 20).size == ENTRY
    assert reader.readable_bytes(log, 4) == 3 * ENTRY
    refused(reader.readable_bytes, log, 5)
    assert log.appender.append(timed_set(110)).first_offset == 10
    # Described, for people to see.
    damage = [segment.damage for segment in log.expiry.describe(0).segments]
    assert [bool(text) for text in damage] == [False, True, False]
    assert damage[1].startswith("damaged at byte 39, offset 5: ")
    # Told once, not by every reader.
    assert len(folder.events.named("segment_damaged")) == 1


def test_searches_around_a_damaged_segment(folder: LogFolder) -> None:
    fill(folder, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 5, 7])
    flip(folder.path / f"{4:020d}.log", ENTRY + LAST_BYTE, 0)
    log = reopened(folder, lose_indexes=True)
    # Found in front of the damage, in other segments or in the good part of this one.
    assert folder.found(1, 10, 11, 40, 41, 50) == [
        (10, 0),
        (10, 0),
        (20, 1),
        (40, 3),
        (50, 4),
        (50, 4),
    ]
    # From here on the answer may be in what cannot be read.
    for target_ms in (51, 60, 80, 81, 95, 100, 101, 10**12):
        refused(lambda ms: reader.find_time(log, ms).run(), target_ms)
    refused(lambda: reader.find_largest(log).run())
    assert reader.offsets_before(log, -2, 9).run() == [0]
    assert reader.offsets_before(log, -1, 9).run() == [12, 8, 4, 0]
    assert reader.offsets_before(log, 35, 9).run() == [3, 0]
    refused(lambda: reader.offsets_before(log, 55, 9).run())


def test_searches_go_past_damage_whose_times_are_known(folder: LogFolder) -> None:
    """The time index was safe: it tells the largest time of the segment as it was."""
    fill(folder, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100])
    overwrite(folder.path / f"{4:020d}.log", ENTRY + 8, bytes(4))
    log = reopened(folder, lose_indexes=False)
    assert reader.read(log, 6, 100).size == 2 * ENTRY  # nobody has met the damage yet
    refused(reader.read, log, 5, 100)
    refused(reader.read, log, 6, 100)
    assert folder.found(50, 81, 90, 95, 101) == [(50, 4), (90, 8), (90, 8), (100, 9), None]
    refused(lambda: reader.find_time(log, 60).run())
    found = reader.find_largest(log).run()
    assert found is not None
    assert found.offset == 9
    (told,) = folder.events.named("segment_damaged")
    assert (told["position"], told["offset"]) == (ENTRY, 5)


def test_the_log_start_may_be_behind_the_damage(folder: LogFolder) -> None:
    fill(folder, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100])
    flip(folder.path / f"{0:020d}.log", LAST_BYTE, 0)
    for path in folder.path.glob("*.timeindex"):
        path.unlink()
    log = folder.open(clean=True, log_start_offset=4)
    log.prepare()
    assert folder.found(10, 55, 100) == [(50, 4), (60, 5), (100, 9)]
    found = reader.find_largest(log).run()
    assert found is not None
    assert found.offset == 9


def test_the_active_segment(folder: LogFolder) -> None:
    fill(folder, [10, 20, 30, 40, 50, 60])
    flip(folder.path / f"{4:020d}.log", LAST_BYTE, 0)
    log = folder.open(clean=False, recovery_point=6, retention_ms=-1)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 6, 6)
    found, lost = read_all(folder)
    assert (found[-1], lost) == ((3, 40), [4, 5])
    assert reader.read(log, 6, 100).size == 0
    refused(log.appender.append, timed_set(70))
    refused(partial(append_copy, log), timed_set(70, base_offset=6))
    assert log.expiry.maintain(folder.clock.now_ms()).delete_count == 0
    log.flusher.flush()
    size = (folder.path / f"{4:020d}.log").stat().st_size
    # It stays like that, a clean stop included.
    for clean in (True, False):
        log.close()
        log = folder.open(clean=clean, end_offset=6 if clean else None, recovery_point=6)
        assert log.log_end_offset == 6
        refused(log.appender.append, timed_set(70))
        assert read_all(folder)[1] == [4, 5]
    assert (folder.path / f"{4:020d}.log").stat().st_size == size
    assert folder.names(".broken") == []


def test_the_end_of_a_damaged_log_is_behind_the_last_good_entry(folder: LogFolder) -> None:
    fill(folder, [10, 20, 30, 40, 50, 60], per_segment=10)
    flip(folder.path / f"{0:020d}.log", ENTRY + LAST_BYTE, 0)
    log = folder.open(clean=False, recovery_point=3)
    assert log.log_end_offset == 6
    assert read_all(folder)[1] == [1, 2, 3, 4, 5]


def test_damage_that_reading_meets_keeps_appends_out(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=0)
    folder.append(10, 20, 30)
    overwrite(folder.log.segments[0].log_path, ENTRY + 8, b"\0\0\0\1")
    refused(reader.read, folder.log, 1, 100)
    assert reader.read(folder.log, 0, 100).size == ENTRY
    refused(reader.read, folder.log, 2, 100)
    refused(folder.log.appender.append, timed_set(40))
    (told,) = folder.events.named("segment_damaged")
    assert told["position"] == ENTRY


def test_a_first_message_whole_is_checked_when_it_seems_large(folder: LogFolder) -> None:
    """A size that was changed must not send half a segment to a reader."""
    folder.open(segment_bytes=1 << 24, max_message_bytes=1 << 23)
    folder.log.appender.append(timed_set(10))
    folder.log.appender.append(timed_set(20, value=bytes(1 << 21)))
    folder.log.appender.append(timed_set(30))
    end = folder.log.size_bytes
    assert reader.read(folder.log, 1, 1, whole_first=True).size == end - 2 * ENTRY
    overwrite(folder.log.segments[0].log_path, 8, (end - 12).to_bytes(4, "big"))
    refused(partial(reader.read, folder.log, 0, 1, whole_first=True))


@pytest.mark.parametrize("found_by", ["preparing", "recovery"])
def test_a_wrapper_with_another_offset(folder: LogFolder, found_by: str) -> None:
    """The CRC does not cover it: the wrapper is opened and its messages are counted."""
    folder.open(segment_bytes=130)
    for ms in (10, 30, 50):
        folder.log.appender.append(timed_set(ms, ms + 5, codec=Codec.GZIP))
        folder.log.appender.roll()
    folder.log.flusher.flush()
    folder.log.close()
    path = folder.path / f"{2:020d}.log"
    data = bytearray(path.read_bytes())
    set_offset(data, 0, 4)
    path.write_bytes(data)
    if found_by == "preparing":
        reopened(folder, lose_indexes=True)
    else:
        log = folder.open(clean=False, recovery_point=3)
        log.prepare()
    (told,) = folder.events.named("segment_damaged")
    assert (told["path"], told["position"]) == (str(path), 0)
    assert read_all(folder)[1] == [2, 3]


@pytest.mark.parametrize("broken", ["crc", "missing", "falls"])
def test_what_is_inside_of_a_wrapper(folder: LogFolder, broken: str) -> None:
    inner = bytearray(timed_set(10, 20, 30))
    if broken == "crc":
        inner[-1] ^= 1
    elif broken == "missing":
        del inner[ENTRY : 2 * ENTRY]
    else:
        set_offset(inner, ENTRY, 0)
    wrapper = build_wrapper(inner, offset=2, timestamp_ms=30, magic=1, codec=Codec.GZIP)
    folder.path.joinpath(f"{0:020d}.log").write_bytes(wrapper + timed_set(40, base_offset=3))
    log = folder.open(clean=False)
    assert log.log_end_offset == 0
    (told,) = folder.events.named("torn_tail_cut")
    assert told["position"] == 0
    assert folder.names(".broken") == [f"{0:020d}.log.0.broken"]


def test_jumps_where_offsets_may_jump_decision_21(folder: LogFolder) -> None:
    """A jump is believed unless the entry behind it falls back; then the jump is what is wrong."""

    def opened(*offsets: int, gaps: bool = True) -> list[int]:
        for path in folder.path.iterdir():
            path.unlink()
        content = b"".join(timed_set(7, base_offset=offset) for offset in offsets)
        (folder.path / f"{0:020d}.log").write_bytes(content)
        folder.open(clean=False, gaps=gaps)
        found = [offset for offset, _ in folder.times()]
        folder.log.close()
        return found

    assert opened(0, 1, 7, 8, 20) == [0, 1, 7, 8, 20]
    assert opened(0, 1, 7, 9, 20) == [0, 1, 7, 9, 20]
    assert opened(5, 6) == [5, 6]
    assert opened(0, 1, 7, 2, 3) == [0, 1]
    assert opened(0, 1, 7, 7, 8) == [0, 1]
    assert opened(0, 1, 1, 2) == [0, 1]
    assert opened(0, 1, 0, 2) == [0, 1]
    assert opened(0, 1, 7, 8, gaps=False) == [0, 1]
    assert opened(0, 1, 2, 3, gaps=False) == [0, 1, 2, 3]


def test_a_jump_into_the_next_segment_is_damage(folder: LogFolder) -> None:
    fill(folder, [10, 20, 30, 40, 50, 60])
    overwrite(folder.path / f"{0:020d}.log", 3 * ENTRY, (9).to_bytes(8, "big"))
    folder.open(clean=False, gaps=True, recovery_point=6)
    folder.log.prepare()
    folder.let_go()
    for path in folder.path.glob("*index*"):
        path.unlink()
    folder.events.seen.clear()
    folder.open(clean=False, gaps=True, recovery_point=6)
    found, lost = read_all(folder)
    assert [offset for offset, _ in found] == [0, 1, 2, 4, 5]
    assert lost == [3]
    (told,) = folder.events.named("segment_damaged")
    assert told["rule"] == "offset 9 comes here, but this segment ends before 4"


@pytest.mark.parametrize("timed", [True, False])
def test_a_segment_that_is_gone_from_a_closed_log_is_damage(folder: LogFolder, timed: bool) -> None:
    """No reader goes past it unawares."""
    fill(folder, [10, 20, 30, 40, 50, 60] if timed else [-1] * 6, per_segment=2)
    (folder.path / f"{2:020d}.log").unlink()
    folder.open(recovery_point=6)
    found, lost = read_all(folder)
    assert [offset for offset, _ in found] == [0, 1, 4, 5]
    assert lost == [2, 3]
    (told,) = folder.events.named("segment_damaged")
    assert (told["offset"], told["position"]) == (2, folder.log.segments[0].size_bytes)


def batch_of_magic_3(offset: int) -> bytes:
    body = b"\0\0\0\0" + b"\x03" + bytes(60)
    return offset.to_bytes(8, "big") + len(body).to_bytes(4, "big") + body


def test_a_later_format_in_a_closed_segment_is_no_damage(folder: LogFolder) -> None:
    fill(folder, [10, 20, 30, 40, 50, 60])
    path = folder.path / f"{0:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data[: 2 * ENTRY] + batch_of_magic_3(3))
    content = {p.name: p.read_bytes() for p in folder.path.iterdir()}
    log = folder.open(clean=True)
    log.prepare()
    assert reader.read(log, 0, 100).size == 2 * ENTRY
    for action in (partial(reader.read, log, 2, 100), reader.find_time(log, 25).run):
        with pytest.raises(UnsupportedForMessageFormat, match="magic byte"):
            action()
    assert reader.read(log, 4, 100).size == 2 * ENTRY
    assert log.appender.append(timed_set(70)).first_offset == 6
    assert path.read_bytes() == content[path.name]
    for kind in ("index", "timeindex"):
        name = path.with_suffix(f".{kind}").name
        assert (folder.path / name).read_bytes() == content[name]


def test_a_bit_of_the_magic_is_no_later_format(folder: LogFolder) -> None:
    folder.open()
    folder.append(10)
    folder.log.appender.append(timed_set(-1, -1, magic=0))
    folder.let_go()
    flip(folder.path / f"{0:020d}.log", ENTRY + 16, 2)
    log = folder.open(clean=False)
    assert log.log_end_offset == 1
    (told,) = folder.events.named("torn_tail_cut")
    assert told["problem"] == "MAGIC"


def test_indexes_of_a_damaged_segment_are_not_believed_after_a_restart(folder: LogFolder) -> None:
    fill(folder, [10, 20, 30, 40, 50, 60, 70, 80, 90])
    flip(folder.path / f"{4:020d}.log", LAST_BYTE, 0)
    for _ in range(3):
        folder.events.seen.clear()
        log = reopened(folder, lose_indexes=_ == 0)
        assert len(folder.events.named("segment_damaged")) == 1
        refused(reader.find_time(log, 85).run)
        log.appender.append(timed_set(100))
        log.close()


def test_retention_of_a_damaged_segment(folder: LogFolder) -> None:
    """What cannot be read may be newer than what can: the file's own time decides."""
    fill(folder, [10, 20, 30, 40, 50, 60])
    flip(folder.path / f"{0:020d}.log", ENTRY + LAST_BYTE, 0)
    log = reopened(folder, lose_indexes=True)
    modified_ms = log.segments[0].modified_ms
    folder.set(retention_ms=1000)
    assert log.expiry.plan_retention(modified_ms + 1000).delete_count == 0
    plan = log.expiry.plan_retention(modified_ms + 1001)
    assert plan.verdicts[0].delete
    folder.clock.step(modified_ms + 2000 - folder.clock.now_ms())
    log.expiry.maintain(folder.clock.now_ms())
    log.expiry.drop_expired()
    assert log.log_start_offset >= 4
    log.prepare()
    assert reader.find_time(log, 1).run() is None or log.log_start_offset == 4


def test_lower_limits_make_nothing_damage_tc145(folder: LogFolder) -> None:
    folder.open()
    folder.log.appender.append(timed_set(5, 6, value=b"x" * 5000, codec=Codec.GZIP))
    folder.log.appender.append(timed_set(7, value=b"y" * 500))
    folder.let_go()
    folder.open(clean=False, max_message_bytes=50, max_decompressed_bytes=1024, segment_bytes=60)
    assert [ms for _, ms in read_all(folder)[0]] == [5, 6, 7]


def test_a_clean_stop_is_not_believed_when_the_log_ends_elsewhere(data: DataDirectory) -> None:
    directory = data.open()
    directory.create_topic("t", 1, {"segment.bytes": "90"})
    for ms in range(1, 6):
        data.append("t", ms)
    data.close()
    path = data.path / "t-0" / f"{4:020d}.log"
    overwrite(path, 8, b"\0\0\0\x63")
    data.open()
    log = data.directory.log("t", 0)
    (told,) = data.events.named("clean_stop_doubted")
    assert told["path"] == str(path)
    assert log.log_end_offset == 5
    refused(log.appender.append, timed_set(6))
    data.close()
    data.open()
    refused(lambda: data.directory.log("t", 0).appender.append(timed_set(6)))
    data.close()


def test_unclean_starts_leave_other_partitions_alone(data: DataDirectory, place: Path) -> None:
    directory = data.open()
    directory.create_topic("t", 2, {"segment.bytes": "90"})
    for partition in range(2):
        for ms in range(1, 6):
            data.append("t", ms, partition=partition)
        directory.log("t", partition).flusher.flush()
    directory.write_checkpoints()
    copy = data.copy(place / "copy")
    data.close()
    overwrite(copy.path / "t-0" / f"{4:020d}.log", LAST_BYTE, b"!")
    copy.open()
    refused(copy.append, "t", 6)
    copy.append("t", 6, partition=1)
    assert copy.times("t", 1) == [1, 2, 3, 4, 5, 6]
    copy.close()


def test_a_batch_that_was_written_so_that_it_cannot_be_opened_is_no_damage(
    folder: LogFolder,
) -> None:
    """A reader that has to open it is refused; nothing else is, and repair has nothing to do."""
    batch = timed_set(20, 30, magic=2, codec=Codec.GZIP, base_offset=1)
    batch[-6] ^= 0xFF  # of gzip's own checksum
    write_header(batch, read_header(batch))
    path = folder.path / f"{0:020d}.log"
    path.write_bytes(timed_set(10, magic=2) + batch)
    log = folder.open(clean=False, gaps=True, retention_ms=-1)
    log.prepare()
    for act in (
        lambda: reader.find_time(log, 20).run(),
        lambda: count_window(log, 0, 100, 1, 100),
        lambda: make_map(log, log.segments[0]),
    ):
        with pytest.raises(CorruptMessage, match="its CRC is right, so it was written like this"):
            act()
    assert folder.found(10, 31) == [(10, 0), None]
    assert folder.append(40) == [3]
    assert folder.found(40) == [(40, 3)]
    assert not folder.events.named("segment_damaged")
    assert all("it was written like this" in f.advice for f in verify(folder.files, folder.path))


@pytest.mark.parametrize("clean", [False, True])
def test_a_changed_number_of_records_is_damage(folder: LogFolder, clean: bool) -> None:
    """A start that checks no CRC meets it too."""
    folder.open()
    folder.log.appender.append(timed_set(1, 2, magic=2))
    folder.log.close()
    flip(folder.path / f"{0:020d}.log", RECORD_COUNT_AT, 0)
    log = folder.open(clean=clean, recovery_point=2, end_offset=2 if clean else None)
    assert log.log_end_offset == 2
    refused(log.appender.append, timed_set(3))
    assert folder.events.named("segment_damaged")


def test_every_problem_of_a_walk_has_a_rule() -> None:
    """But for a missing key: only a walk over a set that is to be appended asks for keys."""
    assert RULES.keys() == set(Problem) - {Problem.NONE, Problem.KEY}
