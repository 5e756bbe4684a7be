import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horolog.protocol.errors import (
    InvalidCommitOffsetSize,
    InvalidGroupId,
    InvalidRequest,
    StorageError,
)
from horolog.storage.directory.position_records import BROKERS
from horolog.storage.directory.positions import (
    MAX_NAME_BYTES,
    MIN_COMPACTION_BYTES,
    Positions,
    StoredPosition,
)
from horolog.storage.events import ignore_events
from horolog.storage.files import SystemFiles
from horolog.testing.files import FaultyFiles, QuickFiles
from horolog.testing.logs import RecordedEvents

State = dict[str, dict[tuple[str, int], StoredPosition]]


def position(
    offset: int = 1, topic: str = "a", partition: int = 0, metadata: str = ""
) -> StoredPosition:
    return StoredPosition(topic, partition, offset, 1_000 + offset, 2_000 + offset, metadata)


def state(positions: Positions) -> State:
    return {
        name: {(p.topic, p.partition): p for p in positions.of(name)} for name in positions.names()
    }


def test_what_is_committed_is_there_after_a_reopening(tmp_path: Path, files: SystemFiles) -> None:
    positions = Positions(files, tmp_path, ignore_events)
    assert files.names(tmp_path) == []
    positions.commit("job", [position(1, "b"), position(2, "a", 10), position(3, "a", 9)])
    positions.commit("job", [position(7, "b", metadata="ünï")])
    positions.commit("other", [position(5)])
    expected = [position(3, "a", 9), position(2, "a", 10), position(7, "b", metadata="ünï")]
    for store in (positions, Positions(files, tmp_path, ignore_events)):
        assert store.of("job") == expected
        assert store.get("job", "b", 0) == expected[2]
        assert store.get("job", "b", 1) is None
        assert store.get("nobody", "b", 0) is None
        assert store.of("nobody") == []
        assert store.names() == ["job", "other"]
        store.close()


def test_forgetting(tmp_path: Path, files: SystemFiles) -> None:
    positions = Positions(files, tmp_path, ignore_events)
    positions.commit("one", [position(1, "a"), position(1, "b")])
    positions.commit("two", [position(1, "a")])
    positions.commit("three", [position(1, "a")])
    positions.forget("three")
    positions.forget("three")
    positions.forget_topic("a")
    positions.forget_topic("nothing")
    for store in (positions, Positions(files, tmp_path, ignore_events)):
        assert state(store) == {"one": {("b", 0): position(1, "b")}}
        store.close()


def test_when_a_name_was_used_outlives_its_positions(tmp_path: Path, files: SystemFiles) -> None:
    positions = Positions(files, tmp_path, ignore_events)
    places = [
        position(1, topic)._replace(retention_ms=60_000, commit_time_ms=5)
        for topic in ("a", "b", "c")
    ]
    positions.commit("one", places)
    positions.used("one", 70)
    positions.forget_some("one", [("a", 0), ("b", 0)])
    positions.forget_some("one", [("a", 0)])
    for store in (positions, Positions(files, tmp_path, ignore_events)):
        assert [(each.topic, each.used_ms) for each in store.of("one")] == [("c", 70)]
        assert store.expires_ms("one", 0) == 60_070
        store.close()


def test_an_empty_commit_changes_nothing(tmp_path: Path, files: SystemFiles) -> None:
    positions = Positions(files, tmp_path, ignore_events)
    positions.commit("job", [])
    assert positions.names() == []
    assert files.names(tmp_path) == []


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME_BYTES + 1), "ü" * (MAX_NAME_BYTES // 2 + 1)])
def test_names_out_of_bounds_are_refused(name: str, tmp_path: Path, files: SystemFiles) -> None:
    positions = Positions(files, tmp_path, ignore_events)
    with pytest.raises(InvalidGroupId, match=f"allowed are 1 to {MAX_NAME_BYTES}"):
        positions.commit(name, [position()])
    positions.commit("x" * MAX_NAME_BYTES, [position()])
    assert positions.names() == ["x" * MAX_NAME_BYTES]


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(position(-1), id="offset"),
        pytest.param(position(1, partition=-1), id="partition"),
        pytest.param(position(1, topic=""), id="no-topic"),
        pytest.param(position(1, topic="x" * 250), id="long-topic"),
    ],
)
def test_what_is_no_position_is_refused_whole(
    entry: StoredPosition, tmp_path: Path, files: SystemFiles
) -> None:
    positions = Positions(files, tmp_path, ignore_events)
    with pytest.raises(InvalidRequest):
        positions.commit("job", [position(), entry])
    assert positions.names() == []


