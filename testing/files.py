"""Files for tests: that fail when a test wants them to and remember what was done with them, that
change what some operations do, and that never wait for the disk."""

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ..storage.files import Buffer, File, Files, SystemFile, SystemFiles

_WATCHED: list["tuple[int, list[QuickFile]]"] = []
"""For each `ending_process` block that is active, its thread, and the files that this thread has
opened. A broker of the test kit has a thread of its own, and keeps its files."""

T = TypeVar("T")

_NEVER_FAIL = ("exists", "in_memory", "is_directory")
"""These methods answer false instead of failing, as in the operating system."""

_MAY_BE_LATE = (
    "make_directory",
    "remove_directory",
    "rename",
    "set_modified_ms",
    "sync",
    "sync_directory",
    "truncate",
    "unlink",
)


class QuickFile(SystemFile):
    """A file of the operating system whose `sync` does nothing."""

    __slots__ = ()

    def __init__(self, fd: int, path: Path) -> None:
        super().__init__(fd, path)
        for thread, opened in _WATCHED:
            if thread == threading.get_ident():
                opened.append(self)

    def sync(self) -> None:
        pass

    def duplicate(self) -> "QuickFile":
        return QuickFile(os.dup(self.fileno()), self.path)


class QuickFiles(SystemFiles):
    """`SystemFiles` that never wait for the disk, and that never change a file with a second name:
    snapshots share the log files of closed segments, and a follower may have to truncate one."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> QuickFile:
        if not read_only:
            _unshare(path)
        file = super().open(path, create=create, read_only=read_only)
        return QuickFile(file.fileno(), path)

    def sync_directory(self, path: Path) -> None:
        pass


def _unshare(path: Path) -> None:
    """Replace a file that has a second name by a copy, with the same times."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        copy = path.with_name(f"{path.name}.copy.tmp")
        shutil.copy2(path, copy)
        copy.replace(path)


@contextmanager
def ending_process() -> Iterator[None]:
    """Close, at the end of the block, the files that any `QuickFiles` opened in its thread and that
    are still open, as the operating system does for a killed process."""
    opened: list[QuickFile] = []
    watched = threading.get_ident(), opened
    _WATCHED.append(watched)
    try:
        yield
    finally:
        innermost = _WATCHED.pop()
        assert innermost is watched
        for file in opened:
            file.close()


