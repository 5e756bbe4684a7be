"""Group commit: many logs, one sync at a time, nobody forgotten."""

import errno
import gc
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from horolog.clock import Clock
from horolog.protocol.records.batch import build_batch
from horolog.protocol.records.messages.sets import NewRecord
from horolog.storage.log import flush
from horolog.storage.log.flush import FlushWork, GroupCommit
from horolog.storage.log.log import Flusher, Log
from horolog.storage.producers.producer_snapshots import KEPT
from horolog.testing.clock import ManualClock
from horolog.testing.logs import LogFolder, timed_set


class HandDriven(Executor):
    """Runs what was submitted when a test says so."""

    def __init__(self) -> None:
        self.submitted: list[Callable[[], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        self.submitted.append(lambda: fn(*args, **kwargs))
        return Future()

    def run_one(self) -> None:
        self.submitted.pop(0)()


class Loop:
    """Stands for the event loop: keeps what is to be called in its thread."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.put(call)

    def run_one(self) -> None:
        self.calls.get(timeout=30)()


class Commits:
    """A group commit whose threads and loop are driven by hand."""

    def __init__(self) -> None:
        self.executor = HandDriven()
        self.index_executor = HandDriven()
        self.loop = Loop()
        self.clock = ManualClock()
        self.seconds: list[float] = []
        self.group = self.made(self.clock)

    def made(self, clock: Clock) -> GroupCommit:
        return GroupCommit(
            self.executor, self.index_executor, self.loop.call_soon, clock, self.seconds.append
        )

    def begin(self) -> None:
        """Let the loop turn after a first request."""
        self.loop.run_one()

    def round(self) -> None:
        """Let the round that is under way happen and end."""
        self.executor.run_one()
        self.loop.run_one()

    def index(self) -> None:
        """Let the indexes behind the first round that has any be synced."""
        self.index_executor.run_one()
        self.loop.run_one()


class Standing:
    """Something else than a log's flusher that is asked for in its place."""

    def __init__(self, flusher: Flusher) -> None:
        self.begin_flush = flusher.begin_flush
        self.messages_synced = flusher.messages_synced
        self.end_flush = flusher.end_flush


@pytest.fixture
def commits() -> Commits:
    return Commits()


@pytest.fixture
def folders(folder: LogFolder) -> Iterator[list[LogFolder]]:
    """Three open logs."""
    made = [folder, *(LogFolder(folder.path.with_name(f"{name}-0")) for name in "uv")]
    for one in made:
        one.open()
    yield made
    for one in made[1:]:
        one.files.heal()
        one.let_go()


def append_waiting(log: Log) -> None:
    log.appender.append(timed_set(1), wait_for_sync=True)


def test_a_request_syncs(folder: LogFolder, commits: Commits) -> None:
    log = folder.open()
    append_waiting(log)
    commits.group.request(log.flusher)
    assert (commits.group.busy, commits.executor.submitted) == (True, [])
    commits.begin()
    assert (commits.group.busy, log.high_watermark, folder.files.did("sync")) == (True, 0, 0)
    commits.executor.run_one()
    assert (folder.files.did("sync", ".log"), log.high_watermark) == (1, 0)
    commits.loop.run_one()
    assert (commits.group.busy, log.high_watermark, log.recovery_point) == (False, 1, 1)


def test_requests_of_one_turn_of_the_loop_share_a_round(
    folder: LogFolder, commits: Commits
) -> None:
    log = folder.open()
    for _ in range(10):
        append_waiting(log)
        commits.group.request(log.flusher)
    commits.begin()
    commits.round()
    assert (log.high_watermark, folder.files.did("sync", ".log")) == (10, 1)
    assert not commits.group.busy


def test_requests_during_a_round_share_the_next(folder: LogFolder, commits: Commits) -> None:
    log = folder.open()
    append_waiting(log)
    commits.group.request(log.flusher)
    commits.begin()
    for _ in range(10):
        append_waiting(log)
        commits.group.request(log.flusher)
    assert len(commits.executor.submitted) == 1
    commits.round()
    assert log.high_watermark == 1
    commits.round()
    assert log.high_watermark == 11
    assert folder.files.did("sync", ".log") == 2
    assert commits.executor.submitted == []


def test_several_logs_share_a_round(folders: list[LogFolder], commits: Commits) -> None:
    first, *others = folders
    append_waiting(first.log)
    commits.group.request(first.log.flusher)
    commits.begin()
    for one in others:
        append_waiting(one.log)
        commits.group.request(one.log.flusher)
    commits.round()
    assert [one.log.high_watermark for one in folders] == [1, 0, 0]
    commits.round()
    assert [one.log.high_watermark for one in folders] == [1, 1, 1]
    assert not commits.group.busy


def test_a_round_takes_a_bounded_number_of_logs(
    folders: list[LogFolder], commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 51: the loop does not begin, or end, the syncs of thousands of logs in one turn."""
    monkeypatch.setattr(flush, "LOGS_IN_A_ROUND", 1)
    for one in folders:
        append_waiting(one.log)
        one.log.appender.roll()
        append_waiting(one.log)
        commits.group.request(one.log.flusher)
    commits.begin()
    for high_watermarks in ([2, 0, 0], [2, 2, 0], [2, 2, 2]):
        commits.round()
        assert [one.log.high_watermark for one in folders] == high_watermarks
    for recovery_points in ([2, 0, 0], [2, 2, 0], [2, 2, 2]):
        commits.index()
        assert [one.log.recovery_point for one in folders] == recovery_points
    assert not commits.group.busy


def test_a_log_that_fails_does_not_keep_the_others(
    folders: list[LogFolder], commits: Commits
) -> None:
    first, bad, good = folders
    append_waiting(first.log)
    commits.group.request(first.log.flusher)
    commits.begin()
    for one in (bad, good):
        append_waiting(one.log)
        commits.group.request(one.log.flusher)
    bad.files.fail("sync", errno.EIO, name=".log")
    commits.round()
    commits.round()
    assert bad.log.failure is not None
    assert (bad.log.high_watermark, good.log.high_watermark) == (0, 1)
    commits.group.request(bad.log.flusher)
    commits.begin()
    assert not commits.group.busy
    append_waiting(good.log)
    commits.group.request(good.log.flusher)
    commits.begin()
    commits.round()
    assert good.log.high_watermark == 2


def test_nothing_to_do_starts_nothing(folder: LogFolder, commits: Commits) -> None:
    log = folder.open()
    log.flusher.flush()
    commits.group.request(log.flusher)
    commits.begin()
    assert (commits.group.busy, commits.executor.submitted) == (False, [])


def test_a_request_from_within_an_advance_is_not_lost(folder: LogFolder, commits: Commits) -> None:
    log = folder.open()

    def ask_again(log: Log) -> None:
        if log.log_end_offset < 3:
            append_waiting(log)
            commits.group.request(log.flusher)

    log.on_advance = ask_again
    append_waiting(log)
    commits.group.request(log.flusher)
    commits.begin()
    for _ in range(3):
        commits.round()
    assert (log.high_watermark, commits.group.busy) == (3, False)


def rolled(folder: LogFolder, commits: Commits) -> None:
    """A round is about to begin in which a segment was closed."""
    append_waiting(folder.open())
    folder.log.appender.roll()
    append_waiting(folder.log)
    commits.group.request(folder.log.flusher)
    commits.begin()


def test_nobody_waits_for_indexes(folder: LogFolder, commits: Commits) -> None:
    """dec20 S-39: answers wait for the messages of all segments, recovery points for indexes."""
    rolled(folder, commits)
    commits.round()
    assert (folder.log.high_watermark, folder.log.recovery_point) == (2, 0)
    assert (folder.files.did("sync", ".log"), folder.files.did("sync", "index")) == (2, 0)
    assert commits.group.busy
    append_waiting(folder.log)
    commits.group.request(folder.log.flusher)
    commits.begin()
    commits.round()
    assert folder.log.high_watermark == 3
    idle: list[bool] = []
    commits.group.when_idle(lambda: idle.append(True))
    assert not idle
    assert folder.log.recovery_point == 0, "S-39: it does not overtake the indexes"
    commits.index()
    assert folder.files.did("sync", "index") == 2
    assert folder.files.did("rename", "index-checksums.tmp") == 1
    assert folder.log.recovery_point == 2
    commits.index()
    assert (folder.log.recovery_point, commits.group.busy, idle) == (3, False, [True])


def test_indexes_are_synced_in_the_order_of_the_rolls(folder: LogFolder, commits: Commits) -> None:
    rolled(folder, commits)
    commits.round()
    folder.log.appender.roll()
    append_waiting(folder.log)
    commits.group.request(folder.log.flusher)
    commits.begin()
    commits.round()
    commits.index()
    assert commits.group.busy
    commits.index()
    assert not commits.group.busy
    checksum = (folder.path / "index-checksums").read_text().splitlines()
    assert len([line for line in checksum if line.startswith(("0 ", "1 "))]) == 2


@pytest.mark.parametrize("closed_only", [(True,), (True, False), (False, True)])
def test_a_request_for_all_is_one_for_what_is_closed_as_well(
    folder: LogFolder, commits: Commits, closed_only: tuple[bool, ...]
) -> None:
    log = folder.open()
    append_waiting(log)
    log.appender.roll()
    append_waiting(log)
    for one in closed_only:
        commits.group.request(log.flusher, closed_only=one)
    commits.begin()
    commits.round()
    assert folder.files.did("sync", ".log") == len(set(closed_only))
    assert log.high_watermark == len(set(closed_only))


def test_who_stands_for_a_log_shares_the_order_of_its_indexes(
    folder: LogFolder, commits: Commits
) -> None:
    """A trim waits for its own sync of a log (`server/syncing.py`)."""
    log = folder.open()
    other = Standing(log.flusher)
    for one in (log.flusher, log.flusher, other, log.flusher):
        append_waiting(log)
        log.appender.roll()
        commits.group.request(one)
        commits.begin()
        commits.round()
    commits.index()
    folder.files.operations.clear()
    commits.index()
    assert (log.recovery_point, commits.group.busy) == (4, False)
    synced = [name for kind, name in folder.files.operations if kind == "sync"]
    indexes = [name for name in synced if name.endswith(".index")]
    assert indexes == [f"{base:020d}.index" for base in (1, 2, 3)]
    assert folder.files.did("rename", "index-checksums.tmp") == 1


def batches_rolled(folder: LogFolder, commits: Commits, times: int) -> None:
    """Rolls of a log of batches, each with a round of messages behind it, and none of indexes."""
    for _ in range(times):
        folder.log.appender.append(build_batch([NewRecord(b"v", timestamp_ms=1)]))
        folder.log.appender.roll()
        commits.group.request(folder.log.flusher)
        commits.begin()
        commits.round()


def test_indexes_that_wait_are_synced_together(folder: LogFolder, commits: Commits) -> None:
    """What would be written anew by the next is written once, however many rolls there were."""
    folder.open()
    batches_rolled(folder, commits, 6)
    commits.index()
    assert folder.log.recovery_point == 1
    assert folder.files.did("rename", "index-checksums.tmp") == 1
    commits.index()
    assert (folder.log.recovery_point, commits.group.busy) == (6, False)
    assert folder.files.did("rename", "index-checksums.tmp") == 2
    assert folder.files.did("rename", ".producers.tmp") == 1 + KEPT
    assert folder.names(".producers") == [f"{offset:020d}.producers" for offset in (5, 6)]
    assert folder.files.did("sync", "index") == 2 * 6


def test_the_checksums_of_all_segments_are_held_twice_at_most(
    folder: LogFolder, commits: Commits
) -> None:
    """For the round that is under way and the next: a log that rolls faster than its indexes are
    synced would hold them once for each roll."""
    folder.open()
    batches_rolled(folder, commits, 6)
    works = [one for one in gc.get_referrers(FlushWork) if isinstance(one, FlushWork)]
    holding = [one for one in works if one.directory == folder.path and one.checksums is not None]
    assert sorted(one.target_offset for one in holding) == [1, 6]
    commits.index()
    commits.index()
    checksums = (folder.path / "index-checksums").read_text().splitlines()
    assert [int(line.split()[0]) for line in checksums[1:]] == [0, 1, 2, 3, 4, 5]


def test_a_cut_leaves_the_snapshots_in_front_of_it(folder: LogFolder, commits: Commits) -> None:
    """Those behind it, which would make them superfluous, come to nothing."""
    folder.open()
    batches_rolled(folder, commits, 6)
    commits.index()
    folder.log.truncate(3)
    commits.index()
    assert folder.names(".producers") == [f"{offset:020d}.producers" for offset in (2, 3)]


def test_of_indexes_that_wait_all_are_done_again_when_one_has_no_room(
    folder: LogFolder, commits: Commits
) -> None:
    folder.open()
    batches_rolled(folder, commits, 4)
    commits.index()
    folder.files.fail("open", errno.EMFILE, name=f"{1:020d}.timeindex")
    commits.index()
    assert folder.files.did("rename", "index-checksums.tmp") == 1
    assert folder.files.did("sync", "index") == 2 * 4 - 1
    commits.group.request(folder.log.flusher)
    commits.begin()
    commits.round()
    commits.index()
    assert folder.files.did("rename", "index-checksums.tmp") == 2
    assert folder.files.did("sync", "index") == 2 * 4 - 1 + 2 * 3
    checksum = (folder.path / "index-checksums").read_text().splitlines()
    assert {line.split()[0] for line in checksum} >= {"0", "1", "2", "3"}


def test_an_index_that_cannot_be_synced_ends_appends(folder: LogFolder, commits: Commits) -> None:
    """dec22: a failed sync is final, and what was answered stays true."""
    rolled(folder, commits)
    folder.files.fail("sync", errno.EIO, name=".timeindex")
    commits.round()
    assert (folder.log.high_watermark, folder.log.failure) == (2, None)
    commits.index()
    assert folder.log.failure is not None
    assert (folder.log.high_watermark, commits.group.busy) == (2, False)


def test_indexes_without_room_wait_for_another_sync(folder: LogFolder, commits: Commits) -> None:
    rolled(folder, commits)
    folder.files.fail("sync", errno.ENOSPC, name=".tmp")
    commits.round()
    commits.index()
    assert (folder.log.failure, folder.files.did("rename", "index-checksums.tmp")) == (None, 0)
    commits.group.request(folder.log.flusher)
    commits.begin()
    commits.round()
    commits.index()
    assert folder.files.did("rename", "index-checksums.tmp") == 1


def test_when_idle(folders: list[LogFolder], commits: Commits) -> None:
    calls: list[str] = []
    commits.group.when_idle(lambda: calls.append("at once"))
    append_waiting(folders[0].log)
    append_waiting(folders[1].log)
    commits.group.request(folders[0].log.flusher)
    commits.begin()
    commits.group.request(folders[1].log.flusher)
    commits.group.when_idle(lambda: calls.append("later"))
    commits.round()
    assert calls == ["at once"]
    commits.round()
    assert calls == ["at once", "later"]


class Ticking(ManualClock):
    """A second passes whenever it is looked at."""

    def monotonic(self) -> float:
        self.advance(1000)
        return super().monotonic()


def test_seconds_are_told(folder: LogFolder, commits: Commits) -> None:
    group = commits.made(Ticking())
    append_waiting(folder.open())
    group.request(folder.log.flusher)
    commits.begin()
    assert commits.seconds == []
    commits.round()
    assert commits.seconds == [1.0]


def test_with_a_real_thread(folders: list[LogFolder]) -> None:
    loop = Loop()
    with ThreadPoolExecutor(1) as executor:
        group = GroupCommit(executor, executor, loop.call_soon, ManualClock())
        for _ in range(20):
            for one in folders:
                append_waiting(one.log)
                group.request(one.log.flusher)
        while group.busy:
            loop.run_one()
    assert [one.log.high_watermark for one in folders] == [20, 20, 20]
    assert [one.log.recovery_point for one in folders] == [20, 20, 20]
    assert all(one.files.did("sync", ".log") <= 20 for one in folders)
