"""Which broker led in which epoch, as a data directory knows it: the file `leader-epoch-owners`.

It is replaced as a whole (temporary file, sync, rename). Its lines:

    0                           the version
    2                           how many lines follow
    5 1 4611686018427387904     epoch, broker id, nonce of the leader's directory
    6 3 88

A leader writes the line of its epoch before the first message of it, and a follower those of its
leader before it appends. So an epoch that a log has messages of has an owner, unless the messages
are of a broker that was alone, or of Kafka.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from ...protocol.errors import StorageError
from ...protocol.limits import MAX_LEADER_EPOCHS
from ...replication.settings import Member
from ...storage.directory.known_files import EPOCH_OWNERS_FILE
from ...storage.files import Files, replace_file

_VERSION: Final = "0"
_LINE: Final = re.compile(r"([0-9]{1,10}) ([0-9]{1,3}) ([0-9]{1,19})", re.ASCII)


def encode_owners(owners: Mapping[int, Member]) -> bytes:
    """The content of the file, as the module says."""
    lines = [f"{epoch} {member.broker_id} {member.nonce}" for epoch, member in owners.items()]
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_owners(content: bytes) -> dict[int, Member]:
    """The opposite of `encode_owners`. Raises `ValueError` for anything else."""
    lines = content.decode("ascii").split("\n")
    if len(lines) < 3 or lines[0] != _VERSION or lines[-1]:
        raise ValueError(f"it does not begin with version {_VERSION}, or its end is missing")
    if lines[1] != str(len(lines) - 3) or len(lines) - 3 > MAX_LEADER_EPOCHS:
        raise ValueError(f"it has {len(lines) - 3} epochs, and says {lines[1][:20]}")
    owners: dict[int, Member] = {}
    before = -1
    for line in lines[2:-1]:
        found = _LINE.fullmatch(line)
        if found is None or int(found[1]) <= before:
            raise ValueError(f"{line[:80]!r} is no epoch, broker id and nonce, or out of order")
        before = int(found[1])
        owners[before] = Member(int(found[2]), int(found[3]))
    return owners


class EpochOwnersFile:
    """The file in a data directory, for one run of a broker."""

    def __init__(self, files: Files, data_dir: Path) -> None:
        """Reads it. Raises `StorageError` where it cannot be believed."""
        self._files = files
        self._path = data_dir / EPOCH_OWNERS_FILE
        self._writing = Lock()
        self.owners: Mapping[int, Member] = {}
        try:
            if files.exists(self._path):
                self.owners = decode_owners(files.read_bytes(self._path))
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{self._path} cannot be read ({error}), so it is not known which leaders wrote "
                "the messages of this broker; start it with an empty data directory, to copy "
                "everything anew"
            ) from error
        self._written: Mapping[int, Member] = self.owners

    def store(self, owners: Mapping[int, Member]) -> None:
        """Know these from now on, synced. Raises `StorageError`."""
        self.write(owners)
        self.owners = owners

    def write(self, owners: Mapping[int, Member]) -> None:
        """Bring these to the disk, in any thread, so that `store` of them writes nothing. Raises
        `StorageError`."""
        with self._writing:
            if owners == self._written:
                return
            try:
                replace_file(self._files, self._path, encode_owners(owners))
            except OSError as error:
                raise StorageError(f"{self._path} cannot be written: {error}") from error
            self._written = owners