def test_the_number_of_positions_is_bounded(tmp_path: Path, files: SystemFiles) -> None:
    positions = Positions(files, tmp_path, ignore_events, max_positions=3)
    positions.commit("one", [position(1, "a"), position(1, "b")])
    positions.commit("two", [position(1, "a"), position(2, "a")])
    with pytest.raises(InvalidCommitOffsetSize, match="limit of 3"):
        positions.commit("two", [position(5, "a"), position(1, "b")])
    assert positions.get("two", "a", 0) == position(2, "a")
    positions.commit("two", [position(9, "a")])
    positions.forget("one")
    positions.commit("two", [position(1, "b"), position(1, "c")])
    assert len(positions.of("two")) == 3


COMMITS = st.lists(
    st.one_of(
        st.tuples(
            st.just("commit"),
            st.sampled_from(["one", "two", "drei"]),
            st.lists(
                st.builds(
                    position,
                    st.integers(0, 2**63 - 3_000),
                    st.sampled_from(["a", "b"]),
                    st.integers(0, 2),
                    st.text(max_size=5),
                ),
                min_size=1,
                max_size=3,
            ),
        ),
        st.tuples(st.just("forget"), st.sampled_from(["one", "two"]), st.just([])),
        st.tuples(st.just("forget-topic"), st.sampled_from(["a", "b"]), st.just([])),
        st.tuples(
            st.just("forget-some"),
            st.sampled_from(["one", "two"]),
            st.lists(
                st.builds(position, st.just(0), st.sampled_from(["a", "b"]), st.integers(0, 2)),
                max_size=3,
            ),
        ),
    ),
    max_size=8,
)


def apply(model: State, kind: str, name: str, entries: list[StoredPosition]) -> None:
    if kind == "commit":
        model.setdefault(name, {}).update({(p.topic, p.partition): p for p in entries})
    elif kind == "forget":
        model.pop(name, None)
    elif kind == "forget-some":
        for each in entries:
            model.get(name, {}).pop((each.topic, each.partition), None)
        if not model.get(name):
            model.pop(name, None)
    else:
        for owner in list(model):
            kept = {key: value for key, value in model[owner].items() if key[0] != name}
            if kept:
                model[owner] = kept
            else:
                del model[owner]


@given(COMMITS, st.data())
def test_a_crash_at_any_byte_keeps_every_whole_commit(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[tuple[str, str, list[StoredPosition]]],
    data: st.DataObject,
) -> None:
    directory = tmp_path_factory.mktemp("positions")
    files = QuickFiles()
    positions = Positions(files, directory, ignore_events)
    path = directory / "positions"
    model: State = {}
    states: list[tuple[int, State]] = [(0, {})]
    for kind, name, entries in commits:
        if kind == "commit":
            positions.commit(name, entries)
        elif kind == "forget":
            positions.forget(name)
        elif kind == "forget-some":
            positions.forget_some(name, [(each.topic, each.partition) for each in entries])
        else:
            positions.forget_topic(name)
        apply(model, kind, name, entries)
        size = path.stat().st_size if path.exists() else 0
        states.append((size, {owner: dict(held) for owner, held in model.items()}))
    assert state(positions) == model
    positions.close()
    if not path.exists():
        return

    size = data.draw(st.integers(0, path.stat().st_size), label="bytes that survive")
    os.truncate(path, size)
    events = RecordedEvents()
    survivor = Positions(files, directory, events)
    expected = [after for end, after in states if end <= size][-1]
    assert state(survivor) == expected
    whole = size in {end for end, _ in states} or size <= len(b"horolog positions 1\n")
    assert len(events.named("positions_cut")) == (not whole)

    survivor.commit("after", [position(42)])
    survivor.close()
    apply(expected, "commit", "after", [position(42)])
    again = Positions(files, directory, ignore_events)
    assert state(again) == expected
    again.close()


