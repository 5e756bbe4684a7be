"""Open handles of closed segments and of index files, at most so many at a time."""

from collections import OrderedDict
from pathlib import Path

from .files import File, Files


class OpenFiles:
    """Keeps files open between uses and closes the least recently used beyond `limit`.

    A file that holds bytes which are not synced yet does not belong here: closing it could
    lose the error of a later write-back.
    """

    def __init__(self, files: Files, limit: int) -> None:
        self._files = files
        self._limit = limit
        self._open: OrderedDict[Path, File] = OrderedDict()

    def use(self, path: Path) -> File:
        """The open file, valid until the next call. Raises `OSError`."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        file = self._files.open(path)
        self._open[path] = file
        if len(self._open) > self._limit:
            _, oldest = self._open.popitem(last=False)
            oldest.close()
        return file

    def forget(self, path: Path) -> None:
        """Close the file if it is open: it is about to be renamed or removed."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
