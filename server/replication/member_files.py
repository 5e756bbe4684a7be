"""The files in which a cluster member keeps its own identity, and the leaders of past epochs.

Both files are replaced as a whole (temporary file, sync, rename). `replication-identity`:

    {"version": 1, "broker_id": 2, "nonce": 4611686018427387904, "in_doubt": false,
     "highest_epoch": 1001, "counted_revision": 3, "record": [[1, 77], [2, 88]], "next_nonce": 0,
     "boot_id": "c1c0f5b2-...", "device": 65025, "inode": 1310722}

`device` and `inode` identify the data directory itself. A copy of the directory has other numbers,
and may lack messages that its broker has confirmed. After a restart of the machine only the inode
is compared, because the kernel may number its devices anew.

`leader-epoch-owners` says which broker led in which epoch:

    0                           the version
    2                           how many lines follow
    5 1 4611686018427387904     epoch, broker id, nonce of the leader's directory
    6 3 88

A leader writes the line of its epoch before the first message of the epoch, and a follower writes
its leader's lines before it appends. So every epoch in a log has an owner, unless the messages come
from a single broker or from Kafka.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final

from ...protocol.errors import StorageError
from ...protocol.limits import MAX_LEADER_EPOCHS
from ...replication.partition_log import Identity
from ...replication.settings import Member
from ...storage.directory.known_files import EPOCH_OWNERS_FILE, IDENTITY_FILE
from ...storage.files import Files, replace_file
from ...values import value_class

VERSION: Final = 1

NOT_RECORDED: Final = (0, 0)
"""The device and inode in a file that names none."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@value_class
class KnownIdentity:
    """The content of the file `replication-identity`."""

    broker_id: int
    identity: Identity
    boot_id: str = ""
    """The boot id of the kernel when the file was written; empty if the system has none."""
    inode: tuple[int, int] = NOT_RECORDED
    """Device and inode of the data directory."""


def encode_identity(known: KnownIdentity) -> bytes:
    """Encode the file `replication-identity`, in the format of the module's docstring."""
    identity = known.identity
    document = {
        "version": VERSION,
        "broker_id": known.broker_id,
        "nonce": identity.nonce,
        "in_doubt": identity.in_doubt,
        "highest_epoch": identity.highest_epoch,
        "counted_revision": identity.counted_revision,
        "record": sorted(list(member) for member in identity.record),
        "next_nonce": identity.next_nonce,
        "boot_id": known.boot_id,
        "device": known.inode[0],
        "inode": known.inode[1],
    }
    return (json.dumps(document) + "\n").encode()


def decode_identity(content: bytes) -> KnownIdentity:
    """The opposite of `encode_identity`. Raises `ValueError` for anything else."""
    try:
        document = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError(f"it is not of version {VERSION}")
    record = document.get("record")
    if not isinstance(record, list) or not all(_is_member(one) for one in record):
        raise ValueError("record is not a list of (broker id, nonce)")
    identity = Identity(
        _number(document, "nonce", 0),
        document.get("in_doubt") is not False,
        _number(document, "highest_epoch", -1),
        _number(document, "counted_revision", 0),
        frozenset(Member(*one) for one in record),
        _number(document, "next_nonce", 0, absent=0),
    )
    return KnownIdentity(
        _number(document, "broker_id", 1),
        identity,
        str(document.get("boot_id", "")),
        (_number(document, "device", 0, absent=0), _number(document, "inode", 0, absent=0)),
    )


def _number(document: dict[str, Any], name: str, least: int, *, absent: int | None = None) -> int:
    value = document.get(name, absent)
    if type(value) is not int or value < least:
        raise ValueError(f"{name} is {value!r}, not a number from {least} on")
    return value


def _is_member(one: object) -> bool:
    return isinstance(one, list) and len(one) == 2 and all(type(number) is int for number in one)


