"""What goes into the indexes of a log, and whether they can be believed (rules I-*)."""

from collections.abc import Callable
from random import Random

import pytest

from horolog.protocol.records.layout import Codec
from horolog.testing.logs import LogFolder, timed_set, untimed_set

NOW = 1_479_144_272_509
SUFFIXES = (".log", ".index", ".timeindex")


def test_thirty_appends_tc93(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=2 * 39 - 1)
    folder.append(*range(30))
    assert len(folder.time_entries()) == 14
    assert folder.offset_entries() == [(n, n * 39) for n in range(2, 30, 2)]


def test_base_40_tc94(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=2 * 39 - 1)
    folder.log.truncate_fully(40)
    folder.append(*range(400, 500, 10))
    assert folder.time_entries() == [(420, 43), (440, 45), (460, 47), (480, 49)]
    assert folder.found(420, 421, 430, 431, 491, 401, 399) == [
        (420, 42),
        (430, 43),
        (430, 43),
        (440, 44),
        None,
        (410, 41),
        (400, 40),
    ]


def test_all_v0_tc95(folder: LogFolder) -> None:
    """D5."""
    log = folder.open(index_interval_bytes=0)
    for _ in range(5):
        log.appender.append(untimed_set())
    log.close()
    assert folder.content([".timeindex"]) == {"00000000000000000000.timeindex": b""}
    assert len(folder.content(["0.index"])["00000000000000000000.index"]) == 4 * 8


def test_equal_times_make_one_entry_tc96(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=0)
    folder.append(5, 5, 5)
    assert folder.time_entries() == [(5, 2)]


def test_entries_when_the_maximum_grew_tc97(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=0)
    folder.append(10, 3, 7, 20)
    assert folder.time_entries() == [(10, 2), (20, 4)]


def test_the_closing_entry_tc98(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=0)
    folder.append(10, 3, 7)
    folder.restart()
    assert folder.time_entries() == [(10, 3)]
    folder.append(8, 20)
    assert folder.time_entries() == [(10, 3), (20, 5)]
    folder.append(30, 25)
    folder.restart()
    assert folder.time_entries() == [(10, 3), (20, 5), (30, 7)]


def test_a_roll_and_a_close_write_one_closing_entry_tc99(folder: LogFolder) -> None:
    log = folder.open()
    folder.append(10, 20)
    log.appender.roll()
    log.close()
    assert folder.content(["0.timeindex"])["00000000000000000000.timeindex"].hex() == (
        "000000000000001400000002"
    )


@pytest.mark.parametrize(
    ("sets", "offset_entries", "time_entries"),
    [
        pytest.param([[1, 2, 3]], [(1, 39), (2, 78)], [(2, 2), (3, 3)], id="I-12-B-30-one-set"),
        pytest.param([[1], [2], [3]], [(1, 39), (2, 78)], [(2, 2), (3, 3)], id="I-12-three-sets"),
        pytest.param([[3, 2, 1]], [(1, 39), (2, 78)], [(3, 2)], id="I-14-earlier-message"),
        pytest.param([[-1, -1, 4]], [(1, 39), (2, 78)], [(4, 3)], id="I-13-none-before"),
    ],
)
def test_entries_per_message_not_per_append(
    folder: LogFolder,
    sets: list[list[int]],
    offset_entries: list[tuple[int, int]],
    time_entries: list[tuple[int, int]],
) -> None:
    """decision 3."""
    folder.open(index_interval_bytes=0)
    for times in sets:
        folder.log.appender.append(timed_set(*times))
    assert folder.offset_entries() == offset_entries
    assert folder.time_entries() == time_entries


@pytest.mark.parametrize(
    ("interval", "positions"),
    [
        pytest.param(38, [39, 78, 117], id="I-10-less-than-an-entry"),
        pytest.param(39, [78], id="I-10-equal-is-not-more"),
        pytest.param(77, [78], id="I-10-less-than-two"),
        pytest.param(78, [117], id="I-10-two"),
        pytest.param(116, [117], id="I-10-less-than-three"),
        pytest.param(117, [], id="I-10-three"),
    ],
)
@pytest.mark.parametrize("in_one_set", [True, False])
def test_the_interval(
    folder: LogFolder, interval: int, positions: list[int], in_one_set: bool
) -> None:
    """D13."""
    folder.open(index_interval_bytes=interval)
    if in_one_set:
        folder.log.appender.append(timed_set(1, 2, 3, 4))
    else:
        folder.append(1, 2, 3, 4)
    assert [position for _, position in folder.offset_entries()] == positions


