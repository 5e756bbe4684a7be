"""Progress bars for long work: on standard error, and only where that is a terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..storage.files import DEFAULT_MODE, SystemFile, SystemFiles
from .streams import is_terminal

Advance = Callable[[int], None]
"""Called with how much more is done."""


@contextmanager
def progress(what: str, total: int, *, in_bytes: bool = False) -> Iterator[Advance]:
    """A bar that is gone in the end. Where it would only be in the way it is not drawn."""
    if not is_terminal(sys.stderr) or total <= 0:
        yield lambda amount: None
        return
    from rich import progress as bars
    from rich.console import Console

    done = bars.DownloadColumn() if in_bytes else bars.MofNCompleteColumn()
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), done)
    with bars.Progress(
        *columns,
        bars.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        # Lines for the same terminal are printed above the bar; others go where they should.
        redirect_stdout=is_terminal(sys.stdout),
    ) as shown:
        task = shown.add_task(what, total=total)
        yield lambda amount: shown.advance(task, amount)


class _CountedFile(SystemFile):
    __slots__ = ("advance",)

    advance: Advance

    def pread(self, size: int, position: int) -> bytes:
        data = super().pread(size, position)
        self.advance(len(data))
        return data


class CountedFiles(SystemFiles):
    """The real files; `advance` is called with how many bytes were read of logs."""

    def __init__(self, mode: int = DEFAULT_MODE, *, owner: tuple[int, int] | None = None) -> None:
        super().__init__(mode, owner=owner)
        self.advance: Advance = lambda amount: None

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> SystemFile:
        file = super().open(path, create=create, read_only=read_only)
        if path.suffix != ".log":
            return file
        counted = _CountedFile(file.fileno(), path)
        counted.advance = lambda amount: self.advance(amount)
        return counted


def log_bytes(paths: Iterable[Path]) -> int:
    """How many bytes there are in the logs in these folders, and in folders in them."""
    total = 0
    for folder in paths:
        for log in folder.rglob("*.log"):
            try:
                total += log.stat().st_size
            except OSError:
                continue  # gone meanwhile
    return total
