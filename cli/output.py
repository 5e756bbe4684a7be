"""Output of commands: JSON objects, one per line, or text for people; warnings, and questions
before something is deleted, moved or repaired. Also progress bars for long work, on standard error,
if that is a terminal."""

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ..client.produce.encoding import Headers
from ..printable import printable
from ..storage.files import DEFAULT_MODE, SystemFile, SystemFiles
from ..times import format_time
from .errors import CommandFailed, OutputClosed, OutputFailed, drop, is_terminal, note, print_error

_CURE: Final = "Give --yes to do it without the question"

Advance = Callable[[int], None]
"""Called with the amount of work done since the last call."""

NOTHING: Final = "-"
"""Text for an absent key, value, time or offset."""

_NO_FIELDS: Final[Mapping[str, object]] = MappingProxyType({})


@contextmanager
def progress(what: str, total: int, *, in_bytes: bool = False) -> Iterator[Advance]:
    """Show a progress bar during the block, if standard error is a terminal and `total` above 0."""
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
        # Lines of standard output appear above the bar if it is a terminal too.
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
    """The real files; reads of `.log` files call `advance` with the number of bytes."""

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
    """Return the total size in bytes of the `.log` files in these folders and their subfolders."""
    total = 0
    for folder in paths:
        for log in folder.rglob("*.log"):
            try:
                total += log.stat().st_size
            except OSError:
                continue  # gone meanwhile
    return total


class AsIs(str):
    """A line that is printed without escaping: its control characters are the program's own."""

    __slots__ = ()


def emit(lines: Iterable[str]) -> None:
    """Print lines and flush. Unprintable characters are escaped, except in `AsIs`. Raises
    `OutputClosed`, `OutputFailed`."""
    text = "".join(f"{line if isinstance(line, AsIs) else printable(line)}\n" for line in lines)
    if sys.stdout is None:  # it was closed before the start
        raise OutputClosed
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)
        raise OutputClosed from None
    except OSError as error:
        drop(sys.stdout)
        raise OutputFailed(f"standard output cannot be written: {error.strerror}") from None


def emit_object(fields: Mapping[str, object] = _NO_FIELDS, /, **more: object) -> None:
    """Print one object in the form of `json_line`."""
    emit([json_line(fields, **more)])


def json_line(fields: Mapping[str, object] = _NO_FIELDS, /, **more: object) -> str:
    """Return an object as one line of JSON. It is ASCII, so that no character counts as the end of
    a line."""
    return json.dumps({**fields, **more})


def json_bytes(data: bytes | None) -> object:
    """Return bytes for JSON: a string if they are UTF-8, else `{"base64": ...}`; None for None."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def json_headers(headers: Headers) -> list[dict[str, object]]:
    """Return headers for JSON, as a list in their order, because names can repeat."""
    return [{"name": name, "value": json_bytes(value)} for name, value in headers]


def json_time(timestamp_ms: int | None) -> int | None:
    """Return a time for JSON; None (null) for no time."""
    return None if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms


def shown_bytes(data: bytes | None) -> str:
    """Format bytes on one line; unprintable characters are escaped."""
    if data is None:
        return NOTHING
    return printable(data.decode("utf-8", "backslashreplace"))


def shown_headers(headers: Headers) -> str:
    """Format headers, to be printed behind the value."""
    return "".join(f"  {printable(name)}={shown_bytes(value)}" for name, value in headers)


def shown_time(timestamp_ms: int | None) -> str:
    """Format a time, or `NOTHING`."""
    return NOTHING if timestamp_ms is None or timestamp_ms < 0 else format_time(timestamp_ms)


def shown_number(number: int | None) -> str:
    """Format a number, or `NOTHING`."""
    return NOTHING if number is None else str(number)


def shown_size(size_bytes: int | None) -> str:
    """Format a size in the unit that fits, or `NOTHING`."""
    if size_bytes is None:
        return NOTHING
    if size_bytes < 1024:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def shown_span(seconds: float | None) -> str:
    """Format a duration in its two largest units: `350 ms`, `1 min 5 s`, `7 d 2 h`."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    left = round(seconds)
    parts: list[str] = []
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        number, left = divmod(left, unit)
        if number:
            parts.append(f"{number} {name}")
    return " ".join(parts[:2])


def shown_place(path: Path, position: int | None) -> str:
    """Format a path, with a position in the file if there is one."""
    return str(path) if position is None else f"{path} at byte {position}"


def plural(number: int, noun: str) -> str:
    """Return the singular of a noun for 1, else the plural."""
    return noun if number == 1 else f"{noun}s"


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> list[str]:
    """Return the lines of a table: by rich on a terminal, else as aligned text. Columns in `right`
    are aligned to the right. On a narrow terminal the columns in `whole` are not wrapped."""
    rows = [[printable(cell) for cell in row] for row in rows]
    if is_terminal(sys.stdout):
        return _rich_table(headers, rows, right, whole)
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    lines = []
    for row in (headers, *rows):
        cells = [
            cell.rjust(width) if header in right else cell.ljust(width)
            for header, cell, width in zip(headers, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _rich_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str],
    whole: Sequence[str],
) -> list[str]:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for header in headers:
        made.add_column(
            Text(header),
            justify="right" if header in right else "left",
            overflow="fold",
            no_wrap=header in whole,
        )
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    console = Console(file=sys.stdout, highlight=False)
    with console.capture() as capture:
        console.print(made)
    return [AsIs(line) for line in capture.get().rstrip("\n").split("\n")]


def not_cleaned_yet(cleanup_policy: str) -> str:
    """Return the note that Horolog does not clean a compacted topic yet."""
    return f"cleanup.policy is {cleanup_policy}: not cleaned yet, every message of a key is kept."


def warn_past_retention(count: int, topic: str) -> None:
    """Say how many messages retention deletes soon; nothing if there is none."""
    if count:
        are, their = ("is", "its time") if count == 1 else ("are", "their times")
        note(
            f"{count:,} {plural(count, 'message')} of {topic} {are} past retention already, by "
            f"{their}, and deleted soon: to keep such messages, "
            f"`horolog topic alter {topic} --set retention.ms=-1`"
        )


def confirm(question: str, unchanged: str) -> None:
    """Ask a question on the terminal. Raises CommandFailed unless the answer is yes; `unchanged`
    is its text, such as `nothing was deleted`."""
    while True:
        if sys.stderr is not None:
            sys.stderr.write(printable(f"{question} [y/N] "))
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line.endswith("\n"):  # Ctrl-D, and the cursor is still behind the question
            print_error("")
            raise CommandFailed(f"{unchanged}: the question was not answered", _CURE)
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return
        if answer in ("", "n", "no"):
            raise CommandFailed(unchanged, _CURE)
        print_error("Please answer y or n.")