@pytest.mark.parametrize("again", ["live", "clean", "unclean", "truncated"])
def test_the_interval_goes_on_after_a_restart(folder: LogFolder, again: str) -> None:
    folder.open(index_interval_bytes=100)
    folder.append(1, 2, 3, 4, 5)
    if again == "clean":
        folder.restart()
    elif again == "unclean":
        folder.kill_and_restart()
    elif again == "truncated":
        folder.append(6)
        folder.log.truncate(5)
    folder.append(6, 7, 8)
    assert folder.offset_entries() == [(3, 3 * 39), (6, 6 * 39)]


def test_wrappers_are_indexed_by_their_last_message_p3e(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=0)
    folder.append(1)
    folder.log.appender.append(timed_set(100, 300, 200, codec=Codec.GZIP))
    wrapper_end = folder.log.size_bytes
    folder.log.appender.append(timed_set(400, 350, codec=Codec.GZIP))
    assert folder.offset_entries() == [(3, 39), (5, wrapper_end)]
    assert folder.time_entries() == [(300, 4), (400, 6)]
    assert folder.log.segments[0].largest == (400, 5)


def write_some(folder: LogFolder, random: Random) -> None:
    """Sets of all kinds, and restarts of neither kind between them."""
    for _ in range(60):
        times = [
            random.choice((-1, random.randrange(10**6))) for _ in range(random.randrange(1, 6))
        ]
        codec = random.choice((Codec.NONE, Codec.NONE, Codec.GZIP))
        if random.random() < 0.2:
            folder.log.appender.append(untimed_set(len(times), codec=codec))
        else:
            folder.log.appender.append(timed_set(*times, codec=codec))


@pytest.mark.parametrize("seed", range(5))
def test_rebuilt_indexes_equal_live_ones_v5(folder: LogFolder, seed: int) -> None:
    folder.open(index_interval_bytes=100, segment_bytes=2000)
    write_some(folder, Random(seed))
    folder.log.appender.roll()
    live = folder.content(SUFFIXES)
    largest = [segment.largest_timestamp_ms for segment in folder.log.segments]
    time_bytes = sum(len(data) for name, data in live.items() if name.endswith(".timeindex"))
    assert time_bytes >= 12 * (folder.log.segment_count - 1)
    folder.kill_and_restart(checkpointed=False)
    assert folder.content(SUFFIXES) == live
    assert [segment.largest_timestamp_ms for segment in folder.log.segments] == largest
    folder.kill_and_restart(checkpointed=False)
    assert folder.content(SUFFIXES) == live


@pytest.mark.parametrize("seed", range(5))
def test_searches_in_a_random_log_tc103(folder: LogFolder, seed: int) -> None:
    random = Random(seed)
    folder.open(index_interval_bytes=random.choice((0, 50, 200)), segment_bytes=3000)
    write_some(folder, random)
    folder.log.truncate(random.randrange(1, folder.log.log_end_offset))
    write_some(folder, random)
    messages = folder.times()
    targets = [random.randrange(10**6) for _ in range(100)] + [at for _, at in messages if at >= 0]
    expected = [
        next(((at, offset) for offset, at in messages if at >= target), None) for target in targets
    ]
    assert folder.found(*targets) == expected


def zero_tail(folder: LogFolder) -> None:
    """As Kafka leaves a preallocated index behind when it is killed."""
    for name in folder.names("index"):
        with (folder.path / name).open("ab") as file:
            file.write(bytes(1200))


def all_zeros(folder: LogFolder) -> None:
    for name in folder.names(".timeindex"):
        (folder.path / name).write_bytes(bytes(12 * 100))


def torn(folder: LogFolder) -> None:
    for name in folder.names("index"):
        path = folder.path / name
        path.write_bytes(path.read_bytes() + b"\0\0\0")


def gone(folder: LogFolder) -> None:
    for name in folder.names("index"):
        (folder.path / name).unlink()


def time_index_gone(folder: LogFolder) -> None:
    for name in folder.names(".timeindex"):
        (folder.path / name).unlink()


def emptied(folder: LogFolder) -> None:
    for name in folder.names("index"):
        (folder.path / name).write_bytes(b"")


def swapped(folder: LogFolder) -> None:
    """Each index file in the place of the next segment's."""
    for suffix in (".index", ".timeindex"):
        paths = [folder.path / name for name in folder.names(suffix)]
        contents = [path.read_bytes() for path in paths]
        for path, data in zip(paths, contents[1:] + contents[:1], strict=True):
            path.write_bytes(data)


