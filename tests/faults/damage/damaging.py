"""Logs to damage, ways to damage them, and what is left to be read."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from horolog.protocol.errors import HorologError, StorageError
from horolog.protocol.records.layout import Codec
from horolog.protocol.records.messages.sets import entries, records
from horolog.storage.read import reader
from horolog.testing.logs import LogFolder, timed_set, untimed_set

GOLDEN = Path(__file__).parents[2] / "golden" / "kafka-0.10.2"
MAX_BYTES = 1 << 20

Message = tuple[int, int]
"""Offset and timestamp."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """Where an entry is, and what is in it."""

    name: str
    """Of its log file."""
    position: int
    end: int
    offset: int
    messages: tuple[Message, ...]


@dataclass(slots=True)
class Original:
    """A log as it was before it was damaged."""

    path: Path
    end_offset: int
    entries: list[StoredEntry]
    settings: dict[str, str] = field(default_factory=dict)
    gaps: bool = False

    @property
    def messages(self) -> list[Message]:
        return [message for entry in self.entries for message in entry.messages]

    @property
    def log_names(self) -> list[str]:
        return sorted({entry.name for entry in self.entries})

    def holding(self, name: str, at: int) -> StoredEntry:
        """The entry that byte `at` of a log file belongs to."""
        (entry,) = [e for e in self.entries if e.name == name and e.position <= at < e.end]
        return entry

    def before(self, entry: StoredEntry) -> list[Message]:
        """The messages in front of an entry."""
        return [m for e in self.entries[: self.entries.index(entry)] for m in e.messages]

    def first(self, target_ms: int) -> tuple[int, int] | None:
        """Timestamp and offset of the first message at or after a time."""
        return next(((ms, offset) for offset, ms in self.messages if ms >= target_ms), None)


def original(folder: LogFolder) -> Original:
    """What is in the log that is open; nothing may be open any more when it is copied."""
    log = folder.log
    found = []
    for segment in log.segments:
        data = segment.log_path.read_bytes()
        for entry in entries(data):
            stored = data[entry.position : entry.end]
            messages = tuple(
                (record.offset, record.timestamp_ms)
                for record in records(stored, max_decompressed_bytes=MAX_BYTES)
            )
            name = segment.log_path.name
            found.append(StoredEntry(name, entry.position, entry.end, entry.offset, messages))
    return Original(folder.path, log.log_end_offset, found, dict(folder.settings), log.gaps)


def fill_mixed(folder: LogFolder, *, segments: int = 3, segment_bytes: int = 210) -> None:
    """Segments of plain and compressed entries, times that rise and fall, some without."""
    folder.open(segment_bytes=segment_bytes, index_interval_bytes=40)
    number = 0
    while folder.log.segment_count <= segments:
        folder.log.appender.append(timed_set(1000 + 10 * number, value=b"a"))
        folder.log.appender.append(
            timed_set(1005 + 10 * number, 990 + 10 * number, codec=Codec.GZIP)
        )
        if number % 2:
            folder.log.appender.append(untimed_set(1))
        number += 1


@contextmanager
def copied(source: Original, place: Path) -> Iterator[LogFolder]:
    """A copy of the log's folder, to be damaged and opened; it is removed in the end."""
    copy = LogFolder(place / "copy-0")
    shutil.rmtree(copy.path)
    shutil.copytree(source.path, copy.path, copy_function=shutil.copyfile)
    copy.settings = dict(source.settings)
    try:
        yield copy
    finally:
        copy.let_go()
        shutil.rmtree(copy.path)


def flip(path: Path, at: int, bit: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def overwrite(path: Path, at: int, content: bytes) -> None:
    """Change bytes of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def cut(path: Path, size: int) -> None:
    """Cut a file off at `size`."""
    with path.open("r+b") as file:
        file.truncate(size)


def check_refusal(error: HorologError) -> None:
    """Who reaches damage is told what to do about it, and gets no error that makes it jump."""
    assert isinstance(error, StorageError), error
    assert "horolog repair" in error.message


def read_all(folder: LogFolder) -> tuple[list[Message], list[int]]:
    """Every message that can be read, each entry asked for by itself, and the offsets at which
    reading was refused; refusals have to name the repair."""
    log = folder.log
    log.prepare()
    found: list[Message] = []
    refused = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            data = reader.read(log, offset, 1, whole_first=True).read()
        except HorologError as error:
            check_refusal(error)
            refused.append(offset)
            offset += 1
            continue
        read = list(records(data, max_decompressed_bytes=MAX_BYTES, from_offset=offset))
        if not read:
            break
        found += [(record.offset, record.timestamp_ms) for record in read]
        offset = read[-1].offset + 1
    return found, refused


def check_searches(folder: LogFolder, source: Original, targets_ms: range) -> int:
    """Compare searches with the original; how many were refused, which has to name the repair."""
    refused = 0
    for target_ms in targets_ms:
        try:
            (found,) = folder.found(target_ms)
        except HorologError as error:
            check_refusal(error)
            refused += 1
        else:
            assert found == source.first(target_ms), target_ms
    return refused
