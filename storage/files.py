"""The file system seam: every byte that storage reads or writes goes through `Files`.

`SystemFiles` is the real implementation. `horolog.testing` has others that fail or record.
"""

import errno
import fcntl
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import repeat
from pathlib import Path
from threading import Lock
from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview

NO_HANDLES: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors for lack of a free handle in the process or the system. The operation was not begun."""

RETRIABLE_ERRORS: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM, errno.EACCES, errno.EPERM} | NO_HANDLES
)
"""Errors that may pass: no room, no free handle, or no permission for now. The disk
is not broken."""


DEFAULT_MODE: Final = 0o600

_PROBE_BYTES: Final = 128 << 10
"""Distance between probed bytes: the amount that the system reads ahead at once."""

_LOAD_BYTES: Final = 256 << 10

_NO_ACCESS_TIME: Final = getattr(os, "O_NOATIME", 0)
"""Only Linux has the flag."""

_NO_WAIT: Final = getattr(os, "RWF_NOWAIT", 0)
"""Only Linux has the flag. Elsewhere a read is assumed to be quick."""


class File(Protocol):
    """An open file, addressed by position. All methods raise `OSError`."""

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_now(self, size: int, position: int) -> Buffer | None:
        """Like `pread`, without waiting for the disk; `None` if that is not possible."""
        ...

    def in_memory(self, size: int, position: int) -> bool:
        """Whether these bytes can probably be read without waiting for the disk."""
        ...

    def load(self, size: int, position: int) -> None:
        """Read these bytes into the page cache. For a separate thread."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`. After an error, part of it may be in the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when the file's bytes and length are on stable storage."""
        ...

    def size(self) -> int: ...

    def fileno(self) -> int: ...

    def duplicate(self) -> "File":
        """Return a second handle on the same open file, to be closed separately."""
        ...

    def close(self) -> None: ...


