"""Checkpoint files: one offset for each partition.

They are text with line feeds: the version (`0`), the number of entries, then one line `topic
partition offset` for each entry. An empty file has no entries.
"""

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..events import Observer
from ..files import Files, replace_file

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
"""Only cluster members have it. The names are Kafka's."""

MAX_OFFSET: Final = 2**63 - 1

_VERSION = "0"
_COUNT = re.compile(r"[0-9]{1,10}")
_ENTRY = re.compile(r"(\S+) ([0-9]{1,10}) ([0-9]{1,19})")

Offsets = dict[tuple[str, int], int]


class MalformedCheckpoint(ValueError):
    """A checkpoint file's content is malformed. The text says where and why."""


def encode_checkpoint(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Return the content of a checkpoint file, sorted by topic and partition."""
    lines = [_VERSION, str(len(offsets))]
    lines += [
        f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())
    ]
    return ("\n".join(lines) + "\n").encode()


def decode_checkpoint(content: bytes) -> Offsets:
    """Return the entries of a checkpoint file's content.

    Raises `MalformedCheckpoint` for a wrong version, a malformed line, a partition that occurs
    twice, an offset that is negative or above int64, or a wrong count.
    """
    if not content:
        return {}
    try:
        lines = content.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise MalformedCheckpoint(f"byte {error.start} is not text") from error
    if lines[0] != _VERSION:
        raise MalformedCheckpoint(f"line 1: version {lines[0][:20]!r}, known is {_VERSION!r}")
    if len(lines) < 2 or _COUNT.fullmatch(lines[1]) is None:
        raise MalformedCheckpoint("line 2: the number of entries is missing")
    offsets: Offsets = {}
    for number, line in enumerate(lines[2:], start=3):
        match = _ENTRY.fullmatch(line)
        if match is None:
            raise MalformedCheckpoint(
                f"line {number}: {line[:80]!r} is not 'topic partition offset'"
            )
        key, offset = (match[1], int(match[2])), int(match[3])
        if offset > MAX_OFFSET:
            raise MalformedCheckpoint(f"line {number}: offset {offset} is above {MAX_OFFSET}")
        if key in offsets:
            raise MalformedCheckpoint(f"line {number}: {key[0]} {key[1]} comes twice")
        offsets[key] = offset
    if len(offsets) != int(lines[1]):
        raise MalformedCheckpoint(
            f"line 2 says {lines[1]} entries, the file has {len(offsets)}: it was cut or edited"
        )
    return offsets


def read_checkpoint(files: Files, path: Path, observe: Observer) -> Offsets | None:
    """Return the entries of the file at `path`; `None` if it is missing or invalid.

    A file that cannot be read or is malformed is reported as `checkpoint_ignored`. The caller
    continues without it, which costs a longer recovery but no data.
    """
    if not files.exists(path):
        return None
    try:
        return decode_checkpoint(files.read_bytes(path))
    except (OSError, MalformedCheckpoint) as error:
        observe("checkpoint_ignored", path=str(path), reason=str(error))
        return None


def write_checkpoint(files: Files, path: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    """Replace the file at `path` atomically and durably. Raises `OSError`."""
    replace_file(files, path, encode_checkpoint(offsets))


class Checkpoints:
    """The checkpoint files of a data directory, and their present content.

    Several threads may write them.
    """

    def __init__(
        self, files: Files, directory: Path, observe: Observer, *, watermarks: bool = False
    ) -> None:
        """Read the files; high watermarks only with `watermarks`. A missing or malformed file
        counts as empty."""
        self._files = files
        self._directory = directory
        self._lock = threading.Lock()
        self.recovery_points = self._read(RECOVERY_POINTS, observe)
        self.log_starts = self._read(LOG_START_OFFSETS, observe)
        self.high_watermarks = self._read(HIGH_WATERMARKS, observe) if watermarks else None

    def _read(self, name: str, observe: Observer) -> Offsets:
        return read_checkpoint(self._files, self._directory / name, observe) or {}

    def partitions(self) -> set[tuple[str, int]]:
        """Return the partitions with an offset in any of the files."""
        known = self.recovery_points.keys() | self.log_starts.keys()
        return known | (self.high_watermarks or {}).keys()

    def write(
        self, recovery_points: Offsets, log_starts: Offsets, high_watermarks: Offsets | None = None
    ) -> None:
        """Write the files whose content changed. Raises `OSError`."""
        with self._lock:
            if recovery_points != self.recovery_points:
                write_checkpoint(self._files, self._directory / RECOVERY_POINTS, recovery_points)
                self.recovery_points = recovery_points
            if log_starts != self.log_starts:
                write_checkpoint(self._files, self._directory / LOG_START_OFFSETS, log_starts)
                self.log_starts = log_starts
            if high_watermarks is not None and high_watermarks != self.high_watermarks:
                write_checkpoint(self._files, self._directory / HIGH_WATERMARKS, high_watermarks)
                self.high_watermarks = high_watermarks
