"""Positions as records of a single broker's metadata log: bounds, expiry, turns of large commits,
disks that fail."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from horolog.protocol.errors import (
    InvalidCommitOffsetSize,
    InvalidGroupId,
    InvalidRequest,
    StorageError,
)
from horolog.protocol.limits import MAX_GROUP_NAME_BYTES
from horolog.server import metadata_store
from horolog.server.broker import Broker
from horolog.server.metadata_store import MetadataStore
from horolog.server.work import TURN_SECONDS
from horolog.storage.directory.position_records import BROKERS, StoredPosition
from horolog.storage.directory.position_table import NAME_BYTES, POSITION_BYTES, PositionReading
from horolog.storage.files import Files, SystemFiles
from horolog.storage.metadata.records import POSITIONS_IN_PIECE
from horolog.testing.broker import running_broker
from horolog.testing.files import FaultyFiles, QuickFiles
from horolog.testing.waiting import until

LOG = f"{0:020d}.log"

State = dict[str, dict[tuple[str, int], StoredPosition]]


def position(
    offset: int = 1, topic: str = "a", partition: int = 0, metadata: str = "", **more: int
) -> StoredPosition:
    return StoredPosition(
        topic, partition, offset, 1_000 + offset, 2_000 + offset, metadata, **more
    )


def expiring(
    offset: int, committed_ms: int, retention_ms: int = BROKERS, partition: int = 0
) -> StoredPosition:
    return StoredPosition("a", partition, offset, -1, committed_ms, "", retention_ms)


def state(positions: PositionReading) -> State:
    return {
        name: {(p.topic, p.partition): p for p in positions.of(name)} for name in positions.names()
    }


def bytes_of(name: str, *texts: str) -> int:
    return NAME_BYTES + len(name) + sum(POSITION_BYTES + len(text.encode()) for text in texts)


@asynccontextmanager
async def opened(
    path: Path, files: Files | None = None, **settings: Any
) -> AsyncIterator[tuple[MetadataStore, PositionReading, Broker]]:
    """The store of a broker with some topics, and what is read of it."""
    async with running_broker(
        path / "data", files=files or QuickFiles(), http_listen="off", **settings
    ) as broker:
        for topic in ("a", "b", "c"):
            if topic not in broker.directory.topics():
                broker.directory.create_topic(topic, 20, {})
        # So that no other log is written while a test lets writes fail.
        for key in broker.directory.partitions():
            broker.directory.log(*key)
        yield broker.services.metadata, broker.directory.committed, broker


async def test_what_is_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    expected = [position(3, "a", 9), position(2, "a", 10), position(7, "b", metadata="ünï")]
    async with opened(tmp_path) as (store, held, _):
        await store.positions.commit(
            "job", [position(1, "b"), position(2, "a", 10), position(3, "a", 9)]
        )
        await store.positions.commit("job", [position(7, "b", metadata="ünï")])
        await store.positions.commit("other", [position(5)])
        assert held.of("job") == expected
    async with opened(tmp_path) as (_, held, _):
        assert held.of("job") == expected
        assert held.get("job", "b", 0) == expected[2]
        assert held.get("job", "b", 1) is None
        assert held.get("nobody", "b", 0) is None
        assert held.of("nobody") == []
        assert held.names() == ["job", "other"]


async def test_forgetting(tmp_path: Path) -> None:
    expected = {"one": {("b", 0): position(1, "b")}}
    async with opened(tmp_path) as (store, held, broker):
        await store.positions.commit("one", [position(1, "a"), position(1, "b")])
        await store.positions.commit("two", [position(1, "a")])
        await store.positions.commit("three", [position(1, "a")])
        await store.positions.forget("three")
        await store.positions.forget("three")
        broker.directory.delete_topic("a")
        broker.directory.delete_topic("c")
        assert state(held) == expected
    async with opened(tmp_path) as (_, held, _):
        assert state(held) == expected


async def test_when_a_name_was_used_outlives_its_positions(tmp_path: Path) -> None:
    places = [
        position(1, topic)._replace(retention_ms=60_000, commit_time_ms=5)
        for topic in ("a", "b", "c")
    ]
    async with opened(tmp_path) as (store, _, _):
        await store.positions.commit("one", places)
        await store.positions.used("one", 70)
        await store.positions.forget_some("one", [("a", 0), ("b", 0)])
        await store.positions.forget_some("one", [("a", 0)])
    async with opened(tmp_path) as (_, held, _):
        assert [(each.topic, each.used_ms) for each in held.of("one")] == [("c", 70)]
        assert held.expires_ms("one", 0) == 60_070


async def test_what_changes_nothing_is_not_recorded(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, held, broker):
        await store.positions.commit("job", [position(5)])
        log = broker.directory.metadata.log
        end_offset = log.log_end_offset
        await store.positions.commit("empty", [])
        await store.positions.forget("nobody")
        await store.positions.forget_some("job", [("b", 0)])
        await store.positions.used("job", 9000)
        await store.positions.used("nobody", 9000)
        assert await store.positions.expire("job", 1, 10**12) == 0
        assert log.log_end_offset == end_offset
        assert held.names() == ["job"]


def in_windows(windows: int, offset: int) -> list[StoredPosition]:
    """Positions in as many windows of one topic."""
    return [position(offset, f"a..{10**12 + number}..1h") for number in range(windows)]


def turns_given(broker: Broker) -> list[None]:
    """Have each look at the clock take longer than a turn. Returns a list that gets an item for
    each turn that a computation waits for."""
    work, given = broker.services.work, list[None]()
    seconds, next_turn = count(step=2 * TURN_SECONDS), work.next_turn

    def counted() -> asyncio.Future[None]:
        given.append(None)
        return next_turn()

    work.time = lambda: next(seconds)
    work.next_turn = counted  # type: ignore[method-assign]
    return given


async def test_a_large_commit_takes_turns_and_is_seen_as_a_whole(tmp_path: Path) -> None:
    """It is checked, encoded, decoded for a check, and applied: each gives way after
    `POSITIONS_IN_PIECE` positions."""
    pieces = 4
    size = pieces * POSITIONS_IN_PIECE
    async with opened(tmp_path) as (store, held, broker):
        await store.positions.commit("job", in_windows(size, 1))
        given = turns_given(broker)
        committing = store.positions.commit("job", in_windows(size, 2))
        first = held.of("job")[0]
        while not committing.done():
            await asyncio.sleep(0)
            # Only two are read: the turns are to be counted, not the time of this test.
            last = held.get("job", f"a..{10**12 + size - 1}..1h", 0)
            assert last is not None
            now = held.get("job", first.topic, 0)
            assert now is not None
            assert now.offset == last.offset
        assert len(given) >= 4 * pieces
        assert {each.offset for each in held.of("job")} == {2}


async def test_changes_after_a_large_commit_do_not_overtake_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, held, broker):
        large = [
            each._replace(retention_ms=BROKERS) for each in in_windows(3 * POSITIONS_IN_PIECE, 1)
        ]
        other = large[0]._replace(offset=5)
        await store.positions.commit("job", [other])
        turns_given(broker)
        changes: list[asyncio.Future[Any]] = [
            store.positions.commit("job", large),
            store.positions.commit("job", [other]),
            store.positions.forget_some("job", [large[1][:2]]),
            store.positions.expire("job", 0, 10**15),
            store.positions.commit("gone", large),
            store.positions.forget("gone"),
        ]
        assert (await asyncio.gather(*changes))[3] == 0, "a group that commits does not expire"
        assert held.get("job", other.topic, other.partition) == other
        assert held.count_of("job") == len(large) - 1
        assert held.names() == ["job"]


async def test_a_commit_whose_client_is_gone_counts_until_it_is_applied(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, held, broker):
        log = broker.directory.metadata.log
        large, end_offset = in_windows(3 * POSITIONS_IN_PIECE, 1), log.log_end_offset
        turns_given(broker)
        committing = store.positions.commit("job", large)
        while log.log_end_offset == end_offset:  # noqa: ASYNC110 - of the same loop
            await asyncio.sleep(0)
        assert held.names() == []
        committing.cancel()
        await asyncio.sleep(0)
        await store.positions.forget("job")
        await until(lambda: broker.directory.metadata.applied == log.log_end_offset)
        assert held.names() == []


async def test_a_broker_that_leads_no_more_meanwhile_does_not_append_a_large_commit(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as (store, held, broker):
        log = broker.directory.metadata.log
        end_offset = log.log_end_offset
        turns_given(broker)
        committing = store.positions.commit("job", in_windows(3 * POSITIONS_IN_PIECE, 1))
        await asyncio.sleep(0)
        broker.directory.metadata.failure = StorageError("the log cannot be read")
        with pytest.raises(StorageError, match="the log cannot be read"):
            await committing
        assert log.log_end_offset == end_offset
        assert held.names() == []


@pytest.mark.parametrize(
    "name", ["", "x" * (MAX_GROUP_NAME_BYTES + 1), "ü" * (MAX_GROUP_NAME_BYTES // 2 + 1)]
)
async def test_names_out_of_bounds_are_refused(name: str, tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, held, _):
        with pytest.raises(InvalidGroupId, match=f"allowed are 1 to {MAX_GROUP_NAME_BYTES}"):
            await store.positions.commit(name, [position()])
        await store.positions.commit("x" * MAX_GROUP_NAME_BYTES, [position()])
        assert held.names() == ["x" * MAX_GROUP_NAME_BYTES]


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(position(-1), id="offset"),
        pytest.param(position(1, partition=-1), id="partition"),
        pytest.param(position(1, topic=""), id="no-topic"),
        pytest.param(position(1, topic="x" * 250), id="long-topic"),
    ],
)
async def test_what_is_no_position_is_refused_whole(entry: StoredPosition, tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, held, _):
        with pytest.raises(InvalidRequest):
            await store.positions.commit("job", [position(), entry])
        assert held.names() == []


async def test_the_number_of_positions_is_bounded(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, held, _):
        held.max_positions = 3
        await store.positions.commit("one", [position(1, "a"), position(1, "b")])
        await store.positions.commit("two", [position(1, "a"), position(2, "a")])
        with pytest.raises(InvalidCommitOffsetSize, match="limit of 3"):
            await store.positions.commit("two", [position(5, "a"), position(1, "b")])
        assert held.get("two", "a", 0) == position(2, "a")
        await store.positions.commit("two", [position(9, "a")])
        await store.positions.forget("one")
        await store.positions.commit("two", [position(1, "b"), position(1, "c")])
        assert len(held.of("two")) == 3


async def test_the_memory_of_positions_is_bounded(tmp_path: Path) -> None:
    limit = bytes_of("job", "é" * 100, "x" * 200)
    async with opened(tmp_path, max_positions_bytes=limit) as (store, held, _):
        await store.positions.commit("job", [position(metadata="é" * 100)])
        with pytest.raises(InvalidCommitOffsetSize) as refused:
            await store.positions.commit(
                "job",
                [position(2, metadata="é" * 100), position(1, partition=1, metadata="x" * 201)],
            )
        assert f"max.positions.bytes={limit}" in refused.value.message
        assert f"take {bytes_of('job', 'é' * 100)} bytes" in refused.value.message
        assert held.of("job") == [position(metadata="é" * 100)], "all or none"

        await store.positions.commit("job", [position(1, partition=1, metadata="x" * 200)])
        assert held.size_bytes == limit
        with pytest.raises(InvalidCommitOffsetSize):
            await store.positions.commit("other", [position()])
        with pytest.raises(InvalidCommitOffsetSize):
            await store.positions.commit("job", [position(3, metadata="é" * 101)])
        await store.positions.commit(
            "job", [position(9, metadata="é" * 100), position(9, partition=1)]
        )
        assert held.size_bytes == limit - 200
        twice = [position(9, partition=1), position(9, partition=1, metadata="y" * 9)]
        await store.positions.commit("job", twice)
        assert held.size_bytes == limit - 191, "of one position given twice the last counts"


async def test_what_is_deleted_makes_room(tmp_path: Path) -> None:
    limit = bytes_of("one", "x" * 500, "x" * 500)
    async with opened(tmp_path, max_positions_bytes=limit) as (store, held, broker):
        large = [position(metadata="x" * 500), position(metadata="x" * 500, topic="b")]
        empty = bytes_of("one")
        for _ in range(2):
            await store.positions.commit("one", large)
            with pytest.raises(InvalidCommitOffsetSize):
                await store.positions.commit("one", [position(topic="c")])
            broker.directory.delete_topic("a")
            broker.directory.create_topic("a", 20, {})
            assert held.size_bytes == bytes_of("one", "x" * 500)
            await store.positions.commit("one", [position(topic="c")])
            await store.positions.forget("one")
            assert held.size_bytes == 0
        text = "x" * (limit - empty - POSITION_BYTES)
        await store.positions.commit("one", [position(metadata=text, retention_ms=BROKERS)])
        await store.positions.used("one", 5_000)
        assert held.size_bytes == limit
        assert await store.positions.expire("one", 100, 10_000) == 1
        assert held.size_bytes == 0


async def test_a_store_above_its_bound_is_read_and_grows_no_more(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, held, _):
        for name in ("one", "two"):
            batch = [position(metadata="x" * 1000, partition=p) for p in range(10)]
            await store.positions.commit(name, batch)
        size_bytes = held.size_bytes
    limit = size_bytes // 2 + 500
    async with opened(tmp_path, max_positions_bytes=limit) as (store, held, _):
        assert held.size_bytes == size_bytes
        assert len(held.of("one")) == len(held.of("two")) == 10
        with pytest.raises(InvalidCommitOffsetSize, match=f"max.positions.bytes={limit}"):
            await store.positions.commit("one", [position(partition=10)])
        await store.positions.commit("one", [position(7, metadata="y" * 1000, partition=3)])
        await store.positions.commit("one", [position(7, metadata="y" * 900, partition=4)])
        await store.positions.forget("two")
        await store.positions.commit("one", [position(partition=10)])
    async with opened(tmp_path) as (_, held, _):
        assert held.size_bytes <= limit


async def test_a_full_disk_refuses_and_recovers(tmp_path: Path) -> None:
    files = FaultyFiles(SystemFiles())
    async with opened(tmp_path, files) as (store, held, broker):
        await store.positions.commit("job", [position(1)])
        path = broker.directory.metadata.log.path / LOG
        before = path.read_bytes()
        files.fail("pwrite", errno.ENOSPC, written=20, name=LOG)
        with pytest.raises(StorageError, match="No space left"):
            await store.positions.commit("job", [position(2)])
        assert held.of("job") == [position(1)]
        assert path.read_bytes() == before
        await store.positions.commit("job", [position(3)])
    async with opened(tmp_path) as (_, held, _):
        assert held.of("job") == [position(3)]


@pytest.mark.parametrize(
    "failures",
    [
        pytest.param({"sync": errno.EIO}, id="sync"),
        pytest.param({"pwrite": errno.EIO}, id="write"),
        pytest.param({"pwrite": errno.ENOSPC, "truncate": errno.EIO}, id="cut-back"),
    ],
)
async def test_a_failing_disk_ends_commits_but_not_reads(
    failures: dict[str, int], tmp_path: Path
) -> None:
    files = FaultyFiles(SystemFiles())
    with suppress(StorageError):  # The stop is not clean.
        async with opened(tmp_path, files) as (store, held, _):
            await store.positions.commit("job", [position(1)])
            for kind, error in failures.items():
                files.fail(kind, error, name=LOG, written=20 * (kind == "pwrite"))
            with pytest.raises(StorageError):
                await store.positions.commit("job", [position(2)])
            syncs = files.did("sync", LOG)
            with pytest.raises(StorageError, match="restarted"):
                await store.positions.commit("job", [position(3)])
            assert held.of("job") == [position(1)]
            assert files.did("sync", LOG) == syncs
    async with opened(tmp_path) as (_, held, _):
        assert held.of("job") in ([position(1)], [position(2)])


async def test_positions_that_expire(tmp_path: Path) -> None:
    """decision 33."""
    async with opened(tmp_path) as (store, _, _):
        await store.positions.commit("group", [expiring(1, 1000), expiring(2, 1500, partition=1)])
        await store.positions.commit(
            "own", [expiring(1, 1000, 70), expiring(1, 1000, 60, partition=1)]
        )
        await store.positions.commit("both", [expiring(1, 1000), position(5, partition=1)])
    async with opened(tmp_path) as (store, held, _):
        assert held.expires_ms("group", 100) == 1600, "all of a name expire together"
        assert held.expires_ms("own", 100) == 1070
        assert held.expires_ms("both", 100) is None
        assert held.expires_ms("nobody", 100) is None
        assert held.has("group")
        assert not held.has("nobody")
        assert await store.positions.expire("group", 100, 1599) == 0
        assert await store.positions.expire("group", 100, 1600) == 2
        assert await store.positions.expire("both", 100, 9999) == 0
        assert held.names() == ["both", "own"]


async def test_a_name_in_use_lives_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _, _):
        await store.positions.commit("group", [expiring(1, 1000)])
        await store.positions.used("group", 9000)
    async with opened(tmp_path) as (_, held, _):
        assert held.expires_ms("group", 100) == 9100
        assert held.last_used_ms("group") == 9000
        assert held.last_used_ms("nobody") == -1
        found = held.get("group", "a", 0)
        assert found is not None
        assert (found.offset, found.commit_time_ms) == (1, 1000)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOMEM])
async def test_a_record_that_could_not_be_read_is_applied_later(
    tmp_path: Path, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is missing to read what was just written: no restart is needed."""
    monkeypatch.setattr(metadata_store, "RETRY_SECONDS", 0.01)
    files = FaultyFiles(QuickFiles())
    async with opened(tmp_path, files) as (store, positions, broker):
        await store.positions.commit("a", [position(1)])
        files.fail("pread", error, times=2, name=LOG)
        with pytest.raises(StorageError, match="cannot be applied"):
            await store.positions.commit("a", [position(2)])
        await until(lambda: state(positions)["a"]["a", 0].offset == 2)
        await store.positions.commit("a", [position(3)])
        assert state(positions)["a"]["a", 0].offset == 3
        assert broker.services.metadata.metadata.failure is None
