"""The leader epochs of one log, stored in its folder: `leader-epoch-checkpoint`.

The file exists from the first epoch on. An epoch is written and synced before its first message.
When the log is truncated, the log is synced before the truncated epochs are removed from the file.
So the file may name an epoch that has no messages yet, or no longer, but it never lacks one.
When the log is opened, such lines are skipped, and so are those of dropped segments.

A file that cannot be read is not an empty history: requests for the epochs are refused until the
log is emptied.
"""

from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from ...protocol.errors import StorageError
from ..files import Files, replace_file
from ..names import LEADER_EPOCHS
from ..seams import Seams
from .epoch_history import NO_EPOCH, EpochHistory, MalformedEpochs, decode_epochs, encode_epochs


class _EpochFile:
    """The epoch file of one log. Its lock allows one write at a time."""

    __slots__ = ("begun", "files", "lock", "path", "written")

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path
        self.lock = Lock()
        self.begun = 0
        """Number of the newest write."""
        self.written = 0
        """Number of the newest write that is on stable storage."""


class EpochWrite:
    """A history that has to reach stable storage. Any thread may call `run`."""

    __slots__ = ("_number", "_place", "history")

    def __init__(self, place: _EpochFile, history: EpochHistory) -> None:
        place.begun += 1
        self._number = place.begun
        self._place = place
        self.history = history

    def run(self) -> None:
        """Write the file and sync it and its folder, unless a newer write came first. Raises
        `OSError`."""
        place = self._place
        with place.lock:
            if place.written < self._number:
                replace_file(place.files, place.path, encode_epochs(self.history))
                place.written = self._number

    @property
    def stands(self) -> bool:
        """Whether the file has this history and no newer write is under way."""
        return self._place.written == self._place.begun == self._number


class LeaderEpochs:
    """The epochs of the log in `folder`, for the event loop's thread."""

    def __init__(self, folder: Path, seams: Seams, log_name: Mapping[str, object]) -> None:
        """Begin without a file; see `load`. `log_name` is added to every event."""
        self._place = _EpochFile(seams.files, folder / LEADER_EPOCHS)
        self._observe = seams.observe
        self._log_name = log_name
        self._history = EpochHistory()
        self._stored = EpochHistory()
        """The history in the file."""
        self.kept = False
        """Whether the file exists."""
        self.unreadable = ""
        """Why the file cannot be trusted; empty if it can."""
        self.highest_seen = NO_EPOCH
        """The highest epoch that the file named, with or without messages."""

    def load(self, first_offset: int, log_end_offset: int) -> None:
        """Read the file, which exists. The oldest segment of the log begins at `first_offset`.

        Raises `OSError`.
        """
        self.kept = True
        try:
            self._stored = decode_epochs(self._place.files.read_bytes(self._place.path))
        except MalformedEpochs as error:
            self.unreadable = str(error)
            self._observe(
                "leader_epochs_unreadable",
                path=str(self._place.path),
                reason=self.unreadable,
                **self._log_name,
            )
            return
        self.highest_seen = self._stored.last_epoch
        self._history = self._stored.cut(log_end_offset).begun_at(first_offset)

    @property
    def history(self) -> EpochHistory:
        """The epochs. Raises `StorageError` if the file cannot be trusted."""
        if self.unreadable:
            raise StorageError(
                f"{self._place.path} cannot be read ({self.unreadable}), so it is not "
                "known which leaders wrote this log: it has to be copied anew from the leader"
            )
        return self._history

    def writing(self, history: EpochHistory) -> EpochWrite | None:
        """Return the write that has to come before `take`, for any thread; `None` if there is
        nothing to write."""
        if self.unreadable or (history == self._stored and (self.kept or not history.starts)):
            return None
        return EpochWrite(self._place, history)

    def note(self, write: EpochWrite) -> None:
        """Record that `write` was run for messages that are still to come, so that `keep` has
        nothing to write then. The history in use does not change."""
        if write.stands:
            self._stored = write.history
            self.kept = True

    def take(self, history: EpochHistory) -> None:
        """Use `history`, which is on stable storage."""
        self._history = self._stored = history
        self.highest_seen = max(self.highest_seen, history.last_epoch)
        self.kept = self.kept or bool(history.starts)

    def keep(self, history: EpochHistory) -> None:
        """Write `history` to stable storage, if it is not there yet, and use it.
        Raises `OSError`."""
        write = self.writing(history)
        if write is not None:
            write.run()
        self.take(history)

    def cut(self, offset: int) -> None:
        """Record that the log now ends at `offset`, on stable storage. Raises `OSError`."""
        if not self.unreadable and self.kept:
            self.keep(self._history.cut(offset))

    def begin_at(self, offset: int) -> None:
        """Record that the oldest segment begins at `offset`; its messages can still be copied. The
        file is shortened when the next epoch is written."""
        self._history = self._history.begun_at(offset)

    def clear(self) -> None:
        """Remove all epochs: the log starts again without messages, on stable storage, or its
        epochs cannot be read. Raises `OSError`."""
        self.unreadable = ""
        if self.kept:
            self._stored = EpochHistory()
            EpochWrite(self._place, self._stored).run()
        self._history = self._stored
