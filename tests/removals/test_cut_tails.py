"""What a start cut off at the end of a log: the journal names the offsets that are known to be
gone, and no answer calls the log complete."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horolog import blocking
from horolog.storage.directory.journal import Removal
from horolog.storage.log import recovery
from horolog.testing.broker import BrokerThread
from horolog.testing.directories import DataDirectory, copy_as_killed
from horolog.tests.in_process import run_in_process

T0 = 1_700_000_000_000
MESSAGES = 10
KEPT = "; they are kept as .broken"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[DataDirectory, Sequence[int]]:
    """A data directory with one message in each set, and where each set begins and the last ends;
    as a kill leaves it."""
    data = DataDirectory(tmp_path_factory.mktemp("cut") / "data")
    data.open().create_topic("t", 1, {})
    ends = [0]
    for number in range(MESSAGES):
        data.append("t", T0 + number)
        ends.append(data.directory.log("t", 0).segment_list.active.size_bytes)
    return data, ends


def log_file(path: Path, topic: str = "t", base_offset: int = 0) -> Path:
    return path / f"{topic}-0" / f"{base_offset:020d}.log"


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


@given(
    damaged=st.dictionaries(
        st.integers(0, MESSAGES - 1), st.floats(0, 1, exclude_max=True), max_size=3
    ),
    cut=st.floats(0.3, 1),
)
@settings(max_examples=25, deadline=None)
def test_it_is_what_a_plain_list_says(
    stored: tuple[DataDirectory, Sequence[int]],
    tmp_path_factory: pytest.TempPathFactory,
    damaged: dict[int, float],
    cut: float,
) -> None:
    data, ends = stored
    copy = data.copy(tmp_path_factory.mktemp("copy") / "data")
    path = log_file(copy.path)
    size = max(int(cut * ends[-1]), ends[max(damaged, default=0)] + 13)
    for number, part in damaged.items():
        # Neither the offset nor the leader epoch, which no checksum covers, nor the magic byte.
        body = ends[number] + 17
        flip(path, body + int(part * (ends[number + 1] - body)))
    path.write_bytes(path.read_bytes()[:size])

    whole = [
        number
        for number, (begin, end) in enumerate(pairwise(ends))
        if number not in damaged and end <= size
    ]
    kept = next((at for at in range(MESSAGES) if at not in whole), MESSAGES)
    behind = [number for number in whole if number > kept]
    assert copy.open().log("t", 0).log_end_offset == kept
    if ends[kept] == size:
        assert copy.directory.truncations.of("t") == []
    else:
        (entry,) = copy.directory.truncations.of("t")
        end = max(behind, default=kept - 1) + 1
        known = bool(behind) and ends[end] == size
        assert (entry.first_offset, entry.end_offset) == (kept, end)
        assert entry.messages == (end - kept if known else -1)
        assert (entry.first_timestamp_ms, entry.largest_timestamp_ms) == (-1, -1)
        lost = size - ends[kept]
        assert entry.rule == f"a start found {lost} B incomplete or damaged{KEPT}"
    copy.close()


def only_entry(data: DataDirectory) -> Removal:
    (entry,) = data.open().truncations.of("t")
    return entry


def test_segments_behind_the_damage(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data")
    data.open().create_topic("t", 1, {"segment.bytes": "80"})
    for number in range(MESSAGES):
        data.append("t", T0 + number)
    bases = [each.base_offset for each in data.directory.log("t", 0).segments]
    assert len(bases) > 3
    killed = data.copy(tmp_path / "killed")
    (killed.path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    flip(log_file(killed.path, base_offset=bases[1]), 30)
    entry = only_entry(killed)
    assert (entry.first_offset, entry.end_offset, entry.messages) == (bases[1], 10, 10 - bases[1])
    killed.close()

    killed = data.copy(tmp_path / "torn")
    (killed.path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    last = log_file(killed.path, base_offset=bases[-1])
    last.write_bytes(last.read_bytes()[:-1])
    flip(log_file(killed.path, base_offset=bases[1]), 30)
    entry = only_entry(killed)
    assert entry.first_offset == bases[1]
    assert bases[-1] <= entry.end_offset < 10
    assert entry.messages == -1
    killed.close()
    data.close()


def test_the_entry_is_stored_before_the_bytes_are_cut(
    stored: tuple[DataDirectory, Sequence[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = stored[0].copy(tmp_path / "data")
    flip(log_file(copy.path), stored[1][7] + 30)

    def stopped(*_: object) -> Path:
        raise OSError("stopped here")

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "quarantine_bytes", stopped)
        first = only_entry(copy)
        copy.close()
    assert (first.first_offset, first.end_offset, first.messages) == (7, 10, 3)
    again = only_entry(copy)
    assert again == first
    assert copy.directory.log("t", 0).log_end_offset == 7
    copy.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_before_what_was_synced(tmp_path: Path, clean: bool) -> None:
    """Its file lost whole sets: nothing is torn, and still messages are gone."""
    data = DataDirectory(tmp_path / "data")
    data.open().create_topic("t", 1, {})
    for number in range(4):
        data.append("t", T0 + number)
    log = data.directory.log("t", 0)
    end = log.segment_list.active.size_bytes
    for number in range(4, MESSAGES):
        data.append("t", T0 + number)
    log.flusher.flush()
    data.directory.write_checkpoints()
    if clean:
        data.close()
    else:
        data = data.copy(tmp_path / "killed")
    path = log_file(data.path)
    path.write_bytes(path.read_bytes()[:end])
    entry = only_entry(data) if not clean else only_entry_of_first_use(data)
    assert data.directory.log("t", 0).log_end_offset == 4
    assert entry.first_offset == 4
    assert entry.end_offset in (4, 10)
    assert entry.messages in (-1, 6)
    assert entry.largest_timestamp_ms == -1
    assert "recovery point 10" in entry.rule
    data.close()
    data.open()
    assert len(data.directory.truncations.of("t")) == 1
    data.close()


def only_entry_of_first_use(data: DataDirectory) -> Removal:
    directory = data.open()
    directory.log("t", 0)
    (entry,) = directory.truncations.of("t")
    return entry


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[Callable[[Callable[[Path], None]], BrokerThread]]:
    """Starts a broker on what a kill left of topic `t` with ten synced messages, once a function
    has harmed the log file."""
    first, second = tmp_path / "data", tmp_path / "killed"
    with BrokerThread(first, {"retention.ms": -1}) as broker:
        with blocking.Admin(broker.address) as admin, blocking.Producer(broker.address) as producer:
            admin.create_topic("t")
            for number in range(MESSAGES):
                producer.send("t", b"m%d" % number, timestamp_ms=T0 + number)
        copy_as_killed(first, second)
    started: list[BrokerThread] = []

    def start(harm: Callable[[Path], None]) -> BrokerThread:
        harm(log_file(second))
        broker = BrokerThread(second, {"retention.ms": -1, "http.listen": "127.0.0.1:0"})
        broker.start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.stop()


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    third = len(data) * 7 // MESSAGES
    data[third + 30 : third + 50] = b"\xff" * 20
    path.write_bytes(data)


def tear(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0" * 7 + b"\x0a" + b"\0\0\1\0" + b"\0" * 8)


def get(server: BrokerThread, path: str) -> Any:
    with urlopen(f"http://{server.http_address}/page/{path}") as answer:
        return json.load(answer)


@pytest.mark.parametrize(
    ("harm", "gone"),
    [
        (damage, "t-0: offsets 7 to 9 (3 messages, times not known) were cut off"),
        (tear, "t-0: bytes from offset 10 on (messages and times not known) were cut off"),
    ],
)
def test_every_answer_says_so(
    restarted: Callable[[Callable[[Path], None]], BrokerThread],
    harm: Callable[[Path], None],
    gone: str,
) -> None:
    broker = restarted(harm)

    def run(*arguments: str) -> Any:
        result = run_in_process([*arguments], b"", {"HOROLOG_SERVER": broker.address})
        assert result.code == 0, result
        return result

    unknown = "horolog: it is not known what left t: see `horolog explain gone t`"
    told, complete = run("explain", "gone", "t").out.splitlines()
    assert told.startswith(f"{gone} at this broker: a start found ")
    assert KEPT in told
    assert complete == "t-0 begins at offset 0; it is not known from when on it is complete."
    (entry,) = run("explain", "gone", "t", "--json").objects
    assert (entry["first_timestamp_ms"], entry["largest_timestamp_ms"]) == (None, None)
    assert entry["messages"] == (3 if harm is damage else None)
    for command in (
        ("consume", "t", "--from", str(T0)),
        ("offsets", "t", "--at", str(T0)),
        ("histogram", "t", "--from", str(T0), "--until", str(T0 + 50), "--every", "10ms"),
    ):
        assert run(*command).err.splitlines()[0] == unknown

    with blocking.Admin(broker.address) as admin, blocking.Consumer(broker.address) as consumer:
        window = consumer.window("t", T0, T0 + 99)
        assert sum(1 for _ in window) == (7 if harm is damage else 10)
        assert (window.complete_from_ms, window.removed) == (None, ())
        assert admin.find_offset("t", 0, timestamp_ms=T0).complete_from_ms is None
        assert admin.count_by_time("t", T0, T0 + 99).complete_from_ms is None
        (removal,) = admin.describe_removals("t").removals
        # What was cut was appended before that, whatever its times are.
        by_append = admin.find_offset("t", 0, timestamp_ms=0, by="append")
        assert by_append.complete_from_ms == removal.at_ms + 1
        assert by_append.removed == (removal,)
        counts = admin.count_by_time("t", 0, removal.at_ms, by="append")
        assert (counts.complete_from_ms, counts.removed) == (removal.at_ms + 1, (removal,))
    page = get(broker, f"histogram?topic=t&from={T0}&until={T0 + 99}&bars=3")
    assert page["complete_from_ms"] is None
    assert get(broker, f"find?topic=t&partition=0&at={T0}")["complete_from_ms"] is None
