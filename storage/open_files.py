"""What a broker keeps of files between uses, least recently used first out: open handles, and bytes
read from index files. And the files of one log, which it may use until it is deleted."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from ..protocol.errors import UnknownTopicOrPartition
from .files import NO_HANDLES, File, Files

T = TypeVar("T")

INDEX_CACHE_BYTES: Final = 32 << 20


class OpenFiles:
    """Keeps files open between uses and closes the least recently used beyond `limit`.

    For one thread, because any call may close a file that an earlier call returned: another thread
    could then use the handle of a different file. Only `forget` may be called from any thread.

    A file with unsynced bytes must not be kept here: closing it could lose the error of a later
    write-back.

    If the process has no handle left, the files kept here serve as its reserve.
    """

    def __init__(self, files: Files, limit: int) -> None:
        self._files = files
        self._limit = limit
        self._open: OrderedDict[str, File] = OrderedDict()
        self._lent = 0

    def use(self, name: str, path: Path | None = None, *, read_only: bool = False) -> File:
        """Return the open file of that name, valid until the next call. `path` is the name as a
        path, passed because creating a path takes nearly as long as opening a file. A file opened
        with `read_only` must be opened that way in every call.

        Raises `OSError`.
        """
        file = self._open.get(name)
        if file is not None:
            self._open.move_to_end(name)
            return file
        opened = partial(self._files.open, path or Path(name), read_only=read_only)
        file = self.making_room(opened)
        self._open[name] = file
        self._close_surplus()
        return file

    def keep(self, name: str, file: File) -> None:
        """Keep a file that was opened elsewhere, and is only read from now on, for the next `use`.
        The caller must treat it as closed."""
        if name in self._open:
            file.close()
            return
        self._open[name] = file
        self._close_surplus()

    def making_room(self, take: Callable[[], T], kept: int = 0) -> T:
        """Call `take`, which needs a handle, and return its result. While no handle is free, close
        files.

        The `kept` most recently used files stay open. Raises `OSError`.
        """
        while True:
            try:
                return take()
            except OSError as error:
                if error.errno not in NO_HANDLES or len(self._open) <= kept:
                    raise
            self._close_oldest()

    def _close_surplus(self) -> None:
        while len(self._open) > max(self._limit - self._lent, 1):
            self._close_oldest()

    def _close_oldest(self) -> None:
        _, oldest = self._open.popitem(last=False)
        oldest.close()

    def lend(self, file: File) -> File | None:
        """Return a second handle on `file`, kept until `take_back`. It counts towards the limit.

        `None` if a quarter of all handles is lent already. Raises `OSError`.
        """
        if self._lent >= self._limit // 4:
            return None
        lent = self.making_room(file.duplicate, kept=1)
        self._lent += 1
        return lent

    def take_back(self, lent: File) -> None:
        """Close a handle that was lent."""
        lent.close()
        self._lent -= 1

    def forget(self, name: str) -> None:
        """Close the file if it is open, because it is about to be renamed or removed."""
        file = self._open.pop(name, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()


class LogDeletion:
    """Whether a log was deleted. Its folder is then renamed, and its paths may be those of a new
    topic of the same name: the log must not use them."""

    __slots__ = ("deleted", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.deleted = False

    def check(self) -> None:
        """Raise `UnknownTopicOrPartition` if the log was deleted."""
        if self.deleted:
            raise UnknownTopicOrPartition(f"{self.name} was deleted meanwhile")


class LogFiles:
    """The `Files` of one log. Every operation raises `UnknownTopicOrPartition` once the log was
    deleted, also if that happens while it runs, in another thread."""

    __slots__ = ("_deletion", "_files")

    def __init__(self, files: Files, deletion: LogDeletion) -> None:
        self._files = files
        self._deletion = deletion

    def __getattr__(self, name: str) -> Any:
        self._deletion.check()
        return partial(self._run, getattr(self._files, name))

    def _run(self, operation: Callable[..., T], *args: object, **options: object) -> T:
        try:
            return operation(*args, **options)
        except OSError:
            self._deletion.check()  # The folder was renamed.
            raise

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        self._deletion.check()
        file = self._run(self._files.open, path, create=create, read_only=read_only)
        if self._deletion.deleted:  # It may be a file of the new topic.
            file.close()
            self._deletion.check()
        return file


class LogOpenFiles(OpenFiles):
    """The open files of one log, among those that all logs share. A deleted log gets no file and
    keeps none, so that a new log of the same name never finds its handles."""

    def __init__(self, shared: OpenFiles, deletion: LogDeletion) -> None:
        self._shared = shared
        self._deletion = deletion

    def use(self, name: str, path: Path | None = None, *, read_only: bool = False) -> File:
        if self._deletion.deleted:  # looked up without a call, for each append
            self._deletion.check()
        return self._shared.use(name, path, read_only=read_only)

    def keep(self, name: str, file: File) -> None:
        if self._deletion.deleted:
            file.close()
        else:
            self._shared.keep(name, file)

    def making_room(self, take: Callable[[], T], kept: int = 0) -> T:
        return self._shared.making_room(take, kept)

    def lend(self, file: File) -> File | None:
        return self._shared.lend(file)

    def take_back(self, lent: File) -> None:
        self._shared.take_back(lent)

    def forget(self, name: str) -> None:
        if not self._deletion.deleted:
            self._shared.forget(name)

    def close(self) -> None:
        raise AssertionError("the open files belong to all logs")


class IndexCache:
    """A cache of bytes from index files, by keys that identify their content. The least recently
    used bytes are dropped."""

    def __init__(self, limit_bytes: int = INDEX_CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._held: OrderedDict[Hashable, bytes] = OrderedDict()
        self.size_bytes = 0

    def get(self, key: Hashable) -> bytes | None:
        data = self._held.get(key)
        if data is not None:
            self._held.move_to_end(key)
        return data

    def put(self, key: Hashable, data: bytes) -> None:
        """Keep `data`, unless it exceeds a quarter of the limit."""
        self.drop(key)
        if len(data) > self._limit_bytes // 4:
            return
        self._held[key] = data
        self.size_bytes += len(data)
        while self.size_bytes > self._limit_bytes:
            _, dropped = self._held.popitem(last=False)
            self.size_bytes -= len(dropped)

    def drop(self, key: Hashable) -> None:
        data = self._held.pop(key, None)
        if data is not None:
            self.size_bytes -= len(data)