class WrappedFiles:
    """Passes to `files` all operations that only read, and permissions, on which no content
    depends."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def read_bytes(self, path: Path) -> bytes:
        return self._files.read_bytes(path)

    def exists(self, path: Path) -> bool:
        return self._files.exists(path)

    def is_directory(self, path: Path) -> bool:
        return self._files.is_directory(path)

    def is_link(self, path: Path) -> bool:
        return self._files.is_link(path)

    def names(self, directory: Path) -> list[str]:
        return self._files.names(directory)

    def size(self, path: Path) -> int:
        return self._files.size(path)

    def sole_bytes(self, path: Path) -> int:
        return self._files.sole_bytes(path)

    def inode(self, path: Path) -> tuple[int, int]:
        return self._files.inode(path)

    def modified_ms(self, path: Path) -> int:
        return self._files.modified_ms(path)

    def free_bytes(self, directory: Path) -> int:
        return self._files.free_bytes(directory)

    def restrict(self, path: Path, *, private: bool = False) -> None:
        self._files.restrict(path, private=private)


@dataclass(slots=True)
class Fault:
    """A fault to inject: operation `kind` fails on files whose names end in `name`."""

    kind: str
    """Name of the operation; empty for all that can fail."""
    error: int
    """The `errno` of the failure."""
    passing: int
    """Number of such operations that succeed before the first failure."""
    times: int
    """Number of operations that fail; later ones succeed again. -1: all."""
    name: str
    written: int
    """Number of bytes that a failing `pwrite` leaves in the file."""
    late: bool
    """Whether the failing operation is carried out all the same, as when only the disk's answer is
    lost."""

    def strikes(self, kind: str, path: Path) -> bool:
        """Whether the operation that is about to run fails. Counts the operation."""
        meant = kind == self.kind or (not self.kind and kind not in _NEVER_FAIL)
        if not meant or not path.name.endswith(self.name) or not self.times:
            return False
        if self.passing:
            self.passing -= 1
            return False
        self.times -= 1
        return True


@dataclass(slots=True)
class Hold:
    """Blocks operations until the test releases them."""

    kind: str
    name: str
    reached: threading.Event = field(default_factory=threading.Event)
    """Set once the first of these operations has begun."""
    _let_go: threading.Event = field(default_factory=threading.Event)

    def let_go(self) -> None:
        """Release the blocked operations, and all later ones."""
        self._let_go.set()

    def wait(self, kind: str, path: Path) -> None:
        """Begin an operation. Returns once it may run."""
        if kind == self.kind and path.name.endswith(self.name):
            self.reached.set()
            self._let_go.wait()


class FaultyFiles:
    """`Files` on top of other `Files`, with operations that fail as `fail` requests.

    Kinds are the names of the methods of `Files` and `File`. Tests check that the code reports the
    failure and leaves nothing half done.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._faults: list[Fault] = []
        self._holds: list[Hold] = []
        self.operations: list[tuple[str, str]] = []
        """Kind and file name of every operation, including failed ones, in order."""
        self.failed: list[tuple[str, str]] = []
        """The operations that were made to fail."""
        self.open_count = 0
        """Number of files that are open now."""
        self.bytes_read = 0
        """Number of bytes requested from `pread`."""

    def fail(
        self,
        kind: str,
        error: int,
        *,
        passing: int = 0,
        times: int = 1,
        name: str = "",
        written: int = 0,
        late: bool = False,
    ) -> None:
        """Make operations fail; see `Fault`."""
        self._faults.append(Fault(kind, error, passing, times, name, written, late))

    def hold(self, kind: str, name: str = "") -> Hold:
        """Block file operations, in any thread, until they are released."""
        hold = Hold(kind, name)
        self._holds.append(hold)
        return hold

    def heal(self) -> bool:
        """Let everything work again. Returns whether a requested failure has not happened yet."""
        waiting = any(fault.times > 0 for fault in self._faults)
        self._faults.clear()
        return waiting

    def did(self, kind: str, name: str = "") -> int:
        """Return how often `kind` was done, or tried, on files whose names end in `name`."""
        return sum(done == kind and on.endswith(name) for done, on in self.operations)

    def check(self, kind: str, path: Path) -> Fault | None:
        """Record an operation, and return the fault that applies to it; `None` if there is none."""
        self.operations.append((kind, path.name))
        for hold in self._holds:
            hold.wait(kind, path)
        for fault in self._faults:
            if fault.strikes(kind, path):
                self.failed.append((kind, path.name))
                return fault
        return None

    def perform(self, kind: str, path: Path, action: Callable[[], T]) -> T:
        """Run `action`, unless a fault applies."""
        fault = self.check(kind, path)
        if fault is not None:
            if fault.late and kind in _MAY_BE_LATE:
                action()
            raise OSError(fault.error, os.strerror(fault.error), str(path))
        return action()

    def opened(self, file: File, path: Path) -> "FaultyFile":
        """Wrap `file`, so that the faults apply to it."""
        self.open_count += 1
        return FaultyFile(file, path, self)

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        def action() -> File:
            return self._files.open(path, create=create, read_only=read_only)

        return self.opened(self.perform("open", path, action), path)

    def read_bytes(self, path: Path) -> bytes:
        return self.perform("read_bytes", path, lambda: self._files.read_bytes(path))

    def exists(self, path: Path) -> bool:
        return self.perform("exists", path, lambda: self._files.exists(path))

    def is_directory(self, path: Path) -> bool:
        return self.perform("is_directory", path, lambda: self._files.is_directory(path))

    def is_link(self, path: Path) -> bool:
        return self.perform("is_link", path, lambda: self._files.is_link(path))

    def names(self, directory: Path) -> list[str]:
        return self.perform("names", directory, lambda: self._files.names(directory))

    def size(self, path: Path) -> int:
        return self.perform("size", path, lambda: self._files.size(path))

    def sole_bytes(self, path: Path) -> int:
        return self.perform("sole_bytes", path, lambda: self._files.sole_bytes(path))

    def inode(self, path: Path) -> tuple[int, int]:
        return self.perform("inode", path, lambda: self._files.inode(path))

    def modified_ms(self, path: Path) -> int:
        return self.perform("modified_ms", path, lambda: self._files.modified_ms(path))

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        self.perform(
            "set_modified_ms", path, lambda: self._files.set_modified_ms(path, modified_ms)
        )

    def make_directory(self, path: Path) -> None:
        self.perform("make_directory", path, lambda: self._files.make_directory(path))

    def free_bytes(self, directory: Path) -> int:
        return self.perform("free_bytes", directory, lambda: self._files.free_bytes(directory))

    def restrict(self, path: Path, *, private: bool = False) -> None:
        self.perform("restrict", path, lambda: self._files.restrict(path, private=private))

    def rename(self, source: Path, target: Path) -> None:
        self.perform("rename", source, lambda: self._files.rename(source, target))

    def unlink(self, path: Path) -> None:
        self.perform("unlink", path, lambda: self._files.unlink(path))

    def remove_directory(self, path: Path) -> None:
        self.perform("remove_directory", path, lambda: self._files.remove_directory(path))

    def sync_directory(self, path: Path) -> None:
        self.perform("sync_directory", path, lambda: self._files.sync_directory(path))

    def lock(self, path: Path) -> File:
        return self.opened(self.perform("lock", path, lambda: self._files.lock(path)), path)


