"""Opening a log after a clean stop, after a kill, with files missing (rules S-*)."""

from collections.abc import Callable
from zlib import crc32

import pytest

from horolog.protocol.errors import StorageError, UnsupportedForMessageFormat
from horolog.protocol.records.layout import Codec
from horolog.storage.files import SystemFiles
from horolog.storage.index.index_checksums import FILE_NAME
from horolog.testing.logs import LogFolder, timed_set, untimed_set

SUFFIXES = (".log", ".index", ".timeindex")


def fill(folder: LogFolder, count: int = 10) -> None:
    """Segments of four messages with times 0, 10, 20, ..."""
    folder.open(segment_bytes=4 * 39, index_interval_bytes=0)
    folder.append(*range(0, 10 * count, 10))


def facts(folder: LogFolder) -> tuple[object, ...]:
    log = folder.log
    log.prepare()
    return (
        log.log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        folder.times(),
        [segment.largest_timestamp_ms for segment in log.segments],
        folder.found(*range(0, 101, 5)),
    )


def test_an_empty_folder_becomes_an_empty_log_s14(folder: LogFolder) -> None:
    log = folder.open()
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    assert folder.names() == [
        "00000000000000000000.appendtime",
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
    ]
    assert folder.append(1) == [0]


def test_an_empty_folder_goes_on_at_its_log_start(folder: LogFolder) -> None:
    log = folder.open(log_start_offset=77, recovery_point=77)
    assert (log.log_start_offset, log.log_end_offset) == (77, 77)
    assert folder.append(1) == [77]


def test_a_clean_stop_and_start_tc134(folder: LogFolder) -> None:
    fill(folder)
    before = facts(folder)
    folder.log.close()
    stopped = folder.content(SUFFIXES)
    folder.files.operations.clear()
    log = folder.open()
    assert log.recovery_point == 10
    # Of a log only the tail is read, and of indexes only the active segment's.
    assert folder.files.did("pread", "0.log") + folder.files.did("pread", "4.log") == 0
    assert folder.files.did("read_bytes", "index") == 2
    assert folder.files.did("pwrite") == folder.files.did("truncate") == 0
    assert facts(folder) == before
    assert folder.content(SUFFIXES) == stopped


@pytest.mark.parametrize("checkpointed", [True, False])
@pytest.mark.parametrize("synced", [True, False])
def test_a_kill_loses_nothing_tc135(folder: LogFolder, checkpointed: bool, synced: bool) -> None:
    """S-37."""
    fill(folder, 100)
    if synced:
        folder.log.flusher.flush()
        assert folder.log.recovery_point == 100
    live = folder.content(SUFFIXES)
    before = facts(folder)
    log = folder.kill_and_restart(checkpointed=checkpointed)
    assert log.recovery_point == (100 if checkpointed and synced else 0)
    assert facts(folder) == before
    assert folder.content(SUFFIXES) == live
    assert folder.append(5) == [100]


def test_recovery_starts_at_the_segment_that_holds_the_recovery_point_s30(
    folder: LogFolder,
) -> None:
    """D16."""
    fill(folder, 8)
    folder.log.flusher.flush()
    folder.append(80, 90)
    folder.log.appender.roll()
    log = folder.kill_and_restart()
    recovered = folder.events.named("segment_recovered")
    assert [event["next_offset"] for event in recovered] == [10, 10]
    assert (log.recovery_point, log.unflushed_messages) == (8, 2)
    assert log.unflushed_since == folder.clock.monotonic()
    log.flusher.flush()
    assert log.recovery_point == 10
    assert folder.log.unflushed_since is None


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"\xa5" * 100, id="tc136-S-32-nonsense"),
        pytest.param(bytes(4096), id="S-35-zeros"),
        pytest.param(bytes(5), id="S-35-few-zeros"),
        pytest.param(bytes(timed_set(7, base_offset=10)[:-1]), id="S-35-partial-message"),
        pytest.param(bytes(timed_set(7, base_offset=9)), id="M-4-offset-again"),
        pytest.param(bytes(timed_set(7, base_offset=12)), id="decision-21-offset-jumps"),
        pytest.param(
            bytes(timed_set(7, base_offset=10)[:-1]) + b"!", id="S-32-crc-of-the-last-message"
        ),
        pytest.param(
            bytes(timed_set(7, base_offset=10)[:-1]) + b"!" + timed_set(8, base_offset=11),
            id="decision-20-good-message-behind-a-bad-one",
        ),
    ],
)
def test_garbage_at_the_end_tc136(folder: LogFolder, garbage: bytes) -> None:
    fill(folder)
    before = facts(folder)
    size = folder.log.segments[-1].size_bytes
    path = folder.log.segments[-1].log_path
    folder.let_go()
    for suffix in ("log", "index", "timeindex"):
        with path.with_suffix("." + suffix).open("ab") as file:
            file.write(garbage)
    folder.open(clean=False)
    assert facts(folder) == before
    kept = folder.content([".broken"])
    assert kept == {f"{path.name}.{size}.broken": garbage}
    (event,) = folder.events.named("torn_tail_cut")
    assert (event["position"], event["cut_bytes"]) == (size, len(garbage))
    assert folder.append(5) == [10]
    folder.kill_and_restart(checkpointed=False)
    assert folder.times()[-1] == (10, 5)


