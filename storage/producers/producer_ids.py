"""Producer ids: no two producers ever get the same id, whatever happens to the broker.

Ids are given out in blocks. The file `producer-ids` has, as text, the version (`0`) and, on the
next line, the end of the present block. It is on stable storage before the first id of the block is
used, so a start continues behind the block; the rest of the block is lost.

A new directory begins at a random id. Folders copied from Kafka know its producers by ids counted
from 0, and a new producer with such an id would be taken for an old one. For the same reason a lost
or damaged file does no harm: a new random id is drawn.
"""

from pathlib import Path
from random import Random
from typing import Final

from ...protocol.errors import StorageError
from ...protocol.records.layout import SELF_CHOSEN
from ..events import Observer
from ..files import Files, replace_file

PRODUCER_IDS_FILE: Final = "producer-ids"

BLOCK: Final = 1000
"""Number of ids in a block, reserved by one write to the disk."""

MAX_PRODUCER_ID: Final = SELF_CHOSEN - 1
"""Bit 62 and the sign bit are never set."""

_VERSION: Final = "0"
_FIRST_BITS: Final = 61
_EPOCH_BITS: Final = 30
_LOWEST: Final = 2**40
"""Above any id that was counted up from 0."""


class ProducerIds:
    """The ids of one data directory. For one thread."""

    def __init__(self, files: Files, directory: Path, observe: Observer, random: Random) -> None:
        """Nothing is read before the first id is requested."""
        self._files = files
        self._path = directory / PRODUCER_IDS_FILE
        self._observe = observe
        self._random = random
        self._next = 0
        self._end = 0

    def next(self) -> int:
        """Return an id that no producer got before. Raises `StorageError` if that cannot be
        ensured."""
        if self._next == self._end:
            self._begin_block()
        self._next += 1
        return self._next - 1

    def begin_epoch(self, epoch: int) -> None:
        """Give out ids for a leader epoch from now on, which no other broker uses: bit 61, the
        epoch, and 30 bits for each id."""
        self._next = self._end = 1 << _FIRST_BITS | epoch << _EPOCH_BITS

    def _begin_block(self) -> None:
        try:
            first = self._end or self._read() or self._drawn()
            end = first + BLOCK
            if end - 1 > MAX_PRODUCER_ID:
                raise StorageError(f"{self._path}: all producer ids up to {first - 1} are used")
            replace_file(self._files, self._path, f"{_VERSION}\n{end}\n".encode())
        except OSError as error:
            raise StorageError(f"{self._path}: no producer id can be reserved ({error})") from error
        self._next, self._end = first, end

    def _read(self) -> int:
        """Return where the next block begins; 0 if not known."""
        if not self._files.exists(self._path):
            return 0
        lines = self._files.read_bytes(self._path).decode("ascii", errors="replace").splitlines()
        if len(lines) == 2 and lines[0] == _VERSION and lines[1].isdecimal():
            end = int(lines[1])
            if 0 < end <= MAX_PRODUCER_ID + 1:
                return end
        self._observe(
            "producer_ids_broken",
            path=str(self._path),
            consequence="ids go on from a place drawn at random",
        )
        return 0

    def _drawn(self) -> int:
        return max(self._random.getrandbits(_FIRST_BITS), _LOWEST)
