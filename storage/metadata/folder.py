"""The folder of the metadata log in a data directory, `metadata-log`:

    state            the state that results from the records below an offset (`snapshot`)
    state.copy       the leader's state, while it is received in parts (`snapshot`)
    __metadata-0/    the log, in a folder like any partition's
    recovery-point-offset-checkpoint, log-start-offset-checkpoint,
    replication-offset-checkpoint, .kafka_cleanshutdown
                     the same files as beside the partitions of topics

Only the broker's own account may enter the folder, whatever `data.file.mode` says, because it
contains salted keys of users.

The log is in no list of partitions, so no request finds it. The folder is created completely under
another name, and then renamed: a data directory has either no such folder, or one with all topics
and positions. A state is written so that the start of the log can move to the state's end.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

from ...config.topic import TopicSettings, topic_settings
from ...protocol.errors import StorageError
from ..directory.checkpoints import Checkpoints
from ..directory.clean_shutdown import leave_marker, take_marker
from ..directory.deletion import remove
from ..files import replacing
from ..log.log import Log
from ..log.log_opening import open_log
from ..names import METADATA_FOLDER, METADATA_TOPIC, folder_name, segment_bases
from ..quarantine import quarantine_file
from ..seams import DiskRoom, Seams
from .metadata_state import MetadataState, records_of
from .records import MAX_RECORD_BYTES
from .snapshot import (
    MalformedState,
    Snapshot,
    StateCopy,
    StateReading,
    decode_state,
    encode_state,
    pieces_of,
)

METADATA_PARTITION: Final = (METADATA_TOPIC, 0)
"""Topic and partition number of the metadata log."""

STATE_FILE: Final = "state"
NEW_SUFFIX: Final = ".new"
COPY_SUFFIX: Final = ".copy"
"""Suffix of a state that is received in parts and is not complete yet."""

SEGMENT_BYTES: Final = 1 << 20
"""Small, so that segments below the log start are deleted soon."""

_SETTINGS: Final = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(SEGMENT_BYTES),
    "max.message.bytes": str(2 * MAX_RECORD_BYTES),
}


def metadata_settings() -> TopicSettings:
    """Return the settings of the log: nothing is deleted by age or size, and no broker setting
    applies."""
    return topic_settings({}, _SETTINGS)


class MetadataFolder:
    """The files of the metadata log of one data directory."""

    def __init__(self, directory: Path, seams: Seams) -> None:
        self._files = seams.files
        # Without the check for disk room: records may use the space that the reserve gives up,
        # because they are the changes that make room.
        self._seams = replace(seams, disk_room=DiskRoom())
        self.path = directory / METADATA_FOLDER
        self._checkpoints: Checkpoints
        self.lost = ""
        """What `open` found to be missing at the log end; empty if nothing is known to be."""
        self._writing = Lock()
        self._turn = 0

    @property
    def exists(self) -> bool:
        """Whether the folder exists. Raises `StorageError` for a symbolic link, whose target may
        belong to another data directory."""
        if self._files.is_link(self.path):
            raise StorageError(
                f"{self.path} is a symbolic link; put the folder that it names in its place"
            )
        return self._files.exists(self.path)

    def make(self, offset: int, state: Iterable[bytes]) -> Path | None:
        """Create the folder, durably and atomically, with a log that begins at `offset` and
        `state`. An existing folder is kept under another name, which is returned.

        Raises `OSError`; the folder is unchanged then, or `finish_replacing` completes the rest.
        """
        files, path = self._files, self.path.with_name(METADATA_FOLDER + ".tmp")
        remove(files, path)
        files.make_directory(path)
        self._close_to_others(path)
        files.make_directory(path / folder_name(*METADATA_PARTITION))
        checkpoints = Checkpoints(files, path, self._seams.observe, watermarks=True)
        starts = {METADATA_PARTITION: offset}
        checkpoints.write(dict(starts), dict(starts), dict(starts))
        self._write(path / STATE_FILE, state)
        files.sync_directory(path)
        if files.exists(self.path):
            self._rename(path, self._new)
            kept = quarantine_file(files, self.path)
            files.sync_directory(self.path.parent)
            self._rename(self._new, self.path)
            return kept
        self._rename(path, self.path)
        return None

    @property
    def _new(self) -> Path:
        """Path of a complete new folder while the old one is being set aside."""
        return self.path.with_name(METADATA_FOLDER + NEW_SUFFIX)

    def finish_replacing(self) -> None:
        """Finish a replacement that a power cut interrupted in `make`. Raises `OSError`."""
        if self._files.exists(self._new):
            if self._files.exists(self.path):
                remove(self._files, self._new)
            else:
                self._rename(self._new, self.path)

    def _rename(self, path: Path, target: Path) -> None:
        self._files.rename(path, target)
        self._files.sync_directory(target.parent)

    def _close_to_others(self, path: Path) -> None:
        # If another account owns the folder, or the file system has no permissions, the start of
        # the data directory reports that.
        with suppress(OSError):
            self._files.restrict(path, private=True)

    def open(self, *, leads: bool = False) -> Log:
        """Open the log. Its high watermark is the stored one, or the log start; with `leads`, for a
        single broker, the log end.

        Raises `OSError`, `StorageError`.
        """
        path = self.path / folder_name(*METADATA_PARTITION)
        self._close_to_others(self.path)
        unclean = take_marker(self._files, self.path)
        left = self.path / (STATE_FILE + COPY_SUFFIX)
        if self._files.exists(left):
            self._files.unlink(left)
        if not self._files.exists(path):
            self._seams.observe("metadata_log_missing", path=str(path))
            self.lost = f"there was no {path}"
            self._files.make_directory(path)
            self._files.sync_directory(self.path)
            unclean = None
        checkpoints = Checkpoints(self._files, self.path, self._seams.observe, watermarks=True)
        self._checkpoints = checkpoints
        recovery_point = checkpoints.recovery_points.get(METADATA_PARTITION)
        log_start = checkpoints.log_starts.get(METADATA_PARTITION, 0)
        if unclean is None:
            self._drop_empty(path, log_start)
        known = (checkpoints.high_watermarks or {}).get(METADATA_PARTITION, log_start)
        opened = partial(
            open_log,
            path,
            *METADATA_PARTITION,
            metadata_settings(),
            self._seams,
            high_watermark=None if leads else known,
            follows=not leads,
        )
        log = opened(
            clean=unclean is not None and recovery_point is not None,
            end_offset=recovery_point,
            recovery_point=recovery_point or 0,
            log_start_offset=log_start,
        )
        if max(log_start, recovery_point or 0) > log.log_end_offset:
            reached = max(log_start, recovery_point or 0)
            self.lost = self.lost or f"the log ends at {log.log_end_offset}, below {reached}"
            log.close()
            start = log_start if log_start <= log.log_end_offset else 0
            log = opened(clean=False, recovery_point=0, log_start_offset=start)
        log.on_cut = lambda log: self.write_checkpoints(log)
        return log

    def _drop_empty(self, path: Path, log_start: int) -> None:
        """Remove the files of an empty log, so that it is created again without a recovery, and
        without a report of one."""
        files = self._files
        if segment_bases(names := files.names(path)) == [log_start]:
            stem = f"{log_start:020d}."
            if not files.size(path / f"{stem}log"):
                for name in names:
                    if name.startswith(stem):
                        files.unlink(path / name)

    def write_checkpoints(self, log: Log) -> None:
        """Store the log's recovery point, log start and high watermark. Any thread. Raises
        `StorageError`."""
        try:
            log.flusher.secure_append_times()
            self._checkpoints.write(
                {METADATA_PARTITION: log.flusher.safe_point},
                {METADATA_PARTITION: log.log_start_offset},
                {METADATA_PARTITION: log.high_watermark},
            )
        except OSError as error:
            raise StorageError(
                f"the checkpoints in {self.path} cannot be written: {error}"
            ) from error

    def leave_marker(self) -> None:
        """Record that the log was closed cleanly. Raises `OSError`."""
        leave_marker(self._files, self.path, ())

    def read_state(self) -> Snapshot:
        """Return the stored state. Raises `OSError`, `MalformedState`."""
        path = self.path / STATE_FILE
        if not self._files.exists(path):
            raise MalformedState("the file is missing")
        with closing(self._files.open(path, read_only=True)) as file:
            return decode_state(pieces_of(file))

    def reading_state(self) -> "StateReading":
        """Return a reader of the stored state, in parts, for a follower. Raises `OSError`,
        `MalformedState`."""
        return StateReading(self._files.open(self.path / STATE_FILE, read_only=True))

    def copying_state(self) -> "StateCopy":
        """Return a `StateCopy`, which stores the leader's state as it is received in parts."""
        return StateCopy(self._files, self.path / (STATE_FILE + COPY_SUFFIX))

    def take_over(self, copied: "StateCopy") -> None:
        """Replace the stored state by a complete copy. Raises `OSError`."""
        self._turn += 1
        with self._writing:
            self._files.rename(copied.path, self.path / STATE_FILE)
            self._files.sync_directory(self.path)

    @property
    def turn(self) -> int:
        """Changes with each `replace_state`."""
        return self._turn

    def replace_state(self, pieces: Iterable[bytes]) -> int:
        """Replace the stored state atomically and durably. Return its size. Raises `OSError`.

        A state that is being written meanwhile does not replace this one.
        """
        self._turn += 1
        with self._writing:
            return self._write(self.path / STATE_FILE, pieces)

    def write_state(self, pieces: Iterable[bytes], turn: int) -> int:
        """Like `replace_state`, in any thread. If `turn` is over, write nothing and return 0."""
        with self._writing:
            return self._write(self.path / STATE_FILE, pieces) if turn == self._turn else 0

    def _write(self, path: Path, pieces: Iterable[bytes]) -> int:
        position = 0
        with replacing(self._files, path) as file:
            for piece in _joined(pieces):
                file.pwrite(piece, position)
                position += len(piece)
        return position


class StateWrite:
    """A state to be written. Any thread may call `run`."""

    def __init__(self, folder: MetadataFolder, offset: int, state: MetadataState) -> None:
        self.offset = offset
        self.size_bytes = 0
        """Number of bytes written; 0 before, and if another state replaced this one meanwhile."""
        self._folder = folder
        self._turn = folder.turn
        self._topics = list(state.topics.values())
        self._positions = state.positions.copy()
        self._access = state.access
        self._journal = tuple(state.journal)

    def pieces(self) -> Iterator[bytes]:
        table = self._positions
        held = ((name, table.of(name)) for name in table.names())
        records = records_of(self._topics, held, self._access, self._journal)
        return encode_state(self.offset, records)

    def run(self) -> None:
        """Write the file. Raises `OSError`."""
        self.size_bytes = self._folder.write_state(self.pieces(), self._turn)


_WRITE_BYTES: Final = 1 << 20


def _joined(pieces: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the same bytes in larger pieces."""
    part = bytearray()
    for piece in pieces:
        part += piece
        if len(part) >= _WRITE_BYTES:
            yield bytes(part)
            part = bytearray()
    yield bytes(part)
