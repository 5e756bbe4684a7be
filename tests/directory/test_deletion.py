import errno
import os
from pathlib import Path

from horolog.storage.directory.deletion import (
    PAUSE_SECONDS,
    PIECE_BYTES,
    RETRY_DELAY_MS,
    DeletionQueue,
    remove,
)
from horolog.storage.files import SystemFiles
from horolog.testing.clock import ManualClock
from horolog.testing.files import FaultyFiles
from horolog.testing.logs import RecordedEvents, delete_due


def make(directory: Path, *names: str) -> list[Path]:
    for name in names:
        (directory / name).write_bytes(b"x")
    return [directory / name for name in names]


def test_files_go_when_they_are_due_whatever_the_wall_clock_does_rt_10(
    tmp_path: Path, files: SystemFiles, clock: ManualClock, events: RecordedEvents
) -> None:
    queue = DeletionQueue(files, clock, events)
    early, late = make(tmp_path, "early", "late")
    queue.add([late], 1000)
    queue.add([early], 500)
    clock.advance(499)
    clock.step(10**9)
    assert delete_due(queue) == 0
    assert (early.exists(), late.exists()) == (True, True)
    clock.advance(1)
    clock.step(-(10**10))
    assert delete_due(queue) == 1
    assert (early.exists(), late.exists()) == (False, True)
    clock.advance(500)
    assert delete_due(queue) == 1
    assert not late.exists()
    assert len(queue) == 0


def test_a_folder_goes_with_its_content(
    tmp_path: Path, files: SystemFiles, clock: ManualClock, events: RecordedEvents
) -> None:
    folder = tmp_path / "a-0.00000000000000ff.deleted"
    (folder / "deeper").mkdir(parents=True)
    make(folder, "x.log")
    make(folder / "deeper", "y")
    queue = DeletionQueue(files, clock, events)
    queue.add([folder], 0)
    assert delete_due(queue) == 1
    assert files.names(tmp_path) == []


def test_a_link_goes_and_its_target_stays(tmp_path: Path, files: SystemFiles) -> None:
    target = tmp_path / "target"
    target.mkdir()
    make(target, "precious")
    (tmp_path / "link").symlink_to(target)
    remove(files, tmp_path / "link")
    assert files.names(tmp_path) == ["target"]
    assert files.names(target) == ["precious"]


def test_a_missing_file_is_done_b_28(
    tmp_path: Path, files: SystemFiles, clock: ManualClock, events: RecordedEvents
) -> None:
    queue = DeletionQueue(files, clock, events)
    queue.add([tmp_path / "gone", tmp_path / "gone"], 0)
    assert delete_due(queue) == 2
    assert events.seen == []


def test_a_failure_is_told_and_tried_again(
    tmp_path: Path, clock: ManualClock, events: RecordedEvents
) -> None:
    files = FaultyFiles(SystemFiles())
    files.fail("unlink", errno.EIO, name="stubborn")
    queue = DeletionQueue(files, clock, events)
    queue.add(make(tmp_path, "stubborn", "other"), 0)
    assert delete_due(queue) == 1
    [failure] = events.named("deletion_failed")
    assert failure["path"] == str(tmp_path / "stubborn")
    clock.advance(RETRY_DELAY_MS - 1)
    assert delete_due(queue) == 0
    clock.advance(1)
    assert delete_due(queue) == 1
    assert files.names(tmp_path) == []


def test_a_pass_ends_even_when_nothing_can_be_removed(
    tmp_path: Path, clock: ManualClock, events: RecordedEvents
) -> None:
    files = FaultyFiles(SystemFiles())
    files.fail("unlink", errno.EROFS, times=-1)
    queue = DeletionQueue(files, clock, events)
    queue.add(make(tmp_path, "a", "b"), 0)
    clock.advance(10 * RETRY_DELAY_MS)
    assert delete_due(queue) == 0
    assert len(queue) == 2


def large(directory: Path, name: str, pieces: int) -> Path:
    path = directory / name
    with path.open("xb") as file:
        file.truncate(pieces * PIECE_BYTES)
    return path


def test_a_large_file_goes_in_pieces_where_nothing_else_is_due(
    tmp_path: Path, files: SystemFiles, clock: ManualClock, events: RecordedEvents
) -> None:
    queue = DeletionQueue(files, clock, events)
    first, second = (large(tmp_path, name, 3) for name in ("first", "second"))
    queue.add([first, second], 0)
    assert queue.run_step() == 0
    assert first.stat().st_size == 2 * PIECE_BYTES
    assert [queue.run_step() for _ in range(5)] == [0, *[PAUSE_SECONDS] * 2, None, None]
    assert files.names(tmp_path) == []


def test_a_folder_goes_in_pieces_with_its_content_and_what_it_links_to_stays(
    tmp_path: Path, files: SystemFiles, clock: ManualClock, events: RecordedEvents
) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "a-0.deleted"
    for path in (kept, folder, folder / "deeper"):
        path.mkdir()
    make(kept, "precious")
    large(folder, "x.log", 2)
    make(folder / "deeper", "y")
    (folder / "link").symlink_to(kept)
    queue = DeletionQueue(files, clock, events)
    queue.add([folder], 0)
    assert queue.run_step() is not None
    assert (folder / "x.log").stat().st_size == PIECE_BYTES
    assert queue.run_step() is None
    assert files.names(tmp_path) == ["kept"]
    assert files.names(kept) == ["precious"]


def test_a_file_that_others_have_is_not_cut(
    tmp_path: Path, files: SystemFiles, clock: ManualClock, events: RecordedEvents
) -> None:
    queue = DeletionQueue(files, clock, events)
    backup, opened = large(tmp_path, "linked", 2), large(tmp_path, "read", 2)
    (tmp_path / "backup").hardlink_to(backup)
    with opened.open("rb") as reader:
        queue.add([backup, opened], 0)
        assert queue.run_step() is None
        assert files.names(tmp_path) == ["backup"]
        assert os.fstat(reader.fileno()).st_size == 2 * PIECE_BYTES
    assert (tmp_path / "backup").stat().st_size == 2 * PIECE_BYTES


def test_what_cannot_be_cut_is_removed_at_once(
    tmp_path: Path, clock: ManualClock, events: RecordedEvents
) -> None:
    files = FaultyFiles(SystemFiles())
    files.fail("truncate", errno.EIO, times=-1)
    queue = DeletionQueue(files, clock, events)
    queue.add([large(tmp_path, "x.log", 2)], 0)
    assert queue.run_step() is None
    assert files.names(tmp_path) == []
    assert events.seen == []
