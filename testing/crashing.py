"""Files that end the process in the middle of its work, like `kill -9`.

Data that a process has written survive its kill. So every state that a kill can leave is reached by
ending the process before one of its changing operations, or half-way through a write.
"""

import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, TypeVar

from ..storage.files import Buffer, File, Files
from .files import WrappedFiles

T = TypeVar("T")

KILLED: Final = 137
"""Exit code of a process that was ended here: the one that a shell shows after `kill -9`."""


@dataclass(frozen=True, slots=True)
class KillPoint:
    """The point at which a process ends."""

    number: int
    """Number of changing operations before the point."""
    half: bool = False
    """Whether the first half of the write at the point is already in the file."""


@dataclass(frozen=True, slots=True)
class Change:
    """An operation that changes something."""

    kind: str
    """Name of the method of `Files` or `File`; `create` for an `open` that creates a file."""
    callers: tuple[str, ...]
    """The storage functions that called it, innermost first: `segment.Segment.append`."""
    has_half: bool
    """Whether the operation is a write of at least two bytes."""


class CrashingFiles(WrappedFiles):
    """`Files` on top of other `Files` that end the process at `point`, after calling `last_will`.

    Syncs are not counted: they change nothing that a kill could take away.
    """

    def __init__(
        self,
        files: Files,
        point: KillPoint | None,
        last_will: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(files)
        self._point = point
        self._last_will = last_will
        self.changes: list[Change] = []
        """Changes made so far, in order."""

    def points(self) -> dict[KillPoint, Change]:
        """Return every point at which a process that does the same can be killed."""
        found = {KillPoint(number): change for number, change in enumerate(self.changes)}
        halves = [number for number, change in enumerate(self.changes) if change.has_half]
        return found | {KillPoint(number, half=True): self.changes[number] for number in halves}

    def change(self, kind: str, action: Callable[[], T], half: Callable[[], object] | None) -> T:
        """Run `action`, or end the process. `half` does the first half of the action, if it has
        halves."""
        if self._point is not None and self._point.number == len(self.changes):
            if self._point.half and half is not None:
                half()
            self._last_will()
            os._exit(KILLED)
        self.changes.append(Change(kind, _callers(sys._getframe(2)), half is not None))
        return action()

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        def action() -> File:
            return self._files.open(path, create=create, read_only=read_only)

        makes = create and not self._files.exists(path)
        return _CrashingFile(self.change("create", action, None) if makes else action(), self)

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        self.change("set_modified_ms", lambda: self._files.set_modified_ms(path, modified_ms), None)

    def make_directory(self, path: Path) -> None:
        self.change("make_directory", lambda: self._files.make_directory(path), None)

    def rename(self, source: Path, target: Path) -> None:
        self.change("rename", lambda: self._files.rename(source, target), None)

    def unlink(self, path: Path) -> None:
        self.change("unlink", lambda: self._files.unlink(path), None)

    def remove_directory(self, path: Path) -> None:
        self.change("remove_directory", lambda: self._files.remove_directory(path), None)

    def sync_directory(self, path: Path) -> None:
        self._files.sync_directory(path)

    def lock(self, path: Path) -> File:
        return self._files.lock(path)


class _CrashingFile:
    """A file on top of another one that counts changes."""

    def __init__(self, file: File, files: CrashingFiles) -> None:
        self._file = file
        self._files = files
        self.pread = file.pread
        self.pread_now = file.pread_now
        self.in_memory = file.in_memory
        self.load = file.load
        self.sync = file.sync
        self.size = file.size
        self.fileno = file.fileno
        self.close = file.close

    pread: Callable[[int, int], bytes]
    pread_now: Callable[[int, int], Buffer | None]
    in_memory: Callable[[int, int], bool]
    load: Callable[[int, int], None]
    sync: Callable[[], None]
    size: Callable[[], int]
    fileno: Callable[[], int]
    close: Callable[[], None]

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data)

        def half() -> None:
            self._file.pwrite(view[: len(view) // 2], position)

        self._files.change(
            "pwrite",
            lambda: self._file.pwrite(data, position),
            half if len(view) > 1 else None,
        )

    def truncate(self, size: int) -> None:
        self._files.change("truncate", lambda: self._file.truncate(size), None)

    def duplicate(self) -> File:
        return _CrashingFile(self._file.duplicate(), self._files)


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a child process. Returns its exit code: `KILLED`, 0, or 1.

    An exception is written to standard error. `work` may use only one thread: the child has no
    other.
    """
    with warnings.catch_warnings():
        # Later Python versions warn if the parent has threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        work()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def _callers(frame: FrameType | None) -> tuple[str, ...]:
    """Return the storage functions on the stack, innermost first, as `module.Class.function`."""
    callers = []
    while frame is not None:
        package, _, module = str(frame.f_globals.get("__name__", "")).rpartition(".")
        # `open_files` only passes a call on.
        if ".storage." in f"{package}." and module != "open_files":
            callers.append(f"{module}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return tuple(callers)
