"""A data directory whose process dies between any two operations on its files."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from horolog.storage.directory.position_records import StoredPosition
from horolog.storage.names import folder_name
from horolog.testing.directories import DataDirectory
from horolog.testing.files import Fault, FaultyFiles, QuickFiles, ending_process

CHANGING = {
    "make_directory",
    "open",
    "pwrite",
    "remove_directory",
    "rename",
    "set_modified_ms",
    "sync",
    "sync_directory",
    "truncate",
    "unlink",
}


class Crash(BaseException):
    """The process dies here."""


class CrashingFiles(FaultyFiles):
    """Dies at the n-th operation that changes something, and does nothing afterwards."""

    def __init__(self, operations_left: int) -> None:
        super().__init__(QuickFiles())
        self.operations_left = operations_left
        """Below 0 for a process that does not die."""

    def check(self, kind: str, path: Path) -> Fault | None:
        if kind in CHANGING:
            if not self.operations_left:
                raise Crash
            self.operations_left -= 1
        return None


def live_through(data: DataDirectory, done: list[str]) -> None:
    """A short life of a data directory; `done` tells how far it came."""
    directory = data.open()
    done.append("opened")
    data.append("kept", 3)
    directory.log("kept", 0).flusher.flush()
    done.append("appended")
    directory.create_topic("new", 2, {"retention.ms": "77"})
    done.append("created")
    directory.delete_topic("old")
    done.append("deleted")
    directory.create_topic("old", 1, {"retention.ms": "88"})
    done.append("created again")
    data.append("old", 9)
    directory.create_partitions("kept", 3)
    done.append("raised")
    data.close()
    done.append("closed")


def check_survivor(data: DataDirectory, done: list[str]) -> None:
    """What must hold after a crash, with `done` finished before it."""
    directory = data.open()
    topics = directory.topics()
    assert data.times("kept") in ([1, 2], [1, 2, 3])
    if "appended" in done:
        assert data.times("kept") == [1, 2, 3]
    assert topics["kept"].partitions in ((3,) if "raised" in done else (1, 3))
    if "new" in topics:
        assert (topics["new"].partitions, dict(topics["new"].overrides)) == (
            2,
            {"retention.ms": "77"},
        )
    assert "new" in topics or "created" not in done
    if "old" in topics and not topics["old"].overrides:
        assert "deleted" not in done
        assert data.times("old") == [4, 5]
        assert directory.committed.get("job", "old", 0) is not None
    else:
        assert "old" in topics or "created again" not in done
        assert directory.committed.get("job", "old", 0) is None
        if "old" in topics:
            assert data.times("old") in ([], [9])
            assert directory.log("old", 0).log_start_offset == 0
        else:
            directory.create_topic("old", 1, {})
            assert data.times("old") == []
    assert not any(entry.gaps for entry in topics.values())
    assert [stray for stray in data.events.named("stray_file") if "reason" in stray] == []
    left = {path.name for path in data.path.iterdir() if path.is_dir()}
    assert left == {"metadata-log", *(folder_name(*key) for key in directory.partitions())}
    data.close()


def test_a_crash_at_any_operation(tmp_path: Path) -> None:
    before = DataDirectory(tmp_path / "before")
    before.files = QuickFiles()
    directory = before.open()
    directory.create_topic("kept", 1, {})
    directory.create_topic("old", 1, {})
    before.append("kept", 1, 2)
    before.append("old", 4, 5)
    before.commit("job", StoredPosition("old", 0, 1, 2, 3, ""))
    before.close()
    reached: set[str] = set()
    for operations in range(1000):
        dying = before.copy(tmp_path / f"dying-{operations}")
        dying.files = CrashingFiles(operations)
        done: list[str] = []
        with suppress(Crash), ending_process():
            live_through(dying, done)
        survivor = dying.copy(tmp_path / f"survivor-{operations}")
        survivor.files = QuickFiles()
        check_survivor(survivor, done)
        reached |= set(done)
        if "closed" in done:
            break
    assert "closed" in reached
    assert operations > 60


def test_a_crash_while_a_start_finishes_a_creation(tmp_path: Path) -> None:
    """The topic is recorded and has no folder yet: no message of it is missing."""
    before = DataDirectory(tmp_path / "before")
    before.files = files = CrashingFiles(operations_left=-1)
    directory = before.open()
    files.operations_left = 2  # The record is written and synced.
    with suppress(Crash), ending_process():
        directory.create_topic("new", 2, {})
    assert before.names().count("new-0") == 0
    ids: set[str] = set()
    finished = False
    operations = 0
    while not finished:
        dying = before.copy(tmp_path / f"dying-{operations}")
        dying.files = CrashingFiles(operations)
        with suppress(Crash), ending_process():
            dying.open()
            finished = True
        survivor = dying.copy(tmp_path / f"survivor-{operations}")
        survivor.files = QuickFiles()
        ids.add(survivor.open().topics()["new"].topic_id)
        assert survivor.events.named("partition_folder_missing") == []
        assert {"new-0", "new-1"} <= set(survivor.names())
        survivor.close()
        operations += 1
    assert len(ids) == 1
    assert operations > 15


def test_a_process_that_ends_takes_no_files_of_another_thread(tmp_path: Path) -> None:
    """Such as those of the test kit's broker, which is in the same process."""
    files = QuickFiles()
    with ThreadPoolExecutor(1) as other, ending_process():
        own = files.open(tmp_path / "own", create=True)
        theirs = other.submit(files.open, tmp_path / "theirs", create=True).result()
    with pytest.raises(OSError, match="Bad file descriptor"):
        own.size()
    assert theirs.size() == 0
    theirs.close()
