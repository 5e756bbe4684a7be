"""The state in memory: a stored one, and the records behind it that have been taken in."""

from collections.abc import Callable, Iterator

from ...protocol.errors import StorageError
from ..log.log import Log
from .metadata_state import MetadataState
from .record_reading import read_records
from .records import MetadataRecord
from .snapshot import Snapshot


class CurrentState:
    """What the records of a metadata log below `offset` come to."""

    def __init__(self, log: Log) -> None:
        self.state = MetadataState()
        self.offset = 0
        """Of the first record that the state does not have."""
        self.log_bytes = 0
        """Of records behind the stored state."""
        self._log = log
        self._reading: Iterator[tuple[int, int, MetadataRecord]] | None = None

    @property
    def limit(self) -> int:
        """Records below it are committed, and synced here."""
        return min(self._log.high_watermark, self._log.flusher.synced_offset)

    def begin(self, snapshot: Snapshot, limit: int) -> None:
        """Go by a stored state, and the records between it and `limit`.

        Raises `StorageError` at a record that cannot be read, and has taken in those before it.
        """
        self._reading = None
        failure = None
        state, offset, log_bytes = snapshot.state, snapshot.offset, 0
        try:
            for next_offset, size, record in read_records(self._log, offset, limit):
                state.apply(record)
                offset, log_bytes = next_offset, log_bytes + size
            offset = max(offset, limit)
        except StorageError as error:
            failure = error
        self.state, self.offset, self.log_bytes = state, offset, log_bytes
        if failure is not None:
            raise failure

    def take(self, changed: Callable[[str], None]) -> bool:
        """Take in one more record below the limit, if there is one; whether there may be another.

        `changed` is called with the topic that is not what it was. Raises `StorageError` for a
        record that cannot be read.
        """
        if self._reading is None:
            limit = self.limit
            if limit <= self.offset:
                return False
            self._reading = read_records(self._log, self.offset, limit)
        found = next(self._reading, None)
        if found is None:
            self._reading = None
            return self.limit > self.offset
        self.offset, size, record = found
        self.log_bytes += size
        name = self.state.apply(record)
        if name is not None:
            changed(name)
        return True

    def forget_reading(self) -> None:
        """The log was cut: what was read ahead of it may not be there any more."""
        self._reading = None