def wrong_in_the_middle(folder: LogFolder) -> None:
    for name in folder.names("index"):
        path = folder.path / name
        data = bytearray(path.read_bytes())
        if data:
            data[len(data) // 2] ^= 0x40
        path.write_bytes(data)


DAMAGES = [
    zero_tail,
    all_zeros,
    torn,
    gone,
    time_index_gone,
    emptied,
    swapped,
    wrong_in_the_middle,
]
TIMES = [50, 10, 90, 30, 70, 20, 60, 80, 40, 100, 95, 15]


def three_segments(folder: LogFolder) -> dict[str, bytes]:
    """Segments of four messages each; returns the files as a clean stop leaves them."""
    folder.open(index_interval_bytes=0, segment_bytes=4 * 39, retention_ms=1000)
    folder.append(*TIMES)
    folder.log.close()
    return folder.content(SUFFIXES)


def check_three_segments(folder: LogFolder) -> None:
    log = folder.log
    assert (log.log_end_offset, log.segment_count) == (12, 3)
    assert folder.times() == list(enumerate(TIMES))
    assert folder.found(*range(0, 101, 5)) == [
        next((at, offset) for offset, at in enumerate(TIMES) if at >= target)
        for target in range(0, 101, 5)
    ]
    assert [segment.largest_timestamp_ms for segment in log.segments] == [90, 80, 100]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_indexes_are_never_believed_over_the_log_tc105_tc106(
    folder: LogFolder, damage: Callable[[LogFolder], None], clean: bool
) -> None:
    before = three_segments(folder)
    damage(folder)
    folder.open(clean=clean)
    folder.log.prepare()
    check_three_segments(folder)
    rebuilt = folder.content(SUFFIXES)
    del before["00000000000000000008.timeindex"], rebuilt["00000000000000000008.timeindex"]
    assert rebuilt == before


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_damaged_index_deletes_nothing_tc106_b1(
    folder: LogFolder, damage: Callable[[LogFolder], None], clean: bool
) -> None:
    three_segments(folder)
    damage(folder)
    folder.open(clean=clean)
    folder.log.expiry.maintain(1080)
    assert folder.bases() == [0, 4, 8]
    folder.log.expiry.maintain(1091)
    assert folder.bases() == [8]


def test_the_file_s_time_is_no_way_around_a_lost_index_tc140(folder: LogFolder) -> None:
    three_segments(folder)
    time_index_gone(folder)
    folder.open()
    folder.log.expiry.maintain(1080)
    folder.kill_and_restart()
    folder.log.expiry.maintain(1090)
    assert folder.bases() == [0, 4, 8]


@pytest.mark.parametrize("lines", [b"", b"0\n", b"nonsense", b"1\n0 0 0 0 0 0:1\n"])
def test_without_checksums_indexes_are_rebuilt(folder: LogFolder, lines: bytes) -> None:
    """S-23."""
    three_segments(folder)
    (folder.path / "index-checksums").write_bytes(lines)
    folder.open().prepare()
    check_three_segments(folder)
    rebuilt = {event["reason"] for event in folder.events.named("index_rebuilt")}
    assert rebuilt == {"no checksum"}
    folder.events.seen.clear()
    folder.restart().prepare()
    assert folder.events.named("index_rebuilt") == []


def test_good_indexes_are_not_read_twice_nor_rebuilt_tc134(folder: LogFolder) -> None:
    before = three_segments(folder)
    folder.files.operations.clear()
    log = folder.open()
    assert not log.prepared
    log.prepare()
    assert log.prepared
    check_three_segments(folder)
    assert folder.events.named("index_rebuilt") == []
    assert folder.content(SUFFIXES) == before
    assert folder.files.did("read_bytes", ".timeindex") == 3


def test_another_segment_s_indexes_do_not_pass_as_one_s_own(folder: LogFolder) -> None:
    folder.open(index_interval_bytes=0, segment_bytes=4 * 39)
    folder.append(10, 20, 30, 40)
    folder.append(110, 120, 130, 140)
    folder.log.close()
    paths = [folder.path / f"{base:020d}.timeindex" for base in (0, 4)]
    paths[0].write_bytes(paths[1].read_bytes())
    folder.open().prepare()
    assert folder.log.segments[0].largest_timestamp_ms == 40
    assert folder.found(35) == [(40, 3)]