def test_the_first_bad_entry_ends_the_log_decision_20(folder: LogFolder) -> None:
    """S-31, tc137."""
    fill(folder, 12)
    damaged = folder.log.segments[1].log_path
    original = folder.content([".log"])
    folder.let_go()
    with damaged.open("r+b") as file:
        file.seek(39 + 38)
        file.write(b"!")
    log = folder.open(clean=False)
    assert (log.log_end_offset, log.segment_count) == (5, 2)
    assert [at for _, at in folder.times()] == [0, 10, 20, 30, 40]
    # Nothing is deleted: what was cut and what came behind it are kept.
    broken = folder.content([".broken"])
    assert sorted(broken) == [
        "00000000000000000004.log.39.broken",
        "00000000000000000008.log.broken",
    ]
    assert broken["00000000000000000008.log.broken"] == original["00000000000000000008.log"]
    assert len(broken["00000000000000000004.log.39.broken"]) == 3 * 39
    assert folder.append(99) == [5]
    folder.restart()
    assert folder.times()[-1] == (5, 99)
    assert folder.found(45) == [(99, 5)]


@pytest.mark.parametrize("cut_bytes", [1, 38, 39, 40, 117, 156])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_closed_segment_that_lost_its_end(folder: LogFolder, cut_bytes: int, gaps: bool) -> None:
    """A power cut may keep a later segment and lose the end of an earlier, unsynced one."""
    fill(folder, 12)
    path = folder.log.segments[1].log_path
    folder.let_go()
    with path.open("r+b") as file:
        file.truncate(156 - cut_bytes)
    log = folder.open(clean=False, gaps=gaps)
    whole = (156 - cut_bytes) // 39
    if gaps and not (156 - cut_bytes) % 39:
        # Where offsets may jump, a segment that ends early cannot be told from one with a gap.
        assert [offset for offset, _ in folder.times()] == [*range(4 + whole), 8, 9, 10, 11]
        return
    assert log.log_end_offset == 4 + whole
    assert folder.times() == [(offset, 10 * offset) for offset in range(4 + whole)]
    assert folder.append(5, 500, 600) == [4 + whole, 5 + whole, 6 + whole]
    assert folder.found(499, 501) == [(500, 5 + whole), (600, 6 + whole)]
    assert folder.names("8.log.broken") == ["00000000000000000008.log.broken"]


def test_segments_that_overlap_are_refused_decision_31(folder: LogFolder) -> None:
    fill(folder, 8)
    folder.let_go()
    source = folder.path / "00000000000000000004.log"
    source.rename(folder.path / "00000000000000000003.log")
    with pytest.raises(StorageError, match=r"0\.log: holds offset 3 .* begins at 3"):
        folder.open(clean=False)
    assert folder.names(".broken") == []


def delete_indexes(folder: LogFolder) -> None:
    for name in folder.names("index"):
        (folder.path / name).unlink()


def delete_time_indexes(folder: LogFolder) -> None:
    for name in folder.names(".timeindex"):
        (folder.path / name).unlink()


def delete_offset_indexes(folder: LogFolder) -> None:
    for name in folder.names(".index"):
        (folder.path / name).unlink()


def delete_last_time_index(folder: LogFolder) -> None:
    (folder.path / folder.names(".timeindex")[-1]).unlink()


def delete_checksums(folder: LogFolder) -> None:
    (folder.path / "index-checksums").unlink(missing_ok=True)


