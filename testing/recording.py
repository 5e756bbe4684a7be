"""Files that record every change of a directory, so that a power cut can be simulated.

`RecordingFiles` works in a real directory and keeps a list of operations on *nodes*. A node is a
file or a directory independent of its name, because a renamed file is still the same file.
`power_cuts` works out what a power cut could leave of them.

Times of files are neither recorded nor restored: after a power cut they may have any value.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from ..storage.files import Buffer, File, Files
from .files import WrappedFiles

ROOT: Final = 0
"""The node of the recorded directory."""


@dataclass(frozen=True, slots=True)
class FileWrite:
    """A write of bytes to a file."""

    node: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """A change of a file's length."""

    node: int
    size: int


@dataclass(frozen=True, slots=True)
class FileSync:
    """A sync of a file: all earlier changes of its content are safe."""

    node: int
    site: str
    """The code that called the sync, as `sync_site` names it."""


@dataclass(frozen=True, slots=True)
class Link:
    """A new file or directory with its name."""

    directory: int
    name: str
    node: int


@dataclass(frozen=True, slots=True)
class Rename:
    """A rename of a file or directory, in one step, replacing whatever had the new name."""

    directory: int
    name: str
    target_directory: int
    target_name: str
    node: int


@dataclass(frozen=True, slots=True)
class Unlink:
    """The removal of a file's or directory's name."""

    directory: int
    name: str
    node: int


@dataclass(frozen=True, slots=True)
class SyncDirectory:
    """A sync of a directory: all names added, changed or removed in it before are safe."""

    node: int
    site: str


DataOperation = FileWrite | Truncate
NameOperation = Link | Rename | Unlink
Operation = DataOperation | NameOperation | FileSync | SyncDirectory


class Image:
    """The content of a directory tree: names in directories, and bytes of files."""

    def __init__(self) -> None:
        self.directories: dict[int, dict[str, int]] = {ROOT: {}}
        self.contents: dict[int, bytearray] = {}

    def copy(self) -> "Image":
        image = Image()
        image.directories = {node: dict(names) for node, names in self.directories.items()}
        image.contents = {node: bytearray(content) for node, content in self.contents.items()}
        return image

    def tree(self) -> dict[str, bytes | None]:
        """Return the content by path below the root, in order of paths; `None` for a directory."""
        found: dict[str, bytes | None] = {}
        self._add(ROOT, "", found)
        return found

    def _add(self, directory: int, prefix: str, found: dict[str, bytes | None]) -> None:
        for name, node in sorted(self.directories[directory].items()):
            if node in self.directories:
                found[prefix + name] = None
                self._add(node, f"{prefix}{name}/", found)
            else:
                found[prefix + name] = bytes(self.contents[node])