def test_the_cut_bytes_are_kept(tmp_path: Path, files: SystemFiles, events: RecordedEvents) -> None:
    positions = Positions(files, tmp_path, ignore_events)
    positions.commit("job", [position(1)])
    good = (tmp_path / "positions").read_bytes()
    positions.commit("job", [position(2)])
    positions.close()
    whole = (tmp_path / "positions").read_bytes()
    (tmp_path / "positions").write_bytes(whole[:-1])
    survivor = Positions(files, tmp_path, events)
    assert survivor.of("job") == [position(1)]
    [cut] = events.named("positions_cut")
    assert cut["bytes"] == len(whole) - len(good) - 1
    assert Path(cut["kept"]).read_bytes() == whole[len(good) : -1]
    assert (tmp_path / "positions").read_bytes() == good


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_anywhere_costs_at_most_its_own_commit(bit: int, tmp_path: Path) -> None:
    files = QuickFiles()
    path = tmp_path / "positions"
    positions = Positions(files, tmp_path, ignore_events)
    ends = []
    for number in range(4):
        positions.commit("job", [position(number, partition=number)])
        ends.append(path.stat().st_size)
    positions.close()
    whole = path.read_bytes()
    header = len(b"horolog positions 1\n")
    for at in range(header, len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << bit
        path.write_bytes(damaged)
        events = RecordedEvents()
        survivor = Positions(files, tmp_path, events)
        hit = next(number for number, end in enumerate(ends) if at < end)
        expected = [position(n, partition=n) for n in range(4) if n != hit]
        assert survivor.of("job") == expected
        last = hit == len(ends) - 1
        assert len(events.named("positions_cut" if last else "positions_damaged")) == 1
        survivor.close()
        quiet = RecordedEvents()
        again = Positions(files, tmp_path, quiet)
        assert again.of("job") == expected
        assert quiet.seen == []
        again.close()


def test_another_file_s_content_is_set_aside(
    tmp_path: Path, files: SystemFiles, events: RecordedEvents
) -> None:
    (tmp_path / "positions").write_bytes(b"\0" * 1000)
    positions = Positions(files, tmp_path, events)
    [damage] = events.named("positions_damaged")
    assert Path(damage["kept"]).read_bytes() == b"\0" * 1000
    positions.commit("job", [position()])
    positions.close()
    assert Positions(files, tmp_path, ignore_events).of("job") == [position()]


def test_the_file_is_compacted_when_garbage_dominates(
    tmp_path: Path, files: SystemFiles, events: RecordedEvents
) -> None:
    path = tmp_path / "positions"
    positions = Positions(files, tmp_path, events)
    positions.commit("idle", [position(3, metadata="x" * 1000)])
    number = 0
    largest = 0
    while len(events.named("positions_compacted")) < 2:
        batch = [position(number, partition=p, metadata="y" * 4000) for p in range(50)]
        positions.commit("job", batch)
        largest = max(largest, path.stat().st_size)
        number += 1
    assert largest < 2 * MIN_COMPACTION_BYTES
    assert path.stat().st_size < MIN_COMPACTION_BYTES // 2
    positions.commit("job", [position(77)])
    expected = state(positions)
    positions.close()
    assert state(Positions(files, tmp_path, ignore_events)) == expected
    assert files.names(tmp_path) == ["positions"]


def test_many_live_positions_survive_compaction(tmp_path: Path, files: SystemFiles) -> None:
    positions = Positions(files, tmp_path, ignore_events)
    for number in range(12):
        positions.commit("job", [position(number, partition=p) for p in range(2500)])
    positions.close()
    again = Positions(files, tmp_path, ignore_events)
    assert again.of("job") == [position(11, partition=p) for p in range(2500)]


def test_a_full_disk_refuses_and_recovers(tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    positions = Positions(files, tmp_path, ignore_events)
    positions.commit("job", [position(1)])
    before = (tmp_path / "positions").read_bytes()
    files.fail("pwrite", errno.ENOSPC, written=20)
    with pytest.raises(StorageError, match="positions cannot be written"):
        positions.commit("job", [position(2)])
    assert positions.of("job") == [position(1)]
    assert (tmp_path / "positions").read_bytes() == before
    positions.commit("job", [position(3)])
    assert Positions(SystemFiles(), tmp_path, ignore_events).of("job") == [position(3)]


@pytest.mark.parametrize(
    "failures",
    [
        pytest.param({"sync": errno.EIO}, id="sync"),
        pytest.param({"pwrite": errno.EIO}, id="write"),
        pytest.param({"pwrite": errno.ENOSPC, "truncate": errno.EIO}, id="cut-back"),
    ],
)
def test_a_failing_disk_ends_commits_but_not_reads(
    failures: dict[str, int], tmp_path: Path
) -> None:
    files = FaultyFiles(SystemFiles())
    positions = Positions(files, tmp_path, ignore_events)
    positions.commit("job", [position(1)])
    for kind, error in failures.items():
        files.fail(kind, error)
    with pytest.raises(StorageError):
        positions.commit("job", [position(2)])
    syncs = files.did("sync")
    with pytest.raises(StorageError, match="restart"):
        positions.commit("job", [position(3)])
    assert positions.of("job") == [position(1)]
    assert files.did("sync") == syncs


@pytest.mark.parametrize("kind", ["open", "rename", "sync_directory"])
def test_a_disk_that_is_full_at_the_first_commit(kind: str, tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    positions = Positions(files, tmp_path, ignore_events)
    files.fail(kind, errno.ENOSPC)
    with pytest.raises(StorageError, match="cannot be written"):
        positions.commit("job", [position(1)])
    positions.commit("job", [position(2)])
    assert Positions(SystemFiles(), tmp_path, ignore_events).of("job") == [position(2)]


@pytest.mark.parametrize(
    ("kind", "name", "goes_on"),
    [("rename", "", True), ("open", ".tmp", True), ("sync_directory", "", False)],
)
def test_a_failed_compaction_loses_nothing(
    kind: str, name: str, goes_on: bool, tmp_path: Path
) -> None:
    files = FaultyFiles(SystemFiles())
    events = RecordedEvents()
    positions = Positions(files, tmp_path, events)
    positions.commit("job", [position(1)])
    files.fail(kind, errno.EIO, name=name)
    number = 2
    while not events.named("positions_compaction_failed"):
        batch = [position(number, partition=p, metadata="y" * 4000) for p in range(50)]
        positions.commit("job", batch)
        number += 1
    if goes_on:
        positions.commit("job", [position(5000, partition=99)])
    else:
        with pytest.raises(StorageError, match="restart"):
            positions.commit("job", [position(5000, partition=99)])
    expected = state(positions)
    positions.close()
    assert files.open_count == 0
    assert state(Positions(SystemFiles(), tmp_path, ignore_events)) == expected


def expiring(
    offset: int, committed_ms: int, retention_ms: int = BROKERS, partition: int = 0
) -> StoredPosition:
    return StoredPosition("a", partition, offset, -1, committed_ms, "", retention_ms)


def test_positions_that_expire(tmp_path: Path, files: SystemFiles) -> None:
    """decision 33."""
    positions = Positions(files, tmp_path, ignore_events)
    positions.commit("group", [expiring(1, 1000), expiring(2, 1500, partition=1)])
    positions.commit("own", [expiring(1, 1000, 70), expiring(1, 1000, 60, partition=1)])
    positions.commit("both", [expiring(1, 1000), position(5, partition=1)])
    for store in (positions, Positions(files, tmp_path, ignore_events)):
        assert store.expires_ms("group", 100) == 1600, "all of a name expire together"
        assert store.expires_ms("own", 100) == 1070
        assert store.expires_ms("both", 100) is None
        assert store.expires_ms("nobody", 100) is None
        assert store.has("group")
        assert not store.has("nobody")
        store.close()
    positions = Positions(files, tmp_path, ignore_events)
    assert positions.expire("group", 100, 1599) == 0
    assert positions.expire("group", 100, 1600) == 2
    assert positions.expire("both", 100, 9999) == 0
    assert positions.names() == ["both", "own"]


def test_a_name_in_use_lives_on(tmp_path: Path, files: SystemFiles) -> None:
    positions = Positions(files, tmp_path, ignore_events)
    positions.commit("group", [expiring(1, 1000)])
    positions.commit("job", [position(5)])
    before = files.size(tmp_path / "positions")
    positions.used("job", 9000)
    positions.used("nobody", 9000)
    assert files.size(tmp_path / "positions") == before
    positions.used("group", 9000)
    for store in (positions, Positions(files, tmp_path, ignore_events)):
        assert store.expires_ms("group", 100) == 9100
        assert store.last_used_ms("group") == 9000
        assert store.last_used_ms("nobody") == -1
        held = store.get("group", "a", 0)
        assert held is not None
        assert (held.offset, held.commit_time_ms) == (1, 1000)
        store.close()