@pytest.mark.parametrize(
    "delete",
    [
        pytest.param(delete_indexes, id="tc138-S-11-all"),
        pytest.param(delete_time_indexes, id="tc139-decision-5-time-indexes"),
        pytest.param(delete_offset_indexes, id="S-11-offset-indexes"),
        pytest.param(delete_last_time_index, id="tc141-S-22-of-the-active-segment"),
        pytest.param(delete_checksums, id="decision-5-checksums"),
    ],
)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_missing_indexes_are_made_again(
    folder: LogFolder, delete: Callable[[LogFolder], None], clean: bool
) -> None:
    fill(folder)
    before = facts(folder)
    folder.log.close()
    stopped = folder.content(SUFFIXES)
    delete(folder)
    folder.open(clean=clean)
    assert facts(folder) == before
    folder.log.close()
    assert folder.content(SUFFIXES) == stopped


@pytest.mark.parametrize("kind", ["timeindex", "index"])
def test_an_orphan_index_is_removed_tc142(folder: LogFolder, kind: str) -> None:
    fill(folder, 4)
    folder.log.close()
    orphan = folder.path / f"00000000000000000099.{kind}"
    orphan.write_bytes(bytes(24))
    folder.open()
    assert not orphan.exists()
    assert [event["path"] for event in folder.events.named("orphan_index_removed")] == [str(orphan)]


@pytest.mark.parametrize("topic", ["a.index", "a.log", "00000000000000000000.timeindex"])
def test_a_topic_named_like_a_file_tc143(folder: LogFolder, topic: str) -> None:
    folder.path = folder.path.with_name(f"{topic}-0")
    folder.path.mkdir()
    folder.open(topic=topic, segment_bytes=78, index_interval_bytes=0)
    folder.append(10, 20, 30)
    folder.log.close()
    stopped = folder.content(SUFFIXES)
    assert len(stopped) == 6
    folder.open(topic=topic)
    assert folder.found(15, 25) == [(20, 1), (30, 2)]
    assert folder.content(SUFFIXES) == stopped
    assert folder.events.named("index_rebuilt") == []


@pytest.mark.parametrize("recovery_point", [0, 3, 10, 10**9, 2**63 - 1])
def test_any_recovery_point_opens_tc144(folder: LogFolder, recovery_point: int) -> None:
    fill(folder)
    before = facts(folder)
    folder.let_go()
    log = folder.open(clean=False, recovery_point=recovery_point)
    assert facts(folder) == before
    assert log.recovery_point == min(recovery_point, 10)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_lower_limits_lose_nothing_tc145(folder: LogFolder, clean: bool) -> None:
    folder.open()
    folder.log.appender.append(timed_set(5, value=b"x" * 1000))
    folder.log.appender.append(timed_set(7, 9, codec=Codec.GZIP, value=b"y" * 5000))
    before = folder.times()
    if clean:
        folder.log.close()
    folder.let_go()
    folder.open(clean=clean, max_message_bytes=50, segment_bytes=60, max_decompressed_bytes=1024)
    assert folder.times() == before
    assert folder.log.log_end_offset == 3


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_stray_files_are_told_and_left_alone_decision_31(folder: LogFolder, clean: bool) -> None:
    fill(folder, 4)
    folder.log.close()
    strays = ["notes.txt", "0.log", "00000000000000000000.log.old", "leader-epoch-checkpoint"]
    for name in strays:
        (folder.path / name).write_bytes(b"?")
    (folder.path / "00000000000000000000.log.77.broken").write_bytes(b"?")
    folder.open(clean=clean)
    assert len(folder.times()) == 4
    assert {name for name in strays if not (folder.path / name).exists()} == set()
    told = {str(event["path"]).rsplit("/", 1)[1] for event in folder.events.named("stray_file")}
    assert told == {"notes.txt", "0.log"}  # the third is one of Kafka's