class RecordingFiles(WrappedFiles):
    """`Files` on top of other `Files` that record `operations` on everything below `root`.

    What is below `root` at the start counts as safe. `without` names a sync that is carried out but
    not recorded, as if the line that calls it had been removed.
    """

    def __init__(self, files: Files, root: Path, *, without: str | None = None) -> None:
        super().__init__(files)
        self._root = root
        self._without = without
        self.operations: list[Operation] = []
        self.start = Image()
        """The content at the start."""
        self.sites: set[str] = set()
        """The code that called a sync, including `without`."""
        self.left_out_at: int | None = None
        """Number of recorded operations when a sync was first left out."""
        self.directories = {ROOT}
        """Nodes that are directories."""
        self.paths = {ROOT: "."}
        """The first path of each node, for messages."""
        if files.exists(root):
            self._take(root, ROOT)
        self._names = {node: dict(names) for node, names in self.start.directories.items()}

    def _take(self, path: Path, directory: int) -> None:
        """Read the content of a directory into `start`."""
        for name in self._files.names(path):
            node = self._new_node(path / name)
            self.start.directories[directory][name] = node
            if self._files.is_directory(path / name):
                self.directories.add(node)
                self.start.directories[node] = {}
                self._take(path / name, node)
            else:
                self.start.contents[node] = bytearray(self._files.read_bytes(path / name))

    def _new_node(self, path: Path) -> int:
        node = len(self.paths)
        self.paths[node] = str(path.relative_to(self._root))
        return node

    def _place(self, path: Path) -> tuple[int, str]:
        """Return the directory's node, and the name in it."""
        node = ROOT
        *parents, name = path.relative_to(self._root).parts
        for parent in parents:
            node = self._names[node][parent]
        return node, name

    def _node(self, path: Path) -> int:
        if path == self._root:
            return ROOT
        directory, name = self._place(path)
        return self._names[directory][name]

    def _link(self, path: Path) -> int:
        directory, name = self._place(path)
        node = self._new_node(path)
        self._names[directory][name] = node
        self.operations.append(Link(directory, name, node))
        return node

    def _note_sync(self, node: int, kind: str, path: Path) -> None:
        site = sync_site(sys._getframe(2), kind, path)
        self.sites.add(site)
        if site != self._without:
            done = FileSync(node, site) if kind == "sync" else SyncDirectory(node, site)
            self.operations.append(done)
        elif self.left_out_at is None:
            self.left_out_at = len(self.operations)

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        existed = self._files.exists(path)
        file = self._files.open(path, create=create, read_only=read_only)
        node = self._node(path) if existed else self._link(path)
        return _RecordedFile(file, path, node, self)

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        self._files.set_modified_ms(path, modified_ms)

    def make_directory(self, path: Path) -> None:
        missing = [
            folder
            for folder in (path, *path.parents)
            if folder.is_relative_to(self._root) and not self._files.exists(folder)
        ]
        self._files.make_directory(path)
        for folder in reversed(missing):
            if folder != self._root:
                node = self._link(folder)
                self.directories.add(node)
                self._names[node] = {}

    def rename(self, source: Path, target: Path) -> None:
        self._files.rename(source, target)
        directory, name = self._place(source)
        target_directory, target_name = self._place(target)
        node = self._names[directory].pop(name)
        self._names[target_directory][target_name] = node
        self.operations.append(Rename(directory, name, target_directory, target_name, node))

    def unlink(self, path: Path) -> None:
        self._files.unlink(path)
        self._unlinked(path)

    def remove_directory(self, path: Path) -> None:
        self._files.remove_directory(path)
        self._unlinked(path)

    def _unlinked(self, path: Path) -> None:
        directory, name = self._place(path)
        self.operations.append(Unlink(directory, name, self._names[directory].pop(name)))

    def sync_directory(self, path: Path) -> None:
        self._files.sync_directory(path)
        self._note_sync(self._node(path), "sync_directory", path)

    def lock(self, path: Path) -> File:
        existed = self._files.exists(path)
        file = self._files.lock(path)
        if not existed:
            self._link(path)
        return file  # The content of a lock file is for people only, and not recorded.


class _RecordedFile:
    """A file on top of another one that records changes."""

    def __init__(self, file: File, path: Path, node: int, files: RecordingFiles) -> None:
        self._file = file
        self._path = path
        self._node = node
        self._files = files
        self.pread = file.pread
        self.pread_now = file.pread_now
        self.in_memory = file.in_memory
        self.load = file.load
        self.size = file.size
        self.fileno = file.fileno
        self.close = file.close

    pread: Callable[[int, int], bytes]
    pread_now: Callable[[int, int], Buffer | None]
    in_memory: Callable[[int, int], bool]
    load: Callable[[int, int], None]
    size: Callable[[], int]
    fileno: Callable[[], int]
    close: Callable[[], None]

    def pwrite(self, data: Buffer, position: int) -> None:
        self._file.pwrite(data, position)
        if len(data):
            self._files.operations.append(FileWrite(self._node, position, bytes(data)))

    def truncate(self, size: int) -> None:
        if size != self._file.size():
            self._file.truncate(size)
            self._files.operations.append(Truncate(self._node, size))

    def sync(self) -> None:
        self._file.sync()
        self._files._note_sync(self._node, "sync", self._path)

    def duplicate(self) -> File:
        return _RecordedFile(self._file.duplicate(), self._path, self._node, self._files)


_PASSING_ON: Final = ("contextlib", "open_files")
"""Modules that only pass a call on."""


def sync_site(frame: FrameType | None, kind: str, path: Path) -> str:
    """Return a name for the code that called a sync. The name does not change when other lines
    move.

    For example `flush.FlushWork.run: sync *.log`. A helper that syncs for others is named with its
    caller, as in `topics.write_topics > files.replace_file: sync topics.json.tmp`.
    """
    callers: list[str] = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__", "")).rpartition(".")[2]
        if module not in _PASSING_ON:
            callers.insert(0, f"{module}.{frame.f_code.co_qualname}")
        if module not in (*_PASSING_ON, "files"):
            break
        frame = frame.f_back
    name = f"*{path.suffix}" if path.name[:1].isdigit() else path.name
    where = "" if kind == "sync_directory" else f" {name}"
    return f"{' > '.join(callers[:2])}: {kind}{where}"
