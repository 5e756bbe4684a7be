"""A log whose topic was deleted: its folder is renamed, and a topic of the same name may have a new
folder there. What still uses the old log neither reads nor changes that folder."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from horolog.protocol.errors import UnknownTopicOrPartition
from horolog.storage.check.scrub import SegmentScrub
from horolog.storage.log.log import Log
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, timed_set

OLD_MS, NEW_MS = 1_479_144_000_000, 1_579_144_000_000
MESSAGES = 50


def filled(folder: LogFolder, start_ms: int) -> Log:
    """Three segments, the last one active."""
    log = folder.open(segment_bytes=20_000, retention_ms=-1, index_interval_bytes=1_000)
    for number in range(MESSAGES):
        log.appender.append(timed_set(start_ms + number, value=bytes(1_000)))
    assert len(log.segments) == 3
    return log


def made_again(folder: LogFolder) -> None:
    folder.path.rename(folder.path.with_name("t-0.deleted"))
    folder.path.mkdir()
    filled(folder, NEW_MS).flusher.flush()


def read(log: Log, offset: int) -> bytes:
    return reader.read(log, offset, 1 << 20, whole_first=True).read()


def assert_new(folder: LogFolder) -> None:
    """The log has all messages of the new topic, and none of the old one, also after a restart."""
    expected = [(number, NEW_MS + number) for number in range(MESSAGES)]
    assert folder.times() == expected
    assert folder.found(OLD_MS, NEW_MS + 30) == [(NEW_MS, 0), (NEW_MS + 30, 30)]
    folder.restart()
    assert folder.times() == expected
    assert folder.events.named("index_rebuilt") == []
    assert folder.events.named("append_times_dropped") == []


USES: dict[str, Callable[[Log], object]] = {
    "read a closed segment": lambda log: read(log, 0),
    "read the active segment": lambda log: read(log, MESSAGES - 1),
    "find a time": lambda log: reader.find_time(log, OLD_MS + 10).run(),
    "read append times": lambda log: log.segments[0].append_times.read_block(0),
    "append": lambda log: log.appender.append(timed_set(OLD_MS)),
    "roll": lambda log: log.segment_list.roll(MESSAGES, log.settings, "asked"),
    "drop": lambda log: log.segment_list.drop_below(25, log.settings, {}),
    "truncate": lambda log: log.truncate(MESSAGES - 2),
    "truncate segments": lambda log: log.truncate(5),
    "empty": lambda log: log.truncate_fully(100),
    "scrub": lambda log: SegmentScrub(log, log.segments[0], unsynced=True).read(),
    "sync append times": lambda log: log.segments[0].append_times.sync(),
    "age": lambda log: log.segments[0].modified_ms,
}


@pytest.mark.parametrize("use", USES)
def test_a_deleted_log_uses_no_file_of_the_next_log_there(folder: LogFolder, use: str) -> None:
    old = filled(folder, OLD_MS)
    old.abandon()
    made_again(folder)
    before = folder.content()
    with pytest.raises(UnknownTopicOrPartition, match=r" t-0 was deleted meanwhile$"):
        USES[use](old)
    assert folder.content() == before
    assert_new(folder)


def test_a_sync_of_a_deleted_log_is_neither_begun_nor_a_failure(folder: LogFolder) -> None:
    old = filled(folder, OLD_MS)
    work = old.flusher.begin_flush()
    assert work is not None
    old.abandon()
    made_again(folder)
    before = folder.content()
    assert old.flusher.begin_flush() is None
    with pytest.raises(UnknownTopicOrPartition):
        work.run()
    old.flusher.messages_synced(work)
    old.flusher.end_flush(work, OSError("deleted"))
    assert old.failure is None
    assert folder.content() == before
    assert_new(folder)


def test_a_handle_of_a_deleted_log_is_not_used_for_the_next_one(folder: LogFolder) -> None:
    """Its folder is renamed in a thread; until then its files can be opened by their paths."""
    old = filled(folder, OLD_MS)
    old.abandon()
    for offset in (0, MESSAGES - 1):
        with pytest.raises(UnknownTopicOrPartition):
            read(old, offset)
    made_again(folder)
    assert_new(folder)


@pytest.mark.parametrize("kind", ["read_bytes", "open"])
def test_a_log_that_is_deleted_while_a_thread_prepares_it(folder: LogFolder, kind: str) -> None:
    """Its indexes are rebuilt, and not written beside the next log there."""
    filled(folder, OLD_MS)
    folder.log.close()
    for path in folder.path.glob("*0.index"):
        path.write_bytes(b"")
    old = folder.open()
    hold = folder.files.hold(kind, "0000.index" if kind == "read_bytes" else "0000.log")
    errors: list[Any] = []

    def prepare() -> None:
        try:
            old.prepare()
        except UnknownTopicOrPartition as error:
            errors.append(error)

    thread = threading.Thread(target=prepare)
    thread.start()
    hold.reached.wait()
    # The thread waits in its next operation; those of the other log must not.
    folder.files._holds.clear()
    old.abandon()
    made_again(folder)
    before = folder.content()
    hold.let_go()
    thread.join()
    assert len(errors) == 1
    assert folder.content() == before
    folder.events.seen.clear()
    assert_new(folder)
