"""The journal of what was truncated at this broker: a file of lines, each the fields of one removal
as JSON.

A line is appended and synced before its log is truncated. A line that a power cut left incomplete
is left out. A file with `MAX_LINES` lines, or whose last change failed, is written anew, with the
later half of the lines at most. Of a file that has grown beyond `MAX_FILE_BYTES` in another way
only the end is read.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from ...printable import printable
from ..files import Files, replacing
from .journal import Cause, Journal, Removal

TRUNCATIONS_FILE: Final = "truncations"

MAX_BYTES: Final = 1 << 20
"""Most memory of the entries of all topics."""

MAX_LINES: Final = 2000
"""Most lines of the file."""

MAX_FILE_BYTES: Final = 2 << 20
"""Most bytes of the file that are read. `MAX_LINES` lines of ours are shorter."""

_TEXTS: Final = 4
"""Number of fields of a removal that are texts; they come first."""


class Truncations:
    """The truncations of all logs at this broker. The file is read by `load`, or when it is first
    needed."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._path = directory / TRUNCATIONS_FILE
        self._files = files
        self._journal: Journal | None = None
        self._lines = 0
        self._size_bytes = 0
        """Size of the complete lines."""
        self._change_failed = False
        """Whether the last change of the file failed. After a failed sync another sync of the same
        file would prove nothing."""

    def load(self) -> None:
        """Read the file into memory, so that no request waits for the disk. Raises `OSError`."""
        self._read()

    @property
    def loaded(self) -> Journal | None:
        """The truncations; `None` if the file was not read, or could not be read."""
        return self._journal

    def of(self, topic: str) -> list[Removal]:
        """Return the truncations of a topic name, oldest first. Raises `OSError`."""
        return self._read().of(topic)

    def add(self, removal: Removal) -> None:
        """Record a truncation; it is on stable storage when this returns. Raises `OSError`."""
        journal = self._read()
        journal.add(removal)
        if self._lines >= MAX_LINES or self._change_failed:
            self._rewrite(journal)
            return
        line = _line(removal)
        is_new = not self._files.exists(self._path)
        self._change_failed = True
        with closing(self._files.open(self._path, create=True)) as file:
            file.truncate(self._size_bytes)  # Without what a power cut left incomplete.
            file.pwrite(line, self._size_bytes)
            file.sync()
        if is_new:
            self._files.sync_directory(self._path.parent)
        self._change_failed = False
        self._size_bytes += len(line)
        self._lines += 1

    def renew(self, topic: str, former_id: str, new_id: str) -> None:
        """Give the entries of a topic its new id. Raises `OSError`."""
        journal = self._read()
        if any(each.topic_id == former_id for each in journal.of(topic)):
            journal.renew(topic, former_id, new_id)
            self._rewrite(journal)

    def _rewrite(self, journal: Journal) -> None:
        # Half of the lines at most, so that the next rewriting is far off.
        lines = [_line(removal) for removal in journal][-MAX_LINES // 2 :]
        self._change_failed = True
        with replacing(self._files, self._path) as file:
            file.pwrite(b"".join(lines), 0)
        self._change_failed = False
        self._lines, self._size_bytes = len(lines), sum(map(len, lines))

    def _read(self) -> Journal:
        if self._journal is None:
            journal = Journal(MAX_BYTES)
            data, begin = b"", 0
            if self._files.exists(self._path):
                begin = max(self._files.size(self._path) - MAX_FILE_BYTES, 0)
                with closing(self._files.open(self._path, read_only=True)) as file:
                    data = file.pread(MAX_FILE_BYTES, begin)
            lines = data.split(b"\n")[:-1]
            self._lines = MAX_LINES if begin else len(lines)
            for line in lines[-MAX_LINES:]:
                for removal in _removals(line):
                    journal.add(removal)
            self._size_bytes = begin + data.rfind(b"\n") + 1
            self._journal = journal
        return self._journal


def _line(removal: Removal) -> bytes:
    return json.dumps([str(removal.cause), *removal[1:]]).encode() + b"\n"


def _removals(line: bytes) -> Iterator[Removal]:
    """Yield the removal of a line; nothing for a damaged line."""
    try:
        fields = json.loads(line)
    except ValueError:
        return
    if not isinstance(fields, list) or len(fields) != len(Removal._fields):
        return
    texts, numbers = fields[:_TEXTS], fields[_TEXTS:]
    if all(isinstance(each, str) for each in texts) and all(type(each) is int for each in numbers):
        yield Removal(str(Cause.TRUNCATION), printable(texts[1]), *texts[2:], *numbers)