class IdentityFile:
    """The file `replication-identity` of a data directory, for one run of a broker.

    The state machine goes on only when a stored identity is synced, so the event loop would wait
    for the disk. A new epoch, or a revision of the cluster's state, may be stored early because
    both only grow. So the code that first reads a new value stores it ahead, in a thread, and
    nothing is left to be written when the state machine gets the value.
    """

    def __init__(self, files: Files, data_dir: Path, broker_id: int) -> None:
        """Read the file. Raises `StorageError` if it is malformed, or another broker's."""
        self._files = files
        self._path = data_dir / IDENTITY_FILE
        self._broker_id = broker_id
        self._boot_id = boot_id(files)
        self._inode = files.inode(data_dir)
        self._writing = Lock()
        self._ahead = Identity()
        """Holds the epoch and the revision to store ahead, if they are above the identity's."""
        self._written: Identity | None = None
        """The identity in the file; `None` if that is not certain."""
        self.identity = Identity()
        self.rebooted = False
        """Whether the machine may have been restarted since the file was written."""
        self.copied = False
        """Whether the directory is a copy of the directory in which the file was written."""
        known = self._read()
        if known is None:
            return
        if known.broker_id != broker_id:
            raise StorageError(
                f"{self._path} says that this is the data of broker {known.broker_id}, and "
                f"broker.id (--broker-id) is {broker_id}; start with the right one, or with an "
                "empty data directory"
            )
        self.identity = known.identity
        self.rebooted = not self._boot_id or known.boot_id != self._boot_id
        self.copied = self._is_copy(known.inode)
        if (self.rebooted or known.inode == NOT_RECORDED) and not self.copied:
            self.store(self.identity)

    def _is_copy(self, recorded: tuple[int, int]) -> bool:
        if recorded == NOT_RECORDED:
            return False
        device, inode = recorded
        return inode != self._inode[1] or (not self.rebooted and device != self._inode[0])

    def _read(self) -> KnownIdentity | None:
        if not self._files.exists(self._path):
            return None
        try:
            return decode_identity(self._files.read_bytes(self._path))
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{self._path} cannot be read ({error}), so it is not known what this broker has "
                "confirmed; start it with an empty data directory, to copy everything anew"
            ) from error

    def store(self, identity: Identity) -> None:
        """Store an identity, synced. Raises `StorageError`."""
        with self._writing:
            self._write(identity)
            self.identity = identity

    def storing_ahead(self, coming: Identity) -> Callable[[], None] | None:
        """Return a function that writes this epoch and revision to the file, so that a later
        `store` need not write; `None` if they are in the file already.

        The function may run in any thread, and raises `StorageError`.
        """
        self._ahead = _further(self._ahead, coming)
        if self._written == _further(self.identity, self._ahead):
            return None
        return self._store_ahead

    def _store_ahead(self) -> None:
        with self._writing:
            self._write(self.identity)

    def _write(self, identity: Identity) -> None:
        stored = _further(identity, self._ahead)
        if stored == self._written:
            return
        content = encode_identity(
            KnownIdentity(self._broker_id, stored, self._boot_id, self._inode)
        )
        self._written = None
        try:
            replace_file(self._files, self._path, content)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error}") from error
        self._written = stored


def _further(identity: Identity, other: Identity) -> Identity:
    """Return `identity` with the epoch and the revision of `other` if those are higher."""
    return identity._replace(
        highest_epoch=max(identity.highest_epoch, other.highest_epoch),
        counted_revision=max(identity.counted_revision, other.counted_revision),
    )


def boot_id(files: Files) -> str:
    """Return the kernel's boot id, which changes with each start of the machine; empty if the
    system has none."""
    try:
        return files.read_bytes(_BOOT_ID).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


OWNERS_VERSION: Final = "0"
_LINE: Final = re.compile(r"([0-9]{1,10}) ([0-9]{1,3}) ([0-9]{1,19})", re.ASCII)


def encode_owners(owners: Mapping[int, Member]) -> bytes:
    """Encode the file `leader-epoch-owners`, in the format of the module's docstring."""
    lines = [f"{epoch} {member.broker_id} {member.nonce}" for epoch, member in owners.items()]
    return "\n".join([OWNERS_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_owners(content: bytes) -> dict[int, Member]:
    """The opposite of `encode_owners`. Raises `ValueError` for anything else."""
    lines = content.decode("ascii").split("\n")
    if len(lines) < 3 or lines[0] != OWNERS_VERSION or lines[-1]:
        raise ValueError(f"it does not begin with version {OWNERS_VERSION}, or its end is missing")
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
    """The file `leader-epoch-owners` of a data directory, for one run of a broker."""

    def __init__(self, files: Files, data_dir: Path) -> None:
        """Read the file. Raises `StorageError` if it is malformed."""
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
        """Store the owners, synced, and use them from now on. Raises `StorageError`."""
        self.write(owners)
        self.owners = owners

    def write(self, owners: Mapping[int, Member]) -> None:
        """Write the owners to the file, synced, so that `store` need not write them. Any thread.
        Raises `StorageError`."""
        with self._writing:
            if owners == self._written:
                return
            try:
                replace_file(self._files, self._path, encode_owners(owners))
            except OSError as error:
                raise StorageError(f"{self._path} cannot be written: {error}") from error
            self._written = owners


@value_class
class MemberFiles:
    """Both files of a cluster member's data directory."""

    identity: IdentityFile
    owners: EpochOwnersFile