def batch_of_magic_3(offset: int) -> bytes:
    body = b"\0\0\0\0" + b"\x03" + bytes(60)
    return offset.to_bytes(8, "big") + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_later_format_is_no_torn_tail_decision_26(folder: LogFolder, clean: bool) -> None:
    fill(folder, 4)
    path = folder.log.segments[0].log_path
    folder.log.close()
    (folder.path / "index-checksums").unlink(missing_ok=True)
    with path.open("ab") as file:
        file.write(batch_of_magic_3(4))
    data = path.read_bytes()
    with pytest.raises(UnsupportedForMessageFormat, match="magic byte") as refused:
        folder.open(clean=clean)
    assert refused.value.code == 43
    assert path.read_bytes() == data
    assert folder.names(".broken") == []


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param(0, 0, id="below-the-first-segment"),
        pytest.param(6, 6, id="inside"),
        pytest.param(10, 10, id="log-end"),
        pytest.param(99, 10, id="beyond-the-end"),
    ],
)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_the_log_start_decision_32(
    folder: LogFolder, start: int, expected: int, clean: bool
) -> None:
    fill(folder)
    folder.log.close()
    log = folder.open(clean=clean, log_start_offset=start)
    assert log.log_start_offset == expected
    assert [offset for offset, _ in folder.times()] == list(range(expected, 10))


def test_segments_of_v0_and_wrappers_survive_a_kill(folder: LogFolder) -> None:
    folder.open(segment_bytes=200, index_interval_bytes=50)
    for number in range(8):
        folder.log.appender.append(untimed_set(3, codec=Codec.GZIP if number % 2 else Codec.NONE))
        folder.log.appender.append(timed_set(number, number + 1, codec=Codec(number % 4)))
    before = facts(folder)
    folder.kill_and_restart(checkpointed=False)
    assert facts(folder) == before


def test_the_first_sync_also_syncs_the_folder(folder: LogFolder) -> None:
    folder.open()
    folder.append(1)
    folder.files.operations.clear()
    folder.log.flusher.flush()
    assert folder.files.did("sync_directory", "t-0") >= 1


def test_checksums_of_recovered_segments_are_written_with_the_next_sync(
    folder: LogFolder,
) -> None:
    fill(folder)
    folder.kill_and_restart(checkpointed=False)
    folder.log.flusher.flush()
    folder.let_go()
    folder.events.seen.clear()
    folder.open(clean=False, recovery_point=10).prepare()
    assert folder.events.named("index_rebuilt") == []


def test_two_logs_do_not_share_anything(folder: LogFolder) -> None:
    other = LogFolder(folder.path.with_name("u-0"))
    folder.open()
    other.open()
    folder.append(1)
    assert other.append(2, 3) == [0, 1]
    assert (folder.times(), other.times()) == ([(0, 1)], [(0, 2), (1, 3)])
    other.let_go()


def test_an_open_log_holds_few_files(folder: LogFolder) -> None:
    folder.open_files = type(folder.open_files)(folder.files, 2)
    fill(folder, 40)
    folder.log.flusher.flush()
    folder.log.prepare()
    assert folder.times() == [(offset, 10 * offset) for offset in range(40)]
    assert folder.files.open_count <= 3
    folder.log.close()
    assert folder.files.open_count == 0


def test_the_operating_system_s_files_do_what_they_say(folder: LogFolder) -> None:
    files = SystemFiles()
    path = folder.path / "file"
    file = files.open(path, create=True)
    file.pwrite(b"hello", 3)
    assert (file.size(), file.pread(99, 0), file.pread(2, 99)) == (8, b"\0\0\0hello", b"")
    files.set_modified_ms(path, 1_234_567_890_123)
    assert files.modified_ms(path) == 1_234_567_890_123
    twin = file.duplicate()
    file.close()
    file.close()
    assert twin.pread(2, 3) == b"he"
    twin.truncate(4)
    twin.close()
    assert files.size(path) == 4


def test_an_index_that_goes_beyond_its_log_is_not_believed(folder: LogFolder) -> None:
    """It fits its checksum, and another log that is as long."""
    log = folder.open(index_interval_bytes=0)
    folder.append(*range(0, 60, 10))
    log.close()
    index = folder.path / f"{0:020d}.index"
    checksums = folder.path / FILE_NAME
    old = index.read_bytes()
    lie = old[:-8] + (100).to_bytes(4, "big") + old[-4:]
    index.write_bytes(lie)
    checksums.write_bytes(
        checksums.read_bytes().replace(b" %d " % crc32(old), b" %d " % crc32(lie))
    )
    log = folder.open(index_interval_bytes=0, recovery_point=6)
    assert folder.events.named("clean_stop_doubted")
    assert folder.append(60, 70) == [6, 7]
    assert log.log_end_offset == 8
    assert index.read_bytes()[: len(old)] == old