class FaultyFile:
    """A file on top of another one, with the faults of its `FaultyFiles`."""

    def __init__(self, file: File, path: Path, files: FaultyFiles) -> None:
        self._file = file
        self._path = path
        self._files = files
        self._closed = False

    def pread(self, size: int, position: int) -> bytes:
        self._files.bytes_read += size
        return self._files.perform("pread", self._path, lambda: self._file.pread(size, position))

    def pread_now(self, size: int, position: int) -> Buffer | None:
        return self._files.perform(
            "pread", self._path, lambda: self._file.pread_now(size, position)
        )

    def in_memory(self, size: int, position: int) -> bool:
        if self._files.check("in_memory", self._path) is not None:
            return False
        return self._file.in_memory(size, position)

    def load(self, size: int, position: int) -> None:
        self._files.perform("load", self._path, lambda: self._file.load(size, position))

    def pwrite(self, data: Buffer, position: int) -> None:
        fault = self._files.check("pwrite", self._path)
        if fault is None:
            self._file.pwrite(data, position)
            return
        if fault.written:
            self._file.pwrite(memoryview(data)[: fault.written], position)
        raise OSError(fault.error, os.strerror(fault.error), str(self._path))

    def truncate(self, size: int) -> None:
        self._files.perform("truncate", self._path, lambda: self._file.truncate(size))

    def sync(self) -> None:
        self._files.perform("sync", self._path, self._file.sync)

    def size(self) -> int:
        return self._files.perform("file_size", self._path, self._file.size)

    def fileno(self) -> int:
        return self._file.fileno()

    def duplicate(self) -> File:
        file = self._files.perform("duplicate", self._path, self._file.duplicate)
        return self._files.opened(file, self._path)

    def close(self) -> None:
        """Close the file. A second call does nothing, as in `SystemFile`."""
        if not self._closed:
            self._closed = True
            self._files.open_count -= 1
            self._file.close()
