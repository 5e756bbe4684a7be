"""The leader epochs of one log, kept in its folder: `leader-epoch-checkpoint`.

A file is there from the first epoch on. An epoch is written, and synced, before the first message
of it; a cut of the log is, before the epochs that were cut off go from the file. So the file may
name an epoch that has no message yet, or any more, never too few: such a line is passed over when
the log is opened, as are those of segments that were dropped.

A file that cannot be read is no empty history: requests for it are refused until the log begins
anew.
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
    """Where the file is, for one write at a time."""

    __slots__ = ("begun", "files", "lock", "path", "written")

    def __init__(self, files: Files, path: Path) -> None:
        self.files = files
        self.path = path
        self.lock = Lock()
        self.begun = 0
        """Number of the newest write."""
        self.written = 0
        """Number of the newest that is on stable storage."""


class EpochWrite:
    """A history that is to be on stable storage; any thread may `run` it."""

    __slots__ = ("_number", "_place", "history")

    def __init__(self, place: _EpochFile, history: EpochHistory) -> None:
        place.begun += 1
        self._number = place.begun
        self._place = place
        self.history = history

    def run(self) -> None:
        """Write the file and sync it and the folder, unless a newer write was before this one.
        Raises `OSError`."""
        place = self._place
        with place.lock:
            if place.written < self._number:
                replace_file(place.files, place.path, encode_epochs(self.history))
                place.written = self._number

    @property
    def stands(self) -> bool:
        """Whether the file says this, and nothing is about to change it."""
        return self._place.written == self._place.begun == self._number


class LeaderEpochs:
    """The epochs of the log in `folder`; for the loop's thread."""

    def __init__(self, folder: Path, seams: Seams, log_name: Mapping[str, object]) -> None:
        """Without a file: see `load`. `log_name` goes with every event."""
        self._place = _EpochFile(seams.files, folder / LEADER_EPOCHS)
        self._observe = seams.observe
        self._log_name = log_name
        self._history = EpochHistory()
        self._stored = EpochHistory()
        """What the file says."""
        self.kept = False
        """Whether there is a file."""
        self.unreadable = ""
        """Why the file cannot be believed; empty when it can."""
        self.highest_seen = NO_EPOCH
        """The highest epoch that the file named, with or without a message."""

    def load(self, first_offset: int, log_end_offset: int) -> None:
        """Read the file, which is there, of a log whose oldest segment begins at `first_offset`.

        Raises `OSError`."""
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
        """The epochs. Raises `StorageError` where the file cannot be believed."""
        if self.unreadable:
            raise StorageError(
                f"{self._place.path} cannot be read ({self.unreadable}), so it is not "
                "known which leaders wrote this log: it has to be copied anew from the leader"
            )
        return self._history

    def writing(self, history: EpochHistory) -> EpochWrite | None:
        """What has to be done before `take`, which may be in any thread; `None` for nothing."""
        if self.unreadable or (history == self._stored and (self.kept or not history.starts)):
            return None
        return EpochWrite(self._place, history)

    def note(self, write: EpochWrite) -> None:
        """`write` was run, for messages that are still to come: `keep` has nothing to write then.
        The history is as before."""
        if write.stands:
            self._stored = write.history
            self.kept = True

    def take(self, history: EpochHistory) -> None:
        """Go by `history`, which is on stable storage."""
        self._history = self._stored = history
        self.highest_seen = max(self.highest_seen, history.last_epoch)
        self.kept = self.kept or bool(history.starts)

    def keep(self, history: EpochHistory) -> None:
        """Bring `history` to stable storage, if it is not there, and go by it. Raises `OSError`."""
        write = self.writing(history)
        if write is not None:
            write.run()
        self.take(history)

    def cut(self, offset: int) -> None:
        """The log ends at `offset`, on stable storage. Raises `OSError`."""
        if not self.unreadable and self.kept:
            self.keep(self._history.cut(offset))

    def begin_at(self, offset: int) -> None:
        """The oldest segment begins at `offset`; what is in it can still be copied. The file gets
        shorter with the next epoch."""
        self._history = self._history.begun_at(offset)

    def clear(self) -> None:
        """The log has no epochs: it begins anew, without a message, on stable storage, or nobody
        can read which they were. Raises `OSError`."""
        self.unreadable = ""
        if self.kept:
            self._stored = EpochHistory()
            EpochWrite(self._place, self._stored).run()
        self._history = self._stored