class Files(Protocol):
    """The file system operations that storage needs. All methods raise `OSError`."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and writing. `create` makes a missing file and follows no symbolic link,
        whose target may belong to somebody else."""
        ...

    def read_bytes(self, path: Path) -> bytes: ...

    def exists(self, path: Path) -> bool: ...

    def is_directory(self, path: Path) -> bool: ...

    def is_link(self, path: Path) -> bool: ...

    def names(self, directory: Path) -> list[str]:
        """Return the names in `directory`, sorted."""
        ...

    def size(self, path: Path) -> int: ...

    def sole_bytes(self, path: Path) -> int:
        """Return the size of a file that nothing else refers to. 0 for a folder or a link, for a
        file with a second name or open anywhere, and if the system cannot tell."""
        ...

    def inode(self, path: Path) -> tuple[int, int]:
        """Return the device and the inode of a file or folder. A copy has others."""
        ...

    def modified_ms(self, path: Path) -> int: ...

    def set_modified_ms(self, path: Path, modified_ms: int) -> None: ...

    def free_bytes(self, directory: Path) -> int:
        """Return how many bytes this process may still write to the file system of `directory`."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make `path` and its missing parents. An existing folder is accepted, unless it is a
        symbolic link."""
        ...

    def restrict(self, path: Path, *, private: bool = False) -> None:
        """Remove the permissions that a file or folder made here would not have. With `private`,
        remove all but the owner's."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Rename, and atomically replace `target` if it is an existing file."""
        ...

    def unlink(self, path: Path) -> None: ...

    def remove_directory(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None:
        """Return when the names in `path` are on stable storage."""
        ...

    def lock(self, path: Path) -> File:
        """Open `path` and hold its exclusive lock until closed. `BlockingIOError` if it is held."""
        ...


def _open(path: Path, flags: int, mode: int = 0) -> int:
    """Open a file without updating its access time, which would cause a write to the disk."""
    try:
        return os.open(path, flags | _NO_ACCESS_TIME, mode)
    except PermissionError:  # The file may belong to another user.
        return os.open(path, flags, mode)


def _read_now(fd: int, buffer: bytearray, position: int) -> int:
    """Read what is in memory from `position` on. Raises `BlockingIOError` if nothing is."""
    try:
        return os.preadv(fd, [buffer], position, _NO_WAIT)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return os.preadv(fd, [buffer], position)  # This file system cannot tell.


class SystemFile:
    """`File` on a descriptor of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self.path = path

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            data = os.pread(self._fd, missing, position + size - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def pread_now(self, size: int, position: int) -> Buffer | None:
        data = bytearray(size)
        try:
            if _read_now(self._fd, data, position) == size:
                return data
        except BlockingIOError:
            pass
        return None

    def in_memory(self, size: int, position: int) -> bool:
        last = position + size - 1
        places = *range(position, last, _PROBE_BYTES), last
        buffers = repeat([bytearray(1)])
        try:
            return all(map(os.preadv, repeat(self._fd), buffers, places, repeat(_NO_WAIT)))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
        return True  # If a file system cannot tell, a read is assumed to be quick.

    def load(self, size: int, position: int) -> None:
        end = position + size
        piece = bytearray(min(size, _LOAD_BYTES))
        while position < end:
            read = os.preadv(self._fd, [memoryview(piece)[: end - position]], position)
            if not read:
                return
            position += read

    def pwrite(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):
            written += os.pwrite(self._fd, view[written:], position + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def size(self) -> int:
        # Takes a third of the time of `fstat`, and each fetch calls it. Nothing uses the file
        # position that this moves.
        return os.lseek(self._fd, 0, os.SEEK_END)

    def fileno(self) -> int:
        return self._fd

    def duplicate(self) -> "SystemFile":
        return SystemFile(os.dup(self._fd), self.path)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Spare:
    """A handle kept in reserve, released when no other is free. Any thread may use it."""

    def __init__(self) -> None:
        self._fd = -1
        self._wanted = False
        self._lock = Lock()

    def take(self) -> None:
        self._wanted = True
        self._refill()

    def give(self) -> None:
        self._wanted = False
        self._release()

    @contextmanager
    def used_if_needed(self) -> Iterator[None]:
        """Release the spare handle for the block, if there is one, and reserve it again
        afterwards. One block at a time."""
        if not self._wanted:
            yield
            return
        with self._lock:
            self._release()
            try:
                yield
            finally:
                self._refill()

    def _refill(self) -> None:
        with suppress(OSError):
            self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SystemFiles:
    """`Files` on the operating system.

    New files and folders get the requested permissions, less the umask of the process.
    """

    def __init__(self, mode: int = DEFAULT_MODE, *, owner: tuple[int, int] | None = None) -> None:
        """`mode` is the mode of new files. `owner`, a user and a group, becomes the owner of new
        files; only root can do that."""
        self._mode = mode
        self._owner = owner
        self._spare = Spare()

    def keep_spare(self) -> None:
        """Keep a handle in reserve until `drop_spare`, for operations that must not
        fail half-way."""
        self._spare.take()

    def drop_spare(self) -> None:
        self._spare.give()

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> SystemFile:
        if read_only:
            return SystemFile(_open(path, os.O_RDONLY | os.O_CLOEXEC), path)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_NOFOLLOW if create else 0)
        fd = _open(path, flags, self._mode)
        if create and self._owner is not None:
            os.fchown(fd, *self._owner)
        return SystemFile(fd, path)

    def read_bytes(self, path: Path) -> bytes:
        return path.read_bytes()

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def is_link(self, path: Path) -> bool:
        return path.is_symlink()

    def names(self, directory: Path) -> list[str]:
        return sorted(os.listdir(directory))

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def sole_bytes(self, path: Path) -> int:
        if not stat.S_ISREG(path.lstat().st_mode):
            return 0
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            is_sole = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and _open_once(fd)
            return status.st_size if is_sole else 0
        finally:
            os.close(fd)

    def inode(self, path: Path) -> tuple[int, int]:
        status = path.stat()
        return status.st_dev, status.st_ino

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def free_bytes(self, directory: Path) -> int:
        return shutil.disk_usage(directory).free

    def make_directory(self, path: Path) -> None:
        path.mkdir(directory_mode(self._mode), parents=True, exist_ok=True)
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if self._owner is not None:
            os.chown(path, *self._owner)

    def restrict(self, path: Path, *, private: bool = False) -> None:
        if path.is_symlink():
            return  # The link's target may belong to somebody else.
        status = os.stat(path)
        mode = directory_mode(self._mode) if stat.S_ISDIR(status.st_mode) else self._mode
        if private:
            mode &= stat.S_IRWXU
        present = stat.S_IMODE(status.st_mode)
        allowed = present & (mode | ~0o777)
        if allowed != present:
            os.chmod(path, allowed)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def sync_directory(self, path: Path) -> None:
        # Names already changed have to be synced even if no handle is free.
        with self._spare.used_if_needed():
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def lock(self, path: Path) -> SystemFile:
        file = self.open(path, create=True)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
        return file


def _open_once(fd: int) -> bool:
    """Whether no process has the file open a second time, according to Linux's leases."""
    lease = getattr(fcntl, "F_SETLEASE", None)
    if lease is None:
        return False
    try:
        # A process that opens the file between these calls must not end this process with SIGIO.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, lease, fcntl.F_WRLCK)
        fcntl.fcntl(fd, lease, fcntl.F_UNLCK)
    except OSError:
        return False
    return True


def directory_mode(file_mode: int) -> int:
    """Return the permissions of a folder for files of `file_mode`: who may read the files may enter
    it."""
    return file_mode | (file_mode & 0o444) >> 2


def make_directory_safely(files: Files, path: Path) -> None:
    """Make `path` and its missing parents, with their names on stable storage. Raises `OSError`.

    The name of an existing directory is synced too, because it may not have been. `path` may be a
    symbolic link to a directory.
    """
    made = [path]
    while not files.exists(made[-1].parent):
        made.append(made[-1].parent)
    if not (files.is_link(path) and files.is_directory(path)):
        files.make_directory(path)
    for directory in reversed(made):
        # A parent that may be entered but not read cannot be synced.
        with suppress(PermissionError):
            files.sync_directory(directory.parent)


def replace_file(files: Files, path: Path, data: bytes) -> None:
    """Replace the content of `path` by `data` atomically: a reader or a power cut sees the old or
    the new content."""
    with replacing(files, path) as file:
        file.pwrite(data, 0)


@contextmanager
def replacing(files: Files, path: Path) -> Iterator[File]:
    """Yield an empty file to write, which then replaces `path` atomically and safely.

    A temporary file beside `path` is written, synced and renamed over it; then the directory is
    synced.
    """
    temporary = path.with_name(path.name + ".tmp")
    with suppress(FileNotFoundError):
        # A sync of it may have failed earlier: the system may treat its pages as written since.
        files.unlink(temporary)
    try:
        with closing(files.open(temporary, create=True)) as file:
            yield file
            file.sync()
        files.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            files.unlink(temporary)  # On a full disk it takes up room.
        raise
    files.sync_directory(path.parent)
