"""Writing a state, so that the start of the metadata log can move to the state's end."""

from collections.abc import Iterator

from .folder import MetadataFolder
from .metadata_state import MetadataState, records_of
from .snapshot import encode_state


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
